"""The operator's settings: one frozen model, read from a YAML file that the chart writes.

Guarantees: every setting has a default that is safe on a small cluster, and unknown keys are refused, so that a
misspelt value in the chart is an error at start and not a silent default.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from .common import MAX_UID
from .gateway_settings import GatewaySettings
from .settings_section import Name
from .settings_section import Section as _Settings


class HelperSettings(_Settings):
    """The sandbox helper's image and the way it gets into a pod."""

    image: str = "ghcr.io/taskfold/helper:0.1.0"
    """Image that holds `/helper`, one static binary."""
    mount: Literal["auto", "imageVolume", "copy"] = "auto"
    """`imageVolume` mounts the image read-only; `copy` has an init container copy the binary, which costs a second
    per pod; `auto` takes image volumes from Kubernetes 1.35 on, where they are on by default."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls that image."""


class StoreEncryption(_Settings):
    """What an S3 store is asked to encrypt new objects with. Unset: what the bucket does by itself."""

    type: Literal["AES256", "aws:kms", "aws:kms:dsse", "sse-c"] | None = None
    """`AES256`: keys of S3. `aws:kms`, `aws:kms:dsse`: a key of KMS. `sse-c`: a key of yours, base64 in the environment
    variable AWS_SSE_CUSTOMER_KEY_BASE64, without which nothing can be read again."""
    kms_key_id: str = ""
    """Key of KMS. Empty: the bucket's, or the account's."""
    bucket_key: bool | None = None
    """Whether one data key serves many objects, which costs fewer calls to KMS. Unset: as the bucket says."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.kms_key_id or self.bucket_key is not None) and self.type not in ("aws:kms", "aws:kms:dsse"):
            raise ValueError("kmsKeyId and bucketKey are for the types aws:kms and aws:kms:dsse")
        return self

    def options(self) -> dict[str, str]:
        """The same as options of the store's client."""
        bucket_key = None if self.bucket_key is None else str(self.bucket_key).lower()
        found = {
            "server_side_encryption": self.type,
            "sse_kms_key_id": self.kms_key_id,
            "sse_bucket_key_enabled": bucket_key,
        }
        return {name: value for name, value in found.items() if value}


_SECRET_WORDS = ("secret", "token", "password", "access_key", "account_key", "customer_key", "service_account_key")
_NO_SECRET_WORDS = ("token_file", "token_url")


class StoreSettings(_Settings):
    """Where a run's files are kept."""

    url: str = "file:///var/lib/taskfold"
    """`file:///folder`, `s3://bucket/prefix`, `gs://…` or `az://…`."""
    options: dict[str, str] = Field(default_factory=dict)
    """Options of the object store's client, for example `endpoint`. No credentials: they come from the environment."""
    server_side_encryption: StoreEncryption = StoreEncryption()
    """What an S3 store is asked to encrypt new objects with."""
    retention_seconds: float | None = Field(default=None, ge=1)
    """Delete a run's files so long after the last of them was written, if the run is no object any more. Unset: they
    are kept for ever."""
    ephemeral: bool = False
    """Says that losing the store with the operator's pod is accepted; only then may the folder be an emptyDir."""

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        for name in self.options:
            said = name.lower()
            if any(word in said for word in _SECRET_WORDS) and not any(word in said for word in _NO_SECRET_WORDS):
                raise ValueError(f"store.options.{name} is a secret: give it in the environment (store.secretName)")
        if self.server_side_encryption.type is not None and not self.url.startswith("s3://"):
            raise ValueError("store.serverSideEncryption is for an s3:// store")
        return self

    def client_options(self) -> dict[str, str]:
        """All options of the store's client."""
        return {**self.options, **self.server_side_encryption.options()}


