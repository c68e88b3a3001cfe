"""Whole lives of runs in a model world: whatever happens, the promises hold and the run completes."""

import collections
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide import apart, worlds
from tests.decide.model import Cluster

from taskfold.api import conditions
from taskfold.api.conditions import ConditionType
from taskfold.api.phases import Phase
from taskfold.api.status import MAX_REWARDS, Mode
from taskfold.decide import losses
from taskfold.decide.losses import Fault

CHAOS, CALM, DEPTH = 25, 90, 20
STEPPED = worlds.stepped()
HOOKED = worlds.task('verifier.collect = [{ command = "true" }]')
MIXED = worlds.stepped(tables={"two": 'verifier.environment_mode = "separate"'})
APART = [apart.TASK, apart.HOOKED, apart.STEPPED, MIXED]


def step(cluster: Cluster) -> None:
    """Everybody does what is next, and all goes well."""
    cluster.reconcile_run()
    cluster.reconcile_verifiers()
    cluster.happen(lambda choices: choices[0])


def calm(cluster: Cluster, until: Callable[[Cluster], object] = lambda cluster: cluster.run.status.complete) -> int:
    """Nothing goes wrong any more: steps until the run is complete, or wherever it shall be."""
    for number in range(CALM):
        if until(cluster):
            return number
        step(cluster)
    graded = cluster.verifier.status if cluster.verifier is not None else None
    raise AssertionError(f"not there after {CALM} steps: {cluster.run.status!r}, {graded!r}")


def losses_are_what_was_asked_for(cluster: Cluster) -> None:
    """Attempts are bounded and were lost by nobody's fault; a 0 that nobody graded was asked for and is the agent's."""
    run, status = cluster.run, cluster.run.status
    allowed = run.spec.retries.infrastructure if run.spec.retries else 0
    assert [each.number for each in status.attempts] == list(range(1, len(status.attempts) + 1))
    assert len(status.attempts) <= 1 + allowed
    assert all(losses.fault_of(each.reason or "") is Fault.NOBODY for each in status.attempts[:-1])
    assert all(each.end_time for each in status.attempts if status.complete)
    fault = losses.fault_of(status.failure.reason) if status.failure is not None else None
    if fault is not None and status.phase is Phase.SUCCEEDED:
        assert (status.reward, fault) == ("0", Fault.AGENT)
        assert run.spec.on_agent_caused_loss == "zero"
    graded = cluster.verifier
    kept = graded is not None and conditions.holds(graded.status.conditions, ConditionType.ARTIFACTS_COLLECTED)
    if fault is Fault.NOBODY and status.phase is Phase.MASKED and not run.spec.cancel and not kept:
        assert len(status.attempts) == 1 + allowed, "an attempt that was asked for did not begin"


@settings(max_examples=300, deadline=None)
@given(
    st.data(),
    st.sampled_from([worlds.ORACLE, worlds.NOP]),
    st.sampled_from([worlds.TASK, HOOKED, STEPPED, *APART]),
    st.sampled_from(["mask", "zero"]),
    st.sampled_from([0, 0, 1, 3]),
)
def test_whatever_happens_the_promises_hold_and_the_run_completes(data, agent, task, by_agent, retries):
    def pick(choices):
        return choices[data.draw(st.integers(0, len(choices) - 1))]

    asked = {"onAgentCausedLoss": by_agent, "retries": {"infrastructure": retries}}
    cluster = Cluster(worlds.run(agent=agent, **asked), task)
    for _ in range(data.draw(st.integers(0, DEPTH))):  # what comes late in a life is met early enough too
        step(cluster)
    for _ in range(data.draw(st.integers(0, CHAOS))):
        match pick(["run", "verifier", "happen", "happen", "restart", "cancel", "refuse"]):
            case "run":
                cluster.reconcile_run()
            case "verifier":
                cluster.reconcile_verifiers()
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
    graded = cluster.verifier if status.phase is Phase.SUCCEEDED else None
    if graded is not None and len(graded.status.rewards) >= MAX_REWARDS:
        assert len(cluster.rewards[cluster.prefix]) == 200, "rewards that the status does not hold were lost"
    losses_are_what_was_asked_for(cluster)
    assert len(cluster.test_starts) == len(set(cluster.test_starts)), "test.sh started twice for one verification"
    assert all(count == 1 for count in collections.Counter(cluster.agent_starts).values()), "started twice in a sandbox"
    started = [(attempt, step) for attempt, _, step in cluster.agent_starts]
    assert len(started) == len(set(started)), "started twice within an attempt"
    cluster.reconcile_run()
    cluster.reconcile_verifiers()


