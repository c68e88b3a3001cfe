"""The nodes of the world against what a real kubelet wrote, and the losses that they make."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes
from taskfold.protocol import phase as phases
from tests.world import apiserver, clock, nodes, programs, sandbox, surroundings, transport

Json = dict[str, Any]
REAL = Path(__file__).with_name("real_statuses.txt")
IMAGE, MISSING, WRONG = "docker.io/library/debian:trixie-slim", "registry.invalid/x:1", "UPPER::x"


def line(pod: Json) -> str:
    """All of a status but times, addresses and ids."""
    status = pod["status"]
    words = ["deleting"] if "deletionTimestamp" in pod["metadata"] else []
    words += [status["phase"], *(f"{key} {status[key]!r}" for key in ("reason", "message") if key in status)]
    words += ["podIP"] if "podIP" in status else []
    conditions = [
        " ".join(str(each[key]) for key in ("type", "status", "reason", "message") if key in each)
        for each in status.get("conditions") or []
    ]
    states = [_state(each) for key in _LISTS for each in status.get(key) or []]
    return " | ".join([" ".join(words), "; ".join(conditions), *states]).rstrip(" |")


_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_VARIES = ("startedAt", "finishedAt", "containerID")


def _state(status: Json) -> str:
    ((kind, state),) = status["state"].items()
    told = [f"{key} {value!r}" for key, value in sorted(state.items()) if key not in _VARIES]
    flags = [key for key in ("ready", "started") if status.get(key)]
    return " ".join([status["name"], kind, *told, *flags, f"restarts {status['restartCount']}"])


def recorded(title: str) -> list[str]:
    """What the real one wrote."""
    section = REAL.read_text().split(f"## {title}\n")[1].split("\n##")[0]
    return [each for each in section.splitlines() if each]


def manifest(name: str = "pod", *, record: bool = False, image: str = IMAGE, **spec: Any) -> Json:
    main = {"name": "main", "image": image, "command": ["/.taskfold/helper", "init", "--name", "main"]}
    main |= spec.pop("main", {})
    first = {"name": "record", "image": IMAGE, "command": ["/.taskfold/helper", "record"]}
    spec = {"restartPolicy": "Never", "containers": [main], "terminationGracePeriodSeconds": 5, **spec}
    spec |= {"initContainers": [first]} if record else {}
    metadata = {"name": name, "namespace": "ns", "labels": {programs.RUN_LABEL: "run"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Cluster:
    """A server, nodes, and what became of the pods."""

    def __init__(self, client: api.Client, server: apiserver.ApiServer, found: nodes.Nodes) -> None:
        self.client, self.server, self.nodes = client, server, found
        self.lines: list[str] = []
        server.subscribe(self._see)

    def _see(self, kind: str, plural: str, obj: Json) -> None:
        if plural == "pods":
            told = "gone" if kind == "DELETED" else line(obj)
            self.lines += [told] if self.lines[-1:] != [told] else []

    async def create(self, pod: Json) -> None:
        await self.client.create(api.PODS, "ns", pod)

    async def pod(self, name: str = "pod") -> Json:
        return await self.client.get(api.PODS, "ns", name)

    async def running(self, name: str = "pod") -> execs.PodPin:
        """Its pin, once it runs."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return execs.PodPin.of(await self.pod(name))
                except errors.NotRunning:
                    await asyncio.sleep(0.1)

    async def agent(self, pin: execs.PodPin, nonce: str = "a" * 32, text: str = "work") -> phases.PhaseResult:
        run = phases.Run("agent", ("bash", "-c", text), phases.Output("/logs/out"), limit_seconds=3600)
        request = phases.PhaseRequest(nonce, "agent", (), [run])
        return await sandboxes.Sandbox(execs.Exec(self.client), pin).run_phase(request)


def images(reference: str) -> sandbox.Image | surroundings.PullError:
    if reference == WRONG:
        text = (
            'Failed to apply default image tag "UPPER::x": couldn\'t parse image name "UPPER::x": invalid reference '
            "format: repository name (library/UPPER) must be lowercase"
        )
        return surroundings.PullError(text, "InvalidImageName")
    if reference == MISSING:
        where = f'failed to resolve reference "{MISSING}": {MISSING}: not found'
        return surroundings.PullError(f'failed to pull and unpack image "{MISSING}": {where}')
    codes = {"ends with 143": Debian(term_code=143), "does not record": Debian(record_code=4)}
    return codes.get(reference, Debian())


def world(main: Callable[[Cluster], Awaitable[Any]], **options: Any) -> Cluster:
    """Run `main` in a cluster of its own."""

    async def run() -> Cluster:
        time = clock.WorldClock()
        server = apiserver.ApiServer(time.now)
        server.ensure_namespace("ns")
        found = nodes.Nodes(server, time.now, images=images, **options)
        over = transport.MemoryTransport(server, None, found.endpoint)
        async with api.Client(transport.source(), over=lambda: over) as client:
            cluster = Cluster(client, server, found)
            await main(cluster)
        return cluster

    return clock.run(run, limit=86_400)


