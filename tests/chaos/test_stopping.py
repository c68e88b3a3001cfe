"""An agent's pod whose node stops answering once the artifacts are out: nobody can prove that it has stopped (C32).

The verifier's sandbox runs beside it, on another node, and is given nothing; the run is masked with its artifacts kept.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from hack.cluster import namespaces, parts
from hack.cluster.parts import Part

from tests.chaos import copies, kept, scene
from tests.chaos.runs import Case
from tests.chaos.trial import FULL, Stage
from tests.conformance import harness
from tests.conformance.harness import GROUP, VERSION

TRIES = 6
"""A node may be quick enough to end the pod before it is cut off: then another run is taken."""
LIMITS = {"stopSeconds": 6, "deletionSeconds": 5}
SECONDS = 90.0
LOOK_SECONDS = 0.002
PLACES = ("/tests", "/app", "/logs/verifier", "/logs/agent", "/logs/artifacts")

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Trial:
    """One run, and the operator that serves it."""

    stage: Stage
    operator: harness.Operator
    case: Case

    @property
    def status(self) -> dict[str, Any]:
        return self.stage.cluster.status(self.stage.namespace, self.case.name)

    def verifier(self) -> dict[str, Any]:
        name = (self.status.get("verifier") or {}).get("name")
        found: dict[str, Any] = self.stage.cluster.verifier(self.stage.namespace, name) if name else {}
        return found.get("status") or {}

    def pod_of(self, kind: str) -> Any:
        """The pod whose owner is of this kind, while there is one."""
        pods = self.stage.cluster.pods(self.stage.namespace, self.case.name)
        return next((pod for pod in pods if pod.metadata.owner_references[0].kind == kind), None)


def _silent_kubelet(number: int, local: Any) -> AbstractContextManager[None]:
    @contextlib.contextmanager
    def silent() -> Iterator[None]:
        parts.kill(local, Part.KUBELET, number)
        try:
            yield
        finally:
            parts.start(local, Part.KUBELET, number)

    return silent()


def _cut_link(number: int, local: Any) -> AbstractContextManager[None]:
    @contextlib.contextmanager
    def cut() -> Iterator[None]:
        namespaces.set_link(local, number, up=False)
        try:
            yield
        finally:
            namespaces.set_link(local, number, up=True)

    return cut()


WAYS = {"kubelet": _silent_kubelet, "link": _cut_link}


@pytest.mark.parametrize("way", WAYS if FULL else ["kubelet"])
def test_nothing_is_delivered_before_the_agents_pod_is_proven_stopped(stage: Stage, way: str) -> None:
    local = scene.local_cluster(stage.cluster.kubeconfig)
    if local is None or local.nodes < 2:
        pytest.skip("needs two nodes of a cluster that hack/cluster has started")
    operator = harness.Operator(stage.folder, stage.cluster.kubeconfig, [stage.namespace], limits=LIMITS)
    with scene.served([operator]):
        for number in range(TRIES):
            trial = _begun(stage, operator, f"unproven-{number}")
            node = parts.number_of(local, trial.status["nodeName"])
            _await_manifest(trial)
            with WAYS[way](node, local):
                proven = _handed_over(trial)
                seen = [] if proven else _seen_until_final(trial)
                ended = {} if proven else stage.cluster.finished(stage.namespace, trial.case.name)
            if not proven:
                break
        else:
            pytest.fail(f"in none of {TRIES} runs was the node cut off before it had ended the agent's pod")
        assert seen, "the verifier's sandbox never ran beside the agent's"
        assert set(seen) == {""}, seen
        failure = ended.get("failure") or {}
        assert (ended["phase"], ended.get("reward"), failure.get("reason")) == ("Masked", None, "AgentNotStopped")
        assert trial.verifier().get("agentStoppedTime") is None
        assert stage.starts.of(trial.case.name) == {"agent": 1}
        place = operator.store / ended["store"]
        assert (place / "artifacts.json").exists()
        assert kept.wrong(place, trial.case.known) == []
        stage.cluster.until(lambda: not stage.cluster.pods(stage.namespace), "no pod is left", SECONDS)
        graded, files = _graded_again(trial)
        assert (graded, {"/app/bulk", "/tests/test.sh"} <= set(files)) == ("1", True)


def _begun(stage: Stage, operator: harness.Operator, name: str) -> Trial:
    """A run whose pods keep apart from each other, once its agent works."""
    apart = {"labelSelector": {"matchLabels": {"taskfold.dev/run": name}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    case = copies.case(name, random.Random(stage.seed), stage.starts, {"pod": {"affinity": affinity}})
    trial = Trial(stage, operator, case)
    stage.cluster.create_run(stage.namespace, name, case.spec)
    stage.cluster.until(lambda: trial.status.get("nodeName"), "the agent's pod has a node", SECONDS)
    return trial


def _await_manifest(trial: Trial) -> None:
    """The moment after the artifacts are out; the pod is asked to go a few calls later."""
    uid = trial.stage.cluster.run(trial.stage.namespace, trial.case.name)["metadata"]["uid"]
    place, deadline = trial.operator.store, time.monotonic() + SECONDS
    pattern = f"*/*/{uid}/1/artifacts.json"
    while not any(place.glob(pattern)):
        assert time.monotonic() < deadline, f"no manifest: {trial.status}"
        time.sleep(LOOK_SECONDS)


def _handed_over(trial: Trial) -> bool:
    """Wait until the agent's pod is asked to go. Returns whether its node told that it has ended, all the same."""

    def asked() -> bool:
        pod = trial.pod_of("TaskRun")
        return pod is None or pod.metadata.deletion_timestamp is not None

    trial.stage.cluster.until(asked, "the agent's pod is asked to go", SECONDS)
    pod = trial.pod_of("TaskRun")
    return pod is None or not any(each.state.running for each in pod.status.container_statuses)


