"""A task of a local dataset, sent by the command line: the operator makes the same task of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskfold.contract import digest
from taskfold.effects import folders
from tests.conformance import harness

VERIFIER = """import os
from pathlib import Path


def verify(workspace: Path, task_data: dict) -> float:
    return float(str(workspace) == "/other" and os.environ["LEVEL"] == "hard" and task_data == {"n": 1})
"""
DATASET = """
[gym.defaults]
timeout_multiplier = 2
[gym.tasks."fix it".environment]
workdir = "/other"
env = { LEVEL = "hard" }
[gym.tasks.another.environment]
workdir = "/wrong"
"""


@pytest.mark.parametrize("source", ["inline", "configmap"])
def test_what_a_dataset_adds_reaches_the_sandbox(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str, source: str, tmp_path: Path
) -> None:
    place = tmp_path / "group" / "fix it"
    place.mkdir(parents=True)
    for path, content in harness.task(None, **{"task_data.json": '{"n": 1}'}).items():
        (place / path).write_text(content)
    (tmp_path / "dataset.toml").write_text(DATASET)
    (tmp_path / "verifier.py").write_text(VERIFIER)
    words = ["run", str(place), "--agent", "nop", "--from", source, "--name", name, "--namespace", namespace]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(harness.ROOT / "operator")}
    command = [sys.executable, "-m", "taskfold", *words, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=110)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reward"] == 1
    admitted = cluster.status(namespace, name)["admitted"]["taskDigest"]
    assert admitted == digest.task_digest(folders.load(place).effective)
