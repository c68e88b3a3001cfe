"""engine/queue.py, on a clock of its own: no test sleeps."""

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.world import clock

from taskfold.engine import queue
from taskfold.engine.queue import KeyedQueue

Work = Callable[[str], Awaitable[float | None]]


@contextlib.asynccontextmanager
async def working(work: Work, workers: int = 2):
    """A queue at work for the length of the block."""
    found: KeyedQueue[str] = KeyedQueue(work, workers=workers)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Log:
    """Work that takes `seconds` and notes when it began; `answers` are its return values in turn."""

    def __init__(self, seconds: float = 0.0, answers=()):
        self.seconds = seconds
        self.answers = collections.deque(answers)
        self.began: list[tuple[float, str]] = []
        self.busy: collections.Counter[str] = collections.Counter()
        self.most = 0

    async def __call__(self, key: str) -> float | None:
        self.began.append((round(clock.now(), 3), key))
        self.busy[key] += 1
        assert self.busy[key] == 1, "two workers on one key"
        self.most = max(self.most, self.busy.total())
        try:
            if self.seconds:
                await asyncio.sleep(self.seconds)
        finally:
            self.busy[key] -= 1
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def times(log: Log) -> list[float]:
    return [moment for moment, _ in log.began]


def scenario(log: Log, *moves: tuple[float, str, float], until: float, workers: int = 2) -> Log:
    """`moves`: (when, key, delay) for `add`."""

    async def main() -> None:
        async with working(log, workers) as found:
            for when, key, delay in moves:
                if when > clock.now():
                    await asyncio.sleep(when - clock.now())
                found.add(key, delay)
            await asyncio.sleep(until - clock.now())

    clock.run(main)
    return log


CASES = {
    "at once": (Log(), [(0, "a", 0)], [0]),
    "added twice before its turn, worked once": (Log(), [(0, "a", 0), (0, "a", 0)], [0]),
    "added while busy, worked once more afterwards": (Log(5), [(0, "a", 0), (1, "a", 0), (2, "a", 0)], [0, 5]),
    "after a delay": (Log(), [(0, "a", 3)], [3]),
    "the earlier of two wishes counts": (Log(), [(0, "a", 9), (1, "a", 2), (2, "a", 20)], [3]),
    "at once overrides a delay": (Log(), [(0, "a", 9), (1, "a", 0)], [1]),
    "due while busy": (Log(5), [(0, "a", 0), (1, "a", 1)], [0, 5]),
    "it may ask for itself": (Log(0, [4.0, 2.0]), [(0, "a", 0)], [0, 4, 6]),
    "asking for itself ends with None": (Log(0, [1.0, None]), [(0, "a", 0)], [0, 1]),
    "an event in between replaces what it asked for": (Log(0, [10.0]), [(0, "a", 0), (3, "a", 0)], [0, 3]),
    "a negative delay is at once": (Log(), [(1, "a", -5)], [1]),
}


@pytest.mark.parametrize(("log", "moves", "expected"), CASES.values(), ids=CASES)
def test_when_a_key_is_worked_on(log, moves, expected):
    assert times(scenario(log, *moves, until=60)) == expected


def test_other_keys_do_not_wait_for_a_busy_one():
    log = scenario(Log(5), (0, "a", 0), (1, "b", 0), until=30)
    assert log.began == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_keys_are_in_work_than_there_are_workers(workers):
    log = scenario(Log(1), *[(0, str(number), 0) for number in range(7)], until=30, workers=workers)
    assert log.most == workers
    assert [key for _, key in log.began] == [str(number) for number in range(7)]


def test_a_failed_key_comes_back_later_each_time():
    failures = [RuntimeError("no")] * 11
    log = scenario(Log(0, failures), (0, "a", 0), until=400)
    gaps = [round(b - a, 3) for a, b in zip(times(log), times(log)[1:], strict=False)]
    assert gaps == [0.25, 0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_one_success_and_the_delay_is_short_again():
    answers = [RuntimeError("no"), RuntimeError("no"), 10.0, RuntimeError("no"), None]
    assert times(scenario(Log(0, answers), (0, "a", 0), until=60)) == [0, 0.25, 0.75, 10.75, 11.0]


def test_a_failing_key_does_not_disturb_the_others():
    log = scenario(Log(0, [RuntimeError("no")]), (0, "a", 0), (0.1, "b", 0), until=0.2)
    assert [key for _, key in log.began] == ["a", "b"]


def test_the_delay_has_a_limit_however_often_it_failed():
    found: KeyedQueue[str] = KeyedQueue(Log(), workers=1)
    found._failures["a"] = 5000
    found._work = Log(0, [RuntimeError("no")])
    assert clock.run(lambda: found._attempt("a")) == queue.BACKOFF_LIMIT


def test_cancellation_passes_through_the_work_under_way():
    ended = []

    async def work(key: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(key)
            raise

    async def main() -> None:
        async with working(work) as found:
            found.add("a")
            await asyncio.sleep(1)
            assert len(found) == 1

    clock.run(main)
    assert ended == ["a"]


def test_what_waits_and_what_is_in_work_is_counted():
    async def main() -> None:
        log = Log(5)
        async with working(log, 1) as found:
            for key in "abc":
                found.add(key)
            assert (found.waiting, len(found)) == (3, 3)
            await asyncio.sleep(1)
            assert (found.waiting, len(found)) == (2, 3)
            await asyncio.sleep(20)
            assert (found.waiting, len(found), found.last_progress) == (0, 0, 15.0)

    clock.run(main)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 1.0])), max_size=15
    ),
    st.integers(1, 3),
)
def test_no_wish_is_lost(moves, workers):
    """After the last time a key was added or due, it was worked on."""
    log, wished = Log(0.7), {}

    async def main() -> None:
        async with working(log, workers) as found:
            for key, delay, pause in moves:
                found.add(key, delay)
                wished[key] = clock.now()
                await asyncio.sleep(pause)
            await asyncio.sleep(60)
            assert len(found) == 0

    clock.run(main)
    last = {key: max(moment for moment, worked in log.began if worked == key) for key in wished}
    assert all(last[key] >= round(wished[key], 3) for key in wished)


def test_a_cancellation_that_is_not_the_workers_own_costs_no_worker():
    done = []

    async def work(key: str) -> None:
        if key == "bad":
            inner = asyncio.ensure_future(asyncio.sleep(9))
            inner.cancel()
            await inner
        done.append(key)

    async def main() -> None:
        async with working(work, 1) as found:
            found.add("bad")
            await asyncio.sleep(1)
            found.add("good")
            await asyncio.sleep(1)

    clock.run(main)
    assert done == ["good"]


def test_several_keys_are_asked_for_at_once_each_once():
    log = Log()

    async def main() -> None:
        async with working(log, 1) as found:
            found.add("b", 30.0)
            found.add_all({"a": 1, "b": 2, "c": 3})
            found.add_all(["a"])
            found.add_all(())
            await asyncio.sleep(60)

    clock.run(main)
    assert log.began == [(0.0, "a"), (0.0, "b"), (0.0, "c")]
