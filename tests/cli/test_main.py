"""The command line as a whole: help, version, usage."""

import pytest
from rich.console import Console

from taskfold.api.taskrun import TaskRun
from taskfold.cli import progress

from .conftest import Cli
from .fakes import RUNNING


def test_version(cli: Cli) -> None:
    result = cli("--version")
    assert (result.exit_code, result.stdout.split()[0]) == (0, "taskfold")


@pytest.mark.parametrize("words", [[], ["nonsense"], ["render"], ["render", "a", "b"], ["--nonsense"], ["logs"]])
def test_usage_errors_are_64(cli: Cli, words: list[str]) -> None:
    result = cli(*words)
    assert (result.exit_code, result.stdout) == (64, "") if words else 64


@pytest.mark.parametrize("words", [[], ["run"], ["render"], ["logs"], ["operator"]])
def test_help(cli: Cli, words: list[str]) -> None:
    result = cli(*words, "--help")
    assert result.exit_code == 0
    assert "Usage: taskfold" in result.stdout


def test_the_live_line_shows_where_the_run_is() -> None:
    console = Console(force_terminal=True, width=80, record=True, stderr=True)
    shown = progress.Animated(console)
    shown.step(progress.Step("Seeding", "PodStarting"))
    run = TaskRun.parse({"spec": {"task": {"inline": {}}, "agent": {"nop": {}}}, "status": RUNNING})
    shown.step(progress.step_of(run))
    with shown.paused():
        pass
    shown.note("[b]a note[/b]")
    shown.close()
    text = console.export_text()
    assert "✓ Seeding" in text
    assert "[b]a note[/b]" in text
