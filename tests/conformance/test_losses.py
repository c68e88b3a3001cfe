"""Losses on the real cluster: each told apart, each with its consequence (C13 to C15). docs/reference/losses.md.

Losses that an agent causes itself are in the table; a pod that a user deletes without further wishes is in
test_deletion.py; faults of nodes are in tests/chaos.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.conformance import ahead, facts, harness, inside
from tests.conformance.counter import Counter
from tests.conformance.harness import IMAGE, script, spec, task

pytestmark = pytest.mark.timeout(300)

Status = dict[str, Any]

ONE = "echo 1 > /logs/verifier/reward.txt\n"
FOREVER = "sleep 1000\n"
RETRIES = {"retries": {"infrastructure": 1}}


def masked(status: Status, kind: str, reason: str, stage: str) -> None:
    assert (status["phase"], status["masked"], "reward" in status) == ("Masked", True, False), status
    assert ahead.failure(status) == (kind, reason, stage)
    assert len(status["attempts"]) == 1


# -- what is nobody's fault ----------------------------------------------------------------------------------------


def sandbox(cluster: harness.Cluster, namespace: str, run: str, phase: str) -> Any:
    """The run's pod, once the run is in this phase."""
    name = cluster.in_phase(namespace, run, phase)["podName"]
    return cluster.core.read_namespaced_pod(name, namespace)


def evict(cluster: harness.Cluster, namespace: str, pod: str) -> None:
    """As a drain does it."""
    body = k8s.V1Eviction(metadata=k8s.V1ObjectMeta(name=pod, namespace=namespace))
    cluster.core.create_namespaced_pod_eviction(pod, namespace, body)


@ahead.run(task(ONE), script(FOREVER), onAgentCausedLoss="zero")
def test_a_drain_while_the_agent_works_is_never_a_zero(cluster: harness.Cluster, namespace: str, run_name: str) -> None:
    evict(cluster, namespace, sandbox(cluster, namespace, run_name, "Running").metadata.name)
    masked(ahead.verdict(cluster, namespace, run_name), "provider_unavailable", "PodDrained", "agent")


@ahead.run(task(FOREVER), script("true"), onAgentCausedLoss="zero")
def test_a_drain_while_test_sh_runs_is_never_a_zero(cluster: harness.Cluster, namespace: str, run_name: str) -> None:
    evict(cluster, namespace, sandbox(cluster, namespace, run_name, "Verifying").metadata.name)
    status = ahead.verdict(cluster, namespace, run_name)
    masked(status, "provider_unavailable", "PodDrained", "verification")
    verifier = cluster.verifier(namespace, status["verifier"]["name"])["status"]
    assert (verifier["phase"], verifier["masked"]) == ("Masked", True)


@pytest.fixture
def higher_priority(cluster: harness.Cluster, namespace: str) -> Iterator[str]:
    """A PriorityClass above the sandboxes'."""
    name = f"{namespace}-higher"
    scheduling = k8s.SchedulingV1Api(cluster.core.api_client)
    scheduling.create_priority_class({"metadata": {"name": name}, "value": 1000})
    yield name
    scheduling.delete_priority_class(name)


@ahead.run(task(ONE), script(FOREVER))
def test_a_pod_of_a_higher_priority_takes_the_sandboxs_place(
    cluster: harness.Cluster, namespace: str, run_name: str, higher_priority: str
) -> None:
    """It will not be on a node with this one sandbox, so that no other pod of the cluster is in its way."""
    node = sandbox(cluster, namespace, run_name, "Running").spec.node_name
    apart = {"labelSelector": {"matchLabels": {"taskfold.dev/run": run_name}}, "topologyKey": "kubernetes.io/hostname"}
    pod = {
        "metadata": {"name": f"instead-of-{run_name}"},
        "spec": {
            "priorityClassName": higher_priority,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": IMAGE, "command": ["sleep", "1000"]}],
        },
    }
    cluster.core.create_namespaced_pod(namespace, pod)
    masked(ahead.verdict(cluster, namespace, run_name), "provider_unavailable", "PodPreempted", "agent")
    cluster.core.delete_namespaced_pod(f"instead-of-{run_name}", namespace)


@ahead.run(task(FOREVER), script("true"))
def test_a_verifierrun_that_a_user_deletes(cluster: harness.Cluster, namespace: str, run_name: str) -> None:
    name = cluster.in_phase(namespace, run_name, "Verifying")["verifier"]["name"]
    cluster.custom.delete_namespaced_custom_object(harness.GROUP, harness.VERSION, namespace, "verifierruns", name)
    masked(ahead.verdict(cluster, namespace, run_name), "verifier_error", "VerifierRunDeleted", "verification")


