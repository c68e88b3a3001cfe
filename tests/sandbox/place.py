"""A sandbox's /tests, /logs/verifier and working directory in a temporary folder, and a verification in it."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskfold.build import python_verifier
from taskfold.contract.folder import MemoryFolder
from taskfold.contract.task import Grader, ImageSource, Task
from taskfold.contract.task_toml import TaskToml

FLAGS = ("-I", "-B", "-X", "utf8")
"""As test.sh starts it; a test holds the two together."""


@dataclass(frozen=True)
class Done:
    """How it ended. `rewards`: the reward files, by name; `left`: what else is in their folder."""

    code: int
    output: str
    rewards: Mapping[str, str]
    left: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """One sandbox. `env`: what the container has set."""

    root: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def tests(self) -> Path:
        return self.root / "tests"

    @property
    def workspace(self) -> Path:
        return self.root / "app"

    @property
    def rewards(self) -> Path:
        return self.root / "rewards"

    def fill(
        self,
        files: Mapping[str, str],
        *,
        data: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        workspace: Mapping[str, str] | None = None,
    ) -> "Place":
        """Put everything in place. `files`: the task folder's, tests/verifier.py or dataset/verifier.py among them."""
        grader = Grader.PYTHON if Grader.PYTHON in files else Grader.DATASET
        task = Task("t", "", TaskToml.model_validate({}), ImageSource("i"), None, (), grader, data)
        snapshot = MemoryFolder({path: (text.encode(), False) for path, text in files.items()})
        for folder in (self.tests, self.workspace, self.rewards):
            folder.mkdir(parents=True, exist_ok=True)
        for part in python_verifier.parts(task, response):
            content = part(snapshot)
            for entry in content.entries():
                write(self.tests / entry.path, content.read(entry.path))
        for path, text in (workspace or {}).items():
            write(self.workspace / path, text.encode())
        return self

    def run(self, python: str, *, seconds: float = 20) -> Done:
        """The runner under this Python."""
        runner = self.tests / ".ng" / "run_verifier.py"
        return self.command([python, *FLAGS, str(runner), str(self.rewards)], seconds=seconds)

    def test_sh(self, path: str) -> Done:
        """test.sh, with this PATH."""
        return self.command(["/bin/bash", str(self.tests / "test.sh"), str(self.rewards)], path=path)

    def command(self, command: list[str], *, path: str = os.defpath, seconds: float = 20) -> Done:
        with (self.root / "output").open("w+b") as output:  # a file: a child that keeps it open holds nothing up
            env = {"PATH": path, **self.env}
            ended = subprocess.run(
                command, cwd=self.workspace, env=env, stdout=output, stderr=output, timeout=seconds, check=False
            )
            output.seek(0)
            text = output.read().decode()
        there = {file.name: file for file in self.rewards.iterdir()}
        found = {name: there.pop(name).read_text() for name in ("reward.txt", "reward.json") if name in there}
        return Done(ended.returncode, text, found, tuple(there))


def write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
