"""The effective folder of a task (C25): what its run depends on, and nothing else.

Guarantees: an effective folder holds the used files of the task's own folder; `dataset/verifier.py`, the dataset's,
only when it grades this task; `dataset/settings.json`, canonical JSON of the dataset's settings for this task, only
when there are any; a row's fields as `task_data.json` when the folder has none. Nothing that a task's own folder
keeps under `dataset/` is in it. It is what is digested, kept as the snapshot, and loaded again from there: its
identity changes exactly when what counts changes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pydantic

from taskfold.contract import dataset, digest, errors, folder, task_data, toml_file, toml_text

VERIFIER = "verifier.py"
MAX_VERIFIER_BYTES = 2**20


@dataclass(frozen=True)
class Dataset:
    """What stands at a dataset's root, as far as tasks depend on it."""

    gym: dataset.GymTable = field(default_factory=dataset.GymTable)
    verifier: bytes | None = None


def root_of(source: folder.Folder, path: str) -> str | None:
    """Where the dataset of the task at `path` begins in this source; "" is the source's top, None: there is none.

    The nearest folder above the task with a dataset.toml; without one, the source's top if it has a verifier.py.
    """
    paths = {entry.path for entry in source.entries()}
    parts = [part for part in path.split("/") if part]
    for count in range(len(parts) - 1, -1, -1):
        above = "".join(f"{part}/" for part in parts[:count])
        if above + dataset.FILE in paths:
            return above.rstrip("/")
    return "" if parts and VERIFIER in paths else None


def read_root(source: folder.Folder, root: str, *, file: str = dataset.FILE) -> Dataset:
    """The dataset at `root`; `file`: how messages name its dataset.toml. Raises TaskError for a wrong [gym]."""
    at = folder.subtree(source, root) if root else source
    content = _content(at, dataset.FILE, dataset.MAX_BYTES)
    gym = dataset.read(content, file=file).gym if content is not None else dataset.GymTable()
    return Dataset(gym, _content(at, VERIFIER, MAX_VERIFIER_BYTES))


def compose(
    own: folder.Folder, *, name: str = "", within: Dataset | None = None, row: Mapping[str, Any] | None = None
) -> folder.Folder:
    """The effective folder of the task in `own`.

    `name`: its folder's, by which [gym.tasks] knows it. `row`: the fields that a run brings, None for none. Raises
    TaskError when they are not those of the folder's task_data.json, and names the fields that differ.
    """
    view = folder.View(own, keep=lambda path: digest.is_used(path) and not path.startswith("dataset/"))
    added: dict[str, bytes] = {}
    paths = {entry.path for entry in view.entries()}
    if within is not None:
        if within.verifier is not None and _grades(view, paths):
            added[digest.DATASET_VERIFIER] = within.verifier
        if settings := dataset.settings_of(within.gym, name).document():
            added[digest.DATASET_SETTINGS] = encode(settings)
    if row is not None:
        added |= _row(view, paths, row)
    return _Overlaid(view, added) if added else view


def with_tests(effective: folder.Folder, tests: folder.Folder, *, step: str | None = None) -> folder.Folder:
    """The effective folder with other tests than its own, in which `tests` lie as in tests/.

    `step`: it is for this step, whose own tests give way too. Raises TaskError when there is nothing to run in them.
    """
    paths = {entry.path for entry in tests.entries()}
    if not paths & {"test.sh", VERIFIER}:
        inner = any(path.startswith("tests/") for path in paths)
        raise errors.TaskError(
            f"holds neither test.sh nor {VERIFIER}",
            file="spec.tests",
            remedy="Write spec.tests.path: tests." if inner else "Name the folder in which one of them lies.",
        )
    gone = ("tests/", f"steps/{step}/tests/") if step is not None else ("tests/",)
    kept = folder.View(effective, keep=lambda path: not path.startswith(gone) and path != digest.DATASET_VERIFIER)
    return _Joined(kept, folder.Below(tests, "tests"))


