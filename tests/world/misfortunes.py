"""What befalls the pods of a run: each way to lose one, when it strikes, and what the run has to make of it.

Guarantees: a loss strikes the run's newest pod, once, at a moment that can be seen in the world.
"""

from collections.abc import Callable
from dataclasses import dataclass

from taskfold.api.phases import Phase
from taskfold.effects import client as api
from tests.world.play import End, Scenario
from tests.world.programs import Behaviour, Script
from tests.world.scenarios import (
    GRADED,
    HOOKS,
    LONG,
    LONG_TEST,
    RUN,
    has_pod,
    in_phase,
    on,
    one,
    runs,
)
from tests.world.world import NAMESPACE, Condition, Object, World

UNAVAILABLE, OOM, ERROR = "provider_unavailable", "provider_oom_killed", "verifier_error"


@dataclass(frozen=True)
class Loss:
    """One way to lose a sandbox. `reasons`: what the status may say of it; the first when the operator saw it happen,
    the others when nothing but the pod's absence was left to see. `by_agent`: it can have caused this itself (C28).
    """

    name: str
    strike: Callable[[World, str], None]
    reasons: tuple[str, ...]
    by_agent: bool = False
    kind: str = UNAVAILABLE

    def __call__(self, world: World) -> None:
        pods = world.pods(RUN)
        if pods:
            self.strike(world, pods[-1]["metadata"]["name"])

    def ends(self, phase: Phase = Phase.MASKED, reward: str | None = None) -> tuple[End, ...]:
        return tuple(End(phase, reward, reason, self.kind) for reason in self.reasons)


def _node(world: World, name: str) -> str:
    pod = world.server.read(api.PODS, NAMESPACE, name)
    return str(pod["spec"]["nodeName"]) if pod is not None else ""


def _replaced(world: World, name: str) -> None:
    world.delete(api.PODS, name, gracePeriodSeconds=0)
    box = {"name": "main", "image": "python:3.12-slim"}
    metadata = {"name": name, "namespace": NAMESPACE}
    world.server.put(api.PODS, {"metadata": metadata, "spec": {"containers": [box], "nodeName": "node-1"}})


def _power_off(world: World, name: str) -> None:
    world.nodes.lose(_node(world, name))


def _cut_off(world: World, name: str) -> None:
    world.nodes.lose(_node(world, name), removed_after=None)


DELETED = Loss("deleted", lambda world, name: world.delete(api.PODS, name), ("PodDeleted",))
FORCED = Loss(
    "deleted at once", lambda world, name: world.delete(api.PODS, name, gracePeriodSeconds=0), ("PodDeleted",)
)
REPLACED = Loss("replaced", _replaced, ("PodReplaced",))
PRESSED = Loss("evicted under pressure", lambda world, name: world.nodes.evict_for_pressure(name), ("PodEvicted",))
PREEMPTED = Loss("preempted", lambda world, name: world.nodes.preempt(NAMESPACE, name), ("PodPreempted", "PodDeleted"))
DRAINED = Loss("drained", lambda world, name: world.nodes.drain(NAMESPACE, name), ("PodDrained", "PodDeleted"))
NODE_GONE = Loss("on a node that is gone", _power_off, ("NodeGone", "PodDeleted"))
NODE_LOST = Loss("on a node that never answers", _cut_off, ("NodeLost",))
RESTARTED = Loss("restarted", lambda world, name: world.nodes.restart_container(name), ("ContainerRestarted",))
LIMIT = Loss(
    "over its storage limit",
    lambda world, name: world.nodes.evict_for_limit(name),
    ("StorageLimitExceeded",),
    by_agent=True,
)
ENDED = Loss(
    "without its first process",
    lambda world, name: world.nodes.pod(name).boxes["main"].end(1),
    ("SandboxEnded",),
    by_agent=True,
)

LOSSES = (
    DELETED,
    FORCED,
    REPLACED,
    PRESSED,
    PREEMPTED,
    DRAINED,
    NODE_GONE,
    NODE_LOST,
    RESTARTED,
    LIMIT,
    ENDED,
)


# -- when ----------------------------------------------------------------------------------------------------------


def first_pod(look: Callable[[Object], bool]) -> Condition:
    """The first try's pod looks like this."""
    return lambda world: any(pod["metadata"]["name"] == f"{RUN}-1-1" and look(pod) for pod in world.pods(RUN))


def _main(pod: Object, state: str) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(each["name"] == "main" and state in each["state"] for each in statuses)


STARTING = first_pod(lambda pod: _main(pod, "waiting"))
STARTED = first_pod(lambda pod: _main(pod, "running"))

BEFORE_THE_AGENT = {"starting": STARTING, "at its start": STARTED}
AT_WORK = {"at work": "agent", "in its hooks": "hook 1", "in its verification": "test"}


