"""An agent whose end nothing proves (C32): nothing is given to a verifier, and the work stays gradable."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hack.cluster import namespaces, parts
from hack.cluster.parts import Part

from taskfold.conformance.cases import separate
from tests.chaos.scene import local_cluster
from tests.chaos.trial import FULL
from tests.conformance import ahead, gate, harness
from tests.conformance.harness import script, task

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(300)]

NODE = 2
LIMITS = {"stopSeconds": 5, "deletionSeconds": 5}
TEST = "grep -qx 42 /app/answer && echo 1 > /logs/verifier/reward.txt\n"
RUN, POD = "unproven", "unproven-1-1"


def _kubelet(local: Any, up: bool) -> None:
    (parts.start if up else parts.kill)(local, Part.KUBELET, NODE)


def _link(local: Any, up: bool) -> None:
    namespaces.set_link(local, NODE, up=up)


@pytest.mark.parametrize("turn", [_kubelet, _link] if FULL else [_kubelet])
def test_an_agent_whose_node_falls_silent_before_it_has_stopped(
    cluster: harness.Cluster, namespace: str, tmp_path: Path, turn: Any
) -> None:
    """The node is silent from the moment on at which the operator asks for the agent's pod to go."""
    local = local_cluster(cluster.kubeconfig)
    if local is None or NODE not in local.node_numbers():
        pytest.skip("needs the local cluster with two nodes")
    execs: list[str] = []

    def told(method: str, target: str) -> None:
        execs.extend(filter(None, [gate.pod_of_exec(target)]))
        if method == "DELETE" and target.partition("?")[0].endswith(f"/pods/{POD}"):
            turn(local, up=False)

    files = task(TEST) | {"task.toml": separate.toml(artifacts='"/app/answer"')}
    pod = {"nodeSelector": {"kubernetes.io/hostname": local.node_name(NODE)}}
    with gate.gate(cluster.kubeconfig, tmp_path / "kubeconfig", told) as through:
        operator = harness.Operator(tmp_path, through, [namespace], limits=LIMITS)
        operator.start()
        try:
            cluster.create_run(namespace, RUN, harness.spec(files, script("echo 42 > answer"), pod=pod))
            status = cluster.finished(namespace, RUN)
            (container,) = cluster.core.read_namespaced_pod(POD, namespace).status.container_statuses
            turn(local, up=True)
            cluster.until(lambda: not cluster.pods(namespace, RUN), "the pods are gone")
            again = _regrade(cluster, namespace)
        finally:
            operator.stop()
    assert ahead.failure(status) == ("provider_unavailable", "AgentNotStopped", "verification")
    assert f"taskfold regrade {RUN}" in status["failure"]["message"]
    assert container.state.running is not None
    assert set(execs) == {POD, f"{RUN}-again-1"}
    assert (again.returncode, again.stdout) == (0, "reward: 1\n"), again.stderr


def _regrade(cluster: harness.Cluster, namespace: str) -> "subprocess.CompletedProcess[str]":
    words = ["regrade", "--kubeconfig", str(cluster.kubeconfig), "-n", namespace, RUN, "--name", f"{RUN}-again"]
    return subprocess.run(
        [sys.executable, "-m", "taskfold", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": str(harness.ROOT / "operator"), "PATH": "/usr/bin:/bin", "TERM": "dumb"},
    )
