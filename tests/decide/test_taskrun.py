"""decide/taskrun.py: every rung of the ladder, in the order of a run's life."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.decide import worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import AgentOutcome, Mode, Stage
from taskfold.api.taskrun import TaskRunStatus
from taskfold.contract import task as tasks
from taskfold.contract.images import ImageConfig, RecordedImage
from taskfold.decide import plan as plans
from taskfold.decide import programs, sandbox, taskrun
from taskfold.decide import status as to
from taskfold.decide.world import Admission, PhaseActive, PhaseDone, PhaseRefused, PhaseUnreached, Refusal
from taskfold.protocol.phase import FileState

FINAL = [phase for phase in Phase if phase.final]
ADMISSION = Admission(worlds.TASK_DIGEST, worlds.TASK)
DELETE_POD = plans.DeletePod(worlds.POD, worlds.POD_UID)

# -- before anything -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status", [None, worlds.queued(), worlds.running(), worlds.ended(), worlds.complete()], ids=str
)
def test_a_deleted_run_is_left_to_the_garbage_collector(status):
    assert taskrun.decide(worlds.world(status, deleted=True, cancel=True)) is plans.NOTHING


def test_a_complete_run_asks_for_nothing():
    assert taskrun.decide(worlds.world(worlds.complete(), cancel=True)) == plans.NOTHING


@pytest.mark.parametrize("phase", FINAL)
def test_a_final_run_is_not_moved_by_cancel_or_a_changed_spec(phase):
    plan = taskrun.decide(worlds.world(worlds.ended(phase), cancel=True, spec_digest="sha256:other"))
    assert plan.status is None
    assert worlds.deeds(plan) == ("Collect",)


# -- admission -----------------------------------------------------------------------------------------------------


def test_admission_writes_digests_attempt_and_keeps_the_snapshot_first():
    plan = taskrun.decide(worlds.world(admission=ADMISSION))
    assert plan.effects == (plans.StoreSnapshot(worlds.TASK_DIGEST),)
    status = plan.status
    assert status is not None
    assert status.phase is Phase.QUEUED
    assert (status.admitted.spec_digest, status.admitted.task_digest) == (worlds.SPEC_DIGEST, worlds.TASK_DIGEST)
    assert [(each.number, each.tries) for each in status.attempts] == [(1, 1)]
    assert status.store == worlds.PREFIX
    assert status.agent.name == "oracle"
    assert plan.again == 0


def test_admission_keeps_the_image_on_record():
    recorded = RecordedImage("base:1", "sha256:" + "9" * 64, ImageConfig())
    plan = taskrun.decide(worlds.world(admission=Admission(worlds.TASK_DIGEST, worlds.TASK, recorded)))
    assert plan.effects == (plans.StoreSnapshot(worlds.TASK_DIGEST), plans.StoreRecordedImage(recorded))


def test_the_tasks_warnings_are_the_runs():
    odd = worlds.task(files={"notes.txt": "x", "environment/compose.override": "x"})
    plan = taskrun.decide(worlds.world(admission=Admission(worlds.TASK_DIGEST, odd)))
    assert plan.status is not None
    assert plan.status.warnings == list(odd.warnings)


REFUSALS = {
    "unsupported field": ({"mcpGrants": "required", "admission": ADMISSION}, Reason.UNSUPPORTED_FIELD),
    "unsupported field before a broken task": (
        {"mcpGrants": "required", "admission": Refusal("InvalidTask", "broken")},
        Reason.UNSUPPORTED_FIELD,
    ),
    "broken task": ({"admission": Refusal("InvalidTask", "broken")}, Reason.INVALID_TASK),
    "a script that no shell takes": (
        {"agent": {"script": {"run": "ä" * 65_536}}, "admission": ADMISSION},
        Reason.INVALID_SPEC,
    ),
    "oracle without a solution": (
        {
            "admission": Admission(
                "sha256:x",
                tasks.Task("t", "do", worlds.TASK.config, worlds.TASK.image, None, ()),
            )
        },
        Reason.INVALID_TASK,
    ),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_terminal_and_at_admission(changes, reason):
    plan = taskrun.decide(worlds.world(**changes))
    assert worlds.phase_of(plan) is Phase.FAILED
    failure = worlds.failure_of(plan)
    assert (failure.reason, failure.stage, failure.terminal) == (reason.value, Stage.ADMISSION, True)
    assert plan.effects == ()


def test_only_the_oracle_needs_a_solution():
    bare = tasks.Task("t", "do", worlds.TASK.config, worlds.TASK.image, None, ())
    plan = taskrun.decide(worlds.world(agent=worlds.NOP, admission=Admission("sha256:x", bare)))
    assert worlds.phase_of(plan) is Phase.QUEUED


def first_looked(seconds_ago: float) -> TaskRunStatus:
    """Not admitted: a source was missing at the first look."""
    return TaskRunStatus(phase=Phase.PENDING, start_time=worlds.ago(seconds_ago))


def test_a_missing_source_is_waited_for_then_given_up():
    missing = Refusal("SourceNotFound", "there is no ConfigMap x", terminal=False)
    waiting = taskrun.decide(worlds.world(admission=missing))
    assert (worlds.phase_of(waiting), worlds.reason_of(waiting)) == (Phase.PENDING, Reason.SOURCE_NOT_FOUND)
    assert waiting.again == taskrun.RETRY_SECONDS
    assert waiting.status is not None
    assert waiting.status.start_time == worlds.ago(0), "the wait counts from the first look"
    within = taskrun.decide(worlds.world(first_looked(60.0), admission=missing))
    assert (worlds.phase_of(within), within.status) == (Phase.PENDING, first_looked(60.0))
    late = taskrun.decide(worlds.world(first_looked(60.1), admission=missing))
    failure = worlds.failure_of(late)
    assert (worlds.phase_of(late), failure.reason) == (Phase.FAILED, "SourceNotFound")
    assert (failure.stage, failure.terminal) == (Stage.ADMISSION, False)
    assert "there is no ConfigMap x (waited 60 s)" in failure.message


def test_a_source_that_comes_in_time_is_admitted_and_the_run_counts_from_the_first_look():
    plan = taskrun.decide(worlds.world(first_looked(50.0), admission=ADMISSION))
    assert plan.status is not None
    assert (plan.status.start_time, plan.status.attempts[-1].start_time) == (worlds.ago(50), worlds.ago(0))


def test_an_admission_that_could_not_be_observed_is_tried_again():
    assert taskrun.decide(worlds.world()) == plans.Plan(again=taskrun.RETRY_SECONDS)


# -- a changed spec, cancellation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status", [worlds.queued(), worlds.placed(), worlds.running(), worlds.handed_over()], ids=lambda s: s.phase
)
def test_a_changed_spec_ends_the_run_and_names_both_digests(status):
    plan = taskrun.decide(worlds.world(status, spec_digest="sha256:other"))
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.reason, failure.terminal) == (Phase.FAILED, "SpecChanged", True)
    assert worlds.SPEC_DIGEST in failure.message
    assert "sha256:other" in failure.message


CANCELLED = {
    "before admission": (None, Stage.ADMISSION),
    "queued": (worlds.queued(), Stage.SEED),
    "seeding": (worlds.placed(), Stage.SEED),
    "running": (worlds.running(), Stage.AGENT),
    "closing": (worlds.handed_over(None), Stage.AGENT),
    "verifying, the VerifierRun gone": (worlds.handed_over(), Stage.VERIFICATION),
}


@pytest.mark.parametrize(("status", "stage"), CANCELLED.values(), ids=CANCELLED)
def test_cancel_ends_the_run_where_it_stands(status, stage):
    plan = taskrun.decide(worlds.world(status, cancel=True))
    assert worlds.phase_of(plan) is Phase.CANCELLED
    failure = worlds.failure_of(plan)
    assert (failure.reason, failure.stage, failure.terminal) == ("Cancelled", stage, False)
    assert plan.status is not None
    assert not plan.status.masked
    assert plan.effects == ()


def test_cancel_goes_through_the_verification():
    verifying = worlds.verifier(worlds.verifying())
    plan = taskrun.decide(worlds.world(worlds.handed_over(), cancel=True, verifier=verifying))
    assert plan.effects == (plans.CancelVerifierRun(worlds.VERIFIER),)
    assert plan.status is None
    asked = worlds.verifier(worlds.verifying(), cancel=True)
    assert taskrun.decide(worlds.world(worlds.handed_over(), cancel=True, verifier=asked)).effects == ()


@pytest.mark.parametrize("changes", [{"cancel": True}, {"spec_digest": "sha256:other"}], ids=["cancel", "changed spec"])
def test_a_verdict_wins(changes):
    graded = worlds.verifier(worlds.verdict())
    plan = taskrun.decide(worlds.world(worlds.handed_over(), verifier=graded, **changes))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.reward) == (Phase.SUCCEEDED, "0.25")


# -- seeding -------------------------------------------------------------------------------------------------------


def test_the_seed_is_asked_for_under_its_nonce():
    plan = taskrun.decide(worlds.world(worlds.placed()))
    assert plan.effects == (plans.RunPhase("seed", worlds.SEED),)


def test_without_a_journal_entries_are_written_before_anything_is_sent():
    plan = taskrun.decide(worlds.world(worlds.placed(journal=[])))
    assert plan.effects == ()
    assert plan.status is not None
    assert [(each.phase, each.nonce, each.pod_uid) for each in plan.status.journal] == [
        ("seed", worlds.FRESH[0], worlds.POD_UID),
        ("agent", worlds.FRESH[1], worlds.POD_UID),
    ]


SEEDING = {
    "active": (PhaseActive(), Phase.SEEDING, Reason.SEEDING, ()),
    "unreached, not yet due": (PhaseUnreached("no route", 1, 3.0), Phase.SEEDING, Reason.SEEDING, ()),
    "unreached, due": (PhaseUnreached("no route", 1, 0.0), Phase.SEEDING, Reason.SEEDING, ("RunPhase",)),
    "refused": (PhaseRefused("Prepare", "no room"), Phase.QUEUED, Reason.RETRYING, ("DeletePod",)),
    "unknown user": (PhaseRefused("UnknownUser", "no user app"), Phase.FAILED, Reason.UNKNOWN_USER, ()),
}


@pytest.mark.parametrize(("report", "phase", "reason", "deeds"), SEEDING.values(), ids=SEEDING)
def test_what_the_seed_phase_reports(report, phase, reason, deeds):
    plan = taskrun.decide(worlds.world(worlds.placed(), phases={worlds.SEED: report}))
    assert (worlds.phase_of(plan), worlds.reason_of(plan), worlds.deeds(plan)) == (phase, reason, deeds)


def test_an_unknown_user_is_terminal():
    plan = taskrun.decide(worlds.world(worlds.placed(), phases={worlds.SEED: PhaseRefused("UnknownUser", "no user")}))
    assert (worlds.failure_of(plan).terminal, worlds.failure_of(plan).stage) == (True, Stage.SEED)


@pytest.mark.parametrize("report", [PhaseActive(), PhaseUnreached("no route", 9, 0.0)], ids=["active", "unreached"])
def test_a_seed_that_takes_too_long_costs_the_try(report):
    def plan(since, asked):
        phases = {worlds.SEED: replace(report, asked=asked)}
        return taskrun.decide(worlds.world(worlds.placed(), pod=worlds.ready(since=since), phases=phases))

    assert "DeletePod" not in worlds.deeds(plan(9999.0, 719.0)), "within its limit, whatever the node's clock says"
    late = plan(0.0, 721.0)
    assert worlds.deeds(late) == ("DeletePod",)
    assert late.status is not None
    assert late.status.attempts[-1].tries == 2


def test_a_seeded_sandbox_lets_the_agent_run_with_the_next_reconcile():
    plan = taskrun.decide(worlds.world(worlds.placed(), phases=worlds.done(worlds.SEED)))
    assert (worlds.phase_of(plan), worlds.reason_of(plan), plan.effects) == (Phase.RUNNING, Reason.AGENT_STARTING, ())
    assert plan.status is not None
    assert [bool(each.ended_at) for each in plan.status.journal] == [True, False]
    assert plan.status.node_name == "node-1"
    assert plan.status.task is not None
    assert (plan.status.task.id, plan.status.task.image) == ("fix-bug", "python:3.12-slim")
    assert plan.status.task.image_digest == "docker.io/library/python@sha256:" + "1" * 64
    assert plan.status.timings["pod"] == 17.0


TOOLS = {
    "bash": (["bash"], "verifier_error"),
    "timeout": (["timeout"], "verifier_error"),
    "tar": (["tar"], "provider_unavailable"),
    "gzip and find": (["gzip", "find"], "provider_unavailable"),
    "one of both groups": (["bash", "tar"], "provider_unavailable"),
}


@pytest.mark.parametrize(("missing", "kind"), TOOLS.values(), ids=TOOLS)
def test_missing_tools_mask_the_run(missing, kind):
    plan = taskrun.decide(worlds.world(worlds.placed(), phases=worlds.done(worlds.SEED, missing=missing)))
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.reason) == (Phase.MASKED, "MissingTools")
    assert plan.status is not None
    assert plan.status.masked
    assert all(tool in failure.message for tool in missing)
    assert failure.kind == kind


# -- the agent -----------------------------------------------------------------------------------------------------


def test_the_agent_is_asked_for_only_under_phase_running():
    plan = taskrun.decide(worlds.world(worlds.running()))
    assert plan.effects == (plans.RunPhase("agent", worlds.AGENT),)


WORKING = {
    "active": (PhaseActive(), None, ()),
    "started": (PhaseActive("2026-03-01T11:59:58Z"), Reason.AGENT_RUNNING, ()),
    "unreached, not yet due": (PhaseUnreached("no route", 2, 4.0), Reason.AGENT_RUNNING, ()),
    "unreached, due": (PhaseUnreached("no route", 2, 0.0), Reason.AGENT_RUNNING, ("RunPhase",)),
}


@pytest.mark.parametrize(("report", "reason", "deeds"), WORKING.values(), ids=WORKING)
def test_while_the_agent_works_nothing_is_decided(report, reason, deeds):
    status = worlds.running()
    plan = taskrun.decide(worlds.world(status, phases={worlds.AGENT: report}))
    started = report.started_at if isinstance(report, PhaseActive) else None
    # In one write with the reason: since when.
    assert plan.status == (to.begun(status, worlds.AGENT, started) if started else None)
    assert (worlds.reason_of(plan), worlds.deeds(plan)) == (reason, deeds)
    assert plan.again is not None
    assert plan.again > 0


def test_an_active_phase_is_looked_at_again_when_it_is_to_be_given_up():
    """An event of the sandbox wakes the run before that; this is for the case that none comes."""
    limits = worlds.SETTINGS.limits
    seeding = taskrun.decide(worlds.world(worlds.placed(), phases={worlds.SEED: PhaseActive()}))
    assert seeding.again == limits.seed_seconds + limits.agent_grace_seconds + 1
    for report in (PhaseActive(), PhaseActive("2026-03-01T11:59:58Z")):
        world = worlds.world(worlds.running(), phases={worlds.AGENT: report})
        again = taskrun.decide(world).again
        assert again == sandbox.left(world, 28_800.0) == 28_800 + limits.agent_grace_seconds - 10 + 1


OUTCOMES = {
    "success": (worlds.program("agent"), AgentOutcome.SUCCEEDED),
    "failure": (worlds.program("agent", 3, inline=b"boom\n"), AgentOutcome.FAILED),
    "killed by a signal": (worlds.program("agent", None, signal=9), AgentOutcome.FAILED),
    "over its limit": (worlds.program("agent", None, signal=9, timed_out=True), AgentOutcome.TIMED_OUT),
    "over its limit, code 0": (worlds.program("agent", 0, timed_out=True), AgentOutcome.TIMED_OUT),
}


CREATE = plans.Plan(effects=(plans.CreateVerifierRun(worlds.VERIFIER, 1, Mode.SHARED),), again=0)
"""The VerifierRun is made first: one write tells the agent's end and hands the pod over."""