def _busy(program: str) -> dict[str, Behaviour]:
    """A run that is busy for long with this program, and quick with all others."""
    return {program: LONG_TEST if program == "test" else LONG}


def _lost_early(loss: Loss, stage: str, moment: Condition) -> Scenario:
    return one(f"{loss.name}, {stage}", GRADED, happens=on(moment, loss))


def _lost_at_work(loss: Loss, stage: str, program: str) -> Scenario:
    return one(
        f"{loss.name}, {stage}",
        *loss.ends(),
        happens=on(runs(program), loss),
        programs=_busy(program),
        files={"task.toml": HOOKS},
    )


NEEDS_A_CONTAINER = (RESTARTED, LIMIT, ENDED)

EARLY = [
    _lost_early(loss, stage, moment)
    for stage, moment in BEFORE_THE_AGENT.items()
    for loss in LOSSES
    if moment is STARTED or loss not in NEEDS_A_CONTAINER
] + [one("deleted before it has a node", GRADED, happens=on(has_pod, DELETED))]

WORKING = [_lost_at_work(loss, stage, program) for stage, program in AT_WORK.items() for loss in LOSSES]

GRADED_ALREADY = [
    one(f"{loss.name}, when it is graded", GRADED, happens=on(in_phase("Succeeded"), loss))
    for loss in (FORCED, PRESSED)
]
"""A reward that was read stands (C15)."""


# -- what a run may ask for ----------------------------------------------------------------------------------------

ASKED = [
    one(
        "a loss by the agent counts as 0",
        *LIMIT.ends(Phase.SUCCEEDED, "0"),
        happens=on(runs("agent"), LIMIT),
        programs=_busy("agent"),
        onAgentCausedLoss="zero",
    ),
    one(
        "a loss by test.sh counts as 0",
        *ENDED.ends(Phase.SUCCEEDED, "0"),
        happens=on(runs("test"), ENDED),
        programs=_busy("test"),
        onAgentCausedLoss="zero",
    ),
    one(
        "a loss by nobody never counts as 0",
        *FORCED.ends(),
        happens=on(runs("agent"), FORCED),
        programs=_busy("agent"),
        onAgentCausedLoss="zero",
    ),
    one(
        "another attempt after a loss at work",
        GRADED,
        happens=on(runs("agent"), FORCED),
        programs=_busy("agent"),
        retries={"infrastructure": 1},
    ),
    one(
        "another attempt after a loss in the verification",
        GRADED,
        happens=on(runs("test"), PRESSED),
        programs=_busy("test"),
        retries={"infrastructure": 2},
    ),
    one(
        "a loss in every attempt",
        *PRESSED.ends(),
        happens=lambda world: [world.when(_attempt_works(number), PRESSED) for number in (1, 2)] and None,
        programs=_busy("agent"),
        retries={"infrastructure": 1},
    ),
    one(
        "a loss by the agent is not repeated",
        *LIMIT.ends(),
        happens=on(runs("agent"), LIMIT),
        programs=_busy("agent"),
        retries={"infrastructure": 3},
    ),
    one(
        "out of memory, whole",
        End(Phase.MASKED, None, "OOMKilled", OOM),
        programs={"agent": Script(60.0, exhausts_memory=True)},
    ),
    one(
        "out of memory in test.sh",
        End(Phase.MASKED, None, "OOMKilled", OOM),
        programs={"test": Script(60.0, exhausts_memory=True)},
    ),
    one("out of memory, alone", GRADED, programs={"agent": Script(60.0, exhausts_memory=True)}, cgroup=1),
]


def _attempt_works(number: int) -> Condition:
    prefix = f"{RUN}-{number}-"
    return lambda world: any(
        start.name == "agent" and start.pod.startswith(prefix) for start in world.book.table.of(RUN)
    )


# -- what looks like a loss and is none ----------------------------------------------------------------------------


def _away(seconds: float) -> Callable[[World], None]:
    """The kubelet of the run's pod is away for so long."""

    def leave(world: World) -> None:
        node = _node(world, world.pods(RUN)[-1]["metadata"]["name"])
        world.nodes.stop_kubelet(node)
        world.after(seconds, lambda world: world.nodes.start_kubelet(node))

    return leave


def _runtime(world: World) -> None:
    world.nodes.restart_runtime(_node(world, world.pods(RUN)[-1]["metadata"]["name"]))


NO_LOSS = [
    one(
        f"the node is away for {seconds:g} s, {stage}",
        GRADED,
        happens=on(runs(program), _away(seconds)),
        programs=_busy(program),
    )
    for seconds in (20.0, 120.0)
    for stage, program in (("at work", "agent"), ("in its verification", "test"))
] + [
    one(f"the runtime restarts, {stage}", GRADED, happens=on(runs(program), _runtime), programs=_busy(program))
    for stage, program in (("at work", "agent"), ("in its verification", "test"))
]
