"""Task folders on this machine: found, checked, and what lies above them.

Guarantees: a folder that is given back is one that this release can run; everything that is wrong with one is
said at once. Settings of the dataset that this release does not know are refused, never ignored. Only the folder
itself and the dataset.toml beside it are read.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskfold.api.reasons import Reason
from taskfold.cli.exits import Refused
from taskfold.contract import digest, folder, loader
from taskfold.contract import task as tasks
from taskfold.contract.errors import TaskError

DATASET = "dataset.toml"
MAX_DATASET_BYTES = 4 * 2**20
"""Harbor lists a dataset's tasks and files in it."""
MAX_ID = 255
"""What spec.task.id takes; also the limit of a file name."""


@dataclass(frozen=True)
class Checked:
    """A task folder that loads. `files`: the part of it that the contract uses."""

    task: tasks.Task
    files: folder.Folder

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.task.warnings


def load(path: Path) -> Checked:
    """The task in this folder. Refused with every finding when it does not load."""
    place = path.resolve()
    if not place.is_dir():
        problem = "is not a folder" if place.exists() else "does not exist"
        raise Refused(Reason.INVALID_TASK, f"{path}: {problem}. Name a folder that holds a task.toml.")
    source = folder.DirectoryFolder(place)
    task_id = place.name or "task"
    try:
        problems = [*_of_dataset(place.parent / DATASET)]
        findings = loader.check(source, task_id=task_id)
        problems += findings.problems
        hint = [*_hint(path, place)] if findings.task is None else []
    except TaskError as error:
        problems, hint, findings = [error, *error.others], [], loader.Findings(None, (error,), ())
    except OSError as error:
        raise Refused(Reason.INVALID_TASK, f"{path}: cannot be read: {error}") from None
    if hint:
        raise Refused(Reason.INVALID_TASK, *hint)
    if problems or findings.task is None:
        problems.sort(key=lambda problem: problem.unsupported)
        reason = Reason.UNSUPPORTED_FIELD if problems[0].unsupported else Reason.INVALID_TASK
        raise Refused(reason, *(str(problem) for problem in problems))
    return Checked(findings.task, digest.used(source))


def _hint(path: Path, place: Path) -> Iterator[str]:
    """A dataset was named where a task of it was meant."""
    if (place / "task.toml").exists():
        return
    tasks = sorted(child.parent.name for child in place.glob("*/task.toml"))
    if tasks:
        more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
        yield f"{path} is a folder of tasks: {', '.join(tasks[:5])}{more}. Name one of them: {path / tasks[0]}"


def _of_dataset(path: Path) -> Iterator[TaskError]:
    """What dataset.toml asks for on top of its tasks. Harbor's own tables do not concern a run."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_DATASET_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return
    name, remedy = f"../{DATASET}", "Correct the file; https://toml.io has the format."
    if len(content) > MAX_DATASET_BYTES:
        yield TaskError(f"is larger than {MAX_DATASET_BYTES:,} bytes", file=name, remedy="Make the file smaller.")
        return
    try:
        gym = tomllib.loads(content.decode("utf-8-sig")).get("gym", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        yield TaskError(f"is not TOML: {error}", file=name, remedy=remedy)
        return
    for dotted, value in _leaves("gym", gym):
        yield TaskError(
            "settings of a dataset",
            file=name,
            field=dotted,
            value=value,
            remedy="move what the task needs into its task.toml, and take the key out",
            unsupported=True,
        )


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{prefix}.{_key(key)}", inner)


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else f'"{key}"'
