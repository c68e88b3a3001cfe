"""decide/separate.py: out of the agent's sandbox, that one stopped, the own one given everything, test.sh."""

from dataclasses import replace

import pytest
from tests.decide import apart, worlds

from taskfold.api import conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalPhase, Mode, StepStatus
from taskfold.decide import plan as plans
from taskfold.decide import separate, verifierrun, verifying
from taskfold.decide.world import CopyActive, CopyFailed, PhaseActive, PhaseDone, PhaseRefused, PhaseUnreached
from taskfold.engine import status as statuses
from taskfold.protocol.artifacts import Left, Manifest

LIMITS = worlds.SETTINGS.limits
EXPORT = plans.Export(worlds.PREFIX, logs=True)
DELETE_AGENT = plans.DeletePod(worlds.POD, worlds.POD_UID)
CREATE = plans.CreatePod(apart.OWN, 1, 1, record=False)
SEED = plans.RunPhase("seed", apart.SEED)
VERIFY = plans.RunPhase("verify", apart.VERIFY)


def decide(status, **changes):
    return verifierrun.decide(apart.world(status, **changes))


# -- admission -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "phases"), [(apart.TASK, []), (apart.HOOKED, [JournalPhase.HOOKS])], ids=["plain", "hooks"]
)
def test_admission_names_the_place_and_begins_in_the_agents_sandbox(task, phases):
    plan = decide(None, task=task)
    status = plan.status
    assert status is not None
    assert (status.phase, status.store, plan.effects, plan.again) == (Phase.CLOSING, worlds.PREFIX, (), 0)
    assert [(each.number, each.tries, each.pod_uid) for each in status.attempts] == [(1, 1, None)]
    assert [each.phase for each in status.journal] == phases, "nothing runs in a pod that is not there"
    assert all(each.pod_uid == worlds.POD_UID for each in status.journal)


def test_a_step_keeps_what_it_leaves_in_its_own_place():
    task = worlds.turn_of(apart.STEPPED, "two")
    plan = decide(None, task=task, step="two")
    assert plan.status is not None
    assert plan.status.store == f"{worlds.PREFIX}steps/two/"


@pytest.mark.parametrize("status", [apart.closing(), apart.queued(), apart.placed()], ids=lambda s: s.phase.value)
def test_nothing_is_touched_before_the_pod_is_handed_over(status):
    plan = decide(status, run=worlds.run(worlds.handed_over(None)))
    assert plan == plans.Plan(again=verifierrun.HANDOVER_SECONDS)


# -- out of the agent's sandbox ------------------------------------------------------------------------------------


def test_hooks_come_before_the_export():
    plan = decide(apart.closing(hooked=True), task=apart.HOOKED)
    assert plan.effects == (plans.RunPhase("hooks", worlds.HOOKS),)
    ended = worlds.done(worlds.HOOKS, worlds.program("hook 1", 1))
    then = decide(apart.closing(hooked=True), task=apart.HOOKED, phases=ended)
    assert then.status is not None
    assert then.status.warnings == ["[[verifier.collect]] hook 1 ended with return code 1"]
    assert decide(then.status, task=apart.HOOKED).effects == (EXPORT,)


def failed(reason=Reason.TRANSFER_FAILED, *, left=0.0, asked=1.0):
    return CopyFailed(reason.value, "it broke", left, asked)


LATE = LIMITS.artifact_seconds + 1
COPIES = {
    "nobody copies": (None, (EXPORT,), None),
    "somebody does": (CopyActive(), (), Reason.COLLECTING),
    "it broke": (failed(), (EXPORT,), Reason.COLLECTING),
    "it broke, a pause": (failed(left=3.0), (), Reason.COLLECTING),
    "the store is away": (failed(Reason.STORE_UNAVAILABLE), (EXPORT,), Reason.STORE_UNAVAILABLE),
    "the store is away, a pause": (failed(Reason.STORE_UNAVAILABLE, left=3.0), (), Reason.STORE_UNAVAILABLE),
    "the store is away for long": (
        failed(Reason.STORE_UNAVAILABLE, asked=10 * LATE),
        (EXPORT,),
        Reason.STORE_UNAVAILABLE,
    ),
}


@pytest.mark.parametrize(("report", "effects", "reason"), COPIES.values(), ids=COPIES)
def test_the_export_is_asked_for_until_the_manifest_is_there(report, effects, reason):
    plan = decide(apart.closing(), copy=report)
    assert (plan.status, plan.effects, worlds.reason_of(plan)) == (None, effects, reason)
    assert plan.again is not None
    assert plan.again >= 1.0


