"""The clock of the worlds: exact, the same each time, and never a hang."""

import asyncio
import contextlib
import functools
from datetime import timedelta
from pathlib import Path

import pytest

from taskfold.contract import folder as folders
from taskfold.effects import frames, sinks, transfer
from tests.world import clock


def test_time_passes_by_waiting_only() -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, clock.now()))

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("c", 1e9), ("a", 0.5), ("b", 0.5)):
                group.create_task(sleeper(name, seconds))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return [*seen, ("end", clock.now())]

    assert clock.run(main) == [("a", 0.5), ("b", 0.5), ("c", 1e9), ("end", 1e9 + 3600)]


def test_a_job_in_a_thread_takes_no_time() -> None:
    async def main() -> tuple[int, float]:
        timer = asyncio.create_task(asyncio.sleep(0.001))
        found = await asyncio.to_thread(sum, range(1000))
        at = clock.now()
        await timer
        return found, at

    assert clock.run(main) == (499_500, 0.0)


def test_a_job_that_fails_in_a_thread() -> None:
    async def main() -> None:
        await asyncio.to_thread(functools.partial(int, "x"))

    with pytest.raises(ValueError, match="invalid literal"):
        clock.run(main)


async def _copied(path: Path, size: int) -> tuple[float, int]:
    """An archive from one transfer thread into another, with a timer that would go off first if time passed."""
    timer = asyncio.create_task(asyncio.sleep(0.001))
    sink = sinks.ToDirectory(path, max_bytes=1 << 30, max_entries=100)
    payload = transfer.from_folder(folders.MemoryFolder({"file": (bytes(size), False)}))
    decoder = frames.ArchiveDecoder()
    async with transfer.building(payload) as archive:
        async for block in archive.blocks():
            for part in decoder.feed(bytes(block[1:])):
                await sink.write(part)
        for part in decoder.feed(archive.trailer.encode()):
            await sink.write(part)
    await sink.finish(decoder.finish())
    at = clock.now()
    await timer
    return at, (path / "file").stat().st_size


@pytest.mark.parametrize("size", [0, 1, 8 << 20], ids=["empty", "a byte", "more than the pipe holds"])
def test_the_threads_of_copies_hold_the_clock(tmp_path: Path, size: int) -> None:
    assert clock.run(lambda: _copied(tmp_path, size)) == (0.0, size)


def test_a_thread_that_waits_for_the_loop_does_not_hold_the_clock() -> None:
    async def main() -> float:
        payload = transfer.from_folder(folders.MemoryFolder({"file": (bytes(8 << 20), False)}))
        async with transfer.building(payload) as archive:
            async for _ in archive.blocks():
                await asyncio.sleep(3600)  # nobody reads: the thread has no buffer to go on with
                break
        return clock.now()

    assert clock.run(main) == 3600.0


def test_the_order_is_the_same_each_time(tmp_path: Path) -> None:
    async def main(folder: Path) -> list[str]:
        order: list[str] = []

        async def worker(name: str) -> None:
            await _copied(folder / name, 300_000)
            order.append(name)
            await asyncio.sleep(1)
            order.append(name)

        await asyncio.wait({asyncio.create_task(worker(f"w{index}")) for index in range(8)})
        return order

    orders = []
    for attempt in range(4):
        (tmp_path / str(attempt)).mkdir()
        for index in range(8):
            (tmp_path / str(attempt) / f"w{index}").mkdir()
        orders.append(clock.run(functools.partial(main, tmp_path / str(attempt))))
    assert orders[0] == orders[1] == orders[2] == orders[3]


def test_a_world_where_nothing_can_happen_names_who_waits() -> None:
    async def waits_for_godot() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(waits_for_godot(), name="vladimir")
        await task

    with pytest.raises(clock.Deadlock, match=r"(?s)vladimir: .*waits_for_godot"):
        clock.run(main)


def test_tasks_that_wake_each_other_for_ever() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(clock.Runaway, match="rounds of the loop, now at 0 s"):
        clock.run(main)


def test_a_world_that_goes_on_for_ever() -> None:
    cleaned = []

    async def main() -> None:
        try:
            while True:
                await asyncio.sleep(60)
        finally:
            cleaned.append(clock.now())

    with pytest.raises(clock.Runaway, match="not finished after 3600 s"):
        clock.run(main, limit=3600)
    assert cleaned == [3660.0], "its tasks are cancelled in order"


def test_what_is_outside_holds_the_clock_while_it_is_asked() -> None:
    """A real subprocess: its end comes over a real pipe."""

    async def main() -> tuple[float, bytes]:
        timer = asyncio.create_task(asyncio.sleep(0.001))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, clock.Loop)
        with loop.holding():
            reader, writer = await asyncio.open_connection(*await _echo())
            writer.write(b"hello")
            said = await reader.readexactly(5)
            writer.close()
        at = clock.now()
        await timer
        return at, said

    assert clock.run(main) == (0.0, b"hello")


async def _echo() -> tuple[str, int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            writer.write(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    return host, port


def test_machines_that_disagree_about_the_time() -> None:
    async def main() -> timedelta:
        world = clock.WorldClock()
        ahead = world.skewed(600)
        await asyncio.sleep(5)
        assert world.now() == world.begin + timedelta(seconds=5)
        return ahead() - world.now()

    assert clock.run(main) == timedelta(minutes=10)
