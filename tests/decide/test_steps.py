"""decide/steps.py: which turn is at work, what its verdict leads to, and the bounds that belong to it."""

from dataclasses import replace

import pytest
from tests.decide import worlds
from tests.decide.worlds import NOP, ORACLE, SCRIPT

from taskfold.api import names
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import (
    AgentOutcome,
    AgentStatus,
    Failure,
    JournalPhase,
    Mode,
    Stage,
    StepStatus,
    VerifierStatus,
)
from taskfold.api.taskrun import TaskRunStatus
from taskfold.contract import health
from taskfold.contract import steps as contract
from taskfold.decide import plan as plans
from taskfold.decide import sandbox, step_status, steps, taskrun, verifierrun
from taskfold.decide import status as to
from taskfold.decide.world import PhaseActive, PhaseDone, PhaseRefused

TASK = worlds.stepped()
ONE, TWO, THREE = (f"fix-bug-1-verify-{name}" for name in worlds.STEPS)


def over(*rewards: float | None, **more) -> list[StepStatus]:
    """Steps that have a verdict; None: a 0 that the contract counts."""
    return [
        StepStatus(name=name, reward=str(reward), rewards={"reward": reward}, ended_at=worlds.ago(3))
        if reward is not None
        else StepStatus(name=name, reward="0", kind="harbor:missing_reward", reason="RewardMissing", **more)
        for name, reward in zip(worlds.STEPS, rewards, strict=False)
    ]


def world(status: TaskRunStatus, **changes):
    return worlds.world(status, **{"task": TASK, "agent": SCRIPT, **changes})


def judged(*before: float | None, reward="1", rewards=None, task=TASK, given=None, **changes):
    """The verdict about the step after those that are over has come."""
    name = names.verifier(worlds.NAME, 1, worlds.STEPS[len(before)], len(before) + 1)
    status = worlds.handed_over(steps=over(*before), verifier=VerifierStatus(name=name, uid=worlds.VERIFIER_UID))
    entry = worlds.entry(JournalPhase.AGENT, worlds.AGENT).model_copy(update={"step": worlds.STEPS[len(before)]})
    status = status.model_copy(update={"journal": [*status.journal[:1], entry]})
    values = {"reward": float(reward)} if rewards is None else rewards
    verdict = given or worlds.verdict(reward=reward, rewards=values, reward_components=[])
    verifier = worlds.verifier(verdict)
    verifier = verifier.model_copy(update={"metadata": verifier.metadata.model_copy(update={"name": name})})
    return taskrun.decide(world(status, task=task, verifier=verifier, **changes))


# -- one turn after the other --------------------------------------------------------------------------------------


def test_the_journal_of_a_new_pod_knows_the_first_step():
    plan = taskrun.decide(world(worlds.queued(), pod=worlds.ready()))
    assert [(e.phase, e.step) for e in plan.status.journal] == [(JournalPhase.SEED, None), (JournalPhase.AGENT, "one")]


@pytest.mark.parametrize(("done", "name"), list(enumerate((ONE, TWO, THREE))))
def test_each_step_has_a_verification_of_its_own(done, name):
    status = worlds.running(steps=over(*[1.0] * done))
    plan = taskrun.decide(world(status, phases=worlds.done(worlds.AGENT, worlds.program("agent"))))
    assert plan.effects == (plans.CreateVerifierRun(name, 1, Mode.SHARED, worlds.STEPS[done]),)


def test_a_verification_of_another_step_is_never_taken():
    status = worlds.running(steps=over(1.0))
    other = worlds.verifier(worlds.verdict(), step="one")
    plan = taskrun.decide(world(status, verifier=other, phases=worlds.done(worlds.AGENT, worlds.program("agent"))))
    assert plan.effects == (plans.CreateVerifierRun(TWO, 1, Mode.SHARED, "two"),)


