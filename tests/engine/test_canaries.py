"""engine/canaries.py: those that are ready, asked for anew each time, together with whoever else asks."""

import asyncio
from typing import Any, cast

import pytest

from taskfold.api.settings import CanarySettings
from taskfold.effects import client as api
from taskfold.engine import canaries
from taskfold.engine.canaries import Canaries, Canary

SETTINGS = CanarySettings(namespace="taskfold", selector="a=b")


def pod(name: str, *, ready: str = "True", node: str = "node-1", ip: str | None = "10.0.0.1", **more: Any) -> api.Json:
    status = {"conditions": [{"type": "Ready", "status": ready}], **({"podIP": ip} if ip else {})}
    metadata = {"name": name, "uid": f"uid-{name}", **more}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": status}


class Listing:
    """Lists what it is told to, when it is let."""

    def __init__(self, *pods: api.Json) -> None:
        self.pods = pods
        self.asked: list[tuple[str | None, str]] = []
        self.free = asyncio.Event()
        self.free.set()

    async def list(self, resource: api.Resource, namespace: str | None, *, labels: str) -> api.Listing[api.Json]:
        assert resource == api.PODS
        self.asked.append((namespace, labels))
        found = self.pods
        await self.free.wait()
        return api.Listing(found, "1")


def told(listing: Listing, settings: CanarySettings = SETTINGS) -> Canaries:
    return Canaries(cast("Any", listing), settings)


async def test_those_count_that_are_ready_and_stay():
    listing = Listing(
        pod("b"),
        pod("a"),
        pod("unready", ready="False"),
        pod("leaving", deletionTimestamp="now"),
        pod("without-address", ip=None),
    )
    assert [each.name for each in await told(listing).ready()] == ["a", "b"]
    assert listing.asked == [("taskfold", "a=b")]


async def test_without_any_nobody_is_asked():
    listing = Listing(pod("a"))
    assert await told(listing, CanarySettings()).ready() == ()
    assert listing.asked == []


async def test_an_answer_is_never_older_than_its_question():
    """Whoever asks while a look goes on waits for the next one, which all of those share."""
    listing = Listing(pod("a"))
    listing.free.clear()
    found = told(listing)
    first = asyncio.create_task(found.ready())
    await asyncio.sleep(0)
    listing.pods = ()  # the canary dies after the first look has begun
    later = [asyncio.create_task(found.ready()) for _ in range(5)]
    await asyncio.sleep(0)
    listing.free.set()
    assert [each.name for each in await first] == ["a"]
    assert await asyncio.gather(*later) == [()] * 5
    assert len(listing.asked) == 2


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [("", ""), ("1", "a"), ("11", "ab"), ("112", "acb"), ("1112", "adb"), ("1234", "abc"), ("2211", "acb")],
)
def test_each_node_comes_first_with_one(nodes, chosen):
    ready = tuple(Canary(name, f"uid-{name}", "10.0.0.1", node) for name, node in zip("abcd", nodes, strict=False))
    assert "".join(each.name for each in canaries.chosen(ready)) == chosen
