"""The operator's settings: one frozen model, read from a YAML file that the chart writes.

Guarantees: every setting has a default that is safe on a small cluster, and unknown keys are refused, so that a
misspelt value in the chart is an error at start and not a silent default.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class _Settings(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,  # docs/reference/settings.md and the chart's schema
    )


class HelperSettings(_Settings):
    """The sandbox helper's image and the way it gets into a pod."""

    image: str = "ghcr.io/taskfold/helper:0.1.0"
    """Image that holds `/helper`, one static binary."""
    mount: Literal["auto", "imageVolume", "copy"] = "auto"
    """`imageVolume` mounts the image read-only; `copy` has an init container copy the binary, which costs a second
    per pod; `auto` takes image volumes from Kubernetes 1.35 on, where they are on by default."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls that image."""


class StoreSettings(_Settings):
    """Where a run's files are kept."""

    url: str = "file:///var/lib/taskfold"
    """`file:///folder`, `s3://bucket/prefix`, `gs://…` or `az://…`."""
    options: dict[str, str] = Field(default_factory=dict)
    """Options of the object store's client, for example `endpoint`."""
    ephemeral: bool = False
    """Says that losing the store with the operator's pod is accepted; only then may the folder be an emptyDir."""


class RegistrySettings(_Settings):
    """Where image configurations are read."""

    mirrors: dict[str, list[str]] = Field(default_factory=dict)
    """Registry host (or `_default`) to base URLs that are asked first."""


class PodSettings(_Settings):
    """Defaults of sandbox pods. A task's own cpus, memory_mb and storage_mb win."""

    cpu_request: str = "100m"
    """Reserved for a task that names no `cpus`."""
    cpu_limit: str | None = None
    """Limit of a task that names no `cpus`. Unset: none."""
    memory_request: str = "256Mi"
    """Reserved for a task that names no `memory_mb`."""
    memory_limit: str = "4Gi"
    """Limit of a task that names no `memory_mb`."""
    storage_request: str = "512Mi"
    """Ephemeral storage reserved for a task that names no `storage_mb`."""
    storage_limit: str = "10Gi"
    """Limit of ephemeral storage of a task that names no `storage_mb`; a pod above it is evicted."""
    cpu_request_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of a task's `cpus` that is reserved on the node. Below 1 more tasks fit and share the processors."""
    memory_request_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of a task's `memory_mb` that is reserved on the node."""
    storage_request_fraction: float = Field(default=0.1, gt=0, le=1)
    """Share of a task's `storage_mb` that is reserved on the node."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls a task's image."""
    capabilities: list[str] = Field(
        default_factory=lambda: [
            "AUDIT_WRITE",
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "MKNOD",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
            "SYS_CHROOT",
        ]
    )
    """What the root profile adds back after dropping all: a container runtime's usual set without NET_RAW."""


class LimitSettings(_Settings):
    """Bounds of waits and sizes. Seconds and bytes."""

    source_seconds: float = 60
    """How long a run waits for a ConfigMap or Secret that it names and that does not exist yet."""
    queue_seconds: float = 3600
    """How long a run may wait for quota, a scheduler's place or a gate before it fails."""
    image_pull_seconds: float = 600
    """How long an image that cannot be pulled is tried again."""
    pod_start_seconds: float = 900
    """How long a scheduled pod may take until its container runs."""
    install_seconds: float = 1800
    """Limit of a script agent's `install`."""
    seed_seconds: float = 600
    """How long one try of the seed phase may take."""
    seed_tries: int = Field(default=3, ge=1, le=10)
    """Tries within one attempt, before the agent's first instruction."""
    agent_grace_seconds: float = 120
    """What the operator waits beyond a phase's own limit before it calls the sandbox lost."""
    outage_seconds: float = 86400
    """What a pod's deadline adds to the sum of its limits, for the case that no operator lives."""
    deletion_seconds: float = 120
    """How long an ending waits for the pod to go before it completes and leaves the rest to the janitor."""
    collect_seconds: float = 600
    """How long collecting the kept files may take."""
    collect_bytes: int = 4 * 1024**3
    """Most bytes that are kept of one run's /logs."""
    collect_entries: int = 200_000
    """Most files and folders that are kept of one run's /logs."""


class ConcurrencySettings(_Settings):
    """What may happen at the same time in one operator process."""

    workers: int = Field(default=32, ge=1)
    """Reconciles at a time."""
    pod_starts: int = Field(default=8, ge=1)
    """Pods between creation and their container's start, over all runs."""
    connections: int = Field(default=512, ge=8)
    """Open connections to the API server, execs included."""
    execs: int = Field(default=256, ge=1)
    """Commands in sandboxes at a time, waits for long phases included."""
    execs_per_node: int = Field(default=64, ge=1)
    """The same for the sandboxes of one node."""


class SecretSettings(_Settings):
    """Which Secrets and ConfigMaps a run may name."""

    require_label: bool = False
    """Admit only objects labelled `taskfold.dev/usable=true`."""


class Settings(_Settings):
    """Everything the operator can be told."""

    cluster_name: str = "default"
    """First part of every key in the store."""
    namespaces: list[str] = Field(default_factory=list)
    """Namespaces to serve; empty means the whole cluster."""
    helper: HelperSettings = HelperSettings()
    store: StoreSettings = StoreSettings()
    registry: RegistrySettings = RegistrySettings()
    pod: PodSettings = PodSettings()
    limits: LimitSettings = LimitSettings()
    concurrency: ConcurrencySettings = ConcurrencySettings()
    secrets: SecretSettings = SecretSettings()
    resync_seconds: float = Field(default=180, ge=1)
    """How often everything is listed anew, against events that never came."""
    health_port: int = 8080
    """Port of the liveness probe, /healthz."""
    log_format: Literal["json", "text"] = "json"
    """One JSON object a line, or text for people."""
