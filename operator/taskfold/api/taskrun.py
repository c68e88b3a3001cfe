"""TaskRun: one episode. An agent works in a pod, a VerifierRun grades it, the reward lands in the status."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from . import digest
from .agent import Agent, Finish
from .common import MAX_UID, Clipped, EnvFromList, EnvList, Key, Model, Name, Resource, Seconds, SecretsFromList, Spec
from .pod_options import PodOptions
from .rules import rule, rules
from .status import MAX_ATTEMPTS, MAX_STEPS, AgentStatus, Attempt, Mode, Status, StepStatus, TaskStatus
from .task_source import TaskSource


class Dialect(StrEnum):
    """Whose meaning of the task folder holds."""

    GYM = "gym"
    HARBOR = "harbor"


class NetworkMode(StrEnum):
    """What a sandbox may reach."""

    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"


class SecurityProfile(StrEnum):
    """How much the containers of a run may do."""

    ROOT = "root"
    USERNS = "userns"
    RESTRICTED = "restricted"


class AgentCausedLoss(StrEnum):
    """What a loss counts as that the agent can cause itself."""

    MASK = "mask"
    ZERO = "zero"


class PodRetention(StrEnum):
    """Whether pods stay after the end of their run."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"


class McpGrants(StrEnum):
    """Whether another harness may take a task that has MCP servers."""

    NONE = "none"
    REQUIRED = "required"


class VerifierOverrides(Model):
    """What the run changes about the task's verification."""

    mode: Mode | None = Field(
        default=None,
        description=(
            "shared: grade in the agent's sandbox. separate: in a fresh one, from the artifacts. "
            "Unset: as the task says."
        ),
    )
    timeout_seconds: Seconds | None = Field(
        default=None,
        description="Limit for test.sh, in seconds, fractions allowed. Unset: the task's, else 600.",
    )
    env: EnvList = Field(
        default_factory=list,
        description="Further variables for test.sh; they win over the task's. At most 256.",
    )


