"""In which line of a TOML file a key stands, for findings that name it.

Guarantees: any text gives a line number that is in it, or None; never an error. A guess by headings and key names, good
enough to put a mark beside a line; what is read is decided by the parser alone.
"""

from __future__ import annotations

import re
from collections import Counter

_HEADING = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PARTS = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\[\d+\]""")
_AT = re.compile(r"at line (\d+)")


def of_field(text: str, field: str) -> int | None:
    """The line, from 1, of the deepest key or heading on the way to `field` (`verifier.collect[0].user`)."""
    wanted = _parts(field)
    best, line = 0, None
    table: list[str] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for number, content in enumerate(text.splitlines(), 1):
        if heading := _HEADING.fullmatch(content):
            table = _parts(heading[2])
            if heading[1] == "[[":
                table.append(f"[{seen[tuple(table)]}]")
                seen[tuple(table[:-1])] += 1
            path = table
        elif key := _KEY.match(content):
            path = [*table, *_parts(key[1])]
        else:
            continue
        common = min(len(path), len(wanted))
        if common > best and path[:common] == wanted[:common]:
            best, line = common, number
    return line


def of_message(message: str) -> int | None:
    """The line that the TOML parser names in its message."""
    found = _AT.search(message)
    return int(found[1]) if found else None


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PARTS.findall(dotted)]
