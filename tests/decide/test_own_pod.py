"""decide/own_pod.py: the pod of a separate verification, its waits and its tries; every wait ends."""

import pytest
from tests.decide import apart, worlds

from taskfold.api import conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalPhase
from taskfold.decide import own_pod, sandbox, verifierrun
from taskfold.decide import plan as plans

LIMITS = worlds.SETTINGS.limits
DELETE_OWN = plans.DeletePod(apart.OWN, apart.OWN_UID)
DELETE_AGENT = plans.DeletePod(worlds.POD, worlds.POD_UID)


def decide(status, **changes):
    return verifierrun.decide(apart.world(status, **{"pod": None, **changes}))


def create(tries=1, *, record=False):
    return plans.CreatePod(apart.OWN, 1, tries, record=record)


# -- creation ------------------------------------------------------------------------------------------------------


def test_it_is_created():
    assert decide(apart.queued()) == plans.Plan(effects=(create(),), again=10)


def test_an_image_whose_user_is_not_known_tells_it():
    assert decide(apart.queued(), own_image_user=None).effects == (create(record=True),)


def test_a_further_try_tells_it_again():
    """The record may be that of another image under the same name."""
    status = apart.queued(attempts=[apart.attempt(pod=False, tries=2, try_time=worlds.ago(60))])
    assert decide(status).effects == (create(2, record=True),)


def test_a_further_try_is_a_moment_later_and_the_agents_pod_goes_all_the_same():
    status = apart.queued(attempts=[apart.attempt(pod=False, tries=2, try_time=worlds.ago(1))])
    plan = decide(status, pod=worlds.ready())
    assert plan == plans.Plan(effects=(DELETE_AGENT,), again=LIMITS.retry_seconds - 1)


def test_the_pod_that_was_created_before_a_crash_is_adopted():
    plan = decide(apart.queued(), own_pod=apart.pod())
    status = plan.status
    assert status is not None
    assert (plan.effects, plan.again, status.pod_name) == ((), 0, apart.OWN)
    (attempt,) = status.attempts
    assert (attempt.pod_name, attempt.pod_uid, attempt.node_name) == (apart.OWN, apart.OWN_UID, "node-1")
    entries = [(each.phase, each.nonce, each.pod_uid) for each in status.journal]
    assert entries == [
        (JournalPhase.SEED, worlds.FRESH[0], apart.OWN_UID),
        (JournalPhase.VERIFY, worlds.FRESH[1], apart.OWN_UID),
    ]


def test_a_pod_of_somebody_elses_is_never_taken():
    plan = decide(apart.queued(), own_pod=apart.pod(owner_uid="another"))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, "NameConflict")
    assert plan.effects == ()


def test_one_that_is_going_away_is_waited_for():
    """As of a VerifierRun that was deleted and made again under the same name."""
    leaving = apart.pod(worlds.ready(deletionTimestamp=worlds.ago(1)), owner_uid="older")
    plan = decide(apart.queued(), own_pod=leaving)
    assert (plan.status, plan.effects, worlds.reason_of(plan)) == (None, (), Reason.NAME_CONFLICT)
    late = decide(apart.queued(), own_pod=leaving, now=worlds.in_a_while(LIMITS.queue_seconds + 1))
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, "NameConflict")


# -- the queue -----------------------------------------------------------------------------------------------------

OLD = apart.attempt(pod=False, start_time=worlds.ago(10 * LIMITS.queue_seconds))


def waiting(reason, message="", *, seconds_ago=5.0):
    told = worlds.told(reason, message, seconds_ago=seconds_ago)
    return [*told, *(each for each in apart.collected(LIMITS.queue_seconds) if each.type not in {c.type for c in told})]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Reason.QUOTA_EXCEEDED, "QuotaExceeded"),
        (Reason.STORE_UNAVAILABLE, "StoreUnavailable"),
        (Reason.POD_STARTING, "PodStartTimeout"),
    ],
)
def test_a_place_that_is_not_found_in_time_masks_and_keeps_the_artifacts(reason, expected):
    def plan(more):
        status = apart.queued(conditions=waiting(reason, "pods: 9 of 9"), attempts=[OLD])
        return decide(status, now=worlds.in_a_while(more))

    assert plan(0).effects == (create(),), "within its time"
    late = plan(1)
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, expected)
    assert "taskfold regrade fix-bug" in worlds.failure_of(late).message


def test_what_the_artifacts_took_is_no_waiting():
    assert decide(apart.queued(attempts=[OLD], conditions=apart.collected(5))).effects == (create(),)
    late = decide(apart.queued(attempts=[OLD], conditions=apart.collected(LIMITS.queue_seconds + 1)))
    assert worlds.phase_of(late) is Phase.MASKED


# -- the start -----------------------------------------------------------------------------------------------------

PULLING = worlds.waits("ErrImagePull", "no such image")
UNNAMED = worlds.waits("InvalidImageName", "Couldn't parse image name")
FAILING = worlds.waits("CreateContainerError", "no such device")
FORBIDDEN = worlds.waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
CREATING = worlds.waits("ContainerCreating")


def at(seconds, *containers):
    """Its pod, created so long ago."""
    return apart.starting(*containers, created=seconds)


def queued_pod(seconds):
    return apart.pod(worlds.unscheduled(created=seconds))


