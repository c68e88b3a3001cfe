"""task_data.json: a task's own fields, for its Python verifier (seed "Typed task fields"; C35).

Guarantees: any bytes give a JSON object of finite numbers and sound text, or a TaskError; what is read here can be
written again as UTF-8 JSON. A key that stands twice is a warning, and the last one counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taskfold.contract import errors

FILE = "task_data.json"
MAX_BYTES = 2**20
"""It is sent to the sandbox with every verification, and a TaskRun may carry it as its row."""
MAX_DEPTH = 64
RESERVED = "_ng_"
"""Keys that begin like this are the platform's own."""
_INT64 = 2**63


@dataclass(frozen=True)
class Document:
    """The fields, None without a file; and a warning for each key that was written twice."""

    fields: Mapping[str, Any] | None
    warnings: tuple[str, ...] = ()


NONE = Document(None)


def read(content: bytes) -> Document:
    """The fields of a task_data.json. Raises TaskError."""
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in found]
        twice.extend(name for name in dict.fromkeys(names) if names.count(name) > 1 and name not in twice)
        return dict(found)

    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise _wrong(f"is not UTF-8 text (at byte {error.start})", "Save the file as UTF-8.") from None
    except (ValueError, RecursionError) as error:  # JSONDecodeError, and integers that the interpreter refuses
        raise _wrong(f"is not JSON: {error}", "Write a JSON object: field names and their values.") from None
    if not isinstance(document, dict):
        raise _wrong("is not a JSON object", "Write an object: field names and their values in { }.")
    check(document, FILE)
    return Document(document, tuple(f"{FILE}: {errors.show(name)} stands twice; the last one counts" for name in twice))


def check(fields: Mapping[str, Any], where: str) -> None:
    """Raises TaskError for a reserved key, a number that is not finite, text that UTF-8 cannot hold."""
    for name in fields:
        if name.startswith(RESERVED):
            raise errors.TaskError(
                f"begins with {RESERVED}, which is reserved", file=where, field=name, remedy="Rename the field."
            )
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        level = [inner for item in level for inner in _checked(item, where)]
        if not level:
            return
    raise errors.TaskError(f"nests more than {MAX_DEPTH} deep", file=where, remedy="Flatten it.")


def encode(fields: Mapping[str, Any]) -> bytes:
    """As a task_data.json of our own: sorted keys, so that the same row always gives the same bytes."""
    return json.dumps(fields, ensure_ascii=False, sort_keys=True, allow_nan=False).encode() + b"\n"


def differing(row: Mapping[str, Any], fields: Mapping[str, Any]) -> Sequence[str]:
    """Names of the fields in which a row and a task_data.json differ, sorted."""
    return sorted(
        name for name in {*row, *fields} if name not in row or name not in fields or not same(row[name], fields[name])
    )


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values. 1 and 1.0 are one number, as to the API server; true and 1 are not."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return isinstance(one, bool) and isinstance(other, bool) and one == other
        case (int() | float(), int() | float()):
            return one == other or _rounded(one, other) or _rounded(other, one)
        case (str(), str()):
            return one == other
        case (list() | tuple(), list() | tuple()):
            return len(one) == len(other) and all(map(same, one, other))
        case (Mapping(), Mapping()):
            return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
        case _:
            return one is None and other is None


def _checked(item: Any, where: str) -> Iterable[Any]:
    match item:
        case Mapping():
            return [*item.keys(), *item.values()]
        case list() | tuple():
            return item
        case float() if not math.isfinite(item):
            raise errors.TaskError("holds a number that is not finite", file=where, remedy="Write a finite number.")
        case str() if not _is_sound(item):
            problem = "holds half of a surrogate pair, which is not text"
            raise errors.TaskError(problem, file=where, remedy="Write the character, or both halves.")
        case _:
            return ()


def _is_sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rounded(whole: float, number: float) -> bool:
    """Whether `number` is what the API server makes of an integer beyond its own: a float."""
    if not isinstance(whole, int) or isinstance(number, int) or -_INT64 <= whole < _INT64:
        return False
    try:
        return float(whole) == number
    except OverflowError:
        return False


def _wrong(problem: str, remedy: str) -> errors.TaskError:
    return errors.TaskError(problem, file=FILE, remedy=remedy)
