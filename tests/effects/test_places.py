"""effects/places.py: every place is given back, and no order of holders waits for itself."""

import asyncio
import random

import pytest
from tests.world import clock

from taskfold.effects import places


def test_a_place_is_given_back_once():
    async def main() -> None:
        found = places.Places(1, 1)
        place = await found.take("node")
        place.release()
        place.release()
        await found.take("node")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await found.take("node")

    clock.run(main)


def test_who_gives_up_on_the_common_place_gives_the_nodes_back():
    async def main() -> None:
        found = places.Places(1, 1)
        first = await found.take("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await found.take("b")
        first.release()
        async with asyncio.timeout(5):
            await found.take("b")

    clock.run(main)


def test_a_busy_node_holds_no_places_of_others():
    async def main() -> None:
        found = places.Places(3, 2)
        held = [await found.take("busy") for _ in range(2)]
        waiting = [asyncio.create_task(found.take("busy")) for _ in range(5)]
        async with asyncio.timeout(5), found.at("idle"):
            pass
        for place in held:
            place.release()
        await asyncio.wait(waiting[:2], timeout=5)
        assert [task.done() for task in waiting] == [True, True, False, False, False]
        for task in waiting:
            task.cancel()

    clock.run(main)


def test_a_waiting_place_is_there_at_once_or_not_at_all():
    found = places.Waiting(1)
    place = found.take()
    assert place is not None
    assert found.take() is None
    place.release()
    assert found.take() is not None


def test_a_seat_changes_between_working_and_waiting():
    async def main() -> None:
        working, waiting = places.Places(1, 1), places.Waiting(1)
        first, second = places.Seat(working, waiting, "n"), places.Seat(working, waiting, "n")
        await first.work()
        assert first.rest()
        assert first.rest()
        await second.work()
        assert not second.rest()  # and keeps its place
        again = asyncio.create_task(first.work())
        await asyncio.sleep(1)
        assert not again.done()
        second.release()
        await again
        assert waiting.take() is not None, "who works does not wait"
        first.release()
        first.release()
        await working.take("n")

    clock.run(main)


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_holders_waits_for_itself(seed):
    """Copies that need a command, commands that rest and work again, on few places of each."""

    async def main() -> None:
        dice = random.Random(seed)
        working, copies, waiting = places.Places(3, 2), places.Places(2, 1), places.Waiting(2)
        done = 0

        async def one() -> None:
            nonlocal done
            node, seat = dice.choice("abc"), None
            for _ in range(dice.randint(1, 4)):
                copy = await copies.take(node) if dice.random() < 0.5 else places.Place()
                if seat is None:
                    seat = places.Seat(working, waiting, node)
                await seat.work()
                await asyncio.sleep(dice.random())
                copy.release()
                if not seat.rest():
                    seat.release()
                    seat = None
                    continue
                await asyncio.sleep(dice.random())
            if seat is not None:
                seat.release()
            done += 1

        async with asyncio.timeout(10_000), asyncio.TaskGroup() as group:
            for _ in range(60):
                group.create_task(one())
        assert done == 60

    clock.run(main)
