"""Ways to lose a sandbox: pod objects as kubelets, schedulers and controllers leave them, what the helper refuses, and
what becomes of a VerifierRun; each with the cause that it must be told as, and how to drive a run into it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.decide import apart, restricted, worlds

from taskfold import protocol
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Mode, NetworkStatus, Stage, StepStatus, VerifierStatus
from taskfold.api.taskrun import TaskRunStatus
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.decide import pod as pods
from taskfold.decide import starts, taskrun, verdicts, verifierrun
from taskfold.decide.losses import ANYWHERE, Cause
from taskfold.decide.plan import Plan
from taskfold.decide.world import CopyFailed, NetworkWorld, PhaseActive, PhaseRefused, PhaseUnreached
from taskfold.protocol.phase import FileState

Lost = pods.PodView | None


def main(state: Mapping[str, Any], **more: Any) -> pods.PodView:
    return worlds.seen({"phase": "Running", "containerStatuses": [worlds.container(state, **more)]})


def terminated(reason_: str, code: int, *, ended: float = 1.0, **status: Any) -> pods.PodView:
    """Its container has ended with this reason and code, so many seconds ago. `status`: of the pod."""
    stopped = worlds.stopped(reason_, code, ended=ended)
    return worlds.seen({"phase": "Failed", "containerStatuses": [stopped], **status})


ENDED = {"terminated": {"reason": "Error", "exitCode": 1}}
OLDER = {"labels": {"taskfold.dev/protocol": str(min(protocol.SPOKEN) - 1)}}
INIT_FAILED = worlds.stopped("Error", 1, "no such file", name="helper")

PODS: dict[str, tuple[Cause, Lost]] = {
    "gone": (Cause.POD_DELETED, None),
    "being deleted": (Cause.POD_DELETED, worlds.ready(deletionTimestamp=worlds.ago(0))),
    "being deleted, its first process ended": (
        Cause.POD_DELETED,
        worlds.seen({"containerStatuses": [worlds.stopped("Completed", 0)]}, deletionTimestamp=worlds.ago(0)),
    ),
    "being deleted, a process had been killed at the memory limit (cgroup v1)": (
        Cause.POD_DELETED,
        worlds.seen({"containerStatuses": [worlds.stopped("OOMKilled", 0)]}, deletionTimestamp=worlds.ago(0)),
    ),
    "replaced": (Cause.POD_REPLACED, worlds.ready(uid="another")),
    "over the limit of the pod": (
        Cause.STORAGE_LIMIT,
        worlds.evicted("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "),
    ),
    "over the limit of the container": (
        Cause.STORAGE_LIMIT,
        worlds.evicted('Container main exceeded its local ephemeral storage limit "1Gi". '),
    ),
    "over the limit of an emptyDir": (
        Cause.STORAGE_LIMIT,
        worlds.evicted('Usage of EmptyDir volume "helper" exceeds the limit "64Mi". '),
    ),
    "disk pressure": (
        Cause.NODE_PRESSURE,
        worlds.evicted(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10, available: 8. Container main was "
            "using 500Mi, request is 256Mi, has larger consumption of ephemeral-storage. "
        ),
    ),
    "memory pressure": (
        Cause.NODE_PRESSURE,
        worlds.evicted(
            "The node was low on resource: memory. Container main was using 512Mi, which exceeds its request of 256Mi. "
        ),
    ),
    "pressure at admission": (Cause.NODE_PRESSURE, worlds.evicted("The node had condition: [DiskPressure]. ")),
    "evicted without a word": (Cause.NODE_PRESSURE, worlds.evicted("")),
    "disrupted by somebody else": (Cause.NODE_PRESSURE, worlds.disrupted("DeletionByGardener")),
    "preempted by the scheduler": (Cause.PREEMPTED, worlds.disrupted("PreemptionByScheduler")),
    "preempted by the kubelet": (
        Cause.PREEMPTED,
        worlds.rejected("Preempting", "Preempted in order to admit critical pod"),
    ),
    "over its own limit, its container ended": (
        Cause.STORAGE_LIMIT,
        terminated(
            "Error", 137, reason="Evicted", message='Container main exceeded its local ephemeral storage limit "1".'
        ),
    ),
    "first process ended, and nothing more for a quarter of an hour": (
        Cause.FIRST_PROCESS_ENDED,
        terminated("Error", 137, phase="Running", ended=901.0),
    ),
    "drained": (Cause.DRAINED, worlds.disrupted("EvictionByEvictionAPI")),
    "node gone": (Cause.NODE_GONE, worlds.disrupted("DeletionByPodGC", failed=True)),
    "taint manager": (Cause.NODE_LOST, worlds.disrupted("DeletionByTaintManager")),
    "NodeLost": (Cause.NODE_LOST, worlds.seen({"phase": "Running", "reason": "NodeLost"})),
    "node shut down": (
        Cause.NODE_SHUTDOWN,
        worlds.rejected("Terminated", "Pod was terminated in response to imminent node shutdown."),
    ),
    "node shut down, an old kubelet": (Cause.NODE_SHUTDOWN, worlds.rejected("Shutdown")),
    "refused while the node shuts down": (Cause.NODE_SHUTDOWN, worlds.rejected("NodeShutdown")),
    **{
        reason: (Cause.NOT_ADMITTED, worlds.rejected(reason, "Pod was rejected"))
        for reason in ("OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError")
    },
    "out of memory": (Cause.OOM, worlds.oom_killed()),
    "out of memory, then drained": (
        Cause.OOM,
        worlds.seen(
            {
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
                "containerStatuses": [worlds.stopped("OOMKilled", 137)],
            },
            deletionTimestamp=worlds.ago(0),
        ),
    ),
    "first process killed": (Cause.FIRST_PROCESS_ENDED, terminated("Error", 137)),
    "first process crashed": (Cause.FIRST_PROCESS_ENDED, terminated("Error", 2)),
    "stopped": (Cause.STOPPED, terminated("Error", 143)),
    "stopped, an older helper": (Cause.STOPPED, terminated("Completed", 0, phase="Succeeded")),
    "stopped, a process had been killed at the memory limit (cgroup v1)": (
        Cause.STOPPED,
        terminated("OOMKilled", 143),
    ),
    "vanished, says the kubelet": (Cause.CONTAINER_LOST, terminated("ContainerStatusUnknown", 137)),
    "vanished, says containerd": (Cause.CONTAINER_LOST, terminated("Unknown", 255)),
    "restarted": (Cause.CONTAINER_RESTARTED, main({"running": {"startedAt": worlds.ago(1)}}, restarts=1)),
    "to be started anew": (
        Cause.CONTAINER_RESTARTED,
        main({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, last=ENDED),
    ),
    "image lost at a restart": (
        Cause.IMAGE_LOST,
        main({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, last=ENDED),
    ),
    "cannot be started": (Cause.NEVER_STARTED, terminated("StartError", 128)),
    "cannot be run": (Cause.NEVER_STARTED, terminated("ContainerCannotRun", 127)),
    "init container failed": (
        Cause.INIT_FAILED,
        worlds.seen({"phase": "Failed", "initContainerStatuses": [INIT_FAILED]}),
    ),
    "its own deadline": (Cause.POD_DEADLINE, worlds.rejected("DeadlineExceeded", "Pod was active on the node longer")),
    "failed without a word": (Cause.UNEXPLAINED, worlds.seen({"phase": "Failed"})),
    "older protocol": (Cause.UNKNOWN_PROTOCOL, worlds.ready(**OLDER)),
}
"""By name: the cause that the pod must be told as, and the pod."""

WHERE = {
    Cause.NEVER_STARTED: (Stage.SEED,),
    Cause.INIT_FAILED: (Stage.SEED,),
}
"""Where such a pod can be met; all others anywhere."""


@dataclass(frozen=True)
class Way:
    """One way to a loss in a stage. `decide(spec, attempt)`: what the run decides, in this attempt, with this spec.
    `needs_agent`: it cannot happen to a run of which nobody works.
    """

    cause: Cause
    stage: Stage
    decide: Callable[[Mapping[str, Any], int], Plan]
    needs_agent: bool = False


def in_attempt(status: TaskRunStatus, number: int) -> TaskRunStatus:
    """The status as it is in a later attempt; the earlier ones were lost."""
    current = status.attempts[-1].model_copy(update={"number": number})
    earlier = [
        worlds.Attempt(number=each, tries=1, start_time=worlds.ago(900), end_time=worlds.ago(600), reason="PodDeleted")
        for each in range(1, number)
    ]
    return status.model_copy(update={"attempts": [*earlier, current]})


def _in_pod(found: Lost, stage: Stage) -> Callable[[Mapping[str, Any], int], Plan]:
    def decide(spec: Mapping[str, Any], attempt: int) -> Plan:
        if stage is Stage.VERIFICATION:
            return graded(spec, attempt, pod=found)
        status = worlds.placed() if stage is Stage.SEED else worlds.running()
        return taskrun.decide(worlds.world(in_attempt(status, attempt), pod=found, **spec))

    return decide


def graded(spec: Mapping[str, Any], attempt: int, *, since: float = 5.0, **changes: Any) -> Plan:
    """The VerifierRun decides, is masked and complete, and the run takes over what it says."""
    status = in_attempt(worlds.handed_over(), attempt)
    run = worlds.run(status, **spec)
    verifying = worlds.verifying(since=since, hooks=changes.pop("hooks", False))
    plan = verifierrun.decide(worlds.verifier_world(verifying, run=run, **changes))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.masked, plan.status.complete) == (Phase.MASKED, True, True), plan.status
    verifier = worlds.verifier().model_copy(update={"status": plan.status})
    return taskrun.decide(worlds.world(status, verifier=verifier, **spec))


def graded_apart(spec: Mapping[str, Any], attempt: int, status: VerifierRunStatus, **changes: Any) -> Plan:
    """What the run makes of a separate verification that is lost in this world. Its own ending is still to come."""
    own = VerifierStatus(mode=Mode.SEPARATE, name=worlds.VERIFIER, uid=worlds.VERIFIER_UID)
    handed_over = in_attempt(worlds.handed_over(verifier=own), attempt)
    run = worlds.run(handed_over, **spec)
    plan = verifierrun.decide(apart.world(status, **({"run": run} | changes)))
    assert plan.status is not None
    assert (plan.status.phase, plan.status.masked, plan.status.complete) == (Phase.MASKED, True, False), plan.status
    verifier = worlds.verifier(mode="separate").model_copy(update={"status": plan.status})
    return taskrun.decide(worlds.world(handed_over, verifier=verifier, **spec))


NOT_COPIED = CopyFailed(Reason.TRANSFER_FAILED.value, "no route", 3.0, worlds.SETTINGS.limits.artifact_seconds + 1)


def _reported(report: Any, **more: Any) -> Callable[[Mapping[str, Any], int], Plan]:
    return lambda spec, attempt: graded(spec, attempt, phases={worlds.VERIFY: report}, **more)


def _tested(*runs: Any, **more: Any) -> Callable[[Mapping[str, Any], int], Plan]:
    return lambda spec, attempt: graded(spec, attempt, phases=worlds.done(worlds.VERIFY, *runs, **more))


def _unstarted(error: str | None) -> Callable[[Mapping[str, Any], int], Plan]:
    return _tested(worlds.program("test", None, start_error=error))


def _silent_agent(spec: Mapping[str, Any], attempt: int) -> Plan:
    report = PhaseUnreached("no route", 99, 0.0, asked=121.0)
    status = in_attempt(worlds.running(seeded=28_800 + 121.0), attempt)
    return taskrun.decide(worlds.world(status, phases={worlds.AGENT: report}, **spec))


KILLED = PhaseUnreached("helper phase ended with code 137", 9, 3.0, killed=starts.MAX_KILLS)


def _killing_agent(spec: Mapping[str, Any], attempt: int) -> Plan:
    return taskrun.decide(worlds.world(in_attempt(worlds.running(), attempt), phases={worlds.AGENT: KILLED}, **spec))


def _verifier_deleted(spec: Mapping[str, Any], attempt: int) -> Plan:
    return taskrun.decide(worlds.world(in_attempt(worlds.handed_over(), attempt), **spec))


def _verifier_refused(spec: Mapping[str, Any], attempt: int) -> Plan:
    told = worlds.told(Reason.VERIFIER_ERROR, seconds_ago=1.0, phase=Phase.CLOSING)
    status = worlds.handed_over(None, seeded=1801.0, conditions=told)
    return taskrun.decide(worlds.world(in_attempt(status, attempt), **spec))


WORKED = (worlds.program("agent"),)
DEAD = (worlds.program("entrypoint", None, signal=9),)
STEPPED = worlds.stepped()


def _in_second_step(report: Any) -> Callable[[Mapping[str, Any], int], Plan]:
    """The first step has a verdict; this is what becomes of the second one's phase."""

    def decide(spec: Mapping[str, Any], attempt: int) -> Plan:
        first = StepStatus(name="one", reward="1", rewards={"reward": 1.0}, ended_at=worlds.ago(5))
        status = in_attempt(worlds.running(steps=[first]), attempt)
        found = report if isinstance(report, PhaseRefused) else worlds.done(worlds.AGENT, *report)[worlds.AGENT]
        return taskrun.decide(worlds.world(status, task=STEPPED, phases={worlds.AGENT: found}, **spec))

    return decide


