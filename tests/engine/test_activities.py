"""engine/activities.py: exchanges beside the queue, on a clock of their own."""

import asyncio
import random
from collections import Counter

import pytest
from tests.decide import worlds
from tests.world import clock

from taskfold.api.settings import WaitingSettings
from taskfold.decide.world import PhaseActive, PhaseDone, PhaseRefused, PhaseUnreached, PhaseWaiting, Signal
from taskfold.effects import errors
from taskfold.effects.sandbox import Going, Started
from taskfold.engine import activities
from taskfold.engine.activities import Activities
from taskfold.engine.watch import Key, Kind

KEY, OTHER = Key(Kind.TASK_RUN, "team", "a"), Key(Kind.TASK_RUN, "team", "b")
NONCE, OTHER_NONCE = worlds.AGENT, worlds.SEED
RESULT = worlds.result(NONCE, worlds.program("agent"))
SETTINGS = WaitingSettings(look_seconds=60, signalled_look_seconds=1000)
AT = "2026-03-01T12:00:00Z"


class World:
    """The activities and whom they woke."""

    def __init__(self) -> None:
        self.woken: list[tuple[Key, float]] = []
        self.chance = 0.5
        self.found = Activities(
            lambda key, delay: self.woken.append((key, delay)), SETTINGS, chance=lambda: self.chance
        )
        self.begun = 0

    def start(
        self,
        outcome=RESULT,
        *,
        started=False,
        key=KEY,
        nonce=NONCE,
        gate: asyncio.Event | None = None,
        signal: Signal = Signal.NONE,
    ) -> None:
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

        self.found.start(key, nonce, exchange, signal)


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


def test_the_progress_of_a_delivery_is_told_once_each_until_the_phase_starts():
    async def main() -> None:
        world, gate = World(), asyncio.Event()
        world.start(gate=gate)
        for _ in range(2):
            world.found.tell(NONCE, "1 of 2 MiB")
            await settle()
        assert world.found.report(NONCE) == PhaseActive(asked=clock.now(), progress="1 of 2 MiB")
        assert world.woken == [(KEY, 0.0)]
        world.found.tell(OTHER_NONCE, "1 of 2 MiB")
        assert world.found.report(OTHER_NONCE) is None
        gate.set()
        await settle()
        world.found.tell(NONCE, "2 of 2 MiB")
        assert world.found.report(NONCE) == PhaseDone(RESULT), "a late word changes no outcome"
        world.found.forget([NONCE])
        gate.clear()
        world.start(gate=gate, started=True)
        world.found.tell(NONCE, "1 of 2 MiB")
        await settle()
        world.found.tell(NONCE, "2 of 2 MiB")
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseActive)
        assert (report.started_at, report.progress) == (AT, "")
        await world.found.close()

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


def test_helpers_that_are_killed_are_counted_until_one_comes_to_its_end():
    async def main() -> None:
        world = World()
        killed, full = errors.HelperFailed("killed", code=137), errors.HelperFailed("no room", code=1)
        early, absent = errors.StartFailed("exec failed: procReady not received"), errors.StartFailed("no such file")
        for failure in (killed, errors.ConnectionLost("cut"), full, killed, absent, early):
            world.start(failure, started=True)
            await settle()
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseUnreached)
        assert report.killed == 3
        world.start(Going("2026-03-01T12:00:00Z"))
        await settle()
        world.start(killed)
        await settle()
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseUnreached)
        assert report.killed == 1

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
        assert (report.failures, round(report.retry_in, 2)) == (1, 0.25)  # half of the first window
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
        world.chance = 1.0
        for _ in range(1100):
            world.start(errors.ConnectionLost("cut"))
            await settle()
        delays = [delay for _, delay in world.woken]
        assert delays[:7] == [0.5, 1, 2, 4, 8, 16, 20]
        assert set(delays[7:]) == {activities.RETRY_LIMIT}
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseUnreached)
        assert report.failures == 1100

    clock.run(main)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_a_delay_is_any_moment_of_its_window(chance):
    async def main() -> None:
        world = World()
        world.chance = chance
        for _ in range(3):
            world.start(errors.ConnectionLost("cut"))
            await settle()
        assert [delay for _, delay in world.woken] == [chance * window for window in (0.5, 1, 2)]

    clock.run(main)


def test_what_was_reached_again_begins_with_short_delays():
    async def main() -> None:
        world = World()
        for _ in range(5):
            world.start(errors.ConnectionLost("cut"))
            await settle()
        world.start(errors.ConnectionLost("cut"), started=True)
        await settle()
        assert world.woken[-1] == (KEY, 0.25)

    clock.run(main)


