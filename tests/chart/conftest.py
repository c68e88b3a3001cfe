"""Helm on the chart, kubectl on a real cluster, and namespaces that are gone afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import cluster as under_test

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "taskfold"
Completed = subprocess.CompletedProcess[str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Helm is built with the local cluster: what renders the chart runs where the cluster is."""
    for item in items:
        if "tests/chart/" in str(item.path) and "helm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def programs() -> dict[str, str]:
    """Where helm and kubectl are: as built by `make cluster`, else those of the machine."""
    command = [sys.executable, "hack/cluster", "bin"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    folders = os.pathsep.join([found.stdout.strip(), os.environ.get("PATH", "")])
    paths = {name: shutil.which(name, path=folders) for name in ("helm", "kubectl")}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        pytest.fail(f"there is no {', no '.join(missing)}: run `make cluster`, which builds them")
    return {name: str(path) for name, path in paths.items()}


class Helm:
    """`helm` on our chart."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, *arguments: str, stdin: str | None = None) -> Completed:
        command = [self._program, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    def patiently(self, *arguments: str, stdin: str | None = None) -> Completed:
        """One that waits for pods."""
        command = [self._program, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)

    def text(self, namespace: str, values: dict[str, Any] | None = None, only: str = "") -> str:
        """The rendered manifests of release `taskfold`; `only`: of one template."""
        chosen = ["--show-only", f"templates/{only}.yaml"] if only else []
        done = self(
            "template", "taskfold", str(CHART), "-n", namespace, "-f", "-", *chosen, stdin=json.dumps(values or {})
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, namespace: str, values: dict[str, Any] | None = None, only: str = "") -> list[dict[str, Any]]:
        return [obj for obj in yaml.safe_load_all(self.text(namespace, values, only)) if obj]


@pytest.fixture(scope="session")
def helm(programs: dict[str, str]) -> Helm:
    return Helm(programs["helm"])


@pytest.fixture(scope="session")
def kubectl(programs: dict[str, str]) -> Callable[..., Completed]:
    path = under_test.existing()

    def run(*arguments: str, stdin: str | None = None, ok: bool = False) -> Completed:
        """`ok`: a failure of the command fails the test."""
        command = [programs["kubectl"], "--kubeconfig", str(path), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert not ok or done.returncode == 0, f"{arguments}: {done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def crds(kubectl) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"), ok=True)
    names = ("crd/taskruns.taskfold.dev", "crd/verifierruns.taskfold.dev")
    kubectl("wait", "--for=condition=Established", "--timeout=60s", *names, ok=True)
    # An API server serves them a moment after it says so.
    eventually(lambda: kubectl("get", "taskruns,verifierruns", "-n", "default").returncode == 0)


@pytest.fixture(scope="module")
def make_namespace(kubectl) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(**labels: str) -> str:
        """`labels`: of Pod Security, from the first moment on. The namespace is ready for pods when this returns."""
        name = f"chart-test-{uuid.uuid4().hex[:8]}"
        metadata = {"name": name, "labels": {f"pod-security.kubernetes.io/{key}": labels[key] for key in labels}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        kubectl("create", "-f", "-", stdin=json.dumps(body), ok=True)
        made.append(name)
        # The service account comes a moment after the namespace, and no pod is admitted before.
        eventually(lambda: kubectl("-n", name, "get", "serviceaccount", "default").returncode == 0)
        return name

    yield make
    for name in made:
        kubectl("delete", "namespace", name, "--wait=false")


def eventually(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true answer, asked for again and again; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not (answer := holds()):
        assert time.monotonic() < end, f"{holds} did not hold within {seconds} s"
        time.sleep(0.1)
    return answer


@pytest.fixture(scope="session", name="eventually")
def _eventually() -> Callable[..., Any]:
    return eventually
