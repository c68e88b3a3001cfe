"""What a pod's status says about a sandbox.

Guarantees: every pod is in exactly one `Standing`, and a pod that is lost has one `Loss` with a cause of the table in
`losses`. A container's end is read from `state.terminated`, never from the pod's `phase`, which comes a second later.
A disruption counts only once the pod is being deleted or has failed: one that is announced may not go ahead. Why a
container ended is told once the pod's phase says so too, see `settles`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from taskfold import protocol
from taskfold.api import names
from taskfold.decide import probes
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss

MAIN = "main"
RECORD = "record"

_PULL_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ErrImageNeverPull"})
_HOPELESS_REASONS = frozenset({"InvalidImageName"})
_START_REASONS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "StartError",
        "ContainerCannotRun",
    }
)
_NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a `main` that the runtime could not start; with `restartPolicy: Never` it is terminated at once."""

_VANISHED = frozenset({("ContainerStatusUnknown", 137), ("Unknown", 255)})
"""(reason, exit code) that the kubelet and containerd give a container that they no longer find."""

_TOLD_TO_STOP = frozenset({0, 143})
"""What the helper ends with after a signal from outside of the sandbox; inside, nobody can send it one."""

_SHUTDOWN = frozenset({"Terminated", "Shutdown", "NodeShutdown"})
"""Reasons of pods that a kubelet ends, or refuses, because its node shuts down: since 1.22, before, and refused."""

_OWN_LIMITS = (
    "ephemeral local storage usage exceeds the total limit",
    "exceeded its local ephemeral storage limit",
    "exceeds the limit",
)
"""The kubelet's words when a pod, a container or an emptyDir is over its own limit; of pressure it speaks otherwise."""

_DISRUPTIONS = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.DRAINED,
    "DeletionByPodGC": Cause.NODE_GONE,
    "DeletionByTaintManager": Cause.NODE_LOST,
}
"""Reasons of the condition DisruptionTarget. The kubelet's own, TerminationByKubelet, comes with a `status.reason`."""


ENDED_PHASES = frozenset({"Failed", "Succeeded"})

_OF_MAIN = frozenset({Cause.OOM, Cause.STOPPED, Cause.FIRST_PROCESS_ENDED, Cause.CONTAINER_LOST, Cause.NEVER_STARTED})

SETTLE_SECONDS = 900.0
"""How long a container's end may stand alone, should its kubelet never come back: longer than a taint manager leaves a
pod on a dead node, and than the node's clock is wrong."""

SETTLE_LOOK_SECONDS = 5.0
"""How soon such a pod is looked at again, should its event not come."""


class Standing(StrEnum):
    """Where a pod stands on its way to being a sandbox."""

    UNSCHEDULED = "Unscheduled"
    STARTING = "Starting"
    PULL_FAILING = "PullFailing"
    START_FAILING = "StartFailing"
    READY = "Ready"
    LOST = "Lost"


@dataclass(frozen=True)
class ContainerView:
    """One container status, flattened. `ran`: it was started before what its state says now."""

    name: str
    running: bool
    waiting_reason: str | None
    terminated: bool
    exit_code: int | None
    reason: str | None
    message: str
    restarts: int
    ran: bool
    image_id: str
    started_at: str
    finished_at: str


@dataclass(frozen=True)
class PodView:
    """A sandbox pod as it was last seen. `protocol`: the version of the operator that made it, if it says so.

    `waiters`: the containers that wait for the end of a phase. None of them makes or breaks a sandbox.
    """

    name: str
    uid: str
    owner_uid: str
    deleted_at: str
    phase: str
    node: str
    created: str
    started_at: str
    schedule_message: str
    disruption: str
    reason: str
    message: str
    containers: Mapping[str, ContainerView]
    annotations: Mapping[str, str]
    protocol: int | None
    waiters: Mapping[str, ContainerView] = field(default_factory=dict)
    ready: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def deleting(self) -> bool:
        return bool(self.deleted_at)

    @property
    def main(self) -> ContainerView | None:
        return self.containers.get(MAIN)

    @property
    def record(self) -> ContainerView | None:
        return self.containers.get(RECORD)

    @property
    def restarts(self) -> int:
        return self.main.restarts if self.main else 0


