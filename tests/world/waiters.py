"""One ephemeral container of a pod on its node: the helper's waiter.

Guarantees: its status goes the way that a real kubelet writes it (`test_kubelet.py` compares them); it ends with the
phase that it waits for, at the latest with the sandbox, and whatever becomes of it changes nothing of the pod.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.world import helper, sandbox
from tests.world.pod_status import State

if TYPE_CHECKING:
    from tests.world.pod_life import Pod

Json = dict[str, Any]


class Waiter:
    """`state`: what its pod knows of it."""

    def __init__(self, pod: "Pod", spec: Json, state: State) -> None:
        self._pod = pod
        self._spec = spec
        self._state = state
        self._killed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def running(self) -> bool:
        return self._state.running is not None

    def end(self, code: int = sandbox.KILLED) -> None:
        """Somebody ends it, or answers it in PID 1's place (code 0)."""
        if self.running and not self._killed.done():
            self._killed.set_result(code)

    async def live(self) -> None:
        """From the kubelet's first look at it to the last word about it."""
        pod, around = self._pod, self._pod.kubelet.around
        await pod.write()
        image = await pod.image_for(self._spec, self._state)
        await pod.kubelet.pause(around.pace.container)
        await asyncio.sleep(around.rng.uniform(0.1, around.pace.look))
        if not pod.startable:
            return
        pod.note_start(self._state, self._spec, image)
        waiting = asyncio.get_running_loop().create_task(self._wait(), name=f"{pod.name}: {self._state.name}")
        try:
            await pod.write()
            await waiting
        finally:
            waiting.cancel()
        await asyncio.sleep(around.rng.uniform(0.1, around.pace.look))
        await pod.write()

    async def _wait(self) -> None:
        command: list[str] = self._spec["command"]
        found = self._pod.boxes.get(command[command.index("--name") + 1])
        code = 1
        if found is not None and found.running:
            # As a task of the container whose PID 1 it listens to: the connection ends with that one.
            work = found.spawn(helper.wait(found, command[command.index("--nonce") + 1]), self._state.name)
            await asyncio.wait([work, self._killed], return_when=asyncio.FIRST_COMPLETED)
            if self._killed.done():
                code = self._killed.result()
            elif not work.cancelled():
                code = work.result()[0]
            work.cancel()
        self._pod.note_end(self._state, code, "Error" if code else "Completed")
