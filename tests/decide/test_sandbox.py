"""decide/sandbox.py: from an admitted run to a sandbox that is ready."""

import pytest
from tests.decide import worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalPhase, Stage
from taskfold.decide import plan as plans
from taskfold.decide import sandbox, taskrun
from taskfold.decide.world import Admission, Refusal

CREATE = plans.CreatePod(worlds.POD, 1, 1, record=False)
SAME = Admission(worlds.TASK_DIGEST, worlds.TASK)
OTHER = Admission("sha256:" + "8" * 64, worlds.TASK)

# -- placing -------------------------------------------------------------------------------------------------------

PLACING = {
    "an admitted run gets its pod": ({}, (CREATE,)),
    "its source is still the same": ({"admission": SAME}, (CREATE,)),
    "nobody knows the image's user": ({"image_user": None}, (plans.CreatePod(worlds.POD, 1, 1, record=True),)),
    "a suspended run has none": ({"suspend": True}, ()),
}


@pytest.mark.parametrize(("changes", "effects"), PLACING.values(), ids=PLACING)
def test_a_pod_is_created(changes, effects):
    plan = taskrun.decide(worlds.world(worlds.queued(), **changes))
    assert plan.effects == effects
    assert plan.status is None


def test_a_suspended_run_says_so():
    plan = taskrun.decide(worlds.world(worlds.queued(), suspend=True))
    assert worlds.reason_of(plan) is Reason.SUSPENDED


def test_another_try_is_another_pod():
    plan = taskrun.decide(worlds.world(worlds.queued(tries=2)))
    assert plan.effects == (plans.CreatePod("fix-bug-1-2", 1, 2, record=True),)


@pytest.mark.parametrize(
    ("attempt", "tries", "pause"),
    [(1, 1, 0.0), (1, 2, 2.0), (1, 3, 4.0), (2, 1, 2.0), (2, 2, 4.0), (9, 1, 60.0)],
    ids=["first", "second try", "third try", "second attempt", "its second try", "at most a minute"],
)
def test_a_pod_that_was_given_up_is_not_followed_at_once(attempt, tries, pause):
    """The pause is doubled: what broke a start seldom passes in a moment, and 1,000 runs hit a broken node together."""
    status = worlds.queued(tries=tries)
    made = status.attempts[-1].model_copy(update={"number": attempt, "start_time": worlds.ago(0.0)})
    status = status.model_copy(update={"attempts": [made]})

    def plan(seconds):
        return taskrun.decide(worlds.world(status, now=worlds.in_a_while(seconds)))

    assert worlds.deeds(plan(pause)) == ("CreatePod",)
    if pause:
        early = plan(pause - 0.5)
        assert (early.effects, early.again) == ((), 0.5)


def test_a_moved_tag_is_recorded_anew():
    """The reference leads to an old record; the try was given up because another image runs behind it."""
    given_up = taskrun.decide(worlds.world(worlds.placed(), image_user=None))
    assert given_up.status is not None
    plan = taskrun.decide(worlds.world(given_up.status, pod=None, now=worlds.in_a_while(2)))
    assert plan.effects == (plans.CreatePod("fix-bug-1-2", 1, 2, record=True),)


def test_a_changed_task_is_refused_naming_both_digests():
    plan = taskrun.decide(worlds.world(worlds.queued(), admission=OTHER))
    failure = worlds.failure_of(plan)
    assert (failure.reason, failure.stage, failure.terminal) == ("TaskChanged", Stage.SEED, True)
    assert worlds.TASK_DIGEST in failure.message
    assert OTHER.digest in failure.message


def test_a_task_that_broke_since_admission_is_refused():
    plan = taskrun.decide(worlds.world(worlds.queued(), admission=Refusal("InvalidTask", "broken")))
    assert worlds.failure_of(plan).reason == "InvalidTask"


