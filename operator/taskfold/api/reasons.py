"""Why a run is where it is: the closed set of reasons.

Each is used with the same spelling as the reason of a condition, of `status.failure` and of an Event, so each
is listed once, with one sentence. Adding one is an API change. None says whether to retry or to mask: that is
decided from the facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Reason(StrEnum):
    """One word per cause, grouped: progress, refusals, start, agent, verdicts, losses, around the run."""

    ADMITTED = "Admitted"
    SUSPENDED = "Suspended"
    QUEUED_FOR_START = "QueuedForStart"
    POD_STARTING = "PodStarting"
    SEEDING = "Seeding"
    AGENT_STARTING = "AgentStarting"
    AGENT_RUNNING = "AgentRunning"
    AWAITING_FINISH = "AwaitingFinish"
    CLOSING = "Closing"
    COLLECTING = "Collecting"
    STOPPING_AGENT = "StoppingAgent"
    AWAITING_RUN = "AwaitingRun"
    VERIFYING = "Verifying"
    VERDICT_REACHED = "VerdictReached"
    RETRYING = "Retrying"
    CLEANUP_PENDING = "CleanupPending"
    COLLECTED = "Collected"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"

    INVALID_SPEC = "InvalidSpec"
    INVALID_TASK = "InvalidTask"
    UNSUPPORTED_FIELD = "UnsupportedField"
    SPEC_CHANGED = "SpecChanged"
    TASK_CHANGED = "TaskChanged"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_FORBIDDEN = "SourceForbidden"
    MISSING_VARIABLE = "MissingVariable"
    NAME_CONFLICT = "NameConflict"
    FORBIDDEN_BY_PROFILE = "ForbiddenByProfile"
    SECRETS_EXPOSED = "SecretsExposed"
    NOT_GRADABLE = "NotGradable"

    QUOTA_EXCEEDED = "QuotaExceeded"
    POD_REJECTED = "PodRejected"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    IMAGE_UNREADABLE = "ImageUnreadable"
    CONTAINER_START_FAILED = "ContainerStartFailed"
    POD_START_TIMEOUT = "PodStartTimeout"
    SEED_FAILED = "SeedFailed"
    RUN_LINE_FAILED = "RunLineFailed"
    ENTRYPOINT_FAILED = "EntrypointFailed"
    HEALTHCHECK_FAILED = "HealthcheckFailed"
    UNKNOWN_USER = "UnknownUser"
    NO_USER_NAMESPACE = "NoUserNamespace"
    MISSING_TOOLS = "MissingTools"

    AGENT_INSTALL_FAILED = "AgentInstallFailed"
    AGENT_START_FAILED = "AgentStartFailed"
    STEP_SETUP_FAILED = "StepSetupFailed"
    STEP_UNHEALTHY = "StepUnhealthy"

    REWARD_MISSING = "RewardMissing"
    REWARD_INVALID = "RewardInvalid"
    VERIFIER_TIMED_OUT = "VerifierTimedOut"
    VERIFIER_START_FAILED = "VerifierStartFailed"
    VERIFIER_ERROR = "VerifierError"

    SANDBOX_LOST = "SandboxLost"
    SANDBOX_ENDED = "SandboxEnded"
    SANDBOX_STOPPED = "SandboxStopped"
    CONTAINER_RESTARTED = "ContainerRestarted"
    CONTAINER_LOST = "ContainerLost"
    IMAGE_LOST = "ImageLost"
    INIT_CONTAINER_FAILED = "InitContainerFailed"
    POD_DELETED = "PodDeleted"
    POD_REPLACED = "PodReplaced"
    POD_NOT_ADMITTED = "PodNotAdmitted"
    POD_EVICTED = "PodEvicted"
    POD_PREEMPTED = "PodPreempted"
    POD_DRAINED = "PodDrained"
    POD_DEADLINE_EXCEEDED = "PodDeadlineExceeded"
    NODE_GONE = "NodeGone"
    NODE_LOST = "NodeLost"
    NODE_SHUTDOWN = "NodeShutdown"
    OOM_KILLED = "OOMKilled"
    STORAGE_LIMIT_EXCEEDED = "StorageLimitExceeded"
    DISK_FULL = "DiskFull"
    TAMPERED = "Tampered"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    VERIFIER_RUN_DELETED = "VerifierRunDeleted"
    AGENT_NOT_STOPPED = "AgentNotStopped"

    NETWORK_ENFORCED = "NetworkEnforced"
    CANARY_UNAVAILABLE = "CanaryUnavailable"
    NETWORK_POLICY_CONFLICT = "NetworkPolicyConflict"
    NETWORK_NOT_ENFORCED = "NetworkNotEnforced"
    GATEWAY_UNAVAILABLE = "GatewayUnavailable"
    NETWORK_WIDENED = "NetworkWidened"

    TRANSFER_FAILED = "TransferFailed"
    STORE_UNAVAILABLE = "StoreUnavailable"
    COLLECT_FAILED = "CollectFailed"
    UNKNOWN_PROTOCOL = "UnknownProtocol"
    INTERNAL = "Internal"

    @property
    def sentence(self) -> str:
        """What happened and what it means, in one or two sentences."""
        return MEANINGS[self].sentence

    @property
    def event_type(self) -> Literal["Normal", "Warning"]:
        """The type of an Event with this reason."""
        return MEANINGS[self].event_type


@dataclass(frozen=True)
class Meaning:
    """How a reason is explained and announced."""

    sentence: str
    event_type: Literal["Normal", "Warning"] = "Warning"


def _normal(sentence: str) -> Meaning:
    return Meaning(sentence, "Normal")


MEANINGS: dict[Reason, Meaning] = {
    # Progress.
    Reason.ADMITTED: _normal("Spec and task are accepted; their digests are in `status.admitted`."),
    Reason.SUSPENDED: _normal("`spec.suspend` is true; nothing is created until it is false."),
    Reason.QUEUED_FOR_START: _normal("Waits for a free start slot: the operator paces how many pods start at a time."),
    Reason.POD_STARTING: _normal("The pod is created and on its way: scheduling, pulling images, starting containers."),
    Reason.SEEDING: _normal("The pod runs; users and tools are checked and the task's files are put in place."),
    Reason.AGENT_STARTING: _normal("The agent is being installed or prepared; its own work has not begun."),
    Reason.AGENT_RUNNING: _normal("The agent works."),
    Reason.AWAITING_FINISH: _normal("The sandbox is ready for an external agent; the run waits for `spec.finish`."),
    Reason.CLOSING: _normal("The agent has ended; `status.agent.outcome` says how. Verification comes next."),
    Reason.COLLECTING: _normal("Artifacts and logs are being copied out of the agent's sandbox into the store."),
    Reason.STOPPING_AGENT: _normal(
        "The agent's pod is being stopped: nothing goes to the verifier's own pod before that is proven."
    ),
    Reason.AWAITING_RUN: _normal("The TaskRun that is to be graded again is not complete yet."),
    Reason.VERIFYING: _normal("The verifier runs, or its result is being read."),
    Reason.VERDICT_REACHED: _normal("The verifier has given a reward; it counts, also when it is 0."),
    Reason.RETRYING: _normal("The last try or attempt was lost for a cause that is nobody's fault; a new one begins."),
    Reason.CLEANUP_PENDING: _normal("The outcome stands; logs are being collected, or pods are being removed."),
    Reason.COLLECTED: _normal("Logs and kept files are in the store; `status.store` says where."),
    Reason.COMPLETED: _normal(
        "Everything is done: outcome, files and clean-up. Nothing of the run will change any more."
    ),
    Reason.CANCELLED: _normal("`spec.cancel` was set before there was a verdict."),
    # Refusals: the spec, the task or what they name is wrong. Nothing is retried.
    Reason.INVALID_SPEC: Meaning("The object asks for something that cannot be; the message names field and remedy."),
    Reason.INVALID_TASK: Meaning("The task folder does not load; the message names file, field, value and remedy."),
    Reason.UNSUPPORTED_FIELD: Meaning("A field, key or file is set that this version does not implement yet."),
    Reason.SPEC_CHANGED: Meaning("The spec differs from the one that was admitted. Create a new run instead."),
    Reason.TASK_CHANGED: Meaning(
        "The task's source no longer gives the folder that was admitted; both digests are named."
    ),
    Reason.SOURCE_NOT_FOUND: Meaning("An object that the spec names, or a key in it, does not exist in the namespace."),
    Reason.SOURCE_FORBIDDEN: Meaning(
        "The operator may not read an object that the spec names; the message says how to allow it."
    ),
    Reason.MISSING_VARIABLE: Meaning(
        "The task needs a variable that neither `environmentFrom` nor `secretsFrom` gives."
    ),
    Reason.NAME_CONFLICT: Meaning(
        "An object with the name of one of the run's children exists and belongs to somebody else."
    ),
    Reason.FORBIDDEN_BY_PROFILE: Meaning(
        "The run's security profile cannot give what the task or the run asks for; the message says what to write "
        "instead."
    ),
    Reason.SECRETS_EXPOSED: Meaning(
        "The run gives Secrets to a verifier in the agent's sandbox, and the operator's settings refuse that."
    ),
    Reason.NOT_GRADABLE: Meaning(
        "What the TaskRun left does not allow to grade it again; the message says what is missing."
    ),
    # Start of the pod.
    Reason.QUOTA_EXCEEDED: Meaning("A ResourceQuota leaves no room for the pod; the run waits, for a limited time."),
    Reason.POD_REJECTED: Meaning("The API server refuses the pod: an admission rule, Pod Security, a bad value."),
    Reason.UNSCHEDULABLE: Meaning("No node takes the pod; the scheduler's words are in the message."),
    Reason.IMAGE_PULL_FAILED: Meaning("A node cannot pull an image of the pod."),
    Reason.IMAGE_UNREADABLE: Meaning(
        "The registry does not give the image's configuration, which the task's Dockerfile needs."
    ),
    Reason.CONTAINER_START_FAILED: Meaning(
        "A container of the pod cannot be started from its image, or ends during the start."
    ),
    Reason.POD_START_TIMEOUT: Meaning("The pod did not become ready in time, and no better cause is known."),
    Reason.SEED_FAILED: Meaning("The sandbox could not be prepared for the task, after all tries."),
    Reason.RUN_LINE_FAILED: Meaning(
        "A RUN line of the task's Dockerfile ended with an error or over the limit, after all tries."
    ),
    Reason.ENTRYPOINT_FAILED: Meaning(
        "The image's ENTRYPOINT ended with another code than 0, or by a signal: at seed, after all tries, or beside "
        "the agent or its verifier."
    ),
    Reason.HEALTHCHECK_FAILED: Meaning(
        "The image's HEALTHCHECK, or the task's healthcheck, did not succeed, after all tries."
    ),
    Reason.UNKNOWN_USER: Meaning("The image has no user of the name that the task or the run asks for."),
    Reason.NO_USER_NAMESPACE: Meaning(
        "The profile userns was asked for, and the node started the pod without a user namespace of its own."
    ),
    Reason.MISSING_TOOLS: Meaning("The image lacks a program that the contract needs, such as bash or tar."),
    # The agent.
    Reason.AGENT_INSTALL_FAILED: Meaning(
        "The agent's installation ended with an error or over its limit; the agent never worked."
    ),
    Reason.AGENT_START_FAILED: Meaning("The image cannot run the agent's program; the agent never worked."),
    Reason.STEP_SETUP_FAILED: Meaning("The workdir/setup.sh of a step ended with an error or over its limit."),
    Reason.STEP_UNHEALTHY: Meaning("The healthcheck of a step failed, so that its agent was not started."),
    # Verdicts and their failures.
    Reason.REWARD_MISSING: Meaning("The verifier wrote no reward; the run counts as 0."),
    Reason.REWARD_INVALID: Meaning("The reward that the verifier wrote is not valid; the run counts as 0."),
    Reason.VERIFIER_TIMED_OUT: Meaning("The verifier ran over its limit and wrote no reward; the run counts as 0."),
    Reason.VERIFIER_START_FAILED: Meaning(
        "The sandbox cannot start test.sh, and what is in the way is no proof of tampering."
    ),
    Reason.VERIFIER_ERROR: Meaning("The VerifierRun could not be created in time; the run is masked."),
    # Losses. docs/reference/losses.md says what each one means for the run.
    Reason.SANDBOX_LOST: Meaning("The pod has ended, and no better cause is known."),
    Reason.SANDBOX_ENDED: Meaning("The sandbox's first process ended, and with it the container."),
    Reason.SANDBOX_STOPPED: Meaning("The sandbox's container was told to stop, and nothing says by whom."),
    Reason.CONTAINER_RESTARTED: Meaning("The sandbox's container was started anew: what ran in it is gone."),
    Reason.CONTAINER_LOST: Meaning(
        "The node's container runtime no longer knows the container: it was lost, or the node was restarted."
    ),
    Reason.IMAGE_LOST: Meaning("The sandbox's container is to start anew, and the node cannot pull its image again."),
    Reason.INIT_CONTAINER_FAILED: Meaning("An init container of the pod ended with an error."),
    Reason.POD_DELETED: Meaning("The pod was deleted, and nothing in it says for which cause: as a user does it."),
    Reason.POD_REPLACED: Meaning("Another pod has the sandbox's name: the pod was deleted and made again by somebody."),
    Reason.POD_NOT_ADMITTED: Meaning("The node's kubelet refused the pod that the scheduler gave it."),
    Reason.POD_EVICTED: Meaning("The kubelet evicted the pod because its node ran short of memory, disk or processes."),
    Reason.POD_PREEMPTED: Meaning("A pod of a higher priority took the sandbox's place."),
    Reason.POD_DRAINED: Meaning("The pod was evicted through the API, as a drain or an autoscaler does it."),
    Reason.POD_DEADLINE_EXCEEDED: Meaning(
        "The pod's own deadline ended it, which is far behind all limits: for very long no operator looked after it."
    ),
    Reason.NODE_GONE: Meaning("The pod's node is no longer in the cluster."),
    Reason.NODE_LOST: Meaning("The pod's node does not answer, or a taint drove the pod from it."),
    Reason.NODE_SHUTDOWN: Meaning("The pod's node was shut down."),
    Reason.OOM_KILLED: Meaning("The kernel killed the sandbox at its memory limit."),
    Reason.STORAGE_LIMIT_EXCEEDED: Meaning(
        "The kubelet evicted the pod because it used more storage than its own limit."
    ),
    Reason.DISK_FULL: Meaning("The sandbox has no room for the verifier's files: the disk is full."),
    Reason.TAMPERED: Meaning("The sandbox was provably altered so that it cannot be graded."),
    Reason.DEADLINE_EXCEEDED: Meaning(
        "A phase gave no result until the operator's own deadline, well after its limit."
    ),
    Reason.VERIFIER_RUN_DELETED: Meaning("Somebody deleted the VerifierRun before it had a verdict."),
    Reason.AGENT_NOT_STOPPED: Meaning(
        "Nothing proved within the limit that the agent's containers had ended; its artifacts are kept."
    ),
    # The network restriction.
    Reason.NETWORK_ENFORCED: _normal("The restriction was proven to be in force before anything untrusted ran."),
    Reason.CANARY_UNAVAILABLE: Meaning(
        "No canary is ready, so that nothing could prove a network restriction; the run waits, for a limited time."
    ),
    Reason.NETWORK_POLICY_CONFLICT: Meaning(
        "Another NetworkPolicy selects the restricted pod and allows what its restriction does not: policies add up."
    ),
    Reason.NETWORK_NOT_ENFORCED: Meaning(
        "The probe in the pod was not blocked within the limit: the cluster does not enforce the restriction, and "
        "nothing untrusted was started."
    ),
    Reason.GATEWAY_UNAVAILABLE: Meaning("The gateway of an allowlist did not answer within the limit."),
    Reason.NETWORK_WIDENED: Meaning(
        "While the restricted pod ran, its NetworkPolicy was changed or removed, or another one came that allows more."
    ),
    # Around the run.
    Reason.TRANSFER_FAILED: Meaning("Files could not be copied into or out of the sandbox, or their checksums differ."),
    Reason.STORE_UNAVAILABLE: Meaning(
        "The store for kept files does not take what the run left; the operator tries again."
    ),
    Reason.COLLECT_FAILED: Meaning("Logs or artifacts could not be kept. The outcome stands."),
    Reason.UNKNOWN_PROTOCOL: Meaning(
        "The pod was made by an operator version whose protocol this one does not speak: it waits for a newer version, "
        "and gives an older one's pod up."
    ),
    Reason.INTERNAL: Meaning("The operator met an error of its own; please report it with the message."),
}


def table_rows() -> list[tuple[str, str, str]]:
    """(reason, event type, sentence), for the reference."""
    return [(reason.value, reason.event_type, reason.sentence) for reason in Reason]
