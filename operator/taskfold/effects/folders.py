"""Task folders on this machine: found, checked, and what their dataset adds to them.

Guarantees: a folder that is given back is one that this release can run; everything that is wrong with one is
said at once. Only the folder itself, the dataset.toml above it and the verifier.py beside that are read.
"""

import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from taskfold.api.reasons import Reason
from taskfold.build.refused import Refused
from taskfold.contract import dataset, effective, folder, loader
from taskfold.contract import task as tasks
from taskfold.contract.errors import TaskError

MAX_ID = 255
"""What spec.task.id takes; also the limit of a file name."""


@dataclass(frozen=True)
class Checked:
    """A task folder that loads.

    `effective`: what its run depends on, as the operator will see it. `files`: what an object has to hold for it, with
    what the dataset adds; `path`: where in them the task lies, None when they are the task's alone.
    """

    task: tasks.Task
    effective: folder.Folder
    files: folder.Folder
    path: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.task.warnings


def load(path: Path) -> Checked:
    """The task in this folder. Refused with every finding when it does not load."""
    place = path.resolve()
    if not place.is_dir():
        problem = "is not a folder" if place.exists() else "does not exist"
        raise Refused(Reason.INVALID_TASK, f"{path}: {problem}. Name a folder that holds a task.toml.")
    task_id = place.name or "task"
    whole: folder.Folder = folder.DirectoryFolder(place)
    problems: list[TaskError] = []
    try:
        try:
            whole = effective.compose(whole, name=place.name, within=dataset_of(place))
        except TaskError as error:
            problems += [error, *error.others]
            whole = effective.compose(whole)
        findings = loader.check(whole, task_id=task_id, name=place.name)
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
    return Checked(findings.task, whole, *effective.source_of(whole, task_id))


def dataset_of(place: Path) -> effective.Dataset | None:
    """The dataset around the task: the nearest folder above with a dataset.toml, not beyond a repository's top.

    Without one, the folder above counts if it has a verifier.py. Raises TaskError, OSError.
    """
    root = next((above for above in _above(place) if (above / dataset.FILE).is_file()), None)
    if root is None and (place.parent / effective.VERIFIER).is_file():
        root = place.parent
    if root is None:
        return None
    name = os.path.relpath(root / dataset.FILE, place)
    return effective.read_root(folder.DirectoryFolder(root), "", file=name)


def _above(place: Path) -> Iterator[Path]:
    for below, above in zip((place, *place.parents), place.parents, strict=False):
        if (below / ".git").exists():
            return
        yield above


def _hint(path: Path, place: Path) -> Iterator[str]:
    """A dataset was named where a task of it was meant."""
    if (place / "task.toml").exists():
        return
    tasks = sorted(child.parent.name for child in place.glob("*/task.toml"))
    if tasks:
        more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
        yield f"{path} is a folder of tasks: {', '.join(tasks[:5])}{more}. Name one of them: {path / tasks[0]}"