def test_a_pod_that_is_made_again_under_the_same_name_is_another_one(
    cluster: harness.Cluster, own_namespace: str, own_operator: harness.Operator, name: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), script(FOREVER)))
    pod = sandbox(cluster, own_namespace, name, "Running").metadata
    own_operator.kill()
    try:
        cluster.delete_pods(own_namespace, name, 0)
        container = {"name": "main", "image": IMAGE, "command": ["sleep", "1000"]}
        again = {"metadata": {"name": pod.name}, "spec": {"containers": [container]}}
        cluster.core.create_namespaced_pod(own_namespace, again)
    finally:
        own_operator.start()
    masked(ahead.verdict(cluster, own_namespace, name), "provider_unavailable", "PodReplaced", "agent")
    status = cluster.finished(own_namespace, name)
    assert status["complete"]
    assert cluster.core.read_namespaced_pod(pod.name, own_namespace).metadata.deletion_timestamp is None, "not ours"
    cluster.core.delete_namespaced_pod(pod.name, own_namespace, grace_period_seconds=0)


# -- protocols -----------------------------------------------------------------------------------------------------


def spoken_by(cluster: harness.Cluster, namespace: str, run: str, version: int) -> None:
    """Let the pod say that an operator of this protocol made it."""
    pod = cluster.status(namespace, run)["podName"]
    cluster.core.patch_namespaced_pod(pod, namespace, {"metadata": {"labels": {"taskfold.dev/protocol": str(version)}}})


@ahead.run(task(ONE), script(FOREVER), onAgentCausedLoss="zero")
def test_a_pod_of_an_older_protocol_is_lost(cluster: harness.Cluster, namespace: str, run_name: str) -> None:
    cluster.in_phase(namespace, run_name, "Running")
    spoken_by(cluster, namespace, run_name, 0)
    masked(ahead.verdict(cluster, namespace, run_name), "provider_unavailable", "UnknownProtocol", "agent")


@ahead.run(task(ONE), script("until [ -e /tmp/go ]; do sleep 0.1; done"))
def test_a_pod_of_a_newer_protocol_waits_for_its_operator(
    cluster: harness.Cluster, namespace: str, run_name: str
) -> None:
    cluster.in_phase(namespace, run_name, "Running")
    own = int(cluster.pods(namespace, run_name)[0].metadata.labels["taskfold.dev/protocol"])
    spoken_by(cluster, namespace, run_name, own + 1)
    assert "newer operator" in cluster.shown(namespace, run_name, "UnknownProtocol")
    assert cluster.status(namespace, run_name)["phase"] == "Running"
    spoken_by(cluster, namespace, run_name, own)
    inside.shell(cluster, namespace, f"{run_name}-1-1", "touch /tmp/go")
    status = ahead.verdict(cluster, namespace, run_name)
    assert (status["phase"], status["reward"], len(status["attempts"])) == ("Succeeded", "1", 1)


# -- a whole new attempt -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counter(cluster: harness.Cluster, own_namespace: str) -> Counter:
    made = Counter(cluster, own_namespace)
    made.start()
    return made


class Attempts:
    """A run of two attempts, whose scripts report under the number of their attempt."""

    def __init__(self, cluster: harness.Cluster, namespace: str, counter: Counter, name: str) -> None:
        self.cluster, self.namespace, self.counter, self.name = cluster, namespace, counter, name

    def by_attempt(self, step: str, first: str = "", second: str = "") -> str:
        """Lines for a script: a report of the attempt, known by the pod's name, and what only this attempt does."""
        reports = [self.counter.report(self.name, f"{step}-{number}") for number in (1, 2)]
        return f"case $HOSTNAME in *-1-1)\n{reports[0]}{first};;\n*)\n{reports[1]}{second};;\nesac\n"

    def lose(self) -> None:
        """Delete the pod of the first attempt, as a user would."""
        self.cluster.core.delete_namespaced_pod(f"{self.name}-1-1", self.namespace)

    def check(self, **counts: int) -> Status:
        """The second attempt has the reward; each attempt's steps ran exactly once, and nothing is left of either."""
        status = self.cluster.finished(self.namespace, self.name)
        assert (status["phase"], status.get("reward")) == ("Succeeded", "0.25"), status
        assert "failure" not in status
        first, second = status["attempts"]
        assert (first["number"], first["podName"], first["reason"]) == (1, f"{self.name}-1-1", "PodDeleted")
        assert (second["number"], second["podName"], second["reason"]) == (2, f"{self.name}-2-1", "VerdictReached")
        assert first["endTime"] <= second["startTime"]
        assert first["podUID"] != second["podUID"]
        assert status["verifier"]["name"] == f"{self.name}-2-verify"
        assert status["store"].endswith("/2/")
        assert self.counter.counts(self.name) == counts
        assert self.cluster.pods(self.namespace, self.name) == []
        return status