class Debian(sandbox.Image):
    """The image of the recording."""

    def record(self) -> str:
        return "no\n" if self.record_code else '{"uid":0}'


async def _runs(cluster: Cluster) -> None:
    await cluster.create(manifest(record=True))
    await cluster.running()


async def _ends(cluster: Cluster) -> None:
    await cluster.create(manifest())
    await cluster.running()
    cluster.nodes.pod("pod").boxes["main"].end(3)


async def _deleted(cluster: Cluster) -> None:
    await cluster.create(manifest())
    await cluster.running()
    await cluster.client.delete(api.PODS, "ns", "pod")


async def _drained(cluster: Cluster) -> None:
    await cluster.create(manifest(image="ends with 143"))
    await cluster.running()
    cluster.nodes.drain("ns", "pod")


async def _over_limit(cluster: Cluster, image: str = IMAGE) -> None:
    limits = {"resources": {"limits": {"ephemeral-storage": "20Mi"}}}
    await cluster.create(manifest(image=image, main=limits))
    await cluster.running()
    cluster.nodes.evict_for_limit("pod")


async def _over_limit_143(cluster: Cluster) -> None:
    await _over_limit(cluster, "ends with 143")


async def _deadline(cluster: Cluster) -> None:
    await cluster.create(manifest(activeDeadlineSeconds=4))


async def _out_of_memory(cluster: Cluster) -> None:
    await cluster.create(manifest())
    cluster.nodes.book.texts["eat"] = programs.Script(exhausts_memory=True)
    await cluster.agent(await cluster.running(), text="eat")
    cluster.nodes.pod("pod").boxes["main"].terminate()


async def _init_fails(cluster: Cluster) -> None:
    pod = manifest(record=True)
    pod["spec"]["initContainers"][0]["image"] = "does not record"
    await cluster.create(pod)


async def _fits_nowhere(cluster: Cluster) -> None:
    await cluster.create(manifest(nodeSelector={"nope": "x"}))


async def _no_image(cluster: Cluster) -> None:
    await cluster.create(manifest(image=MISSING))


async def _no_name(cluster: Cluster) -> None:
    await cluster.create(manifest(image=WRONG))


def waiter(nonce: str = "a" * 32, image: str = IMAGE) -> Json:
    """The helper's waiter, as far as a kubelet looks at it."""
    return {"name": "waiter", "image": image, "command": ["/helper", "wait", "--name", "main", "--nonce", nonce]}


async def add(cluster: Cluster, container: Json) -> None:
    body = {"spec": {"ephemeralContainers": [container]}}
    await cluster.client.patch(
        api.PODS, "ns", "pod", body, subresource="ephemeralcontainers", content_type=api.STRATEGIC_PATCH
    )


async def _works_with(cluster: Cluster, container: Json, seconds: float = 3600) -> None:
    """A pod with a phase that lasts so long, and a waiter."""
    cluster.nodes.book.texts["work"] = programs.Script(seconds)
    await cluster.create(manifest(image="ends with 143"))
    phase = asyncio.create_task(cluster.agent(await cluster.running()))
    await asyncio.sleep(5)
    await add(cluster, container)
    await asyncio.sleep(5)
    phase.cancel()


async def _waits(cluster: Cluster) -> None:
    await _works_with(cluster, waiter(), seconds=8)


async def _waits_for_nothing(cluster: Cluster) -> None:
    await _works_with(cluster, waiter("b" * 32))


async def _cannot_wait(cluster: Cluster) -> None:
    await _works_with(cluster, waiter(image=MISSING))


async def _deleted_while_it_waits(cluster: Cluster) -> None:
    await _works_with(cluster, waiter())
    await cluster.client.delete(api.PODS, "ns", "pod")


LIVES = {
    "runs, after an init container": _runs,
    "ends by itself": _ends,
    "is deleted": _deleted,
    "is drained": _drained,
    "is evicted for its own limit, and its first process ends with 0": _over_limit,
    "is evicted for its own limit, and its first process does not end with 0": _over_limit_143,
    "outlives its deadline": _deadline,
    "had an OOM kill under cgroup v1 and ends with 0": _out_of_memory,
    "has an init container that fails": _init_fails,
    "fits nowhere": _fits_nowhere,
    "has an image that is not there": _no_image,
    "has an image whose name is none": _no_name,
    "has a waiter, whose phase ends": _waits,
    "has a waiter for a phase that nobody knows": _waits_for_nothing,
    "has a waiter whose image is not there": _cannot_wait,
    "is deleted together with its waiter": _deleted_while_it_waits,
}


@pytest.mark.parametrize("title", LIVES, ids=[title.replace(" ", "-").replace(",", "") for title in LIVES])
def test_a_pod_lives_as_on_a_real_node(title: str) -> None:
    async def main(cluster: Cluster) -> None:
        await LIVES[title](cluster)
        await asyncio.sleep(40)

    seen = world(main, cgroup=1).lines
    assert list(dict.fromkeys(seen)) == recorded(title)


def test_every_recorded_life_is_lived() -> None:
    titles = [each.removeprefix("## ") for each in REAL.read_text().splitlines() if each.startswith("## ")]
    assert titles == list(LIVES)
