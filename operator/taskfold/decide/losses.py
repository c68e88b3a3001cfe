"""Every way to lose a sandbox, told apart: the closed table of losses, and what each one means for its run.

Guarantees: a loss has one cause of this table, and a cause one row; causes that share a reason share their fault, so
that a VerifierRun's reason is enough to tell what its loss means. A loss that is nobody's fault, or that cannot be
told apart from one, never counts as 0; one that the agent can cause itself is never repeated (C14, C28).
docs/reference/losses.md is made from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from taskfold.api.reasons import Reason
from taskfold.api.status import Stage
from taskfold.api.taskrun import AgentCausedLoss, TaskRunSpec
from taskfold.contract.failures import FailureKind


class Fault(StrEnum):
    """Who can have caused a loss."""

    AGENT = "agent"
    """The agent can cause it itself, and nothing outside of its sandbox does in the ordinary course of things (C28)."""
    NOBODY = "nobody"
    """Neither the agent nor the task: the cluster, its nodes, its people."""
    OPEN = "open"
    """Both could have: masked, neither counted as 0 nor repeated."""


class Cause(StrEnum):
    """What happened."""

    POD_DELETED = "pod deleted"
    POD_REPLACED = "pod replaced"
    STORAGE_LIMIT = "own storage limit"
    NODE_PRESSURE = "node pressure"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    NODE_GONE = "node gone"
    NODE_LOST = "node does not answer"
    NODE_SHUTDOWN = "node shut down"
    NOT_ADMITTED = "refused by the kubelet"
    OOM = "out of memory"
    FIRST_PROCESS_ENDED = "first process ended"
    STOPPED = "container stopped"
    CONTAINER_LOST = "container lost by the node"
    CONTAINER_RESTARTED = "container restarted"
    IMAGE_LOST = "image lost at a restart"
    NEVER_STARTED = "container cannot start"
    INIT_FAILED = "init container failed"
    POD_DEADLINE = "pod's own deadline"
    UNEXPLAINED = "pod ended, no cause known"
    UNKNOWN_PROTOCOL = "protocol not spoken"
    NO_RESULT = "no result"
    ENTRYPOINT_FAILED = "entrypoint failed"
    UNREPLACEABLE = "unreplaceable files"
    START_BROKEN = "start of test.sh broken"
    START_STARVED = "start of test.sh starved"
    HELPERS_KILLED = "helpers killed"
    DISK_FULL = "disk full"
    NOT_COPIED = "files cannot be copied"
    STEP_SETUP = "setup of a later step failed"
    STEP_UNHEALTHY = "healthcheck of a later step failed"
    STEP_UNSTARTED = "agent of a later step not started"
    NOT_EXPORTED = "artifacts cannot be copied out"
    AGENT_NOT_STOPPED = "agent's pod not stopped"
    NOT_ENFORCED = "network restriction not enforced"
    NOT_PROVEN = "network restriction not proven"
    NO_GATEWAY = "gateway does not answer"
    WIDENED = "network restriction widened"
    VERIFIER_RUN_DELETED = "VerifierRun deleted"
    VERIFIER_RUN_REFUSED = "VerifierRun refused"


AT_WORK = (Stage.AGENT, Stage.VERIFICATION)
ANYWHERE = (Stage.SEED, *AT_WORK)


@dataclass(frozen=True)
class Row:
    """One kind of loss. `seen`: the facts that show it. `stages`: where it can happen."""

    reason: Reason
    fault: Fault
    seen: str
    stages: tuple[Stage, ...] = ANYWHERE
    kind: FailureKind = FailureKind.PROVIDER_UNAVAILABLE


TABLE: Mapping[Cause, Row] = {
    Cause.POD_DELETED: Row(
        Reason.POD_DELETED,
        Fault.NOBODY,
        "`deletionTimestamp`, or no such pod any more, and no row below: a user, or a cause that went with the pod "
        "while no operator looked",
    ),
    Cause.POD_REPLACED: Row(Reason.POD_REPLACED, Fault.NOBODY, "the pod's name, with another uid than the journal's"),
    Cause.STORAGE_LIMIT: Row(
        Reason.STORAGE_LIMIT_EXCEEDED,
        Fault.AGENT,
        "`reason: Evicted` with the kubelet's words about a limit of the pod, a container or an emptyDir",
    ),
    Cause.NODE_PRESSURE: Row(
        Reason.POD_EVICTED,
        Fault.NOBODY,
        "`reason: Evicted` with other words, or a DisruptionTarget whose reason is none of those below",
    ),
    Cause.PREEMPTED: Row(
        Reason.POD_PREEMPTED, Fault.NOBODY, "DisruptionTarget `PreemptionByScheduler`; `reason: Preempting`"
    ),
    Cause.DRAINED: Row(Reason.POD_DRAINED, Fault.NOBODY, "DisruptionTarget `EvictionByEvictionAPI`"),
    Cause.NODE_GONE: Row(Reason.NODE_GONE, Fault.NOBODY, "DisruptionTarget `DeletionByPodGC`"),
    Cause.NODE_LOST: Row(
        Reason.NODE_LOST, Fault.NOBODY, "DisruptionTarget `DeletionByTaintManager`; `reason: NodeLost`"
    ),
    Cause.NODE_SHUTDOWN: Row(
        Reason.NODE_SHUTDOWN, Fault.NOBODY, "`reason: Terminated`, `Shutdown` or `NodeShutdown`, of the kubelet"
    ),
    Cause.NOT_ADMITTED: Row(
        Reason.POD_NOT_ADMITTED,
        Fault.NOBODY,
        "phase Failed with a `reason` of the kubelet's admission: `OutOfcpu`, `OutOfmemory`, `OutOfpods`, "
        "`NodeAffinity`, `UnexpectedAdmissionError`, …; a restarted kubelet may refuse a pod that runs",
    ),
    Cause.OOM: Row(
        Reason.OOM_KILLED,
        Fault.AGENT,
        "`main` terminated, `OOMKilled`, exit code 137: cgroup v2, where the whole container goes; cgroup v1, if the "
        "kernel took the first process (C13)",
        kind=FailureKind.PROVIDER_OOM_KILLED,
    ),
    Cause.FIRST_PROCESS_ENDED: Row(Reason.SANDBOX_ENDED, Fault.AGENT, "`main` terminated in any other way"),
    Cause.STOPPED: Row(
        Reason.SANDBOX_STOPPED,
        Fault.OPEN,
        "`main` terminated, exit code 143 (older helpers: 0): SIGTERM from outside, and no row above says of whom",
    ),
    Cause.CONTAINER_LOST: Row(
        Reason.CONTAINER_LOST,
        Fault.NOBODY,
        "`main` terminated, `ContainerStatusUnknown`, or `Unknown` with exit code 255: what kubelet and runtime say "
        "about a container that vanished",
    ),
    Cause.CONTAINER_RESTARTED: Row(
        Reason.CONTAINER_RESTARTED, Fault.NOBODY, "`main` has a `restartCount`, or waits after it had run"
    ),
    Cause.IMAGE_LOST: Row(Reason.IMAGE_LOST, Fault.NOBODY, "`main` waits for its image after it had run"),
    Cause.NEVER_STARTED: Row(
        Reason.CONTAINER_START_FAILED,
        Fault.NOBODY,
        "`main` terminated, `StartError` or `ContainerCannotRun`",
        (Stage.SEED,),
    ),
    Cause.INIT_FAILED: Row(
        Reason.INIT_CONTAINER_FAILED,
        Fault.NOBODY,
        "phase Failed, an init container with an exit code",
        (Stage.SEED,),
    ),
    Cause.POD_DEADLINE: Row(Reason.POD_DEADLINE_EXCEEDED, Fault.OPEN, "`reason: DeadlineExceeded`"),
    Cause.UNEXPLAINED: Row(Reason.SANDBOX_LOST, Fault.OPEN, "phase Failed or Succeeded, and no row above"),
    Cause.UNKNOWN_PROTOCOL: Row(
        Reason.UNKNOWN_PROTOCOL,
        Fault.NOBODY,
        "the label `taskfold.dev/protocol` names an older version than this operator speaks; of a newer one, which a "
        "rollback leaves: the pod's limits and `limits.outageSeconds` have passed",
    ),
    Cause.NO_RESULT: Row(
        Reason.DEADLINE_EXCEEDED,
        Fault.OPEN,
        "nothing came of the phase until its limit and `limits.agentGraceSeconds` had passed and the operator had "
        "asked for as long: a starved sandbox, or a way to it that is broken",
        AT_WORK,
    ),
    Cause.ENTRYPOINT_FAILED: Row(
        Reason.ENTRYPOINT_FAILED,
        Fault.AGENT,
        "the image's ENTRYPOINT ended with another code than 0, or by a signal, after the seed and before the end of "
        "test.sh",
        AT_WORK,
        FailureKind.ENTRYPOINT_FAILED,
    ),
    Cause.UNREPLACEABLE: Row(
        Reason.TAMPERED,
        Fault.AGENT,
        "the helper cannot replace what is at `/tests` or `/logs/verifier`, as root (C19); nor put a later step's "
        "files into the working directory",
        AT_WORK,
    ),
    Cause.START_BROKEN: Row(
        Reason.TAMPERED,
        Fault.AGENT,
        "test.sh, or a program of a later step, cannot be started: bash, the working directory or the user is gone, "
        "which were there for the agent",
        AT_WORK,
        FailureKind.VERIFIER_ERROR,
    ),
    Cause.START_STARVED: Row(
        Reason.VERIFIER_START_FAILED,
        Fault.AGENT,
        "test.sh cannot be started: no process, no memory, no descriptor is left; or no agent had run that could "
        "have broken anything",
        (Stage.VERIFICATION,),
        FailureKind.VERIFIER_ERROR,
    ),
    Cause.HELPERS_KILLED: Row(
        Reason.TAMPERED,
        Fault.AGENT,
        "several helpers in a row were killed (exit code 137) in a sandbox that goes on: by a process of the agent's, "
        "or at the memory limit that it has used up",
        AT_WORK,
    ),
    Cause.DISK_FULL: Row(
        Reason.DISK_FULL,
        Fault.OPEN,
        "the helper has no room for the verifier's files: the agent's doing below its own limit, or the node's disk "
        "is full, which all of its pods share",
        AT_WORK,
    ),
    Cause.NOT_COPIED: Row(
        Reason.TRANSFER_FAILED,
        Fault.OPEN,
        "the tests, or a later step's files, cannot be put in place, or the reward file is there and cannot be read",
        AT_WORK,
    ),
    Cause.STEP_SETUP: Row(
        Reason.STEP_SETUP_FAILED,
        Fault.OPEN,
        "`workdir/setup.sh` of a step after the first did not end with 0: the task's own fault, or what the agent left",
        (Stage.AGENT,),
    ),
    Cause.STEP_UNHEALTHY: Row(
        Reason.STEP_UNHEALTHY,
        Fault.OPEN,
        "the healthcheck of a step after the first failed: the task's own fault, or what the agent left",
        (Stage.AGENT,),
    ),
    Cause.STEP_UNSTARTED: Row(
        Reason.AGENT_START_FAILED,
        Fault.AGENT,
        "the program of a later step's agent cannot be started: no process, no memory, no descriptor is left",
        (Stage.AGENT,),
    ),
    Cause.NOT_EXPORTED: Row(
        Reason.TRANSFER_FAILED,
        Fault.OPEN,
        "what a separate verification needs cannot be copied out of the agent's sandbox within "
        "`limits.artifactSeconds`",
        (Stage.VERIFICATION,),
    ),
    Cause.AGENT_NOT_STOPPED: Row(
        Reason.AGENT_NOT_STOPPED,
        Fault.OPEN,
        "the agent's pod was asked to go, and neither is gone nor has all containers terminated, `limits.stopSeconds` "
        "after its grace: its node does not answer (C32)",
        (Stage.VERIFICATION,),
    ),
    Cause.NOT_ENFORCED: Row(
        Reason.NETWORK_NOT_ENFORCED,
        Fault.NOBODY,
        "the probe, an init container of a restricted pod, ended with 1: connections to a canary came through until "
        "its deadline",
        (Stage.SEED,),
    ),
    Cause.NOT_PROVEN: Row(
        Reason.CANARY_UNAVAILABLE,
        Fault.NOBODY,
        "the probe was blocked, and none of the canaries that it tried is the same one and ready now: they may have "
        "been dead",
        (Stage.SEED,),
    ),
    Cause.NO_GATEWAY: Row(
        Reason.GATEWAY_UNAVAILABLE,
        Fault.NOBODY,
        "the gateway of an allowlist did not answer the probe until its deadline; or served nobody for "
        "`limits.gatewaySeconds`, its pod lost and no other one running",
    ),
    Cause.WIDENED: Row(
        Reason.NETWORK_WIDENED,
        Fault.NOBODY,
        "a NetworkPolicy of somebody else that selects the restricted pod and allows something; its own one gone, or "
        "another than it was",
    ),
    Cause.VERIFIER_RUN_DELETED: Row(
        Reason.VERIFIER_RUN_DELETED,
        Fault.NOBODY,
        "the VerifierRun that the status names is gone, or has another uid",
        (Stage.VERIFICATION,),
        FailureKind.VERIFIER_ERROR,
    ),
    Cause.VERIFIER_RUN_REFUSED: Row(
        Reason.VERIFIER_ERROR,
        Fault.OPEN,
        "the API server refused the VerifierRun for half an hour",
        (Stage.VERIFICATION,),
        FailureKind.VERIFIER_ERROR,
    ),
}


@dataclass(frozen=True)
class Loss:
    """One loss. `message` says what happened, without a full stop."""

    cause: Cause
    message: str

    @property
    def row(self) -> Row:
        return TABLE[self.cause]

    @property
    def reason(self) -> Reason:
        return self.row.reason


class Consequence(StrEnum):
    """What a loss does to its run."""

    ANOTHER_TRY = "another try"
    NEW_ATTEMPT = "new attempt"
    ZERO = "0"
    MASKED = "masked"


@dataclass(frozen=True)
class Policy:
    """What a run asks for. `zero`: losses by the agent count as 0. `attempts`: whole attempts that may still follow."""

    zero: bool = False
    attempts: int = 0


def policy(spec: TaskRunSpec, attempt: int) -> Policy:
    """The policy of a run in this attempt. An agent that does nothing causes nothing; who cancels wants no attempt."""
    infrastructure = spec.retries.infrastructure if spec.retries is not None else 0
    return Policy(
        zero=spec.on_agent_caused_loss is AgentCausedLoss.ZERO and spec.agent.nop is None,
        attempts=0 if spec.cancel else max(0, infrastructure - (attempt - 1)),
    )


def consequence(fault: Fault, stage: Stage, asked: Policy) -> Consequence:
    """What a loss of this fault does. A reward that was read is out of its reach: it stands (C15)."""
    if stage not in AT_WORK:
        return Consequence.ANOTHER_TRY
    if fault is Fault.AGENT and asked.zero:
        return Consequence.ZERO
    if fault is Fault.NOBODY and asked.attempts > 0:
        return Consequence.NEW_ATTEMPT
    return Consequence.MASKED


def fault_of(reason: str) -> Fault | None:
    """Who can have caused what a VerifierRun was masked for; None: that was no loss."""
    return next((row.fault for row in TABLE.values() if row.reason == reason), None)


@dataclass(frozen=True)
class NoLoss:
    """What looks like a loss and is none, and what the operator makes of it."""

    event: str
    handling: str


NO_LOSSES = (
    NoLoss(
        "a process of the sandbox killed at the memory limit, alone (cgroup v1)",
        "A warning; the agent's or test.sh's own end counts (C13).",
    ),
    NoLoss(
        "the node NotReady and back",
        "The pod goes on. Before the taint manager deletes it (300 s by default) nothing is decided.",
    ),
    NoLoss(
        "the API server away",
        "The agent and test.sh go on. Watches, looks and connections into sandboxes come back with a growing delay; a "
        "phase is asked for again by its nonce and attaches.",
    ),
    NoLoss("etcd restarted", "As the API server away."),
    NoLoss(
        "the operator's token expired",
        "It is read anew from its file, and the call is made again.",
    ),
    NoLoss("kubelet restarted", "Containers go on; connections into the sandbox break and attach again."),
    NoLoss(
        "containerd restarted",
        "The shim keeps the container; connections into the sandbox break and attach again.",
    ),
    NoLoss(
        "the operator killed, stopped or replaced",
        "The next one finds everything in the status, the cluster and the sandbox's journal. Phases that ended "
        "meanwhile are read from the journal, however late.",
    ),
    NoLoss(
        "the operator rolled back below a pod's protocol",
        "The run waits, its conditions say UnknownProtocol, and a newer operator goes on with it; at last the pod's "
        "own deadline ends it.",
    ),
    NoLoss(
        "the agent's program failed, was killed or ran over its limit",
        "The agent's outcome; verification follows and decides the score (C1, C11).",
    ),
)
