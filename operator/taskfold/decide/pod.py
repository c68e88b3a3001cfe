"""What a pod's status says about a sandbox.

Guarantees: every pod is in exactly one `Standing`, and a pod that is lost has one `Loss` with a reason of the closed
enum. A container's end is read from `state.terminated`, never from the pod's `phase`, which comes a second later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taskfold.api.reasons import Reason

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


_NODE_DISRUPTIONS = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})
"""Reasons of the condition DisruptionTarget that mean: the node does not answer, or is gone."""


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
    """One container status, flattened."""

    name: str
    running: bool
    waiting_reason: str | None
    terminated: bool
    exit_code: int | None
    reason: str | None
    message: str
    restarts: int
    image_id: str
    started_at: str


@dataclass(frozen=True)
class Loss:
    """Why a sandbox is no longer there. `by_agent`: a loss that the agent can cause itself (C28)."""

    reason: Reason
    message: str
    by_agent: bool


@dataclass(frozen=True)
class PodView:
    """A sandbox pod as it was last seen."""

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
        started_at=status.get("startTime", ""),
        schedule_message=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        disruption=disruption.get("reason", "") if disruption.get("status") == "True" else "",
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        containers={c["name"]: _container(c) for c in statuses},
        annotations=metadata.get("annotations") or {},
    )


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
        image_id=status.get("imageID", ""),
        started_at=((state.get("running") or terminated or {}).get("startedAt")) or "",
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


GONE = Loss(Reason.POD_DELETED, "the pod is gone", by_agent=False)


def loss(pod: PodView | None) -> Loss | None:
    """The loss that this pod is, or None while it may still serve. An absent pod was deleted by someone."""
    if pod is None:
        return GONE
    main = pod.main
    if pod.reason == "Evicted" and "exceed" in pod.message and "limit" in pod.message:
        return Loss(Reason.STORAGE_LIMIT_EXCEEDED, pod.message, by_agent=True)
    if pod.reason == "Evicted":
        return Loss(Reason.POD_EVICTED, pod.message or "the pod was evicted", by_agent=False)
    if pod.reason == "DeadlineExceeded":
        return Loss(Reason.DEADLINE_EXCEEDED, "the pod's own deadline ended it; no operator lived", by_agent=False)
    if pod.disruption in _NODE_DISRUPTIONS or pod.reason == "NodeLost":
        return Loss(Reason.NODE_LOST, f"node {pod.node} was lost", by_agent=False)
    if pod.disruption:
        return Loss(Reason.POD_EVICTED, f"the pod was disrupted: {pod.disruption}", by_agent=False)
    if pod.deleting:
        return Loss(Reason.POD_DELETED, "the pod is being deleted", by_agent=False)
    if main is not None and main.terminated and main.reason == "OOMKilled":
        return Loss(Reason.OOM_KILLED, "the container ran out of its memory limit", by_agent=True)
    if main is not None and (main.terminated or main.restarts > 0):
        ended = f"exit code {main.exit_code}, {main.reason or 'no reason'}"
        return Loss(Reason.SANDBOX_LOST, f"the sandbox's first process ended ({ended}) {main.message}".rstrip(), True)
    if pod.phase in ("Failed", "Succeeded"):
        text = pod.message or pod.reason or f"the pod's phase is {pod.phase}"
        return Loss(Reason.SANDBOX_LOST, _failed_init(pod) or text, by_agent=False)
    return None


def _failed_init(pod: PodView) -> str:
    for container in pod.containers.values():
        if container.name != MAIN and container.terminated and container.exit_code:
            return f"init container {container.name} failed (exit code {container.exit_code}): {container.message}"
    return ""