def view(pod: Mapping[str, Any]) -> PodView:
    """Flatten a pod object of the API."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    owner: Mapping[str, Any] = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    disruption = conditions.get("DisruptionTarget") or {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        owner_uid=owner.get("uid", ""),
        deleted_at=metadata.get("deletionTimestamp", ""),
        phase=status.get("phase", "Pending"),
        node=(pod.get("spec") or {}).get("nodeName", ""),
        created=metadata.get("creationTimestamp", ""),
        # By the scheduler's clock, which is the control plane's, if it is told: a node's own may be minutes off.
        started_at=(scheduled.get("status") == "True" and scheduled.get("lastTransitionTime"))
        or status.get("startTime", ""),
        schedule_message=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        disruption=disruption.get("reason", "") if disruption.get("status") == "True" else "",
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        containers={c["name"]: _container(c) for c in statuses},
        annotations=metadata.get("annotations") or {},
        protocol=_version((metadata.get("labels") or {}).get(names.PROTOCOL, "")),
        waiters=_waiters(pod),
        labels=metadata.get("labels") or {},
        ready=(conditions.get("Ready") or {}).get("status") == "True",
    )


def _waiters(pod: Mapping[str, Any]) -> dict[str, ContainerView]:
    """Ephemeral containers are in the spec at once, and in the status once the kubelet has seen them."""
    asked = (pod.get("spec") or {}).get("ephemeralContainers") or ()
    told = {c["name"]: c for c in (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()}
    found = [c["name"] for c in asked if c["name"].startswith(names.WAITER)]
    return {name: _container(told.get(name) or {"name": name}) for name in found}


def _version(label: str) -> int | None:
    return int(label) if label.isascii() and label.isdecimal() else None


def _container(status: Mapping[str, Any]) -> ContainerView:
    state = status.get("state") or {}
    waiting, terminated = state.get("waiting"), state.get("terminated")
    told = terminated or waiting or {}
    return ContainerView(
        name=status["name"],
        running="running" in state,
        waiting_reason=waiting.get("reason", "") if waiting is not None else None,
        terminated=terminated is not None,
        exit_code=terminated.get("exitCode") if terminated is not None else None,
        reason=told.get("reason"),
        message=told.get("message") or "",
        restarts=status.get("restartCount", 0),
        ran=status.get("restartCount", 0) > 0 or "terminated" in (status.get("lastState") or {}),
        image_id=status.get("imageID", ""),
        started_at=((state.get("running") or terminated or {}).get("startedAt")) or "",
        finished_at=(terminated or {}).get("finishedAt") or "",
    )


def standing(pod: PodView) -> Standing:
    """Where the pod stands now."""
    if loss(pod) is not None:
        return Standing.LOST
    if pod.main is not None and pod.main.running:
        return Standing.READY
    waiting = [c for c in pod.containers.values() if c.waiting_reason]
    if any(c.waiting_reason in _PULL_REASONS | _HOPELESS_REASONS for c in waiting):
        return Standing.PULL_FAILING
    if any(c.waiting_reason in _START_REASONS for c in waiting):
        return Standing.START_FAILING
    if not pod.node:
        return Standing.UNSCHEDULED
    return Standing.STARTING


def waiting_message(pod: PodView) -> str:
    """The kubelet's or the scheduler's own words about why the pod does not run yet."""
    for container in pod.containers.values():
        if container.waiting_reason in _PULL_REASONS | _HOPELESS_REASONS | _START_REASONS:
            return f"container {container.name}: {container.waiting_reason}: {container.message}".rstrip(": ")
    return pod.schedule_message


def pull_is_hopeless(pod: PodView) -> bool:
    """The image's name cannot be a name: waiting would not help."""
    return any(c.waiting_reason in _HOPELESS_REASONS for c in pod.containers.values())


def stopped(pod: PodView) -> bool:
    """Every container of the pod is reported terminated, so that nothing of it can do anything any more (C32)."""
    waits = any(waiter.running for waiter in pod.waiters.values())
    return pod.main is not None and all(each.terminated for each in pod.containers.values()) and not waits


GONE = Loss(Cause.POD_DELETED, "the pod is gone")


def newer(pod: PodView) -> bool:
    """The pod was made by a newer operator, which was rolled back: it is for that one to go on with."""
    return pod.protocol is not None and pod.protocol > max(protocol.SPOKEN)


def settles(pod: PodView, lost: Loss, now: str) -> bool:
    """Whether the pod's own words about this loss are still to come.

    The kubelet holds the pod's phase, reason and message back until all containers have ended, and writes both in that
    order: an evicted pod looks for a moment as if its first process had ended by itself.
    """
    if lost.cause not in _OF_MAIN or pod.main is None or pod.deleting or pod.phase in ENDED_PHASES:
        return False
    since = to.seconds_between(pod.main.finished_at, now)
    return since is not None and since < SETTLE_SECONDS


def awaits_newer(pod: PodView) -> str:
    """What the conditions say of a pod that is `newer`."""
    return (
        f"the pod was made by an operator of protocol {pod.protocol}, and this one speaks {_spoken()}; the run waits "
        "for the newer operator to come back"
    )


def never_resumed(pod: PodView) -> Loss:
    """The loss of a pod that is `newer`, once it has waited for too long."""
    text = f"the pod was made by an operator of protocol {pod.protocol}, which did not come back; this one speaks"
    return Loss(Cause.UNKNOWN_PROTOCOL, f"{text} {_spoken()}")


