"""decide/separate_ending.py: verdict → logs in the store → its pod gone or kept → complete."""

import pytest
from tests.decide import apart, worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.decide import plan as plans
from taskfold.decide import separate_ending, verifierrun
from taskfold.decide.world import CopyActive, CopyFailed

KEEP = plans.KeepLogs(worlds.PREFIX, reachable=True)
DELETE = plans.DeletePod(apart.OWN, apart.OWN_UID)
FINAL = [phase for phase in Phase if phase.final]
LATE = worlds.SETTINGS.limits.deletion_seconds + 1


def decide(status=None, **changes):
    return verifierrun.decide(apart.world(status or apart.over(), **changes))


@pytest.mark.parametrize("phase", FINAL)
def test_logs_are_kept_before_anything_goes(phase):
    plan = decide(apart.over(phase))
    assert (plan.status, plan.effects, worlds.reason_of(plan)) == (None, (KEEP,), Reason.CLEANUP_PENDING)
    assert plan.again == separate_ending.LOOK_SECONDS


REACHABLE = {
    "ready": (apart.pod(), True),
    "gone": (None, False),
    "lost": (apart.pod(worlds.oom_killed()), False),
    "being deleted": (apart.pod(worlds.ready(deletionTimestamp=worlds.ago(1))), False),
    "starting": (apart.pod(worlds.starting()), False),
    "somebody else's": (apart.pod(owner_uid="another"), False),
}


@pytest.mark.parametrize(("found", "reachable"), REACHABLE.values(), ids=REACHABLE)
def test_they_are_copied_only_out_of_its_own_pod(found, reachable):
    assert decide(own_pod=found).effects == (plans.KeepLogs(worlds.PREFIX, reachable),)


COPIES = {
    "active": (CopyActive(), (), Reason.CLEANUP_PENDING),
    "broken": (CopyFailed("StoreUnavailable", "503", 0.0, 9.0), (KEEP,), Reason.STORE_UNAVAILABLE),
    "broken, a pause": (CopyFailed("StoreUnavailable", "503", 4.0, 9.0), (), Reason.STORE_UNAVAILABLE),
    "broken otherwise": (CopyFailed("TransferFailed", "reset", 0.0, 9.0), (KEEP,), Reason.TRANSFER_FAILED),
}


@pytest.mark.parametrize(("report", "effects", "reason"), COPIES.values(), ids=COPIES)
def test_a_copy_is_waited_for_however_long_the_store_is_away(report, effects, reason):
    plan = decide(copy=report)
    assert (plan.status, plan.effects, worlds.reason_of(plan)) == (None, effects, reason)
    assert plan.again is not None
    assert plan.again >= 1.0


RETENTION = {
    ("Never", Phase.SUCCEEDED): True,
    ("Never", Phase.MASKED): True,
    ("OnFailure", Phase.SUCCEEDED): True,
    ("OnFailure", Phase.MASKED): False,
    ("OnFailure", Phase.CANCELLED): False,
    ("Always", Phase.SUCCEEDED): False,
}


@pytest.mark.parametrize(
    ("retention", "phase", "removed"), [(*case, removed) for case, removed in RETENTION.items()], ids=str
)
def test_its_pod_goes_unless_the_run_keeps_pods(retention, phase, removed):
    plan = decide(apart.over(phase), kept=apart.INDEX, run=apart.run(podRetention=retention))
    if removed:
        assert (plan.status, plan.effects, plan.again) == (None, (DELETE,), separate_ending.LOOK_SECONDS)
    else:
        assert plan.status is not None
        assert plan.status.complete


def test_of_a_run_that_is_gone_nothing_is_kept():
    assert decide(kept=apart.INDEX, run=None, pod=None).effects == (DELETE,)


def test_a_pod_on_its_way_out_is_not_deleted_again():
    leaving = apart.pod(worlds.ready(deletionTimestamp=worlds.ago(1)))
    plan = decide(kept=apart.INDEX, own_pod=leaving)
    assert (plan.status, plan.effects, plan.again) == (None, (), separate_ending.LOOK_SECONDS)


GONE = {
    "gone": None,
    "stuck": apart.pod(worlds.ready(deletionTimestamp=worlds.ago(LATE))),
    "somebody else's": apart.pod(owner_uid="another"),
}


@pytest.mark.parametrize("found", GONE.values(), ids=GONE)
def test_it_is_complete_after(found):
    plan = decide(kept=apart.INDEX, own_pod=found)
    status = plan.status
    assert status is not None
    assert (status.complete, status.completion_time, status.journal) == (True, worlds.ago(0), [])
    assert (status.phase, status.reward, plan.again) == (Phase.SUCCEEDED, "1", None)
    assert plan.effects == (plans.ForgetPhases((apart.SEED, apart.VERIFY)),)


def test_logs_that_could_not_be_kept_are_a_warning():
    plan = decide(kept={"archive": None, "error": "CollectFailed: no route"}, own_pod=None)
    assert plan.status is not None
    assert plan.status.complete
    assert plan.status.warnings == [
        "not all of the verifier's logs could be kept: CollectFailed: no route; the outcome stands"
    ]


def test_one_that_never_had_a_pod_has_nothing_to_keep_but_says_so():
    cancelled = apart.closing(phase=Phase.CANCELLED)
    assert decide(cancelled).effects == (plans.KeepLogs(worlds.PREFIX, reachable=False),)
    assert decide(cancelled, kept=apart.INDEX).status.complete


def test_one_without_a_place_in_the_store_is_complete_all_the_same():
    plan = decide(apart.over(store=None), own_pod=None)
    assert plan.status is not None
    assert plan.status.complete


@pytest.mark.parametrize("phase", FINAL)
@pytest.mark.parametrize(
    "changes", [{"cancel": True}, {"spec_digest": "sha256:other"}, {"pod": worlds.ready()}], ids=lambda c: next(iter(c))
)
def test_nothing_changes_a_verdict_any_more(phase, changes):
    status = apart.over(phase)
    assert decide(status, **changes).status is None
    done = decide(status, kept=apart.INDEX, own_pod=None, **changes).status
    assert done is not None
    assert (done.phase, done.reward, done.failure) == (status.phase, status.reward, status.failure)