def test_a_verdict_begins_the_next_step_in_one_write():
    plan = judged(reward="0.25")
    status = plan.status
    assert (status.phase, status.verifier, status.reward) == (Phase.RUNNING, None, None)
    assert status.agent == AgentStatus(name="script")
    (step,) = status.steps
    assert (step.name, step.reward, step.rewards) == ("one", "0.25", {"reward": 0.25})
    assert (step.agent.outcome, step.agent.seconds) == (AgentOutcome.SUCCEEDED, 1.5)
    assert (step.verifier.name, step.verifier.return_code, step.verifier.seconds) == (ONE, 0, 2.5)
    assert step.ended_at == worlds.ago(0)
    assert [(e.phase, e.step, e.nonce) for e in status.journal] == [
        (JournalPhase.SEED, None, worlds.SEED),
        (JournalPhase.AGENT, "two", worlds.FRESH[0]),
    ]
    assert plan.effects == (plans.ForgetPhases((worlds.AGENT, worlds.VERIFY)),)
    assert (plan.note.reason, plan.note.message) == (Reason.AGENT_STARTING, "step two, 2 of 3")


def test_nothing_is_sent_before_the_new_nonce_stands_in_the_status():
    status = judged().status
    plan = taskrun.decide(world(status))
    assert plan.effects == (plans.RunPhase(JournalPhase.AGENT, worlds.FRESH[0]),)


def test_the_last_verdict_ends_the_run_with_the_mean():
    plan = judged(1.0, 0.5, reward="0")
    status = plan.status
    assert (status.phase, status.reward, status.rewards, status.failure) == (
        Phase.SUCCEEDED,
        "0.5",
        {"reward": 0.5},
        None,
    )
    assert [step.reward for step in status.steps] == ["1.0", "0.5", "0"]
    assert (status.agent.outcome, status.verifier.name) == (AgentOutcome.SUCCEEDED, THREE)
    assert status.timings["verification"] == 2.5


def test_seconds_of_all_steps_add_up():
    timed = worlds.running(steps=over(1.0), timings={"agent": 10.0, "verification": 4.0})
    found = taskrun.decide(
        world(timed, phases=worlds.done(worlds.AGENT, worlds.program("agent")), verifier=worlds.verifier(step="two"))
    )
    assert found.status.timings["agent"] == 11.5


def test_the_strategy_final():
    task = worlds.task(
        'multi_step_reward_strategy = "final"',
        *(f'[[steps]]\nname = "{name}"' for name in worlds.STEPS),
        files={f"steps/{name}/instruction.md": "x" for name in worlds.STEPS},
    )
    assert judged(1.0, None, reward="0", task=task).status.failure is None
    assert judged(0.0, 0.0, reward="1", task=task).status.reward == "1"


# -- early ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["0.5", "0.75"])
def test_a_step_below_its_least_reward_ends_the_task(reward):
    task = worlds.stepped(tables={"two": "min_reward = 0.75"})
    plan = judged(1.0, reward=reward, task=task)
    if reward == "0.75":
        assert plan.status.phase is Phase.RUNNING
        return
    assert (plan.status.phase, plan.status.reward) == (Phase.SUCCEEDED, "0.75"), "the mean of the two that ran"
    assert plan.status.warnings == ["1 step(s) after two were left out: reward is 0.5, min_reward wants 0.75"]


def test_a_masked_step_masks_the_run():
    lost = worlds.verdict(Phase.MASKED)
    plan = judged(1.0, given=lost)
    status = plan.status
    assert (status.phase, status.masked, status.reward, status.rewards) == (Phase.MASKED, True, None, {})
    assert status.failure.message == "step two: evicted"
    assert [(step.name, step.masked, step.reason) for step in status.steps][1] == ("two", True, "PodEvicted")


def test_a_step_lost_by_the_agent_counts_the_run_as_0_where_that_is_asked_for():
    failure = Failure(reason=Reason.OOM_KILLED.value, message="killed.", stage=Stage.VERIFICATION)
    plan = judged(1.0, given=worlds.verdict(Phase.MASKED, failure=failure), onAgentCausedLoss="zero")
    assert (plan.status.phase, plan.status.reward, plan.status.steps[-1].reward) == (Phase.SUCCEEDED, "0", "0")


def test_a_loss_between_two_steps_masks_the_run_too():
    plan = taskrun.decide(world(worlds.running(steps=over(1.0)), pod=worlds.evicted("The node was low on memory.")))
    status = plan.status
    assert (status.phase, status.failure.stage) == (Phase.MASKED, Stage.AGENT)
    assert status.failure.message.startswith("step two: ")
    assert [(step.name, step.masked) for step in status.steps] == [("one", False), ("two", True)]


def test_another_attempt_begins_with_the_first_step():
    status = worlds.running(steps=over(1.0, 1.0), timings={"agent": 1.0})
    plan = taskrun.decide(world(status, pod=None, retries={"infrastructure": 1}))
    assert (plan.status.phase, plan.status.steps, plan.status.timings) == (Phase.QUEUED, [], {})


