"""Reading task.toml: bytes → models, with errors that a person can act on.

Guarantees: any bytes give a `Document` or a `TaskError`, nothing else; a message never shows a value of an
env table or of a header; every key that the schema does not know is a warning with its dotted path. `parse`,
`problems` and `near` do the same for the other TOML file, dataset.toml.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pydantic
from pydantic_core import ErrorDetails

from taskfold.contract import errors, shape
from taskfold.contract.tables import Table
from taskfold.contract.task_toml import SCHEMA_VERSION, TaskToml

FILE = "task.toml"
MAX_BYTES = 512 * 2**10
"""Its env tables have to fit one request to the sandbox helper, which is at most 1 MiB."""
MAX_DEPTH = 32
"""Of tables and arrays. Nothing real is deeper, and what walks the document may recurse."""
KNOWN_VERSIONS = ("1.0", "1.1", "1.2", "1.3", SCHEMA_VERSION)
REFERENCE = "docs/reference/task-folder.md"

_PROBLEMS = {
    "missing": "is required",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "tuple_type": "must be an array",
    "enum": "must be one of {expected}",
    "string_pattern_mismatch": "does not have the right form",
}

_REMEDIES = {
    "must be a table": "Write a table: key = value lines.",
    "must be an array": "Write an array: [ ... ].",
}
"""For problems of shape, whatever the key."""


@dataclass(frozen=True)
class Document:
    """task.toml as models, as it was written, and what it holds that means nothing."""

    config: TaskToml
    written: dict[str, Any]
    warnings: tuple[str, ...]


def read(content: bytes) -> Document:
    """The document, or a TaskError for its first problem with the rest in `others`."""
    written = parse(content, FILE)
    try:
        config = TaskToml.model_validate(written)
    except pydantic.ValidationError as error:
        first, *others = problems(error, written, model=TaskToml, file=FILE)
        first.others = tuple(others)
        raise first from None
    return Document(config, written, tuple(_warnings(config, written)))


def parse(content: bytes, file: str) -> dict[str, Any]:
    """The TOML document, not deeper than `MAX_DEPTH`. Raises TaskError."""
    remedy = "Correct the file; https://toml.io has the format."
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (at byte {error.start})"
        raise errors.TaskError(problem, file=file, remedy="Save the file as UTF-8.") from None
    except RecursionError:
        raise _too_deep(file) from None
    except ValueError as error:  # TOMLDecodeError, and numbers that the interpreter refuses to convert
        raise errors.TaskError(f"is not valid TOML: {error}", file=file, remedy=remedy) from None
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = [inner for item in level for inner in _inside(item) if isinstance(inner, dict | list)]
        if not level:
            return document
    raise _too_deep(file)


def _inside(item: Any) -> list[Any]:
    return list(item.values()) if isinstance(item, dict) else item


def _too_deep(file: str) -> errors.TaskError:
    return errors.TaskError(f"nests tables and arrays more than {MAX_DEPTH} deep", file=file, remedy="Flatten it.")


def problems(
    error: pydantic.ValidationError, written: dict[str, Any], *, model: type[Table], file: str
) -> list[errors.TaskError]:
    """What a model says about a document, in our words; at least one."""
    return [_task_error(detail, written, model, file) for detail in error.errors(include_url=False)]


def _task_error(detail: ErrorDetails, written: dict[str, Any], model: type[Table], file: str) -> errors.TaskError:
    context = detail.get("ctx", {})
    location = tuple(part for part in detail["loc"] if part != "[key]")
    if context.get("field"):
        location = (*location, context["field"])
    problem = _PROBLEMS.get(detail["type"], detail["msg"]).format(**context)
    on_the_way = list(shape.fields_at(model, location))
    remedy = context.get("remedy") or _REMEDIES.get(problem)
    if remedy is None and on_the_way:
        remedy = shape.key_of(on_the_way[-1]).write
    return errors.TaskError(
        problem,
        file=file,
        field=shape.dotted(location) or None,
        value=None if any(map(shape.is_secret, on_the_way)) else _at(written, location),
        remedy=remedy or f"See {REFERENCE}.",
    )


def _at(document: Any, location: shape.Location) -> Any:
    for part in location:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _warnings(config: TaskToml, written: dict[str, Any]) -> Iterator[str]:
    if config.schema_version not in KNOWN_VERSIONS:
        version = errors.show(config.schema_version)
        yield f"{FILE}: schema_version = {version} is not known here; it is read as {SCHEMA_VERSION}"
    for location in shape.unknown_keys(TaskToml, written):
        yield f"{FILE}: {shape.dotted(location)} is not a key of the format and is ignored{_hint(location)}"


def _hint(location: shape.Location) -> str:
    if location[-2:] == ("verifier", "inputs"):
        return "; sidecar inputs stand in the dataset's dataset.toml"
    found = near(TaskToml, location)
    return f" (did you mean {found}?)" if found else ""


def near(model: type[Table], location: shape.Location) -> str:
    """The nearest key of the same table to one that is not known, "" when none is near."""
    fields = list(shape.fields_at(model, location[:-1]))
    table = shape.table_of(fields[-1].annotation) if fields else model
    found = difflib.get_close_matches(str(location[-1]), table.model_fields if table else (), n=1)
    return found[0] if found else ""
