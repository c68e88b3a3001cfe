"""One node of a world: its kubelet, and the pods on it.

Guarantees: a kubelet that is away writes nothing and lets nobody in, while its containers live on; when it is back it
does what it has missed; one that is dead never comes back, and its containers are gone.
"""

import asyncio
from typing import Any

from tests.world import cgroups, sandbox
from tests.world.pod_life import Pod
from tests.world.surroundings import Surroundings

Json = dict[str, Any]


class Kubelet:
    """The pods of one node. `poke` is called when the server has news of one."""

    def __init__(self, name: str, around: Surroundings, cgroup: cgroups.Cgroup, address: str) -> None:
        self.name, self.address = name, address
        self.around = around
        self.cgroup = cgroup
        self.away = False
        self.dead = False
        self.ready = True
        """What its node object says."""
        self.pods: dict[str, Pod] = {}
        self.images: set[str] = set()
        self._missed: dict[str, tuple[str, Json]] = {}
        self._back = asyncio.Event()
        self._numbers = iter(range(10, 1 << 20))

    def poke(self, kind: str, obj: Json) -> None:
        """The server tells of a pod of this node."""
        uid = obj["metadata"]["uid"]
        if self.dead:
            return
        if self.away:
            self._missed[uid] = (kind, obj)
            return
        if uid not in self.pods:
            if kind == "DELETED":
                return
            self.pods[uid] = Pod(self, obj, f"10.244.1.{next(self._numbers)}")
        self.pods[uid].see(obj, gone=kind == "DELETED")

    def container(self, uid: str, name: str) -> sandbox.Container | None:
        """A running container, for an exec."""
        pod = self.pods.get(uid)
        return pod.boxes.get(name) if pod is not None else None

    def leave(self) -> None:
        """The kubelet stops, or its link is cut: containers live on."""
        self.away = True
        self._back = asyncio.Event()

    def come_back(self) -> None:
        """It sees what became of its pods meanwhile."""
        if self.dead:
            return
        self.away = False
        self._back.set()
        missed, self._missed = self._missed, {}
        for kind, obj in missed.values():
            self.poke(kind, obj)
        for pod in self.pods.values():
            pod.tell()

    def die(self) -> None:
        """Power off, for ever."""
        self.leave()
        self.dead = True
        for pod in list(self.pods.values()):
            pod.drop()
        self.pods.clear()

    async def here(self) -> None:
        """Until the kubelet can reach the server."""
        while self.away:
            await self._back.wait()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.around.rng.uniform(0.75, 1.25))
