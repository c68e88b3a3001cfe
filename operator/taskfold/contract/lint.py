"""What is to be said about a task folder before anybody runs it: its errors, and advice.

Guarantees: every finding has a rule of a closed set; an error is what keeps the folder from running, and nothing
silences it; advice is silenced by the task itself, in [metadata.taskfold.lint], or by whoever asks. Nothing is run,
and no value of an env table is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from taskfold.contract import (
    artifacts,
    errors,
    folder,
    lint_image,
    lint_network,
    lint_scripts,
    lint_separate,
    lint_task,
    loader,
    toml_file,
    toml_lines,
)
from taskfold.contract.lint_subject import Advice, Rule, Subject
from taskfold.contract.task_toml import TaskToml

T = TypeVar("T")

INVALID = "invalid"
UNSUPPORTED = "unsupported"

_LINE = re.compile(r"line (\d+):")


class Severity(StrEnum):
    ERROR = "error"
    ADVICE = "advice"


ERRORS = {
    INVALID: "The folder cannot be loaded: the message says what to write.",
    UNSUPPORTED: "The folder asks for what this release cannot do yet.",
    "no-task": "There is no task folder here: nothing has a task.toml.",
    "unknown-task": 'A table [gym.tasks."<id>"] names no task folder of the dataset.',
    "duplicate-task": "Two task folders of a dataset have one name, by which results and settings tell them apart.",
}
"""What makes lint fail; everything else is advice."""


@dataclass(frozen=True)
class Finding:
    """`file`: relative to the folder that was asked about. `line`: from 1, None where it is not known."""

    severity: Severity
    rule: str
    file: str
    message: str
    line: int | None = None
    task: str | None = None


Check = Callable[[Subject], Iterator[Advice]]
OF_FILES: tuple[Check, ...] = (
    lint_scripts.scripts,
    lint_scripts.rewards,
    lint_image.references,
    lint_image.copies,
)
"""What needs no task.toml: advice beside the errors of one that cannot be read."""
OF_TASKS: tuple[Check, ...] = (
    lint_task.texts,
    lint_task.verification,
    lint_task.artifacts,
    lint_separate.sources,
    lint_separate.downloads,
    lint_separate.workspace,
    lint_network.lists,
    lint_network.tests,
    lint_task.environment,
    lint_task.solution,
    lint_task.names,
    lint_scripts.python,
    lint_image.seed,
)


def lint(source: folder.Folder, *, task_id: str, listed: Sequence[str] = ()) -> tuple[Finding, ...]:
    """All findings about an effective folder, errors first.

    `listed`: what lies in the task's own folder. TaskError: the folder cannot even be listed.
    """
    found = loader.check(source, task_id=task_id)
    sizes = {entry.path: entry.size for entry in source.entries()}
    text = _text(source, toml_file.FILE, sizes)
    problems = [_of_problem(problem, text) for problem in found.problems]
    document = _or_none(lambda: toml_file.read(text.encode()))
    ignored = set(document.warnings) if document is not None else set()
    advice = [_of_warning(warning, Rule.UNKNOWN_KEY, text) for warning in found.warnings if warning in ignored]
    advice += [_of_warning(each, _rule_of(each), text) for each in found.warnings if each not in ignored]
    silenced, unknown = ignored_rules(_or_none(lambda: toml_file.parse(text.encode(), toml_file.FILE)) or {})
    message = "[metadata.taskfold.lint] ignores it, and it is not a rule of the advice"
    advice += [Finding(Severity.ADVICE, Rule.UNKNOWN_RULE, toml_file.FILE, f"{name}: {message}") for name in unknown]
    config = found.task.config if found.task is not None else document.config if document is not None else TaskToml()
    subject = Subject(source, sizes, config, found.task, text, listed)
    checks = OF_FILES if document is None else (*OF_TASKS, *OF_FILES)
    advice += [_of_advice(each, subject) for check in checks for each in check(subject)]
    return (*problems, *(finding for finding in advice if finding.rule not in silenced))


def ignored_rules(written: dict[str, Any]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The rules that a task.toml silences, and the words in that place that are no rules."""
    at: Any = written
    for name in ("metadata", "taskfold", "lint", "ignore"):
        at = at.get(name) if isinstance(at, dict) else None
    names = [errors.show(name).strip('"') or "?" for name in at] if isinstance(at, list) else []
    known = frozenset(name for name in names if name in list(Rule))
    return known, tuple(name for name in names if name not in known)


def _or_none(read: Callable[[], T]) -> T | None:
    """What is read, None for what cannot be; the loader says why."""
    try:
        return read()
    except errors.TaskError:
        return None


def _text(source: folder.Folder, path: str, there: Container[str]) -> str:
    if path not in there:
        return ""
    try:
        return source.read(path, toml_file.MAX_BYTES).decode("utf-8-sig", "replace")
    except errors.TaskError:
        return ""


def _of_problem(problem: errors.TaskError, text: str) -> Finding:
    """With its line: by the key in task.toml, else as the message says it."""
    line = None
    if problem.file == toml_file.FILE:
        line = toml_lines.of_field(text, problem.field) if problem.field else toml_lines.of_message(problem.problem)
    elif found := _LINE.search(problem.problem):
        line = int(found[1])
    rule = UNSUPPORTED if problem.unsupported else INVALID
    return Finding(Severity.ERROR, rule, problem.file, without_file(problem), line)


def without_file(problem: errors.TaskError) -> str:
    """The message without the file's name, which a finding has beside it."""
    return str(problem).removeprefix(f"{problem.file}: ")


def _rule_of(warning: str) -> Rule:
    return Rule.NO_ARTIFACTS if warning == artifacts.NONE_DECLARED else Rule.NO_EFFECT


def _of_warning(warning: str, rule: Rule, text: str) -> Finding:
    file, colon, message = warning.partition(": ")
    if not colon:
        return Finding(Severity.ADVICE, rule, toml_file.FILE, warning)
    line = toml_lines.of_field(text, message.partition(" ")[0]) if file == toml_file.FILE else None
    return Finding(Severity.ADVICE, rule, file, message, line)


def _of_advice(advice: Advice, subject: Subject) -> Finding:
    line = advice.line
    if line is None and advice.field is not None and advice.file == toml_file.FILE:
        line = toml_lines.of_field(subject.toml, advice.field)
    return Finding(Severity.ADVICE, advice.rule, advice.file, advice.message, line)
