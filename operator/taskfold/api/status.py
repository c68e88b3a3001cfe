"""The parts of a status that both kinds have.

A status holds verdicts, digests and short messages, never a log. `bounds.bounded` keeps the whole below
`MAX_STATUS_BYTES`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from .common import (
    MAX_FAILURE_MESSAGE,
    MAX_SHORT_TEXT,
    MAX_WARNING,
    MAX_WARNINGS,
    Clipped,
    Condition,
    Model,
    Timestamp,
)
from .phases import Phase

MAX_STATUS_BYTES = 16_384
MAX_ATTEMPTS = 10
MAX_JOURNAL = 64
MAX_STEPS = 64
MAX_STEP_REWARDS = 16
MAX_REWARDS = 128
MAX_TIMINGS = 32
MAX_CONDITIONS = 8

Text = Annotated[str, Clipped(MAX_SHORT_TEXT)]
Word = Annotated[str, Clipped(253)]
Number = Annotated[str, Clipped(64)]
Note = Annotated[str, Clipped(MAX_WARNING)]


class Stage(StrEnum):
    """Where a failure happened: the contract's stages."""

    ADMISSION = "admission"
    SEED = "seed"
    AGENT = "agent"
    VERIFICATION = "verification"
    CLEANUP = "cleanup"


class Mode(StrEnum):
    """Where the verifier works: in the agent's own sandbox, or in a fresh one."""

    SHARED = "shared"
    SEPARATE = "separate"


class AgentOutcome(StrEnum):
    """How the agent's phase ended. Verification follows whatever it says."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    SKIPPED = "Skipped"


class JournalPhase(StrEnum):
    """The phases of a pod that are claimed by a nonce before anything is sent."""

    OVERLAY = "overlay"
    """RUN lines of the task's Dockerfile."""
    SEED = "seed"
    """Checks, folders, entrypoint and health checks; in a verifier's own pod also everything that it is given."""
    AGENT = "agent"
    HOOKS = "hooks"
    VERIFY = "verify"


class Failure(Model):
    """Why there is no reward, or why it is 0 although nobody graded the work."""

    kind: Word | None = Field(
        default=None,
        description=("The contract's failure kind, for example harbor:missing_reward. Unset where it names none."),
    )
    reason: Word = Field(
        description="One word from the closed list of reasons in the reference, for example ImagePullFailed."
    )
    message: Annotated[str, Clipped(MAX_FAILURE_MESSAGE)] = Field(
        default="",
        description="What happened, what it means for the score, what to do. At most 2,000 characters.",
    )
    stage: Stage | None = Field(
        default=None, description="Where it happened: admission, seed, agent, verification or cleanup."
    )
    terminal: bool = Field(
        default=False, description="True: the task or the request is wrong, the same again would fail again."
    )


class AgentStatus(Model):
    """How the agent's work went."""

    name: Word | None = Field(
        default=None,
        description="Which agent works: oracle, nop, script, external, or the name of a profile.",
    )
    outcome: AgentOutcome | None = Field(
        default=None,
        description=("How the agent's phase ended: Succeeded, Failed, TimedOut or Skipped. Unset while it goes on."),
    )
    return_code: int | None = Field(
        default=None, description="Return code of the agent's program. Unset when it was killed or has none."
    )
    seconds: float | None = Field(default=None, ge=0, description="How long the agent worked, in seconds.")
    message: Text | None = Field(
        default=None, description="What else is worth knowing about the agent's end, at most 512 characters."
    )
    user: Word | None = Field(
        default=None,
        description="Of an external agent: whom it is to work as, as user or user:group, each a name or a number.",
    )
    workdir: Text | None = Field(
        default=None,
        description="Of an external agent: the task's working directory. Unset: the image's own.",
    )


class VerifierStatus(Model):
    """How the verification went."""

    mode: Mode | None = Field(default=None, description="shared: in the agent's own sandbox. separate: in a fresh one.")
    return_code: int | None = Field(
        default=None, description="Return code of test.sh. Unset when it was killed or did not start."
    )
    seconds: float | None = Field(default=None, ge=0, description="How long test.sh ran, in seconds.")
    timed_out: bool = Field(
        default=False,
        description="True: test.sh was killed at its limit. A valid reward written before then stands.",
    )
    name: Word | None = Field(default=None, description="Name of the VerifierRun, on a TaskRun.")
    uid: Word | None = Field(default=None, description="Uid of the VerifierRun, on a TaskRun.")


class StepAgentStatus(Model):
    """How the agent's work went in one step."""

    outcome: AgentOutcome | None = Field(
        default=None, description="How it ended: Succeeded, Failed, TimedOut or Skipped. Unset: it did not."
    )
    return_code: int | None = Field(
        default=None, description="Return code of the agent's program. Unset when it was killed or has none."
    )
    seconds: float | None = Field(default=None, ge=0, description="How long the agent worked, in seconds.")