def test_a_source_that_vanished_since_admission_is_waited_for_within_the_queues_limit():
    gone = Refusal("SourceNotFound", "there is no ConfigMap x", terminal=False)
    plan = taskrun.decide(worlds.world(worlds.queued(), admission=gone))
    assert (worlds.reason_of(plan), plan.effects, plan.again) == (Reason.SOURCE_NOT_FOUND, (), 5)
    late = taskrun.decide(worlds.world(worlds.queued(since=3601.0), admission=gone))
    assert worlds.phase_of(late) is Phase.FAILED


def waited(reason, message="", *, since=3601.0, told=3601.0, **more):
    """The plan of a run that is in the queue since, and whose conditions say this since so many seconds."""
    conditions = worlds.told(reason, message, seconds_ago=told)
    return taskrun.decide(worlds.world(worlds.queued(since=since, conditions=conditions), **more))


@pytest.mark.parametrize("reason", sandbox.QUEUE_REASONS)
def test_a_wait_in_the_queue_ends_with_the_last_words_of_the_conditions(reason):
    failure = worlds.failure_of(waited(reason, "pods=4, used 4"))
    assert (failure.reason, failure.terminal) == (reason.value, False)
    assert "pods=4, used 4" in failure.message


@pytest.mark.parametrize("reason", sorted(set(Reason) - {*sandbox.QUEUE_REASONS, Reason.SUSPENDED}))
def test_words_about_anything_else_are_not_the_reason_of_a_wait(reason):
    failure = worlds.failure_of(waited(reason, "nothing of the queue"))
    assert (failure.reason, failure.message) == ("PodStartTimeout", "no place for the pod within 3600 s.")


def test_a_wait_without_any_words_has_a_reason_too():
    bare = taskrun.decide(worlds.world(worlds.queued(since=3601.0)))
    assert worlds.failure_of(bare).reason == "PodStartTimeout"


def test_a_suspended_run_is_never_late():
    suspended = waited(Reason.SUSPENDED, since=9000.0, told=9000.0, suspend=True)
    assert (worlds.reason_of(suspended), suspended.effects) == (Reason.SUSPENDED, ())
    resumed = waited(Reason.SUSPENDED, since=9000.0, told=9000.0)
    assert resumed.effects == (CREATE,), "nobody has looked at it since"


@pytest.mark.parametrize(("told", "late"), [(3599.0, False), (3601.0, True)], ids=["not yet", "late"])
def test_after_a_suspension_the_queues_time_begins_anew(told, late):
    plan = waited(Reason.QUOTA_EXCEEDED, "no room", since=9000.0, told=told)
    assert (worlds.phase_of(plan) is Phase.FAILED) is late
    assert (plan.effects == (CREATE,)) is not late


def test_the_queues_time_is_of_this_try_also_with_older_conditions():
    status = worlds.queued(since=9000.0, conditions=worlds.told(Reason.RETRYING, seconds_ago=9000.0))

    def plan(try_seconds):
        attempt = status.attempts[-1].model_copy(update={"tries": 2, "try_time": worlds.ago(try_seconds)})
        return taskrun.decide(worlds.world(status.model_copy(update={"attempts": [attempt]})))

    assert worlds.deeds(plan(3599.0)) == ("CreatePod",)
    assert worlds.phase_of(plan(3601.0)) is Phase.FAILED


def test_what_a_pod_waited_for_its_node_is_not_the_time_of_its_start():
    containers = {"phase": "Pending", "containerStatuses": [worlds.waits("ContainerCreating")]}

    def plan(started):
        pod = worlds.seen({**containers, "startTime": worlds.ago(started)}, created=3000.0)
        return taskrun.decide(worlds.world(worlds.placed(since=3000.0), pod=pod))

    assert (worlds.reason_of(plan(899.0)), plan(899.0).again) == (Reason.POD_STARTING, 2.0)
    assert worlds.deeds(plan(901.0)) == ("DeletePod",)


def test_the_queues_limit_counts_from_this_try():
    failed = worlds.done(worlds.AGENT, worlds.program("install", None, timed_out=True))
    second = taskrun.decide(worlds.world(worlds.running(tries=2, since=3700.0, seeded=1801.0), phases=failed))
    assert second.status is not None
    third = taskrun.decide(worlds.world(second.status, pod=None, now=worlds.in_a_while(4)))
    assert worlds.deeds(third) == ("CreatePod",)


