"""What a phase costs that only goes on: in the operator, with a stream and without one, and on the node.

python -m bench.waiting [--streams 200] [--runs 5000] [--pods 8]

The operator's part is measured in this process: idle exec streams to a server in another one, then the pictures of runs
and pods as the watch holds them, each with a phase that waits. The node's part is measured on the cluster: a container
that waits is added to pods that run, and ended by the end of its phase.
"""

import argparse
import asyncio
import contextlib
import copy
import gc
import json
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aiohttp import test_utils
from tests.conformance import harness
from tests.decide import worlds
from tests.effects import fake_exec as fake

from bench import kube as kubes
from taskfold.api import names
from taskfold.api.settings import HelperSettings
from taskfold.build import pod as pod_builder
from taskfold.decide import status as to
from taskfold.decide.world import Signal
from taskfold.effects import client as api
from taskfold.effects import credentials, places, sandbox
from taskfold.effects import exec as execs
from taskfold.engine.activities import Activities
from taskfold.engine.watch import Key, Kind, Watch
from taskfold.protocol.phase import Output, PhaseRequest, Run

AT = "2026-03-01T11:00:00Z"


def rss() -> int:
    """Resident memory of this process in bytes."""
    gc.collect()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


def serve(told: Connection) -> None:
    """An API server whose execs never end, in a process of its own."""

    async def script(remote: fake.Remote) -> None:
        async for _ in remote.stdin():
            pass

    async def main() -> None:
        cluster = fake.FakeCluster(script)
        app = fake.web.Application()
        app.router.add_get("/api/v1/namespaces/ns/pods/pod/exec", cluster.exec)
        async with test_utils.TestServer(app) as server:
            told.send(str(server.make_url("")))
            while not told.poll():
                await asyncio.sleep(0.1)

    asyncio.run(main())


async def streams(count: int) -> float:
    """KiB for one idle exec stream, TLS not included."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    server = ours.recv()
    try:
        async with api.Client(credentials.static(server.rstrip("/"))) as client, contextlib.AsyncExitStack() as stack:
            caps = places.Caps(execs=count + 1, execs_per_node=count + 1)
            exec_ = execs.Exec(client, caps=caps)
            await stack.enter_async_context(exec_.open(fake.PIN, ["x"], stdin=True, checked=True))
            before = rss()
            for _ in range(count):
                await stack.enter_async_context(exec_.open(fake.PIN, ["x"], stdin=True, checked=True))
            return (rss() - before) / count / 1024
    finally:
        ours.send("end")
        process.join()


async def waiting(count: int) -> tuple[float, float]:
    """KiB for a run and its pod as the watch holds them, and for a phase that waits beside them."""
    watch, found = Watch(), Activities(lambda key, delay: None)
    run = worlds.run(to.begun(worlds.running(), worlds.AGENT, AT), agent=worlds.SCRIPT).wire()
    pod = worlds.pod_object({"phase": "Running", "containerStatuses": [worlds.runs()]})
    texts = json.dumps(run), json.dumps(pod)
    before = rss()
    for number in range(count):
        one, sandbox_pod = (json.loads(text) for text in texts)
        one["metadata"] |= {"name": f"run-{number}", "uid": f"uid-{number}", "resourceVersion": str(number + 1)}
        sandbox_pod["metadata"] |= {"name": f"run-{number}-1-1", "resourceVersion": str(number + 1)}
        watch.see_run(one)
        watch.see_pod(sandbox_pod)
        place = ("team", f"run-{number}")
        _ = watch.runs[place].run, watch.pods[place[0], f"{place[1]}-1-1"].pod  # as after a first look
    pictures = rss() - before
    before = rss()
    for number in range(count):
        found.rest(Key(Kind.TASK_RUN, "team", f"run-{number}"), f"{number:032x}", AT, Signal.AWAITED)
    return pictures / count / 1024, (rss() - before) / count / 1024


@contextlib.asynccontextmanager
async def pods(kube: kubes.Kube, count: int, helper: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Sandboxes of nothing but their helper, running; and every pod as it was last seen."""
    seen: dict[str, Any] = {}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ""},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "main",
                    "image": harness.IMAGE,
                    "command": [pod_builder.HELPER, "init"],
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
                    "volumeMounts": [{"name": "helper", "mountPath": pod_builder.HELPER_FOLDER, "readOnly": True}],
                }
            ],
            "volumes": [{"name": "helper", "image": {"reference": helper}}],
        },
    }

    def see(_: str, pod: dict[str, Any]) -> None:
        seen[pod["metadata"]["name"]] = pod

    async with kubes.namespace(kube) as namespace:
        path = f"/api/v1/namespaces/{namespace}/pods"
        async with kube.watching(path, see):
            for number in range(count):
                manifest["metadata"] = {"name": f"p{number}"}
                await kube.request("POST", path, copy.deepcopy(manifest))
                await until(lambda name=f"p{number}": state(seen, name, "main") == "running")  # type: ignore[misc]
            yield namespace, seen


