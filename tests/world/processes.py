"""Operating-system processes inside one event loop: SIGSTOP, SIGCONT and SIGKILL.

Guarantees: a stopped process does nothing at all, its timers included; what was due meanwhile runs when it goes on, in
order. A killed process never crosses its border again (`Process.cross` raises), whatever its `finally` blocks try. What
other processes do on its behalf, such as a server that answers, goes on.

Which process a callback belongs to is in its context: tasks and timers inherit it from who made them.
"""

import asyncio
import contextvars
import heapq
import math
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from tests.world import clock

T = TypeVar("T")

PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


class State(StrEnum):
    """What the kernel would say of it."""

    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


class Process:
    """One process: its tasks, what is held back while it is stopped, and what its death cuts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.RUNNING
        self.border: Any = None
        """What its calls go through, once it has one."""
        self.cuts: list[Callable[[], None]] = []
        """Called at its death: connections that the kernel closes."""
        self._held: list[asyncio.Handle] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def cross(self) -> None:
        """Whatever leaves the process calls this first: the dead reach nothing."""
        if self.state is State.DEAD:
            raise asyncio.CancelledError

    def stop(self) -> None:
        """SIGSTOP."""
        if self.state is State.RUNNING:
            self.state = State.STOPPED

    def go_on(self) -> None:
        """SIGCONT."""
        if self.state is State.STOPPED:
            self.state = State.RUNNING
            self._release()

    def kill(self) -> None:
        """SIGKILL. Its tasks unwind, which nobody sees."""
        if self.state is State.DEAD:
            return
        self.state = State.DEAD
        cuts, self.cuts = self.cuts, []
        for cut in cuts:
            cut()
        for task in list(self._tasks):
            task.cancel()
        self._release()

    @property
    def unwound(self) -> bool:
        """Nothing of it is left."""
        return not self._tasks

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """One of its tasks."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.state is State.DEAD:
            task.cancel()

    def hold(self, handle: asyncio.Handle) -> bool:
        """Whether the callback has to wait for SIGCONT."""
        if self.state is not State.STOPPED:
            return False
        self._held.append(handle)
        return True

    def _release(self) -> None:
        held, self._held = self._held, []
        loop = asyncio.get_running_loop()
        for handle in held:
            if not handle.cancelled():
                loop._ready.append(handle)  # type: ignore[attr-defined]  # as the loop does with a timer that is due


def _held(handle: asyncio.Handle) -> bool:
    process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
    return process is not None and process.hold(handle)


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        if not _held(self):
            super()._run()


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        if not _held(self):
            super()._run()


class Loop(clock.Loop):
    """The world's clock, with processes that can be stopped and killed."""

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.adopt(task)
        return task

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer


def run(main: Callable[[], Coroutine[Any, Any, T]], *, limit: float = math.inf, rounds: int = clock.ROUNDS) -> T:
    """Run `main()` on such a loop, for at most `limit` seconds of its time."""
    with clock._threads_of_the_loop(), asyncio.Runner(loop_factory=lambda: Loop(limit, rounds)) as runner:
        return runner.run(main())