def _not_started(name: str, error: str) -> list[Any]:
    return [worlds.program(name, None, start_error=error)]


STEP: dict[str, tuple[Cause, Any]] = {
    "a step's setup fails": (Cause.STEP_SETUP, [worlds.program("setup", 1)]),
    "a step's healthcheck fails": (
        Cause.STEP_UNHEALTHY,
        [worlds.program("setup", 0), worlds.program("healthcheck", 1)],
    ),
    "a step's agent does not start": (Cause.STEP_UNSTARTED, _not_started("agent", "bash: cannot allocate memory")),
    "bash gone before a step's setup": (Cause.START_BROKEN, _not_started("setup", "bash: not found in PATH")),
    "bash gone before a step's agent": (Cause.START_BROKEN, _not_started("agent", "bash: not found in PATH")),
    "a step's files behind a link": (Cause.UNREPLACEABLE, PhaseRefused("Prepare", '"/app" is a link of user 1000')),
    "no room for a step's files": (Cause.DISK_FULL, PhaseRefused("Unpack", "write /app/x: no space left on device")),
    "a step's files differ": (Cause.NOT_COPIED, PhaseRefused("Digest", "the digests differ")),
}

AT_WORK: dict[str, tuple[Cause, Stage, Callable[[Mapping[str, Any], int], Plan]]] = {
    "the agent's phase gives no result": (Cause.NO_RESULT, Stage.AGENT, _silent_agent),
    "test.sh gives no result": (
        Cause.NO_RESULT,
        Stage.VERIFICATION,
        _reported(PhaseActive("x", asked=121.0), since=721.0),
    ),
    "helpers killed while the agent works": (Cause.HELPERS_KILLED, Stage.AGENT, _killing_agent),
    "helpers killed while test.sh runs": (Cause.HELPERS_KILLED, Stage.VERIFICATION, _reported(KILLED)),
    "helpers killed while hooks run": (
        Cause.HELPERS_KILLED,
        Stage.VERIFICATION,
        lambda spec, attempt: graded(spec, attempt, hooks=True, phases={worlds.HOOKS: KILLED}),
    ),
    "a mount at /tests": (
        Cause.UNREPLACEABLE,
        Stage.VERIFICATION,
        _reported(PhaseRefused("Prepare", "reset: /tests is a mount")),
    ),
    "entrypoint dead when the agent ends": (
        Cause.ENTRYPOINT_FAILED,
        Stage.AGENT,
        lambda spec, attempt: taskrun.decide(
            worlds.world(
                in_attempt(worlds.running(), attempt), phases=worlds.done(worlds.AGENT, *WORKED, beside=DEAD), **spec
            )
        ),
    ),
    "entrypoint dead when a hook ends": (
        Cause.ENTRYPOINT_FAILED,
        Stage.VERIFICATION,
        lambda spec, attempt: graded(spec, attempt, hooks=True, phases=worlds.done(worlds.HOOKS, beside=DEAD)),
    ),
    "entrypoint dead when test.sh ends": (
        Cause.ENTRYPOINT_FAILED,
        Stage.VERIFICATION,
        _tested(worlds.program("test"), files={verdicts.REWARD_TXT: b"1"}, beside=DEAD),
    ),
    "bash gone": (Cause.START_BROKEN, Stage.VERIFICATION, _unstarted("bash: not found in PATH")),
    "working directory gone": (
        Cause.START_BROKEN,
        Stage.VERIFICATION,
        _unstarted("working directory /app: not a directory that exists"),
    ),
    "no process left": (
        Cause.START_STARVED,
        Stage.VERIFICATION,
        _unstarted("/usr/bin/bash in /app: resource temporarily unavailable"),
    ),
    "no memory left": (Cause.START_STARVED, Stage.VERIFICATION, _unstarted("bash: cannot allocate memory")),
    "a variable too long": (Cause.START_STARVED, Stage.VERIFICATION, _unstarted("bash: argument list too long")),
    "test.sh not started, nobody knows why": (Cause.START_STARVED, Stage.VERIFICATION, _tested(worlds.program("x"))),
    "no room for the folders": (
        Cause.DISK_FULL,
        Stage.VERIFICATION,
        _reported(PhaseRefused("Prepare", "directory: mkdir /logs/verifier: no space left on device")),
    ),
    "no room for the tests": (
        Cause.DISK_FULL,
        Stage.VERIFICATION,
        _reported(PhaseRefused("Unpack", "write /tests/data: no space left on device")),
    ),
    "tests that differ": (
        Cause.NOT_COPIED,
        Stage.VERIFICATION,
        _reported(PhaseRefused("Digest", "the digests differ")),
    ),
    "a broken device": (
        Cause.NOT_COPIED,
        Stage.VERIFICATION,
        _reported(PhaseRefused("Prepare", "reset: unlink /tests/x: input/output error")),
    ),
    "reward cannot be read": (
        Cause.NOT_COPIED,
        Stage.VERIFICATION,
        _tested(worlds.program("test"), files={verdicts.REWARD_TXT: FileState.UNREADABLE}),
    ),
    "artifacts that cannot be copied out": (
        Cause.NOT_EXPORTED,
        Stage.VERIFICATION,
        lambda spec, attempt: graded_apart(spec, attempt, apart.closing(), copy=NOT_COPIED),
    ),
    "an agent's pod that does not stop": (
        Cause.AGENT_NOT_STOPPED,
        Stage.VERIFICATION,
        lambda spec, attempt: graded_apart(
            spec,
            attempt,
            apart.placed(Phase.QUEUED, agent_stopped_time=None),
            pod=apart.deleting_agent(worlds.SETTINGS.limits.stop_seconds + 1),
        ),
    ),
    "VerifierRun deleted": (Cause.VERIFIER_RUN_DELETED, Stage.VERIFICATION, _verifier_deleted),
    "VerifierRun refused": (Cause.VERIFIER_RUN_REFUSED, Stage.VERIFICATION, _verifier_refused),
}


