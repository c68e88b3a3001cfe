"""decide/losses.py: every kind of loss in every stage, and what it means for a run that asked for one thing or another.

What must follow is written down here once more, from the contract (C13 to C15, C28), not taken from the table.
"""

from typing import Any

import pytest
from tests.decide import lost, worlds

from taskfold import protocol
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Mode, Stage
from taskfold.contract import failures
from taskfold.decide import losses, pod, reference, sandbox, taskrun, verdicts, verifierrun
from taskfold.decide import plan as plans
from taskfold.decide.losses import Cause, Fault
from taskfold.decide.world import Admission, Refusal

BY_AGENT = {
    Cause.STORAGE_LIMIT,
    Cause.OOM,
    Cause.FIRST_PROCESS_ENDED,
    Cause.ENTRYPOINT_FAILED,
    Cause.UNREPLACEABLE,
    Cause.START_BROKEN,
    Cause.START_STARVED,
    Cause.HELPERS_KILLED,
    Cause.STEP_UNSTARTED,
}
"""C28."""
UNDECIDED = {
    Cause.STEP_SETUP,
    Cause.STEP_UNHEALTHY,
    Cause.POD_DEADLINE,
    Cause.STOPPED,
    Cause.UNEXPLAINED,
    Cause.NO_RESULT,
    Cause.DISK_FULL,
    Cause.NOT_COPIED,
    Cause.NOT_EXPORTED,
    Cause.AGENT_NOT_STOPPED,
    Cause.VERIFIER_RUN_REFUSED,
}
NOBODYS = set(Cause) - BY_AGENT - UNDECIDED

KINDS = {
    Cause.OOM: "provider_oom_killed",
    Cause.ENTRYPOINT_FAILED: "harbor:entrypoint_failed",
    Cause.START_BROKEN: "verifier_error",
    Cause.START_STARVED: "verifier_error",
    Cause.VERIFIER_RUN_DELETED: "verifier_error",
    Cause.VERIFIER_RUN_REFUSED: "verifier_error",
}
"""All others: provider_unavailable."""

UNTOLD = {Cause.NO_RESULT, Cause.HELPERS_KILLED, Cause.ENTRYPOINT_FAILED}
"""What an agent's phase tells of, which an agent that does nothing has not."""

USUAL: dict[str, Any] = {}
ZERO = {"onAgentCausedLoss": "zero"}
RETRIES = {"retries": {"infrastructure": 1}}
POLICIES = {"usual": USUAL, "zero": ZERO, "retries": RETRIES, "both": ZERO | RETRIES}

way_by_way = pytest.mark.parametrize("way", lost.WAYS.values(), ids=lost.WAYS)
at_work = pytest.mark.parametrize(
    "way",
    [way for way in lost.WAYS.values() if way.stage is not Stage.SEED],
    ids=[name for name, way in lost.WAYS.items() if way.stage is not Stage.SEED],
)


@pytest.mark.parametrize(("cause", "found"), lost.PODS.values(), ids=lost.PODS)
def test_a_lost_pod_has_one_cause(cause, found):
    loss = pod.loss(found, worlds.POD_UID)
    assert loss is not None
    assert loss.cause is cause
    assert loss.message == loss.message.strip(" .:")
    assert loss.message


def test_every_row_of_the_table_is_met_in_every_stage_it_names():
    met = {(way.cause, way.stage) for way in lost.WAYS.values()}
    assert met == {(cause, stage) for cause, row in losses.TABLE.items() for stage in row.stages}
    assert set(losses.TABLE) == set(Cause)


# -- what follows --------------------------------------------------------------------------------------------------


def masked(plan: plans.Plan, way: lost.Way) -> None:
    status, failure = plan.status, worlds.failure_of(plan)
    assert status is not None
    assert (status.phase, status.masked, status.reward) == (Phase.MASKED, True, None)
    told(failure, way)
    assert "masked" in failure.message
    assert plan.effects == ()


def zero(plan: plans.Plan, way: lost.Way) -> None:
    status, failure = plan.status, worlds.failure_of(plan)
    assert status is not None
    assert (status.phase, status.masked, status.reward, status.rewards) == (Phase.SUCCEEDED, False, "0", {})
    told(failure, way)
    assert "spec.onAgentCausedLoss is zero: the run counts as 0" in failure.message
    assert "The run is masked" not in failure.message
    assert plan.effects == ()


