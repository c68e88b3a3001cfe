"""engine/activities.py: exchanges beside the queue, on a clock of their own."""

import asyncio

import pytest
from tests.decide import worlds
from tests.engine import clock

from taskfold.decide.world import PhaseActive, PhaseDone, PhaseRefused, PhaseUnreached
from taskfold.effects import errors
from taskfold.effects.sandbox import Started
from taskfold.engine import activities
from taskfold.engine.activities import Activities
from taskfold.engine.watch import Key, Kind

KEY, OTHER = Key(Kind.TASK_RUN, "team", "a"), Key(Kind.TASK_RUN, "team", "b")
NONCE = worlds.AGENT
RESULT = worlds.result(NONCE, worlds.program("agent"))


class World:
    """The activities and whom they woke."""

    def __init__(self) -> None:
        self.woken: list[tuple[Key, float]] = []
        self.found = Activities(lambda key, delay: self.woken.append((key, delay)))
        self.begun = 0

    def start(self, outcome=RESULT, *, started=False, key=KEY, nonce=NONCE, gate: asyncio.Event | None = None) -> None:
        """An exchange that waits for `gate` and then gives or raises `outcome`."""

        async def exchange(on_started):
            self.begun += 1
            if started:
                await on_started(Started("2026-03-01T12:00:00Z", False, ()))
            if gate is not None:
                await gate.wait()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        self.found.start(key, nonce, exchange)


async def settle():
    await asyncio.sleep(0.001)


def test_an_unknown_phase_is_unknown():
    world = World()
    assert world.found.report(NONCE) is None
    assert world.found.result(NONCE) is None


def test_an_exchange_is_active_then_done_and_wakes_its_key():
    async def main() -> None:
        world, gate = World(), asyncio.Event()
        world.start(started=True, gate=gate)
        assert world.found.report(NONCE) == PhaseActive()
        await settle()
        assert world.found.report(NONCE) == PhaseActive("2026-03-01T12:00:00Z", asked=clock.now())
        assert world.woken == [(KEY, activities.STARTED_DELAY)]
        assert len(world.found) == 1
        gate.set()
        await settle()
        assert world.found.report(NONCE) == PhaseDone(RESULT)
        assert world.found.result(NONCE) == RESULT
        assert world.woken[-1] == (KEY, 0.0)
        assert len(world.found) == 0

    clock.run(main)


def test_one_nonce_has_one_exchange_and_what_is_done_stays_done():
    async def main() -> None:
        world, gate = World(), asyncio.Event()
        world.start(gate=gate)
        world.start(gate=gate)
        await settle()
        assert world.begun == 1
        gate.set()
        await settle()
        world.start(errors.ConnectionLost("cut"))
        await settle()
        assert (world.begun, world.found.report(NONCE)) == (1, PhaseDone(RESULT))

    clock.run(main)


def test_asked_counts_from_the_first_exchange_through_breaks_and_starts_anew_once_forgotten():
    async def main() -> None:
        world = World()
        await asyncio.sleep(7)
        world.start(errors.ConnectionLost("cut"))
        await asyncio.sleep(30)
        assert world.found.report(NONCE) == PhaseUnreached("cut", 1, 0.0, asked=30.0)
        world.start(started=True, gate=asyncio.Event())
        await asyncio.sleep(5)
        assert world.found.report(NONCE) == PhaseActive("2026-03-01T12:00:00Z", asked=35.0)
        world.found.forget([NONCE])
        world.start(gate=asyncio.Event())
        assert world.found.report(NONCE) == PhaseActive(asked=0.0)
        await world.found.close()

    clock.run(main)


UNREACHED = {
    "connection lost": errors.ConnectionLost("cut"),
    "another connection has the claim": errors.PhaseFailed("busy", reason="Busy"),
    "too slow": errors.PhaseFailed("idle", reason="Idle"),
    "the store": errors.StoreError("down"),
    "the network": OSError("unreachable"),
    "patience": TimeoutError("patience"),
}


@pytest.mark.parametrize("failure", UNREACHED.values(), ids=UNREACHED)
def test_a_break_is_a_delay_never_an_outcome(failure):
    async def main() -> None:
        world = World()
        world.start(failure)
        await settle()
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseUnreached)
        assert (report.failures, round(report.retry_in, 2)) == (1, 0.25)
        assert world.woken == [(KEY, 0.25)]
        await asyncio.sleep(0.3)
        again = world.found.report(NONCE)
        assert isinstance(again, PhaseUnreached)
        assert again.retry_in == 0.0
        world.start()
        await settle()
        assert world.found.report(NONCE) == PhaseDone(RESULT)

    clock.run(main)


def test_the_delay_grows_to_its_limit_and_no_further():
    async def main() -> None:
        world = World()
        for _ in range(1100):
            world.start(errors.ConnectionLost("cut"))
            await settle()
        delays = [delay for _, delay in world.woken]
        assert delays[:8] == [0.25, 0.5, 1, 2, 4, 8, 16, 20]
        assert set(delays[8:]) == {activities.RETRY_LIMIT}
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseUnreached)
        assert report.failures == 1100

    clock.run(main)


@pytest.mark.parametrize("reason", ["Prepare", "Digest", "Unpack", "UnknownUser", "Protocol", "TooManyPhases"])
def test_a_refusal_is_an_outcome_that_may_be_tried_again(reason):
    async def main() -> None:
        world = World()
        world.start(errors.PhaseFailed("no room", reason=reason))
        await settle()
        assert world.found.report(NONCE) == PhaseRefused(reason, "no room")
        assert world.woken == [(KEY, 0.0)]
        world.start()
        await settle()
        assert world.found.report(NONCE) == PhaseDone(RESULT)

    clock.run(main)


@pytest.mark.parametrize("failure", [RuntimeError("a bug"), KeyError("sha256")], ids=["RuntimeError", "KeyError"])
def test_an_unexpected_error_does_not_leave_the_phase_active(failure):
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        world = World()
        world.start(failure)
        await settle()
        assert not isinstance(world.found.report(NONCE), PhaseActive)

    clock.run(main)


def test_forgetting_ends_the_exchange():
    async def main() -> None:
        world = World()
        world.start(gate=asyncio.Event())
        await settle()
        world.found.forget([NONCE, "never heard of"])
        await settle()
        assert (world.found.report(NONCE), len(world.found)) == (None, 0)

    clock.run(main)


def test_dropping_a_key_forgets_its_phases_only():
    async def main() -> None:
        world = World()
        world.start(gate=asyncio.Event())
        world.start(gate=asyncio.Event(), key=OTHER, nonce=worlds.SEED)
        await settle()
        world.found.drop(KEY)
        await settle()
        assert world.found.report(NONCE) is None
        assert isinstance(world.found.report(worlds.SEED), PhaseActive)
        await world.found.close()

    clock.run(main)


def test_closing_waits_for_every_exchange_to_let_go():
    async def main() -> None:
        world = World()
        for nonce in (NONCE, worlds.SEED):
            world.start(gate=asyncio.Event(), nonce=nonce)
        await settle()
        await world.found.close()
        assert len(world.found) == 0

    clock.run(main)
