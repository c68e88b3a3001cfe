"""engine/copying.py: copies beside the queue, on a clock of their own."""

import asyncio

import pytest
from tests.world import clock

from taskfold.api.reasons import Reason
from taskfold.decide.world import CopyActive, CopyFailed
from taskfold.effects import errors
from taskfold.engine import copying, outcome
from taskfold.engine.copying import Copies, What
from taskfold.engine.watch import Key, Kind

KEY, OTHER = Key(Kind.VERIFIER_RUN, "team", "a"), Key(Kind.VERIFIER_RUN, "team", "b")
LOST = errors.ConnectionLost("reset")
AWAY = errors.StoreError("503")


class World:
    """The copies, whom they woke, and how often work was begun."""

    def __init__(self) -> None:
        self.woken: list[tuple[Key, float]] = []
        self.found = Copies(lambda key, delay: self.woken.append((key, delay)), chance=lambda: 1.0)
        self.begun = 0
        self.cancelled = 0

    def start(self, outcome=None, *, gate: asyncio.Event | None = None, key=KEY, what=What.EXPORT, tells=()) -> None:
        """Work that waits for `gate`, and then ends or raises `outcome`."""

        async def work(tell):
            self.begun += 1
            for words in tells:
                tell(words)
            try:
                if gate is not None:
                    await gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            if outcome is not None:
                raise outcome

        self.found.start(key, what, work)


async def moments(count: int = 5) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


def on_clock(live):
    """Run `live(world)` on a clock of its own."""

    async def run():
        return await live(World())

    return clock.run(run)


def test_nothing_is_known_of_a_copy_that_was_never_asked_for():
    async def live(world):
        assert world.found.report(KEY, What.EXPORT) is None

    on_clock(live)


def test_one_copy_at_a_time_for_an_object():
    async def live(world):
        gate = asyncio.Event()
        world.start(gate=gate)
        world.start(gate=gate)
        world.start(gate=gate, key=OTHER)
        await moments()
        assert (world.begun, len(world.found)) == (2, 2)
        assert world.found.report(KEY, What.EXPORT) == CopyActive()
        gate.set()
        await moments()
        assert world.found.report(KEY, What.EXPORT) is None, "that it is done the store says"
        assert world.woken == [(KEY, 0.0), (OTHER, 0.0)]

    on_clock(live)


BROKEN = {
    "the store": (AWAY, Reason.STORE_UNAVAILABLE, "503"),
    "a connection": (LOST, Reason.TRANSFER_FAILED, "reset"),
    "a disk": (OSError("disk full"), Reason.TRANSFER_FAILED, "disk full"),
    "time": (TimeoutError(), Reason.TRANSFER_FAILED, "TimeoutError"),
    "a wait": (outcome.Waiting(Reason.SOURCE_NOT_FOUND, "no Secret s"), Reason.SOURCE_NOT_FOUND, "no Secret s"),
    "a mistake of ours": (KeyError("x"), Reason.INTERNAL, "'x'"),
}


@pytest.mark.parametrize(("failure", "reason", "words"), BROKEN.values(), ids=BROKEN)
def test_one_that_breaks_is_told_and_begun_again_after_a_pause(failure, reason, words):
    async def live(world):
        world.start(failure)
        await moments()
        report = world.found.report(KEY, What.EXPORT)
        assert isinstance(report, CopyFailed)
        assert (report.reason, report.retry_in) == (reason, copying.RETRY_FIRST)
        assert words in report.message
        assert world.woken == [(KEY, copying.RETRY_FIRST)]
        await asyncio.sleep(copying.RETRY_FIRST)
        assert world.found.report(KEY, What.EXPORT).retry_in == 0.0
        world.start()
        await moments()
        assert (world.begun, world.found.report(KEY, What.EXPORT)) == (2, None)

    on_clock(live)