def told(failure: Any, way: lost.Way) -> None:
    """The contract's kind, the loss's reason and stage; the same again need not fail again."""
    assert failure.kind == KINDS.get(way.cause, "provider_unavailable")
    assert failure.reason == losses.TABLE[way.cause].reason
    assert (failure.stage, failure.terminal) == (way.stage, False)
    assert ".. " not in failure.message


def new_attempt(plan: plans.Plan, way: lost.Way) -> None:
    status = plan.status
    assert status is not None
    assert (status.phase, worlds.reason_of(plan)) == (Phase.QUEUED, Reason.RETRYING)
    before, current = status.attempts[-2:]
    assert (before.reason, before.end_time) == (losses.TABLE[way.cause].reason, worlds.ago(0))
    assert before.message
    assert (before.pod_name, before.pod_uid) == (worlds.POD, worlds.POD_UID)
    assert (current.number, current.tries, current.pod_uid) == (before.number + 1, 1, None)
    assert current.start_time == worlds.ago(0)
    assert (status.failure, status.masked, status.reward, status.verdict_time) == (None, False, None, None)
    assert plans.DeletePod(worlds.POD, worlds.POD_UID) in plan.effects


@way_by_way
@pytest.mark.parametrize("asked", POLICIES.values(), ids=POLICIES)
def test_what_a_loss_means_for_its_run(way, asked):
    plan = way.decide(asked, 1)
    if way.stage is Stage.SEED:
        assert (worlds.phase_of(plan), worlds.reason_of(plan)) == (Phase.QUEUED, Reason.RETRYING)
        assert plan.status is not None
        assert [(each.number, each.tries) for each in plan.status.attempts] == [(1, 2)]
        assert plan.effects == (plans.DeletePod(worlds.POD, worlds.POD_UID),)
    elif way.cause in BY_AGENT and "onAgentCausedLoss" in asked:
        zero(plan, way)
    elif way.cause in NOBODYS and "retries" in asked:
        new_attempt(plan, way)
    else:
        masked(plan, way)


@at_work
def test_when_all_attempts_are_used_a_loss_masks(way):
    masked(way.decide(RETRIES, 2), way)


@at_work
def test_an_agent_that_does_nothing_is_never_counted_as_0(way):
    if way.needs_agent or (way.cause in UNTOLD and way.stage is Stage.AGENT):
        pytest.skip("it has no phase that could tell of anything, and no program")
    if (way.cause, way.stage) == (Cause.START_BROKEN, Stage.AGENT):
        way = lost.Way(Cause.STEP_SETUP, way.stage, way.decide)
    if way.cause is Cause.START_BROKEN:
        way = lost.Way(Cause.START_STARVED, way.stage, way.decide)  # nobody had been there to break it
    masked(way.decide({"agent": worlds.NOP} | ZERO, 1), way)


@at_work
def test_nothing_is_tried_again_for_a_run_that_is_cancelled(way):
    plan = way.decide({"cancel": True} | RETRIES, 1)
    assert worlds.reason_of(plan) is not Reason.RETRYING
    assert plan.status is None or len(plan.status.attempts) == 1


def test_the_last_try_before_the_agent_ends_the_run():
    for name, (cause, found) in lost.PODS.items():
        plan = taskrun.decide(worlds.world(worlds.placed(tries=3), pod=found, **ZERO, **RETRIES))
        failure = worlds.failure_of(plan)
        expected = (Phase.FAILED, losses.TABLE[cause].reason, Stage.SEED, None)
        assert (worlds.phase_of(plan), failure.reason, failure.stage, failure.kind) == expected, name


@pytest.mark.parametrize(("cause", "found"), lost.PODS.values(), ids=lost.PODS)
def test_a_reward_that_was_read_stands_whatever_becomes_of_the_pod(cause, found):
    """C15."""
    phases = worlds.done(worlds.VERIFY, worlds.program("test"), files={verdicts.REWARD_TXT: b"0.5"})
    run = worlds.run(worlds.handed_over(), **ZERO, **RETRIES)
    plan = verifierrun.decide(worlds.verifier_world(worlds.verifying(), run=run, pod=found, phases=phases))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.reward) == (Phase.SUCCEEDED, "0.5")
    graded = worlds.verifier().model_copy(update={"status": plan.status})
    then = taskrun.decide(worlds.world(worlds.handed_over(), pod=found, verifier=graded, **ZERO, **RETRIES))
    assert then.status is not None
    assert (then.status.phase, then.status.reward, len(then.status.attempts)) == (Phase.SUCCEEDED, "0.5", 1)


