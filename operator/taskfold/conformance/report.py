"""What a run of the table found, in the forms that people and programs read. Pure.

Guarantee: a row stands in the report exactly once, whatever became of it; what was not run says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from xml.etree import ElementTree

VERSION = 1
"""Of the JSON document; a program that reads it refuses another."""


class Outcome(StrEnum):
    """What became of a row."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not run: this cluster, or this command line, lacks what it needs."""
    REFUSED = "refused"
    """The restricted profile cannot give what the row's folder needs, and the run said so before its pod existed."""
    STOPPED = "stopped"
    """Not ended: somebody stopped the command."""


@dataclass(frozen=True)
class Result:
    """One row. `notes`: the differences of a failed row, the reason of any other that did not pass. `found`: what the
    status said, in one line. `seconds`: from the creation of its run to its end as this program saw it.
    """

    id: str
    outcome: Outcome
    notes: tuple[str, ...] = ()
    found: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Setting:
    """Where and with what it was run."""

    date: str
    version: str
    kubernetes: str
    profile: str
    namespace: str


@dataclass(frozen=True)
class Report:
    """Everything that a command found, in the table's order."""

    setting: Setting
    results: tuple[Result, ...]

    def count(self, outcome: Outcome) -> int:
        """How many rows have it."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def passed(self) -> bool:
        """Something was run, and nothing that was run is otherwise than the table says."""
        bad = self.count(Outcome.FAILED) + self.count(Outcome.STOPPED)
        return not bad and self.count(Outcome.PASSED) > 0


def found(status: Mapping[str, Any]) -> str:
    """The status in one line: phase, reward, and kind and reason of a failure."""
    failure = status.get("failure") or {}
    parts = [status.get("phase"), status.get("reward"), failure.get("kind"), failure.get("reason")]
    return " ".join(str(part) for part in parts if part not in {None, ""})


def as_text(report: Report) -> str:
    """A table for a terminal, what is otherwise than expected below it, and the counts last."""
    width = max((len(result.id) for result in report.results), default=0)
    lines = [
        f"{each.id:<{width}}  {each.outcome:<7}  {each.found or '; '.join(each.notes)}".rstrip()
        for each in report.results
    ]
    for each in report.results:
        if each.outcome is Outcome.FAILED:
            lines += ["", f"{each.id}:", *(f"  {note}" for note in each.notes)]
    return "\n".join([*lines, "", summary(report)]) + "\n"


def summary(report: Report) -> str:
    """The counts in one line."""
    return ", ".join(f"{report.count(outcome)} {outcome}" for outcome in Outcome)


def as_json(report: Report) -> str:
    """The document that `parse` reads."""
    document = {
        "version": VERSION,
        "setting": vars(report.setting),
        "counts": {outcome.value: report.count(outcome) for outcome in Outcome},
        "results": [{**vars(result), "notes": list(result.notes)} for result in report.results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def passed_before(text: str) -> tuple[Result, ...]:
    """What passed, of a document of `as_json`. ValueError when it is none."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"not a report of version {VERSION}")
    try:
        results = [Result(**{**each, "notes": tuple(each["notes"])}) for each in document["results"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a report's results: {error}") from None
    return tuple(result for result in results if result.outcome == Outcome.PASSED)


def as_junit(report: Report) -> str:
    """One test suite, as continuous integration reads it."""
    suite = ElementTree.Element(
        "testsuite",
        name="taskfold conformance",
        tests=str(len(report.results)),
        failures=str(report.count(Outcome.FAILED) + report.count(Outcome.STOPPED)),
        skipped=str(report.count(Outcome.SKIPPED) + report.count(Outcome.REFUSED)),
    )
    for result in report.results:
        case = ElementTree.SubElement(
            suite, "testcase", classname="conformance", name=result.id, time=f"{result.seconds:.1f}"
        )
        if result.outcome in {Outcome.SKIPPED, Outcome.REFUSED}:
            ElementTree.SubElement(case, "skipped", message=_plain("; ".join(result.notes)))
        elif result.outcome is not Outcome.PASSED:
            failure = ElementTree.SubElement(case, "failure", message=_plain(result.found))
            failure.text = _plain("\n".join(result.notes))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    """What XML may hold: a message may quote what a test printed."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def as_markdown(report: Report) -> str:
    """A page: the setting, the counts, and every row."""
    setting = report.setting
    rows = [
        f"| `{each.id}` | {each.outcome} | {_cell(each.found or '; '.join(each.notes))} |" for each in report.results
    ]
    failed, refused = _listed(report, Outcome.FAILED), _listed(report, Outcome.REFUSED)
    head = [
        "# Conformance results",
        "",
        "Written by `taskfold conformance --format markdown` against a cluster; what each case proves is in",
        "[reference/conformance.md](reference/conformance.md).",
        "",
        "| | |",
        "| --- | --- |",
        f"| date | {setting.date} |",
        f"| taskfold | {setting.version} |",
        f"| Kubernetes | {setting.kubernetes} |",
        f"| security profile | {setting.profile} |",
        *(f"| {outcome} | {report.count(outcome)} |" for outcome in Outcome),
        "",
    ]
    below = ["", "## Otherwise than expected", "", *failed] if failed else []
    below += ["", "## Refused by the profile", "", *refused] if refused else []
    return "\n".join([*head, "| case | outcome | what the cluster said |", "| --- | --- | --- |", *rows, *below]) + "\n"


def _listed(report: Report, outcome: Outcome) -> list[str]:
    return [f"* `{each.id}`: {_cell('; '.join(each.notes))}" for each in report.results if each.outcome is outcome]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
