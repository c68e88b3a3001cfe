"""Task folders on disk, a fake cluster, and the command line as a function."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from taskfold.cli.main import app

from .fakes import FakeCluster, kubeconfig, serving

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/result.schema.json").read_text())
OF_VERIFICATION = json.loads((ROOT / "docs/reference/verification.schema.json").read_text())
FILES = {
    "task.toml": 'environment.docker_image = "python:3.13-slim"\n',
    "instruction.md": "Write hello into hello.txt.\n",
    "tests/test.sh": "#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\necho hello >hello.txt\n",
}

Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "TASKFOLD_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write("hello", {path: content})`: the smallest task folder that runs, with these files over it."""

    def make(name: str = "hello", files: dict[str, str | bytes | None] | None = None) -> Path:
        folder = tmp_path / "tasks" / name
        for path, content in {**FILES, **(files or {})}.items():
            if content is None:
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
            if target.suffix == ".sh":
                target.chmod(0o755)
        return folder

    return make


@pytest.fixture
def cli() -> Cli:
    def call(*words: Any) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words], prog_name="taskfold")

    return call


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with serving(FakeCluster()) as fake:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "kubeconfig", fake.url)))
        yield fake


def document(stdout: str) -> dict[str, Any]:
    """Exactly one result document, valid."""
    found = json.loads(stdout)
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    return found


def verification(stdout: str) -> dict[str, Any]:
    """Exactly one document of a verification, valid."""
    found = json.loads(stdout)
    jsonschema.validate(found, OF_VERIFICATION, cls=jsonschema.Draft202012Validator)
    return found
