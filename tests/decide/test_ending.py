"""decide/ending.py: verdict → files → row → pod gone or kept → complete → time to live."""

import pytest
from tests.decide import worlds

from taskfold.api.conditions import Condition
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Stage
from taskfold.decide import ending, taskrun
from taskfold.decide import plan as plans
from taskfold.decide import status as to

KEPT = {"error": "", "files": {"key": "files.tar"}}
STORED = {"collected": KEPT, "row_stored": True}
DELETE_POD = plans.DeletePod(worlds.POD, worlds.POD_UID)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.final])
def test_every_ending_collects_first_and_deletes_nothing_yet(phase):
    plan = taskrun.decide(worlds.world(worlds.ended(phase)))
    assert plan.effects == (plans.Collect(worlds.PREFIX, reachable=True),)
    assert worlds.reason_of(plan) is Reason.CLEANUP_PENDING
    assert (plan.status, plan.again) == (None, ending.COPY_LOOK_SECONDS)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.final])
def test_the_row_follows_the_files_and_comes_before_the_pod_goes(phase):
    plan = taskrun.decide(worlds.world(worlds.ended(phase), collected=KEPT))
    assert plan == plans.Plan(effects=(plans.StoreRow(worlds.PREFIX),), again=0)


def test_the_row_tells_what_could_not_be_kept():
    lost = {"error": "CollectFailed: no route", "files": None}
    (row,) = taskrun.decide(worlds.world(worlds.ended(), collected=lost)).effects
    assert row == plans.StoreRow(
        worlds.PREFIX, ("not all files could be kept: CollectFailed: no route; the outcome stands",)
    )


REACHABLE = {
    "ready": (worlds.ready(), True),
    "gone": (None, False),
    "lost": (worlds.oom_killed(), False),
    "replaced": (worlds.ready(uid="another"), False),
    "being deleted": (worlds.ready(deletionTimestamp=worlds.ago(0)), False),
    "starting": (worlds.starting(), False),
}


@pytest.mark.parametrize(("pod", "reachable"), REACHABLE.values(), ids=REACHABLE)
def test_files_are_copied_only_out_of_the_pod_that_worked(pod, reachable):
    plan = taskrun.decide(worlds.world(worlds.ended(), pod=pod))
    assert plan.effects[0] == plans.Collect(worlds.PREFIX, reachable=reachable)


def test_a_run_refused_before_admission_gets_its_place_in_the_store_first():
    refused = worlds.TaskRunStatus(phase=Phase.FAILED)
    plan = taskrun.decide(worlds.world(refused))
    assert plan.status is not None
    assert (plan.status.store, plan.effects, plan.again) == (worlds.PREFIX, (), 0)
    then = taskrun.decide(worlds.world(plan.status))
    assert then.effects == (plans.Collect(worlds.PREFIX, reachable=False),)


def test_an_unfinished_verification_is_cancelled_once_and_waited_for():
    status = worlds.handed_over(phase=Phase.FAILED)
    going_on = worlds.verifier(worlds.verifying())
    assert taskrun.decide(worlds.world(status, verifier=going_on)).effects == (
        plans.CancelVerifierRun(worlds.VERIFIER),
    )
    asked = worlds.verifier(worlds.verifying(), cancel=True)
    plan = taskrun.decide(worlds.world(status, verifier=asked))
    assert (plan.effects, plan.again) == ((), ending.LOOK_SECONDS)


RETENTION = {
    ("Never", Phase.SUCCEEDED): True,
    ("Never", Phase.FAILED): True,
    ("OnFailure", Phase.SUCCEEDED): True,
    ("OnFailure", Phase.FAILED): False,
    ("OnFailure", Phase.MASKED): False,
    ("OnFailure", Phase.CANCELLED): False,
    ("Always", Phase.SUCCEEDED): False,
    ("Always", Phase.MASKED): False,
}


