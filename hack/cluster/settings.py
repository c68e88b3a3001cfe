"""What one cluster is: its name, folders, ranges and ports, and every name derived from them.

Nothing here touches the machine. Two clusters with different names, states and ports can
run side by side, because every namespace, cgroup and folder carries the cluster's name.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
# A Unix socket's path has at most 107 bytes; the longest one below the state folder needs 43.
MAX_STATE_PATH = 60
# Addresses of the bridge network: the control namespace is .1, node N is .10+N.
MAX_NODES = 9


class ClusterError(Exception):
    """Something the person at the keyboard can act on; the message says what to do."""


@dataclass(frozen=True)
class Settings:
    name: str
    state: Path
    cache: Path
    nodes: int
    bridge_range: IPv4Network
    pod_range: IPv4Network
    service_range: IPv4Network
    api_port: int
    registry_port: int

    # Addresses -----------------------------------------------------------------------------

    @property
    def control_address(self) -> IPv4Address:
        return self.bridge_range[1]

    @property
    def api_service_address(self) -> IPv4Address:
        return self.service_range[1]

    @property
    def dns_address(self) -> IPv4Address:
        return self.service_range[10]

    def node_address(self, number: int) -> IPv4Address:
        return self.bridge_range[10 + number]

    def node_pods(self, number: int) -> IPv4Network:
        """The /24 of node `number` (1, 2, …) inside the pod range."""
        return IPv4Network((int(self.pod_range.network_address) + 256 * number, 24))

    @property
    def registry_address(self) -> str:
        """Where the nodes find the registry."""
        return f"{self.control_address}:5001"

    @property
    def registry_on_host(self) -> str:
        return f"127.0.0.1:{self.registry_port}"

    @property
    def api_url(self) -> str:
        """The API server as the host sees it."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def api_url_inside(self) -> str:
        return f"https://{self.control_address}:6443"

    # Names ---------------------------------------------------------------------------------

    @property
    def control_namespace(self) -> str:
        return f"{self.name}-control"

    def node_name(self, number: int) -> str:
        return f"node-{number}"

    def node_namespace(self, number: int) -> str:
        return f"{self.name}-node-{number}"

    def node_numbers(self) -> range:
        return range(1, self.nodes + 1)

    def namespaces(self) -> list[str]:
        return [self.control_namespace, *(self.node_namespace(n) for n in self.node_numbers())]

    # Folders -------------------------------------------------------------------------------

    @property
    def runtime(self) -> Path:
        """Sockets and mounts of containerd; short, because a shim's socket name alone has 64 bytes."""
        return Path("/run") / f"{self.name}-cluster"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def certificates(self) -> Path:
        return self.state / "certificates"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def bin(self) -> Path:
        return self.state / "bin"

    def node_state(self, number: int) -> Path:
        return self.state / self.node_name(number)

    def node_runtime(self, number: int) -> Path:
        return self.runtime / self.node_name(number)

    # The record ----------------------------------------------------------------------------

    def as_json(self) -> dict[str, object]:
        return {
            field.name: value if isinstance(value := getattr(self, field.name), int) else str(value)
            for field in dataclasses.fields(self)
        }


def from_json(record: Mapping[str, object]) -> Settings:
    """The settings a running cluster was started with, as `Settings.as_json` wrote them."""
    return Settings(
        name=str(record["name"]),
        state=Path(str(record["state"])),
        cache=Path(str(record["cache"])),
        nodes=int(str(record["nodes"])),
        bridge_range=IPv4Network(str(record["bridge_range"])),
        pod_range=IPv4Network(str(record["pod_range"])),
        service_range=IPv4Network(str(record["service_range"])),
        api_port=int(str(record["api_port"])),
        registry_port=int(str(record["registry_port"])),
    )


# Option, environment variable, default, what it means: read by the command line and by the documentation.
OPTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("name", "TASKFOLD_CLUSTER_NAME", "taskfold", "prefix of namespaces, cgroups and folders"),
    ("state", "TASKFOLD_CLUSTER_STATE", "", "folder for state, logs and the kubeconfig"),
    ("cache", "TASKFOLD_CACHE", "", "folder for built programs and images"),
    ("nodes", "TASKFOLD_CLUSTER_NODES", "1", f"number of nodes, 1 to {MAX_NODES}"),
    ("bridge-range", "TASKFOLD_CLUSTER_BRIDGE_RANGE", "10.89.0.0/24", "addresses of nodes and control plane"),
    ("pod-range", "TASKFOLD_CLUSTER_POD_RANGE", "10.244.0.0/16", "addresses of pods, a /24 for each node"),
    ("service-range", "TASKFOLD_CLUSTER_SERVICE_RANGE", "10.96.0.0/16", "addresses of services"),
    ("api-port", "TASKFOLD_CLUSTER_API_PORT", "16443", "loopback port of the API server"),
    ("registry-port", "TASKFOLD_CLUSTER_REGISTRY_PORT", "15001", "loopback port of the registry"),
)


def read(options: Mapping[str, str | None], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from command-line options, then environment variables, then defaults."""
    value = {name: options.get(name) or environ.get(variable) or default for name, variable, default, _ in OPTIONS}
    home = Path(environ.get("HOME") or Path.home())
    name = value["name"]
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,17}", name):
        raise ClusterError(f"the cluster's name {name!r} is not lower-case letters, digits and '-' (up to 18)")
    own = "cluster" if name == "taskfold" else f"cluster-{name}"
    state = value["state"] or Path(environ.get("XDG_STATE_HOME") or home / ".local/state") / "taskfold" / own
    cache = value["cache"] or Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "taskfold"
    settings = Settings(
        name=name,
        state=Path(state).resolve(),
        cache=Path(cache).resolve(),
        nodes=_number(value["nodes"], "nodes", 1, MAX_NODES),
        bridge_range=_range(value["bridge-range"], "bridge-range", 24),
        pod_range=_range(value["pod-range"], "pod-range", 20),
        service_range=_range(value["service-range"], "service-range", 24),
        api_port=_number(value["api-port"], "api-port", 1, 65535),
        registry_port=_number(value["registry-port"], "registry-port", 1, 65535),
    )
    if len(str(settings.state)) > MAX_STATE_PATH:
        raise ClusterError(
            f"the state folder's path is longer than {MAX_STATE_PATH} characters, too long for the sockets"
            " below it: set --state or TASKFOLD_CLUSTER_STATE to a shorter one"
        )
    return settings


def running(settings: Settings) -> Settings | None:
    """The settings recorded by the `up` that made this state folder, or None."""
    try:
        return from_json(json.loads((settings.state / "cluster.json").read_text())["settings"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _number(text: str, option: str, low: int, high: int) -> int:
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ClusterError(f"--{option} is {text!r}; it must be a number from {low} to {high}")
    return int(text)


def _range(text: str, option: str, longest: int) -> IPv4Network:
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise ClusterError(f"--{option} is {text!r}, which is no IPv4 range: {error}") from None
    if network.prefixlen > longest:
        raise ClusterError(f"--{option} is {network}, which is too small: take a /{longest} or larger")
    return network
