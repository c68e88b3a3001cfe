"""A cluster beside the one that may be running: other name, state, ranges and ports."""

import os
import subprocess
import sys
from pathlib import Path

from tests import ports

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 300
"""Seconds for one command: a bound for one that hangs, out of the reach of a machine that is only busy."""


class Tool:
    """`python3 hack/cluster` with the settings of a second cluster."""

    def __init__(self, state: Path, name: str, network: int) -> None:
        """`network`: a number of one digit that no other cluster of the tests has; its ranges follow from it."""
        self.state, self.name = state, name
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TASKFOLD_C")},
            "TASKFOLD_CLUSTER_NAME": name,
            "TASKFOLD_CLUSTER_STATE": str(state),
            "TASKFOLD_CLUSTER_BRIDGE_RANGE": f"10.8{network}.0.0/24",
            "TASKFOLD_CLUSTER_POD_RANGE": f"10.23{network}.0.0/16",
            "TASKFOLD_CLUSTER_SERVICE_RANGE": f"10.10{network}.0.0/16",
            "TASKFOLD_CLUSTER_API_PORT": str(ports.free()),
            "TASKFOLD_CLUSTER_REGISTRY_PORT": str(ports.free()),
        }
        self.environment.pop("TASKFOLD_KUBECONFIG", None)
        if "TASKFOLD_CACHE" in os.environ:
            self.environment["TASKFOLD_CACHE"] = os.environ["TASKFOLD_CACHE"]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "hack/cluster", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, expect: int = 0) -> str:
        with self.start(*arguments) as child:
            output, _ = child.communicate(timeout=LIMIT)
        assert child.returncode == expect, output
        return output

    def kubectl(self, *arguments: str) -> str:
        command = [self.state / "bin/kubectl", f"--kubeconfig={self.state / 'kubeconfig'}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT).stdout