class NetworkRestriction(Model):
    """What a pod may reach, enforced by the cluster and proven before anything untrusted runs."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.mode == 'allowlist' || !has(self.allowedHosts) || self.allowedHosts.size() == 0",
                "allowedHosts is only valid with mode allowlist",
            )
        )
    )

    mode: NetworkMode = Field(description="public: no restriction. no-network: nothing. allowlist: allowedHosts only.")
    allowed_hosts: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        default_factory=list,
        max_length=64,
        description=(
            "Host names (*. at the start allowed), IP addresses or CIDR ranges for mode allowlist. At most 64."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class RunNetwork(Model):
    """Network restrictions that the run adds to those of the task."""

    agent: NetworkRestriction | None = Field(
        default=None, description="Restriction of the agent's pod. Unset: none but the task's own."
    )


class ComposeOverlay(Model):
    """Extra Compose files, merged over the task's own."""

    name: Name = Field(description="ConfigMap with the files, in the run's own namespace.")
    keys: list[Key] = Field(
        min_length=1,
        max_length=16,
        description="Keys of the ConfigMap, merged in this order. At most 16.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class Multipliers(Model):
    """Factors for the limits that the task sets."""

    timeout: Annotated[float, Field(gt=0, le=100)] = Field(
        default=1.0,
        description="Factor for the agent's and the verifier's time limits, above 0, at most 100.",
    )
    resource: Annotated[float, Field(gt=0, le=100)] = Field(
        default=1.0,
        description="Factor for cpus, memory_mb and storage_mb, above 0, at most 100. Never for GPUs.",
    )


EmptyDirPath = Annotated[str, Field(max_length=512, pattern=r"^(/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)+$")]


class Security(Model):
    """How much the containers of the run may do."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                rule(
                    f"!has(self.{name}) || !has(self.profile) || self.profile == 'restricted'",
                    f"{name} belongs to the profile restricted",
                )
                for name in ("runAsUser", "emptyDirs")
            )
        )
    )

    profile: SecurityProfile | None = Field(
        default=None,
        description=(
            "root: housekeeping as root with few capabilities. userns: the same in a user namespace of the pod's own. "
            "restricted: Pod Security restricted, everything as one user. Unset: the operator's default."
        ),
    )
    run_as_user: int | None = Field(
        default=None,
        ge=1,
        le=MAX_UID,
        description=(
            "For restricted: number of the one user that everything in the pods runs as. Unset: [agent].user if it is "
            "a number, else the operator's default, else the image's own user, which must be a number other than 0."
        ),
    )
    empty_dirs: list[EmptyDirPath] = Field(
        default_factory=list,
        max_length=8,
        description=(
            "For restricted: folders that are empty and writable in the pods, for example a working directory that "
            "the image does not have. They hide what the image has there. At most 8."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class Retries(Model):
    """Automatic repetition of whole attempts."""

    infrastructure: int = Field(
        default=0,
        ge=0,
        le=MAX_ATTEMPTS - 1,
        description=(
            "How many whole new attempts may follow a loss after the agent's first instruction that is nobody's fault, "
            "0 to 9."
        ),
    )


class Artifact(Model):
    """Something that the agent leaves in its sandbox and that is kept."""

    source: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^/.+",
        description="Absolute path of a file or folder in the sandbox.",
    )
    destination: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        pattern=r"^[^/].*",
        description="Relative path among the kept artifacts. Unset: the source without its leading slash.",
    )
    exclude: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(
        default_factory=list,
        max_length=32,
        description=("Patterns of names inside the folder that are left out, as tar --exclude takes them. At most 32."),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class TaskRunSpec(Spec):
    """What shall run. Fixed after creation, apart from the fields in MUTABLE."""

    MUTABLE: ClassVar[frozenset[str]] = frozenset(
        {"suspend", "cancel", "finish", "ttl_seconds_after_finished", "pod_retention"}
    )

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.finish) || has(self.agent.external)",
                "finish is only for agent.external",
                at=".finish",
            ),
            rule(
                "!has(oldSelf.finish) || (has(self.finish) && self.finish == oldSelf.finish)",
                "finish is set once and cannot be changed or removed",
                at=".finish",
            ),
            rule(
                "!oldSelf.cancel || self.cancel",
                "cancel cannot be taken back; create a new run",
                at=".cancel",
            ),
        )
    )

    task: TaskSource = Field(description="The task folder: exactly one source, and the path inside it.")
    agent: Agent = Field(description="Who works on the task: exactly one of oracle, nop, script, profile, external.")
    finish: Finish | None = Field(
        default=None,
        description="For agent.external: says that the work is done. Set once.",
    )
    verifier: VerifierOverrides | None = Field(
        default=None, description="What the run changes about the task's verification. Unset: nothing."
    )
    environment_from: EnvFromList = Field(
        default_factory=list,
        description=(
            "ConfigMaps and Secrets that fill ${VAR} in the task's env tables; later entries win. At most "
            "32. The operator's own "
            "environment is never read."
        ),
    )
    secrets_from: SecretsFromList = Field(
        default_factory=list,
        description=(
            "Secrets that fill ${VAR} in [verifier].env and [steps.verifier].env only, and win there. At most 32."
        ),
    )
    network: RunNetwork | None = Field(default=None, description="Network restrictions that the run adds.")
    dialect: Dialect = Field(
        default=Dialect.GYM,
        description="Whose meaning of the folder holds, where Harbor's is another one: gym or harbor.",
    )
    mcp_grants: McpGrants | None = Field(
        default=None,
        description=(
            "required: lets another harness take a task whose MCP servers are all streamable-http. Not supported yet."
        ),
    )
    compose_overlay: ComposeOverlay | None = Field(
        default=None, description="Extra Compose files, merged over the task's own. Not supported yet."
    )
    multipliers: Multipliers | None = Field(default=None, description="Factors for the task's limits. Unset: 1.")
    pod: PodOptions | None = Field(default=None, description="Labels, placement and resources of the run's pods.")
    security: Security | None = Field(default=None, description="How much the containers of the run may do.")
    on_agent_caused_loss: AgentCausedLoss = Field(
        default=AgentCausedLoss.MASK,
        description=(
            "What a loss counts as that the agent can cause itself, such as its own memory limit. mask: "
            "left out of means. "
            "zero: reward 0."
        ),
    )
    retries: Retries | None = Field(default=None, description="Automatic repetition of whole attempts. Unset: none.")
    artifacts: list[Artifact] = Field(
        default_factory=list,
        max_length=64,
        description="What to take out of the agent's sandbox besides the task's own artifacts. At most 64.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="Seconds after completion when the run is deleted. Unset: never. May be changed.",
    )
    pod_retention: PodRetention = Field(
        default=PodRetention.NEVER,
        description=("Whether pods stay after the end: Never, OnFailure (no verdict) or Always. May be changed."),
    )
    suspend: bool = Field(
        default=False,
        description=("True: no pod is created until it is false. No effect once the pod exists. May be changed."),
    )
    cancel: bool = Field(default=False, description="True: ends the run and keeps its record. Cannot be taken back.")


class TaskRunStatus(Status):
    """How the run goes, and how it went. Written by the operator only."""

    agent: AgentStatus | None = Field(default=None, description="How the agent's work went.")
    task: TaskStatus | None = Field(default=None, description="The task as it was found in its source.")
    steps: list[StepStatus] = Field(
        default_factory=list,
        description="Results of the turns of a multi-step task that are over, in order.",
        json_schema_extra={"maxItems": MAX_STEPS, "x-kubernetes-list-type": "atomic"},
    )
    attempts: list[Attempt] = Field(
        default_factory=list,
        description="Attempts, in order; the last one is the current one. At most 10.",
        json_schema_extra={
            "maxItems": MAX_ATTEMPTS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["number"],
        },
    )
    store: Annotated[str, Clipped(512)] | None = Field(
        default=None, description="Prefix in the operator's store under which the run's files are kept."
    )


class TaskRun(Resource):
    """One episode: an agent works on a task, a verifier grades it, the reward lands in the status."""

    KIND: ClassVar[str] = "TaskRun"
    PLURAL: ClassVar[str] = "taskruns"
    SHORT_NAME: ClassVar[str] = "tr"

    spec: TaskRunSpec = Field(description="What shall run.")
    status: TaskRunStatus = Field(
        default_factory=TaskRunStatus,
        description="How the run goes, and how it went. Written by the operator only.",
    )


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Digest of the immutable part of a TaskRun's spec as read from the API server; see `digest.of_spec`."""
    return digest.of_spec(TaskRunSpec.model_validate(spec))
