"""decide/regrade.py: a complete run graded again from what it left (C36)."""

from datetime import timedelta

import pytest
from tests.decide import apart, worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Mode, VerifierStatus
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.contract import folder, loader
from taskfold.contract.errors import TaskError
from taskfold.contract.task_toml import VerifierMode
from taskfold.decide import plan as plans
from taskfold.decide import regrade, verifierrun
from taskfold.decide import status as to
from taskfold.decide.world import Admission, PhaseActive, Refusal
from taskfold.protocol.artifacts import Entry, Manifest, Status


def decide(status=None, **changes):
    return verifierrun.decide(apart.regrade_world(status, **changes))


SHARED = apart.complete_run(verifier=VerifierStatus(mode=Mode.SHARED, name=worlds.VERIFIER, uid=worlds.VERIFIER_UID))
UNGRADED = apart.complete_run(verifier=None)
TOO_LARGE = Entry("/app/big", "app/big", Status.SKIPPED, path="/app/big", reason="over the limit")
STEPS = Admission(worlds.TASK_DIGEST, apart.STEPPED)
NO_FOLDER = Admission(worlds.TASK_DIGEST, None)
LOST = Manifest((apart.MISSING, apart.KEPT, apart.FAILED, TOO_LARGE))


def test_it_begins_with_the_kept_artifacts():
    plan = decide()
    status = plan.status
    assert status is not None
    assert (status.phase, status.store, plan.again) == (Phase.QUEUED, apart.REGRADE_PLACE, 0)
    assert plan.effects == (plans.StoreSnapshot(worlds.TASK_DIGEST),)
    assert status.admitted is not None
    assert status.admitted.task_digest == worlds.TASK_DIGEST
    assert (status.journal, status.warnings) == ([], [])


def test_whether_its_run_is_still_there_is_looked_at_soon():
    """Nobody watches a complete run."""
    plan = decide(apart.verifying(), phases={apart.VERIFY: PhaseActive(worlds.ago(1), asked=1.0)})
    assert plan.status is None or plan.status.failure is None
    assert plan.again is not None
    assert plan.again <= regrade.RUN_LOOK_SECONDS


def test_it_waits_for_a_run_that_is_not_complete():
    for run in (worlds.run(worlds.running()), apart.run(), worlds.run(worlds.ended())):
        plan = decide(run=run)
        assert (plan.status, plan.effects, worlds.reason_of(plan)) == (None, (), Reason.AWAITING_RUN)
        assert plan.again == regrade.LOOK_SECONDS


REFUSED = {
    "mode shared": ({"spec": {"mode": "shared"}}, "Write separate"),
    "no folder": ({"task": None, "regraded": NO_FOLDER}, "not kept any more"),
    "no image": ({"own": None}, "[verifier.environment]"),
    "no such step": (
        {"task": None, "regraded": STEPS, "spec": {"step": "four"}},
        "no step four. It has: one, two, three",
    ),
    "a step of none": ({"task": None, "spec": {"step": "one"}}, "no step one. Leave it out"),
    "which step": ({"own": None, "regraded": STEPS}, "Name one: one, two, three"),
    "no artifacts": ({"manifest": None}, "no artifacts of the run are kept"),
    "graded in the agent's sandbox": ({"run": SHARED}, "spec.force"),
    "not graded at all": ({"run": UNGRADED}, "spec.force"),
    "artifacts lost": ({"manifest": LOST}, "/app/pipe was not kept: a FIFO"),
    "artifacts over a limit": ({"manifest": LOST}, "/app/big was not kept: over the limit"),
    "the agent's pod is kept and runs": ({"pod": worlds.ready()}, "Delete it first"),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_graded_again_is_refused(changes, words):
    plan = decide(**changes)
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.reason, failure.terminal) == (Phase.FAILED, "NotGradable", True)
    assert words in failure.message
    assert plan.status is not None
    assert plan.status.complete


