"""The order of an ending: verdict → files in the store → row → pod gone or kept → complete → time to live.

Guarantees: nothing here changes a verdict; files that cannot be copied and a pod that does not go are reported and do
not keep the run from completing; a store that is down does, for as long as it is: a run is not complete before its row
is durable. `complete` is written last and once.
"""

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Attempt, Stage
from taskfold.api.taskrun import PodRetention
from taskfold.decide import network
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.plan import (
    CancelVerifierRun,
    Collect,
    DeletePod,
    DeleteRun,
    ForgetPhases,
    Note,
    Plan,
    StoreRow,
)
from taskfold.decide.pod import PodView, Standing
from taskfold.decide.world import CopyActive, CopyFailed, RunWorld

COPY_LOOK_SECONDS = 5.0
"""How soon a copy is looked at again, should its end not wake us."""

LOOK_SECONDS = 2.0
"""How soon a pod that is going away is looked at again, should its last event not come."""


def finish(world: RunWorld) -> Plan:
    """A run whose outcome stands: keep its files, remove its pod, complete."""
    run, status, pod = world.run, world.run.status, world.pod
    verifier = world.verifier
    if verifier is not None and not verifier.status.complete:
        over = verifier.status.phase is not None and verifier.status.phase.final  # it sees to its own sandbox
        cancel = () if verifier.spec.cancel or over else (CancelVerifierRun(verifier.metadata.name),)
        return Plan(note=_pending("waits for the verification to stop"), effects=cancel, again=LOOK_SECONDS)
    prefix = status.store
    if prefix is None and world.store_prefix is not None:
        return Plan(status.model_copy(update={"store": world.store_prefix}), again=0)
    if world.collected is None:
        reachable = pod is not None and pods.standing(pod) is Standing.READY and pod.uid == _pod_uid(world)
        return _collect(world, Collect(prefix or "", reachable))
    unkept, took = _unkept(world), _collect_seconds(world)
    if not world.row_stored:
        return Plan(effects=(StoreRow(prefix or "", unkept, took),), again=0)
    if pod is not None and pod.owner_uid == run.metadata.uid and not _kept(world) and not _stuck(world, pod):
        delete = () if pod.deleting else (DeletePod(pod.name, pod.uid),)
        return Plan(note=_pending(f"removing pod {pod.name}"), effects=delete, again=LOOK_SECONDS)
    left = network.leave(world.network, prefix, retained=_kept(world))
    if left is not None:
        return Plan(note=_pending("removing its network restriction"), effects=(left,), again=LOOK_SECONDS)
    notes = [*unkept, *_leftovers(world)]
    status = to.timed(status, collect=took).model_copy(
        update={"network": network.refused(world.network, status.network)}
    )
    done = to.warned(status, notes).model_copy(
        update={"complete": True, "completion_time": to.stamp(world.now), "journal": [], "attempts": _closed(world)}
    )
    message = notes[0] if notes else ""
    nonces = (*to.current_nonces(status), *(to.current_nonces(verifier.status) if verifier is not None else ()))
    return Plan(done, Note(Reason.COMPLETED, message), (ForgetPhases(nonces),), again=0)


def _collect(world: RunWorld, collect: Collect) -> Plan:
    """The copy goes on beside the queue; that it is done the store says."""
    match world.copy:
        case CopyActive(progress=progress):
            return Plan(note=_pending(progress or "collecting files"), again=COPY_LOOK_SECONDS)
        case CopyFailed(reason=reason, message=message, retry_in=left):
            note = Note(Reason(reason), message)
            return Plan(note=note, effects=(collect,) if left <= 0 else (), again=max(left, 1.0))
        case None:
            return Plan(note=_pending("collecting files"), effects=(collect,), again=COPY_LOOK_SECONDS)


def _closed(world: RunWorld) -> list[Attempt]:
    """The attempts, the last one with its end."""
    status = world.run.status
    if not status.attempts:
        return []
    failure = status.failure
    end = {
        "end_time": status.verdict_time,
        "reason": failure.reason if failure is not None else Reason.VERDICT_REACHED.value,
        "message": failure.message if failure is not None else None,
    }
    return [*status.attempts[:-1], status.attempts[-1].model_copy(update=end)]


def _pending(message: str) -> Note:
    return Note(Reason.CLEANUP_PENDING, message)


def _pod_uid(world: RunWorld) -> str | None:
    attempts = world.run.status.attempts
    return attempts[-1].pod_uid if attempts else None


def _kept(world: RunWorld) -> bool:
    match world.run.spec.pod_retention:
        case PodRetention.ALWAYS:
            return True
        case PodRetention.ON_FAILURE:
            return world.run.status.phase is not Phase.SUCCEEDED
        case PodRetention.NEVER:
            return False


def _stuck(world: RunWorld, pod: PodView) -> bool:
    """The pod should have gone long ago. `deletionTimestamp` is when its grace ended."""
    waited = to.seconds_between(pod.deleted_at or None, to.stamp(world.now)) or 0.0
    return waited > world.settings.limits.deletion_seconds


def _unkept(world: RunWorld) -> tuple[str, ...]:
    """What could not be kept; it is in the row too."""
    error = world.collected.get("error") if world.collected is not None else None
    return (f"not all files could be kept: {error}; the outcome stands",) if error else ()


def _collect_seconds(world: RunWorld) -> float | None:
    seconds = world.collected.get("seconds") if world.collected is not None else None
    return float(seconds) if isinstance(seconds, int | float) else None


def _leftovers(world: RunWorld) -> list[str]:
    notes = []
    if world.pod is not None and not _kept(world):
        notes.append(f"the pod {world.pod.name} did not go away in time and is removed later")
    return notes


def expire(world: RunWorld) -> Plan:
    """A complete run lives for its time to live, counted from its completion."""
    ttl, status = world.run.spec.ttl_seconds_after_finished, world.run.status
    if ttl is None or status.completion_time is None:
        return Plan()
    age = to.seconds_between(status.completion_time, to.stamp(world.now)) or 0.0
    if age < ttl:
        return Plan(again=ttl - age + 0.1)
    return Plan(effects=(DeleteRun(world.run.metadata.uid),))


def refuse(world: RunWorld, reason: Reason, message: str, stage: Stage | None = None) -> Plan:
    """The task or the request is wrong, or the cluster refused it for good: the run ends, terminal."""
    where = stage or (Stage.ADMISSION if world.run.status.admitted is None else Stage.SEED)
    status = to.ended(world.run.status, Phase.FAILED, reason, message, stage=where, now=world.now, terminal=True)
    return Plan(status, Note(reason, message), again=0)
