"""What a waiting user sees on stderr: a live line at a terminal, else a plain line for every change.

Guarantees: nothing goes to stdout; text from a cluster or from a sandbox is shown without control characters, so
that it cannot write to the terminal on its own.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from taskfold.api import conditions
from taskfold.api.conditions import ConditionType
from taskfold.api.phases import Phase
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun

MESSAGE_CHARACTERS = 200


@dataclass(frozen=True)
class Step:
    """Where a run is."""

    phase: str
    reason: str = ""
    message: str = ""

    def __str__(self) -> str:
        return "  ".join(part for part in (self.phase, self.reason, self.message) if part)


class Progress(Protocol):
    """Shows steps and notes until it is closed."""

    def step(self, step: Step) -> None:
        """The run is here now."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Stdout may be written inside."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def open_progress() -> Progress:
    """Live when stderr is a terminal."""
    console = Console(stderr=True, highlight=False)
    return Animated(console) if console.is_terminal else Plain()


def step_of(run: TaskRun | VerifierRun) -> Step:
    """The run's step: its phase, and why it is there."""
    status = run.status
    if status.phase is None:
        return Step(Phase.PENDING, message="waits for the operator")
    kind = ConditionType.RECONCILING if status.phase.final else ConditionType.SUCCEEDED
    condition = conditions.find(status.conditions, kind)
    if condition is None:
        return Step(status.phase)
    turn = next((entry.step for entry in reversed(status.journal) if entry.step is not None), None)
    where = f"step {turn}: " if turn is not None and not status.phase.final else ""
    return Step(status.phase, condition.reason, clean(where + condition.message)[:MESSAGE_CHARACTERS])


def clean(text: str) -> str:
    """One line without control characters."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


class Plain:
    """A line with the elapsed seconds for every change."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last: Step | None = None

    def step(self, step: Step) -> None:
        if step != self._last:
            self._last = step
            self.note(str(step))

    def note(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:7.1f}s] {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        pass


class Animated:
    """The current step with a spinner and its time; steps that are over stay above it, one line for each phase."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._since = time.monotonic()
        self._step: Step | None = None
        self._spinner = Spinner("dots")
        self._live = self._started()

    def step(self, step: Step) -> None:
        if self._step is not None and step.phase != self._step.phase:
            self.note(f"✓ {self._step.phase}  {time.monotonic() - self._since:.1f} s")
            self._since = time.monotonic()
        self._step = step

    def note(self, text: str) -> None:
        self._console.print(Text(text))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self._live.stop()
        try:
            yield
        finally:
            self._live = self._started()

    def close(self) -> None:
        self._live.stop()

    def _started(self) -> Live:
        live = Live(
            console=self._console,
            get_renderable=self._line,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        return live

    def _line(self) -> Spinner:
        elapsed = f"{time.monotonic() - self._began:.0f} s"
        text = Text(f"{self._step or ''}  {elapsed}", no_wrap=True, overflow="ellipsis")
        self._spinner.update(text=text)
        return self._spinner
