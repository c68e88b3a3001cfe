"""docs/external-agents.md: its shell and Python examples work by copy and paste, with the rights that it names."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conformance import harness

TEXT = (harness.ROOT / "docs/external-agents.md").read_text()
SHELL, PYTHON, RIGHTS = (
    re.findall(rf"<!-- test: {mark} -->\n+```\w+\n(.*?)```", TEXT, re.DOTALL) for mark in ("shell", "python", "rights")
)
ACCOUNT = "outsider"
SECONDS = 110


@pytest.fixture(scope="module")
def kubeconfig(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A kubeconfig of an account that has the page's rights and no others."""
    role = yaml.safe_load(RIGHTS[0])
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]},
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    text = yaml.safe_dump_all([account, role, binding])
    harness.kubectl(cluster, "apply", "--namespace", namespace, "--filename", "-", text=text)
    token = harness.kubectl(cluster, "create", "token", ACCOUNT, "--namespace", namespace).strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    used = next(each for each in config["contexts"] if each["name"] == config["current-context"])
    used["context"] |= {"namespace": namespace, "user": ACCOUNT}
    config["users"] = [{"name": ACCOUNT, "user": {"token": token}}]
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    yield path
    harness.kubectl(cluster, "delete", "rolebinding", ACCOUNT, "--namespace", namespace)


def run(argv: list[str], kubeconfig: Path) -> str:
    """In the folder in which readers are; taskfold is this tree's."""
    bin_ = kubeconfig.parent / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / "taskfold").write_text(f'#!/bin/sh\nexec {sys.executable} -m taskfold "$@"\n')
    (bin_ / "taskfold").chmod(0o755)
    env = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{bin_}:{harness.tools()}:{os.environ['PATH']}",
        "PYTHONPATH": str(harness.ROOT / "operator"),
    }
    done = subprocess.run(argv, cwd=harness.ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("text", SHELL, ids=["by hand", "from a pipe"])
def test_a_shell_example(kubeconfig: Path, text: str) -> None:
    run(["bash", "-euo", "pipefail", "-c", text], kubeconfig)


@pytest.mark.parametrize("text", PYTHON)
def test_the_python_example(kubeconfig: Path, text: str) -> None:
    assert "Succeeded: 1.0" in run([sys.executable, "-c", text], kubeconfig)