def _with_network(
    found: NetworkWorld, known: NetworkStatus | None, stage: Stage, pod: Lost = None
) -> Callable[[Mapping[str, Any], int], Plan]:
    """A run whose sandbox's restriction stands so, in this stage. `pod`: None for one that works."""
    pod = pod if pod is not None else worlds.ready()

    def decide(spec: Mapping[str, Any], attempt: int) -> Plan:
        if stage is Stage.VERIFICATION:
            handed_over = in_attempt(worlds.handed_over(network=known), attempt)
            plan = verifierrun.decide(
                worlds.verifier_world(
                    worlds.verifying(network=known), run=worlds.run(handed_over, **spec), network=found
                )
            )
            assert plan.status is not None
            verifier = worlds.verifier().model_copy(update={"status": plan.status})
            return taskrun.decide(worlds.world(handed_over, verifier=verifier, **spec))
        make = worlds.placed if stage is Stage.SEED else worlds.running
        status = in_attempt(make(network=known), attempt)
        return taskrun.decide(worlds.world(status, pod=pod, network=found, **spec))

    return decide


AWAY = worlds.SETTINGS.limits.gateway_seconds + 1
WITHOUT_GATEWAY = restricted.found(restricted.ALLOWLIST, gateway=None)
LOST_GATEWAY = restricted.proven(restricted.ALLOWLIST, gateway_lost_time=worlds.ago(AWAY))
BESIDE = restricted.found(wider=("allow-all",))
NETWORKS: dict[str, tuple[Cause, tuple[Stage, ...], NetworkWorld, NetworkStatus | None, Lost]] = {
    "a policy beside it": (Cause.WIDENED, ANYWHERE, BESIDE, restricted.proven(), None),
    "its policy gone": (Cause.WIDENED, ANYWHERE, restricted.found(intact=False), restricted.proven(), None),
    "its gateway away": (Cause.NO_GATEWAY, ANYWHERE, WITHOUT_GATEWAY, LOST_GATEWAY, None),
    "never blocked": (
        Cause.NOT_ENFORCED,
        (Stage.SEED,),
        restricted.found(),
        None,
        restricted.probed(restricted.line(enforced=False, blocked=False, open=59, attempts=59), code=1),
    ),
    "no gateway answered": (
        Cause.NO_GATEWAY,
        (Stage.SEED,),
        restricted.found(restricted.ALLOWLIST),
        None,
        restricted.probed(restricted.line(enforced=False, gateway=False), code=1),
    ),
    "its canaries are others now": (
        Cause.NOT_PROVEN,
        (Stage.SEED,),
        restricted.found(),
        None,
        restricted.probed(restricted.line(), canaries="uid-canary-0"),
    ),
    "its probe left nothing": (Cause.NOT_PROVEN, (Stage.SEED,), restricted.found(), None, restricted.probed("")),
}

STAGES = (Stage.SEED, Stage.AGENT, Stage.VERIFICATION)

WAYS: dict[str, Way] = {
    f"{name}, {stage.value}": Way(cause, stage, _in_pod(found, stage))
    for name, (cause, found) in PODS.items()
    for stage in WHERE.get(cause, STAGES)
} | {name: Way(*way) for name, way in AT_WORK.items()}
WAYS |= {
    f"{name}, {stage.value}": Way(cause, stage, _with_network(found, known, stage, pod))
    for name, (cause, stages, found, known, pod) in NETWORKS.items()
    for stage in stages
}
WAYS |= {
    name: Way(cause, Stage.AGENT, _in_second_step(report), needs_agent="step's agent" in name)
    for name, (cause, report) in STEP.items()
}
