"""An event loop whose clock is the test's: waiting takes no time, its end is exact, and every run is the same.

When nothing is ready the loop jumps to the next timer instead of sleeping. Guarantees:

- work in threads holds the clock: jobs of the default executor are done on the spot, and each round of the loop begins
  only when every thread of `effects.transfer` has ended or waits for the loop; what threads hand over comes in the
  order of their starts. Real I/O holds the clock inside of `holding()`;
- a world in which nothing can happen any more is a `Deadlock`, one that never ends a `Runaway`: both name every task
  that waits and where;
- tasks have hashes in the order of their creation, so a set of tasks is walked alike in each run. Sets of strings are
  not: a replay in another process needs the same PYTHONHASHSEED.
"""

import asyncio
import collections
import contextlib
import itertools
import math
import queue
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from unittest import mock

from taskfold.effects import sinks, transfer

T = TypeVar("T")

ROUNDS = 2_000_000
"""Rounds of a loop, in all: a world of thirty runs takes some ten thousand."""
ROUNDS_AT_ONCE = 50_000
"""Rounds in which the clock stands still: tasks that wake each other for ever."""
REAL_SECONDS = 60.0
"""How long a thread may work between two looks at the loop."""


class Deadlock(RuntimeError):  # noqa: N818
    """Every task waits, and no timer is set."""


class Runaway(RuntimeError):  # noqa: N818
    """More rounds, or more time, than the test allows."""


class _Threads:
    """The threads that the loop waits for, in the order of their starts, and what they hand over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: list[threading.Thread] = []
        self._waiting: set[threading.Thread] = set()
        self._handed: dict[threading.Thread | None, list[Callable[[], None]]] = {}

    def started(self, thread: threading.Thread) -> None:
        self._alive.append(thread)

    def hand_over(self, call: Callable[[], None]) -> None:
        """From another thread: for the next round."""
        thread = threading.current_thread()
        with self._lock:
            self._handed.setdefault(thread if thread in self._alive else None, []).append(call)

    def waits(self, thread: threading.Thread, *, waits: bool) -> None:
        (self._waiting.add if waits else self._waiting.discard)(thread)

    def settle(self) -> None:
        """Until each thread has ended or waits for the loop."""
        patience = time.monotonic() + REAL_SECONDS
        for thread in self._alive:
            while thread.is_alive() and thread not in self._waiting:
                thread.join(0.0005)
                if time.monotonic() > patience:
                    raise Runaway(f"thread {thread.name} works for more than {REAL_SECONDS:.0f} s")

    def take(self) -> list[Callable[[], None]]:
        with self._lock:
            order = [*self._alive, None]
            calls = [call for thread in order for call in self._handed.pop(thread, ())]
        self._alive = [thread for thread in self._alive if thread.is_alive()]
        return calls


class _Selector(selectors.SelectSelector):
    """Does not wait: adds the time to the clock."""

    def __init__(self, limit: float, rounds: int) -> None:
        super().__init__()
        self.now = 0.0
        self.held = 0
        self.threads = _Threads()
        self.rounds = self.rounds_at_once = 0
        self._limit, self._most = limit, rounds
        self.loop: Loop | None = None

    def select(self, timeout: float | None = None) -> list[Any]:
        self._count()
        if self._handed_over():
            return super().select(0)
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.held:
            return self._real()
        if timeout is None:
            raise Deadlock(f"every task waits, and no timer is set:\n{waiting(self.loop)}")
        self.now += max(timeout, 0.0)
        self.rounds_at_once = 0
        if self.now > self._limit:
            limit, self._limit = self._limit, math.inf  # the tasks still have to be cancelled
            raise Runaway(f"not finished after {limit:g} s:\n{waiting(self.loop)}")
        return []

    def _handed_over(self) -> bool:
        assert self.loop is not None
        self.threads.settle()
        calls = self.threads.take()
        for call in calls:
            self.loop.call_soon(call)
        return bool(calls)

    def _real(self) -> list[Any]:
        ready = super().select(REAL_SECONDS)
        if not ready:
            raise Runaway(f"no answer from outside within {REAL_SECONDS:.0f} s:\n{waiting(self.loop)}")
        self._handed_over()
        return ready

    def _count(self) -> None:
        self.rounds += 1
        self.rounds_at_once += 1
        if self.rounds > self._most or self.rounds_at_once > ROUNDS_AT_ONCE:
            rounds, self.rounds, self.rounds_at_once = self.rounds, 0, 0
            raise Runaway(f"{rounds} rounds of the loop, now at {self.now:g} s:\n{waiting(self.loop)}")


class _Task(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **options: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class Loop(asyncio.SelectorEventLoop):
    """An event loop that starts at 0 seconds."""

    def __init__(self, limit: float = math.inf, rounds: int = ROUNDS) -> None:
        self._jumping = _Selector(limit, rounds)
        super().__init__(self._jumping)
        self._jumping.loop = self
        self._mine = threading.current_thread()
        self._clock_resolution = 1e-6  # a nanosecond is lost in a float after two months
        self.set_task_factory(lambda loop, coroutine, **options: _Task(coroutine, loop=loop, **options))

    def time(self) -> float:
        return self._jumping.now

    def stopped_for(self, seconds: float) -> None:
        """The process was stopped for so long: everything that fell due meanwhile is due at once."""
        self._jumping.now += seconds

    @property
    def rounds(self) -> int:
        """How many rounds the loop has gone."""
        return self._jumping.rounds

    @property
    def threads(self) -> _Threads:
        return self._jumping.threads

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        if threading.current_thread() is self._mine:
            return self.call_soon(callback, *args, context=context)
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        self.threads.hand_over(lambda: callback(*args))
        self._write_to_self()  # type: ignore[attr-defined]
        return None

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """The job is done here and now, its result comes with the next round."""
        future: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self.call_soon(_unless_done, future, future.set_exception, error)
        else:
            self.call_soon(_unless_done, future, future.set_result, result)
        return future

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Something outside is at work for us (a socket, a foreign thread): the clock stands until we go on."""
        self._jumping.held += 1
        try:
            yield
        finally:
            self._jumping.held -= 1


