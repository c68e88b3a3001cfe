"""The nodes of a world and the controllers around them: node lifecycle, taint eviction, pod collector.

Guarantees: each loss leaves in the pod what a real cluster leaves there: the condition DisruptionTarget with its
reason, a deletion with its grace, or nothing but the absence. Times are those of a cluster with default settings.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from taskfold.effects import client as api
from tests.world import cgroups, kubelet, pod_life, pod_status, programs, sandbox, scheduler, surroundings
from tests.world import exec as execs
from tests.world.kinds import NODES
from tests.world.pod_status import timestamp

Json = dict[str, Any]
UNREADY_SECONDS = 50.0
"""Without news from a kubelet (node-monitor-grace-period)."""
TOLERATION_SECONDS = 300
"""What the API server gives every pod for nodes that do not answer."""
COLLECT_SECONDS = 40.0
"""The collector's pause before it believes that a node is gone, and before its next round."""
SCHEDULE_SECONDS = 0.05
UNREACHABLE = "node.kubernetes.io/unreachable"
PRESSURE = (
    "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 512Mi. Container main was "
    "using 800Mi, request is 64Mi, has larger consumption of ephemeral-storage. "
)


class Nodes:
    """`endpoint` is where execs lead. `kubelets` by the name of their node."""

    def __init__(
        self,
        server: Any,
        now: Callable[[], datetime],
        *,
        names: Iterable[str] = ("node-1",),
        cgroup: int = 2,
        seed: int = 0,
        book: programs.Book | None = None,
        images: surroundings.Images | None = None,
        pace: surroundings.Pace | None = None,
        pods_per_node: int = 110,
    ) -> None:
        self.server = server
        self.book = book or programs.Book()
        self.endpoint = execs.Endpoint(self._container)
        chosen = images or (lambda reference: sandbox.Image())
        self.around = surroundings.Surroundings(
            server, now, self.book, chosen, random.Random(seed), pace or surroundings.Pace()
        )
        self.kubelets: dict[str, kubelet.Kubelet] = {}
        self._cgroup = cgroup
        self._scheduler = scheduler.Scheduler(server, self.kubelets, now, pods_per_node)
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        for name in names:
            self.add(name)
        server.subscribe(self._see)

    def add(self, name: str) -> kubelet.Kubelet:
        """A new node."""
        address = f"10.89.0.{len(self.kubelets) + 11}"
        node = kubelet.Kubelet(name, self.around, cgroups.of_version(self._cgroup), address)
        self.kubelets[name] = node
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": self._now()}
        labels = {"kubernetes.io/hostname": name}
        self.server.put(NODES, {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [ready]}})
        self._later(self._scheduler.retry)
        return node

    def pod(self, name: str, namespace: str | None = None) -> pod_life.Pod:
        """A pod on one of the nodes, by its name."""
        found = (pod for node in self.kubelets.values() for pod in node.pods.values() if pod.name == name)
        return next(pod for pod in found if namespace in (None, pod.obj["metadata"]["namespace"]))

    # -- losses ----------------------------------------------------------------------------------------------------

    def evict_for_pressure(self, name: str) -> None:
        """The node runs short of disk, and the kubelet chooses this pod."""
        self.pod(name).decide("Evicted", PRESSURE, disruption="TerminationByKubelet")

    def evict_for_limit(self, name: str) -> None:
        """The pod is over its own limit of local storage; the kubelet finds out at its next round."""
        for box in self.pod(name).boxes.values():
            box.over_limit = True

    def preempt(self, namespace: str, name: str) -> None:
        """The scheduler needs the place for another pod."""
        text = "default-scheduler: preempting to accommodate a higher priority pod"
        self._disrupt(namespace, name, "PreemptionByScheduler", text)

    def drain(self, namespace: str, name: str) -> None:
        """Somebody evicts the pod through the API."""
        self._disrupt(namespace, name, "EvictionByEvictionAPI", "Eviction API: evicting")

    def restart_container(self, name: str, container: str = "main") -> None:
        self.pod(name).restart(container)

    def stop_kubelet(self, node: str) -> None:
        """It neither writes nor lets anybody in, and streams through it break; its containers live on."""
        self.kubelets[node].leave()
        self.endpoint.cut(lambda opening: self._node_of(opening.namespace, opening.pod) == node)
        self._spawn(self._unready(node))

    def start_kubelet(self, node: str) -> None:
        """It is back, and the node ready again."""
        self.kubelets[node].come_back()
        self._ready(node, "True", "KubeletReady")
        self._later(self._scheduler.retry)

    def restart_runtime(self, node: str) -> None:
        """Streams break, containers live on."""
        self.endpoint.cut(lambda opening: self._node_of(opening.namespace, opening.pod) == node)

    def lose(self, node: str, *, removed_after: float | None = 60.0) -> None:
        """Power off for ever. `removed_after`: when the cloud's controller removes the node object; None: never."""
        self.stop_kubelet(node)
        self.kubelets[node].die()
        if removed_after is not None:
            self._spawn(self._collect(node, removed_after))

    # -- controllers -----------------------------------------------------------------------------------------------

    def _see(self, kind: str, plural: str, obj: Json) -> None:
        if plural == "pods":
            self._context.copy().run(self._see_pod, kind, obj)

    def _see_pod(self, kind: str, obj: Json) -> None:
        node = obj["spec"].get("nodeName")
        if node in self.kubelets:
            self.kubelets[node].poke(kind, obj)
        if kind == "DELETED":
            self._later(self._scheduler.retry)
        elif not node and (kind == "ADDED" or (not obj["spec"].get("schedulingGates") and scheduler.gated(obj))):
            self._later(lambda: self._scheduler.place(obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _unready(self, node: str) -> None:
        """The node controller: no news from a kubelet, then the taint, then the eviction of its pods."""
        here = self.kubelets[node]
        await asyncio.sleep(UNREADY_SECONDS)
        if not here.away:
            return
        self._ready(node, "Unknown", "NodeStatusUnknown")
        tainted = asyncio.get_running_loop().time()
        for pod in self._pods_on(node):
            self._change_status(pod, self._mark_unready)
        waits = {pod["metadata"]["uid"]: _tolerated(pod) for pod in self._pods_on(node)}
        for pod in sorted(self._pods_on(node), key=lambda each: waits[each["metadata"]["uid"]] or 0.0):
            seconds = waits[pod["metadata"]["uid"]]
            if seconds is None:
                continue
            await asyncio.sleep(max(0.0, tainted + seconds - asyncio.get_running_loop().time()))
            if not here.away:
                return
            text = "Taint manager: deleting due to NoExecute taint"
            self._disrupt(pod["metadata"]["namespace"], pod["metadata"]["name"], "DeletionByTaintManager", text)

    async def _collect(self, node: str, after: float) -> None:
        """The node object goes, and then the pods that are still bound to it."""
        await asyncio.sleep(after)
        self.server.remove(NODES, None, node)
        self.kubelets.pop(node, None)
        await asyncio.sleep(COLLECT_SECONDS)
        for pod in self._pods_on(node):
            self._change_status(pod, self._fail)
            self.server.remove(api.PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _mark_unready(self, status: Json) -> None:
        for condition in status.get("conditions") or []:
            if condition["type"] == "Ready" and condition["status"] == "True":
                condition |= {"status": "False", "reason": "NodeNotReady", "lastTransitionTime": self._now()}

    def _fail(self, status: Json) -> None:
        pod_status.disrupted(status, "DeletionByPodGC", "PodGC: node no longer exists", self._now())
        status["phase"] = "Failed"

    def _disrupt(self, namespace: str, name: str, reason: str, message: str) -> None:
        """The condition, then the deletion: two writes, as everybody does it."""
        pod = self.server.read(api.PODS, namespace, name)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        self._change_status(pod, lambda status: pod_status.disrupted(status, reason, message, self._now()))
        self.server.delete(api.PODS, namespace, name)

    def _change_status(self, pod: Json, change: Callable[[Json], None]) -> None:
        self.server.write_status(api.PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], change)

    def _ready(self, node: str, status: str, reason: str) -> None:
        if self.server.read(NODES, None, node) is None:
            return
        self.kubelets[node].ready = status == "True"

        def change(obj: Json) -> None:
            found = {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": self._now()}
            obj.setdefault("status", {})["conditions"] = [found]
            taint = {"key": UNREACHABLE, "effect": "NoExecute"}
            obj.setdefault("spec", {})["taints"] = [] if status == "True" else [taint]

        self.server.change(NODES, None, node, change)

    # -- what the exec endpoint asks -------------------------------------------------------------------------------

    def _container(self, namespace: str, name: str, container: str) -> sandbox.Container:
        pod = self.server.read(api.PODS, namespace, name)
        if pod is None:
            raise execs.refused(404, "NotFound", f'pods "{name}" not found').error()
        if container not in [each["name"] for each in pod["spec"]["containers"]]:
            text = f"container {container} is not valid for pod {name}"
            raise execs.refused(400, "BadRequest", text).error()
        node = pod["spec"].get("nodeName")
        if not node:
            raise execs.refused(400, "BadRequest", f"pod {name} does not have a host assigned").error()
        here = self.kubelets.get(node)
        if here is None or here.away:
            address = here.address if here is not None else node
            text = f"error dialing backend: dial tcp {address}:10250: connect: connection refused"
            raise execs.refused(500, "InternalError", text).error()
        box = here.container(pod["metadata"]["uid"], container)
        if box is None or not box.running:
            raise execs.container_not_found(container).error()
        return box

    def _node_of(self, namespace: str, name: str) -> str:
        pod = self.server.read(api.PODS, namespace, name)
        return str(pod["spec"].get("nodeName", "")) if pod is not None else ""

    def _pods_on(self, node: str) -> list[Json]:
        return [pod for pod in self.server.all(api.PODS) if pod["spec"].get("nodeName") == node]

    def _later(self, work: Callable[[], None]) -> None:
        """A controller acts after the write that it has seen."""

        async def act() -> None:
            await asyncio.sleep(SCHEDULE_SECONDS)
            work()

        self._spawn(act())

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> str:
        return timestamp(self.around.now())


def _tolerated(pod: Json) -> float | None:
    """Seconds that a pod may stay on a node that does not answer; None: for ever."""
    for each in pod["spec"].get("tolerations") or ():
        if each.get("key") in (None, UNREACHABLE) and each.get("effect") in (None, "NoExecute"):
            seconds = each.get("tolerationSeconds")
            return float(seconds) if seconds is not None else None
    return float(TOLERATION_SECONDS)