class RegistrySettings(_Settings):
    """Where image configurations are read."""

    mirrors: dict[str, list[str]] = Field(default_factory=dict)
    """Registry host (or `_default`) to base URLs that are asked first."""
    trusted_hosts: list[str] = Field(default_factory=list)
    """Registry hosts (`host` or `host:port`) that may have private addresses. Others are reached at public ones only,
    so that the name of an image cannot lead the operator into the cluster's inside."""


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
    gpu_resource: Name = "nvidia.com/gpu"
    """Extended resource that a task's `gpus` is a number of."""
    gpu_type_label: Name = "nvidia.com/gpu.product"
    """Node label whose value must be one of a task's `gpu_types`."""
    gpu_types: dict[str, list[str]] = Field(default_factory=dict)
    """Values of that label that a type in `gpu_types` means, for example `{H100: [NVIDIA-H100-80GB-HBM3]}`. A type that
    is not listed is taken letter for letter."""
    tpu_resource: Name = "google.com/tpu"
    """Extended resource that the chips of a task's `tpu` are counted in."""
    tpu_type_label: Name = "cloud.google.com/gke-tpu-accelerator"
    """Node label that must be the `type` of a task's `tpu`."""
    tpu_topology_label: Name = "cloud.google.com/gke-tpu-topology"
    """Node label that must be the `topology` of a task's `tpu`."""
    security_profile: Literal["root", "userns", "restricted"] = "root"
    """Profile of a run that names none in `spec.security.profile`."""
    restricted_uid: int | None = Field(default=None, ge=1, le=MAX_UID)
    """User of pods with the profile `restricted`, unless the run or the task names a number. Unset: the image's own,
    which must be a number other than 0."""
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
    """Limit of a script agent's `install`, and of each step's `workdir/setup.sh`."""
    seed_seconds: float = 600
    """How long one try of the seed phase may take."""
    seed_tries: int = Field(default=3, ge=1, le=10)
    """Tries within one attempt, before the agent's first instruction."""
    retry_seconds: float = Field(default=2, ge=0)
    """Wait before a run's second pod; doubled for each further try or attempt, at most 60 s."""
    agent_grace_seconds: float = 120
    """What the operator waits beyond a phase's own limit before it calls the sandbox lost."""
    outage_seconds: float = 86400
    """What a pod's deadline adds to the sum of its limits, for the case that no operator lives."""
    deletion_seconds: float = 120
    """How long an ending waits for the pod to go before it completes and leaves the rest to the janitor."""
    artifact_seconds: float = 3600
    """How long copying a run's artifacts out of its sandbox, or into the verifier's, may take."""
    artifact_bytes: int = 16 * 1024**3
    """Most bytes that are kept of one run's artifacts, all of a verification together. What is over is skipped."""
    artifact_entries: int = 1_000_000
    """Most files and folders of the same."""
    stop_seconds: float = 300
    """How long after its grace an agent's pod may take to be reported stopped, before a separate verification is given
    up."""
    gateway_seconds: float = 60
    """How long the gateway of an allowlist may serve nobody before the work behind it is given up."""
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
    """Calls to the API server at a time. It, `execs` and `waiting.streams` are lowered where the process may not open
    enough files."""
    execs: int = Field(default=256, ge=1)
    """Exchanges with sandboxes at a time: requests, preparations, copies. Waiting for an end is none."""
    execs_per_node: int = Field(default=64, ge=1)
    """The same for the sandboxes of one node."""
    copies: int = Field(default=64, ge=1)
    """Copies into and out of sandboxes at a time."""
    copies_per_node: int = Field(default=16, ge=1)
    """The same for the sandboxes of one node."""


class WaitingSettings(_Settings):
    """How the end of a phase is awaited: first on its stream, later without any connection."""

    stream_seconds: float = Field(default=60, ge=0)
    """How long the stream that started a phase stays open for its end. A phase that goes on is let go of."""
    streams: int = Field(default=256, ge=1)
    """Streams that wait at a time. Without a free place a phase is let go of at once."""
    signal: bool = True
    """Have an ephemeral container of the pod wait for the end of a phase that was let go of; its own end shows in the
    pod's status. Where the cluster refuses it, and without it, the operator looks."""
    look_seconds: float = Field(default=60, ge=1)
    """Longest pause between two looks at a phase that nothing signals; each look is one short exec."""
    signalled_look_seconds: float = Field(default=1800, ge=1)
    """The same while a container waits for the phase and has not ended."""


class SecretSettings(_Settings):
    """Which Secrets and ConfigMaps a run may name."""

    require_label: bool = False
    """Admit only objects labelled `taskfold.dev/usable=true`."""
    refuse_with_shared_verification: bool = False
    """Refuse runs that give a Secret to a verifier (`spec.secretsFrom`, `spec.verifier.env`) which works in the agent's
    sandbox: what the agent leaves there could read it."""


RETRY_JITTER = 1.2
"""A look at the lease comes up to so much later than `retrySeconds`, so that candidates do not ask in step."""


