"""A real API server with the committed CRDs, and a namespace of the test module's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import kubernetes
import pytest

from .cluster import GROUP, PLURAL, Objects
from .manifests import BARE, FULL, VERIFIER_BARE, VERIFIER_FULL

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kubeconfig() -> str:
    given = os.environ.get("TASKFOLD_KUBECONFIG")
    path = Path(given) if given else Path.home() / ".local/state/taskfold/cluster/kubeconfig"
    if not path.exists():
        pytest.skip(f"no cluster: {path} is missing; run `make cluster` or set TASKFOLD_KUBECONFIG")
    return str(path)


@pytest.fixture(scope="module")
def kubectl(kubeconfig: str):
    program = shutil.which("kubectl")
    if program is None:
        bin_folder = subprocess.run(
            [sys.executable, "hack/cluster", "bin"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
        program = f"{bin_folder}/kubectl"

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [program, "--kubeconfig", kubeconfig, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture(scope="module")
def api(kubeconfig: str, kubectl) -> kubernetes.client.CustomObjectsApi:
    applied = kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    assert applied.returncode == 0, applied.stderr
    waited = kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=50s",
        *[f"crd/{plural}.{GROUP}" for plural in PLURAL.values()],
    )
    assert waited.returncode == 0, waited.stderr
    end = time.monotonic() + 50  # an API server serves them a moment after it says so
    while (listed := kubectl("get", ",".join(PLURAL.values()), "-n", "default")).returncode != 0:
        assert time.monotonic() < end, listed.stderr
        time.sleep(0.1)
    return kubernetes.client.CustomObjectsApi(kubernetes.config.new_client_from_config(kubeconfig))


@pytest.fixture(scope="module")
def namespace(kubectl) -> Iterator[str]:
    name = f"api-test-{uuid.uuid4().hex[:8]}"
    created = kubectl("create", "namespace", name)
    assert created.returncode == 0, created.stderr
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def objects(api, namespace) -> Objects:
    made = Objects(api, namespace)
    made.create("TaskRun", BARE, name="bare", dry_run=False)
    made.create("TaskRun", FULL, name="full", dry_run=False)
    made.create("VerifierRun", VERIFIER_BARE, name="bare", dry_run=False)
    made.create("VerifierRun", VERIFIER_FULL, name="full", dry_run=False)
    return made
