"""Random worlds, drawn by Hypothesis: whatever happens, each run comes to an end that it may have, and no promise is
broken. A failure is shrunk to the least plan that shows it; the plan is the replay (`replay` below).
"""

import os

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.world import chaos, processes
from tests.world.random_world import AGENTS, Grading, Kind, Misfortune, Plan, Run, Work

BLOCKS = 20
BLOCK = int(os.environ.get("TASKFOLD_SCENARIOS") or 2000) // BLOCKS
"""Worlds in a block: 2,000 in all, as many as `make scenarios` is told."""
FIRST = int(os.environ.get("TASKFOLD_SEED") or 0)
LIMIT_SECONDS = 40_000.0
ROUNDS = 400_000
"""A world of three runs takes some ten thousand rounds of the loop; one that takes so many turns in circles."""

RUNS = st.builds(
    Run,
    agent=st.sampled_from(sorted(AGENTS)),
    work=st.sampled_from(Work),
    test=st.sampled_from(Grading),
    at=st.integers(0, 60),
    hooks=st.booleans(),
    separate=st.booleans(),
    retries=st.integers(0, 2),
    zero=st.booleans(),
    ttl=st.sampled_from([None, None, 0, 30]),
    suspended=st.sampled_from([False, False, False, True]),
)
MISFORTUNES = st.builds(
    Misfortune,
    kind=st.sampled_from(Kind),
    at=st.integers(0, 150),
    which=st.integers(0, 60),
    seconds=st.integers(1, 60),
)
SKEWS = st.sampled_from([0, 0, 600, -600, 30])
PLANS = st.builds(
    Plan,
    runs=st.lists(RUNS, min_size=1, max_size=3).map(tuple),
    misfortunes=st.lists(MISFORTUNES, max_size=6).map(tuple),
    operators=st.sampled_from([1, 1, 2]),
    skews=st.tuples(SKEWS, SKEWS),
    cgroup=st.sampled_from([2, 1]),
    seed=st.integers(0, 1000),
)


def replay(plan: Plan) -> list[str]:
    """What is wrong with this world."""
    return processes.run(lambda: chaos.live(plan), limit=LIMIT_SECONDS, rounds=ROUNDS)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(FIRST, FIRST + BLOCKS))
def test_whatever_happens(block: int) -> None:
    @hypothesis.seed(block)
    @hypothesis.settings(max_examples=BLOCK, database=None, print_blob=False)
    @hypothesis.given(PLANS)
    def holds(plan: Plan) -> None:
        problems = replay(plan)
        assert not problems, "\n".join(problems)

    holds()


FOUND = {
    "two operators that contradict each other in words": Plan(
        runs=(Run(agent="installed", work=Work.DIES, test=Grading.NOTHING, at=30, retries=2, ttl=0),),
        misfortunes=(
            Misfortune(Kind.FORGETFUL, at=53),
            Misfortune(Kind.KILLED_AT_A_CALL, at=126, which=51),
            Misfortune(Kind.EXECS_BROKEN, at=23, seconds=22),
            Misfortune(Kind.RUNTIME, at=75),
            Misfortune(Kind.CONFLICTS, at=139, seconds=7),
        ),
        operators=2,
        seed=54,
    ),
    "nodes whose clocks are ten minutes behind": Plan(
        runs=(
            Run(agent="script", work=Work.FILLS_DISK, at=53),
            Run(agent="installed", work=Work.FILLS_DISK, test=Grading.LATE, at=24, zero=True),
        ),
        skews=(0, -600),
        cgroup=1,
    ),
    "an operator whose clock is ten minutes ahead": Plan(
        runs=(
            Run(agent="installed", work=Work.HANGS, test=Grading.LATE, at=11, retries=2, suspended=True),
            Run(agent="nop", work=Work.DIES, at=53, zero=True),
        ),
        skews=(600, 0),
    ),
    "an operator that creates a pod too late": Plan(
        runs=(Run(agent="script", work=Work.QUICK, test=Grading.ZERO, at=29, hooks=True),),
        misfortunes=(Misfortune(Kind.STOPPED_AT_A_CALL, at=30, which=22, seconds=53),),
        operators=2,
        skews=(0, -600),
        seed=13,
    ),
    "a run that is deleted as soon as it is created": Plan(
        runs=(
            Run(agent="nop", work=Work.LONG, test=Grading.ZERO, at=12, zero=True, ttl=0),
            Run(agent="script", work=Work.QUICK, test=Grading.NOTHING, at=13, zero=True),
        ),
        misfortunes=(
            Misfortune(Kind.DELETED, at=0, which=3, seconds=54),
            Misfortune(Kind.RUNTIME, at=46, which=40, seconds=47),
        ),
        operators=2,
        skews=(30, 0),
        seed=397,
    ),
}
"""What went wrong once, each the least world that showed it."""


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_what_went_wrong_once(plan: Plan) -> None:
    assert not replay(plan)