def check_agents_end(status, ended, outcome):
    assert (status.agent.outcome, status.agent.return_code, status.agent.seconds) == (outcome, ended.return_code, 1.5)
    assert status.agent.message == (None if outcome is AgentOutcome.SUCCEEDED else programs.ended_how(ended))
    assert [bool(each.ended_at) for each in status.journal] == [True, True]
    assert status.timings["agent"] == 1.5


@pytest.mark.parametrize(("ended", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_verification_follows_whatever_the_agents_outcome(ended, outcome):
    phases = worlds.done(worlds.AGENT, ended)
    assert taskrun.decide(worlds.world(worlds.running(), phases=phases)) == CREATE
    plan = taskrun.decide(worlds.world(worlds.running(), phases=phases, verifier=worlds.verifier()))
    assert (worlds.phase_of(plan), worlds.reason_of(plan), plan.again) == (Phase.VERIFYING, Reason.VERIFYING, None)
    assert plan.effects == ()
    status = plan.status
    assert status is not None
    check_agents_end(status, ended, outcome)
    assert (status.verifier.name, status.verifier.uid, status.verifier.mode) == (
        worlds.VERIFIER,
        worlds.VERIFIER_UID,
        Mode.SHARED,
    )


@pytest.mark.parametrize("reason", [Reason.VERIFIER_ERROR, Reason.NAME_CONFLICT])
@pytest.mark.parametrize(("ended", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_agents_end_is_told_before_the_handover_if_the_creation_was_refused(ended, outcome, reason):
    refused = worlds.running(conditions=worlds.told(reason, seconds_ago=1.0, phase=Phase.RUNNING))
    plan = taskrun.decide(worlds.world(refused, phases=worlds.done(worlds.AGENT, ended)))
    assert (worlds.phase_of(plan), worlds.reason_of(plan), plan.again) == (Phase.CLOSING, Reason.CLOSING, 0)
    assert plan.effects == ()
    status = plan.status
    assert status is not None
    check_agents_end(status, ended, outcome)
    assert (status.verifier.name, status.verifier.uid, status.verifier.mode) == (worlds.VERIFIER, None, Mode.SHARED)
    assert worlds.deeds(taskrun.decide(worlds.world(status))) == ("CreateVerifierRun",)
    then = taskrun.decide(worlds.world(status, verifier=worlds.verifier()))
    assert then.status is not None
    assert (then.status.phase, then.status.verifier.uid) == (Phase.VERIFYING, worlds.VERIFIER_UID)
    check_agents_end(then.status, ended, outcome)


@pytest.mark.parametrize("reason", [Reason.AGENT_RUNNING, Reason.INTERNAL, Reason.STORE_UNAVAILABLE])
def test_other_words_in_the_conditions_are_no_refusal(reason):
    told = worlds.running(conditions=worlds.told(reason, seconds_ago=1.0, phase=Phase.RUNNING))
    phases = worlds.done(worlds.AGENT, worlds.program("agent"))
    assert taskrun.decide(worlds.world(told, phases=phases)) == CREATE


def test_the_verifierrun_of_an_older_run_takes_nothing_over():
    older = worlds.verifier(worlds.verdict(), source={"runRef": {"name": worlds.NAME, "uid": "older"}})
    phases = worlds.done(worlds.AGENT, worlds.program("agent"))
    assert taskrun.decide(worlds.world(worlds.running(), phases=phases, verifier=older)) == CREATE


def test_a_verifierrun_that_is_made_and_not_recorded_yet_does_not_keep_the_run_from_ending():
    made = worlds.verifier()
    lost = taskrun.decide(worlds.world(worlds.running(), pod=None, verifier=made))
    assert worlds.phase_of(lost) is Phase.MASKED
    cancelled = taskrun.decide(worlds.world(worlds.running(), cancel=True, verifier=made))
    assert (cancelled.status, cancelled.effects) == (None, (plans.CancelVerifierRun(worlds.VERIFIER),))
    ended = worlds.verifier(worlds.verdict(Phase.CANCELLED), cancel=True)
    then = taskrun.decide(worlds.world(worlds.running(), cancel=True, verifier=ended))
    assert (worlds.phase_of(then), worlds.failure_of(then).stage) == (Phase.CANCELLED, Stage.AGENT)


def test_what_the_memory_limit_killed_is_a_warning():
    phases = worlds.done(worlds.AGENT, worlds.program("agent", oom_kills=2))
    plan = taskrun.decide(worlds.world(worlds.running(), phases=phases, verifier=worlds.verifier()))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.agent.outcome) == (Phase.VERIFYING, AgentOutcome.SUCCEEDED)
    assert plan.status.warnings == ["the memory limit of the sandbox killed 2 process(es) while agent ran"]


def test_nop_goes_straight_to_verification():
    assert taskrun.decide(worlds.world(worlds.running(), agent=worlds.NOP)) == CREATE
    plan = taskrun.decide(worlds.world(worlds.running(), agent=worlds.NOP, verifier=worlds.verifier()))
    assert (worlds.phase_of(plan), plan.effects, plan.again) == (Phase.VERIFYING, (), None)
    assert plan.status is not None
    assert (plan.status.agent.outcome, plan.status.verifier.uid) == (AgentOutcome.SKIPPED, worlds.VERIFIER_UID)
    assert plan.status.timings["agent"] == 0.0


NEVER_WORKED = {
    "refused by the helper": ({worlds.AGENT: PhaseRefused("Digest", "differs")}, "AgentStartFailed"),
    "program missing": (
        worlds.done(worlds.AGENT, worlds.program("agent", None, start_error="no bash")),
        "AgentStartFailed",
    ),
    "never started": (worlds.done(worlds.AGENT), "AgentStartFailed"),
    "install failed": (worlds.done(worlds.AGENT, worlds.program("install", 1)), "AgentInstallFailed"),
    "install over its limit": (
        worlds.done(worlds.AGENT, worlds.program("install", None, timed_out=True)),
        "AgentInstallFailed",
    ),
}


@pytest.mark.parametrize(("phases", "reason"), NEVER_WORKED.values(), ids=NEVER_WORKED)
def test_an_agent_that_never_worked_costs_a_try_then_the_run(phases, reason):
    plan = taskrun.decide(worlds.world(worlds.running(), phases=phases))
    assert (worlds.phase_of(plan), plan.effects) == (Phase.QUEUED, (DELETE_POD,))
    assert plan.status is not None
    assert (plan.status.attempts[-1].tries, plan.status.attempts[-1].pod_uid) == (2, None)
    last = taskrun.decide(worlds.world(worlds.running(tries=3), phases=phases))
    failure = worlds.failure_of(last)
    assert (failure.reason, failure.stage, failure.terminal) == (reason, Stage.AGENT, False)
    assert "after 3 tries" in failure.message


OVERDUE = 28_800 + 120 + 1.0


@pytest.mark.parametrize("report", [PhaseActive("x"), PhaseUnreached("no route", 99, 0.0)], ids=["active", "unreached"])
def test_an_agent_without_an_end_is_given_up_well_after_its_limit(report):
    def plan(seeded, asked):
        phases = {worlds.AGENT: replace(report, asked=asked)}
        return taskrun.decide(worlds.world(worlds.running(seeded=seeded), phases=phases))

    assert worlds.phase_of(plan(OVERDUE - 2, OVERDUE - 2)) in (None, Phase.RUNNING), "within its limit"
    assert worlds.phase_of(plan(OVERDUE, 120.0)) in (None, Phase.RUNNING), "this process has only begun to ask"
    late = plan(OVERDUE, 121.0)
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, "DeadlineExceeded")


def test_a_result_counts_however_late_it_is_found():
    phases = worlds.done(worlds.AGENT, worlds.program("agent"))
    late = worlds.running(seeded=OVERDUE + 9999)
    assert taskrun.decide(worlds.world(late, phases=phases)) == CREATE
    plan = taskrun.decide(worlds.world(late, phases=phases, verifier=worlds.verifier()))
    assert worlds.phase_of(plan) is Phase.VERIFYING


def test_the_agents_limit_is_its_scripts_times_the_multiplier_and_its_installation():
    script = {"script": {"run": "x", "install": "y", "timeoutSeconds": 10}}
    world = worlds.world(worlds.running(), agent=script, multipliers={"timeout": 2})
    assert taskrun.sandbox.agent_limit(world) == 10 * 2 + worlds.SETTINGS.limits.install_seconds
    assert taskrun.sandbox.agent_limit(worlds.world(worlds.running(), task=worlds.task("agent.timeout_sec = 7"))) == 7


# -- verification --------------------------------------------------------------------------------------------------


def test_the_verifierrun_is_made_again_until_it_is_seen():
    plan = taskrun.decide(worlds.world(worlds.handed_over(None)))
    assert plan.effects == (plans.CreateVerifierRun(worlds.VERIFIER, 1, Mode.SHARED),)
    assert plan.status is None


def test_the_pod_is_handed_over_by_uid():
    plan = taskrun.decide(worlds.world(worlds.handed_over(None), verifier=worlds.verifier()))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.verifier.uid) == (Phase.VERIFYING, worlds.VERIFIER_UID)
    assert plan.effects == ()


@pytest.mark.parametrize("reason", [Reason.VERIFIER_ERROR, Reason.NAME_CONFLICT])
def test_a_verifierrun_that_cannot_be_made_masks_the_run_at_last(reason):
    refused = worlds.told(reason, seconds_ago=1.0, phase=Phase.CLOSING)
    plan = taskrun.decide(worlds.world(worlds.handed_over(None, seeded=1801.0, conditions=refused)))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, "VerifierError")
    within = taskrun.decide(worlds.world(worlds.handed_over(None, seeded=1799.0, conditions=refused)))
    assert (within.status, worlds.deeds(within)) == (None, ("CreateVerifierRun",))