def _unless_done(future: "asyncio.Future[T]", settle: Callable[[Any], None], value: Any) -> None:
    if not future.done():
        settle(value)


class _Queue(queue.SimpleQueue[Any]):
    """In place of the queues between the loop and its threads: knows which thread waits at it."""

    def __new__(cls) -> "_Queue":
        return super().__new__(cls)

    def __init__(self) -> None:
        self._items: collections.deque[Any] = collections.deque()
        self._changed = threading.Condition()
        self._waiter: threading.Thread | None = None
        self._threads = cast("Loop", asyncio.get_running_loop()).threads

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        with self._changed:
            self._items.append(item)
            if self._waiter is not None:
                self._threads.waits(self._waiter, waits=False)
            self._changed.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self._changed:
            while not self._items:
                self._waiter = threading.current_thread()
                self._threads.waits(self._waiter, waits=True)
                self._changed.wait()
            self._waiter = None
            return self._items.popleft()


class _Thread(threading.Thread):
    """A thread that the loop of its maker waits for."""

    def start(self) -> None:
        cast("Loop", asyncio.get_running_loop()).threads.started(self)
        super().start()


@contextlib.contextmanager
def _threads_of_the_loop() -> Iterator[None]:
    """Transfers use threads and queues that the loop knows."""
    queues, threads = SimpleNamespace(SimpleQueue=_Queue), SimpleNamespace(Thread=_Thread)
    with (
        mock.patch.object(transfer, "queue", queues),
        mock.patch.object(transfer, "threading", threads),
        mock.patch.object(sinks, "queue", queues),
    ):
        yield


def run(main: Callable[[], Coroutine[Any, Any, T]], *, limit: float = math.inf, rounds: int = ROUNDS) -> T:
    """Run `main()` on such a loop, for at most `limit` seconds of its time."""
    with _threads_of_the_loop(), asyncio.Runner(loop_factory=lambda: Loop(limit, rounds)) as runner:
        return runner.run(main())


def now() -> float:
    """Seconds since the loop began."""
    return asyncio.get_running_loop().time()


def waiting(loop: asyncio.AbstractEventLoop | None) -> str:
    """Every task that has not ended, and the innermost line of it that waits."""
    tasks = sorted(asyncio.all_tasks(loop), key=hash) if loop is not None else []
    return "\n".join(f"  {task.get_name()}: {_place(task)}" for task in tasks[:100])


def _place(task: "asyncio.Task[Any]") -> str:
    inner: Any = task.get_coro()
    places = []
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None) or getattr(inner, "ag_frame", None)
        if frame is not None:
            places.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return " > ".join(places) or "not begun"


@dataclass(frozen=True)
class WorldClock:
    """The time of day of a world. It stands still while a test thinks."""

    begin: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.begin + timedelta(seconds=now())

    def skewed(self, seconds: float) -> Callable[[], datetime]:
        """The clock of a machine that is so far ahead."""
        return lambda: self.now() + timedelta(seconds=seconds)
