"""`taskfold lint`: everything that is to be said about a task folder, or about a folder of them. Talks to no cluster.

Guarantees: every finding is printed, not the first alone; the exit code is 1 when there is an error (with --strict,
when there is a finding at all), else 0.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from taskfold.contract import dataset, effective, folder, lint_dataset
from taskfold.contract import lint as contract
from taskfold.contract.errors import TaskError
from taskfold.contract.lint import Finding, Severity
from taskfold.contract.lint_subject import Rule
from taskfold.effects import folders

FOUND = 1
MAX_DEPTH = 16
MAX_FOLDERS = 200_000
"""Folders that are looked into for tasks."""
REPEATED = 3
"""The same advice about more tasks than these is printed once."""


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


@dataclass(frozen=True)
class Report:
    """What was looked at, and what was found; files are relative to the folder that was named."""

    tasks: int
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def lint(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A task folder, or a folder of them.", show_default=False)
    ],
    output: Annotated[Format, typer.Option("--format", "-f", help="How findings are printed.")] = Format.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="Advice fails, too.")] = False,
    ignore: Annotated[
        list[Rule] | None,
        typer.Option(metavar="RULE", help="A rule of the advice to leave out. May be repeated.", show_default=False),
    ] = None,
) -> None:
    """Check task folders, and give advice about them."""
    if not path.is_dir():
        raise typer.BadParameter(f"{str(path)!r}: is not a folder", param_hint="FOLDER")
    report = check(path, frozenset(ignore or ()))
    match output:
        case Format.TEXT:
            lines: Iterator[str] = _text(report, path)
        case Format.JSON:
            lines = iter([_json(report, path)])
        case Format.GITHUB:
            lines = (_annotation(finding, path) for finding in report.findings)
    for line in lines:
        typer.echo(line)
    failed = report.findings if strict else report.count(Severity.ERROR)
    raise typer.Exit(FOUND if failed else 0)


def check(path: Path, ignored: frozenset[Rule] = frozenset()) -> Report:
    """All findings about the task folders in `path`."""
    root = path.resolve()
    places = [*_tasks(root)]
    findings: list[Finding] = []
    graded: list[str] = []
    if not places:
        text = "there is no task folder here: nothing has a task.toml"
        findings.append(Finding(Severity.ERROR, "no-task", ".", text))
    for place in places:
        name = place.relative_to(root).as_posix() if place != root else ""
        found, by_dataset = _of_task(place)
        graded += [name] if by_dataset else []
        findings += [replace(each, file=_below(name, each.file), task=place.name) for each in found]
    if root not in places:
        names = [place.relative_to(root).as_posix() for place in places]
        content = _content(root / dataset.FILE)
        verifier = (root / effective.VERIFIER).is_file()
        findings[:0] = lint_dataset.lint(content, names, verifier=verifier, graded=graded)
    kept = (each for each in findings if each.severity is Severity.ERROR or each.rule not in ignored)
    return Report(len(places), tuple(kept))


def _of_task(place: Path) -> tuple[Sequence[Finding], bool]:
    """Findings with files relative to the task's folder, and whether its dataset's verifier grades it."""
    own = folder.DirectoryFolder(place)
    wrong: list[Finding] = []
    try:
        try:
            source = effective.compose(own, name=place.name, within=folders.dataset_of(place))
        except TaskError as error:
            source = effective.compose(own)
            wrong = [_wrong(each) for each in (error, *error.others)]
        listed = [entry.path for entry in own.entries()]
        found = contract.lint(source, task_id=place.name or "task", listed=listed)
        by_dataset = any(entry.path == "dataset/verifier.py" for entry in source.entries())
    except TaskError as error:
        return [*wrong, *(_wrong(each) for each in (error, *error.others))], False
    except OSError as error:
        return [*wrong, Finding(Severity.ERROR, contract.INVALID, ".", f"cannot be read: {error}")], False
    return [*wrong, *found], by_dataset


def _wrong(error: TaskError) -> Finding:
    return Finding(Severity.ERROR, contract.INVALID, error.file, contract.without_file(error))


def _tasks(root: Path) -> Iterator[Path]:
    """Folders with a task.toml, in the order of their paths; what lies in one is not searched, nor are links."""
    pending, looked = [(root, 0)], 0
    while pending:
        place, depth = pending.pop()
        looked += 1
        if (place / "task.toml").exists():
            yield place
            continue
        if depth == MAX_DEPTH or looked > MAX_FOLDERS:
            continue
        with os.scandir(place) as children:
            inner = sorted(
                child.name
                for child in children
                if not child.name.startswith(".") and child.is_dir(follow_symlinks=False)
            )
        pending += [(place / name, depth + 1) for name in reversed(inner)]


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            return stream.read(dataset.MAX_BYTES + 1)
    except FileNotFoundError:
        return None


def _below(name: str, file: str) -> str:
    return os.path.normpath(f"{name}/{file}") if name else os.path.normpath(file)


# -- what is printed -----------------------------------------------------------------------------------------------


def _text(report: Report, path: Path) -> Iterator[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for finding in report.findings:
        if finding.severity is Severity.ADVICE and finding.task is not None:
            alike.setdefault((finding.rule, finding.message), []).append(finding.task)
    told: set[tuple[str, str]] = set()
    for finding in report.findings:
        same = (finding.rule, finding.message)
        tasks = alike.get(same, ()) if finding.severity is Severity.ADVICE else ()
        if len(tasks) <= REPEATED:
            yield f"{_place(finding, path)}: {finding.severity}: {finding.message} [{finding.rule}]"
        elif same not in told:
            told.add(same)
            shown = f"{', '.join(tasks[:REPEATED])} and {len(tasks) - REPEATED} more"
            yield f"{path}: {finding.severity}: {finding.message} [{finding.rule}] In {len(tasks)} tasks: {shown}"
    yield f"{_number(report.tasks, 'task')}: {_number(report.count(Severity.ERROR), 'error')}, advice: " + str(
        report.count(Severity.ADVICE)
    )


def _place(finding: Finding, path: Path) -> str:
    file = os.path.normpath(path / finding.file)
    return f"{file}:{finding.line}" if finding.line is not None else file


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _json(report: Report, path: Path) -> str:
    findings = [
        {
            "severity": finding.severity.value,
            "rule": str(finding.rule),
            "task": finding.task,
            "file": os.path.normpath(path / finding.file),
            "line": finding.line,
            "message": finding.message,
        }
        for finding in report.findings
    ]
    counts = {
        "tasks": report.tasks,
        "errors": report.count(Severity.ERROR),
        "advice": report.count(Severity.ADVICE),
    }
    return json.dumps({**counts, "findings": findings}, indent=2, ensure_ascii=True)


def _annotation(finding: Finding, path: Path) -> str:
    """A workflow command of GitHub Actions, which shows the finding beside its line."""
    command = "error" if finding.severity is Severity.ERROR else "warning"
    file = _property(os.path.normpath(path / finding.file))
    line = f",line={finding.line}" if finding.line is not None else ""
    return f"::{command} file={file}{line},title={_property('taskfold: ' + finding.rule)}::{_data(finding.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
