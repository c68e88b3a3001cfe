"""A scheduler: pods to nodes that are ready, have room and the labels; what it says about those that fit nowhere.

Guarantees: the words and conditions are those of the default scheduler. A node counts as ready for as long as its
controller has not noticed the contrary, so a pod may be bound to a node that is gone already.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from taskfold.effects import client as api
from tests.world import kubelet, pod_status
from tests.world.kinds import NODES
from tests.world.pod_status import timestamp

Json = dict[str, Any]


class Scheduler:
    """`room`: pods that a node takes."""

    def __init__(
        self, server: Any, kubelets: Mapping[str, kubelet.Kubelet], now: Callable[[], datetime], room: int
    ) -> None:
        self._server = server
        self._kubelets = kubelets
        self._now = now
        self._room = room

    def retry(self) -> None:
        """Something has changed: look at every pod that waits."""
        for pod in self._server.all(api.PODS):
            if not pod["spec"].get("nodeName"):
                self.place(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def place(self, namespace: str, name: str) -> None:
        """Bind the pod to a node, or write down why not."""
        pod = self._server.read(api.PODS, namespace, name)
        if pod is None or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return
        if pod["spec"].get("schedulingGates"):
            self._unscheduled(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            return
        nodes = [node for node in self._kubelets.values() if node.ready and self._fits(pod, node)]
        if not nodes:
            none = f"0/{len(self._kubelets)} nodes are available: "
            preemption = f"{len(self._kubelets)} Preemption is not helpful for scheduling."
            text = f"{none}{self._why_not(pod)}. no new claims to deallocate, preemption: {none}{preemption}"
            self._unscheduled(pod, "Unschedulable", text)
            return
        chosen = min(nodes, key=lambda node: (len(node.pods), node.name))
        self._server.change(api.PODS, namespace, name, lambda obj: self._bind(obj, chosen.name))

    def _bind(self, obj: Json, node: str) -> None:
        obj["spec"]["nodeName"] = node
        self._scheduled(obj, {"status": "True"})

    def _unscheduled(self, pod: Json, reason: str, message: str) -> None:
        found = {"status": "False", "reason": reason, "message": message}
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._server.change(api.PODS, namespace, name, lambda obj: self._scheduled(obj, found))

    def _scheduled(self, obj: Json, found: Json) -> None:
        status = obj.setdefault("status", {})
        others = [each for each in status.get("conditions") or [] if each["type"] != "PodScheduled"]
        old = next((each for each in status.get("conditions") or [] if each["type"] == "PodScheduled"), None)
        status["conditions"] = [*others, pod_status.condition("PodScheduled", found, old, timestamp(self._now()))]

    def _fits(self, pod: Json, node: kubelet.Kubelet) -> bool:
        return self._wanted(pod, node) and len(node.pods) < self._room

    def _wanted(self, pod: Json, node: kubelet.Kubelet) -> bool:
        found = self._server.read(NODES, None, node.name)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        return found is not None and (pod["spec"].get("nodeSelector") or {}).items() <= labels.items()

    def _why_not(self, pod: Json) -> str:
        reasons = {
            "node(s) had untolerated taint(s)": sum(not node.ready for node in self._kubelets.values()),
            "node(s) didn't match Pod's node affinity/selector": sum(
                node.ready and not self._wanted(pod, node) for node in self._kubelets.values()
            ),
            "Too many pods": sum(
                node.ready and self._wanted(pod, node) and len(node.pods) >= self._room
                for node in self._kubelets.values()
            ),
        }
        return ", ".join(f"{count} {text}" for text, count in reasons.items() if count)


def gated(pod: Json) -> bool:
    """The scheduler has said that it waits for the gates."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("reason") == "SchedulingGated" for each in conditions)
