"""The floor: the least that a hand-written driver needs for one trial. No operator, no custom resource, no checks.

    python -m bench.floor [-n 10] [--at-a-time 1] [--mode shared|separate|overlap] [--volume]

One trial: create a pod that sleeps → running → upload solution/ by tar → run solve.sh → [separate: fetch /app by tar,
delete the pod and wait until its container has ended, put /app into a second pod, which with `overlap` is created
meanwhile] → upload tests/ → run test.sh → read reward.txt → delete the pod, not waited for.
"""

import argparse
import asyncio
import contextlib
import io
import itertools
import tarfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from bench import figures
from bench.kube import Json, Kube, kubeconfig, namespace

IMAGE = "python:3.13-slim"
SOLVE = "#!/bin/bash\necho 42 > /app/answer\n"
TEST = "#!/bin/bash\ngrep -q 42 /app/answer && echo 1 > /logs/verifier/reward.txt\n"
LABEL = "taskfold-bench=floor"
KEEP_ALIVE = "mkdir -p /app /logs/verifier; trap exit TERM; sleep infinity & wait"


class Floor:
    """Trials in one namespace, by hand."""

    def __init__(
        self, kube: Kube, namespace: str, *, mode: str = "shared", image: str = IMAGE, volume: bool = False
    ) -> None:
        """`volume`: give the pod an empty volume. The kubelet looks for mounted volumes every 300 ms, so that a pod
        with any volume starts 0.3 s later than one with none."""
        self._kube = kube
        self._namespace = namespace
        self._mode = mode
        self._volume = volume
        self._image = image
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._running: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._ended: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._numbers = itertools.count(1)
        self.steps: defaultdict[str, list[float]] = defaultdict(list)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator["Floor"]:
        """Sees its pods for the length of the block."""
        async with self._kube.watching(self._pods, self._seen, labels=LABEL):
            yield self

    async def trial(self) -> tuple[float, str]:
        """Seconds until the reward was known, and the pod that is going away."""
        name = f"floor-{next(self._numbers)}" + ("-volume" if self._volume else "")
        began = last = time.monotonic()

        def step(what: str) -> None:
            nonlocal last
            now = time.monotonic()
            self.steps[what].append(now - last)
            last = now

        await self._start(name)
        step("pod runs")
        await self._put(name, _tar("solution/solve.sh", SOLVE))
        await self._run(name, "sh", "/solution/solve.sh")
        step("agent")
        if self._mode != "shared":
            name = await self._second(name)
            step("second pod")
        await self._put(name, _tar("tests/test.sh", TEST))
        await self._run(name, "sh", "/tests/test.sh")
        reward = float(await self._run(name, "cat", "/logs/verifier/reward.txt"))
        step("verify")
        seconds = time.monotonic() - began
        if reward != 1.0:
            raise AssertionError(f"reward {reward}")
        await self._kube.request("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})
        return seconds, name

    async def gone(self, name: str) -> None:
        """Wait until the trial's pod is gone."""
        await self._kube.gone(f"{self._pods}/{name}")

    async def _second(self, first: str) -> str:
        second = f"{first}-verify"
        app = await self._run(first, "tar", "-cf", "-", "-C", "/", "app")
        starting = asyncio.create_task(self._start(second)) if self._mode == "overlap" else None
        await self._kube.request("DELETE", f"{self._pods}/{first}", {"gracePeriodSeconds": 5})
        await self._ended[first].wait()
        await (starting or self._start(second))
        await self._put(second, app)
        return second

    async def _start(self, name: str) -> None:
        await self._kube.request("POST", self._pods, _pod(name, self._image, volume=self._volume))
        await self._running[name].wait()

    async def _put(self, name: str, archive: bytes) -> None:
        await self._kube.run(self._namespace, name, ["tar", "-xf", "-", "-C", "/"], archive)

    async def _run(self, name: str, *argv: str) -> bytes:
        return await self._kube.run(self._namespace, name, argv)

    def _seen(self, kind: str, pod: Json) -> None:
        name, status = pod["metadata"]["name"], pod["status"]
        containers: list[Json] = status.get("containerStatuses") or []
        if status.get("phase") == "Running":
            self._running[name].set()
        if kind == "DELETED" or (containers and all("terminated" in each.get("state", {}) for each in containers)):
            self._ended[name].set()


def _pod(name: str, image: str, *, volume: bool) -> dict[str, Any]:
    key, value = LABEL.split("=")
    main: dict[str, Any] = {"name": "main", "image": image, "command": ["sh", "-c", KEEP_ALIVE]}
    if volume:
        main["volumeMounts"] = [{"name": "empty", "mountPath": "/mnt"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {key: value}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "containers": [main],
            "volumes": [{"name": "empty", "emptyDir": {}}] if volume else [],
        },
    }


def _tar(name: str, text: str) -> bytes:
    buffer, content = io.BytesIO(), text.encode()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o755
        tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


async def many(floor: Floor, count: int, at_a_time: int) -> float:
    """Seconds for so many trials."""
    places, began = asyncio.Semaphore(at_a_time), time.monotonic()

    async def one() -> None:
        async with places:
            await floor.trial()

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
    return time.monotonic() - began


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=10, help="trials")
    parser.add_argument("--at-a-time", type=int, default=1)
    parser.add_argument("--volume", action="store_true", help="pods with an empty volume: 0.3 s later")
    parser.add_argument("--mode", choices=["shared", "separate", "overlap"], default="shared")
    options = parser.parse_args()
    async with (
        Kube(kubeconfig()) as kube,
        namespace(kube) as space,
        Floor(kube, space, mode=options.mode, volume=options.volume).watching() as floor,
    ):
        wall = await many(floor, options.n, options.at_a_time)
    print(figures.machine())
    print(f"{options.mode}, {options.n} trials, {options.at_a_time} at a time: {options.n / wall:.2f} trials/s")
    for what, seconds in floor.steps.items():
        print(f"  {what}: {figures.summary(seconds)}")


if __name__ == "__main__":
    asyncio.run(main())
