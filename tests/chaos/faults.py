"""The faults: what is done to the operator and to the cluster while runs go on.

A blow is a context manager that hurts on entry and heals on exit, whatever happens in between; a fault is how blows
follow each other, and which losses it may cause. A loss that is not listed is a failure of the operator.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from hack.cluster import namespaces, parts
from hack.cluster.parts import Part

from tests.chaos.scene import Scene
from tests.conformance import harness

CUT_NODE = 2
"""The node whose link is cut; the counter of starts runs on the first one."""
DELETIONS_PER_RUN = 2
"""One less than the tries of an attempt: a run that loses no sandbox after its start ends as it must."""


@dataclass(frozen=True)
class Fault:
    """Blows one after the other until every run has ended; seconds are drawn between two bounds."""

    name: str
    blow: Callable[[Scene], AbstractContextManager[None]]
    hold: tuple[float, float] = (0.0, 0.0)
    """How long a blow lasts."""
    pause: tuple[float, float] = (2.0, 4.0)
    """Between two blows."""
    blows: int = 40
    losses: frozenset[str] = frozenset()
    """Reasons with which a run may end instead of its own end, because its sandbox was lost."""
    nodes: int = 0
    """Nodes that the local cluster must have; 0: any cluster will do."""
    operators: int = 1
    election: bool = False
    """Whether the operators elect a leader."""
    long: bool = False
    """Only in the full form: it lasts for a minute or more whatever the number of runs."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """What the spec of each run has besides."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the operator."""


@contextlib.contextmanager
def operator_killed(scene: Scene) -> Iterator[None]:
    """SIGKILL for one operator, and a new process in its place."""
    with _down(scene, scene.next_operator()):
        yield


@contextlib.contextmanager
def _down(scene: Scene, victim: harness.Operator) -> Iterator[None]:
    scene.down.append(victim)
    victim.kill()
    try:
        yield
    finally:
        victim.start()
        scene.down.remove(victim)


@contextlib.contextmanager
def leader_killed(scene: Scene) -> Iterator[None]:
    """SIGKILL for the operator that holds the lease, if one does; the other takes over, a new process stands by."""
    victim = scene.leader()
    if victim is None:
        yield
        return
    with _down(scene, victim):
        yield


@contextlib.contextmanager
def operator_frozen(scene: Scene) -> Iterator[None]:
    """SIGSTOP: its connections stay open, its picture grows old, and what it had in hand it does later."""
    victim = scene.random.choice(scene.operators)
    victim.freeze()
    try:
        yield
    finally:
        victim.thaw()


@contextlib.contextmanager
def leader_frozen(scene: Scene) -> Iterator[None]:
    """SIGSTOP for the operator that holds the lease, if one does; after the blow it finds the other at its work."""
    victim = scene.leader()
    if victim is not None:
        victim.freeze()
    try:
        yield
    finally:
        if victim is not None:
            victim.thaw()


@contextlib.contextmanager
def pod_deleted(scene: Scene) -> Iterator[None]:
    """Somebody deletes the pod of a run, with or without its grace."""
    pods = [pod for pod in scene.pods() if scene.deletions[pod.metadata.labels["taskfold.dev/run"]] < DELETIONS_PER_RUN]
    if pods:
        pod = scene.random.choice(sorted(pods, key=lambda each: each.metadata.name))
        scene.deletions[pod.metadata.labels["taskfold.dev/run"]] += 1
        scene.delete_pod(pod.metadata.name, grace=scene.random.choice([0, None]))
    yield


def _part_killed(part: Part) -> Callable[[Scene], AbstractContextManager[None]]:
    """SIGKILL for a part of the cluster, of a random node if each node has it."""

    @contextlib.contextmanager
    def blow(scene: Scene) -> Iterator[None]:
        local = scene.local_cluster
        number = scene.random.choice(local.node_numbers()) if part.of_node else None
        parts.kill(local, part, number)
        try:
            yield
        finally:
            parts.start(local, part, number)

    return blow


kubelet_killed = _part_killed(Part.KUBELET)
api_server_killed = _part_killed(Part.API_SERVER)


@contextlib.contextmanager
def link_cut(scene: Scene) -> Iterator[None]:
    """The same from a moment on when agents or verifiers run on the node."""
    scene.watch_until_at_work(scene.local_cluster.node_name(CUT_NODE))
    with link_cut_now(scene):
        yield


@contextlib.contextmanager
def link_cut_now(scene: Scene) -> Iterator[None]:
    """A node that nobody reaches and that reaches nobody."""
    namespaces.set_link(scene.local_cluster, CUT_NODE, up=False)
    try:
        yield
    finally:
        namespaces.set_link(scene.local_cluster, CUT_NODE, up=True)


_SHORT_TOLERATION = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    for taint in ("unreachable", "not-ready")
]

FAULTS = (
    Fault("operator-killed-again-and-again", operator_killed),
    Fault("leader-killed", leader_killed, hold=(1, 3), pause=(5, 9), blows=10, operators=2, election=True),
    Fault("one-of-two-operators-killed", operator_killed, hold=(1, 3), pause=(1, 3), operators=2),
    Fault("one-of-two-operators-frozen", operator_frozen, hold=(2, 8), pause=(0.5, 2), operators=2),
    Fault("pods-deleted", pod_deleted, pause=(0.5, 1.5), losses=frozenset({"PodDeleted"})),
    Fault("kubelet-killed", kubelet_killed, hold=(2, 5), pause=(4, 8), blows=12, nodes=1),
    Fault("containerd-killed", _part_killed(Part.CONTAINERD), hold=(1, 3), pause=(4, 8), blows=12, nodes=1),
    Fault("api-server-killed", api_server_killed, hold=(1, 5), pause=(5, 8), blows=10, nodes=1),
    Fault("etcd-killed", _part_killed(Part.ETCD), hold=(1, 4), pause=(2, 5), blows=8, nodes=1),
    Fault("link-cut-for-a-minute", link_cut, hold=(60, 60), blows=1, nodes=CUT_NODE, long=True),
    Fault(
        "link-cut-for-ever",
        link_cut,
        hold=(180, 180),  # until every run has ended
        blows=1,
        nodes=CUT_NODE,
        long=True,
        losses=frozenset({"NodeLost"}),
        spec={"pod": {"tolerations": _SHORT_TOLERATION}},
        settings={"limits": {"deletionSeconds": 10, "collectSeconds": 30}},
    ),
)
