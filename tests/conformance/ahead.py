"""Runs that are created before their test's turn: while a test asserts, the pods of the next ones are starting.

`@ahead.run(files, agent, **spec)` stands on a test; the test takes `status` (its run's status once there is a verdict)
and, if it looks further, `run_name`. An argument may be a function of the test's own parameters, by their names.
"""

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from tests.conformance import harness

SIZE = 12
"""Runs that exist ahead of the test that asserts: enough to keep two processors busy, few enough to wait for."""
VERDICT_SECONDS = 110.0
FINAL = frozenset({"Succeeded", "Failed", "Masked", "Cancelled"})

_numbers = itertools.count(1)

Test = TypeVar("Test", bound=Callable[..., Any])


def run(files: Any, agent: Any = harness.NOP, **spec: Any) -> Callable[[Test], Test]:
    """The run of this test: files of the task, agent, other fields of the spec."""

    def mark(test: Test) -> Test:
        setattr(test, "_run", (files, agent, spec))  # noqa: B010 - a function has no such attribute for the type checker
        return test

    return mark


class Window:
    """Creates the runs of a module's tests in their order, a bounded number ahead."""

    def __init__(self, items: Sequence[pytest.Item], create: Callable[[str, dict[str, Any]], Any]) -> None:
        """`create(name, spec)` makes a TaskRun."""
        self._items = [item for item in items if hasattr(getattr(item, "function", None), "_run")]
        self._create = create
        self._names: dict[str, str] = {}

    def name_of(self, item: pytest.Item) -> str:
        """The name of this test's run, which exists by now, as do those of the next tests."""
        start = self._items.index(item)
        for each in self._items[start : start + SIZE]:
            if each.nodeid not in self._names:
                name = f"ahead-{next(_numbers)}"
                self._create(name, _spec(each))
                self._names[each.nodeid] = name
        return self._names[item.nodeid]


def _spec(item: pytest.Item) -> dict[str, Any]:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}

    def filled(value: Any) -> Any:
        if not callable(value):
            return value
        wanted = inspect.signature(value).parameters
        return value(**{name: parameters[name] for name in wanted})

    files, agent, more = getattr(item, "function")._run  # noqa: B009 - set above
    return harness.spec(filled(files), filled(agent), **{key: filled(value) for key, value in more.items()})


def verdict(cluster: harness.Cluster, namespace: str, name: str, seconds: float = VERDICT_SECONDS) -> dict[str, Any]:
    """The status of a run once its outcome stands; files and pod may still be on their way."""

    def final() -> dict[str, Any] | None:
        status = cluster.status(namespace, name)
        return status if status.get("phase") in FINAL else None

    try:
        return cluster.until(final, f"an outcome of TaskRun {name}", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}; its status: {cluster.status(namespace, name)}") from None


def failure(status: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Kind, reason and stage of a failure."""
    found = status.get("failure") or {}
    return found.get("kind"), found.get("reason"), found.get("stage")