@pytest.mark.parametrize("reason", [Reason.CLOSING, Reason.INTERNAL])
def test_a_verifierrun_that_nobody_refused_is_made_however_late(reason):
    """The operator was away: it has not asked yet."""
    told = worlds.told(reason, seconds_ago=9000.0, phase=Phase.CLOSING)
    plan = taskrun.decide(worlds.world(worlds.handed_over(None, seeded=9000.0, conditions=told)))
    assert (plan.status, worlds.deeds(plan)) == (None, ("CreateVerifierRun",))


def test_a_verifierrun_that_is_refused_from_the_start_masks_the_run_at_last():
    refused = worlds.told(Reason.VERIFIER_ERROR, seconds_ago=1.0, phase=Phase.RUNNING)
    status = worlds.running(seeded=9000.0, conditions=refused)
    closing = taskrun.decide(worlds.world(status, phases=worlds.done(worlds.AGENT, worlds.program("agent"))))
    assert closing.status is not None

    def plan(seconds):
        return taskrun.decide(worlds.world(closing.status, now=worlds.NOW + timedelta(seconds=seconds)))

    assert plan(1799.0).effects == (plans.CreateVerifierRun(worlds.VERIFIER, 1, Mode.SHARED),)
    late = plan(1801.0)
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, "VerifierError")


