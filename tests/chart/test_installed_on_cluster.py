"""The chart, installed: a user who may view a namespace reads through the API server what a run there left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import alone
from tests import cluster as under_test

from taskfold.api import results

ROOT = Path(__file__).resolve().parents[2]
NAME = f"{results.VERSION}.{results.GROUP}"
IMAGE = "python:3.13-slim"
RUN = {
    "apiVersion": "taskfold.dev/v1alpha1",
    "kind": "TaskRun",
    "metadata": {"name": "kept"},
    "spec": {
        "task": {
            "inline": {
                "files": {
                    "task.toml": f'[environment]\ndocker_image = "{IMAGE}"\n',
                    "instruction.md": "Do it.\n",
                    "solution/solve.sh": "#!/bin/bash\necho solved\n",
                    "tests/test.sh": "#!/bin/bash\necho graded\necho 1 > /logs/verifier/reward.txt\n",
                }
            }
        },
        "agent": {"oracle": {}},
    },
}


pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def installed(helm, kubectl, crds, make_namespace) -> Iterator[str]:
    """The namespace of a release whose store is lost with its pod."""
    namespace = make_namespace()
    command = [sys.executable, str(ROOT / "hack/images"), "--pinned", "operator", "helper"]
    operator, helper = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    values = {
        "store": {"ephemeral": True},
        "image": {"digest": operator.rpartition("@")[2]},
        "settings": {"helper": {"image": helper}, "pod": {"cpuRequestFraction": 0.1, "memoryRequestFraction": 0.1}},
    }
    # With --kubeconfig the given one counts, whatever the environment of the tests says.
    where = ("-n", namespace, "--kubeconfig", str(under_test.existing()))
    local = ("--values", str(ROOT / "hack/local-values.yaml"), "--values", "-")
    with alone.with_the(alone.RESULTS_API):
        kubectl("delete", "apiservice", NAME, "--ignore-not-found", ok=True)  # of a session that died
        done = helm.patiently(
            "install", "taskfold", str(ROOT / "charts/taskfold"), *where, *local,
            "--skip-crds", "--wait", "--timeout=150s", stdin=json.dumps(values),
        )  # fmt: skip
        try:
            said = kubectl("-n", namespace, "logs", "deployment/taskfold", "--tail=30").stdout
            assert done.returncode == 0, f"{done.stderr}\n{said}"
            yield namespace
        finally:
            helm("uninstall", "taskfold", *where)


def test_a_user_with_the_role_view_reads_and_nobody_else(installed, kubectl, eventually):
    kubectl("wait", f"apiservice/{NAME}", "--for=condition=Available", "--timeout=60s", ok=True)
    kubectl("-n", installed, "create", "rolebinding", "ada", "--clusterrole=view", "--user=ada", ok=True)
    kubectl("-n", installed, "create", "-f", "-", stdin=json.dumps(RUN), ok=True)
    kubectl("-n", installed, "wait", "taskrun/kept", "--for=condition=Complete", "--timeout=80s", ok=True)
    path = f"/apis/{results.GROUP_VERSION}/namespaces/{installed}/taskruns/kept"
    ada, eve = ("--as=ada", "--as-group=system:authenticated"), ("--as=eve", "--as-group=system:authenticated")
    index = eventually(lambda: kubectl(*ada, "get", "--raw", f"{path}/files").stdout)
    (archive,) = json.loads(index)["archives"]
    assert (archive["of"], archive["stored"]) == ("sandbox", True)
    assert "graded\n" in kubectl(*ada, "get", "--raw", f"{path}/log?source=verifier", ok=True).stdout
    refused = kubectl(*eve, "get", "--raw", f"{path}/log")
    assert refused.returncode != 0
    assert "Forbidden" in refused.stderr
