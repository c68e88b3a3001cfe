"""Waiters on the nodes of the world, beside what was recorded of real ones (`test_kubelet.py`): who else ends them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world import clock, programs
from tests.world.test_kubelet import Cluster, add, manifest, waiter, world

LONG = 600.0


async def waits(cluster: Cluster, seconds: float = LONG) -> "asyncio.Task[Any]":
    """A pod with a phase that lasts so long, and a waiter that runs."""
    cluster.nodes.book.texts["work"] = programs.Script(seconds)
    await cluster.create(manifest())
    phase = asyncio.create_task(cluster.agent(await cluster.running()))
    await asyncio.sleep(5)
    await add(cluster, waiter())
    await until(cluster, "running")
    return phase


async def state(cluster: Cluster) -> dict[str, Any]:
    statuses = (await cluster.pod())["status"].get("ephemeralContainerStatuses") or [{"state": {}}]
    return dict(statuses[0]["state"])


async def until(cluster: Cluster, word: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while word not in (found := await state(cluster)):
            await asyncio.sleep(0.05)
    return dict(found[word])


@pytest.mark.parametrize(
    ("strike", "code"),
    [
        pytest.param(lambda cluster: cluster.nodes.pod("pod").waiters["waiter"].end(), 137, id="killed"),
        pytest.param(lambda cluster: cluster.nodes.pod("pod").waiters["waiter"].end(0), 0, id="told by another"),
        pytest.param(lambda cluster: cluster.nodes.restart_container("pod"), 1, id="container restarted"),
        pytest.param(lambda cluster: cluster.nodes.pod("pod").boxes["main"].end(3), 1, id="container ended"),
    ],
)
def test_a_waiter_ends(strike: Callable[[Cluster], None], code: int) -> None:
    async def main(cluster: Cluster) -> None:
        phase = await waits(cluster)
        strike(cluster)
        assert (await until(cluster, "terminated"))["exitCode"] == code
        phase.cancel()

    world(main)


def test_a_waiter_makes_and_breaks_no_pod() -> None:
    async def main(cluster: Cluster) -> None:
        phase = await waits(cluster)
        before = (await cluster.pod())["status"]
        cluster.nodes.pod("pod").waiters["waiter"].end()
        await until(cluster, "terminated")
        after = (await cluster.pod())["status"]
        for key in ("phase", "conditions", "containerStatuses"):
            assert after[key] == before[key]
        phase.cancel()

    world(main)


def test_what_a_kubelet_missed_is_told_when_it_is_back() -> None:
    async def main(cluster: Cluster) -> None:
        phase = await waits(cluster, seconds=20)
        cluster.nodes.stop_kubelet("node-1")
        await asyncio.sleep(25)
        assert "running" in await state(cluster)
        cluster.nodes.start_kubelet("node-1")
        at = clock.now()
        assert (await until(cluster, "terminated"))["exitCode"] == 0
        assert clock.now() - at < 2
        with pytest.raises(errors.ConnectionLost):
            await phase  # the connection broke with the kubelet

    world(main)


def test_one_that_is_added_while_the_kubelet_is_away_starts_later() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.nodes.book.texts["work"] = programs.Script(LONG)
        await cluster.create(manifest())
        phase = asyncio.create_task(cluster.agent(await cluster.running()))
        await asyncio.sleep(5)
        cluster.nodes.stop_kubelet("node-1")
        await add(cluster, waiter())
        await asyncio.sleep(5)
        assert not await state(cluster)
        cluster.nodes.start_kubelet("node-1")
        await until(cluster, "running")
        with pytest.raises(errors.ConnectionLost):
            await phase

    world(main)


def test_none_is_started_in_a_pod_that_ends() -> None:
    async def main(cluster: Cluster) -> None:
        seen: list[dict[str, Any]] = []
        cluster.server.subscribe(lambda kind, plural, obj: seen.append(obj) if plural == "pods" else None)
        await cluster.create(manifest())
        await cluster.running()
        await add(cluster, waiter())
        await cluster.client.delete(api.PODS, "ns", "pod")
        await asyncio.sleep(30)
        states = [each["state"] for pod in seen for each in pod["status"].get("ephemeralContainerStatuses") or ()]
        assert states
        assert all("waiting" in state for state in states)

    world(main)


def test_several_are_told_of_by_name() -> None:
    async def main(cluster: Cluster) -> None:
        phase = await waits(cluster)
        for name in ("z", "a"):
            await add(cluster, {**waiter(), "name": name})
        await asyncio.sleep(5)
        pod = await cluster.client.get(api.PODS, "ns", "pod")
        assert [each["name"] for each in pod["spec"]["ephemeralContainers"]] == ["a", "z", "waiter"]
        statuses = pod["status"]["ephemeralContainerStatuses"]
        assert [each["name"] for each in statuses] == ["a", "waiter", "z"]
        assert not any(each["ready"] or "started" in each for each in statuses)
        phase.cancel()

    world(main)