class StepVerifierStatus(Model):
    """How the verification of one step went."""

    mode: Mode | None = Field(default=None, description="shared: in the agent's own sandbox. separate: in a fresh one.")
    name: Word | None = Field(default=None, description="Name of the step's VerifierRun.")
    return_code: int | None = Field(
        default=None, description="Return code of test.sh. Unset when it was killed or did not start."
    )
    seconds: float | None = Field(default=None, ge=0, description="How long test.sh ran, in seconds.")
    timed_out: bool = Field(default=False, description="True: test.sh was killed at its limit.")


class StepStatus(Model):
    """The result of one turn of a multi-step task, written once, at its end."""

    name: Word = Field(description="Name of the step.")
    reward: Number | None = Field(default=None, description="Reward of the step as a decimal text. Unset: none.")
    rewards: dict[Word, float] = Field(
        default_factory=dict,
        description="Named rewards of the step. All of them are in the store, in steps/<name>/rewards.json.",
        json_schema_extra={"maxProperties": MAX_STEP_REWARDS},
    )
    components: bool = Field(
        default=False, description="True: the verifier gave parts; the step's reward is their sum."
    )
    masked: bool = Field(default=False, description="True: the step cannot be graded.")
    kind: Word | None = Field(default=None, description="The contract's failure kind, as in `failure`.")
    reason: Word | None = Field(
        default=None, description="Reason when the step has no verdict, or one that nobody gave."
    )
    agent: StepAgentStatus | None = Field(default=None, description="How the agent's work went in this step.")
    verifier: StepVerifierStatus | None = Field(default=None, description="How the verification of the step went.")
    ended_at: Timestamp | None = Field(default=None, description="When the operator knew the step's outcome.")

    @model_serializer(mode="wrap")
    def _lean(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Nothing that says nothing: there may be many steps."""
        return {key: value for key, value in handler(self).items() if value not in (None, False, {})}


class Admitted(Model):
    """What was admitted: a later difference ends the run with SpecChanged or TaskChanged."""

    spec_digest: Word | None = Field(default=None, description="Digest of the immutable part of the spec, sha256:….")
    task_digest: Word | None = Field(default=None, description="Digest of the task folder, sha256:….")
    separate_for_artifacts: bool = Field(
        default=False,
        description="True: the operator verified every task with artifacts separately when the run was admitted.",
    )


class TaskStatus(Model):
    """The task as it was found in its source."""

    id: Word | None = Field(default=None, description="Name of the task in results.")
    image: Annotated[str, Clipped(MAX_SHORT_TEXT)] | None = Field(
        default=None, description="Image of the agent's sandbox, as the task names it."
    )
    image_digest: Annotated[str, Clipped(MAX_SHORT_TEXT)] | None = Field(
        default=None, description="The image that the node really ran, with its digest."
    )


class NetworkStatus(Model):
    """The network restriction of the sandbox, when there is one."""

    mode: Word | None = Field(default=None, description="Restriction in force: no-network or allowlist.")
    enforced: bool | None = Field(
        default=None, description="True: proven in this pod. False: disproved since. Unset: not proven yet."
    )
    mechanism: Word | None = Field(
        default=None, description="What enforces it: NetworkPolicy, NetworkPolicy+Gateway or CiliumNetworkPolicy."
    )
    pod_uid: Word | None = Field(default=None, alias="podUID", description="Uid of the pod that it was proven in.")
    proven_time: Timestamp | None = Field(
        default=None,
        description="When the restriction was proven to be in force, before anything untrusted ran.",
    )
    probe_seconds: float | None = Field(default=None, ge=0, description="How long the proof took, in seconds.")
    attempts: int | None = Field(default=None, ge=0, description="Connections that the probe tried.")
    opened: int | None = Field(
        default=None, ge=0, description="Those of them that came through before the restriction was in force."
    )
    gateways: int | None = Field(default=None, ge=1, description="Pods that the gateway has had. Unset: one at most.")
    gateway_lost_time: Timestamp | None = Field(
        default=None, description="Since when the gateway does not serve. Unset: it does, or there is none."
    )
    refused: int | None = Field(
        default=None, ge=0, description="Names and connections that the gateway refused. Unset: there was none."
    )


class Attempt(Model):
    """One whole attempt: what pod it used and how it ended."""

    number: int = Field(ge=1, description="Number of the attempt, from 1.")
    tries: int = Field(
        default=1,
        ge=0,
        description="How many pods were tried before the agent's first instruction, at most 3.",
    )
    pod_name: Word | None = Field(default=None, description="Name of the last pod.")
    pod_uid: Word | None = Field(
        default=None,
        alias="podUID",
        description="Uid of the last pod. Another uid under the same name is a lost sandbox.",
    )
    node_name: Word | None = Field(default=None, description="Node of the last pod.")
    start_time: Timestamp | None = Field(default=None, description="When the attempt began.")
    try_time: Timestamp | None = Field(default=None, description="When its current try began. Unset: with the attempt.")
    end_time: Timestamp | None = Field(default=None, description="When the attempt ended. Unset while it goes on.")
    reason: Word | None = Field(
        default=None,
        description="Reason why the attempt ended, from the closed list of reasons: a loss, if another one followed.",
    )
    message: Text | None = Field(default=None, description="What happened, at most 512 characters.")


class JournalEntry(Model):
    """One phase in one pod, written before anything of it is sent."""

    phase: JournalPhase = Field(description="Which phase: overlay, seed, agent, hooks or verify.")
    step: Word | None = Field(default=None, description="Step of a multi-step task. Unset in a single-step task.")
    attempt: int = Field(default=1, ge=1, description="Number of the attempt, from 1.")
    try_: int = Field(default=1, ge=1, alias="try", description="Number of the try within the attempt, from 1.")
    nonce: str = Field(
        max_length=64,
        pattern=r"^[0-9a-f]+$",
        description="Random name of this phase in the sandbox: results under another name do not count.",
    )
    pod_name: Word | None = Field(default=None, description="Name of the pod.")
    pod_uid: Word | None = Field(default=None, alias="podUID", description="Uid of the pod that the phase is bound to.")
    started_at: Timestamp | None = Field(
        default=None,
        description="When the phase started in the sandbox. Unset until it was seen to go on for a while.",
    )
    ended_at: Timestamp | None = Field(
        default=None, description="When the phase was seen to be done. Unset until then."
    )


class Status(Model):
    """What a TaskRun and a VerifierRun both report."""

    phase: Phase | None = Field(
        default=None, description="Where the run is, in one word. For people; programs read conditions."
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        description=("Succeeded, Complete, Reconciling, Stalled, and further ones, each with reason and message."),
        json_schema_extra={
            "maxItems": MAX_CONDITIONS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation that this status was computed from."
    )
    reward: Number | None = Field(
        default=None,
        description="The reward as a decimal text, for example 1, 0 or 0.25. Unset: there is no verdict.",
    )
    rewards: dict[Word, float] = Field(
        default_factory=dict,
        description=(
            "Named rewards of reward.json. Those that do not fit are in the store only, and `warnings` says so."
        ),
        json_schema_extra={"maxProperties": MAX_REWARDS},
    )
    reward_components: list[Word] = Field(
        default_factory=list,
        description="Names whose sum is the reward, when the verifier gave parts instead of a reward.",
        json_schema_extra={"maxItems": MAX_REWARDS, "x-kubernetes-list-type": "atomic"},
    )
    masked: bool = Field(default=False, description="True: the row of this run stays and is left out of every mean.")
    failure: Failure | None = Field(
        default=None, description="Why there is no reward, or why it is 0 although nobody graded the work."
    )
    verifier: VerifierStatus | None = Field(default=None, description="How the verification went.")
    admitted: Admitted | None = Field(
        default=None, description="Digests of what was admitted; a later difference ends the run."
    )
    network: NetworkStatus | None = Field(default=None, description="The network restriction, when there is one.")
    journal: list[JournalEntry] = Field(
        default_factory=list,
        description=("Phases that were begun in pods, in order. Lets another operator go on where this one stopped."),
        json_schema_extra={"maxItems": MAX_JOURNAL, "x-kubernetes-list-type": "atomic"},
    )
    timings: dict[Word, float] = Field(
        default_factory=dict,
        description=(
            "How long each part took, in seconds: pod (its start, images included), overlay, seed, agent, export "
            "(hooks, and artifacts into the store), upload (the verifier's files into its sandbox), verification "
            "(test.sh), collect (files into the store), total."
        ),
        json_schema_extra={"maxProperties": MAX_TIMINGS},
    )
    complete: bool = Field(
        default=False,
        description="True: the outcome stands, files are kept, pods are removed. Selectable by field.",
    )
    start_time: Timestamp | None = Field(default=None, description="When the operator admitted the run.")
    verdict_time: Timestamp | None = Field(default=None, description="When the outcome was known.")
    completion_time: Timestamp | None = Field(
        default=None, description="When `complete` became true. ttlSecondsAfterFinished counts from here."
    )
    duration_seconds: float | None = Field(
        default=None, ge=0, description="Seconds from start to verdict; for the Duration column."
    )
    pod_name: Word | None = Field(
        default=None, description="Name of the pod that works or worked last; for the Pod column."
    )
    node_name: Word | None = Field(default=None, description="Node of that pod; for the Node column.")
    warnings: list[Note] = Field(
        default_factory=list,
        description="What else should be known, at most 20 texts of 500 characters.",
        json_schema_extra={"maxItems": MAX_WARNINGS, "x-kubernetes-list-type": "atomic"},
    )

    def wire(self) -> dict[str, Any]:
        """The status as JSON data: nothing unset, no empty list or table."""
        return {key: value for key, value in super().wire().items() if value not in ([], {})}


def reward_text(reward: float) -> str:
    """A reward as `status.reward` shows it: the shortest text of the number, without a needless `.0`."""
    return repr(float(reward) + 0.0).removesuffix(".0")
