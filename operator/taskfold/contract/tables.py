"""The tables of task.toml that occur in more than one place: [environment] and what is in it, artifacts."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from taskfold.contract import artifact_paths, network, spellings, values
from taskfold.contract.network import NetworkMode
from taskfold.contract.values import Key, Secret, Status

DEFAULT_BUILD_SECONDS = 600.0


class Table(BaseModel):
    """One table: strict about types, silent about keys it does not know, frozen.

    `deprecated` maps each old spelling that the table reads to what it means.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)
    deprecated: ClassVar[dict[str, str]] = {}


class Os(StrEnum):
    LINUX = "linux"
    WINDOWS = "windows"


class Transport(StrEnum):
    STDIO = "stdio"
    SSE = "sse"
    STREAMABLE_HTTP = "streamable-http"


class HealthcheckTable(Table):
    """Numbers have no bounds on purpose: published tasks use retries = 0 (C18)."""

    command: Annotated[values.Text, Key("Shell command; exit 0 means healthy.", "Write a command.")]
    interval_sec: Annotated[values.Unbounded, Key("Wait between attempts after the start period.")] = 5.0
    timeout_sec: Annotated[values.Unbounded, Key("Limit of one attempt.")] = 30.0
    start_period_sec: Annotated[values.Unbounded, Key("Failures inside it do not count.")] = 0.0
    start_interval_sec: Annotated[values.Unbounded, Key("Wait between attempts inside the start period.")] = 5.0
    retries: Annotated[values.Retries, Key("Failures in a row that fail the check.")] = 3


class TpuTable(Table):
    type: Annotated[values.Text, Key("Type of the accelerator.")]
    topology: Annotated[
        str,
        Field(pattern=r"^[1-9][0-9]*x[1-9][0-9]*(x[1-9][0-9]*)?$"),
        Key("Axes, such as 2x4.", 'Write "2x4" or "2x2x1".'),
    ]

    @property
    def chips(self) -> int:
        return math.prod(int(axis) for axis in self.topology.split("x"))


_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CREDENTIAL = re.compile(r"authorization|cookie|token|secret|password|credential|api-?key", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^}:]+\}")


def _headers(table: dict[str, str]) -> dict[str, str]:
    for name, value in table.items():
        if not _HEADER.fullmatch(name):
            raise values.rule("is not the name of a header", 'Write a name like "X-Team".', name)
        if "\r" in value or "\n" in value:
            raise values.rule("holds a line break", "Remove it.", name)
        if _CREDENTIAL.search(name) and not _REFERENCE.fullmatch(value):
            raise values.rule("is a credential written out", "Write a reference: ${NAME}.", name)
    return table


