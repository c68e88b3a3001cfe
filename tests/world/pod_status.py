"""The status of a pod as a kubelet writes it: from what it knows of the pod's containers.

Guarantees: the shapes, reasons, messages and the order of conditions are those of a real kubelet (1.36), compared in
`test_kubelet.py` with statuses that were taken from one. A time of transition changes only with its condition.

The phase is merged as the kubelet does it: what it has decided itself (an eviction) stands as long as the containers'
own end does not say `Succeeded`. So an eviction of a pod whose first process ends with 0 leaves no trace in the status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]
ENDED = ("Failed", "Succeeded")


@dataclass
class State:
    """One container as the kubelet last saw it. One of `waiting`, `running`, `terminated` says what it does."""

    name: str
    image: str = ""
    image_id: str = ""
    container_id: str = ""
    waiting: Json | None = None
    running: Json | None = None
    terminated: Json | None = None
    last: Json = field(default_factory=dict)
    restarts: int = 0

    def wire(self) -> Json:
        kind = "terminated" if self.terminated else "running" if self.running else "waiting"
        found = {"name": self.name, "image": self.image, "imageID": self.image_id, "restartCount": self.restarts}
        completed = self.terminated is not None and self.terminated["exitCode"] == 0
        found |= {"state": {kind: self.terminated or self.running or self.waiting}, "lastState": self.last}
        found |= {"ready": self.running is not None, "started": self.running is not None}
        return {**found, **({"containerID": self.container_id} if self.container_id else {}), "_completed": completed}


@dataclass
class Life:
    """What a kubelet knows of a pod. `decided`: (reason, message) of a phase Failed that is its own decision.

    `stubborn`: the decision is made anew at each look, so that a good exit code does not undo it.
    """

    init: list[State]
    main: list[State]
    ephemeral: list[State] = field(default_factory=list)
    started_at: str = ""
    sandbox: bool = False
    ip: str = ""
    host: str = ""
    decided: tuple[str, str] | None = None
    stubborn: bool = False
    final: bool = False
    """The last look: the pod's sandbox is gone, the phase may be a final one."""


def timestamp(at: datetime) -> str:
    """To the second, as the API has it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def terminated(code: int, reason: str, started: str, finished: str, container: str, message: str = "") -> Json:
    state: Json = {"containerID": container, "exitCode": code, "finishedAt": finished}
    state |= {"message": message} if message else {}
    return {**state, "reason": reason, "startedAt": started}


def write(status: Json, life: Life, now: str) -> None:
    """Bring a status up to what the kubelet knows."""
    phase = _phase(life)
    shown = phase if life.final or phase not in ENDED else status.get("phase", "Pending")
    status["phase"] = shown
    decided = life.decided if life.final and shown == "Failed" else None
    for key, value in zip(("reason", "message"), decided or (None, None), strict=True):
        if value:
            status[key] = value
        else:
            status.pop(key, None)
    status["conditions"] = _conditions(status.get("conditions") or [], life, phase, now)
    status |= {"startTime": life.started_at} if life.started_at else {}
    status |= {"hostIP": life.host, "hostIPs": [{"ip": life.host}]} if life.host else {}
    status |= {"podIP": life.ip, "podIPs": [{"ip": life.ip}]} if life.ip else {}
    for key, states in (
        ("initContainerStatuses", life.init),
        ("containerStatuses", life.main),
        ("ephemeralContainerStatuses", life.ephemeral),
    ):
        if states:
            status[key] = [_container(state, key) for state in states]
    # In the spec the newest comes first; the kubelet sorts what it tells of them.
    status.get("ephemeralContainerStatuses", []).sort(key=lambda each: each["name"])


def _container(state: State, key: str) -> Json:
    wire = state.wire()
    completed = wire.pop("_completed")
    if key.startswith("init"):
        wire |= {"ready": completed, "started": state.running is not None}
    if key.startswith("ephemeral"):
        wire |= {"ready": False}
        del wire["started"]
    return wire


def _phase(life: Life) -> str:
    """Of `restartPolicy: Never`."""
    failed_init = any(state.terminated and state.terminated["exitCode"] for state in life.init)
    ended = bool(life.main) and all(state.terminated for state in life.main)
    good = ended and all(state.terminated and state.terminated["exitCode"] == 0 for state in life.main)
    if life.decided and (life.stubborn or (life.final and not good)):
        return "Failed"
    if failed_init:
        return "Failed"
    if ended:
        return "Succeeded" if good else "Failed"
    return "Running" if any(state.running or state.terminated for state in life.main) else "Pending"


def _conditions(old: Sequence[Json], life: Life, phase: str, now: str) -> list[Json]:
    unfinished = [state.name for state in life.init if not state.terminated or state.terminated["exitCode"]]
    unready = [state.name for state in life.main if not state.running]
    completed, failed = phase == "Succeeded", phase == "Failed"
    if completed:
        initialized: Json = {"status": "True", "reason": "PodCompleted"}
    elif unfinished:
        initialized = _false("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(unfinished)}]")
    else:
        initialized = {"status": "True"}
    if completed or failed:
        ready: Json = _false("PodCompleted" if completed else "PodFailed")
    elif unready or not life.main:
        ready = _false("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        ready = {"status": "True"}
    there = {"status": "True" if life.sandbox and not life.final else "False"}
    own = {"PodReadyToStartContainers": there, "Initialized": initialized, "Ready": ready, "ContainersReady": ready}
    before = {condition["type"]: condition for condition in old}
    others = [condition for condition in old if condition["type"] not in own]
    first = [condition for condition in others if condition["type"] != "PodScheduled"]
    last = [condition for condition in others if condition["type"] == "PodScheduled"]
    return [*first, *(condition(kind, found, before.get(kind), now) for kind, found in own.items()), *last]


def condition(kind: str, found: Mapping[str, Any], old: Mapping[str, Any] | None, now: str) -> Json:
    """A condition with its time of transition."""
    changed = old is None or old["status"] != found["status"]
    since = now if changed or old is None else old["lastTransitionTime"]
    return {"type": kind, "lastProbeTime": None, "lastTransitionTime": since, **found}


def _false(reason: str, message: str = "") -> Json:
    return {"status": "False", "reason": reason, **({"message": message} if message else {})}


def disrupted(status: Json, reason: str, message: str, now: str) -> None:
    """Set the condition DisruptionTarget."""
    kept = [each for each in status.get("conditions") or [] if each["type"] != "DisruptionTarget"]
    found = {"status": "True", "reason": reason, "message": message}
    status["conditions"] = [*kept, condition("DisruptionTarget", found, None, now)]
