"""Task folders for the tests, from the files that a test cares about."""

from __future__ import annotations

from taskfold.contract import errors, loader
from taskfold.contract import task as tasks
from taskfold.contract.folder import MemoryFolder

IMAGE = "python:3.12-slim"
TASK = {
    "task.toml": f'environment.docker_image = "{IMAGE}"\n',
    "instruction.md": "Write hello into hello.txt.\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
}


def folder(files: dict[str, str | bytes | None] | None = None) -> MemoryFolder:
    """The smallest task that runs, with `files` over it; None removes one."""
    merged = {**TASK, **(files or {})}
    content = {path: text.encode() if isinstance(text, str) else text for path, text in merged.items()}
    return MemoryFolder({path: (data, False) for path, data in content.items() if data is not None})


def toml(*lines: str) -> dict[str, str | bytes | None]:
    """A task.toml with an image and these dotted lines."""
    return {"task.toml": "\n".join((f'environment.docker_image = "{IMAGE}"', *lines))}


def load(files: dict[str, str | bytes | None] | None = None) -> tasks.Task:
    return loader.load(folder(files), task_id="hello")


def refusal(files: dict[str, str | bytes | None]) -> errors.TaskError:
    """The error that `files` bring about."""
    try:
        load(files)
    except errors.TaskError as error:
        return error
    raise AssertionError("the folder was not refused")