@pytest.mark.parametrize("agent", [worlds.ORACLE, worlds.NOP], ids=["agent", "nop"])
def test_an_operator_that_comes_back_late_still_asks_for_the_verification(agent):
    """The agent ended long ago, while no operator lived: the wait for the VerifierRun begins now."""
    phases = worlds.done(worlds.AGENT, worlds.program("agent"), seconds_ago=2000.0)
    late = worlds.running(seeded=9000.0)
    assert taskrun.decide(worlds.world(late, agent=agent, phases=phases)) == CREATE
    told = worlds.told(Reason.VERIFIER_ERROR, seconds_ago=0.0, phase=Phase.RUNNING)
    refused = late.model_copy(update={"conditions": told})
    closing = taskrun.decide(worlds.world(refused, agent=agent, phases=phases))
    assert closing.status is not None
    then = taskrun.decide(worlds.world(closing.status, agent=agent))
    assert then.effects == (plans.CreateVerifierRun(worlds.VERIFIER, 1, Mode.SHARED),)


GONE = {
    "deleted": None,
    "made again by somebody": worlds.verifier(worlds.verdict()).model_copy(
        update={"metadata": worlds.verifier().metadata.model_copy(update={"uid": "another"})}
    ),
}


@pytest.mark.parametrize("verifier", GONE.values(), ids=GONE)
def test_a_verification_that_is_gone_masks_the_run(verifier):
    plan = taskrun.decide(worlds.world(worlds.handed_over(), verifier=verifier))
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.reason, failure.stage) == (
        Phase.MASKED,
        "VerifierRunDeleted",
        Stage.VERIFICATION,
    )