def test_what_is_named_may_come_later_or_be_wrong():
    waits = decide(regraded=Refusal("SourceNotFound", "no ConfigMap tests", terminal=False))
    assert (waits.status, worlds.reason_of(waits)) == (None, Reason.SOURCE_NOT_FOUND)
    assert waits.again == regrade.SOURCE_SECONDS
    refused = worlds.failure_of(decide(regraded=Refusal("NotGradable", "spec.tests: holds neither")))
    assert (refused.reason, refused.message) == ("NotGradable", "spec.tests: holds neither")
    assert decide(regraded=None).again == regrade.SOURCE_SECONDS


def test_missing_artifacts_are_no_loss():
    assert worlds.phase_of(decide(manifest=Manifest((apart.MISSING,)))) is Phase.QUEUED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": SHARED}, "in the agent's live sandbox"),
        ({"run": UNGRADED}, "or not at all"),
        ({"manifest": LOST}, "FIFO"),
    ],
    ids=["shared", "not at all", "lost"],
)
def test_force_grades_and_says_so(changes, words):
    """C36."""
    plan = decide(spec={"force": True}, **changes)
    assert plan.status is not None
    assert plan.status.phase is Phase.QUEUED
    assert plan.status.warnings
    assert all(note.startswith("forced: ") for note in plan.status.warnings)
    assert any(words in note for note in plan.status.warnings)


@pytest.mark.parametrize("changes", [REFUSED[name][0] for name in list(REFUSED)[:4]], ids=list(REFUSED)[:4])
def test_force_makes_nothing_out_of_nothing(changes):
    spec = {"force": True} | changes.get("spec", {})
    assert worlds.failure_of(decide(**changes | {"spec": spec})).reason == "NotGradable"


UNFIT = {
    "an own table without one": (
        'environment.docker_image = "a"\n[verifier.environment]\ncpus = 1\n',
        {},
        "beside a table of its own the task's is not used",
    ),
    "only the agent's Dockerfile": ("", {"environment/Dockerfile": "FROM a\n"}, "is the agent's alone"),
}


@pytest.mark.parametrize(("toml", "files", "words"), UNFIT.values(), ids=UNFIT)
def test_a_shared_task_without_an_image_for_a_verifier_names_field_and_remedy(toml, files, words):
    """Whatever spec.force says: it is the folder that cannot be loaded for a pod of the verifier's own."""
    texts = {"task.toml": toml, "instruction.md": "x\n", "tests/test.sh": "true\n", **files}
    source = folder.MemoryFolder({path: (text.encode(), False) for path, text in texts.items()})
    assert loader.load(source, task_id="a", terms=loader.Terms(VerifierMode.SHARED)).separate is None
    with pytest.raises(TaskError) as caught:
        loader.load(source, task_id="a", terms=loader.Terms(VerifierMode.SEPARATE))
    message = regrade.unfit(caught.value)
    assert message is not None
    for text in ("task.toml: verifier.environment.docker_image: ", words, "spec.force does not", "Name an image there"):
        assert text in message
    assert 'environment_mode = "shared"' not in message


@pytest.mark.parametrize("field", [None, "artifacts"])
def test_other_problems_of_a_folder_are_told_as_they_are(field):
    assert regrade.unfit(TaskError("is wrong", file="task.toml", field=field, remedy="Mend it.")) is None


def test_a_pod_that_the_run_keeps_is_not_touched():
    """podRetention of a run that was graded in its agent's sandbox; its containers have ended."""
    ended = worlds.seen({"phase": "Failed", "containerStatuses": [worlds.stopped("Error", 143)]})
    spec = {"force": True}
    assert worlds.phase_of(decide(run=SHARED, pod=ended, spec=spec)) is Phase.QUEUED
    then = decide(apart.queued(store=apart.REGRADE_PLACE), run=SHARED, pod=ended, spec=spec)
    assert worlds.deeds(then) == ("CreatePod",)


def test_it_goes_on_like_any_separate_verification():
    queued = apart.queued(store=apart.REGRADE_PLACE)
    assert worlds.deeds(decide(queued)) == ("CreatePod",)
    own = apart.pod(owner_uid=apart.REGRADE_UID)
    placed = apart.placed(Phase.QUEUED, agent_stopped_time=None, store=apart.REGRADE_PLACE)
    proven = verifierrun.decide(apart.regrade_world(placed))
    assert proven.status is not None
    assert proven.status.agent_stopped_time == worlds.ago(0)
    assert own.owner_uid == apart.REGRADE_UID