@pytest.mark.parametrize(("cause", "found"), lost.PODS.values(), ids=lost.PODS)
def test_hooks_in_a_lost_sandbox_mask(cause, found):
    masked(lost.graded(USUAL, 1, pod=found, hooks=True), lost.Way(cause, Stage.VERIFICATION, lost.graded))


@pytest.mark.parametrize(("cause", "found"), lost.PODS.values(), ids=lost.PODS)
def test_during_verification_a_loss_is_the_verifiers_to_judge(cause, found):
    verifying = worlds.verifier(worlds.verifying())
    assert taskrun.decide(worlds.world(worlds.handed_over(), pod=found, verifier=verifying)) == plans.Plan()


@pytest.mark.parametrize("reason", ["SpecChanged", "NameConflict", "UnsupportedField", "SourceNotFound"])
def test_a_verification_that_was_refused_is_not_repeated(reason):
    failure = worlds.Failure(reason=reason, message="no", stage=Stage.VERIFICATION)
    graded = worlds.verifier(worlds.verdict(Phase.FAILED, failure=failure))
    plan = taskrun.decide(worlds.world(worlds.handed_over(), verifier=graded, **ZERO, **RETRIES))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.FAILED, reason)


# -- a new attempt -------------------------------------------------------------------------------------------------


def lost_at_work(**changes: Any) -> plans.Plan:
    status = worlds.running(timings={"pod": 3.0}, warnings=["a warning of the task"])
    return taskrun.decide(worlds.world(status, pod=None, **RETRIES, **changes))


def test_a_new_attempt_takes_nothing_over_but_the_admission():
    plan = lost_at_work()
    status = plan.status
    assert status is not None
    assert (status.journal, status.timings, status.verifier, status.store) == ([], {}, None, None)
    assert status.agent is not None
    assert status.agent.wire() == {"name": "oracle"}
    assert status.admitted == worlds.running().admitted
    assert status.start_time == worlds.running().start_time
    assert status.warnings == ["a warning of the task", "attempt 1 was lost (PodDeleted): the pod is gone"]
    assert plan.note is not None
    assert plan.note.message == "attempt 2 of 2 begins: attempt 1 was lost (PodDeleted): the pod is gone"
    assert plan.effects[-1] == plans.ForgetPhases((worlds.SEED, worlds.AGENT))


def test_the_verification_that_was_lost_is_forgotten_too():
    plan = lost.WAYS["drained, verification"].decide(RETRIES, 1)
    assert plan.effects[-1] == plans.ForgetPhases((worlds.SEED, worlds.AGENT, worlds.VERIFY))


def test_a_verifierrun_that_was_made_and_never_got_the_pod_is_ended():
    plan = lost_at_work(verifier=worlds.verifier())
    assert plan.effects[0] == plans.CancelVerifierRun(worlds.VERIFIER)


def second(**changes: Any) -> Any:
    """The status at the begin of the second attempt."""
    status = lost_at_work().status
    assert status is not None
    return status.model_copy(update=changes)


SOURCES = {
    "not asked": None,
    "another folder by now": Admission("sha256:other", worlds.TASK),
    "gone": Refusal("SourceNotFound", "there is no ConfigMap x", terminal=False),
    "broken": Refusal("InvalidTask", "broken"),
}


@pytest.mark.parametrize("admission", SOURCES.values(), ids=SOURCES)
def test_a_new_attempt_has_its_own_pod_and_the_snapshot_of_the_first(admission):
    """C25: after the first seed only the snapshot counts."""
    plan = taskrun.decide(worlds.world(second(), admission=admission, now=worlds.in_a_while(2), **RETRIES))
    assert plan.effects == (plans.CreatePod("fix-bug-2-1", 2, 1, record=False),)


