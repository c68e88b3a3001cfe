"""Which real cluster the tests use, and the rule when there is none.

`make test` brings the local cluster up before it calls pytest. Without a cluster the tests that need one fail: a
skipped proof is no proof. `-m "not cluster"` leaves them out on purpose.
"""

import os
from pathlib import Path

import pytest

STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")


def kubeconfig() -> Path:
    """The kubeconfig of the cluster under test."""
    named = os.environ.get("TASKFOLD_KUBECONFIG")
    return Path(named) if named else STATE / "taskfold/cluster/kubeconfig"


def existing() -> Path:
    """The same; a test that asks for it fails where there is none."""
    path = kubeconfig()
    if not path.exists():
        pytest.fail(f"no cluster: {path} does not exist. Run `make cluster`, or name one in TASKFOLD_KUBECONFIG.")
    return path