def test_the_verdict_is_copied_whole():
    found = worlds.verdict(warnings=["a hook failed"])
    plan = taskrun.decide(worlds.world(worlds.handed_over(), verifier=worlds.verifier(found)))
    status = plan.status
    assert status is not None
    assert (status.reward, status.rewards, status.reward_components) == ("0.25", {"style": 0.25}, ["style"])
    assert (status.verifier.uid, status.verifier.return_code, status.verifier.mode) == (
        worlds.VERIFIER_UID,
        0,
        "shared",
    )
    assert status.warnings == ["a hook failed"]
    assert (status.timings["verification"], status.timings["total"]) == (2.5, 20.0)
    assert worlds.reason_of(plan) is Reason.VERDICT_REACHED
    assert plan.effects == ()


@pytest.mark.parametrize("phase", [Phase.MASKED, Phase.FAILED])
def test_a_verification_without_a_verdict_gives_none(phase):
    graded = worlds.verifier(worlds.verdict(phase))
    plan = taskrun.decide(worlds.world(worlds.handed_over(), verifier=graded))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.reward, plan.status.masked) == (phase, None, phase is Phase.MASKED)
    assert worlds.reason_of(plan) is Reason.POD_EVICTED


def test_a_cancelled_verification_cancels_the_run():
    graded = worlds.verifier(worlds.verdict(Phase.CANCELLED))
    plan = taskrun.decide(worlds.world(worlds.handed_over(), verifier=graded, cancel=True))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).stage) == (Phase.CANCELLED, Stage.VERIFICATION)


