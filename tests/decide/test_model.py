"""Whole lives of runs in a model world: whatever happens, the promises hold and the run completes."""

import collections

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide import worlds
from tests.decide.model import Cluster

from taskfold.api.phases import Phase
from taskfold.api.status import MAX_REWARDS

CHAOS, CALM = 25, 60
HOOKED = worlds.task('verifier.collect = [{ command = "true" }]')


def calm(cluster: Cluster) -> int:
    """Nothing goes wrong any more: steps until the run is complete."""
    for step in range(CALM):
        if cluster.run.status.complete:
            return step
        cluster.reconcile_run()
        cluster.reconcile_verifier()
        cluster.happen(lambda choices: choices[0])
    raise AssertionError(f"not complete after {CALM} steps: {cluster.run.status!r}")


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([worlds.ORACLE, worlds.NOP]), st.sampled_from([worlds.TASK, HOOKED]))
def test_whatever_happens_the_promises_hold_and_the_run_completes(data, agent, task):
    def pick(choices):
        return choices[data.draw(st.integers(0, len(choices) - 1))]

    cluster = Cluster(worlds.run(agent=agent), task)
    for _ in range(data.draw(st.integers(0, CHAOS))):
        match pick(["run", "verifier", "happen", "happen", "restart", "cancel", "refuse"]):
            case "run":
                cluster.reconcile_run()
            case "verifier":
                cluster.reconcile_verifier()
            case "happen":
                cluster.happen(pick)
            case "restart":
                cluster.restart()
            case "cancel" if pick([False, False, False, True]):
                spec = cluster.run.spec.model_copy(update={"cancel": True})
                cluster.run = cluster.run.model_copy(update={"spec": spec})
            case "refuse":
                cluster.refusing = not cluster.refusing
            case "cancel":
                pass
        cluster.reconcile_run()
    cluster.refusing = False
    calm(cluster)
    status = cluster.run.status
    assert status.phase is not None
    assert status.phase.final
    assert (status.reward is not None) is (status.phase is Phase.SUCCEEDED)
    assert (status.failure is not None) or status.phase is Phase.SUCCEEDED
    if cluster.verifier is not None and len(cluster.verifier.status.rewards) >= MAX_REWARDS:
        assert cluster.rewards is not None, "rewards that the status does not hold were lost"
        assert len(cluster.rewards) == 200
    assert all(count == 1 for count in collections.Counter(cluster.agent_starts).values()), "started twice in a sandbox"
    started = [attempt for attempt, _ in cluster.agent_starts]
    assert len(started) == len(set(started)), "started twice within an attempt"
    cluster.reconcile_run()
    cluster.reconcile_verifier()


@pytest.mark.parametrize("agent", [worlds.ORACLE, worlds.NOP, worlds.SCRIPT], ids=["oracle", "nop", "script"])
@pytest.mark.parametrize("task", [worlds.TASK, HOOKED], ids=["plain", "hooks"])
def test_when_all_goes_well_the_verifiers_reward_arrives(agent, task):
    cluster = Cluster(worlds.run(agent=agent), task)
    assert calm(cluster) <= 21
    assert (cluster.run.status.phase, cluster.run.status.reward) == (Phase.SUCCEEDED, "1")
    assert len(cluster.agent_starts) == (0 if agent is worlds.NOP else 1)
    assert cluster.sandboxes == {}