def test_artifacts_that_cannot_be_copied_mask_after_their_limit():
    plan = decide(apart.closing(), copy=failed(asked=LATE))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, "TransferFailed")
    assert "regrade" not in worlds.failure_of(plan).message, "there is nothing to grade again"


def test_the_progress_of_a_large_copy_is_told():
    plan = decide(apart.closing(), copy=CopyActive("artifact /app: 300 MiB"))
    assert plan.note == plans.Note(Reason.COLLECTING, "artifact /app: 300 MiB")


def test_the_logs_of_a_sandbox_that_goes_on_are_not_copied_yet():
    task = worlds.turn_of(apart.STEPPED, "two")
    plan = decide(apart.closing(store=f"{worlds.PREFIX}steps/two/"), task=task, step="two")
    assert plan.effects == (plans.Export(f"{worlds.PREFIX}steps/two/", logs=False),)


def test_once_the_manifest_is_there_the_work_cannot_be_lost():
    for agent in (worlds.ready(), worlds.oom_killed(), None):
        plan = decide(apart.closing(), manifest=apart.MANIFEST, pod=agent)
        assert plan.status is not None
        assert (plan.status.phase, plan.effects, plan.again) == (Phase.QUEUED, (), 0)
        assert conditions.holds(plan.status.conditions, conditions.ConditionType.ARTIFACTS_COLLECTED)
        assert plan.status.timings == {"export": 25.0}


def test_what_was_left_out_is_a_warning():
    half = replace(apart.KEPT, left=(Left("a.sock", "a socket"),), left_count=3)
    growing = replace(apart.KEPT, changed=("b.log",))
    plan = decide(apart.closing(), manifest=Manifest((apart.MISSING, apart.FAILED, half, growing)))
    assert plan.status is not None
    assert plan.status.warnings == [
        "artifact /app/pipe is failed: a FIFO",
        "artifact /app/out.txt: 3 file(s) were left out, first a.sock: a socket",
        "artifact /app/out.txt: b.log changed while it was read",
    ]


@pytest.mark.parametrize(
    ("agent", "reason"), [(None, "PodDeleted"), (worlds.oom_killed(), "OOMKilled"), (worlds.evicted(), "PodEvicted")]
)
def test_an_agents_sandbox_that_is_lost_before_masks(agent, reason):
    plan = decide(apart.closing(), pod=agent)
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, reason)
    assert plan.status is not None
    assert not plan.status.complete, "its ending is still to come"


def test_a_container_that_has_just_ended_may_have_more_to_tell():
    ended = worlds.seen({"phase": "Running", "containerStatuses": [worlds.stopped("Error", 137)]})
    assert decide(apart.closing(), pod=ended).status is None


def test_a_pod_of_a_newer_operator_is_left_to_it():
    newer = worlds.ready(labels={"taskfold.dev/protocol": "99"})
    assert worlds.reason_of(decide(apart.closing(), pod=newer)) is Reason.UNKNOWN_PROTOCOL
    assert worlds.reason_of(decide(apart.placed(), own_pod=apart.pod(newer))) is Reason.UNKNOWN_PROTOCOL


# -- the agent's pod stops -----------------------------------------------------------------------------------------


def test_the_own_pod_is_created_while_the_agents_goes():
    assert decide(apart.queued()).effects == (DELETE_AGENT, CREATE)


@pytest.mark.parametrize("agent", [apart.deleting_agent(), None], ids=["on its way", "gone"])
def test_it_is_asked_to_go_once(agent):
    assert decide(apart.queued(), pod=agent).effects == (CREATE,)


def test_another_pod_under_the_agents_name_is_not_ours_to_stop():
    assert decide(apart.queued(), pod=worlds.ready(uid="another")).effects == (CREATE,)


def unproven(**changes):
    return apart.placed(Phase.QUEUED, agent_stopped_time=None, **changes)


PROOFS = {
    "gone": None,
    "every container terminated": apart.stopped_agent(),
    "another pod has its name": worlds.ready(uid="another"),
}


@pytest.mark.parametrize("agent", PROOFS.values(), ids=PROOFS)
def test_the_proof_is_written_before_anything_is_delivered(agent):
    """C32."""
    plan = decide(unproven(), pod=agent)
    assert plan.status is not None
    assert (plan.status.agent_stopped_time, plan.effects, plan.again) == (worlds.ago(0), (), 0)


