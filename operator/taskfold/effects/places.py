"""How much may go on at the same time: commands in sandboxes and copies, in all and per node, and streams that wait.

Guarantees: a place is taken in one order, so that no two holders wait for each other: a copy's place before a
command's, a node's before the common one; who works never waits for a waiting place, it gets one at once or none. A
stream that only waits for an end holds no command's place. Releasing twice is releasing once.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Caps:
    """How many of each sort. A command is the exchange with a sandbox, without the time it waits for an end."""

    execs: int = 32
    execs_per_node: int = 8
    copies: int = 16
    copies_per_node: int = 4
    streams: int = 32
    """Open streams on which nothing but an end is awaited."""


class Place:
    """One place, until it is released."""

    __slots__ = ("_release",)

    def __init__(self, *release: Callable[[], None]) -> None:
        self._release: tuple[Callable[[], None], ...] = release

    def release(self) -> None:
        """Give it back; once more does nothing."""
        found, self._release = self._release, ()
        for release in found:
            release()


class Places:
    """Places of one sort, bounded in all and per node."""

    def __init__(self, concurrent: int, per_node: int) -> None:
        self._all = asyncio.Semaphore(concurrent)
        self._per_node = per_node
        self._nodes: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def take(self, node: str) -> Place:
        """Wait for a place. The node's first: a busy node must not hold places that others could use."""
        mine = self._nodes.setdefault(node, asyncio.Semaphore(self._per_node))
        await mine.acquire()
        try:
            await self._all.acquire()
        except BaseException:
            mine.release()
            raise
        return Place(mine.release, self._all.release)

    @contextlib.asynccontextmanager
    async def at(self, node: str) -> AsyncIterator[Place]:
        """A place for the length of the block, or until it is released in it."""
        place = await self.take(node)
        try:
            yield place
        finally:
            place.release()


class Waiting:
    """Places of streams that only wait: there is one at once, or none."""

    def __init__(self, concurrent: int) -> None:
        self._free = concurrent

    def take(self) -> Place | None:
        """A place, if one is free."""
        if self._free <= 0:
            return None
        self._free -= 1
        return Place(self._release)

    def _release(self) -> None:
        self._free += 1


class Seat:
    """What an open stream holds: a command's place while it works, a waiting place while it rests."""

    def __init__(self, working: Places, waiting: Waiting, node: str) -> None:
        self._working, self._waiting, self._node = working, waiting, node
        self._work: Place | None = None
        self._rest: Place | None = None

    async def work(self) -> Self:
        """Wait for a command's place, unless it is held; a waiting place is kept until then."""
        if self._work is None:
            self._work = await self._working.take(self._node)
        self._end_rest()
        return self

    def rest(self) -> bool:
        """Change the command's place for a waiting one; False: none is free, and nothing changes."""
        if self._rest is None:
            self._rest = self._waiting.take()
            if self._rest is None:
                return False
        if self._work is not None:
            self._work.release()
            self._work = None
        return True

    def release(self) -> None:
        """The stream is closed."""
        self._end_rest()
        if self._work is not None:
            self._work.release()
            self._work = None

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.release()
            self._rest = None