def test_cancelled_between_two_steps():
    plan = taskrun.decide(world(worlds.running(steps=over(1.0)), cancel=True))
    assert (plan.status.phase, len(plan.status.steps)) == (Phase.CANCELLED, 1)


# -- zeros ---------------------------------------------------------------------------------------------------------

MISSING = Failure(kind="harbor:missing_reward", reason="RewardMissing", message="nothing.", stage=Stage.VERIFICATION)
COUNTED = {"reward": "0", "rewards": {}, "reward_components": [], "failure": MISSING}


def test_a_counted_zero_is_a_result():
    plan = judged(1.0, given=worlds.verdict(**COUNTED))
    assert plan.status.phase is Phase.RUNNING
    last = judged(1.0, 1.0, given=worlds.verdict(**COUNTED)).status
    assert (last.reward, last.failure) == (str(2 / 3), None)


@pytest.mark.parametrize(
    ("before", "last", "says"),
    [
        ((None, None), COUNTED, "step three: nothing."),
        ((0.0, None), {"reward": "0", "rewards": {"reward": 0.0}, "reward_components": []}, "step two: "),
        ((0.0, 0.0), {"reward": "0", "rewards": {"reward": 0.0}, "reward_components": []}, None),
    ],
    ids=["all", "an earlier one", "none"],
)
def test_a_score_of_0_says_which_step_nobody_graded(before, last, says):
    status = judged(*before, given=worlds.verdict(**last)).status
    assert (status.phase, status.reward) == (Phase.SUCCEEDED, "0")
    assert (status.failure is None) == (says is None)
    if says is not None:
        assert status.failure.kind == "harbor:missing_reward"
        assert status.failure.message.startswith(says)


# -- many rewards --------------------------------------------------------------------------------------------------

MANY = {f"part {number:03}": 1.0 for number in range(200)}


def test_a_steps_rewards_are_kept_whatever_the_status_holds():
    result = worlds.done(worlds.VERIFY, worlds.program("test"))
    run = worlds.run(worlds.handed_over(), agent=SCRIPT)
    found = worlds.verifier_world(worlds.verifying(), run=run, phases=result, task=contract.turn(TASK, 0), step="one")
    plan = verifierrun.decide(found)
    assert plan.effects == (plans.StoreRewards(step_status.place(worlds.PREFIX, "one"), {}),)


def test_the_score_is_made_of_what_the_store_holds():
    stored = {0: MANY, 1: {}, 2: MANY}
    verdict = worlds.verdict(reward="200", rewards={"part 000": 1.0}, reward_components=["part 000"])
    status = worlds.handed_over(
        steps=[StepStatus(name="one", reward="200", rewards={"part 000": 1.0}, components=True), *over(None, None)[1:]]
    )
    plan = taskrun.decide(world(status, verifier=worlds.verifier(verdict), step_rewards=stored))
    assert float(plan.status.reward) == pytest.approx(400 / 3)
    (kept,) = plan.effects
    assert (kept.prefix, set(kept.rewards)) == (worlds.PREFIX, set(MANY))


# -- what comes before the agent -----------------------------------------------------------------------------------


def first(*programs, **changes):
    return taskrun.decide(world(worlds.running(), phases=worlds.done(worlds.AGENT, *programs), **changes))


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ([worlds.program("setup", 3)], Reason.STEP_SETUP_FAILED),
        ([worlds.program("setup", None, timed_out=True)], Reason.STEP_SETUP_FAILED),
        ([worlds.program("setup"), worlds.program("healthcheck", 1)], Reason.STEP_UNHEALTHY),
        ([worlds.program("agent", None, start_error="bash: not found")], Reason.AGENT_START_FAILED),
    ],
    ids=["setup", "setup over its limit", "healthcheck", "agent"],
)
def test_the_first_step_is_tried_again_and_then_failed(programs, reason):
    plan = first(*programs)
    assert (plan.status.phase, plan.status.attempts[-1].tries) == (Phase.QUEUED, 2)
    last = world(worlds.running(tries=3), phases=worlds.done(worlds.AGENT, *programs))
    status = taskrun.decide(last).status
    assert (status.phase, status.failure.reason, status.failure.kind) == (Phase.FAILED, reason, None)
    assert status.failure.message.startswith("step one: ") or reason is Reason.AGENT_START_FAILED


