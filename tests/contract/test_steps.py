"""contract/steps.py: a turn as a task, when a task stops early, and one score of many."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.api import status as api
from taskfold.contract import loader, steps, task_toml
from taskfold.contract.folder import MemoryFolder
from taskfold.contract.steps import StepResult
from taskfold.contract.task import Solution
from taskfold.contract.task_toml import RewardStrategy

TOML = """
[environment]
docker_image = "python:3.12-slim"
[agent]
timeout_sec = 50
user = "app"
[verifier]
timeout_sec = 60
env = { KEY = "task", OTHER = "task" }
[[steps]]
name = "one"
[[steps]]
name = "two"
[steps.agent]
timeout_sec = 5
[steps.verifier]
user = "judge"
env = { KEY = "step" }
"""
FILES = {
    "task.toml": TOML,
    "tests/test.sh": "true",
    "steps/one/instruction.md": "First.",
    "steps/two/instruction.md": "Second.",
    "steps/two/solution/answer.md": "42",
}
TASK = loader.load(MemoryFolder({path: (text.encode(), False) for path, text in FILES.items()}), task_id="t")


def test_a_turn_is_a_task_of_its_own():
    one, two = steps.turns(TASK)
    assert (one.instruction, two.instruction) == ("First.", "Second.")
    assert (one.solution, two.solution) == (None, Solution.ANSWER)
    assert [turn.config.agent.timeout_sec for turn in (one, two)] == [50, 5]
    assert [turn.config.agent.user for turn in (one, two)] == ["app", "app"]
    assert [turn.config.verifier.timeout_sec for turn in (one, two)] == [600, 600], "its limit does not fall back"
    assert [turn.config.verifier.user for turn in (one, two)] == [None, "judge"]
    assert two.config.verifier.env == {"KEY": "step", "OTHER": "task"}
    assert (one.image, one.config.environment) == (TASK.image, TASK.config.environment)
    assert steps.named(TASK, "two") == two
    assert steps.named(TASK, "three") is None


def test_after_the_last_turn_there_is_the_task_itself():
    assert steps.turn(TASK, 2) is TASK
    single = steps.turns(loader.load(MemoryFolder(SINGLE), task_id="t"))
    assert [each.step for each in single] == [None]


SINGLE = {
    "task.toml": (b'environment.docker_image = "a"', False),
    "instruction.md": (b"", False),
    "tests/test.sh": (b"", False),
}


def test_as_many_steps_as_a_status_has_room_for():
    assert task_toml.MAX_STEPS == api.MAX_STEPS


@pytest.mark.parametrize(
    ("minimum", "result", "unmet"),
    [
        (None, StepResult(0.0, given=False), None),
        (1.0, StepResult(1.0, {"reward": 1.0}), None),
        (1.0, StepResult(0.5, {"reward": 0.5}), "reward is 0.5, min_reward wants 1"),
        (-1.0, StepResult(1.0, {"a": 1.0}, components=True), "reward is missing, min_reward wants -1"),
        (0.0, StepResult(0.0, {}, given=False), "reward is missing, min_reward wants 0"),
        ({"a": 0.0}, StepResult(1.0, {"reward": 1.0, "a": 0.0}), None),
        ({"a": 0.0, "b": -5.0}, StepResult(1.0, {"a": 0.0}), "b is missing, min_reward wants -5"),
        ({}, StepResult(0.0, given=False), None),
    ],
    ids=["none", "met", "below", "only parts", "nothing valid", "table met", "a key is missing", "an empty table"],
)
def test_min_reward(minimum, result, unmet):
    assert steps.unmet(minimum, result) == unmet


def of(*rewards, strategy=None):
    return steps.roll_up(strategy, [result(each) for each in rewards])


def result(rewards):
    if rewards is None:
        return StepResult(0.0, given=False)
    if "reward" in rewards:
        return StepResult(rewards["reward"], rewards)
    return StepResult(float(sum(map(Fraction, rewards.values()))), rewards, components=True)


@pytest.mark.parametrize(
    ("rolled", "reward", "rewards", "components"),
    [
        (of({"reward": 1.0}, {"reward": 0.0}), 0.5, {"reward": 0.5}, ()),
        (of({"reward": 1.0}, None), 0.5, {"reward": 0.5}, ()),
        (of(None, None), 0.0, {}, ()),
        (of({"reward": 0.1}, {"reward": 0.1}, {"reward": 0.1}), 0.1, {"reward": 0.1}, ()),
        (of({"reward": 1.0, "a": 3.0}, {"reward": 1.0}, {"reward": 1.0}), 1.0, {"reward": 1.0, "a": 1.0}, ()),
        (of({"a": 1.0, "b": 2.0}, {"a": 1.0}), 2.0, {"a": 1.0, "b": 1.0}, ("a", "b")),
        (of({"a": 1.0}, None), 0.5, {"a": 0.5}, ("a",)),
        (of({"reward": 1.0}, {"a": 1.0}), 0.5, {"reward": 0.5, "a": 0.5}, ()),
        (
            of({"reward": 1.0}, {"a": 1.0, "b": 1.0}, strategy=RewardStrategy.FINAL),
            2.0,
            {"a": 1.0, "b": 1.0},
            ("a", "b"),
        ),
        (of({"reward": 1.0}, None, strategy=RewardStrategy.FINAL), 0.0, {}, ()),
        (of({"reward": 1e308}, {"reward": 1e308}), 1e308, {"reward": 1e308}, ()),
    ],
)
def test_roll_up(rolled, reward, rewards, components):
    assert (rolled.reward, rolled.rewards, rolled.components) == (reward, rewards, components)


def test_no_score_of_nothing():
    with pytest.raises(ValueError, match="no step"):
        steps.roll_up(None, [])


@pytest.mark.parametrize("strategy", [None, RewardStrategy.FINAL])
def test_without_sums_parts_make_no_score(strategy):
    """As the harbor dialect has it."""
    parts = [steps.StepResult(0.0, {"a": 0.25, "b": 0.5}, components=False, given=True)] * 2
    assert steps.roll_up(strategy, parts, sums=False) == steps.RollUp(None, {"a": 0.25, "b": 0.5}, ())
    scored = [steps.StepResult(1.0, {"reward": 1.0, "b": 0.5}, components=False, given=True)]
    assert steps.roll_up(strategy, scored, sums=False).reward == 1.0


numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
tables = st.dictionaries(st.sampled_from(["reward", "a", "b", "c"]), numbers, min_size=1)
results = st.lists(st.none() | tables, min_size=1, max_size=8)


@given(results, st.sampled_from([None, *RewardStrategy]))
def test_a_score_is_finite_and_between_what_the_steps_gave(given_, strategy):
    found = [result(each) for each in given_]
    rolled = steps.roll_up(strategy, found)
    assert all(map(math.isfinite, [rolled.reward, *rolled.rewards.values()]))
    assert set(rolled.rewards) <= {key for each in found for key in each.rewards}
    for key, value in rolled.rewards.items():
        values = [each.rewards.get(key, 0.0) for each in found]
        assert min(values) <= value <= max(values)
    if not any("reward" in each.rewards for each in found):
        assert min(each.reward for each in found) <= rolled.reward <= max(each.reward for each in found)


@given(results)
def test_the_mean_of_parts_is_the_sum_of_the_means(given_):
    found = [result(each) for each in given_]
    rolled = steps.roll_up(None, found)
    if rolled.components:
        exact = sum(map(Fraction, rolled.rewards.values()))
        assert rolled.reward == pytest.approx(float(exact), rel=1e-9, abs=1e-30)


@given(st.lists(numbers, min_size=1, max_size=8), st.randoms())
def test_the_order_of_steps_does_not_change_a_mean(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert of(*({"reward": v} for v in values)) == of(*({"reward": v} for v in shuffled))