def test_a_new_attempt_has_its_own_nonces_and_its_own_place_in_the_store():
    pod_2 = worlds.starting(name="fix-bug-2-1", uid="uid-pod-2")
    prefix = "default/team/uid-run/2/"
    plan = taskrun.decide(worlds.world(second(), pod=pod_2, store_prefix=prefix, **RETRIES))
    status = plan.status
    assert status is not None
    assert [(each.attempt, each.try_, each.pod_uid, each.nonce) for each in status.journal] == [
        (2, 1, "uid-pod-2", worlds.FRESH[0]),
        (2, 1, "uid-pod-2", worlds.FRESH[1]),
    ]
    assert (status.store, status.pod_name) == (prefix, "fix-bug-2-1")


def test_the_wait_in_the_queue_counts_anew():
    limit = worlds.SETTINGS.limits.queue_seconds
    waiting = worlds.told(Reason.UNSCHEDULABLE, seconds_ago=2 * limit)

    def decide(waited: float) -> plans.Plan:
        attempts = second().attempts
        attempts = [*attempts[:-1], attempts[-1].model_copy(update={"start_time": worlds.ago(waited)})]
        status = second(attempts=attempts, start_time=worlds.ago(3 * limit), conditions=waiting)
        pod_2 = worlds.unscheduled(name="fix-bug-2-1", uid="uid-pod-2", created=waited)
        placed = taskrun.decide(worlds.world(status, pod=pod_2, **RETRIES))
        return taskrun.decide(worlds.world(placed.status, pod=pod_2, **RETRIES))

    assert decide(limit - 1).status is None
    assert worlds.phase_of(decide(limit + 1)) is Phase.FAILED


def test_a_suspended_run_begins_no_attempt():
    plan = taskrun.decide(worlds.world(second(), suspend=True, **RETRIES))
    assert (worlds.deeds(plan), worlds.reason_of(plan)) == ((), Reason.SUSPENDED)


def test_a_verifierrun_is_named_after_its_attempt():
    status = lost.in_attempt(worlds.running(), 2)
    phases = worlds.done(worlds.AGENT, worlds.program("agent"))
    plan = taskrun.decide(worlds.world(status, phases=phases, **RETRIES))
    assert plan.effects == (plans.CreateVerifierRun("fix-bug-2-verify", 2, Mode.SHARED),)


def test_attempts_are_counted_by_number_though_old_ones_left_the_status():
    """A status that is too large drops old attempts (`api.bounds`)."""
    status = lost.in_attempt(worlds.running(), 3)
    short = status.model_copy(update={"attempts": status.attempts[-1:]})
    plan = taskrun.decide(worlds.world(short, pod=None, retries={"infrastructure": 2}))
    assert worlds.phase_of(plan) is Phase.MASKED


# -- no loss -------------------------------------------------------------------------------------------------------

KEPT = {
    "a disruption that is announced": worlds.disrupted("PreemptionByScheduler", deletionTimestamp=""),
    "a disruption that was called off": worlds.disrupted("PreemptionByScheduler", status="False", deletionTimestamp=""),
    "the node NotReady": worlds.seen(
        {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "NodeNotReady"},
                {"type": "ContainersReady", "status": "False"},
            ],
            "containerStatuses": [worlds.runs()],
        }
    ),
    "another container ended with an error": worlds.seen(
        {"phase": "Running", "containerStatuses": [worlds.runs(), worlds.stopped("Error", 1, name="other")]}
    ),
    "no protocol": worlds.ready(labels={}),
    "a protocol that is no number": worlds.ready(labels={"taskfold.dev/protocol": "one"}),
}


@pytest.mark.parametrize("found", KEPT.values(), ids=KEPT)
def test_what_looks_like_a_loss_and_is_none(found):
    assert pod.loss(found, worlds.POD_UID) is None
    assert not pod.newer(found)
    assert worlds.deeds(taskrun.decide(worlds.world(worlds.running(), pod=found))) == ("RunPhase",)


SETTLING = {
    "ended": worlds.stopped("Error", 137),
    "ended well": worlds.stopped("Completed", 0),
    "out of memory": worlds.stopped("OOMKilled", 137),
    "vanished": worlds.stopped("Unknown", 255),
    "never started": worlds.stopped("StartError", 128),
}


