"""What the models of task.toml look like, for code that walks them: unknown keys, refusals, reference."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from taskfold.contract.tables import Table
from taskfold.contract.values import Key, Secret

Location = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key_of(field: FieldInfo) -> Key:
    """The note on a key. Every field of every model has one."""
    return next(note for note in field.metadata if isinstance(note, Key))


def is_secret(field: FieldInfo) -> bool:
    return any(isinstance(note, Secret) for note in field.metadata)


def table_of(annotation: Any) -> type[Table] | None:
    """The model inside an annotation (itself, an array of it, or None), if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next((found for inner in get_args(annotation) if (found := table_of(inner))), None)


def has_names(annotation: Any) -> bool:
    """Whether the annotation is a table of tables by free names, such as dataset.toml's [gym.tasks]."""
    return get_origin(annotation) is dict and table_of(annotation) is not None


def fields_at(model: type[Table], location: Sequence[str | int]) -> Iterator[FieldInfo]:
    """The fields on the way down `location`, as far as the models know it."""
    at: type[Table] | None = model
    named = False
    for part in location:
        if isinstance(part, int) or named:
            named = False
            continue
        field = at.model_fields.get(part) if at is not None else None
        if field is None:
            return
        yield field
        at, named = table_of(field.annotation), has_names(field.annotation)


def dotted(location: Sequence[str | int]) -> str:
    """`verifier.collect[0].user`; a name that TOML would quote is quoted."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else json.dumps(part))
    return text


def unknown_keys(model: type[Table], table: dict[str, Any], location: Location = ()) -> Iterator[Location]:
    """Where `table`, as it was written, has keys that the schema does not know."""
    for name, value in table.items():
        here = (*location, name)
        field = model.model_fields.get(name)
        if field is None:
            if name not in model.deprecated:
                yield here
            continue
        inner = table_of(field.annotation)
        if inner is None:
            continue
        if has_names(field.annotation):
            for key, item in value.items() if isinstance(value, dict) else ():
                if isinstance(item, dict):
                    yield from unknown_keys(inner, item, (*here, key))
        elif isinstance(value, dict):
            yield from unknown_keys(inner, value, here)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from unknown_keys(inner, item, (*here, index))