def test_files_that_the_first_step_cannot_get_cost_a_try():
    report = {worlds.AGENT: PhaseRefused("Unpack", "no space left on device")}
    assert taskrun.decide(world(worlds.running(), phases=report)).status.phase is Phase.QUEUED


@pytest.mark.parametrize("agent", [NOP, ORACLE], ids=["nop", "an oracle without a solution"])
def test_nobody_works_but_the_step_is_prepared(agent):
    task = worlds.task(
        *(f'[[steps]]\nname = "{n}"' for n in "ab"), files={f"steps/{n}/instruction.md": "x" for n in "ab"}
    )
    waits = taskrun.decide(world(worlds.running(), agent=agent, task=task))
    assert waits.effects == (plans.RunPhase(JournalPhase.AGENT, worlds.AGENT),)
    done = world(worlds.running(), agent=agent, task=task, phases=worlds.done(worlds.AGENT, worlds.program("setup")))
    done = replace(done, verifier=worlds.verifier(step="a"))
    assert taskrun.decide(done).status.agent.outcome is AgentOutcome.SKIPPED


def test_logs_that_could_not_be_kept_are_told():
    ended = worlds.done(worlds.AGENT, worlds.program("agent"))[worlds.AGENT]
    assert isinstance(ended, PhaseDone)
    moved = ({"op": "move", "moved": 0, "error": "cross-device link"}, {"op": "move", "moved": 1, "error": ""})
    report = PhaseDone(replace(ended.result, prepared=moved))
    found = world(worlds.running(steps=over(1.0)), phases={worlds.AGENT: report}, verifier=worlds.verifier(step="two"))
    assert taskrun.decide(found).status.warnings == ["not all logs of step one could be kept: cross-device link"]


# -- limits --------------------------------------------------------------------------------------------------------


def test_a_step_begins_when_the_one_before_has_its_verdict():
    """Not at the end of that one's agent: the verification between them took its own time."""
    status = worlds.running(seeded=9000.0, steps=over(1.0))
    long_ago = worlds.ago(9000)
    assert not sandbox.overdue(world(status), 60.0)
    earlier = [step.model_copy(update={"ended_at": long_ago}) for step in status.steps]
    assert sandbox.overdue(world(status.model_copy(update={"steps": earlier})), 60.0)
    silent = world(
        worlds.running(seeded=90_000.0, steps=over(1.0)), phases={worlds.AGENT: PhaseActive("x", asked=500.0)}
    )
    assert taskrun.decide(silent).status is None or taskrun.decide(silent).status.phase is Phase.RUNNING


def test_a_pod_may_work_for_all_of_its_steps():
    tables = {
        "one": "[steps.agent]\ntimeout_sec = 10\n[steps.verifier]\ntimeout_sec = 20\n"
        '[[steps.verifier.collect]]\ncommand = "x"\ntimeout_sec = 5\n',
        "two": "healthcheck = { command = 'x', interval_sec = 1, timeout_sec = 2, retries = 3, "
        "start_interval_sec = 4 }\n"
        "[steps.agent]\ntimeout_sec = 30\n",
        "three": "[steps.agent]\ntimeout_sec = 40\n",
    }
    task = worlds.stepped(tables=tables)
    table = task.steps[1].config.healthcheck
    assert table is not None
    longest = health.of_table(table).longest
    assert sandbox.pod_limit(world(worlds.running(), task=task)) == 35 + 30 + longest + 600 + 40 + 600
    assert sandbox.agent_limit(world(worlds.running(), task=task)) == 10
    assert sandbox.agent_limit(world(worlds.running(steps=over(1.0)), task=task)) == 30 + longest


def test_the_verification_of_a_step_is_bound_to_it():
    run = worlds.run(worlds.handed_over(steps=over(1.0)), agent=SCRIPT)
    found = worlds.verifier_world(None, run=run, task=contract.turn(TASK, 1), step="two")
    assert [entry.step for entry in verifierrun.decide(found).status.journal] == ["two"]


def test_status_helpers_find_the_turn_at_work():
    status = worlds.running(steps=over(1.0))
    assert steps.at_work(world(status)).name == "two"
    assert steps.verifier_name(world(status).run, TASK) == TWO
    assert to.entry(status, JournalPhase.AGENT, worlds.POD_UID).nonce == worlds.AGENT
