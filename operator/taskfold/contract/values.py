"""The kinds of values that task.toml may hold, each with its bounds, and what the reference says about a key.

Guarantees: numbers are numbers (no quotes, no booleans) and finite; every refusal carries the sentence that
says what to write instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

MAX_SECONDS = 1e9
"""About 30 years: the sum of a run's limits still fits a pod's activeDeadlineSeconds and a date."""
MAX_MEGABYTES = 2**40
"""In bytes it still fits the 64-bit integer of a Kubernetes quantity."""
MAX_CPUS = 1e6
MAX_UID = 2**31 - 1
"""Kubernetes' largest runAsUser."""


class Status(StrEnum):
    """What this release does with a key."""

    SUPPORTED = "supported"
    NOT_YET = "refused for now"  # "not supported yet", unless unset, empty or 0
    RECORDED = "read, without effect"


@dataclass(frozen=True)
class Key:
    """About one key: its meaning, what to write (a sentence) and its status.

    `feature` names what is missing for a key that is refused for now; `only` qualifies the status: the values
    for which it holds.
    """

    meaning: str
    write: str = ""
    status: Status = Status.SUPPORTED
    feature: str = ""
    only: str = ""


class Secret:
    """Marks a key whose value, and everything below it, is never shown."""


def rule(problem: str, remedy: str, field: str | None = None) -> PydanticCustomError:
    """A broken rule of the contract. `field`: the key below the table that is being checked."""
    return PydanticCustomError("rule", "{problem}", {"problem": problem, "remedy": remedy, "field": field})


def _number(value: Any) -> Any:
    """Whole floats are integers; the range keeps integers within what a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise rule("must be a number", "Write a number without quotes.")
    if isinstance(value, int) and value.bit_length() > 1000:
        raise rule("is too large", "Write a smaller number.")
    if not math.isfinite(value):
        raise rule("must be a finite number", "Write a number.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def one_of(choices: type[StrEnum], prepare: Callable[[str], str] = str) -> BeforeValidator:
    """Accept the words of an enum; None is left to the field's type."""

    def choose(value: Any) -> Any:
        if value is None or isinstance(value, choices):
            return value
        word = prepare(value) if isinstance(value, str) else None
        if word not in list(choices):
            raise rule(f"must be one of {', '.join(choices)}", "Write one of these words.")
        return choices(word)

    return BeforeValidator(choose)


def _array(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


ARRAY = BeforeValidator(_array)
"""TOML's arrays are lists; the models are frozen."""

_ENV_NAME = re.compile(r"[^=\0]+")


def _env_table(table: dict[str, str]) -> dict[str, str]:
    for name, value in table.items():
        if not _ENV_NAME.fullmatch(name):
            raise rule("is not the name of a variable", 'Use a name without "=" and NUL.', name)
        if "\0" in value:
            raise rule("holds a NUL character", "Remove it: no program can be given such a variable.", name)
    return table


def _user(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise rule("must be a user", 'Write a name ("app") or a number without quotes (1000).')
    if isinstance(value, int) and not 0 <= value <= MAX_UID:
        raise rule(f"must be between 0 and {MAX_UID}", "Write the number of a user, for example 1000.")
    if isinstance(value, str) and (not value or not value.isprintable() or value != value.strip()):
        raise rule("must be a user", 'Write a name ("app") or a number without quotes (1000).')
    return value


_HOST_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_IMAGE = re.compile(
    rf"(?:(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
MAX_IMAGE_CHARACTERS = 1024


def is_image(reference: str) -> bool:
    """Whether `reference` has the form of an image reference: [host[:port]/]path[:tag][@digest]."""
    return len(reference) <= MAX_IMAGE_CHARACTERS and _IMAGE.fullmatch(reference) is not None


def _image(value: str) -> str:
    if not is_image(value):
        raise rule("is not an image reference", 'Write one like "python:3.12-slim" or "registry.example/team/app:1".')
    return value


def _directory(value: str) -> str:
    if not value.startswith("/") or "\0" in value or ".." in value.split("/"):
        raise rule('must be an absolute path without ".."', 'Write a path like "/app".')
    return value


Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, le=MAX_SECONDS)]
Unbounded = Annotated[float, BeforeValidator(_number)]
Cpus = Annotated[int | float, BeforeValidator(_number), Field(gt=0, le=MAX_CPUS)]
Megabytes = Annotated[int, BeforeValidator(_number), Field(gt=0, le=MAX_MEGABYTES)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=0, le=MAX_UID)]
Retries = Annotated[int, BeforeValidator(_number)]
Text = Annotated[str, Field(min_length=1)]
EnvTable = Annotated[dict[str, str], AfterValidator(_env_table), Secret()]
UserValue = Annotated[int | str, BeforeValidator(_user)]
Image = Annotated[str, AfterValidator(_image)]
Directory = Annotated[str, AfterValidator(_directory)]
