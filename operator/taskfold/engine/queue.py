"""A work queue of keys.

Guarantees: a key is worked on by one worker at a time; a key added while it is being worked on is worked on once
more afterwards; at most `workers` keys are in work; a failed key comes back later each time. Never holds anything
but keys: what there is to do is observed when the key's turn comes.
"""

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BACKOFF_FIRST = 0.25
BACKOFF_LIMIT = 60.0

log = logging.getLogger(__name__)


class KeyedQueue(Generic[Key]):
    """Keys waiting for a worker, for a moment, or for their own worker to end."""

    def __init__(
        self,
        work: Callable[[Key], Awaitable[float | None]],
        *,
        workers: int,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        """`work(key)` returns the seconds after which it wants the key again, or None.

        `expected`: errors that are the world's and not ours; they are logged without a traceback.
        """
        self._expected = expected
        self._work = work
        self._workers = workers
        self._ready: asyncio.Queue[Key] = asyncio.Queue()  # wakes one worker for a key, not all of them
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._later: list[tuple[float, int, Key]] = []
        self._count = itertools.count()
        self._failures: dict[Key, int] = {}
        self._moved = asyncio.Event()
        self.last_progress = 0.0

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Ask for `key` to be worked on, now or after `delay` seconds; the earliest of several wishes counts."""
        if delay <= 0:
            self._due.pop(key, None)
            self._push(key)
            return
        due = asyncio.get_running_loop().time() + delay
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._count), key))
        self._moved.set()

    def add_all(self, keys: Iterable[Key]) -> None:
        """Ask for each of these, now; in an order that does not depend on how sets are walked."""
        for key in sorted(keys, key=str):
            self.add(key)

    def __len__(self) -> int:
        return self._ready.qsize() + len(self._busy)

    @property
    def waiting(self) -> int:
        """Keys with a worker wanted right now."""
        return self._ready.qsize()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._move_due())
            for _ in range(self._workers):
                group.create_task(self._worker())

    def _push(self, key: Key) -> None:
        if key in self._busy:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    async def _worker(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._busy.add(key)
            try:
                delay = await self._attempt(key)
            finally:
                self._busy.discard(key)
            self.last_progress = asyncio.get_running_loop().time()
            if key in self._again:
                self._again.discard(key)
                self._push(key)
            elif delay is not None:
                self.add(key, delay)

    async def _attempt(self, key: Key) -> float | None:
        try:
            delay = await self._work(key)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._failed(key, error)  # somebody else's cancellation, leaked out of the work
        except Exception as error:
            return self._failed(key, error)
        self._failures.pop(key, None)
        return delay

    def _failed(self, key: Key, error: BaseException) -> float:
        """The one place where any error of a reconcile ends: it is logged, and the key comes back later."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(BACKOFF_FIRST * 2.0 ** min(failures - 1, 20), BACKOFF_LIMIT)
        level = logging.WARNING if isinstance(error, self._expected) else logging.ERROR
        trace = None if isinstance(error, self._expected) else error
        log.log(level, "%s: next try in %.2f s: %s", key, delay, error, exc_info=trace, extra={"key": str(key)})
        return delay

    async def _move_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._moved.clear()
            now = loop.time()
            while self._later and self._later[0][0] <= now:
                due, _, key = heapq.heappop(self._later)
                if self._due.get(key) == due:
                    del self._due[key]
                    self._push(key)
            timeout = self._later[0][0] - now if self._later else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._moved.wait()
