"""engine/starts.py: first come, first served, within the slots."""

import pytest

from taskfold.engine.starts import Starts
from taskfold.engine.watch import Key, Kind

A, B, C, D = (Key(Kind.TASK_RUN, "team", name) for name in "abcd")


class World:
    """Pods on their way as the watch would count them, and whom the slots woke."""

    def __init__(self, slots: int, starting: int = 0) -> None:
        self.starting = starting
        self.woken: list[Key] = []
        self.starts = Starts(slots, lambda: self.starting, self.woken.append)


def test_a_free_slot_is_given_at_once():
    world = World(1)
    assert world.starts.take(A)
    assert world.woken == []


def test_without_a_slot_runs_wait_in_their_order():
    world = World(1, starting=1)
    assert [world.starts.take(key) for key in (A, B, C)] == [False, False, False]
    world.starting = 0
    world.starts.offer()
    assert world.woken == [A]
    assert not world.starts.take(B), "the slot is promised to the first"
    assert world.starts.take(A)
    world.starting = 1
    world.starts.placed(A)
    world.starts.offer()
    assert world.woken == [A]
    world.starting = 0
    world.starts.offer()
    assert world.woken == [A, B]


def test_a_newcomer_does_not_pass_the_queue():
    world = World(2, starting=2)
    assert not world.starts.take(A)
    assert not world.starts.take(B)
    world.starting = 0
    assert not world.starts.take(C)
    assert world.woken == [A, B], "asking again wakes those whose turn it is"


def test_asking_twice_is_one_place():
    world = World(1, starting=1)
    world.starts.take(A)
    world.starts.take(A)
    world.starting = 0
    world.starts.offer()
    world.starts.take(A)
    world.starts.offer()
    assert world.woken == [A]


@pytest.mark.parametrize("held", ["still waiting", "promised", "taken"])
def test_who_leaves_lets_the_next_one_in(held):
    world = World(1, starting=1)
    world.starts.take(A)
    world.starts.take(B)
    if held != "still waiting":
        world.starting = 0
        world.starts.offer()
    if held == "taken":
        assert world.starts.take(A)
    world.starts.forget(A)
    world.starting = 0
    world.starts.offer()
    assert world.woken[-1] == B
    assert world.starts.take(B)


def test_forgetting_a_stranger_changes_nothing():
    world = World(1, starting=1)
    world.starts.take(A)
    world.starts.forget(D)
    assert world.woken == []


def test_a_slot_that_was_taken_is_not_given_again():
    world = World(1)
    assert world.starts.take(A)
    assert not world.starts.take(B)
    assert world.starts.take(A), "it is held for the one that took it, however often it asks"
    world.starting = 1
    world.starts.placed(A)
    assert not world.starts.take(B), "now the watch counts it"
    assert not world.starts.take(A), "a second pod is a second slot"