def source_of(effective: folder.Folder, name: str) -> tuple[folder.Folder, str | None]:
    """An effective folder as a source to be read again: its files, and the path of the task in them.

    A task to which its dataset adds nothing is its own source. Else it lies below `name`, and beside it what its
    dataset adds, and nothing more: a dataset.toml of this task's settings, and the verifier if it grades the task.
    """
    paths = {entry.path for entry in effective.entries()}
    added: dict[str, bytes] = {}
    if digest.DATASET_VERIFIER in paths:
        added[VERIFIER] = effective.read(digest.DATASET_VERIFIER)
    if digest.DATASET_SETTINGS in paths:
        added[dataset.FILE] = _settings_toml(json.loads(effective.read(digest.DATASET_SETTINGS)), name).encode()
    if not added:
        return effective, None
    own = folder.View(effective, keep=lambda path: not path.startswith("dataset/"))
    return _Overlaid(folder.Below(own, name), added), name


def _settings_toml(document: Mapping[str, Any], name: str) -> str:
    tables = {
        ("gym", "defaults"): document.get("defaults"),
        ("gym", "tasks", name, "environment"): document.get("environment"),
        ("gym", "tasks", name, "verifier"): {"inputs": document["inputs"]} if "inputs" in document else None,
    }
    return toml_text.document({path: table for path, table in tables.items() if table is not None})


def settings(source: folder.Folder, paths: Sequence[str]) -> dataset.Settings:
    """The dataset's settings in an effective folder."""
    if digest.DATASET_SETTINGS not in paths:
        return dataset.Settings()
    try:
        return dataset.Settings.of(json.loads(source.read(digest.DATASET_SETTINGS, dataset.MAX_BYTES)))
    except (ValueError, AttributeError, pydantic.ValidationError) as error:
        remedy = "Start a new run; this one's snapshot was not written by this version."
        raise errors.TaskError(f"cannot be read: {error}", file=digest.DATASET_SETTINGS, remedy=remedy) from None


def encode(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON: the same settings are the same bytes."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"


def _grades(view: folder.Folder, paths: set[str]) -> bool:
    """Whether a dataset's verifier grades this task: single-step, and no tests/ of its own."""
    if any(path.startswith("tests/") for path in paths):
        return False
    try:
        return not toml_file.parse(view.read(toml_file.FILE, toml_file.MAX_BYTES), toml_file.FILE).get("steps")
    except (FileNotFoundError, errors.TaskError):
        return False  # the loader says what is wrong


def _row(view: folder.Folder, paths: set[str], row: Mapping[str, Any]) -> dict[str, bytes]:
    task_data.check(row, "spec.task.data")
    if task_data.FILE not in paths:
        return {task_data.FILE: task_data.encode(row)} if row else {}
    fields = task_data.read(view.read(task_data.FILE, task_data.MAX_BYTES)).fields or {}
    if differing := task_data.differing(row, fields):
        raise errors.TaskError(
            f"is not what {task_data.FILE} holds: {', '.join(errors.show(name) for name in differing[:20])}",
            file="spec.task.data",
            remedy="Write the same fields in both, or leave spec.task.data out.",
        )
    return {}


def _content(at: folder.Folder, path: str, limit: int) -> bytes | None:
    try:
        return at.read(path, limit)
    except FileNotFoundError:
        return None


class _Joined(folder.Reading):
    """Two folders that have no path in common, as one."""

    def __init__(self, one: folder.Folder, other: folder.Folder) -> None:
        self._one, self._other = one, other
        self._of_other = {entry.path for entry in other.entries()}

    def entries(self) -> Sequence[folder.Entry]:
        return tuple(sorted((*self._one.entries(), *self._other.entries())))

    def open(self, path: str) -> BinaryIO:
        return (self._other if path in self._of_other else self._one).open(path)


class _Overlaid(folder.Reading):
    """A folder with files added to it."""

    def __init__(self, below: folder.Folder, added: Mapping[str, bytes]) -> None:
        self._below, self._added = below, dict(added)

    def entries(self) -> Sequence[folder.Entry]:
        added = (folder.Entry(path, False, len(content)) for path, content in self._added.items())
        kept = (entry for entry in self._below.entries() if entry.path not in self._added)
        return tuple(sorted((*kept, *added)))

    def open(self, path: str) -> BinaryIO:
        content = self._added.get(path)
        return self._below.open(path) if content is None else io.BytesIO(content)
