"""The reports of the conformance table: text, JSON, JUnit and Markdown say the same."""

import json
from xml.etree import ElementTree

import pytest

from taskfold.conformance import report
from taskfold.conformance.report import Outcome, Report, Result, Setting

SETTING = Setting("2026-01-01 00:00 UTC", "0.1.0", "v1.36.3", "root", "ns")
RESULTS = (
    Result("good", Outcome.PASSED, (), "Succeeded 1", 2.5),
    Result("bad", Outcome.FAILED, ("reward: '1' expected, found '0'", "a | pipe\x1b[31m"), "Succeeded 0", 3.0),
    Result("left", Outcome.SKIPPED, ("needs root",)),
    Result("kept", Outcome.REFUSED, ("the status says: user 0 is root",), "Failed ForbiddenByProfile", 1.0),
    Result("half", Outcome.STOPPED, ("the command was stopped",)),
)
REPORT = Report(SETTING, RESULTS)


@pytest.mark.parametrize(
    ("outcomes", "passed"),
    [
        ((Outcome.PASSED,), True),
        ((Outcome.PASSED, Outcome.SKIPPED), True),
        ((Outcome.PASSED, Outcome.REFUSED), True),
        ((Outcome.REFUSED,), False),
        ((Outcome.PASSED, Outcome.FAILED), False),
        ((Outcome.PASSED, Outcome.STOPPED), False),
        ((Outcome.SKIPPED,), False),
        ((), False),
    ],
)
def test_a_report_passes_when_something_was_run_and_nothing_is_otherwise(
    outcomes: tuple[Outcome, ...], passed: bool
) -> None:
    results = tuple(Result(str(number), outcome) for number, outcome in enumerate(outcomes))
    assert Report(SETTING, results).passed is passed


def test_the_text_has_every_row_the_differences_and_the_counts() -> None:
    lines = report.as_text(REPORT).splitlines()
    assert lines[0] == "good  passed   Succeeded 1"
    assert "  reward: '1' expected, found '0'" in lines
    assert lines[-1] == "1 passed, 1 failed, 1 skipped, 1 refused, 1 stopped"


def test_the_document_is_read_back() -> None:
    text = report.as_json(REPORT)
    assert json.loads(text)["counts"] == {"passed": 1, "failed": 1, "skipped": 1, "refused": 1, "stopped": 1}
    assert report.passed_before(text) == RESULTS[:1]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 99, "results": []}', '{"version": 1}', '{"version": 1, "results": [1]}']
)
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        report.passed_before(text)


def test_junit_has_a_failure_for_what_failed_and_what_was_stopped() -> None:
    suite = ElementTree.fromstring(report.as_junit(REPORT))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "2", "2")
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite}
    assert outcomes == {"good": [], "bad": ["failure"], "left": ["skipped"], "kept": ["skipped"], "half": ["failure"]}


def test_markdown_is_a_table_whose_cells_hold() -> None:
    lines = report.as_markdown(REPORT).splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(RESULTS)
    assert "| `good` | passed | Succeeded 1 |" in rows
    assert any("a \\| pipe" in line for line in lines)