# -- adoption ------------------------------------------------------------------------------------------------------


def test_our_pod_is_adopted_with_its_journal():
    plan = taskrun.decide(worlds.world(worlds.queued(), pod=worlds.starting()))
    status = plan.status
    assert status is not None
    assert (status.attempts[-1].pod_name, status.attempts[-1].pod_uid) == (worlds.POD, worlds.POD_UID)
    assert [(each.phase, each.nonce) for each in status.journal] == [
        (JournalPhase.SEED, worlds.FRESH[0]),
        (JournalPhase.AGENT, worlds.FRESH[1]),
    ]
    assert {each.pod_uid for each in status.journal} == {worlds.POD_UID}
    assert plan.effects == ()


@pytest.mark.parametrize("owner", ["", "uid-of-an-older-run"])
def test_somebody_elses_pod_is_never_touched(owner):
    plan = taskrun.decide(worlds.world(worlds.queued(), pod=worlds.starting(owner=owner)))
    assert (worlds.failure_of(plan).reason, worlds.failure_of(plan).terminal) == ("NameConflict", True)
    assert plan.effects == ()


def test_suspend_does_not_act_once_the_pod_exists():
    plan = taskrun.decide(worlds.world(worlds.queued(), pod=worlds.starting(), suspend=True))
    assert plan.status is not None
    assert plan.status.attempts[-1].pod_uid == worlds.POD_UID


# -- waiting for the start -----------------------------------------------------------------------------------------


def failing(reason: str, message: str = "", **more: float):
    return worlds.seen({"phase": "Pending", "containerStatuses": [worlds.waits(reason, message)]}, **more)


STARTS = {
    "unschedulable": (worlds.unscheduled("no room"), Phase.QUEUED, Reason.UNSCHEDULABLE, "no room"),
    "the scheduler has not spoken": (worlds.unscheduled(""), Phase.QUEUED, Reason.POD_STARTING, ""),
    "pulling fails": (
        failing("ErrImagePull", "not found"),
        Phase.SEEDING,
        Reason.IMAGE_PULL_FAILED,
        "container main: ErrImagePull: not found",
    ),
    "starting fails": (
        failing("CreateContainerConfigError", "no Secret x"),
        Phase.SEEDING,
        Reason.CONTAINER_START_FAILED,
        "container main: CreateContainerConfigError: no Secret x",
    ),
    "starting": (worlds.starting(), Phase.SEEDING, Reason.POD_STARTING, "pod fix-bug-1-1 on node node-1"),
}


@pytest.mark.parametrize(("pod", "phase", "reason", "message"), STARTS.values(), ids=STARTS)
def test_a_pod_that_does_not_run_yet_is_waited_for(pod, phase, reason, message):
    plan = taskrun.decide(worlds.world(worlds.placed(Phase.QUEUED), pod=pod))
    assert (worlds.phase_of(plan) or Phase.QUEUED) is phase
    assert (worlds.reason_of(plan), plan.note.message, plan.effects) == (reason, message, ())
    assert plan.again is not None
    assert plan.again > 0


GIVEN_UP = {
    "unschedulable for too long": (worlds.unscheduled("no room"), {"since": 3601.0}, "Unschedulable", False),
    "no pull within the limit": (failing("ErrImagePull", created=601.0), {}, "ImagePullFailed", False),
    "an impossible image name": (failing("InvalidImageName"), {}, "ImagePullFailed", True),
}