class LeaderElectionSettings(_Settings):
    """Which of several operators works, by a Lease. The times mean what they mean in client-go; the defaults are
    shorter, so that another operator works within twenty seconds."""

    enabled: bool = False
    """Take the lease before anything else, and work only while it is held. The chart switches it on."""
    lease_name: str = Field(default="taskfold", min_length=1, max_length=253)
    """Name of the Lease: operators that serve the same namespaces have the same."""
    lease_namespace: str = ""
    """Its namespace. Empty: that of the operator's service account; outside of a cluster the kubeconfig's, else
    `default`."""
    lease_seconds: int = Field(default=12, ge=2, le=3600)
    """How long the others wait, by their own clocks, after the last renewal that they saw."""
    renew_seconds: float = Field(default=8, gt=0)
    """A leader that could not renew for so long ends at once. Below `leaseSeconds`."""
    retry_seconds: float = Field(default=2, gt=0)
    """How often the lease is renewed, or looked at. Well below `renewSeconds`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.lease_seconds > self.renew_seconds > self.retry_seconds * RETRY_JITTER:
            raise ValueError(f"leaseSeconds > renewSeconds > {RETRY_JITTER:g} times retrySeconds must hold")
        return self


class JanitorSettings(_Settings):
    """What is removed behind runs, and at which pace."""

    finished_seconds: float = Field(default=60, ge=1)
    """How often finished runs are looked at: for a time to live that was set late, and for leftover pods."""
    deletes_per_second: float = Field(default=10, gt=0)
    """Pace of all deletions of expired runs, of leftover pods, and of runs' files in the store."""
    store_seconds: float = Field(default=3600, ge=1)
    """How often the store is searched for what its retention has ended for, and for what nothing refers to."""
    force_delete_seconds: float | None = Field(default=None, ge=60)
    """Remove a pod's object without the kubelet's word so long after its grace has ended. Unset: never. The end of
    the object is not the end of its containers: on a node that is only cut off they go on."""


class ReadingSettings(_Settings):
    """How users read what runs left: an API server beside the cluster's own (docs/results.md)."""

    enabled: bool = False
    """Serve API group `results.taskfold.dev`. The chart switches it on, and makes what belongs to it."""
    port: int = Field(default=8443, ge=1, le=65_535)
    """Port of that server, HTTPS."""
    certificate: str = "/etc/taskfold-reading/tls.crt"
    """File with the server's certificate, PEM. Read again when it changes."""
    key: str = "/etc/taskfold-reading/tls.key"
    """File with its key."""
    streams: int = Field(default=16, ge=1)
    """Files and logs that are sent at a time, at most half of them to one user. Further ones are told to come again."""
    presigned_seconds: int = Field(default=300, ge=0, le=604_800)
    """How long an address in the bucket is good that a user asks for instead of the bytes. 0: there are none."""


class CanarySettings(_Settings):
    """Pods that answer everybody who is not kept from it: what proves that a restriction is in force."""

    namespace: str | None = None
    """Where they run. Unset: there are none, and whoever asks for a restricted network is refused."""
    selector: str = Field(default="app.kubernetes.io/component=canary", min_length=1)
    """Labels that they have, and no other pods there."""
    port: int = Field(default=8053, ge=1, le=65535)
    """At which they answer, by TCP."""


class NetworkSettings(_Settings):
    """How the networks of restricted sandboxes are made."""

    canary: CanarySettings = CanarySettings()
    probe_seconds: float = Field(default=20, gt=0)
    """How long a restriction may take to come into force before its pod is given up."""
    gateway: GatewaySettings = GatewaySettings()


class Settings(_Settings):
    """Everything the operator can be told."""

    separate_verifier_for_artifacts: bool = False
    """Verify every task that declares artifacts in a sandbox of its own, unless the run says otherwise."""
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
    waiting: WaitingSettings = WaitingSettings()
    secrets: SecretSettings = SecretSettings()
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    janitor: JanitorSettings = JanitorSettings()
    reading: ReadingSettings = ReadingSettings()
    network: NetworkSettings = NetworkSettings()
    resync_seconds: float = Field(default=30, ge=1)
    """How often what is unfinished is compared with the API server, by names and versions, against events that never
    came."""
    look_seconds: float = Field(default=180, ge=1)
    """Within how long every unfinished run is looked at, news or not."""
    watch_silent_seconds: float = Field(default=70, ge=1)
    """A watch without an event for so long is opened anew. The API server sends a bookmark every minute."""
    health_port: int = 8080
    """Port of the liveness probe, /healthz."""
    log_format: Literal["json", "text"] = "json"
    """One JSON object a line, or text for people."""
