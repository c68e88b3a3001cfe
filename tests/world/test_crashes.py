"""An operator dies at any call, before or after the deed, and comes back: the same end, and nothing twice."""

import os
import random
from collections.abc import Callable
from typing import get_args

import pytest

from taskfold.decide import plan as plans
from tests.world import all_scenarios, apart, crash_points, faults, imaged, misfortunes, scenarios
from tests.world.crash_points import CrashPoint, Kind
from tests.world.play import Played, Scenario, alone, play, undisturbed

ALL_POINTS = bool(os.environ.get("TASKFOLD_SCENARIOS"))
"""`make scenarios`: each point of each scenario. Else each kind of point, in one scenario that has it."""
SECOND_CRASHES = 8

NOT_CALLED = {
    "app.running": "the store's check, before anything is at work",
    "janitor._finished_in_pages": "only with more finished runs than these worlds have",
    "lease._create": "the lease is taken before anything is at work",
    "lease._expect_ours": "the same",
    "lease._patch": "the same",
    "lease._take": "the same",
    "retention._delete": "nothing in these worlds' store grows old; test_retention.py dies at each of its deletions",
    "retention._named": "the same",
    "retention._without_reference": "the same",
    "snapshots.delete": "the same",
}
"""Functions with calls that no scenario can reach, and why."""


def differences(calm: Played, met: Played) -> list[str]:
    """What is wrong with a life that was interrupted."""
    found = list(met.problems)
    if met.starts != calm.starts:
        found.append(f"programs were started {dict(met.starts)}, not {dict(calm.starts)}")
    return found


def chosen() -> dict[str, list[CrashPoint]]:
    """The crash points by scenario: in all, or so that each kind of call is met in both ways."""
    known: set[tuple[Kind, str]] = set()
    found: dict[str, list[CrashPoint]] = {}
    for scenario in all_scenarios.ALL:
        points = list(crash_points.of_lives(undisturbed(scenario).calls, repeats=None if ALL_POINTS else 2))
        mine = points if ALL_POINTS or scenario in WHOLE else [p for p in points if (p.kind, p.point) not in known]
        known |= {(point.kind, point.point) for point in points}
        found[scenario.name] = mine
    return found


WHOLE = (scenarios.PLAIN[0], misfortunes.ASKED[4], imaged.CALM[0], apart.CALM[0])
"""Scenarios that are interrupted at every kind of call in any case: a plain life, one with another attempt, one
with all that an image may want, and a separate verification."""


@pytest.fixture(scope="module")
def crashes() -> dict[str, list[CrashPoint]]:
    return chosen()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", all_scenarios.ALL, ids=str)
def test_the_end_is_the_same_wherever_an_operator_dies(
    scenario: Scenario, crashes: dict[str, list[CrashPoint]]
) -> None:
    calm = undisturbed(scenario)
    assert not calm.problems
    problems = []
    for point in crashes[scenario.name]:
        met = play(scenario, alone(*point.crash))
        problems += [f"{point}: {problem}" for problem in differences(calm, met)]
    assert not problems, "\n".join(problems[:20])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", [*WHOLE, *scenarios.USERS[::4], *misfortunes.ASKED[::3]], ids=str)
def test_an_operator_that_dies_twice(scenario: Scenario) -> None:
    """The second time at a call of its second life, unless all was done before the first death."""
    calm, dice = undisturbed(scenario), random.Random(scenario.name)
    assert not calm.problems
    points = list(crash_points.points(calm.calls[0]))
    problems = []
    for first in dice.sample(points, k=min(SECOND_CRASHES, len(points))):
        once = play(scenario, alone(first.kills))
        if len(once.calls) == 1:
            problems += [f"{first}, the last call of all: {problem}" for problem in differences(calm, once)]
            continue
        later = list(crash_points.points(once.calls[1]))
        second = dice.choice(later) if later else first
        met = play(scenario, alone(first.kills, second.kills))
        problems += [f"{first}, then {second}: {problem}" for problem in differences(calm, met)]
    assert not problems, "\n".join(problems[:20])


@pytest.mark.timeout(300)
def test_every_effect_and_every_call_is_a_crash_point(
    crashes: dict[str, list[CrashPoint]], record_property: Callable[[str, object], None]
) -> None:
    met: dict[Kind, int] = {}
    for points in crashes.values():
        for point in points:
            met[point.kind] = met.get(point.kind, 0) + 1
    title = f"{sum(met.values())} crash points in {len(crashes)} scenarios, of {len(met)} kinds:"
    record_property("listed", "\n".join([title, *crash_points.table(met)]))
    effects = {each.__name__ for each in get_args(plans.Effect)}
    assert {kind.effect for kind in met} - {""} == effects
    assert {kind.name.removeprefix("effect ") for kind in met if kind.name.startswith("effect ")} == effects
    missing = crash_points.sites() - {kind.site for kind in met} - NOT_CALLED.keys()
    assert not missing, "no scenario reaches these calls"
    assert not NOT_CALLED.keys() - crash_points.sites(), "not there any more"
    sides = {(point.kind, point.point) for points in crashes.values() for point in points}
    assert {kind for kind, point in sides if point is faults.Point.AFTER} == met.keys(), "before and after"
