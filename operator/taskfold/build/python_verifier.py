"""What goes to /tests before a verification: the task's tests/, and over it what a Python verifier needs.

Guarantees: nothing of a task stands in for a file of the shim; of a dataset only its verifier.py goes along; the
shim's folder `.ng` holds what this verification is about and nothing older.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from taskfold import sandbox
from taskfold.contract import effective, folder, steps, task_data
from taskfold.contract.task import Grader, Task

Part = Callable[[folder.Folder], folder.Folder]
"""One archive of payload, made from the run's snapshot."""

SHIM = ".ng"
VERIFIER = f"{SHIM}/verifier.py"
TASK_DATA = f"{SHIM}/task_data.json"
RESPONSE = f"{SHIM}/response.json"
_OURS = frozenset({SHIM, "test.sh"})
"""Names at the top of /tests that are the shim's, whatever a task has there."""


def parts(task: Task, response: Mapping[str, Any] | None = None) -> tuple[Part, ...]:
    """The archives that are unpacked to /tests, in order. Their number depends on the task alone.

    `response`: the agent's final response, None when it gave none.
    """
    match task.grader:
        case Grader.TEST_SH if task.step is not None:
            own = steps.folder(task.step, "tests")
            return _tests, lambda snapshot: folder.subtree(snapshot, own)
        case Grader.TEST_SH:
            return (_tests,)
        case Grader.PYTHON:
            return _tests_for_shim, lambda _: _shim(task, response)
        case Grader.DATASET:
            return (lambda snapshot: _shim(task, response, _of_dataset(snapshot)),)


def _tests(snapshot: folder.Folder) -> folder.Folder:
    return folder.subtree(snapshot, "tests")


def _tests_for_shim(snapshot: folder.Folder) -> folder.Folder:
    return folder.View(snapshot, "tests/", lambda path: path.partition("/")[0] not in _OURS)


def _of_dataset(snapshot: folder.Folder) -> bytes:
    return snapshot.read(Grader.DATASET, effective.MAX_VERIFIER_BYTES)


def _shim(task: Task, response: Mapping[str, Any] | None, verifier: bytes | None = None) -> folder.Folder:
    files = {**sandbox.FILES, TASK_DATA: task_data.encode(task.data or {})}
    if response is not None:
        files[RESPONSE] = json.dumps(response, allow_nan=False).encode()
    if verifier is not None:
        files[VERIFIER] = verifier
    return folder.MemoryFolder({path: (content, path == "test.sh") for path, content in files.items()})
