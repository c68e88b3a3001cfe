"""Phases that outlast their stream: when it is left, what is held meanwhile, and that nothing is lost by it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.effects.fake_exec import PIN, FakeCluster, Remote, serving
from tests.effects.test_sandbox import boxed, shell

from taskfold.contract import folder as folders
from taskfold.effects import errors, places, sandbox, transfer
from taskfold.protocol import phase as phases

AT = "2026-03-01T12:00:00Z"
ONE = places.Caps(execs=1, execs_per_node=1, copies=1, copies_per_node=1, streams=1)
REQUEST = phases.PhaseRequest("a" * 32, "agent", runs=[shell("true", Path("/log"))], keep=True)
RESULT = {"prepared": [], "startedAt": AT, "endedAt": AT, "runs": [], "files": []}


def line(event: str, **more: Any) -> bytes:
    return json.dumps({"event": event, **more}).encode() + b"\n"


STARTED, DONE = line("started", startedAt=AT, attached=False), line("done", result=RESULT)


class Helper:
    """A helper that says what a test wants, when it wants it, and notes whether its input was ended."""

    def __init__(self, *said: bytes) -> None:
        self.said = list(said)
        self.more: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended = asyncio.Event()

    async def script(self, remote: Remote) -> None:
        for data in self.said:
            await remote.out(data)

        async def speak() -> None:
            while (data := await self.more.get()) is not None:
                await remote.out(data)

        async with asyncio.TaskGroup() as group:
            speaking = group.create_task(speak())
            async for _ in remote.stdin():
                pass
            self.ended.set()
            speaking.cancel()
        await remote.end()


@contextlib.asynccontextmanager
async def served(helper: Helper, **options: Any) -> AsyncIterator[sandbox.Sandbox]:
    async with serving(FakeCluster(helper.script), **options) as (exec_, _):
        yield sandbox.Sandbox(exec_, PIN)


async def test_the_real_helper_ends_with_its_input_and_the_phase_goes_on(helper: Path, tmp_path: Path) -> None:
    go, cluster = tmp_path / "go", FakeCluster()
    request = replace(REQUEST, runs=[shell(f"while [ ! -e {go} ]; do sleep 0.02; done; echo end", tmp_path / "log")])
    async with boxed(helper, cluster=cluster) as box:
        going = await box.begin_phase(request, stay_seconds=0.05)
        assert isinstance(going, sandbox.Going)
        while cluster.running:  # left by itself, not cut
            await asyncio.sleep(0.01)
        look = replace(request, runs=(), attach_only=True)
        assert await box.begin_phase(look, stay_seconds=0.05) == going
        go.touch()
        result = await box.begin_phase(look, stay_seconds=60)
        assert isinstance(result, phases.PhaseResult)
        assert [run.inline for run in result.runs] == [b"end\n"]
        assert result.started_at == going.started_at


async def test_an_end_in_time_is_no_letting_go() -> None:
    helper = Helper(STARTED)

    async def started(_: sandbox.Started) -> None:
        await helper.more.put(DONE)

    async with served(helper) as box:
        found = await box.begin_phase(REQUEST, on_started=started, stay_seconds=60)
        assert isinstance(found, phases.PhaseResult)


async def test_an_end_that_is_on_its_way_is_waited_for() -> None:
    helper = Helper(STARTED + DONE[:20])
    async with served(helper) as box:
        waiting = asyncio.create_task(box.begin_phase(REQUEST, stay_seconds=0.01))
        for part in (DONE[20:40], DONE[40:]):
            await asyncio.sleep(0.05)  # longer than it stays for an end that is not on its way
            assert not waiting.done()
            await helper.more.put(part)
        assert isinstance(await waiting, phases.PhaseResult)


async def test_a_helper_that_lets_go_by_itself_says_so() -> None:
    async with served(Helper(STARTED, line("running"))) as box:
        assert await box.begin_phase(REQUEST, stay_seconds=60) == sandbox.Going(AT)
    async with served(Helper(STARTED, line("running"))) as box:
        with pytest.raises(errors.ConnectionLost):
            await box.run_phase(REQUEST)
    async with served(Helper(line("running"))) as box:
        with pytest.raises(errors.ProtocolError):  # nothing has started
            await box.begin_phase(REQUEST, stay_seconds=60)


@pytest.mark.parametrize("at", ["yesterday", "2026-03-01", "", "2026-03-01T12:00:00Z\n"])
async def test_a_start_at_no_time_is_refused(at: str) -> None:
    async with served(Helper(line("started", startedAt=at, attached=False))) as box:
        with pytest.raises(errors.ProtocolError):
            await box.begin_phase(REQUEST, stay_seconds=60)


async def test_who_waits_holds_no_commands_place() -> None:
    helper, ready = Helper(STARTED), asyncio.Event()

    async def started(_: sandbox.Started) -> None:
        ready.set()

    async with served(helper, caps=ONE) as box:
        waiting = asyncio.create_task(box.begin_phase(REQUEST, on_started=started, stay_seconds=60))
        await ready.wait()
        # The only place for commands, and there is none to wait: this one leaves after a moment.
        other = replace(REQUEST, nonce="b" * 32)
        assert await box.begin_phase(other, stay_seconds=60) == sandbox.Going(AT)
        assert not waiting.done()
        await helper.more.put(DONE)
        await helper.more.put(DONE)
        assert isinstance(await waiting, phases.PhaseResult)


async def test_a_phase_without_programs_is_never_let_go_of() -> None:
    helper, ready = Helper(STARTED), asyncio.Event()

    async def started(_: sandbox.Started) -> None:
        ready.set()

    async with served(helper) as box:
        waiting = asyncio.create_task(box.begin_phase(replace(REQUEST, runs=()), on_started=started, stay_seconds=0.0))
        await ready.wait()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await helper.more.put(DONE)
        assert isinstance(await waiting, phases.PhaseResult)


async def test_a_copys_place_is_free_once_the_phase_runs() -> None:
    helper, ready = Helper(STARTED), asyncio.Event()
    request = replace(REQUEST, prepare=[phases.Unpack("/tests")])
    payload = transfer.from_folder(folders.MemoryFolder({"test.sh": (b"", False)}))

    async def started(_: sandbox.Started) -> None:
        ready.set()

    async with serving(FakeCluster(helper.script), caps=replace(ONE, execs=4, execs_per_node=4)) as (exec_, _):
        box = sandbox.Sandbox(exec_, PIN)
        waiting = asyncio.create_task(box.begin_phase(request, [payload], on_started=started, stay_seconds=60))
        await ready.wait()
        async with asyncio.timeout(60), exec_.copies.at(PIN.node):
            pass
        await helper.more.put(DONE)
        assert isinstance(await waiting, phases.PhaseResult)


async def test_a_copy_waits_for_its_place_before_it_takes_a_commands() -> None:
    helper = Helper(STARTED, DONE)
    request = replace(REQUEST, prepare=[phases.Unpack("/tests")], keep=False)
    payload = transfer.from_folder(folders.MemoryFolder({"test.sh": (b"", False)}))
    async with serving(FakeCluster(helper.script), caps=ONE) as (exec_, _):
        box = sandbox.Sandbox(exec_, PIN)
        async with exec_.copies.at(PIN.node):
            waiting = asyncio.create_task(box.begin_phase(request, [payload], stay_seconds=60))
            assert isinstance(await box.begin_phase(replace(REQUEST, keep=False), stay_seconds=60), phases.PhaseResult)
            assert not waiting.done()
        assert isinstance(await waiting, phases.PhaseResult)