def test_a_reward_of_zero_with_a_kind_counts():
    missing = worlds.Failure(kind="harbor:missing_reward", reason="RewardMissing", message="wrote none")
    graded = worlds.verifier(worlds.verdict(reward="0", failure=missing))
    plan = taskrun.decide(worlds.world(worlds.handed_over(), verifier=graded))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.reward, plan.status.masked) == (Phase.SUCCEEDED, "0", False)
    assert worlds.reason_of(plan) is Reason.REWARD_MISSING


def test_a_verification_that_goes_on_is_left_alone():
    going_on = worlds.verifier(worlds.verifying())
    assert taskrun.decide(worlds.world(worlds.handed_over(), verifier=going_on)) == plans.Plan()


def test_files_that_a_phase_read_do_not_disturb_the_agents_outcome():
    phases = worlds.done(
        worlds.AGENT, worlds.program("agent"), files={"/logs/agent/trajectory.json": FileState.NOT_REGULAR}
    )
    assert taskrun.decide(worlds.world(worlds.running(), phases=phases)) == CREATE
    plan = taskrun.decide(worlds.world(worlds.running(), phases=phases, verifier=worlds.verifier()))
    assert plan.status is not None
    assert plan.status.agent.outcome is AgentOutcome.SUCCEEDED


def test_what_is_said_about_the_agents_files_is_a_warning():
    ended = replace(worlds.result(worlds.AGENT, worlds.program("agent")), notes=("a file is no file",))
    world = worlds.world(worlds.running(), phases={worlds.AGENT: PhaseDone(ended)}, verifier=worlds.verifier())
    plan = taskrun.decide(world)
    assert plan.status is not None
    assert plan.status.warnings == ["a file is no file"]
    assert plan.status.agent.outcome is AgentOutcome.SUCCEEDED


# -- after a break -------------------------------------------------------------------------------------------------


def test_an_operator_that_comes_back_late_asks_the_sandbox_before_it_gives_up():
    """The exchange was begun a moment ago by this process (`PhaseActive()` without a start that it was told of)."""
    late = worlds.running(seeded=OVERDUE + 3600)
    assert worlds.deeds(taskrun.decide(worlds.world(late))) == ("RunPhase",)
    plan = taskrun.decide(worlds.world(late, phases={worlds.AGENT: PhaseActive()}))
    assert worlds.phase_of(plan) is not Phase.MASKED