def _seen_until_final(trial: Trial) -> list[str]:
    """The files at every place of a delivery, look by look, from the sandbox's start to the verification's end."""
    seen, deadline = [], time.monotonic() + SECONDS
    while trial.verifier().get("phase") not in ("Masked", "Succeeded", "Failed"):
        assert time.monotonic() < deadline, trial.verifier()
        pod = trial.pod_of("VerifierRun")
        if pod is None or not any(each.state.running for each in pod.status.container_statuses or ()):
            continue
        try:
            seen.append(_files(trial, pod.metadata.name))
        except AssertionError:
            if trial.verifier().get("phase") != "Masked":  # then the sandbox may be gone
                raise
            break
    return seen


def _files(trial: Trial, pod: str) -> str:
    """The files at every place of a delivery."""
    where = ("-n", trial.stage.namespace, "exec", pod, "-c", "main", "--")
    return harness.kubectl(
        trial.stage.cluster, *where, "sh", "-c", f"find {' '.join(PLACES)} -type f 2>/dev/null; true"
    )


def _graded_again(trial: Trial) -> tuple[str | None, list[str]]:
    """The reward of the kept artifacts, and what the same look shows where they were delivered."""
    stage, name = trial.stage, f"{trial.case.name}-again"
    stage.cluster.patch_run(stage.namespace, trial.case.name, {"podRetention": "Always"})
    uid = stage.cluster.run(stage.namespace, trial.case.name)["metadata"]["uid"]
    source = {"runRef": {"name": trial.case.name, "uid": uid}}
    kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "VerifierRun", "metadata": {"name": name}}
    body = {**kind, "spec": {"mode": "separate", "source": source}}
    stage.cluster.custom.create_namespaced_custom_object(GROUP, VERSION, stage.namespace, "verifierruns", body)

    def complete() -> dict[str, Any] | None:
        status = stage.cluster.verifier(stage.namespace, name).get("status") or {}
        return status if status.get("complete") else None

    found: dict[str, Any] = stage.cluster.until(complete, f"{name} is complete", SECONDS)
    return found.get("reward"), _files(trial, trial.pod_of("VerifierRun").metadata.name).splitlines()
