"""One pod on its node: from the kubelet's first look at it to the last word about it.

Guarantees: the steps, their order and their statuses are those of a real kubelet (`test_kubelet.py` compares them with
recorded ones); nothing is written about a pod whose name belongs to another one by now.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from taskfold.effects import client as api
from tests.world import pod_status, sandbox, waiters
from tests.world.pod_status import Life, State, timestamp
from tests.world.surroundings import PullError

if TYPE_CHECKING:
    from tests.world.kubelet import Kubelet

Json = dict[str, Any]
STORAGE_MESSAGE = "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
DEADLINE = "DeadlineExceeded"


class Pod:
    """One pod on its node."""

    def __init__(self, kubelet: "Kubelet", obj: Json, ip: str) -> None:
        self.kubelet = kubelet
        self.obj = obj
        self.boxes: dict[str, sandbox.Container] = {}
        self.waiters: dict[str, waiters.Waiter] = {}
        self._ip = ip
        self._gone = self._leaving = self._restarting = False
        self._disruption = ""
        self._changed = asyncio.Event()
        spec = obj["spec"]
        init = [_creating(each, "PodInitializing") for each in spec.get("initContainers") or ()]
        reason = "PodInitializing" if init else "ContainerCreating"
        self.life = Life(init, [_creating(each, reason) for each in spec["containers"]], host=kubelet.address)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._live(), name=f"{self.name} on {kubelet.name}")]

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])

    def see(self, obj: Json, *, gone: bool) -> None:
        """News from the server."""
        self.obj, self._gone = obj, self._gone or gone
        self._changed.set()
        for each in obj["spec"].get("ephemeralContainers") or ():
            if each["name"] not in self.waiters:
                self.life.ephemeral.append(_creating(each, "ContainerCreating"))
                self.waiters[each["name"]] = waiters.Waiter(self, each, self.life.ephemeral[-1])
                self._also(self.waiters[each["name"]].live())

    def tell(self) -> None:
        """Bring the server up to date: others may have written meanwhile."""
        if self.life.started_at:
            self._also(self.write())

    def decide(self, reason: str, message: str, *, stubborn: bool = False, disruption: str = "") -> None:
        """The kubelet ends this pod. `disruption`: also as a condition."""
        if self.life.decided is not None or self._leaving:
            return
        self.life.decided, self.life.stubborn = (reason, message), stubborn
        self._disruption = disruption
        self._changed.set()

    def restart(self, name: str = "main") -> None:
        """The container dies and is started anew, as after a failure with another restart policy."""
        self._restarting = True
        self.boxes[name].end(sandbox.KILLED)

    def drop(self) -> None:
        """Its node is gone."""
        self._leaving = True
        for task in self._tasks:
            task.cancel()
        for box in list(self.boxes.values()):
            box.end(sandbox.KILLED)

    # -- a life ----------------------------------------------------------------------------------------------------

    @property
    def _unwanted(self) -> bool:
        return self._gone or self.life.decided is not None or "deletionTimestamp" in self.obj["metadata"]

    async def _live(self) -> None:
        pace = self.kubelet.around.pace
        await self.kubelet.pause(pace.first_look)
        await self.kubelet.here()
        self.life.started_at = self._now()
        await self.write()
        starting = asyncio.get_running_loop().create_task(self._start(), name=f"start of {self.name}")
        self._tasks += [starting]
        self._also(self._housekeeping())
        while not self._unwanted and not self._over:
            self._changed.clear()
            await self._changed.wait()
        starting.cancel()
        await asyncio.wait([starting])
        if self._unwanted:
            await self._stop()
        else:
            await self._end()
        while not self._gone and "deletionTimestamp" not in self.obj["metadata"]:
            self._changed.clear()
            await self._changed.wait()
        await self._leave()

    @property
    def startable(self) -> bool:
        """Whether the kubelet still starts containers in it."""
        return not (self._leaving or self._over)

    @property
    def _over(self) -> bool:
        """Nothing here will run any more."""
        failed = any(state.terminated and state.terminated["exitCode"] for state in self.life.init)
        return failed or all(state.terminated for state in self.life.main)

    async def _start(self) -> None:
        kubelet, pace = self.kubelet, self.kubelet.around.pace
        await kubelet.pause(pace.sandbox)
        self.life.sandbox = True
        await self.write()
        for spec, state in zip(self.obj["spec"].get("initContainers") or (), self.life.init, strict=True):
            image = await self.image_for(spec, state)
            await kubelet.pause(pace.container)
            self.note_start(state, spec, image)
            await self.write()
            await kubelet.pause(pace.container)
            code, message = self._said(spec, image)
            self.note_end(state, code, "Error" if code else "Completed", message)
            if code:
                self._changed.set()
                return
            await kubelet.pause(pace.container)
            await self.write()
        for spec, state in zip(self.obj["spec"]["containers"], self.life.main, strict=True):
            image = await self.image_for(spec, state)
            await kubelet.pause(pace.container)
            self.note_start(state, spec, image)
            self.boxes[spec["name"]] = self._box(spec, state, image)
        await self.write()

    def _said(self, spec: Json, image: sandbox.Image) -> tuple[int, str]:
        """What an init container ends with, and leaves as its last words."""
        words = spec.get("command") or ()
        if "probe" in words:
            return self.kubelet.around.probe(words)
        return (image.record_code, image.record()) if "record" in words else (0, "")

    async def image_for(self, spec: Json, state: State) -> sandbox.Image:
        """The image, once it can be had."""
        pace, images = self.kubelet.around.pace, self.kubelet.around.images
        while isinstance(found := images(spec["image"]), PullError):
            text = f"rpc error: code = NotFound desc = {found.message}"
            hopeless, self.life.ip = found.reason == "InvalidImageName", self._ip
            state.waiting = {"reason": found.reason, "message": found.message if hopeless else text}
            await self.write()
            await self.kubelet.pause(pace.back_off)
            if not hopeless:
                wait = f'Back-off pulling image "{spec["image"]}": {found.reason}: {text}'
                state.waiting = {"reason": "ImagePullBackOff", "message": wait}
                await self.write()
            await self.kubelet.pause(pace.back_off)
        if spec["image"] not in self.kubelet.images:
            await self.kubelet.pause(pace.pull)
            self.kubelet.images.add(spec["image"])
        state.image, state.image_id = spec["image"], found.id
        return found

    def _box(self, spec: Json, state: State, image: sandbox.Image) -> sandbox.Container:
        metadata, around = self.obj["metadata"], self.kubelet.around
        env = {each["name"]: str(each.get("value", "")).replace("$$", "$") for each in spec.get("env") or ()}
        return sandbox.Container(
            pod=self.name,
            namespace=metadata["namespace"],
            uid=self.uid,
            name=spec["name"],
            restarts=state.restarts,
            image=image,
            env=env,
            labels=metadata.get("labels") or {},
            book=around.book,
            cgroup=self.kubelet.cgroup,
            now=around.now,
            ended=lambda box: self._also(self._ended(box, state, spec, image)),
        )

    def note_start(self, state: State, spec: Json, image: sandbox.Image) -> None:
        state.image, state.image_id = spec["image"], image.id
        state.container_id = f"containerd://{self.kubelet.around.rng.getrandbits(256):064x}"
        state.waiting, state.terminated, state.running = None, None, {"startedAt": self._now()}
        self.life.ip = self._ip

    def note_end(self, state: State, code: int, reason: str, message: str = "") -> None:
        began = (state.running or {}).get("startedAt", self._now())
        state.terminated = pod_status.terminated(code, reason, began, self._now(), state.container_id, message)
        state.running = state.waiting = None

    async def _ended(self, box: sandbox.Container, state: State, spec: Json, image: sandbox.Image) -> None:
        """The runtime has seen the end; the kubelet does at its next look."""
        self.note_end(state, box.exit_code or 0, box.reason)
        if self._restarting:
            await self._again(state, spec, image)
            return
        self.boxes.pop(box.name, None)
        if not self._leaving:
            await asyncio.sleep(self.kubelet.around.rng.uniform(0.1, self.kubelet.around.pace.look))
            self._changed.set()

    async def _again(self, state: State, spec: Json, image: sandbox.Image) -> None:
        self._restarting = False
        state.last = {"terminated": state.terminated}
        state.terminated, state.waiting = None, {"reason": "ContainerCreating"}
        await self.kubelet.pause(self.kubelet.around.pace.container)
        state.restarts += 1
        self.note_start(state, spec, image)
        self.boxes[spec["name"]] = self._box(spec, state, image)
        await self.write()

    async def _end(self) -> None:
        """The containers have ended by themselves: first that, and a second later the phase."""
        await self.write()
        await self.kubelet.pause(self.kubelet.around.pace.look)
        self.life.final = True
        await self.write()

    async def _stop(self) -> None:
        """End what runs; then everything is told at once."""
        self._leaving = True
        await self.write()
        for box in list(self.boxes.values()):
            box.terminate()
        await self.kubelet.pause(self.kubelet.around.pace.stop)
        for state in (*self.life.main, *self.life.ephemeral):
            if state.terminated is None and self.life.decided:
                text = "The container could not be located when the pod was terminated"
                self.note_end(state, sandbox.KILLED, "ContainerStatusUnknown", text)
        self.boxes.clear()
        self.life.final = True
        await self.write()

    async def _leave(self) -> None:
        """The last word about a pod that is being deleted."""
        self._leaving = True
        await self.kubelet.here()
        server, metadata = self.kubelet.around.server, self.obj["metadata"]
        server.remove(api.PODS, metadata["namespace"], self.name, uid=self.uid)
        self.kubelet.pods.pop(self.uid, None)
        for task in self._tasks[1:]:
            task.cancel()

    async def _housekeeping(self) -> None:
        """Limits that the kubelet itself looks after."""
        pace, spec = self.kubelet.around.pace, self.obj["spec"]
        begun, deadline = asyncio.get_running_loop().time(), spec.get("activeDeadlineSeconds")
        while not self._leaving:
            left = begun + deadline - asyncio.get_running_loop().time() if deadline is not None else pace.housekeeping
            await asyncio.sleep(min(pace.housekeeping, max(left, 0.1)))
            if self.kubelet.away:
                continue
            if deadline is not None and left <= pace.housekeeping:
                self.decide(DEADLINE, DEADLINE_MESSAGE, stubborn=True)
            if any(box.over_limit for box in self.boxes.values()):
                self.decide("Evicted", STORAGE_MESSAGE.format(limit=_storage_limit(spec)))

    def _also(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=f"{self.name}: {work.__name__}"))

    async def write(self) -> None:
        """Tell the server, as soon as it can be reached."""
        await self.kubelet.here()
        if self._gone:
            return
        now, metadata = self._now(), self.obj["metadata"]

        def change(status: Json) -> None:
            if self._disruption:
                assert self.life.decided is not None
                pod_status.disrupted(status, self._disruption, self.life.decided[1], now)
            pod_status.write(status, self.life, now)

        found = self.kubelet.around.server.read(api.PODS, metadata["namespace"], self.name)
        if found is None or found["metadata"]["uid"] != self.uid:
            self._gone = True
            return
        self.kubelet.around.server.write_status(api.PODS, metadata["namespace"], self.name, change)

    def _now(self) -> str:
        return timestamp(self.kubelet.around.now())


def _creating(spec: Mapping[str, Any], reason: str) -> State:
    return State(spec["name"], image=spec["image"], waiting={"reason": reason})


def _storage_limit(spec: Json) -> str:
    limits = [(each.get("resources") or {}).get("limits") or {} for each in spec["containers"]]
    return next((found["ephemeral-storage"] for found in limits if "ephemeral-storage" in found), "")
