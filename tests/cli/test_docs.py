"""docs/reference/cli.md, result.md and verification.md: every example is run, every table is what the code knows."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from taskfold.build import result
from taskfold.cli import exits, reasons

from .conftest import OF_VERIFICATION, ROOT, SCHEMA, document, verification
from .fakes import RUNNING, FakeCluster, going, judged
from .test_results import ROW, index

CLI = (ROOT / "docs/reference/cli.md").read_text()
RESULT = (ROOT / "docs/reference/result.md").read_text()
VERIFICATION = (ROOT / "docs/reference/verification.md").read_text()
BASH = re.compile(r"```bash\n(.*?)```", re.DOTALL)
EXIT = re.compile(r"\s*# (?:.*, )?exit code (\d+)")
COMMANDS = [line for block in BASH.findall(CLI) for line in block.splitlines() if line]
STUB = """#!/bin/bash
# Stands for kubectl: the manifests must arrive and be YAML.
[[ $1 == apply ]] && python3 -c 'import sys, yaml; assert list(yaml.safe_load_all(sys.stdin))'
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    stub = tmp_path / "bin/kubectl"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    return f"{stub.parent}:{ROOT / '.venv/bin'}:{os.environ['PATH']}"


@pytest.mark.parametrize("line", COMMANDS)
def test_every_example_runs(line: str, cluster: FakeCluster, path: str, tmp_path: Path) -> None:
    if shutil.which("taskfold", path=path) is None:
        pytest.fail("the package is not installed: pip install -e .")
    if line.startswith("taskfold regrade"):
        cluster.have("my-run", judged("1", complete=True))
        cluster.statuses[:] = [judged("1", complete=True)]
    if line.startswith(("taskfold logs", "taskfold results")):
        cluster.have("my-run", judged("1", complete=True, attempts=[{"number": 1, "podName": "p", "podUID": "u"}]))
        cluster.have("gone-run", going("Failed", "PodRejected"))
        cluster.have("going-run", RUNNING)
        cluster.kept = (
            {} if "going-run" in line else {"files": index(("row.json", ROW)), "row.json": ROW, "log": b"text"}
        )
        line = line.replace("results/my-run", str(tmp_path))
    code = int(match[1]) if (match := EXIT.search(line)) else 0
    command = ["bash", "-o", "pipefail", "-c", EXIT.sub("", line)]
    environment = os.environ | {"PATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    if line.startswith("taskfold run ") and "--output json" in line:
        document(done.stdout)
    if line.startswith("taskfold regrade") and "--output json" in line:
        verification(done.stdout)


def test_examples_of_all_commands_are_there() -> None:
    assert {line.split()[1] for line in COMMANDS} == {
        "run",
        "render",
        "lint",
        "logs",
        "results",
        "regrade",
        "conformance",
    }


def test_the_exit_codes_are_those_of_the_code() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", CLI, re.MULTILINE)} == codes


def test_the_reasons_are_those_of_the_code() -> None:
    for reason, sentence in reasons.table_rows():
        assert f"| `{reason}` | {sentence} |" in RESULT


def test_the_fields_are_those_of_the_schema_and_of_the_code() -> None:
    fields = re.findall(r"^\| `(\w+)` \| (?:string|number|object|array|boolean)", RESULT, re.MULTILINE)
    assert fields == SCHEMA["required"] == list(SCHEMA["properties"])
    made: dict[str, Any] = result.refusal("a", "b", "InvalidTask", "c")
    assert list(made) == fields
    outcomes = re.findall(r"^\| `(\w+)` \| [^|]* \| [\d or]+ \|$", RESULT, re.MULTILINE)
    assert outcomes == SCHEMA["properties"]["outcome"]["enum"]


def test_the_fields_of_a_verification_are_those_of_the_schema_and_of_the_code() -> None:
    fields = re.findall(r"^\| `(\w+)` \| (?:string|number|object|array|boolean)", VERIFICATION, re.MULTILINE)
    assert fields == OF_VERIFICATION["required"] == list(OF_VERIFICATION["properties"])
    assert list(result.ungraded(result.Asked(), "Rejected", "", outcome="refused")) == fields
    assert OF_VERIFICATION["properties"]["outcome"] == SCHEMA["properties"]["outcome"]


def test_the_example_documents_are_valid() -> None:
    for page, read in ((RESULT, document), (VERIFICATION, verification)):
        (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
        read(example)


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "verdict"},
        {"reward": 1},
        {"failure": None},
        {"masked": True},
        {"outcome": "masked"},
        {"outcome": "lost"},
        {"more": 1},
    ],
)
def test_the_schema_refuses_contradictions(change: dict[str, Any]) -> None:
    made = result.refusal("a", "b", "InvalidTask", "c")
    jsonschema.validate(made, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(made | change, SCHEMA)
