"""Which cluster `up` takes, and the kind path for machines with a Docker engine.

The choice and kind's configuration are tested; the kind path itself is not run in CI,
where no node image can be pulled.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from hack.cluster.settings import ClusterError, Settings

GIVEN = "TASKFOLD_KUBECONFIG"


class Choice(StrEnum):
    GIVEN = "given"
    KIND = "kind"
    OWN = "own"


def choose(environ: Mapping[str, str], docker_answers: Callable[[], bool]) -> Choice:
    """A kubeconfig that is given, else kind if a Docker engine answers, else the own cluster."""
    if environ.get(GIVEN):
        return Choice.GIVEN
    return Choice.KIND if docker_answers() else Choice.OWN


def docker_answers() -> bool:
    if not shutil.which("docker"):
        return False
    try:
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def config(settings: Settings) -> dict[str, Any]:
    """kind's configuration: one control-plane node, and workers up to the number of nodes wanted."""
    workers = [{"role": "worker"} for _ in range(settings.nodes - 1)]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": settings.name,
        "networking": {
            "apiServerAddress": "127.0.0.1",
            "apiServerPort": settings.api_port,
            "podSubnet": str(settings.pod_range),
            "serviceSubnet": str(settings.service_range),
        },
        "nodes": [{"role": "control-plane"}, *workers],
    }


def up(settings: Settings) -> None:
    _require()
    settings.state.mkdir(parents=True, exist_ok=True)
    if settings.name in _run("get", "clusters").split():
        print(f"the kind cluster {settings.name} runs already")
        _run("export", "kubeconfig", "--name", settings.name, "--kubeconfig", str(settings.kubeconfig))
        return
    path = settings.state / "kind.json"
    path.write_text(json.dumps(config(settings), indent=2))  # JSON is YAML, too
    _run("create", "cluster", "--config", str(path), "--kubeconfig", str(settings.kubeconfig), "--wait", "120s")


def down(settings: Settings) -> None:
    _require()
    _run("delete", "cluster", "--name", settings.name, "--kubeconfig", str(settings.kubeconfig))
    shutil.rmtree(settings.state, ignore_errors=True)


def load(settings: Settings, archive: str) -> None:
    _require()
    _run("load", "image-archive", archive, "--name", settings.name)


def _require() -> None:
    if not shutil.which("kind"):
        raise ClusterError("a Docker engine answers, so kind is used, but no `kind` program is on the path: install it")


def _run(*arguments: str) -> str:
    done = subprocess.run(["kind", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`kind {' '.join(arguments)}` failed")
    return done.stdout