NO_PROOFS = {
    "it works": (worlds.ready(), (DELETE_AGENT,)),
    "asked to go": (apart.deleting_agent(), ()),
    "its phase alone": (worlds.seen({"phase": "Failed"}, deletionTimestamp=worlds.ago(1)), ()),
    "nothing is said of main": (
        worlds.seen(
            {"initContainerStatuses": [worlds.stopped("Completed", 0, name="record")]},
            deletionTimestamp=worlds.ago(1),
        ),
        (),
    ),
    "evicted, no word about containers": (
        worlds.seen({"phase": "Failed", "reason": "Evicted"}, deletionTimestamp=worlds.ago(1)),
        (),
    ),
}


@pytest.mark.parametrize(("agent", "effects"), NO_PROOFS.values(), ids=NO_PROOFS)
def test_nothing_is_delivered_without_the_proof(agent, effects):
    """C32."""
    plan = decide(unproven(), pod=agent)
    assert (plan.status, plan.effects) == (None, effects)
    assert plan.again == separate.LOOK_SECONDS


def test_an_agents_pod_that_does_not_stop_masks_and_keeps_the_artifacts():
    late = decide(unproven(), pod=apart.deleting_agent(LIMITS.stop_seconds + 1))
    failure = worlds.failure_of(late)
    assert (worlds.phase_of(late), failure.reason) == (Phase.MASKED, "AgentNotStopped")
    assert "taskfold regrade fix-bug" in failure.message
    assert decide(unproven(), pod=apart.deleting_agent(LIMITS.stop_seconds - 1)).status is None


def test_the_wait_counts_from_the_deletion_and_not_before():
    forever = decide(unproven(start_time=worlds.ago(9000)), pod=worlds.ready())
    assert (forever.status, forever.effects) == (None, (DELETE_AGENT,))


def test_a_sandbox_that_later_steps_need_goes_on():
    step = StepStatus(name="one", reward="1", ended_at=worlds.ago(50))
    changes = {"run": apart.run(steps=[step]), "task": worlds.turn_of(apart.STEPPED, "two"), "step": "two"}
    assert decide(apart.queued(), **changes).effects == (CREATE,)
    assert decide(unproven(), **changes).effects == (SEED,)
    last = {**changes, "task": worlds.turn_of(apart.STEPPED, "three"), "step": "three"}
    assert decide(apart.queued(), **last).effects == (DELETE_AGENT, CREATE)
    assert decide(unproven(), **last).effects == (DELETE_AGENT,)


# -- seed ----------------------------------------------------------------------------------------------------------


def test_the_seed_is_asked_for():
    plan = decide(apart.placed(Phase.QUEUED))
    assert (worlds.phase_of(plan), plan.effects) == (Phase.SEEDING, (SEED,))


def test_a_seed_that_is_asked_for_is_waited_for():
    plan = decide(apart.placed(), phases={apart.SEED: PhaseActive()})
    assert (plan.status, plan.effects) == (None, ())


def test_the_progress_of_a_large_delivery_is_told_and_then_taken_back():
    half = plans.Note(Reason.SEEDING, "artifacts: 150 of 300 MiB")
    for phase in (Phase.QUEUED, Phase.SEEDING):
        told = decide(apart.placed(phase), phases={apart.SEED: PhaseActive(progress=half.message)})
        assert (told.effects, told.note) == ((), half)
    status = statuses.wished(worlds.verifier(apart.placed()), apart.placed(), half, worlds.NOW)
    there = decide(status, phases={apart.SEED: PhaseActive(worlds.ago(1))})
    assert there.note == plans.Note(Reason.SEEDING), "what goes on then is no delivery"
    small = decide(apart.placed(), phases={apart.SEED: PhaseActive()})
    assert (small.status, small.note) == (None, None), "nothing is written for a small one"


def test_a_seed_that_ended_well_opens_the_verification():
    left = {"path": "/app/out/pipe", "reason": "special"}
    restored = {"op": "restore", "skipped": [left], "skippedCount": 2, "seconds": 0.5}
    ended = replace(worlds.result(apart.SEED), prepared=({"op": "tools", "missing": []}, restored))
    plan = decide(apart.placed(), phases={apart.SEED: PhaseDone(ended)})
    status = plan.status
    assert status is not None
    assert (status.phase, plan.effects, plan.again) == (Phase.VERIFYING, (), 0)
    text = "2 file(s) of an artifact were not put in place, first /app/out/pipe: special"
    assert status.warnings == [text]
    assert status.timings == {"pod": 17.0, "upload": 0.5}
    assert [bool(each.ended_at) for each in status.journal] == [True, False]