def test_many_that_break_at_once_come_back_spread_out():
    """A thousand streams and an API server that is away for five seconds."""

    async def main() -> None:
        tried: list[float] = []
        found: Activities
        dice = random.Random(7)

        def wake(key: Key, delay: float) -> None:
            asyncio.get_running_loop().call_later(delay, begin, key)

        def begin(key: Key) -> None:
            report = found.report(key.name)
            if isinstance(report, PhaseUnreached) and report.retry_in == 0.0:
                tried.append(clock.now())
                found.start(key, key.name, exchange)

        async def exchange(on_started):
            if clock.now() < 5:
                raise errors.ConnectionLost("away")
            return RESULT

        found = Activities(wake, SETTINGS, chance=dice.random)
        keys = [Key(Kind.TASK_RUN, "team", f"{number:032x}") for number in range(1000)]
        for key in keys:
            found.start(key, key.name, exchange)
        await asyncio.sleep(120)
        assert {type(found.report(key.name)) for key in keys} == {PhaseDone}
        seconds = Counter(int(moment) for moment in tried)
        # Without the spread the first second has a thousand, and every later burst as many.
        assert max(seconds.values()) <= 200
        assert sum(count for second, count in seconds.items() if second >= 5) <= 1000
        assert len(tried) <= 2500

    clock.run(main)


# -- phases that go on by themselves -------------------------------------------------------------------------------


async def looked(world: World, signal: Signal = Signal.NONE) -> PhaseWaiting:
    world.start(Going(AT), signal=signal)
    await settle()
    report = world.found.report(NONCE)
    assert isinstance(report, PhaseWaiting)
    return report


def test_a_phase_that_was_let_go_of_waits_and_its_key_is_woken_at_once():
    async def main() -> None:
        world = World()
        report = await looked(world)
        assert (report.started_at, report.signal, report.signalled) == (AT, Signal.NONE, True)
        assert world.woken == [(KEY, 0.0)]
        assert len(world.found) == 0
        await asyncio.sleep(3)
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseWaiting)
        assert (round(report.look_in, 1), round(report.since, 1), round(report.asked, 1)) == (2.0, 3.0, 3.0)

    clock.run(main)


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
def test_looks_become_rarer_up_to_the_setting_and_are_spread_by_half(chance, share):
    async def main() -> None:
        world = World()
        world.chance = chance
        pauses = [(await looked(world)).look_in for _ in range(6)]
        assert pauses == pytest.approx([share * pause for pause in (5, 10, 20, 40, 60, 60)], abs=0.1)

    clock.run(main)


def test_a_signal_that_is_awaited_makes_looks_rare_and_one_that_was_given_does_not():
    async def main() -> None:
        world = World()
        await looked(world)
        world.found.rest(KEY, NONCE, AT, Signal.AWAITED)
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseWaiting)
        assert (report.look_in, report.signal) == (1000.0, Signal.AWAITED)
        report = await looked(world, Signal.GIVEN)
        assert (round(report.look_in), report.signal) == (5, Signal.GIVEN)

    clock.run(main)


def test_a_phase_of_an_operator_before_rests_without_an_exchange():
    async def main() -> None:
        world = World()
        world.found.rest(KEY, NONCE, AT, Signal.AWAITED)
        assert world.found.report(NONCE) == PhaseWaiting(AT, 1000.0, Signal.AWAITED)
        assert (world.begun, world.woken, len(world.found)) == (0, [], 0)

    clock.run(main)


def test_neither_an_exchange_nor_an_outcome_gives_way_to_a_rest():
    async def main() -> None:
        world, gate = World(), asyncio.Event()
        world.start(gate=gate)
        await settle()
        world.found.rest(KEY, NONCE, AT, Signal.AWAITED)
        assert isinstance(world.found.report(NONCE), PhaseActive)
        gate.set()
        await settle()
        world.found.rest(KEY, NONCE, AT, Signal.AWAITED)
        assert world.found.report(NONCE) == PhaseDone(RESULT)

    clock.run(main)


@pytest.mark.parametrize("for_good", [True, False])
def test_a_container_that_was_refused_is_not_asked_for_until_the_next_look_or_for_good(for_good):
    async def main() -> None:
        world = World()
        await looked(world)
        world.found.unsignalled(NONCE, for_good=for_good)
        report = world.found.report(NONCE)
        assert isinstance(report, PhaseWaiting)
        assert not report.signalled
        assert (await looked(world)).signalled is not for_good
        world.found.unsignalled("never heard of", for_good=True)

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
