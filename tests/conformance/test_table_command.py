"""`taskfold conformance` on the cluster under test: its exit codes, its reports, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conformance import harness


def start(cluster: harness.Cluster, namespace: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(harness.ROOT / "operator")}
    command = [sys.executable, "-m", "taskfold", "conformance", "--namespace", namespace, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=harness.ROOT
    )


def runs(cluster: harness.Cluster, namespace: str, prefix: str) -> list[str]:
    found = cluster.custom.list_namespaced_custom_object(harness.GROUP, harness.VERSION, namespace, "taskruns")["items"]
    return [run["metadata"]["name"] for run in found if run["metadata"]["name"].startswith(prefix)]


def test_what_holds_ends_with_0_and_is_not_run_again(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, tmp_path: Path
) -> None:
    only = ["--only", "reward-json-odd-*", "--only", "image-no-bash", "--format", "json"]
    first = start(cluster, namespace, *only)
    text, progress = first.communicate(timeout=100)
    assert first.returncode == 0, progress
    document = json.loads(text)
    assert document["counts"] == {"passed": 1, "failed": 0, "skipped": 1, "refused": 0, "stopped": 0}
    notes = {result["id"]: result["notes"] for result in document["results"]}
    assert notes == {"reward-json-odd-names": [], "image-no-bash": ["needs test images"]}
    assert document["setting"]["kubernetes"].startswith("v1.")
    assert runs(cluster, namespace, "reward-json-odd-names-") == []
    report = tmp_path / "report.json"
    report.write_text(text)
    again = start(cluster, namespace, *only, "--resume", str(report))
    text, progress = again.communicate(timeout=100)
    assert again.returncode == 0, progress
    assert json.loads(text)["counts"] == document["counts"]
    assert progress.startswith("0 cases in namespace")


def test_what_does_not_hold_ends_with_1_and_says_what(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator
) -> None:
    """An image without bash in place of the usual one."""
    image = "docker.io/taskfold-test/no-bash:1"
    done = start(cluster, namespace, "--only", "exit-code-of-a-pass", "--python-image", image)
    text, progress = done.communicate(timeout=100)
    assert done.returncode == 1, progress
    assert "  phase: 'Succeeded' expected, found 'Masked'" in text.splitlines()
    assert text.splitlines()[-1] == "0 passed, 1 failed, 0 skipped, 0 refused, 0 stopped"


def test_after_an_interrupt_nothing_is_left(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator
) -> None:
    running = start(cluster, namespace, "--only", "verifier-timeout-scaled", "--format", "json")
    cluster.until(lambda: runs(cluster, namespace, "verifier-timeout-scaled-"), "its run is there")
    running.send_signal(signal.SIGINT)
    text, progress = running.communicate(timeout=100)
    assert running.returncode == 130, progress
    assert json.loads(text)["counts"]["stopped"] == 1
    cluster.until(lambda: not runs(cluster, namespace, "verifier-timeout-scaled-"), "its run is gone")
