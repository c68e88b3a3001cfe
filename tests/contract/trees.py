"""TOML documents of a format's own keys with values of every kind, right and wrong."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from taskfold.contract import errors, shape, toml_text
from taskfold.contract.tables import Table

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    _TEXT,
    st.sampled_from(
        ["separate", "shared", "public", "no-network", "allowlist", "linux", "a/b", "python:3", "4G", "root:x"]
    ),
)
_ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=5
)


def tables(model: type[Table]) -> st.SearchStrategy[dict[str, Any]]:
    """Tables with keys of this model: each value of the right shape, or anything at all."""
    choices: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in model.model_fields.items():
        inner = shape.table_of(field.annotation)
        values = _ANYTHING
        if inner is not None:
            own = st.deferred(lambda inner=inner: tables(inner))
            values = own | st.lists(own, max_size=2) | st.dictionaries(_TEXT, own, max_size=2) | _ANYTHING
        choices[name] = values
    for name in model.deprecated:
        choices[name] = _ANYTHING
    return st.fixed_dictionaries({}, optional=choices | {"unknown": _ANYTHING})


def documents(model: type[Table]) -> st.SearchStrategy[str]:
    """The same as TOML text."""
    return tables(model).map(
        lambda table: "".join(f"{toml_text.value(key)} = {_value(v)}\n" for key, v in table.items())
    )


def document_or_error(read: Any) -> Any:
    """What `read` gives, or the TaskError that it raises: nothing else."""
    try:
        return read()
    except errors.TaskError as error:
        for each in (error, *error.others):
            assert str(each).encode()
            assert each.remedy
        return error


def _value(data: Any) -> str:
    match data:
        case float() if not math.isfinite(data):
            return repr(data)
        case dict():
            return "{" + ", ".join(f"{toml_text.value(key)} = {_value(inner)}" for key, inner in data.items()) + "}"
        case list():
            return "[" + ", ".join(map(_value, data)) + "]"
        case _:
            return toml_text.value(data)
