"""The whole table: every row of every module in `cases`, in a fixed order, and what is chosen of it. Pure."""

from __future__ import annotations

import fnmatch
import functools
import importlib
import pkgutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from taskfold.conformance import cases as modules
from taskfold.conformance.case import Case, Need


@dataclass(frozen=True)
class Left:
    """A row that is not run, and what is missing."""

    case: Case
    missing: tuple[Need, ...]


@functools.cache
def areas() -> dict[str, tuple[Case, ...]]:
    """Module name → its rows."""
    names = sorted(each.name for each in pkgutil.iter_modules(modules.__path__))
    return {name: importlib.import_module(f"{modules.__name__}.{name}").CASES for name in names}


def all_cases() -> tuple[Case, ...]:
    """Every row."""
    return tuple(case for rows in areas().values() for case in rows)


def matching(rows: Sequence[Case], patterns: Sequence[str]) -> tuple[Case, ...]:
    """The rows whose id fits one of the shell patterns; all of them without a pattern."""
    return tuple(row for row in rows if not patterns or any(fnmatch.fnmatchcase(row.id, each) for each in patterns))


def split(rows: Sequence[Case], there: Collection[Need]) -> tuple[tuple[Case, ...], tuple[Left, ...]]:
    """What can be run where only these needs are met, and what is left out."""
    runnable = tuple(row for row in rows if row.needs <= frozenset(there))
    left = (Left(row, tuple(sorted(row.needs - frozenset(there)))) for row in rows if not row.needs <= frozenset(there))
    return runnable, tuple(left)