class McpServerTable(Table):
    name: Annotated[values.Text, Key("Name of the server.", "Give the server a name.")]
    transport: Annotated[
        Transport,
        values.one_of(Transport),
        Key('How to reach it ("http" is read as "streamable-http").', "Write one of them."),
    ] = Transport.SSE
    url: Annotated[str | None, Key("Address; required for sse and streamable-http.")] = None
    command: Annotated[str | None, Key("Program; required for stdio.")] = None
    args: Annotated[tuple[str, ...], values.ARRAY, Key("Arguments of `command`.")] = ()
    headers: Annotated[
        dict[str, str],
        AfterValidator(_headers),
        Secret(),
        Key("HTTP headers; credentials only as `${NAME}`."),
    ] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _old(cls, data: Any) -> Any:
        return spellings.mcp_server(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.transport is Transport.STDIO:
            if not self.command:
                raise values.rule("is required for stdio", "Write the program to start.", "command")
            if self.headers:
                raise values.rule("have no meaning for stdio", "Remove them.", "headers")
        elif not self.url:
            raise values.rule(f"is required for {self.transport}", "Write the server's address.", "url")
        return self


AllowedHosts = Annotated[
    tuple[Annotated[str, AfterValidator(network.allowed_host)], ...],
    values.ARRAY,
    AfterValidator(network.allowed_hosts),
]
Mode = Annotated[NetworkMode, values.one_of(NetworkMode)]
HOSTS = "What an `allowlist` allows: host names, `*.` before one for all below it, addresses, CIDR blocks."
ONLY_NETWORK, ONLY_HOSTS = "`public`; a restriction in the `harbor` dialect", "in the `harbor` dialect"
"""Of all tables but the verifier's own."""
WRITE_NETWORK = 'Write "public", "no-network" or "allowlist".'
WRITE_HOSTS = 'Write a list like ["api.example.com", "*.example.org", "192.0.2.0/24"].'


class EnvironmentTable(Table):
    """[environment], and [verifier.environment] of the separate mode."""

    deprecated: ClassVar[dict[str, str]] = {
        "memory": '`memory_mb`, as "4G", "512M" or "2048K".',
        "storage": '`storage_mb`, as "10G".',
        "allow_internet": '`network_mode`: true is "public", false is "no-network".',
    }

    docker_image: Annotated[
        values.Image | None,
        Key("Prebuilt image. The RUN lines of a Dockerfile beside it count as applied already."),
    ] = None
    build_timeout_sec: Annotated[
        values.Seconds,
        Key(
            "Limit for pulling the image and starting the pod, and for all RUN lines together.",
            "Write seconds, for example 600.",
        ),
    ] = DEFAULT_BUILD_SECONDS
    os: Annotated[
        Os,
        values.one_of(Os, str.lower),
        Key(
            "Operating system, in any case of letters.",
            'Write "linux".',
            only="`linux`; `windows` is refused",
        ),
    ] = Os.LINUX
    cpus: Annotated[values.Cpus | None, Key("CPUs, as request and limit.", "Write a number, for example 2.")] = None
    memory_mb: Annotated[values.Megabytes | None, Key("Memory in MiB.", "Write whole mebibytes, for example 2048.")] = (
        None
    )
    storage_mb: Annotated[values.Megabytes | None, Key("Disk in MiB.", "Write whole mebibytes, for example 10240.")] = (
        None
    )
    gpus: Annotated[
        values.Count | None,
        Key("GPUs; 0 is none. Never scaled by a multiplier.", "Write a whole number, for example 1."),
    ] = None
    gpu_types: Annotated[
        tuple[str, ...] | None,
        values.ARRAY,
        Key("GPU types that will do, as the nodes' label has them.", 'Write a list, for example ["NVIDIA-L4"].'),
    ] = None
    tpu: Annotated[TpuTable | None, Key("A TPU: its type, and its topology, whose axes give the chips.")] = None
    env: Annotated[
        values.EnvTable,
        Key(
            "Environment of the sandbox; a whole value may be `${VAR}` or `${VAR:-default}`.",
            "Put the value in quotes.",
        ),
    ] = Field(default_factory=dict)
    workdir: Annotated[
        values.Directory | None, Key("Working directory; unset, the image's.", 'Write a path like "/app".')
    ] = None
    healthcheck: Annotated[
        HealthcheckTable | None,
        Key("Waited for at every seed.", "Write a table with a command."),
    ] = None
    mcp_servers: Annotated[
        tuple[McpServerTable, ...],
        values.ARRAY,
        Key(
            "Tool servers of the task.",
            "Remove the tables.",
            Status.NOT_YET,
            "a task with its own MCP servers",
        ),
    ] = ()
    skills_dir: Annotated[
        str | None,
        Key("Folder of skills inside the environment, which the agent is told of.", "Write a path."),
    ] = None
    network_mode: Annotated[
        Mode,
        Key(
            "Network of the sandbox.",
            WRITE_NETWORK,
            only=ONLY_NETWORK,
        ),
    ] = NetworkMode.PUBLIC
    allowed_hosts: Annotated[AllowedHosts | None, Key(HOSTS, WRITE_HOSTS, only=ONLY_HOSTS)] = None

    @model_validator(mode="before")
    @classmethod
    def _old(cls, data: Any) -> Any:
        return spellings.environment(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _policy(self) -> Self:
        network.check_policy(self.network_mode, self.allowed_hosts, tolerate_empty=True)
        return self


_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def service_name(value: str) -> str:
    if not _SERVICE.fullmatch(value):
        raise values.rule("is not the name of a service", 'Write a name like "main".')
    return value


def _source(value: str) -> str:
    path = artifact_paths.normalised(value)
    if path is None:
        text = f'must be a path without "..", of at most {artifact_paths.MAX_BYTES:,} bytes'
        raise values.rule(text, 'Write a path like "/app/report".')
    if path.startswith("/") and (folder := artifact_paths.protected(path)) is not None:
        raise values.rule(f"takes in {folder}, which is not an artifact", "Name the folder that you need.")
    return value


def _destination(value: str) -> str:
    path = artifact_paths.normalised(value)
    reserved = path is not None and path.partition("/")[0] == artifact_paths.MANIFEST
    if path in (None, ".") or value.startswith("/") or "\\" in value or reserved:
        raise values.rule(
            'must be a relative path without "..", other than manifest.json', 'Write a path like "report".'
        )
    return value


MAX_PATTERNS, MAX_PATTERN_BYTES = 256, 1024
"""What the packer in the sandbox takes: each name below a source is held against every pattern."""


def _pattern(value: str) -> str:
    if "\0" in value or len(value.encode("utf-8", "replace")) > MAX_PATTERN_BYTES:
        text = f"must be a pattern of at most {MAX_PATTERN_BYTES:,} bytes without NUL"
        raise values.rule(text, 'Write a pattern like "*.o".')
    return value


def _patterns(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(value) > MAX_PATTERNS:
        raise values.rule(f"has more than {MAX_PATTERNS} patterns", "Name the folders that you need instead.")
    return value


class ArtifactTable(Table):
    """What leaves the agent's sandbox. A string stands for its `source`."""

    source: Annotated[str, AfterValidator(_source), Key("Path in the sandbox.")]
    destination: Annotated[
        Annotated[str, AfterValidator(_destination)] | None, Key("Where the kept copy lands, below the logs.")
    ] = None
    service: Annotated[Annotated[str, AfterValidator(service_name)] | None, Key("Compose service; unset, `main`.")] = (
        None
    )
    exclude: Annotated[
        tuple[Annotated[str, AfterValidator(_pattern)], ...],
        values.ARRAY,
        AfterValidator(_patterns),
        Key("Patterns to leave out of a folder, as tar's --exclude takes them."),
    ] = ()

    @model_validator(mode="before")
    @classmethod
    def _string(cls, data: Any) -> Any:
        if not isinstance(data, str | dict | cls):
            raise values.rule("must be a string or a table", 'Write a path like "/app/report".')
        return {"source": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _absolute(self) -> Self:
        if self.service not in (None, "main") and not self.source.startswith("/"):
            raise values.rule("must be absolute for a service", 'Write a path like "/data".', "source")
        return self
