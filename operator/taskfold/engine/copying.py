"""Copies that this process is busy with, beside the work queue: at most one for an object at a time.

Guarantees: what is held here is never the only word about a copy: that it is done, the store says, and a copy that is
unknown here is begun again and takes over what is whole already. The end of one wakes the reconcile. One that breaks
is a delay, with a pause that grows. One of another kind takes its place: nobody waits for the copy before it any more.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from taskfold.api.reasons import Reason
from taskfold.decide.world import CopyActive, CopyFailed, CopyReport
from taskfold.effects import errors
from taskfold.engine.outcome import Outcome
from taskfold.engine.watch import Key

RETRY_FIRST = 0.5
RETRY_LIMIT = 20.0

Tell = Callable[[str], None]
Work = Callable[[Tell], Awaitable[None]]
"""Copies; tells from time to time how far it is."""

log = logging.getLogger(__name__)


class What(StrEnum):
    """What is copied of an object."""

    EXPORT = "export"
    """What a separate verification needs, out of the agent's sandbox."""
    LOGS = "logs"
    """Of a separate verifier's own sandbox."""
    END = "end"
    """What a run leaves."""


@dataclass
class _Copy:
    what: What
    asked_at: float
    task: "asyncio.Task[None] | None" = None
    progress: str = ""
    reason: Reason = Reason.TRANSFER_FAILED
    message: str = ""
    failures: int = 0
    due_at: float = 0.0


class Copies:
    """By object: who copies, how far, and what broke it last."""

    def __init__(self, wake: Callable[[Key, float], None], chance: Callable[[], float] = random.random) -> None:
        """`wake(key, delay)` puts a key into the work queue. `chance()`: a number from 0 to 1."""
        self._wake = wake
        self._chance = chance
        self._copies: dict[Key, _Copy] = {}

    def report(self, key: Key, what: What) -> CopyReport | None:
        """What is known of this copy; None: nothing, ask the store."""
        copy = self._copies.get(key)
        if copy is None or copy.what is not what:
            return None
        if copy.task is not None and copy.reason is Reason.STORE_UNAVAILABLE and not copy.progress:
            # Another try of one that the store broke: until it gets on, what is said of it stays.
            return CopyFailed(copy.reason, copy.message, RETRY_LIMIT, 0.0)
        if copy.task is not None:
            return CopyActive(copy.progress)
        now = asyncio.get_running_loop().time()
        return CopyFailed(copy.reason, copy.message, max(0.0, copy.due_at - now), now - copy.asked_at)

    def start(self, key: Key, what: What, work: Work) -> None:
        """Begin it, unless it is under way."""
        copy = self._copies.get(key)
        if copy is not None and copy.what is not what:
            self.drop(key)
            copy = None
        if copy is None:
            copy = self._copies[key] = _Copy(what, asyncio.get_running_loop().time())
        if copy.task is None:
            copy.progress = ""
            copy.task = asyncio.create_task(self._carry(key, copy, work), name=f"{what} of {key}")

    def drop(self, key: Key) -> None:
        """The object is gone, or needs no copy any more."""
        copy = self._copies.pop(key, None)
        if copy is not None and copy.task is not None:
            copy.task.cancel()

    async def close(self) -> None:
        """Drop every copy: the next operator begins those anew."""
        tasks = [copy.task for copy in self._copies.values() if copy.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return sum(copy.task is not None for copy in self._copies.values())

    async def _carry(self, key: Key, copy: _Copy, work: Work) -> None:
        def tell(progress: str) -> None:
            if progress != copy.progress:
                copy.progress = progress
                self._wake(key, 0.0)

        delay = 0.0
        try:
            await work(tell)
            if self._copies.get(key) is copy:
                del self._copies[key]
        except errors.StoreError as failure:
            delay = self._broken(copy, Reason.STORE_UNAVAILABLE, failure)
            copy.asked_at = asyncio.get_running_loop().time()  # nobody is to blame for the time that a store is away
        except Outcome as failure:
            delay = self._broken(copy, failure.reason, failure)
        except (errors.EffectError, OSError, TimeoutError) as failure:
            delay = self._broken(copy, Reason.TRANSFER_FAILED, failure)
            log.info("%s: a copy broke: %s", key, failure)
        except Exception as failure:
            # An error of ours must not look like a copy that goes on: it is told, and the copy tried again.
            delay = self._broken(copy, Reason.INTERNAL, failure)
            log.exception("%s: a copy failed", key)
        finally:
            copy.task = None
            self._wake(key, delay)

    def _broken(self, copy: _Copy, reason: Reason, failure: Exception) -> float:
        copy.failures += 1
        window = min(RETRY_FIRST * 2.0 ** min(copy.failures - 1, 20), RETRY_LIMIT)
        delay = window * (0.5 + 0.5 * self._chance())
        copy.due_at = asyncio.get_running_loop().time() + delay
        copy.reason, copy.message = reason, str(failure) or type(failure).__name__
        return delay