WAITS = {
    "no node": (queued_pod(60), Reason.UNSCHEDULABLE, None),
    "its image is not there": (at(60, PULLING), Reason.IMAGE_PULL_FAILED, Phase.SEEDING),
    "its container does not start": (at(20, FAILING), Reason.CONTAINER_START_FAILED, Phase.SEEDING),
    "it has only begun": (at(1, CREATING), None, None),
    "it starts": (at(60, CREATING), Reason.POD_STARTING, Phase.SEEDING),
}


@pytest.mark.parametrize(("found", "reason", "phase"), WAITS.values(), ids=WAITS)
def test_a_pod_that_does_not_run_yet_is_waited_for(found, reason, phase):
    plan = decide(apart.placed(Phase.QUEUED), own_pod=found)
    assert (worlds.phase_of(plan), worlds.reason_of(plan), plan.effects) == (phase, reason, ())
    assert plan.again is not None
    assert plan.again > 0


GIVEN_UP = {
    "no image of such a name": (at(1, UNNAMED), "ImagePullFailed"),
    "no image": (at(LIMITS.image_pull_seconds + 1, PULLING), "ImagePullFailed"),
    "an image of root under a profile without": (at(1, FORBIDDEN), "ForbiddenByProfile"),
}


@pytest.mark.parametrize(("found", "reason"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_a_pod_that_will_never_run_masks(found, reason):
    plan = decide(apart.placed(Phase.QUEUED), own_pod=found)
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, reason)
    assert "taskfold regrade fix-bug" in worlds.failure_of(plan).message


def test_build_timeout_sec_of_the_verifiers_own_table_bounds_pull_and_start():
    table = "verifier.environment = {docker_image = 'checker:1', build_timeout_sec = 30}"
    own = worlds.task("environment.build_timeout_sec = 3000", table)
    status = apart.placed(Phase.QUEUED)
    assert decide(status, task=own, own_pod=at(29, PULLING)).again == 2
    late = decide(status, task=own, own_pod=at(31, PULLING))
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, "ImagePullFailed")
    (slow,) = decide(status, task=own, own_pod=at(31, CREATING)).status.attempts
    assert slow.tries == 2


def test_a_pod_without_a_node_is_given_up_like_one_without_a_place():
    began = apart.attempt(start_time=worlds.ago(LIMITS.queue_seconds + 9))
    status = apart.placed(Phase.QUEUED, conditions=apart.collected(LIMITS.queue_seconds + 1), attempts=[began])
    plan = decide(status, own_pod=queued_pod(LIMITS.queue_seconds))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, "Unschedulable")


ANOTHER = {
    "its container does not start": (at(sandbox.START_FAILING_SECONDS + 1, FAILING), "ContainerStartFailed"),
    "it takes too long": (at(LIMITS.pod_start_seconds + 1, CREATING), "PodStartTimeout"),
    "it is lost": (apart.pod(worlds.rejected("OutOfcpu")), "PodNotAdmitted"),
}


@pytest.mark.parametrize(("found", "reason"), ANOTHER.values(), ids=ANOTHER)
def test_a_pod_that_may_run_elsewhere_is_followed_by_another(found, reason):
    plan = decide(apart.placed(Phase.QUEUED), own_pod=found)
    assert plan.status is not None
    assert (plan.status.phase, plan.effects) == (Phase.QUEUED, (DELETE_OWN,))
    (attempt,) = plan.status.attempts
    assert (attempt.number, attempt.tries, attempt.pod_uid, attempt.try_time) == (1, 2, None, worlds.ago(0))
    last = decide(apart.placed(Phase.QUEUED, attempts=[apart.attempt(tries=LIMITS.seed_tries)]), own_pod=found)
    failure = worlds.failure_of(last)
    assert (worlds.phase_of(last), failure.reason, failure.kind) == (Phase.MASKED, reason, "provider_unavailable")


# -- its image's own user ------------------------------------------------------------------------------------------


def test_the_record_of_its_image_is_kept():
    plan = decide(apart.placed(), own_pod=apart.pod(worlds.ready_with_record('{"uid": 7}')), own_image_user=None)
    assert plan.again == 0
    image_id = "docker.io/library/python@sha256:" + "1" * 64
    assert plan.effects == (plans.StoreImageUser("python:3.12-slim", image_id, '{"uid": 7}'),)


def test_a_pod_without_a_record_whose_user_is_not_known_is_followed_by_one_that_records():
    plan = decide(apart.placed(), own_image_user=None)
    assert (worlds.phase_of(plan), plan.effects) == (Phase.QUEUED, (DELETE_OWN,))


def test_what_its_phases_may_take_is_its_limit():
    world = apart.world(apart.placed())
    assert own_pod.limit(world) == LIMITS.seed_seconds + LIMITS.artifact_seconds + 600 + LIMITS.collect_seconds


def test_the_queue_knows_when_the_artifacts_were_there():
    """By the condition that the export leaves."""
    world = apart.world(apart.closing(), manifest=apart.MANIFEST)
    status = verifierrun.decide(world).status
    assert status is not None
    found = conditions.find(status.conditions, conditions.ConditionType.ARTIFACTS_COLLECTED)
    assert found is not None
    assert found.last_transition_time == worlds.ago(0)
