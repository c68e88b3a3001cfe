"""Multi-step tasks: one turn as a task of its own, when to stop, and how the rewards of the steps become one.

Guarantees: a reward is made of rewards that verifiers gave, and of the zeros that the contract counts, never of a step
that has no result. Numbers are added exactly and rounded once; the outcome is finite if they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from taskfold.contract.task import Step, Task
from taskfold.contract.task_toml import RewardStrategy

REWARD = "reward"
"""The key that a number as `min_reward` looks at, and that is the score where it exists."""


@dataclass(frozen=True)
class StepResult:
    """What a step's verification came to.

    `given`: the verifier's own reward; False for a 0 that the contract counts instead of one (nothing written, nothing
    valid, over the limit), which is a result without a key (C38). `components`: the score is the sum of the keys.
    """

    reward: float
    rewards: Mapping[str, float] = field(default_factory=dict)
    components: bool = False
    given: bool = True


@dataclass(frozen=True)
class RollUp:
    """The score of the whole task; `components` names the keys whose sum it is."""

    reward: float | None
    rewards: Mapping[str, float]
    components: tuple[str, ...]


def turn(task: Task, number: int) -> Task:
    """The task as one of its turns has it, counted from 0; the task itself if it has no such turn.

    Whatever works on a single-step task works on a turn: instruction, solution, [agent] and [verifier] are the step's.
    """
    if number >= len(task.steps):
        return task
    step = task.steps[number]
    config = task.config.model_copy(update={"agent": step.config.agent, "verifier": step.config.verifier})
    return replace(
        task,
        instruction=step.instruction,
        solution=step.solution,
        config=config,
        step=step,
        artifacts=step.artifacts,
        separate=step.separate,
    )


def named(task: Task, name: str) -> Task | None:
    """The turn of this step; None: the task has no such step."""
    found = (number for number, step in enumerate(task.steps) if step.name == name)
    number = next(found, None)
    return turn(task, number) if number is not None else None


def turns(task: Task) -> tuple[Task, ...]:
    """Every turn of the task; of a single-step task itself."""
    return tuple(turn(task, number) for number in range(max(1, len(task.steps))))


def folder(step: Step, name: str) -> str:
    """The path of one of the step's own folders, such as `tests`."""
    return f"steps/{step.name}/{name}"


def unmet(minimum: float | Mapping[str, float] | None, result: StepResult) -> str | None:
    """Which part of `min_reward` the step misses, in words; None: it may go on.

    A number is about the key `reward`, a table about each of its keys. A key that the verifier did not write is below
    every number; so is everything if it wrote nothing valid.
    """
    if minimum is None:
        return None
    wanted = minimum if isinstance(minimum, Mapping) else {REWARD: minimum}
    for key, least in wanted.items():
        found = result.rewards.get(key) if result.given else None
        if found is None or found < least:
            return f"{key} is {'missing' if found is None else f'{found:g}'}, min_reward wants {least:g}"
    return None


def roll_up(strategy: RewardStrategy | None, results: Sequence[StepResult], *, sums: bool = True) -> RollUp:
    """One score of the results of all steps that have one, in their order. ValueError without any.

    `final`: the last one's. `mean` (unset): the mean of each key over all results, a key that a step did not write
    counting as 0. The keys are read as those of a reward.json: `reward` is the score, else their sum; without `sums`
    (the harbor dialect) there is none then.
    """
    if not results:
        raise ValueError("no step has a result")
    if strategy is RewardStrategy.FINAL:
        last = results[-1]
        scored = sums or REWARD in last.rewards
        return RollUp(last.reward if scored else None, last.rewards, tuple(last.rewards) if last.components else ())
    keys = dict.fromkeys(key for result in results for key in result.rewards)
    rewards = {key: _mean([result.rewards.get(key, 0.0) for result in results]) for key in keys}
    if REWARD in rewards or not rewards:
        return RollUp(rewards.get(REWARD, 0.0), rewards, ())
    if not sums:
        return RollUp(None, rewards, ())
    # The sum of the means is the mean of the sums; those may hold keys that nobody could keep.
    return RollUp(_mean([result.reward for result in results]), rewards, tuple(rewards))


def _mean(numbers: Sequence[float]) -> float:
    return float(sum(map(Fraction, numbers), Fraction(0)) / len(numbers))
