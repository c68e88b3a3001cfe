"""What a loss under a separate verification means for its run: whose sandbox it was, and whether the work is kept."""

from typing import Any

import pytest
from tests.decide import apart, lost, worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.decide import plan as plans
from taskfold.decide.world import PhaseUnreached

BOTH = {"onAgentCausedLoss": "zero", "retries": {"infrastructure": 1}}
DRAINED = worlds.disrupted("EvictionByEvictionAPI")
OWN_LOST: dict[str, dict[str, Any]] = {
    "out of memory": {"own_pod": apart.pod(worlds.oom_killed())},
    "drained": {"own_pod": apart.pod(DRAINED)},
    "helpers killed": {"phases": {apart.VERIFY: PhaseUnreached("exit code 137", 9, 3.0, killed=9)}},
    "bash missing": {
        "phases": worlds.done(apart.VERIFY, worlds.program("test", None, start_error="bash: not found in PATH"))
    },
}


def test_the_agents_sandbox_lost_by_the_agent_counts_as_0_if_asked_for():
    plan = lost.graded_apart(BOTH, 1, apart.closing(), pod=worlds.oom_killed())
    assert plan.status is not None
    assert (plan.status.phase, plan.status.reward) == (Phase.SUCCEEDED, "0")


def test_the_agents_sandbox_lost_by_nobody_is_followed_by_another_attempt():
    plan = lost.graded_apart(BOTH, 1, apart.closing(), pod=DRAINED)
    assert plan.status is not None
    assert (plan.status.phase, worlds.reason_of(plan)) == (Phase.QUEUED, Reason.RETRYING)
    assert plans.CancelVerifierRun(worlds.VERIFIER) in plan.effects


@pytest.mark.parametrize("changes", OWN_LOST.values(), ids=OWN_LOST)
def test_a_verifiers_own_sandbox_is_never_the_agents_to_lose(changes):
    """What the agent left is kept: neither is its work thrown away, nor is a 0 made up for a sandbox of others."""
    plan = lost.graded_apart(BOTH, 1, apart.verifying(conditions=apart.collected(20)), **changes)
    assert plan.status is not None
    assert (plan.status.phase, plan.status.masked, plan.status.reward) == (Phase.MASKED, True, None)
    assert "taskfold regrade fix-bug" in worlds.failure_of(plan).message


def test_nor_before_test_sh():
    dead = worlds.done(apart.SEED, beside=(worlds.program("entrypoint", 1),))
    status = apart.placed(attempts=[apart.attempt(tries=3)])
    plan = lost.graded_apart(BOTH, 1, status, phases=dead)
    assert worlds.phase_of(plan) is Phase.MASKED
    assert worlds.failure_of(plan).reason == "EntrypointFailed"