@pytest.fixture
def attempts(
    cluster: harness.Cluster, own_namespace: str, own_operator: harness.Operator, counter: Counter, name: str
) -> Attempts:
    return Attempts(cluster, own_namespace, counter, name)


def test_a_pod_that_is_lost_while_the_agent_works_is_followed_by_a_new_attempt(
    attempts: Attempts, own_operator: harness.Operator
) -> None:
    """The image's record and the task are the first attempt's, though their source is gone by then (C25)."""
    cluster, namespace, name = attempts.cluster, attempts.namespace, attempts.name
    test = attempts.by_attempt("test") + "echo 0.25 > /logs/verifier/reward.txt; echo $COLOR >> /logs/verifier/color\n"
    dockerfile = {"environment/Dockerfile": f"FROM {IMAGE}\nENV COLOR=blue\n"}
    files = task(test, toml="[environment]\n", **dockerfile)
    items = [{"key": f"k{number}", "path": path} for number, path in enumerate(files)]
    body = {"metadata": {"name": name}, "data": {f"k{number}": text for number, text in enumerate(files.values())}}
    cluster.core.create_namespaced_config_map(namespace, body)
    source = {"configMap": {"name": name, "items": items}, "id": "task"}
    agent = script(attempts.by_attempt("agent", first=FOREVER) + "echo done > /logs/agent/note\n")
    cluster.create_run(namespace, name, {"task": source, "agent": agent, **RETRIES})
    attempts.counter.reported(name, "agent-1")
    cluster.core.delete_namespaced_config_map(name, namespace)
    attempts.lose()
    status = attempts.check(**{"agent-1": 1, "agent-2": 1, "test-2": 1})
    kept = facts.kept(own_operator, status)
    assert kept["logs/verifier/color"].strip() == b"blue"
    assert kept["logs/agent/note"].strip() == b"done"
    row = facts.document(own_operator, status, "row.json")
    assert (row["reward"], row["store"]) == (0.25, status["store"])
    assert any("attempt 1 was lost (PodDeleted)" in warning for warning in row["warnings"])


def test_a_pod_that_is_lost_while_test_sh_runs_is_followed_by_a_new_attempt(attempts: Attempts) -> None:
    cluster, namespace, name = attempts.cluster, attempts.namespace, attempts.name
    test = attempts.by_attempt("test", first=FOREVER) + "echo 0.25 > /logs/verifier/reward.txt\n"
    run = spec(task(test), script(attempts.by_attempt("agent")), **RETRIES)
    cluster.create_run(namespace, name, run)
    attempts.counter.reported(name, "test-1")
    attempts.lose()
    attempts.check(**{"agent-1": 1, "test-1": 1, "agent-2": 1, "test-2": 1})
    first = cluster.verifier(namespace, f"{name}-1-verify")["status"]
    assert (first["phase"], first["failure"]["reason"]) == ("Masked", "PodDeleted")


def test_when_the_attempts_are_used_up_the_run_is_masked(attempts: Attempts) -> None:
    cluster, namespace, name = attempts.cluster, attempts.namespace, attempts.name
    agent = attempts.by_attempt("agent", first=FOREVER, second=FOREVER)
    cluster.create_run(namespace, name, spec(task(ONE), script(agent), **RETRIES))
    for number in (1, 2):
        attempts.counter.reported(name, f"agent-{number}")
        cluster.core.delete_namespaced_pod(f"{name}-{number}-1", namespace)
    status = cluster.finished(namespace, name)
    assert (status["phase"], "reward" in status) == ("Masked", False)
    assert [each["reason"] for each in status["attempts"]] == ["PodDeleted", "PodDeleted"]
    assert attempts.counter.counts(name) == {"agent-1": 1, "agent-2": 1}
    assert cluster.pods(namespace, name) == []


def test_a_cancelled_run_is_not_tried_again(attempts: Attempts) -> None:
    cluster, namespace, name = attempts.cluster, attempts.namespace, attempts.name
    agent = attempts.by_attempt("agent", first=FOREVER)
    cluster.create_run(namespace, name, spec(task(ONE), script(agent), **RETRIES))
    attempts.counter.reported(name, "agent-1")
    cluster.patch_run(namespace, name, {"cancel": True})
    status = cluster.finished(namespace, name)
    assert (status["phase"], len(status["attempts"])) == ("Cancelled", 1)
    assert attempts.counter.counts(name) == {"agent-1": 1}
