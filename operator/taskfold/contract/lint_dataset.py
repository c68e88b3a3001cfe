"""Findings about a dataset as a whole: its dataset.toml, and the names of its tasks.

Guarantee: pure; the caller has found the task folders.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from taskfold.contract import dataset, errors, shape, toml_lines
from taskfold.contract.lint import INVALID, Finding, Severity, without_file
from taskfold.contract.lint_subject import Rule


def lint(content: bytes | None, tasks: Sequence[str], *, verifier: bool, graded: Sequence[str]) -> Iterator[Finding]:
    """All findings. `content`: of dataset.toml, None without one. `tasks`: the folders of its tasks, by their paths.

    `verifier`: the dataset has a verifier.py; `graded`: the tasks that it grades.
    """
    yield from _names(tasks)
    if verifier and not graded:
        message = "grades no task: each has a tests/ folder of its own, or several steps"
        yield Finding(Severity.ADVICE, Rule.NO_EFFECT, "verifier.py", message)
    if content is None:
        return
    text = content.decode("utf-8-sig", "replace")
    try:
        found = dataset.read(content)
    except errors.TaskError as error:
        yield from (_of_problem(problem, text) for problem in (error, *error.others))
        return
    known = {path.rpartition("/")[2] for path in tasks}
    for name in found.gym.tasks:
        if name not in known:
            field = shape.dotted(("gym", "tasks", name))
            message = f"{field}: names no task folder of the dataset. Correct the name, or remove the table."
            line = toml_lines.of_field(text, field)
            yield Finding(Severity.ERROR, "unknown-task", dataset.FILE, message, line)
    for problem in found.others:
        line = toml_lines.of_field(text, problem.field or "")
        yield Finding(Severity.ADVICE, Rule.HARBOR_TABLE, dataset.FILE, without_file(problem), line)
    for warning in found.warnings:
        message = warning.removeprefix(f"{dataset.FILE}: ")
        line = toml_lines.of_field(text, message.partition(" ")[0])
        yield Finding(Severity.ADVICE, Rule.HARBOR_TABLE, dataset.FILE, message, line)


def _names(tasks: Sequence[str]) -> Iterator[Finding]:
    by_name: dict[str, list[str]] = collections.defaultdict(list)
    for path in tasks:
        by_name[path.rpartition("/")[2]].append(path)
    for name, paths in by_name.items():
        if len(paths) > 1:
            message = f"{name} is the name of {len(paths)} task folders: {', '.join(paths[:5])}. Rename all but one."
            yield Finding(Severity.ERROR, "duplicate-task", paths[1], message)


def _of_problem(problem: errors.TaskError, text: str) -> Finding:
    line = toml_lines.of_field(text, problem.field) if problem.field else toml_lines.of_message(problem.problem)
    return Finding(Severity.ERROR, INVALID, dataset.FILE, without_file(problem), line)
