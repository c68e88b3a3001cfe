"""Every scenario with one operator that nothing happens to, and with two that know nothing of each other."""

import pytest

from tests.world import all_scenarios
from tests.world.play import Scenario, play, together, undisturbed


@pytest.mark.parametrize("scenario", all_scenarios.ALL, ids=str)
def test_a_scenario_ends_as_it_should(scenario: Scenario) -> None:
    assert not undisturbed(scenario).problems


@pytest.mark.parametrize("scenario", all_scenarios.ALL, ids=str)
def test_two_operators_at_once_come_to_the_same_end(scenario: Scenario) -> None:
    alone, both = undisturbed(scenario), play(scenario, together)
    assert not both.problems
    assert both.starts == alone.starts


def test_the_same_seed_gives_the_same_calls() -> None:
    """What a report of a failure needs to be worth anything."""
    scenario = all_scenarios.ALL[0]
    first, second = play(scenario, together, seed=7), play(scenario, together, seed=7)
    assert first.calls == second.calls
    assert first.calls != play(scenario, together, seed=8).calls
