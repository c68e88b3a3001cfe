"""Deprecated spellings of task.toml keys: read, turned into today's, never written.

Guarantee: an old key that contradicts the new one beside it is refused, not guessed at.
Each function takes a table as it was written and gives a new one without the old keys.
"""

from __future__ import annotations

import re
from typing import Any

from taskfold.contract import values

Table = dict[str, Any]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([GMK])\s*", re.IGNORECASE | re.ASCII)
_MEGABYTES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


def root(table: Table) -> Table:
    """`version` → `schema_version`; `multi_step_reward_mode` is dropped."""
    table = {key: value for key, value in table.items() if key != "multi_step_reward_mode"}
    return _renamed(table, "version", "schema_version", table.get("version"))


def environment(table: Table) -> Table:
    """`memory`, `storage` ("4G") → `memory_mb`, `storage_mb`; `allow_internet` → `network_mode`."""
    for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
        if old in table:
            table = _renamed(table, old, new, _megabytes(old, table[old]))
    return _without_allow_internet(table) if "allow_internet" in table else table


def mcp_server(table: Table) -> Table:
    """`transport = "http"` → "streamable-http"."""
    return table | {"transport": "streamable-http"} if table.get("transport") == "http" else table


def _renamed(table: Table, old: str, new: str, value: Any) -> Table:
    if old not in table:
        return table
    if new in table and table[new] != value:
        raise values.rule(f"contradicts {new}", f"Keep {new} and remove {old}.", old)
    return {key: kept for key, kept in table.items() if key != old} | {new: value}


def _megabytes(key: str, value: Any) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise values.rule("must be a number with G, M or K, in quotes", f"Write {key}_mb and a number.", key)
    size = float(match[1]) * _MEGABYTES[match[2].upper()]
    if not size <= values.MAX_MEGABYTES:
        raise values.rule("is too large", f"Write {key}_mb and a number.", key)
    return int(size)


def _without_allow_internet(table: Table) -> Table:
    allowed = table["allow_internet"]
    rest = {key: value for key, value in table.items() if key != "allow_internet"}
    if allowed is None:
        return rest
    if not isinstance(allowed, bool):
        raise values.rule("must be true or false", 'Write network_mode = "public" instead.', "allow_internet")
    mode = rest.get("network_mode")
    if mode is None and not rest.get("allowed_hosts"):
        return rest | {"network_mode": "public" if allowed else "no-network"}
    if allowed != (mode == "public"):
        remedy = "Keep network_mode and remove allow_internet."
        raise values.rule("contradicts network_mode", remedy, "allow_internet")
    return rest