MASKED_AT_SEED = {
    "no such user": (PhaseRefused("UnknownUser", "no user bob"), "UnknownUser", "provider_unavailable"),
    "a user that may not be": (PhaseRefused("ForbiddenUser", "uid 0"), "ForbiddenByProfile", "provider_unavailable"),
    "no find": (PhaseDone(worlds.result(apart.SEED, missing=["find"])), "MissingTools", "provider_unavailable"),
    "no bash": (PhaseDone(worlds.result(apart.SEED, missing=["bash"])), "MissingTools", "verifier_error"),
    "helpers killed": (PhaseUnreached("no route", 9, 3.0, killed=9), "Tampered", "provider_unavailable"),
}


@pytest.mark.parametrize(("report", "reason", "kind"), MASKED_AT_SEED.values(), ids=MASKED_AT_SEED)
def test_what_can_never_become_right_masks(report, reason, kind):
    plan = decide(apart.placed(), phases={apart.SEED: report})
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.reason, failure.kind) == (Phase.MASKED, reason, kind)
    assert "taskfold regrade fix-bug" in failure.message


DEAD = (worlds.program("entrypoint", None, signal=9),)
UNWELL = PhaseDone(worlds.result(apart.SEED, worlds.program("healthcheck", 1)))
AGAIN = {
    "digests differ": (PhaseRefused("Digest", "the digests differ"), Reason.TRANSFER_FAILED, "provider_unavailable"),
    "disk full": (PhaseRefused("Unpack", "no space left on device"), Reason.DISK_FULL, "provider_unavailable"),
    "entrypoint": (
        PhaseDone(worlds.result(apart.SEED, beside=DEAD)),
        Reason.ENTRYPOINT_FAILED,
        "harbor:entrypoint_failed",
    ),
    "healthcheck": (UNWELL, Reason.HEALTHCHECK_FAILED, "provider_unavailable"),
}
DELETE_OWN = plans.DeletePod(apart.OWN, apart.OWN_UID)


@pytest.mark.parametrize(("report", "reason", "kind"), AGAIN.values(), ids=AGAIN)
def test_what_may_pass_is_tried_again_in_a_new_pod(report, reason, kind):
    plan = decide(apart.placed(), phases={apart.SEED: report})
    assert plan.status is not None
    assert (plan.status.phase, plan.effects, worlds.reason_of(plan)) == (Phase.QUEUED, (DELETE_OWN,), Reason.RETRYING)
    assert [(each.tries, each.pod_uid) for each in plan.status.attempts] == [(2, None)]
    last = decide(apart.placed(attempts=[apart.attempt(tries=3)]), phases={apart.SEED: report})
    failure = worlds.failure_of(last)
    assert (worlds.phase_of(last), failure.reason, failure.kind) == (Phase.MASKED, reason, kind)
    assert "after 3 tries" in failure.message


def test_a_seed_without_an_end_is_given_up_by_how_long_it_was_asked_for():
    """How long its pod waited for a place is not the seed's time."""
    limit = LIMITS.seed_seconds + LIMITS.artifact_seconds + LIMITS.agent_grace_seconds
    status = apart.placed(start_time=worlds.ago(90_000), attempts=[apart.attempt(start_time=worlds.ago(90_000))])
    fresh = decide(status, phases={apart.SEED: PhaseActive(asked=LIMITS.agent_grace_seconds + 1)})
    assert fresh.status is None
    late = decide(status, phases={apart.SEED: PhaseActive(asked=limit + 1)})
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, "DeadlineExceeded")


def test_an_entry_of_another_pod_is_none_of_this_one():
    journal = [apart.entry(JournalPhase.SEED, "1" * 32, "uid-own-0"), apart.entry(JournalPhase.VERIFY, "2" * 32, "old")]
    plan = decide(apart.placed(journal=journal))
    assert plan.status is not None
    assert plan.effects == ()
    assert [each.pod_uid for each in plan.status.journal[-2:]] == [apart.OWN_UID] * 2


# -- test.sh -------------------------------------------------------------------------------------------------------


def test_test_sh_is_asked_for():
    assert decide(apart.verifying()).effects == (VERIFY,)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.SEEDING])
def test_test_sh_is_never_asked_for_before_the_status_says_so(phase):
    for report in (None, PhaseActive(), PhaseUnreached("no route", 1, 0.0)):
        plan = decide(apart.placed(phase), phases={apart.SEED: report} if report else {})
        assert VERIFY not in plan.effects


OWN_LOST = {"gone": None, "evicted": apart.pod(worlds.evicted()), "replaced": apart.pod(uid="another")}


