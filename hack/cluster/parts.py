"""The parts of a running cluster, one by one: killed, started again as they were, a node's link cut and joined.

This is how tests hurt a cluster and heal it. Everything here may be done twice: what has ended is not ended again,
what runs is not started again. Only parts that `up` has recorded are touched, by pid and start time.
"""

from enum import StrEnum

from hack.cluster import certificates, control_plane, namespaces, node, processes, status
from hack.cluster.api import Api, wait
from hack.cluster.processes import Process
from hack.cluster.settings import ClusterError, Settings

READY_LIMIT = 60.0
HEALED_LIMIT = 90.0


class Part(StrEnum):
    """What can be killed and started again, in the order in which a whole cluster is started."""

    FORWARD = "forward"
    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    REGISTRY = "registry"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    CONTAINERD = "containerd"
    KUBELET = "kubelet"
    KUBE_PROXY = "kube-proxy"
    KUBE_ROUTER = "kube-router"

    @property
    def of_node(self) -> bool:
        """Whether each node has one."""
        return self in {Part.CONTAINERD, Part.KUBELET, Part.KUBE_PROXY, Part.KUBE_ROUTER}


def kill(settings: Settings, part: Part, number: int | None = None) -> None:
    """End a part with SIGKILL and wait until it is gone. `number`: the node's, for a part that each node has."""
    process = _recorded(settings, part, number)
    if processes.alive(process):
        processes.end([process.pid], grace=0)


def start(settings: Settings, part: Part, number: int | None = None) -> None:
    """Start a part that has ended, with the arguments of its first start, and wait until it answers."""
    process = _recorded(settings, part, number)
    if not processes.alive(process):
        _start(settings, part, process)
    _await_answer(settings, part, number)


def restart(settings: Settings, part: Part, number: int | None = None) -> None:
    """Kill a part, if it runs, and start it again."""
    kill(settings, part, number)
    start(settings, part, number)


def heal(settings: Settings) -> list[str]:
    """Join every link and start whatever has ended; returns the names of what was started.

    Raises when the cluster is not healthy within a limit.
    """
    for number in settings.node_numbers():
        namespaces.set_link(settings, number, up=True)
    started = []
    for part in Part:
        for number in settings.node_numbers() if part.of_node else (None,):
            process = _recorded(settings, part, number)
            if not processes.alive(process):
                start(settings, part, number)
                started.append(process.name)
    wait(f"the health of the cluster {settings.name}", lambda: status.observe(settings).healthy, HEALED_LIMIT)
    return started


def renewed(settings: Settings) -> list[str]:
    """Start the API server anew if it runs with other arguments than it would get today; the names of what was.

    A cluster outlives many versions of this tree, and everything else in it is the same in all of them so far. What it
    answers to its clients meanwhile is "connection refused", for some ten seconds.
    """
    process, wanted = _recorded(settings, Part.API_SERVER, None), tuple(control_plane.apiserver_arguments(settings))
    if process.launch is None or process.launch.argv == wanted:
        return []
    certificates.front_proxy(settings)
    kill(settings, Part.API_SERVER)
    processes.start(settings, process.name, wanted, namespace=process.launch.namespace)
    _await_answer(settings, Part.API_SERVER, None)
    return [process.name]


def can_be_healed(settings: Settings) -> bool:
    """Whether the namespaces are still there; after a reboot of the machine they are not."""
    return {path.name for path in processes.own_namespaces(settings.name)} == set(settings.namespaces())


def number_of(settings: Settings, name: str) -> int:
    """The number of the node with this name."""
    for number in settings.node_numbers():
        if settings.node_name(number) == name:
            return number
    raise ClusterError(f"there is no node {name}; the cluster has {settings.nodes}, named node-1 and so on")


def _recorded(settings: Settings, part: Part, number: int | None) -> Process:
    if part.of_node != (number is not None):
        raise ClusterError(f"{part} is {'a part of each node: name one' if part.of_node else 'not a part of a node'}")
    name = part.value if number is None else f"{settings.node_name(number)}-{part}"
    for process in processes.recorded(settings):
        if process.name == name:
            return process
    raise ClusterError(f"the cluster {settings.name} has no record of {name}: it does not run")


def _start(settings: Settings, part: Part, process: Process) -> None:
    if part is Part.FORWARD:
        control_plane.start_forwarder(settings)  # its sockets are opened anew
    else:
        processes.start_again(settings, process)


def _await_answer(settings: Settings, part: Part, number: int | None) -> None:
    """Whoever is started next needs these two; the others connect by themselves when they can."""

    def why_not() -> str:
        return processes.tail(settings, _recorded(settings, part, number).name)

    if part is Part.API_SERVER:
        wait("the API server's readiness", Api(settings.kubeconfig).ready, READY_LIMIT, why_not)
    if part is Part.CONTAINERD and number is not None:
        wait("containerd's answer", lambda: node.containerd_answers(settings, number), READY_LIMIT, why_not)
