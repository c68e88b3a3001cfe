"""docs/results.md: every example is run, by somebody who has what its Role gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conformance import harness
from tests.reading import scene
from tests.reading.conftest import Finished

PAGE = (harness.ROOT / "docs/results.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
(ROLE,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def reader(cluster: harness.Cluster, namespace: str, people: scene.People) -> Path:
    """The kubeconfig of a user with the page's Role."""
    role = yaml.safe_load(ROLE.replace("team-a", namespace))
    harness.kubectl(cluster, "apply", "-f", "-", text=json.dumps(role))
    name = role["metadata"]["name"]
    harness.kubectl(cluster, "--namespace", namespace, "create", "rolebinding", "docs", f"--role={name}", "--user=dora")
    return people.by_certificate("dora")


@pytest.mark.parametrize("line", COMMANDS)
def test_every_example_runs(
    line: str,
    cluster: harness.Cluster,
    namespace: str,
    reader: Path,
    finished: Finished,
    people: scene.People,
    tmp_path: Path,
) -> None:
    name, _ = finished()
    scene.when_answered(people.login(reader), f"{scene.ROOT}/namespaces/{namespace}/taskruns/{name}/files", 200)
    config = json.loads(reader.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    paths = f"{harness.ROOT / '.venv/bin'}:{harness.tools()}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": paths}
    command = line.replace("team-a", namespace).replace("my-run", name)
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    if "--download" in line:
        assert (tmp_path / name / "row.json").exists()
    else:
        assert done.stdout


def test_the_role_is_what_the_page_says_it_takes(namespace: str) -> None:
    (rule, _) = yaml.safe_load(ROLE)["rules"]
    assert rule["apiGroups"] == [scene.GROUP]
    assert all(each in PAGE for each in rule["resources"])
