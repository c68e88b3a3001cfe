"""`taskfold run` against a cluster on which an operator serves TASKFOLD_TEST_NAMESPACE: TASKFOLD_TEST_OPERATOR=1."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import cluster

from .conftest import ROOT, document

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.environ.get("TASKFOLD_TEST_OPERATOR") != "1", reason="TASKFOLD_TEST_OPERATOR is not 1"),
]


NAMESPACE = os.environ.get("TASKFOLD_TEST_NAMESPACE", "taskfold")
HELLO = "environments/hello_dataset"


def taskfold(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "taskfold", *words, "--namespace", NAMESPACE]
    command += ["--set", "ttlSecondsAfterFinished=120"] if words[0] == "run" else []
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig()), "PYTHONPATH": str(ROOT / "operator")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.parametrize("source", ["inline", "configmap"])
def test_the_oracle_gets_its_reward(source: str) -> None:
    done = taskfold("run", f"{HELLO}/file-state", "--agent", "oracle", "--output", "json", "--from", source)
    found = document(done.stdout)
    assert (done.returncode, found["outcome"], found["reward"]) == (0, "verdict", 1), done.stderr
    assert found["phase"] == "Succeeded"


def test_logs_of_a_kept_pod_and_of_none() -> None:
    kept = document(taskfold("run", f"{HELLO}/file-state", "--keep", "--output", "json").stdout)
    shown = taskfold("logs", kept["name"])
    assert shown.returncode == 0, shown.stderr
    assert "==> /logs/verifier/reward.txt <==\n1\n" in shown.stdout
    assert "==> /logs/verifier/test-stdout.txt <==\ntotals.csv is right\n" in shown.stdout
    gone = document(taskfold("run", f"{HELLO}/file-state", "--output", "json").stdout)
    answer = taskfold("logs", gone["name"])
    assert answer.returncode == 2
    assert gone["store"] in answer.stderr


def test_ctrl_c_cancels_the_run(tmp_path: Path) -> None:
    script = tmp_path / "slow.sh"
    script.write_text("sleep 300\n")
    words = ["run", f"{HELLO}/file-state", "--agent", f"script:{script}", "--output", "json"]
    words += ["--namespace", NAMESPACE, "--set", "ttlSecondsAfterFinished=120"]
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig()), "PYTHONPATH": str(ROOT / "operator")}
    child = subprocess.Popen(
        [sys.executable, "-m", "taskfold", *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    said = next(line for line in child.stderr if "Running" in line or child.poll() is not None)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=60)
    found = document(stdout)
    assert (child.returncode, found["outcome"]) == (130, "cancelled"), said + stderr