def state(seen: dict[str, Any], pod: str, container: str) -> str:
    """`running`, `terminated`, …; "" if the kubelet has not told."""
    status = (seen.get(pod) or {}).get("status") or {}
    found = [*(status.get("containerStatuses") or ()), *(status.get("ephemeralContainerStatuses") or ())]
    return next((next(iter(each["state"]), "") for each in found if each["name"] == container), "")


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


async def on_the_node(count: int) -> None:
    """Seconds until a container waits, and from the end of its phase to the news of it; its own memory."""
    helper = harness.helper_image()
    source = credentials.from_kubeconfig(str(kubes.kubeconfig()))
    starts, news, memory = [], [], []
    async with (
        kubes.Kube(kubes.kubeconfig()) as kube,
        pods(kube, count, helper) as (namespace, seen),
        api.Client(source) as client,
    ):
        for name in list(seen):
            pin = execs.PodPin.of(seen[name])
            nonce, go = sandbox.new_nonce(), "/tmp/go"
            script = f"while [ ! -e {go} ]; do sleep 0.05; done"
            run = Run("main", ("sh", "-c", script), Output(None), {}, None, None, 600.0)
            box = sandbox.Sandbox(execs.Exec(client), pin)
            await box.begin_phase(PhaseRequest(nonce, "bench", runs=(run,)), stay_seconds=0.0)
            waiter, began = names.waiter(nonce), time.monotonic()
            await client.patch(
                api.PODS,
                namespace,
                name,
                {"spec": {"ephemeralContainers": [pod_builder.waiter(nonce, HelperSettings(image=helper))]}},
                subresource="ephemeralcontainers",
                content_type=api.STRATEGIC_PATCH,
            )
            await until(lambda: state(seen, name, waiter) == "running")  # noqa: B023
            starts.append(time.monotonic() - began)
            memory += [anonymous(path) for path in Path("/proc").glob("[0-9]*") if waits(path, nonce)]
            began = time.monotonic()
            await execs.Exec(client).run(pin, ["touch", go])
            await until(lambda: state(seen, name, waiter) == "terminated")  # noqa: B023
            news.append(time.monotonic() - began)
    print(f"container waits after {statistics.median(starts):.2f} s (median of {count}, {rounded(starts)})")
    print(f"its end is seen {statistics.median(news):.2f} s after the phase's ({rounded(news)})")
    if memory:
        print(f"its own memory: {statistics.median(memory) / 1024:.1f} MiB that it shares with nobody")


def waits(path: Path, nonce: str) -> bool:
    """Whether this process of the machine is the waiter; none is where the nodes are elsewhere."""
    with contextlib.suppress(OSError):
        words = (path / "cmdline").read_bytes().split(b"\0")
        return words[:2] == [b"/helper", b"wait"] and nonce.encode() in words
    return False


def anonymous(path: Path) -> int:
    """KiB of memory without a file behind it."""
    lines = (path / "status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)


def rounded(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=8, help="0: without a cluster")
    options = parser.parse_args()
    # In this order: what a measurement frees, the next one would fill.
    print(f"an idle stream: {await streams(options.streams):.1f} KiB, without TLS")
    pictures, phases = await waiting(options.runs)
    print(f"run and pod in the watch's picture: {pictures:.1f} KiB; a phase that waits: {phases:.2f} KiB more")
    if options.pods:
        await on_the_node(options.pods)


if __name__ == "__main__":
    asyncio.run(main())
