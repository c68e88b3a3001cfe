"""The helper's binary, built once; and the way to a real cluster."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from taskfold.effects import client as api
from taskfold.effects import credentials

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sandbox helper, built from this checkout."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        pytest.skip("go is not installed")
    target = tmp_path_factory.mktemp("helper") / "helper"
    environment = os.environ | {"CGO_ENABLED": "0"}
    subprocess.run([go, "build", "-o", str(target), "."], cwd=ROOT / "helper", check=True, env=environment)
    return target


@pytest.fixture(scope="session")
def kubeconfig() -> str:
    path = os.environ.get("TASKFOLD_KUBECONFIG") or str(Path("~/.local/state/taskfold/cluster/kubeconfig").expanduser())
    if not Path(path).exists():
        pytest.skip("no cluster: set TASKFOLD_KUBECONFIG or run `make cluster`")
    return path


@pytest.fixture
async def cluster_client(kubeconfig: str) -> AsyncIterator[api.Client]:
    async with api.Client(credentials.from_kubeconfig(kubeconfig)) as client:
        yield client