@pytest.mark.parametrize("agent", [worlds.ORACLE, worlds.NOP, worlds.SCRIPT], ids=["oracle", "nop", "script"])
@pytest.mark.parametrize(
    "task", [worlds.TASK, HOOKED, apart.TASK, apart.HOOKED], ids=["plain", "hooks", "separate", "separate, hooks"]
)
def test_when_all_goes_well_the_verifiers_reward_arrives(agent, task):
    cluster = Cluster(worlds.run(agent=agent), task)
    assert calm(cluster) <= 30
    assert (cluster.run.status.phase, cluster.run.status.reward) == (Phase.SUCCEEDED, "1")
    assert len(cluster.agent_starts) == (0 if agent is worlds.NOP else 1)
    assert cluster.sandboxes == {}


@pytest.mark.parametrize(
    ("task", "modes"),
    [
        (STEPPED, [Mode.SHARED] * 3),
        (apart.STEPPED, [Mode.SEPARATE] * 3),
        (MIXED, [Mode.SHARED, Mode.SEPARATE, Mode.SHARED]),
    ],
    ids=["shared", "separate", "mixed"],
)
def test_when_all_goes_well_every_step_is_graded(task, modes):
    cluster = Cluster(worlds.run(), task)
    calm(cluster)
    assert (cluster.run.status.phase, cluster.run.status.reward) == (Phase.SUCCEEDED, "1")
    assert [step for _, _, step in cluster.agent_starts] == list(worlds.STEPS)
    assert [(step.name, step.reward) for step in cluster.run.status.steps] == [(name, "1") for name in worlds.STEPS]
    assert [step.verifier.mode for step in cluster.run.status.steps] == modes
    assert set(cluster.rows) == {worlds.PREFIX}


def agent_at_work(cluster: Cluster) -> bool:
    return bool(cluster.agent_starts) and cluster.run.status.phase is Phase.RUNNING


def under_verification(cluster: Cluster) -> bool:
    return cluster.run.status.phase is Phase.VERIFYING


@pytest.mark.parametrize("restarted", [False, True], ids=["same operator", "another operator"])
@pytest.mark.parametrize("where", [agent_at_work, under_verification])
def test_a_lost_attempt_is_followed_by_another_if_the_run_asks_for_it(where, restarted):
    cluster = Cluster(worlds.run(retries={"infrastructure": 1}), worlds.TASK)
    calm(cluster, where)
    cluster.sandboxes.clear()
    if restarted:
        cluster.restart()
    calm(cluster)
    status = cluster.run.status
    assert (status.phase, status.reward, status.store) == (Phase.SUCCEEDED, "1", "default/team/uid-run/2/")
    assert [(each.number, each.reason) for each in status.attempts] == [(1, "PodDeleted"), (2, "VerdictReached")]
    assert [attempt for attempt, _, _ in cluster.agent_starts] == [1, 2]
    assert (set(cluster.rows), cluster.sandboxes) == ({"default/team/uid-run/2/"}, {})


def grading_apart(cluster: Cluster) -> bool:
    return bool(cluster.test_starts) and cluster.run.status.phase is Phase.VERIFYING


@pytest.mark.parametrize("restarted", [False, True], ids=["same operator", "another operator"])
def test_an_own_sandbox_that_is_lost_while_test_sh_runs_masks_whatever_is_asked_for(restarted):
    """The agent's work is kept: a new attempt would throw it away."""
    cluster = Cluster(worlds.run(retries={"infrastructure": 1}), apart.TASK)
    calm(cluster, grading_apart)
    cluster.sandboxes.clear()
    if restarted:
        cluster.restart()
    calm(cluster)
    status = cluster.run.status
    assert (status.phase, status.reward, len(status.attempts)) == (Phase.MASKED, None, 1)
    assert (cluster.manifests, set(cluster.rows)) == ({worlds.PREFIX}, {worlds.PREFIX})


def seeding_apart(cluster: Cluster) -> bool:
    verifier = cluster.verifier
    return verifier is not None and verifier.status.phase is Phase.SEEDING


def test_one_that_is_lost_before_is_followed_by_another():
    cluster = Cluster(worlds.run(), apart.TASK)
    calm(cluster, seeding_apart)
    cluster.sandboxes.clear()
    calm(cluster)
    assert (cluster.run.status.phase, cluster.run.status.reward) == (Phase.SUCCEEDED, "1")
    assert len(cluster.agent_starts) == len(cluster.test_starts) == 1
    assert cluster.sandboxes == {}


def closing_apart(cluster: Cluster) -> bool:
    verifier = cluster.verifier
    return verifier is not None and verifier.status.phase is Phase.CLOSING and not cluster.manifests


def test_a_lost_attempt_of_a_separate_verification_keeps_to_its_own_place():
    """Its VerifierRun sees to its end while the next attempt is on its way, and never touches that one's pod."""
    cluster = Cluster(worlds.run(retries={"infrastructure": 1}), apart.TASK)
    calm(cluster, closing_apart)
    cluster.sandboxes.clear()
    calm(cluster)
    status = cluster.run.status
    assert (status.phase, status.reward, status.store) == (Phase.SUCCEEDED, "1", "default/team/uid-run/2/")
    assert cluster.kept == {worlds.PREFIX, "default/team/uid-run/2/"}
    assert all(each.status.complete for each in cluster.verifiers.values())