@pytest.mark.parametrize("owner", [{"kind": "EvalRun"}, {"controller": False}, {"uid": "older"}], ids=str)
def test_only_the_operators_own_is_no_regrade(owner):
    reference = {"kind": "TaskRun", "name": worlds.NAME, "uid": worlds.UID, "controller": True} | owner
    made = worlds.verifier(mode="separate").wire()
    made["metadata"]["ownerReferences"] = [{"apiVersion": "taskfold.dev/v1alpha1", **reference}]
    verifier = type(worlds.verifier()).parse(made)
    assert not verifierrun.made_for(verifier, apart.complete_run())
    assert verifierrun.made_for(worlds.verifier(), apart.complete_run())


def test_a_run_that_is_gone_cannot_be_graded():
    plan = decide(run=None)
    assert worlds.failure_of(plan).reason == "SourceNotFound"
    assert plan.effects == ()
    assert isinstance(plan, plans.Plan)


@pytest.mark.parametrize(
    ("ttl", "age", "effects", "again"),
    [
        (None, 1e6, (), None),
        (60, 20, (), 40.1),
        (60, 60, (plans.DeleteRun(apart.REGRADE_UID),), None),
        (0, 0, (plans.DeleteRun(apart.REGRADE_UID),), None),
    ],
    ids=["no limit", "not yet", "over", "at once"],
)
def test_a_complete_one_lives_for_its_time(ttl, age, effects, again):
    status = VerifierRunStatus(complete=True, completion_time=to.stamp(worlds.NOW - timedelta(seconds=age)))
    plan = decide(status, spec={} if ttl is None else {"ttlSecondsAfterFinished": ttl})
    assert (plan.status, plan.effects) == (None, effects)
    assert plan.again == pytest.approx(again)


def test_one_that_a_run_made_goes_with_it_whatever_it_says():
    status = VerifierRunStatus(complete=True, completion_time=to.stamp(worlds.NOW - timedelta(days=1)))
    made = worlds.verifier(status, mode="separate", ttlSecondsAfterFinished=0)
    assert decide(status, verifier=made) == plans.NOTHING


def test_a_time_to_live_does_not_count_before_the_end():
    status = apart.queued(store=apart.REGRADE_PLACE)
    assert "DeleteRun" not in worlds.deeds(decide(status, spec={"ttlSecondsAfterFinished": 0}))


NAMED = {"source": {"runRef": {"name": worlds.NAME}}}


def test_a_name_alone_means_the_run_that_has_it_when_it_is_first_looked_at():
    found = decide(spec=NAMED)
    assert found.status is not None
    assert (found.status.run_uid, found.status.admitted, found.effects, found.again) == (worlds.UID, None, (), 0)
    begun = decide(found.status, spec=NAMED, manifest=apart.MANIFEST)
    assert begun.status is not None
    assert (worlds.phase_of(begun), begun.status.run_uid) == (Phase.QUEUED, worlds.UID)


@pytest.mark.parametrize("status", [VerifierRunStatus(), apart.queued(store=apart.REGRADE_PLACE)], ids=["new", "begun"])
def test_another_run_that_has_the_name_later_is_not_meant(status):
    known = status.model_copy(update={"run_uid": worlds.UID})
    run = apart.complete_run()
    other = run.model_copy(update={"metadata": run.metadata.model_copy(update={"uid": "another"})})
    failure = worlds.failure_of(decide(known, spec=NAMED, run=other))
    assert (failure.reason, failure.terminal) == ("SourceNotFound", True)
    assert worlds.UID in failure.message


def test_a_name_that_nothing_has_is_refused():
    failure = worlds.failure_of(decide(spec=NAMED, run=None))
    assert failure.reason == "SourceNotFound"
    assert failure.message == f"there is no TaskRun {worlds.NAME} in this namespace"