@pytest.mark.parametrize("stopped", SETTLING.values(), ids=SETTLING)
def test_the_end_of_a_container_waits_for_the_pods_own_words(stopped):
    """An eviction ends the container first, and tells its reason a moment later."""
    ending = worlds.seen({"phase": "Running", "containerStatuses": [stopped]})
    for status in (worlds.placed(), worlds.running()):
        plan = taskrun.decide(worlds.world(status, pod=ending, **ZERO))
        assert plan == plans.Plan(again=pod.SETTLE_LOOK_SECONDS)
    plan = verifierrun.decide(worlds.verifier_world(worlds.verifying(), pod=ending))
    assert plan == plans.Plan(again=pod.SETTLE_LOOK_SECONDS)


# -- protocols -----------------------------------------------------------------------------------------------------

NEWER = {"labels": {"taskfold.dev/protocol": str(protocol.PROTOCOL + 1)}}


def test_the_operator_speaks_its_own_protocol():
    assert max(protocol.SPOKEN) == protocol.PROTOCOL


WAITING = {
    "seeding": (worlds.placed, Stage.SEED),
    "agent at work": (worlds.running, Stage.AGENT),
}


@pytest.mark.parametrize(("status", "stage"), WAITING.values(), ids=WAITING)
def test_a_pod_of_a_newer_operator_waits_for_it_as_long_as_the_pod_may_live(status, stage):
    limits = worlds.SETTINGS.limits
    allowed = sandbox.pod_limit(worlds.world(status())) + limits.queue_seconds + limits.outage_seconds

    def decide(age: float) -> plans.Plan:
        return taskrun.decide(worlds.world(status(), pod=worlds.ready(created=age, **NEWER)))

    within = decide(allowed - 1)
    assert (within.status, within.effects, worlds.reason_of(within)) == (None, (), Reason.UNKNOWN_PROTOCOL)
    assert within.again == pytest.approx(1)
    late = decide(allowed + 1)
    assert late.status is not None
    assert late.status.phase is (Phase.QUEUED if stage is Stage.SEED else Phase.MASKED)


def test_a_verification_in_a_pod_of_a_newer_operator_waits_likewise():
    allowed = 600.0 + worlds.SETTINGS.limits.outage_seconds

    def decide(since: float) -> plans.Plan:
        pod_ = worlds.ready(**NEWER)
        return verifierrun.decide(worlds.verifier_world(worlds.verifying(since=since), pod=pod_))

    within = decide(allowed - 1)
    assert (within.status, within.effects, worlds.reason_of(within)) == (None, (), Reason.UNKNOWN_PROTOCOL)
    late = decide(allowed + 1)
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, Reason.UNKNOWN_PROTOCOL)


def test_a_lost_pod_of_a_newer_operator_is_lost():
    evicted = worlds.seen({"phase": "Failed", "reason": "Evicted"}, **NEWER)
    plan = taskrun.decide(worlds.world(worlds.running(), pod=evicted))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, Reason.POD_EVICTED)


# -- the table -----------------------------------------------------------------------------------------------------


def test_the_faults_of_the_table():
    faults = {
        fault: {cause for cause, row in losses.TABLE.items() if row.fault is fault}
        for fault in (Fault.AGENT, Fault.NOBODY, Fault.OPEN)
    }
    assert faults == {Fault.AGENT: BY_AGENT, Fault.NOBODY: NOBODYS, Fault.OPEN: UNDECIDED}


def test_a_reason_tells_whose_fault_a_loss_is():
    for row in losses.TABLE.values():
        assert losses.fault_of(row.reason.value) is row.fault, row
    assert losses.fault_of(Reason.REWARD_MISSING.value) is None


def test_each_loss_has_its_own_reason():
    """But those that are proven to be tampering, and copies, whichever way they go."""
    reasons = [row.reason for row in losses.TABLE.values()]
    assert {reason for reason in reasons if reasons.count(reason) > 1} == {Reason.TAMPERED, Reason.TRANSFER_FAILED}


def test_each_kind_of_a_loss_is_one_that_is_written_and_masks():
    for row in losses.TABLE.values():
        assert row.kind.emitted, row
        assert row.kind.effect is failures.Effect.MASKED, row


def test_the_page_has_every_row():
    page = reference.files()[reference.LOSSES]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for cause, row in losses.TABLE.items():
        (line,) = [line for line in rows if line.startswith(f"| {cause.value} |")]
        assert row.reason.value in line
        assert line.count(" | ") == 7
    assert all(any(line.startswith(f"| {each.event} |") for line in rows) for each in losses.NO_LOSSES)
