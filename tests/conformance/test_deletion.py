"""Deleting, cancelling, keeping and losing: in every phase, and nothing stays behind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import harness
from tests.conformance.counter import Counter
from tests.conformance.harness import NOP, script, spec, task

pytestmark = pytest.mark.timeout(300)

ONE = "echo 1 > /logs/verifier/reward.txt\n"
FOREVER = "sleep 1000\n"
LARGE = "head -c 150000000 /dev/urandom > /logs/verifier/large\n"
"""Keeps the collection busy for a few seconds, between the verdict and `complete`."""


@dataclass(frozen=True)
class Held:
    """A run that stays in one phase: its spec, and how to see that it is there."""

    spec: dict[str, Any]
    there: Callable[[dict[str, Any], list[Any]], Any]
    """Of the status and the pods of the run."""


def _reason(status: dict[str, Any]) -> str:
    found = (c["reason"] for c in status.get("conditions", ()) if c["type"] == "Reconciling")
    return next(found, "")


def _phase(name: str) -> Callable[[dict[str, Any], list[Any]], bool]:
    return lambda status, _: status.get("phase") == name


def _toml(image: str) -> str:
    return f'schema_version = "1.4"\n[environment]\ndocker_image = "{image}"\nworkdir = "/app"\n'


HELD: dict[str, Held] = {
    "waiting for its task": Held(
        {"task": {"configMap": {"name": "there-is-none"}, "id": "task"}, "agent": NOP}, _phase("Pending")
    ),
    "suspended": Held(spec(task(ONE), NOP, suspend=True), lambda status, _: _reason(status) == "Suspended"),
    "Queued": Held(
        spec(task(ONE), NOP, pod={"nodeSelector": {"no": "such-node"}}),
        lambda status, _: _reason(status) == "Unschedulable",
    ),
    "an image that cannot be pulled": Held(
        spec(task(ONE, toml=_toml("taskfold-test/there-is-none:1")), NOP),
        lambda status, _: _reason(status) == "ImagePullFailed",
    ),
    "its pod starting": Held(
        spec(task(ONE), script("true", install=FOREVER)),
        lambda status, _: (status.get("attempts") or [{}])[-1].get("podUID"),
    ),
    "Running": Held(spec(task(ONE), script(FOREVER)), _phase("Running")),
    "Verifying": Held(spec(task(FOREVER), NOP), _phase("Verifying")),
}
"""By phase, and by what a run waits for inside of one. None ends within a test."""

ENDED: dict[str, Held] = {
    "a verdict, not complete": Held(
        spec(task(LARGE + ONE), NOP), lambda status, _: status.get("reward") and not status.get("complete")
    ),
    "complete": Held(spec(task(ONE), NOP), lambda status, _: status.get("complete")),
    "complete, its pod kept": Held(
        spec(task(ONE), NOP, podRetention="Always"), lambda status, pods: status.get("complete") and pods
    ),
}


class Runs:
    """Runs of one namespace under one operator."""

    def __init__(self, cluster: harness.Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def hold(self, name: str, held: Held) -> dict[str, Any]:
        """Create the run and wait until it is where it shall be held."""
        created = self.cluster.create_run(self.namespace, name, held.spec)
        self.cluster.until(lambda: held.there(self.status(name), self.cluster.pods(self.namespace, name)), "the phase")
        return created

    def status(self, name: str) -> dict[str, Any]:
        return self.cluster.status(self.namespace, name)

    def cancel(self, name: str) -> None:
        self.cluster.patch_run(self.namespace, name, {"cancel": True})

    def nothing_left(self, name: str, uid: str) -> None:
        def none() -> bool:
            return not self.cluster.belongings(self.namespace, name, uid)

        try:
            self.cluster.until(none, f"nothing of {name} is left", 60)
        except AssertionError as error:
            left = self.cluster.belongings(self.namespace, name, uid)
            raise AssertionError(f"{error}: {left}") from None


@pytest.fixture
def runs(cluster: harness.Cluster, namespace: str, operator: harness.Operator) -> Runs:
    return Runs(cluster, namespace)


@pytest.mark.parametrize("where", [*HELD, *ENDED])
def test_deleting_a_run_leaves_nothing(runs: Runs, name: str, where: str) -> None:
    created = runs.hold(name, {**HELD, **ENDED}[where])
    runs.cluster.delete_run(runs.namespace, name)
    runs.nothing_left(name, created["metadata"]["uid"])


@pytest.fixture
def lone(cluster: harness.Cluster, tmp_path: Path) -> Iterator[tuple[Runs, harness.Operator]]:
    """A namespace that the test deletes, and the operator that serves it."""
    namespace = cluster.create_namespace("deletion")
    operator = harness.Operator(tmp_path, cluster.kubeconfig, [namespace], janitor={"finishedSeconds": 2})
    operator.start()
    yield Runs(cluster, namespace), operator
    operator.stop()
    cluster.delete_namespace(namespace)


def test_a_namespace_ends_by_itself_with_the_operator_down(lone: tuple[Runs, harness.Operator]) -> None:
    runs, operator = lone
    cases = {**HELD, "complete, its pod kept": ENDED["complete, its pod kept"]}
    for number, held in enumerate(cases.values()):
        runs.hold(f"run-{number}", held)
    operator.kill()
    runs.cluster.delete_namespace(runs.namespace)
    names = runs.cluster.namespaces
    runs.cluster.until(lambda: runs.namespace not in names(), "the namespace is gone", 120)


@pytest.mark.parametrize("where", HELD)
def test_cancelling_a_run_keeps_its_record_and_removes_its_pod(runs: Runs, name: str, where: str) -> None:
    runs.hold(name, HELD[where])
    runs.cancel(name)
    status = runs.cluster.finished(runs.namespace, name)
    assert (status["phase"], status["failure"]["reason"]) == ("Cancelled", "Cancelled")
    assert "reward" not in status
    assert not status.get("masked")
    assert {c["type"]: c["status"] for c in status["conditions"]}["Succeeded"] == "False"
    assert runs.cluster.pods(runs.namespace, name) == []


def test_cancelling_during_verification_ends_the_verifier_run_too(runs: Runs, name: str) -> None:
    runs.hold(name, HELD["Verifying"])
    runs.cancel(name)
    status = runs.cluster.finished(runs.namespace, name)
    verifier = runs.cluster.verifier(runs.namespace, status["verifier"]["name"])
    assert (verifier["status"]["phase"], verifier["status"]["complete"]) == ("Cancelled", True)


@pytest.mark.parametrize("where", ["a verdict, not complete", "complete"])
def test_cancelling_after_the_verdict_changes_nothing(runs: Runs, name: str, where: str) -> None:
    runs.hold(name, ENDED[where])
    runs.cancel(name)
    status = runs.cluster.finished(runs.namespace, name)
    assert (status["phase"], status["reward"], status.get("failure")) == ("Succeeded", "1", None)
    assert not status.get("masked")


RETENTION = [
    ("Never", "verdict", False),
    ("Never", "no verdict", False),
    ("OnFailure", "verdict", False),
    ("OnFailure", "no verdict", True),
    ("Always", "verdict", True),
    ("Always", "no verdict", True),
]


@pytest.mark.parametrize(("retention", "ending", "kept"), RETENTION)
def test_pod_retention(runs: Runs, name: str, retention: str, ending: str, kept: bool) -> None:
    image = harness.IMAGE if ending == "verdict" else "taskfold-test/no-bash:1"
    wanted = spec(task(ONE, toml=_toml(image)), NOP, podRetention=retention)
    runs.cluster.create_run(runs.namespace, name, wanted)
    status = runs.cluster.finished(runs.namespace, name)
    assert status["phase"] == ("Succeeded" if ending == "verdict" else "Masked"), status
    assert bool(runs.cluster.pods(runs.namespace, name)) == kept


def test_a_verdict_of_0_is_no_failure_for_pod_retention(runs: Runs, name: str) -> None:
    runs.cluster.create_run(runs.namespace, name, spec(task("true"), NOP, podRetention="OnFailure"))
    status = runs.cluster.finished(runs.namespace, name)
    assert (status["phase"], status["reward"]) == ("Succeeded", "0")
    assert runs.cluster.pods(runs.namespace, name) == []


def test_pod_retention_may_be_changed_while_the_run_goes_on(runs: Runs, name: str) -> None:
    runs.hold(name, HELD["Running"])
    runs.cluster.patch_run(runs.namespace, name, {"podRetention": "Always"})
    runs.cancel(name)
    assert runs.cluster.finished(runs.namespace, name)["phase"] == "Cancelled"
    assert len(runs.cluster.pods(runs.namespace, name)) == 1


def test_a_finished_run_is_deleted_after_its_time_to_live(runs: Runs, name: str) -> None:
    created = runs.cluster.create_run(runs.namespace, name, spec(task(ONE), NOP, ttlSecondsAfterFinished=1))
    runs.nothing_left(name, created["metadata"]["uid"])


def test_a_time_to_live_that_is_set_after_the_end_holds_from_the_next_list_on(
    lone: tuple[Runs, harness.Operator],
) -> None:
    """Finished runs are not watched: the change is seen when they are listed, here every 2 s."""
    runs, _ = lone
    created = runs.hold("late", ENDED["complete"])
    runs.cluster.patch_run(runs.namespace, "late", {"ttlSecondsAfterFinished": 0})
    runs.nothing_left("late", created["metadata"]["uid"])


def test_a_suspended_run_goes_on_when_it_is_resumed(runs: Runs, name: str) -> None:
    runs.hold(name, HELD["suspended"])
    assert runs.cluster.pods(runs.namespace, name) == []
    runs.cluster.patch_run(runs.namespace, name, {"suspend": False})
    assert runs.cluster.finished(runs.namespace, name)["reward"] == "1"


# -- losses ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counter(cluster: harness.Cluster, own_namespace: str) -> Counter:
    made = Counter(cluster, own_namespace)
    made.start()
    return made


@pytest.mark.parametrize("grace", [0, 5])
def test_a_pod_that_is_deleted_while_the_agent_runs_masks_the_run(
    cluster: harness.Cluster,
    own_namespace: str,
    own_operator: harness.Operator,
    counter: Counter,
    name: str,
    grace: int,
) -> None:
    agent = counter.report(name, "agent") + FOREVER
    test = counter.report(name, "test") + ONE
    cluster.create_run(own_namespace, name, spec(task(test), script(agent)))
    counter.reported(name, "agent")
    cluster.delete_pods(own_namespace, name, grace)
    status = cluster.finished(own_namespace, name)
    assert (status["phase"], status["masked"], status.get("reward")) == ("Masked", True, None)
    failure = status["failure"]
    assert (failure["reason"], failure["kind"]) == ("PodDeleted", "provider_unavailable")
    assert (failure["stage"], failure["terminal"]) == ("agent", False)
    assert counter.counts(name) == {"agent": 1}


def test_a_pod_that_is_deleted_while_test_sh_runs_masks_the_run(
    cluster: harness.Cluster,
    own_namespace: str,
    own_operator: harness.Operator,
    counter: Counter,
    name: str,
) -> None:
    test = ONE + counter.report(name, "test") + FOREVER
    cluster.create_run(own_namespace, name, spec(task(test), NOP))
    counter.reported(name, "test")
    cluster.delete_pods(own_namespace, name, 0)
    status = cluster.finished(own_namespace, name)
    assert (status["phase"], status["masked"], status.get("reward")) == ("Masked", True, None)
    assert (status["failure"]["reason"], status["failure"]["stage"]) == ("PodDeleted", "verification")
    assert counter.counts(name) == {"test": 1}


def test_a_pod_that_is_deleted_before_the_agent_is_replaced(
    cluster: harness.Cluster,
    own_namespace: str,
    own_operator: harness.Operator,
    counter: Counter,
    name: str,
) -> None:
    test, agent = counter.report(name, "test") + ONE, counter.report(name, "agent")
    held_back = script(agent, install=counter.wait(name, "deleted"))
    cluster.create_run(own_namespace, name, spec(task(test), held_back))
    cluster.until(lambda: cluster.pods(own_namespace, name), "the pod exists")
    cluster.delete_pods(own_namespace, name, 0)
    counter.release(name, "deleted")
    status = cluster.finished(own_namespace, name)
    assert (status["phase"], status.get("reward")) == ("Succeeded", "1"), status
    assert [(each["number"], each["tries"]) for each in status["attempts"]] == [(1, 2)]
    assert counter.counts(name) == {"agent": 1, "test": 1}


def test_a_limit_below_the_default_request_lowers_the_request(runs: Runs, name: str) -> None:
    small = {"limits": {"memory": "96Mi", "ephemeral-storage": "128Mi", "cpu": "500m"}}
    runs.cluster.create_run(runs.namespace, name, spec(task(ONE), NOP, pod={"resources": small}))
    assert runs.cluster.finished(runs.namespace, name).get("reward") == "1"


def test_an_agent_over_its_memory_limit(runs: Runs, name: str) -> None:
    """C13. cgroup v2: the kubelet makes the kernel kill the whole container. v1: the largest process dies alone."""
    agent = "python3 -c 'x = bytearray(1 << 30)'"
    memory = {"requests": {"memory": "32Mi"}, "limits": {"memory": "96Mi"}}
    limited = spec(task(ONE), script(agent), pod={"resources": memory})
    runs.cluster.create_run(runs.namespace, name, limited)
    status = runs.cluster.finished(runs.namespace, name)
    if status["phase"] == "Masked":
        failure = status["failure"]
        assert (failure["reason"], failure["kind"]) == ("OOMKilled", "provider_oom_killed")
        assert "reward" not in status
    else:
        assert (status["phase"], status["reward"]) == ("Succeeded", "1")
        assert status["agent"]["outcome"] == "Failed"
        assert "signal 9" in status["agent"]["message"] or status["agent"].get("returnCode") == 137
        assert any("memory" in warning for warning in status.get("warnings", ())), status