@pytest.mark.parametrize(("pod", "changes", "reason", "terminal"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_a_start_that_another_pod_would_not_help_ends_the_run(pod, changes, reason, terminal):
    plan = taskrun.decide(worlds.world(worlds.placed(Phase.QUEUED, **changes), pod=pod))
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.reason, failure.terminal) == (Phase.FAILED, reason, terminal)
    assert failure.stage is Stage.SEED


TRIED_AGAIN = {
    "cannot be started": (failing("StartError", created=31.0), "ContainerStartFailed"),
    "does not start": (worlds.starting(created=901.0), "PodStartTimeout"),
}


@pytest.mark.parametrize(("pod", "reason"), TRIED_AGAIN.values(), ids=TRIED_AGAIN)
def test_a_start_that_another_pod_may_help_costs_a_try(pod, reason):
    plan = taskrun.decide(worlds.world(worlds.placed(), pod=pod))
    assert plan.effects == (plans.DeletePod(worlds.POD, worlds.POD_UID),)
    assert plan.status is not None
    assert plan.status.phase is Phase.QUEUED
    assert plan.note is not None
    assert plan.note.reason is Reason.RETRYING
    assert f"try 2 of 3, because of {reason}" in plan.note.message
    attempt = plan.status.attempts[-1]
    assert (attempt.start_time, attempt.try_time) == (worlds.ago(20), worlds.ago(0))
    assert (attempt.reason, attempt.message, attempt.end_time) == (None, None, None), "the attempt goes on"
    last = taskrun.decide(worlds.world(worlds.placed(tries=3), pod=pod))
    assert worlds.failure_of(last).reason == reason
    assert worlds.failure_of(last).stage is Stage.SEED


def test_tries_are_the_operators_to_choose():
    once = worlds.Settings.model_validate({"limits": {"seedTries": 1}})
    plan = taskrun.decide(worlds.world(worlds.placed(), pod=None, settings=once))
    assert worlds.phase_of(plan) is Phase.FAILED
    assert "at the first try" in worlds.failure_of(plan).message


# -- the image's own user ------------------------------------------------------------------------------------------


def test_a_record_is_stored_under_the_image_that_runs():
    pod = worlds.ready_with_record()
    plan = taskrun.decide(worlds.world(worlds.placed(), pod=pod, image_user=None))
    image_id = "docker.io/library/python@sha256:" + "1" * 64
    assert plan.effects == (plans.StoreImageUser("python:3.12-slim", image_id, pod.record.message),)
    assert plan.again == 0


@pytest.mark.parametrize("pod", [worlds.ready(), worlds.ready_with_record("")], ids=["no record", "an empty one"])
def test_an_unrecorded_image_costs_a_try(pod):
    plan = taskrun.decide(worlds.world(worlds.placed(), pod=pod, image_user=None))
    assert worlds.deeds(plan) == ("DeletePod",)


# -- deadlines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeded", "runs_since", "expected"),
    [(None, 999.0, False), (50.0, 999.0, False), (101.0, 999.0, True)],
    ids=["by no node's clock", "last phase young", "last phase old"],
)
def test_a_phase_counts_from_the_end_of_the_one_before(seeded, runs_since, expected):
    status = worlds.placed(seeded=seeded)
    assert sandbox.overdue(worlds.world(status, pod=worlds.ready(since=runs_since)), 100.0) is expected


def test_without_a_beginning_nothing_is_overdue():
    assert not sandbox.overdue(worlds.world(worlds.placed(), pod=worlds.starting()), 0.0)


@pytest.mark.parametrize(
    ("seeded", "runs_since", "expected"),
    [(None, 50.0, 221.0), (50.0, 999.0, 171.0), (220.0, 999.0, 1.0), (9000.0, 9999.0, 1.0)],
    ids=["the first phase", "last phase", "just now", "long ago"],
)
def test_what_is_left_of_a_phase_is_never_nothing(seeded, runs_since, expected):
    world = worlds.world(worlds.placed(seeded=seeded), pod=worlds.ready(since=runs_since))
    assert sandbox.left(world, 100.0) == expected


def test_without_a_beginning_all_is_left():
    assert sandbox.left(worlds.world(worlds.placed(), pod=worlds.starting()), 100.0) == 221.0


def test_waiting_for_a_pod_that_is_not_there_is_a_mistake():
    with pytest.raises(ValueError, match="not there"):
        sandbox.await_start(worlds.world(worlds.placed(), pod=None), worlds.placed().attempts[-1])