@pytest.mark.parametrize(
    ("retention", "phase", "removed"), [(*case, removed) for case, removed in RETENTION.items()], ids=str
)
def test_the_pod_goes_once_files_are_kept_unless_it_is_retained(retention, phase, removed):
    plan = taskrun.decide(worlds.world(worlds.ended(phase), **STORED, podRetention=retention))
    if removed:
        assert plan.effects == (DELETE_POD,)
        assert plan.status is None
    else:
        assert plan.status is not None
        assert plan.status.complete


def test_a_pod_on_its_way_out_is_not_deleted_again():
    leaving = worlds.ready(deletionTimestamp=worlds.ago(3))
    plan = taskrun.decide(worlds.world(worlds.ended(), **STORED, pod=leaving))
    assert (plan.effects, plan.again) == ((), ending.LOOK_SECONDS)


def test_a_pod_that_does_not_go_is_left_with_a_warning():
    stuck = worlds.ready(deletionTimestamp=worlds.ago(121))
    plan = taskrun.decide(worlds.world(worlds.ended(), **STORED, pod=stuck))
    assert plan.status is not None
    assert plan.status.complete
    assert "did not go away in time" in plan.status.warnings[0]


def test_somebody_elses_pod_is_left_alone():
    plan = taskrun.decide(worlds.world(worlds.ended(), **STORED, pod=worlds.ready(owner="another")))
    assert plan.status is not None
    assert plan.status.complete
    assert worlds.deeds(plan) == ("ForgetPhases",)


def test_completion_is_the_last_write_and_forgets_the_phases():
    graded = worlds.verifier(worlds.verdict())
    plan = taskrun.decide(worlds.world(worlds.ended(), **STORED, pod=None, verifier=graded))
    assert plan.effects == (plans.ForgetPhases((worlds.SEED, worlds.AGENT, worlds.VERIFY)),)
    status = plan.status
    assert status is not None
    assert (status.complete, status.completion_time, status.journal) == (True, to.stamp(worlds.NOW), [])
    assert (status.phase, status.reward) == (Phase.SUCCEEDED, "1")


def test_files_that_could_not_be_kept_do_not_keep_the_run_from_completing():
    lost = {"error": "CollectFailed: no route", "files": None}
    plan = taskrun.decide(worlds.world(worlds.ended(), collected=lost, row_stored=True, pod=None))
    assert plan.status is not None
    assert plan.status.complete
    assert plan.status.warnings == ["not all files could be kept: CollectFailed: no route; the outcome stands"]
    assert plan.note is not None
    assert plan.note.message == plan.status.warnings[0]
    assert plan.status.reward == "1"


# -- time to live --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttl", "age", "effects", "again"),
    [
        (None, 1e6, (), None),
        (60, 20, (), 40.1),
        (60, 60, (plans.DeleteRun(worlds.UID),), None),
        (0, 0, (plans.DeleteRun(worlds.UID),), None),
    ],
    ids=["no limit", "not yet", "over", "at once"],
)
def test_a_complete_run_lives_for_its_time(ttl, age, effects, again):
    spec = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    plan = taskrun.decide(worlds.world(worlds.complete(age), **spec))
    assert (plan.status, plan.effects) == (None, effects)
    assert plan.again == pytest.approx(again)


def test_a_time_to_live_does_not_count_before_completion():
    plan = taskrun.decide(worlds.world(worlds.ended(), ttlSecondsAfterFinished=0))
    assert "DeleteRun" not in worlds.deeds(plan)


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "stage"), [(None, Stage.ADMISSION), (worlds.queued(), Stage.SEED)], ids=["new", "admitted"]
)
def test_a_refused_effect_ends_the_run_for_good(status, stage):
    plan = ending.refuse(worlds.world(status), Reason.POD_REJECTED, "no")
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.stage, failure.terminal) == (Phase.FAILED, stage, True)


def test_conditions_are_not_written_here():
    """They are computed from the status in one place, `engine.status`."""
    before = [Condition(type="Succeeded", status="True", reason="VerdictReached", last_transition_time=worlds.ago(1))]
    plan = taskrun.decide(worlds.world(worlds.ended(conditions=before), **STORED, pod=None))
    assert plan.status is not None
    assert plan.status.conditions == before