def loss(pod: PodView | None, uid: str | None = None, departed: PodView | None = None) -> Loss | None:
    """The loss that this pod is, or None while it may still serve. `uid`: of the pod that it should be. `departed`:
    how a pod of that name was seen last, if it is gone: a node that vanished takes its pods with it in one moment.

    What happened first comes first: the kubelet's reasons stand before it ends the containers; a container that the
    memory limit ended is not deleted for another cause; a deletion ends the first process, not the other way round.
    """
    if pod is None:
        return (loss(departed) if departed is not None and departed.uid == uid else None) or GONE
    if uid is not None and pod.uid != uid:
        return Loss(Cause.POD_REPLACED, f"another pod has the name {pod.name} now, with the uid {pod.uid}")
    looks = (_ended_by_kubelet, _out_of_memory, _ended_by_cluster, _container_lost, _ended, _of_older_operator)
    return next(filter(None, (look(pod) for look in looks)), None)


def _ended_by_kubelet(pod: PodView) -> Loss | None:
    message = pod.message.strip().rstrip(".")
    match pod.reason:
        case "Evicted" if any(words in message for words in _OWN_LIMITS):
            return Loss(Cause.STORAGE_LIMIT, message)
        case "Evicted":
            return Loss(Cause.NODE_PRESSURE, message or "the kubelet evicted the pod")
        case "Preempting":
            return Loss(Cause.PREEMPTED, message or "the kubelet took its place for another pod")
        case "DeadlineExceeded":
            return Loss(Cause.POD_DEADLINE, "the pod's own deadline ended it")
        case "NodeLost":
            return Loss(Cause.NODE_LOST, message or f"node {pod.node} does not answer")
        case reason if reason in _SHUTDOWN:
            return Loss(Cause.NODE_SHUTDOWN, message or f"node {pod.node} shuts down")
        case reason if reason and pod.phase == "Failed":
            return Loss(Cause.NOT_ADMITTED, f"{reason}: {message}".rstrip(": "))
        case _:
            return None


def _out_of_memory(pod: PodView) -> Loss | None:
    """With cgroup v1 the runtime says OOMKilled of every container in which a process was killed, however it ended."""
    main = pod.main
    if main is None or not main.terminated or (main.reason, main.exit_code) != ("OOMKilled", 137):
        return None
    return Loss(Cause.OOM, "the container ran out of its memory limit")


def _ended_by_cluster(pod: PodView) -> Loss | None:
    # A first process that ends with 0 when the kubelet evicts it leaves Succeeded, no reason, and only the condition.
    if pod.disruption and (pod.deleting or pod.phase in ("Failed", "Succeeded")):
        cause = _DISRUPTIONS.get(pod.disruption, Cause.NODE_PRESSURE)
        return Loss(cause, f"the pod on node {pod.node} was disrupted: {pod.disruption}")
    return Loss(Cause.POD_DELETED, "the pod is being deleted") if pod.deleting else None


def _container_lost(pod: PodView) -> Loss | None:
    main = pod.main
    if main is None:
        return None
    if main.ran and main.waiting_reason in _PULL_REASONS:
        return Loss(Cause.IMAGE_LOST, f"the container is to start anew: {main.waiting_reason}: {main.message}")
    if main.ran:
        return Loss(Cause.CONTAINER_RESTARTED, "the container was started anew, and what ran in it is gone")
    if not main.terminated:
        return None
    ended = f"exit code {main.exit_code}, {main.reason or 'no reason'}"
    said = f": {main.message}" if main.message else ""
    if main.reason in _NEVER_STARTED:
        return Loss(Cause.NEVER_STARTED, f"container main cannot be started ({ended}){said}")
    if (main.reason, main.exit_code) in _VANISHED:
        return Loss(Cause.CONTAINER_LOST, f"node {pod.node} no longer knows the container ({ended}){said}")
    if main.exit_code in _TOLD_TO_STOP:
        return Loss(Cause.STOPPED, f"the container was stopped from outside, and nothing says why ({ended}){said}")
    return Loss(Cause.FIRST_PROCESS_ENDED, f"the sandbox's first process ended ({ended}){said}")


def _ended(pod: PodView) -> Loss | None:
    if pod.phase not in ENDED_PHASES:
        return None
    for container in pod.containers.values():
        if container.name == probes.PROBE and container.terminated and container.exit_code:
            return probes.failed(container.message)
        if container.name != MAIN and container.terminated and container.exit_code:
            code = f"exit code {container.exit_code}"
            text = f"init container {container.name} failed ({code}): {container.message}".rstrip(": ")
            return Loss(Cause.INIT_FAILED, text)
    return Loss(Cause.UNEXPLAINED, pod.message or f"the pod's phase is {pod.phase}")


def _of_older_operator(pod: PodView) -> Loss | None:
    if pod.protocol is None or pod.protocol in protocol.SPOKEN or newer(pod):
        return None
    text = f"the pod was made by an operator of protocol {pod.protocol}, and this one speaks {_spoken()}"
    return Loss(Cause.UNKNOWN_PROTOCOL, text)


def _spoken() -> str:
    return ", ".join(str(version) for version in sorted(protocol.SPOKEN))
