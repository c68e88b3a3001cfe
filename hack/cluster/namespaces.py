"""The cluster's network: one namespace for the control plane with a bridge, one for each node.

Every link is made inside the namespaces, so the host gets no link, address, route or
packet filter rule from it. The refusal of overlapping ranges is here as well.
"""

import json
import subprocess
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from hack.cluster.processes import NETNS, own_namespaces
from hack.cluster.settings import ClusterError, Settings

POD_BRIDGE = "pods0"


def routes_of_host() -> list[str]:
    """The destinations of the host's IPv4 routes, as `ip route` writes them, without the default."""
    text = _run("ip", "-4", "-json", "route", "show", "table", "main")
    return [route["dst"] for route in json.loads(text or "[]") if route["dst"] != "default"]


def refuse_overlap(settings: Settings, routes: Iterable[str]) -> None:
    """Raise when a range of the cluster is also routed by the host, or two of its ranges overlap."""
    ranges = {
        "bridge-range": settings.bridge_range,
        "pod-range": settings.pod_range,
        "service-range": settings.service_range,
    }
    for option, ours in ranges.items():
        for text in routes:
            if ours.overlaps(IPv4Network(text, strict=False)):
                raise ClusterError(
                    f"the range {ours} of the cluster overlaps the host's route to {text}:"
                    f" set --{option} (or {_variable(option)}) to a free range"
                )
    names = list(ranges)
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            if ranges[first].overlaps(ranges[second]):
                raise ClusterError(f"--{first} {ranges[first]} and --{second} {ranges[second]} overlap")


def make(settings: Settings) -> None:
    """Make all namespaces and connect them.

    All of them before the first containerd starts: `ip netns add` changes the propagation
    of mounts, and sandboxes that exist at that moment could not be removed later.
    """
    for namespace in settings.namespaces():
        _run("ip", "netns", "add", namespace)
        _ip(namespace, "link", "set", "lo", "up")
        _sysctl(namespace, "net/ipv4/ip_forward", "1")
    control = settings.control_namespace
    length = settings.bridge_range.prefixlen
    _add_bridge(control, "nodes0", settings.control_address)
    _ip(control, "address", "add", f"{settings.control_address}/{length}", "dev", "nodes0")
    _ip(control, "link", "set", "nodes0", "up")
    for number in settings.node_numbers():
        _connect_node(settings, number)
    for number in settings.node_numbers():
        for namespace in settings.namespaces():
            if namespace != settings.node_namespace(number):
                gateway = str(settings.node_address(number))
                _ip(namespace, "route", "add", str(settings.node_pods(number)), "via", gateway)


def _connect_node(settings: Settings, number: int) -> None:
    control, node = settings.control_namespace, settings.node_namespace(number)
    port = settings.node_name(number)
    _ip(control, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node)
    _ip(control, "link", "set", port, "master", "nodes0", "up")
    _ip(
        node,
        "address",
        "add",
        f"{settings.node_address(number)}/{settings.bridge_range.prefixlen}",
        "dev",
        "eth0",
    )
    _ip(node, "link", "set", "eth0", "up")
    # The pods' bridge exists before its first pod, so that the node's address on it does.
    _add_bridge(node, POD_BRIDGE, settings.node_pods(number)[1])
    _ip(node, "address", "add", f"{settings.node_pods(number)[1]}/24", "dev", POD_BRIDGE)
    _ip(node, "link", "set", POD_BRIDGE, "up")
    # Traffic between two pods of one node passes only the bridge: policies must see it too.
    _sysctl(node, "net/bridge/bridge-nf-call-iptables", "1")
    # No route leaves the cluster, and services have addresses no route covers: kube-proxy
    # translates them in OUTPUT, after a route was found. So the node needs one for them.
    _ip(
        node,
        "route",
        "add",
        str(settings.service_range),
        "dev",
        POD_BRIDGE,
        "src",
        str(settings.node_address(number)),
    )


def hardware_address(address: IPv4Address) -> str:
    """The MAC address of the bridge with this address: locally administered, different for each."""
    return "02:42:" + ":".join(f"{byte:02x}" for byte in address.packed)


def _add_bridge(namespace: str, name: str, address: IPv4Address) -> None:
    """With a MAC address of its own. Without one a bridge takes that of a port, and another one when ports come and
    go: whatever the pods send to the address that they have learned is lost then, for up to a minute.
    """
    _ip(namespace, "link", "add", name, "address", hardware_address(address), "type", "bridge")


def set_link(settings: Settings, number: int, *, up: bool) -> None:
    """Cut the only link of a node, or join it again. Its pods go on running, and reach each other."""
    _ip(settings.control_namespace, "link", "set", settings.node_name(number), "up" if up else "down")


def remove(name: str) -> None:
    """Remove the namespaces of the cluster `name`; their links, routes and rules go with them."""
    for path in own_namespaces(name):
        _run("ip", "netns", "delete", path.name)


def _variable(option: str) -> str:
    return "TASKFOLD_CLUSTER_" + option.upper().replace("-", "_")


def _ip(namespace: str, *arguments: str) -> None:
    _run("ip", "-netns", namespace, *arguments)


def _sysctl(namespace: str, key: str, value: str) -> None:
    _run("nsenter", f"--net={NETNS / namespace}", "tee", f"/proc/sys/{key}", stdin=value)


def _run(*argv: str, stdin: str | None = None) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")
    return done.stdout
