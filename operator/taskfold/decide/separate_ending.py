"""The end of a separate verification: verdict → logs in the store → its pod gone or kept → complete.

Guarantees: nothing here changes a verdict; logs that cannot be copied and a pod that does not go are reported and do
not keep it from completing; a store that is down does, for as long as it is.
"""

from taskfold.api.reasons import Reason
from taskfold.api.taskrun import PodRetention
from taskfold.decide import network
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.plan import DeletePod, ForgetPhases, KeepLogs, Note, Plan
from taskfold.decide.pod import PodView, Standing
from taskfold.decide.world import CopyActive, CopyFailed, VerifierWorld

LOOK_SECONDS = 2.0
"""How soon a pod that is going away is looked at again, should its last event not come."""


def finish(world: VerifierWorld) -> Plan:
    """A verification whose outcome stands."""
    status = world.verifier.status
    if world.kept is None and status.store is not None:
        return _keep(world)
    pod = _pod(world)
    if pod is not None and not _retained(world) and not _stuck(world, pod):
        delete = () if pod.deleting else (DeletePod(pod.name, pod.uid),)
        return Plan(note=Note(Reason.CLEANUP_PENDING, f"removing pod {pod.name}"), effects=delete, again=LOOK_SECONDS)
    restriction = world.own.network if world.own is not None else None
    over = network.leave(restriction, status.store, retained=_retained(world))
    if over is not None:
        note = Note(Reason.CLEANUP_PENDING, "removing its network restriction")
        return Plan(note=note, effects=(over,), again=LOOK_SECONDS)
    status = status.model_copy(update={"network": network.refused(restriction, status.network)})
    error = world.kept.get("error") if world.kept is not None else None
    notes = [f"not all of the verifier's logs could be kept: {error}; the outcome stands"] if error else []
    done = to.warned(status, notes).model_copy(
        update={"complete": True, "completion_time": to.stamp(world.now), "journal": []}
    )
    return Plan(done, Note(Reason.COMPLETED), (ForgetPhases(to.current_nonces(status)),))


def _keep(world: VerifierWorld) -> Plan:
    pod = _pod(world)
    reachable = pod is not None and pods.standing(pod) is Standing.READY
    keep = (KeepLogs(world.verifier.status.store or "", reachable),)
    match world.copy:
        case CopyActive(progress=progress):
            return Plan(note=Note(Reason.CLEANUP_PENDING, progress), again=LOOK_SECONDS)
        case CopyFailed(reason=reason, message=message, retry_in=left):
            again = keep if left <= 0 else ()
            return Plan(note=Note(Reason(reason), message), effects=again, again=max(left, 1.0))
        case None:
            return Plan(note=Note(Reason.CLEANUP_PENDING, "collecting files"), effects=keep, again=LOOK_SECONDS)


def _pod(world: VerifierWorld) -> PodView | None:
    """Its own pod, while there is one."""
    pod = world.own.pod if world.own is not None else None
    return pod if pod is not None and pod.owner_uid == world.verifier.metadata.uid else None


def _retained(world: VerifierWorld) -> bool:
    """As the TaskRun says; one that is gone keeps nothing."""
    retention = world.run.spec.pod_retention if world.run is not None else PodRetention.NEVER
    failed = world.verifier.status.reward is None
    return retention is PodRetention.ALWAYS or (retention is PodRetention.ON_FAILURE and failed)


def _stuck(world: VerifierWorld, pod: PodView) -> bool:
    """The pod should have gone long ago. `deletionTimestamp` is when its grace ended."""
    waited = to.seconds_between(pod.deleted_at or None, to.stamp(world.now)) or 0.0
    return waited > world.settings.limits.deletion_seconds
