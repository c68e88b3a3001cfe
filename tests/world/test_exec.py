"""The exec endpoint of the world, and every fault of it against the real client: none a success, none a hang."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfold.contract import folder as folders
from taskfold.effects import client as api
from taskfold.effects import errors, sinks, transfer
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes
from taskfold.protocol import phase as phases
from tests.effects.fake_exec import PIN
from tests.world import boxes, clock, programs, sandbox, transport
from tests.world import exec as endpoints
from tests.world.exec import Endpoint, Fault

BOUNDS: dict[str, Any] = {"max_bytes": 1 << 20, "max_entries": 100}
OUTPUT = b"one line of output\n" * 100
CONTENT = b"content of a file " * 400
SECONDS = 45.0
"""How long the program works: longer than two signs of life."""


class World:
    """One container behind the endpoint, and a client."""

    def __init__(self, client: api.Client, endpoint: Endpoint, box: sandbox.Container) -> None:
        self.endpoint, self.box = endpoint, box
        self.exec_ = execs.Exec(client)
        self.sandbox = sandboxes.Sandbox(self.exec_, PIN)
        run = phases.Run("agent", ("sh", "-c", "work"), phases.Output("/logs/out"), limit_seconds=100)
        read = [phases.Read("/logs/out", 10_000)]
        self.request = phases.PhaseRequest("a" * 32, "agent", [phases.Unpack("/in")], [run], read)

    async def phase(self) -> None:
        payload = transfer.from_folder(folders.MemoryFolder({"file": (CONTENT, False)}))
        result = await self.sandbox.run_phase(self.request, [payload], checked=True)
        assert (result.runs[0].return_code, result.files["/logs/out"].content) == (3, OUTPUT)

    async def copy(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            sink = sinks.ToDirectory(Path(folder) / "out", **BOUNDS)
            await self.sandbox.pack([sandboxes.Root("/in", "in")], sink, checked=True, **BOUNDS)
            assert (Path(folder) / "out" / "in" / "file").read_bytes() == CONTENT

    def fail(self, fault: Fault, times: int = 1) -> None:
        """The next execs meet this fault."""
        first = len(self.endpoint.openings)
        self.endpoint.fault = lambda opening: fault if opening.number < first + times else endpoints.NONE

    @property
    def starts(self) -> int:
        return len(self.box.book.table.starts)


def world(main: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        book = programs.Book(texts={"work": programs.Script(SECONDS, 3, output=OUTPUT)})
        box = sandbox.Container(book=book)
        wire = boxes.Wire(box)
        async with api.Client(transport.source(), over=lambda: wire) as client:
            await main(World(client, wire.endpoint, box))
            await asyncio.sleep(10)  # lines that are not needed are ended in the background
            assert wire.endpoint.sockets == {}
        assert book.failures == []

    clock.run(run, limit=86_400)


# -- cut anywhere ------------------------------------------------------------------------------------------------------


def cut_and_again(fault: Fault, first: str) -> bool:
    """Whether the first exchange was a success; a second one, without a fault, is in any case."""
    arrived = False

    async def main(there: World) -> None:
        nonlocal arrived
        if first == "copy":
            await there.phase()
        there.fail(fault)
        try:
            await (there.phase() if first == "phase" else there.copy())
            arrived = True
        except errors.EffectError:
            assert clock.now() < 2 * (SECONDS + sandboxes.IDLE_SECONDS)
        await asyncio.sleep(40)  # a claim that was left is free again
        await there.phase()
        await there.copy()
        assert there.starts == 1

    world(main)
    return arrived


def size_of(first: str, direction: str) -> int:
    """Bytes of the whole exchange."""
    low, high = 0, 1 << 20
    while low < high:
        middle = (low + high) // 2
        if cut_and_again(Fault(**{direction: middle}), first):
            high = middle
        else:
            low = middle + 1
    return low


WAYS = [("phase", "cut_out"), ("phase", "cut_in"), ("copy", "cut_out"), ("copy", "cut_in")]
SIZES: dict[tuple[str, str], int] = {}


@settings(max_examples=100)
@given(way=st.sampled_from(WAYS), part=st.floats(0, 1.2))
def test_a_connection_cut_at_any_byte_is_a_success_only_if_everything_had_arrived(
    way: tuple[str, str], part: float
) -> None:
    first, direction = way
    if way not in SIZES:
        SIZES[way] = size_of(first, direction)
    at = int(SIZES[way] * part)
    assert cut_and_again(Fault(**{direction: at}), first) == (at >= SIZES[way])


# -- each fault --------------------------------------------------------------------------------------------------------

LOST = (errors.ConnectionLost,)
FAULTS: dict[str, tuple[Fault, tuple[type[Exception], ...]]] = {
    "last frame dropped with success": (Fault(drop_last=True), (errors.ProtocolError, errors.Truncated)),
    "no status": (Fault(no_status=True, cut_out=500), LOST),
    "silent from the start": (Fault(silent_after=0), (errors.ExecTimeout, errors.ConnectionLost)),
    "silent after a frame": (Fault(silent_after=1), (errors.ExecTimeout, errors.ConnectionLost)),
    "nobody reads": (Fault(never_reads=True), (errors.ExecTimeout, errors.ConnectionLost)),
    "v4 only": (Fault(protocols=(execs.V4,)), (errors.HandshakeRefused,)),
    "no protocol in common": (Fault(protocols=()), (errors.HandshakeRefused,)),
    "500 at the handshake": (Fault(refusal=endpoints.container_not_found("main")), (errors.NotRunning,)),
    "403 at the handshake": (Fault(refusal=endpoints.refused(403, "Forbidden", "no")), (errors.HandshakeRefused,)),
    "404 at the handshake": (Fault(refusal=endpoints.refused(404, "NotFound", "no")), (errors.NotRunning,)),
    "502 at the handshake": (Fault(refusal=endpoints.refused(502, "", "proxy")), LOST),
    "no handshake": (Fault(handshake_seconds=1e6), LOST),
}


AFTER_A_COPY = ("last frame dropped with success", "silent after a frame")
"""What happens at the end of a command: a copy is whole by then, since its helper stays until it is let go of."""
HURTS = [
    pytest.param(fault, kinds, first, id=f"{name}-{first}")
    for name, (fault, kinds) in FAULTS.items()
    for first in ("phase", "copy")
    if first == "phase" or name not in AFTER_A_COPY
]


@pytest.mark.parametrize("name", AFTER_A_COPY)
def test_a_copy_does_not_depend_on_how_its_command_ends(name: str) -> None:
    async def main(there: World) -> None:
        await there.phase()
        there.fail(FAULTS[name][0])
        await there.copy()

    world(main)


@pytest.mark.parametrize(("fault", "kinds", "first"), HURTS)
def test_a_fault_is_an_error_within_its_limit(fault: Fault, kinds: tuple[type[Exception], ...], first: str) -> None:
    async def main(there: World) -> None:
        if first == "copy":
            await there.phase()
        began = clock.now()
        there.fail(fault)
        with pytest.raises(kinds):
            await (there.phase() if first == "phase" else there.copy())
        assert clock.now() - began <= sandboxes.IDLE_SECONDS + SECONDS + 1
        await asyncio.sleep(40)
        await there.phase()
        await there.copy()
        assert there.starts == 1

    world(main)


HARMLESS = {
    "a byte at a time": Fault(frame_bytes=1),
    "slow": Fault(frame_seconds=5),
    "the status first": Fault(status_first=True),
    "an odd size": Fault(frame_bytes=7),
}


@pytest.mark.parametrize("fault", HARMLESS.values(), ids=list(HARMLESS))
def test_a_fault_that_costs_nothing(fault: Fault) -> None:
    async def main(there: World) -> None:
        there.fail(fault, times=10)
        await there.phase()
        await there.copy()
        assert len(there.endpoint.openings) == 2

    world(main)


@pytest.mark.parametrize(
    "status",
    [b"", b"{}", b"[]", b"null", b"<html>", endpoints.failure("error dialing backend"), b'{"status":"Failure"}'],
    ids=["empty", "an empty object", "a list", "null", "a page", "no exit code", "no details"],
)
def test_a_final_status_that_says_nothing(status: bytes) -> None:
    async def main(there: World) -> None:
        there.fail(Fault(status=status))
        with pytest.raises(errors.ExecError):
            await there.exec_.run(PIN, ["id"])

    world(main)


# -- what the endpoint does --------------------------------------------------------------------------------------------


def test_an_exit_code_and_both_streams_come_back() -> None:
    async def both(program: programs.Program) -> int:
        await program.print(b"out")
        return 42

    async def main(there: World) -> None:
        there.box.book.texts["both"] = both
        done = await there.exec_.run(PIN, ["sh", "-c", "both"])
        assert (done.code, done.stdout, done.stderr) == (42, b"out", b"")

    world(main)


def test_a_program_that_is_not_there() -> None:
    async def main(there: World) -> None:
        with pytest.raises(errors.StartFailed, match="no-such-program"):
            await there.exec_.run(PIN, ["no-such-program"])

    world(main)


def test_output_that_nobody_takes_blocks_the_program() -> None:
    """Nothing is lost, and nothing piles up beyond what is on the way."""

    async def prints(program: programs.Program) -> int:
        for _ in range(100):
            await program.print(bytes(1 << 16))
        program.files.write("/ended", b"")
        return 0

    async def main(there: World) -> None:
        there.box.book.texts["prints"] = prints
        async with there.exec_.open(PIN, ["sh", "-c", "prints"]) as stream:
            await asyncio.sleep(500)
            assert not there.box.files.exists("/ended")
            assert sum([len(chunk) async for chunk in stream.stdout()]) == 100 << 16
            assert (await stream.wait()).code == 0

    world(main)


def test_a_dropped_stream_does_not_end_the_phase_behind_it() -> None:
    """For proxies that drop what is silent: the run lives on, and the same request gets its end."""

    async def main(there: World) -> None:
        call = asyncio.create_task(there.phase())
        await asyncio.sleep(10)
        there.endpoint.cut()
        with pytest.raises(errors.ConnectionLost):
            await call
        await there.phase()
        assert (there.starts, len(there.endpoint.openings)) == (1, 2)
        assert clock.now() == pytest.approx(SECONDS, abs=1), "it was not begun again"

    world(main)


def test_the_end_of_the_container_ends_what_is_in_it() -> None:
    async def main(there: World) -> None:
        call = asyncio.create_task(there.phase())
        await asyncio.sleep(10)
        there.box.terminate()
        with pytest.raises(errors.HelperFailed) as caught:
            await call
        assert caught.value.code == 137
        assert there.box.tasks == set()

    world(main)