def test_what_is_said_of_a_store_that_is_away_stays_until_the_next_try_gets_on():
    async def live(world):
        world.start(AWAY)
        await moments()
        gate = asyncio.Event()
        world.start(gate=gate)
        await moments()
        report = world.found.report(KEY, What.EXPORT)
        assert isinstance(report, CopyFailed)
        assert (report.reason, report.message) == (Reason.STORE_UNAVAILABLE, "503")
        assert report.retry_in > 0, "it is under way: nobody is to begin it"
        gate.set()
        await moments()
        assert world.found.report(KEY, What.EXPORT) is None
        world.start(AWAY)
        await moments()
        world.start(gate=asyncio.Event(), tells=("artifact a: 200 MiB",))
        await moments()
        assert world.found.report(KEY, What.EXPORT) == CopyActive("artifact a: 200 MiB")

    on_clock(live)


def test_the_pauses_grow_to_a_limit():
    async def live(world):
        pauses = []
        for _ in range(10):
            world.start(LOST)
            await moments()
            pauses.append(world.found.report(KEY, What.EXPORT).retry_in)
            await asyncio.sleep(pauses[-1])
        assert pauses == sorted(pauses)
        assert (pauses[:3], pauses[-1]) == ([0.5, 1.0, 2.0], copying.RETRY_LIMIT)

    on_clock(live)


def test_how_long_it_was_asked_for_leaves_out_the_time_that_the_store_was_away():
    async def live(world):
        world.start(LOST)
        await asyncio.sleep(100.0)
        assert world.found.report(KEY, What.EXPORT).asked == 100.0
        world.start(AWAY)
        await asyncio.sleep(7.0)
        assert world.found.report(KEY, What.EXPORT).asked == 7.0
        world.start(LOST)
        await moments()
        assert world.found.report(KEY, What.EXPORT).asked == 7.0

    on_clock(live)


def test_progress_is_told_once_each():
    async def live(world):
        gate = asyncio.Event()
        world.start(gate=gate, tells=("100 MiB", "100 MiB", "200 MiB"))
        await moments()
        assert world.found.report(KEY, What.EXPORT) == CopyActive("200 MiB")
        assert world.woken == [(KEY, 0.0)] * 2
        gate.set()
        await moments()

    on_clock(live)


def test_a_copy_of_another_kind_takes_its_place():
    """As when a run is cancelled at its export: nobody waits for that any more."""

    async def live(world):
        export, logs = asyncio.Event(), asyncio.Event()
        world.start(gate=export)
        await moments()
        assert world.found.report(KEY, What.LOGS) is None
        world.start(gate=logs, what=What.LOGS)
        await moments()
        assert world.cancelled == 1
        assert world.found.report(KEY, What.EXPORT) is None
        assert world.found.report(KEY, What.LOGS) == CopyActive(), "the end of the first is not the end of the second"
        logs.set()
        await moments()
        assert world.found.report(KEY, What.LOGS) is None

    on_clock(live)


def test_a_copy_of_another_kind_begins_without_the_failures_of_the_one_before():
    async def live(world):
        world.start(LOST)
        await asyncio.sleep(50.0)
        world.start(LOST, what=What.LOGS)
        await moments()
        report = world.found.report(KEY, What.LOGS)
        assert (report.retry_in, report.asked) == (copying.RETRY_FIRST, 0.0)

    on_clock(live)


@pytest.mark.parametrize("broken", [False, True])
def test_what_is_dropped_is_forgotten(broken):
    async def live(world):
        world.start(LOST if broken else None, gate=None if broken else asyncio.Event())
        await moments()
        world.found.drop(KEY)
        world.found.drop(KEY)
        await moments()
        assert (world.found.report(KEY, What.EXPORT), len(world.found)) == (None, 0)
        assert world.cancelled == (0 if broken else 1)

    on_clock(live)


def test_at_the_end_of_the_process_nothing_goes_on():
    async def live(world):
        for key in (KEY, OTHER):
            world.start(gate=asyncio.Event(), key=key)
        await moments()
        await world.found.close()
        assert (world.cancelled, len(world.found)) == (2, 0)

    on_clock(live)
