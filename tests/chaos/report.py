"""What a trial showed, as a row of a table."""

import collections
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest


@dataclass(frozen=True)
class Result:
    """Counts of one fault; `seconds` from the first run's creation to the last run's end."""

    fault: str
    runs: int
    right: int
    losses: collections.Counter[str]
    blows: int
    doubles: int
    orphans: int
    ended: int
    """Operators that ended by themselves."""
    seconds: float
    met: collections.Counter[str] = field(default_factory=collections.Counter)
    """Distinct copies that blows have met, by their way: one that is made again in the same pod counts once."""


RESULTS: pytest.StashKey[list[Result]] = pytest.StashKey()

COLUMNS = (
    "fault",
    "blows",
    "runs",
    "right ends",
    "losses",
    "double starts",
    "orphans",
    "operator ended",
    "seconds",
    "copies met",
)


def table(results: Sequence[Result]) -> str:
    """The results in columns."""
    rows = [COLUMNS, *(_row(each) for each in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _row(found: Result) -> tuple[str, ...]:
    losses = _counted(found.losses)
    numbers = (found.blows, found.runs, found.right, losses, found.doubles, found.orphans, found.ended)
    return (found.fault, *map(str, numbers), f"{found.seconds:.0f}", _counted(found.met))


def _counted(what: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(what.items())) or "-"
