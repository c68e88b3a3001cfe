"""Manifests as text for kubectl: YAML that people can read, or JSON.

Guarantees: both give back exactly the data, to PyYAML as to kubectl's parser (a text that one of them would take for
a number, a date or a truth value stands in quotes); the same data gives the same bytes.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

Json = dict[str, Any]

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_WIDTH = 1 << 30  # never folded


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks; all others in quotes unless they are words."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    style = None if plain else "|" if _block(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _block(text: str) -> bool:
    """Whether a literal block keeps the text in every parser: no leading blanks, no odd characters."""
    return "\n" in text and text[0] not in "\t\n " and all(c.isprintable() or c in "\t\n" for c in text)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Sequence[Json], comments: Sequence[str] = ()) -> str:
    """One document per object, comments at the top."""
    head = "".join(f"# {line}\n" for line in comments)
    body = yaml.dump_all(
        objects,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=_WIDTH,
        explicit_start=len(objects) > 1,
    )
    return head + body


def as_json(objects: Sequence[Json]) -> str:
    """One object, or a List of them."""
    whole = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
