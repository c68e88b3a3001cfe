"""A row's expectation against the status that a cluster gave. Pure.

Guarantee: every field of `Expect` that is set is looked at, and each that does not hold is one line that says what
was expected and what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from taskfold.conformance.case import Expect

NO_FAILURE = "none"
MAX_SHOWN = 200
"""Characters of a value in a line; a status holds messages of 2,000."""

_MISSING = object()


def differences(expect: Expect, status: Mapping[str, Any]) -> tuple[str, ...]:
    """What does not hold, a line each; empty when the status is as expected."""
    compared = [
        *_equal(expect, status),
        *((path, wanted, at(status, path, None)) for path, wanted in expect.status.items()),
    ]
    found = [
        f"{name}: {_shown(wanted)} expected, found {_shown(value)}"
        for name, wanted, value in compared
        if wanted is not None and not _same(wanted, value)
    ]
    found.extend(_texts(expect, status))
    for path in expect.absent:
        if (value := at(status, path, _MISSING)) is not _MISSING:
            found.append(f"{path}: none expected, found {_shown(value)}")
    if expect.facts:
        found.extend(_facts(status.get("rewards", {})))
    return tuple(found)


def _equal(expect: Expect, status: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, expected or None, found) of each field that is compared as a whole."""
    failure = status.get("failure") or {}
    kind = failure.get("kind", "") if failure else NO_FAILURE
    yield "phase", expect.phase, status.get("phase")
    yield "reward", expect.reward, status.get("reward", "")
    yield "failure.kind", expect.kind, kind or (failure.get("reason") if expect.kind == NO_FAILURE else "")
    yield "failure.reason", expect.reason, failure.get("reason")
    yield "failure.stage", expect.stage, failure.get("stage")
    yield "failure.terminal", expect.terminal, failure.get("terminal", False)
    yield "rewards", None if expect.rewards is None else dict(expect.rewards), status.get("rewards", {})
    components = None if expect.components is None else list(expect.components)
    yield "rewardComponents", components, status.get("rewardComponents", [])
    yield "agent.outcome", expect.outcome, at(status, "agent.outcome", None)


def _texts(expect: Expect, status: Mapping[str, Any]) -> Iterator[str]:
    message, warnings = at(status, "failure.message", ""), status.get("warnings", [])
    for text in expect.says:
        if text not in message:
            yield f"failure.message: {text!r} expected in it, found {_shown(message)}"
    for text in expect.warns:
        if not any(text in warning for warning in warnings):
            yield f"warnings: {text!r} expected in one, found {_shown(warnings)}"


def at(status: Mapping[str, Any], path: str, default: Any) -> Any:
    """The value at a dotted path; a number is the index of a list, from the end when it is negative."""
    value: Any = status
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and _index(part, len(value)):
            value = value[int(part)]
        else:
            return default
    return value


def _index(part: str, length: int) -> bool:
    number = part.removeprefix("-")
    return number.isdecimal() and -length <= int(part) < length


def _facts(rewards: Mapping[str, float]) -> Iterator[str]:
    checks = {name: value for name, value in rewards.items() if name != "reward"}
    if not checks:
        yield "rewards: a check of test.sh expected, found none"
    for name, value in checks.items():
        if value != 1:
            yield f"check {name} of test.sh: does not hold"


def _same(wanted: Any, value: Any) -> bool:
    """Equal in value and, a boolean being a number in Python, in kind."""
    return bool(wanted == value) and isinstance(wanted, bool) == isinstance(value, bool)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