@pytest.mark.parametrize("found", OWN_LOST.values(), ids=OWN_LOST)
@pytest.mark.parametrize("status", [apart.placed(Phase.QUEUED), apart.placed()], ids=["queued", "seeding"])
def test_an_own_pod_that_is_lost_before_test_sh_is_followed_by_a_new_one(found, status):
    """C14."""
    plan = decide(status, own_pod=found)
    assert plan.status is not None
    assert (plan.status.phase, plan.status.attempts[-1].tries) == (Phase.QUEUED, 2)


@pytest.mark.parametrize("found", OWN_LOST.values(), ids=OWN_LOST)
def test_an_own_pod_that_is_lost_after_masks(found):
    """C14."""
    plan = decide(apart.verifying(), own_pod=found)
    assert worlds.phase_of(plan) is Phase.MASKED
    assert "taskfold regrade fix-bug" in worlds.failure_of(plan).message


def test_a_picture_of_the_pod_that_is_older_than_the_status_starts_nothing_anew():
    old = apart.starting(worlds.waits("ContainerCreating"))
    plan = decide(apart.verifying(), own_pod=old, now=worlds.in_a_while(LIMITS.pod_start_seconds + 60))
    assert (plan.status, plan.effects) == (None, (VERIFY,))
    without_record = decide(apart.verifying(), own_image_user=None)
    assert (without_record.status, without_record.effects) == (None, (VERIFY,))


@pytest.mark.parametrize("found", OWN_LOST.values(), ids=OWN_LOST)
def test_a_reward_that_was_read_stands(found):
    """C15."""
    files = {"/logs/verifier/reward.txt": b"0.5"}
    phases = worlds.done(apart.VERIFY, worlds.program("test"), files=files)
    plan = decide(apart.verifying(), own_pod=found, phases=phases)
    assert plan.status is not None
    assert (plan.status.phase, plan.status.reward, plan.status.complete) == (Phase.SUCCEEDED, "0.5", False)
    assert plan.status.verifier is not None
    assert plan.status.verifier.mode is Mode.SEPARATE


def test_what_the_seed_took_is_not_told_twice():
    unpacked = {"op": "unpack", "seconds": 9.0}
    ended = replace(worlds.result(apart.VERIFY, worlds.program("test")), prepared=(unpacked,))
    plan = decide(apart.verifying(timings={"upload": 0.5}), phases={apart.VERIFY: PhaseDone(ended)})
    assert plan.status is not None
    assert plan.status.timings == {"upload": 0.5, "verification": 1.5}


def test_bash_that_is_missing_was_not_taken_away_by_an_agent():
    test = worlds.program("test", None, start_error="bash: not found in PATH")
    plan = decide(apart.verifying(), phases=worlds.done(apart.VERIFY, test))
    assert worlds.failure_of(plan).reason == "VerifierStartFailed"


# -- every end -----------------------------------------------------------------------------------------------------

STAGES = {
    "closing": apart.closing(),
    "queued": apart.queued(),
    "placed": apart.placed(Phase.QUEUED),
    "seeding": apart.placed(),
    "verifying": apart.verifying(),
}


@pytest.mark.parametrize("status", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize(
    ("changes", "phase", "reason"),
    [
        ({"cancel": True}, Phase.CANCELLED, "Cancelled"),
        ({"spec_digest": "sha256:other"}, Phase.FAILED, "SpecChanged"),
        ({"run": None}, Phase.FAILED, "SourceNotFound"),
    ],
    ids=["cancelled", "spec changed", "run gone"],
)
def test_it_can_end_in_every_phase_and_sees_to_its_sandbox_after(status, changes, phase, reason):
    plan = decide(status, **changes)
    assert plan.status is not None
    assert (plan.status.phase, worlds.failure_of(plan).reason) == (phase, reason)
    assert (plan.status.complete, plan.effects, plan.again) == (False, (), 0)


@pytest.mark.parametrize("status", STAGES.values(), ids=STAGES)
def test_one_that_is_deleted_asks_for_nothing(status):
    assert decide(status, deleted=True) is plans.NOTHING


def test_before_it_has_begun_it_is_over_at_once():
    plan = decide(None, cancel=True)
    assert plan.status is not None
    assert (plan.status.phase, plan.status.complete) == (Phase.CANCELLED, True)


def test_the_limit_of_what_comes_before_test_sh():
    assert verifying.seed_limit(apart.world(apart.placed())) == LIMITS.seed_seconds + LIMITS.artifact_seconds
