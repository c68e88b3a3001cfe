"""Faults at the calls of one process, with the real client in front of them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world import apiserver, faults, refusals, transport
from tests.world.faults import Gate, Point

CREATE = faults.named("create configmaps")
BODY = {"metadata": {"name": "a"}}


class Process:
    """A client behind a gate."""

    def __init__(self, attempts: int = 1) -> None:
        self.server = apiserver.ApiServer(lambda: datetime.now(UTC))
        self.gate = Gate()
        wire = transport.MemoryTransport(self.server, self.gate)
        self.client = api.Client(transport.source(), limits=api.Limits(attempts=attempts), over=lambda: wire)

    async def create(self) -> api.Json:
        return await self.client.create(api.CONFIGMAPS, "default", BODY)

    @property
    def made(self) -> bool:
        return self.server.read(api.CONFIGMAPS, "default", "a") is not None


def played(play: Callable[[Process], Awaitable[None]], *, attempts: int = 1) -> Process:
    process = Process(attempts)

    async def main() -> None:
        async with asyncio.timeout(30), process.client:
            await play(process)

    asyncio.run(main())
    return process


async def turns(count: int = 20) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_calls_are_named_and_numbered() -> None:
    async def play(process: Process) -> None:
        await process.create()
        await process.client.list(api.TASKRUNS)
        await process.client.apply(api.CONFIGMAPS, "default", {"metadata": {"name": "b"}})
        with pytest.raises(errors.NotFound):
            await process.client.patch_status(api.TASKRUNS, "default", "x", {}, resource_version="1")
        await process.client.version()

    calls = played(play).gate.calls
    names = ["create configmaps", "list taskruns", "apply configmaps", "patch taskruns/status", "version"]
    assert [(call.number, call.name) for call in calls] == list(enumerate(names))
    assert str(calls[0]) == "0: create configmaps default/a"


@pytest.mark.parametrize(
    ("point", "action", "kind", "made"),
    [
        (Point.BEFORE, faults.Fail(faults.unreachable), errors.Unavailable, False),
        (Point.AFTER, faults.Fail(faults.lost_answer), errors.Unavailable, True),
        (Point.BEFORE, faults.Refuse(refusals.too_many(3)), errors.TooManyRequests, False),
        (Point.BEFORE, faults.Refuse(refusals.internal("x")), errors.Unavailable, False),
        (Point.AFTER, faults.Refuse(refusals.internal("x")), errors.Unavailable, True),
    ],
)
def test_a_fault_is_told_to_the_caller(
    point: Point, action: faults.Action, kind: type[errors.ApiError], made: bool
) -> None:
    async def play(process: Process) -> None:
        process.gate.add(point, CREATE, action)
        with pytest.raises(kind):
            await process.create()

    assert played(play).made is made


def test_the_client_waits_and_asks_again_after_429() -> None:
    async def play(process: Process) -> None:
        process.gate.add(Point.BEFORE, CREATE, faults.Refuse(refusals.too_many(0)), times=2)
        await process.create()

    process = played(play, attempts=5)
    assert process.made
    assert len(process.gate.calls) == 3
    assert process.client.counters.retries == 2


def test_the_client_repeats_no_write_whose_answer_was_lost() -> None:
    async def play(process: Process) -> None:
        process.gate.add(Point.AFTER, CREATE, faults.Fail(faults.lost_answer))
        with pytest.raises(errors.Unavailable) as caught:
            await process.create()
        assert caught.value.sent

    assert len(played(play, attempts=5).gate.calls) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_an_expired_token_is_renewed_once(times: int) -> None:
    async def play(process: Process) -> None:
        process.gate.add(Point.BEFORE, CREATE, faults.Refuse(refusals.unauthorized()), times=times)
        if times == 1:
            await process.create()
            return
        with pytest.raises(errors.Unauthorized):
            await process.create()

    assert played(play).made is (times == 1)


@pytest.mark.parametrize("point", Point)
def test_a_killed_process_never_returns_from_a_call(point: Point) -> None:
    async def play(process: Process) -> None:
        process.gate.add(point, CREATE, faults.Kill())
        calls = [asyncio.ensure_future(process.create()) for _ in range(2)]
        await process.gate.died.wait()
        await turns()
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)

    assert played(play).made is (point is Point.AFTER)


@pytest.mark.parametrize("point", Point)
def test_a_stopped_process_goes_on_where_it_was(point: Point) -> None:
    async def play(process: Process) -> None:
        process.gate.add(point, CREATE, faults.Stop())
        call = asyncio.ensure_future(process.create())
        await process.gate.stopped.wait()
        other = asyncio.ensure_future(process.client.version())
        await turns()
        assert not call.done()
        assert not other.done()
        assert process.made is (point is Point.AFTER)
        process.gate.resume()
        await call
        await other

    assert played(play).made


def test_a_stopped_process_can_be_killed() -> None:
    async def play(process: Process) -> None:
        process.gate.stop()
        call = asyncio.ensure_future(process.create())
        await turns()
        process.gate.kill()
        await turns()
        assert not call.done()
        call.cancel()

    assert not played(play).made


def test_the_world_may_change_at_a_call() -> None:
    async def play(process: Process) -> None:
        def taken() -> None:
            process.server.put(api.CONFIGMAPS, {"metadata": {"name": "a", "namespace": "default"}})

        process.gate.add(Point.BEFORE, CREATE, faults.Do(taken))
        with pytest.raises(errors.AlreadyExists):
            await process.create()

    played(play)


def test_a_delay_lets_others_pass() -> None:
    async def play(process: Process) -> None:
        process.gate.add(Point.BEFORE, faults.numbered(0), faults.Delay(0.05))
        slow = asyncio.ensure_future(process.create())
        await turns()
        await process.client.version()
        assert not slow.done()
        await slow

    assert played(play).made


def test_a_fault_strikes_as_often_as_it_was_planned() -> None:
    async def play(process: Process) -> None:
        process.gate.add(Point.BEFORE, CREATE, faults.Fail(faults.unreachable), times=2)
        for _ in range(2):
            with pytest.raises(errors.Unavailable):
                await process.create()
        await process.create()

    assert played(play).made
