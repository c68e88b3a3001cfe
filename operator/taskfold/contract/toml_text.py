"""Data as TOML text, for the one file that we write: a dataset's settings, cut down to one task.

Guarantees: `tomllib` reads back the same data; the same data gives the same text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def document(tables: Mapping[Sequence[str], Mapping[str, Any]]) -> str:
    """A document of `[a."b".c]` tables in the order given; inner tables are written inline."""
    return "\n".join("".join(_table(path, table)) for path, table in tables.items())


def value(data: Any) -> str:
    """One value: text, a finite number, a boolean, an array or a table of such."""
    match data:
        case bool():
            return "true" if data else "false"
        case int() | float():
            return repr(data)
        case str():
            # JSON's escapes are TOML's, save that TOML wants one more character escaped.
            return json.dumps(data, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            inside = ", ".join(f"{value(name)} = {value(inner)}" for name, inner in data.items())
            return f"{{ {inside} }}" if inside else "{}"
        case list() | tuple():
            return f"[{', '.join(map(value, data))}]"
        case _:
            raise TypeError(f"TOML has no {type(data).__name__}")


def _table(path: Sequence[str], table: Mapping[str, Any]) -> Iterator[str]:
    yield f"[{'.'.join(_key(part) for part in path)}]\n"
    for name, data in table.items():
        yield f"{_key(name)} = {value(data)}\n"


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else value(name)
