"""What the probe of a restricted pod tells: one line of JSON in its container's termination message.

Guarantee: what is no such line, and what lacks a word, proves nothing.
"""

import json
from dataclasses import dataclass

from taskfold.protocol import values


@dataclass(frozen=True)
class Report:
    """The end of a probe. `enforced`: all is proven. `blocked`: every canary was, often enough in a row.

    `gateway`: that of an allowlist answered; None: there is none to ask. `attempts`: at all canaries together,
    `opened`: those in which one of them was reached.
    """

    enforced: bool
    blocked: bool
    gateway: bool | None
    seconds: float
    attempts: int
    opened: int
    error: str


def parse(message: str) -> Report | None:
    """The report, or None: the message is not one."""
    try:
        found = json.loads(message)
        return Report(
            enforced=_flag(found["enforced"]),
            blocked=_flag(found["blocked"]),
            gateway=_flag(found["gateway"]) if found["gateway"] is not None else None,
            seconds=values.finite(found["seconds"]),
            attempts=values.whole(found["attempts"]) or 0,
            opened=values.whole(found["open"]) or 0,
            error=str(found["error"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value
