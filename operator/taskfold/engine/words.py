"""What this process said last about each object, so that two processes do not contradict each other for ever.

Words of a status can come from what only one process knows: how its connection broke, what it waits for. Where two are
at work, each write of the one wakes the other. Guarantees: a process that repeats itself because somebody else said
something else meanwhile does so once in `REPEAT_SECONDS`; words that are new to it, and everything that is not words,
are never held back. It is pacing only: losing it loses nothing.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from taskfold.api.status import Status
from taskfold.engine.watch import Key

REPEAT_SECONDS = 10.0

_Said = tuple[tuple[object, ...], ...]


class Words:
    """By object: the words, and when they were written."""

    def __init__(self) -> None:
        self._said: dict[Key, tuple[_Said, float]] = {}

    def wait(self, key: Key, patch: Mapping[str, Any], new: Status) -> float:
        """Seconds for which this write has to wait; 0 for all but a repetition of mere words."""
        if patch.keys() != {"conditions"} or key not in self._said:
            return 0.0
        said, at = self._said[key]
        if said != _words(new):
            return 0.0
        return max(0.0, at + REPEAT_SECONDS - asyncio.get_running_loop().time())

    def wrote(self, key: Key, new: Status) -> None:
        """This status is the API server's now."""
        if new.complete:
            self.forget(key)
        else:
            self._said[key] = (_words(new), asyncio.get_running_loop().time())

    def forget(self, key: Key) -> None:
        """There is nothing more to say about this object."""
        self._said.pop(key, None)


def _words(status: Status) -> _Said:
    return tuple(
        (each.type, each.status, each.reason, each.message, each.observed_generation) for each in status.conditions
    )
