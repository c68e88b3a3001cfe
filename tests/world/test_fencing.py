"""One operator is stopped at any call, a second one does its work; then the first goes on and knows nothing of it."""

import os

import pytest

from tests.world import all_scenarios, apart, crash_points, misfortunes, scenarios
from tests.world.play import Scenario, fenced, play, undisturbed

ALL_POINTS = bool(os.environ.get("TASKFOLD_SCENARIOS"))
"""`make scenarios`: every call of every scenario. Else every kind of call in the first ones, and few in the others."""
WHOLE = (scenarios.PLAIN[0], misfortunes.ASKED[3], apart.CALM[0])
FEW = 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", all_scenarios.ALL, ids=str)
def test_an_operator_that_was_stopped_harms_nothing_when_it_goes_on(scenario: Scenario) -> None:
    calm = undisturbed(scenario)
    points = list(crash_points.points(calm.calls[0], repeats=None if ALL_POINTS else 2))
    if not ALL_POINTS and scenario not in WHOLE:
        points = points[len(scenario.name) % FEW :: len(points) // FEW + 1]
    problems = []
    for point in points:
        met = play(scenario, fenced(scenario, point.stops), late=True)
        found = [*met.problems]
        if met.starts != calm.starts:
            found.append(f"programs were started {dict(met.starts)}, not {dict(calm.starts)}")
        problems += [f"{point}: {problem}" for problem in found]
    assert not problems, "\n".join(problems[:20])
