"""Stopping and killing: what a process does while it is stopped, and what it can still do when it is dead."""

import asyncio
import contextlib
import contextvars
from typing import Any

import pytest

from tests.world import border as borders
from tests.world import clock, faults, processes
from tests.world.processes import PROCESS, Process


def _started(process: Process, work: Any) -> "asyncio.Task[Any]":
    context = contextvars.copy_context()
    context.run(PROCESS.set, process)
    return asyncio.get_running_loop().create_task(work, context=context)


def test_a_stopped_process_does_nothing_until_it_goes_on() -> None:
    async def main() -> list[tuple[str, float]]:
        process, seen = Process("a"), list[tuple[str, float]]()

        async def ticks() -> None:
            for tick in range(3):
                await asyncio.sleep(1)
                seen.append((f"tick {tick}", clock.now()))

        async def child() -> None:
            await asyncio.create_task(ticks())

        task = _started(process, child())
        await asyncio.sleep(1.5)
        process.stop()
        await asyncio.sleep(10)
        seen.append(("goes on", clock.now()))
        process.go_on()
        await task
        return seen

    assert processes.run(main) == [("tick 0", 1.0), ("goes on", 11.5), ("tick 1", 11.5), ("tick 2", 12.5)]


def test_what_others_do_for_a_stopped_process_goes_on() -> None:
    async def main() -> tuple[list[float], bool]:
        process, acted = Process("a"), list[float]()
        border = borders.Border(process)

        async def server() -> None:
            await asyncio.sleep(5)
            acted.append(clock.now())

        async def asks() -> None:
            await border.outside_async(server)

        task = _started(process, asks())
        await asyncio.sleep(1)
        process.stop()
        await asyncio.sleep(10)
        waited = not task.done()
        process.go_on()
        await task
        return acted, waited

    assert processes.run(main) == ([5.0], True)


@pytest.mark.parametrize("point", faults.Point)
def test_a_call_at_which_a_process_is_killed_acts_only_if_it_had_arrived(point: faults.Point) -> None:
    async def main() -> tuple[list[str], bool]:
        process, acted = Process("a"), list[str]()
        border = borders.Border(process)
        border.add(point, faults.named("first"), faults.Kill())

        async def works() -> None:
            try:
                async with border.crossing("first", ""):
                    border.outside(acted.append, "first")
                acted.append("answered")
            finally:
                with contextlib.suppress(asyncio.CancelledError):
                    async with border.crossing("last words", ""):
                        border.outside(acted.append, "last words")

        task = _started(process, works())
        await asyncio.wait([task])
        return acted, process.unwound

    assert processes.run(main) == ([] if point is faults.Point.BEFORE else ["first"], True)


def test_a_call_at_which_a_process_is_stopped_is_answered_when_it_goes_on() -> None:
    async def main() -> list[tuple[str, float]]:
        process, seen = Process("a"), list[tuple[str, float]]()
        border = borders.Border(process)
        border.add(faults.Point.AFTER, faults.named("a call"), faults.Stop())

        async def works() -> None:
            async with border.crossing("a call", ""):
                seen.append(("acted", clock.now()))
            seen.append(("answered", clock.now()))

        task = _started(process, works())
        await asyncio.sleep(60)
        border.resume()
        await task
        return seen

    assert processes.run(main) == [("acted", 0.0), ("answered", 60.0)]


def test_a_killed_process_starts_nothing_and_its_connections_are_cut() -> None:
    async def main() -> tuple[list[str], bool]:
        process, seen = Process("a"), list[str]()
        process.cuts.append(lambda: seen.append("cut"))

        async def late() -> None:
            seen.append("late")

        async def works() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                asyncio.get_running_loop().create_task(late())

        _started(process, works())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(1)
        return seen, process.unwound

    assert processes.run(main) == (["cut"], True)
