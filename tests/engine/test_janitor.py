"""engine/janitor.py: one round against a fake API server."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.engine import clock
from tests.engine.fakes import Client

from taskfold.api.settings import Settings
from taskfold.decide import status as to
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.janitor import Janitor
from taskfold.engine.watch import Key, Kind, Watch


def run(name, *, complete=False, ttl=None, completed=None, namespace="team"):
    """`completed`: so many seconds ago."""
    spec = {"task": {"inline": {}}, "agent": {"nop": {}}}
    if ttl is not None:
        spec["ttlSecondsAfterFinished"] = ttl
    status = {"complete": complete}
    if completed is not None:
        status["completionTime"] = to.stamp(datetime.now(UTC) - timedelta(seconds=completed))
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}


class World:
    def __init__(self, **settings) -> None:
        self.client, self.watch = Client(), Watch()
        self.delays: dict[Key, float] = {}
        self.janitor = Janitor(self.client, self.watch, self.delays.__setitem__, Settings.model_validate(settings))

    @property
    def woken(self) -> list[Key]:
        return list(self.delays)


def key(name, namespace="team"):
    return Key(Kind.TASK_RUN, namespace, name)


async def test_a_round_wakes_what_is_unfinished_and_what_expires():
    world = World()
    for each in (
        run("a", ttl=5),
        run("done", complete=True, completed=9),
        run("expired", complete=True, completed=9, ttl=5),
        run("expiring", complete=True, completed=1000, ttl=3000),
    ):
        world.client.put(api.TASKRUNS, each)
    await world.janitor.round("team")
    assert sorted(world.woken) == [key("a"), key("expired"), key("expiring")]
    assert (world.delays[key("a")], world.delays[key("expired")]) == (0.0, 0.0)
    assert 1900 < world.delays[key("expiring")] <= 2000, "what is left of its time"
    assert set(world.watch.runs) == {("team", "a")}, "finished runs are not held"


async def test_a_round_notices_what_vanished_in_a_gap():
    world = World()
    ghost = world.client.put(api.TASKRUNS, run("ghost"))
    world.watch.see_run(ghost)
    del world.client.objects["taskruns", "team", "ghost"]
    await world.janitor.round(None)
    assert world.woken == [key("ghost")]
    assert world.watch.runs == {}


async def test_selection_happens_on_the_server():
    world = World()
    await world.janitor.round("team")
    assert world.client.calls == [
        "list taskruns/team status.complete!=true",
        "list verifierruns/team status.complete!=true",
        "list pods/team taskfold.dev/run",
        "list taskruns/team status.complete=true",
    ]


@pytest.mark.parametrize(("namespaces", "expected"), [([], ["*"]), (["one", "two"], ["one", "two"])], ids=str)
def test_rounds_go_on_over_every_namespace_whatever_fails(namespaces, expected):
    world = World(namespaces=namespaces, resyncSeconds=10)

    async def main() -> None:
        world.client.failures["list pods"] = errors.Unavailable("no answer", sent=False)
        task = asyncio.create_task(world.janitor.run())
        await asyncio.sleep(5)
        assert world.janitor.last_round == 0.0
        world.client.failures.clear()
        world.client.calls.clear()
        await asyncio.sleep(10)
        assert world.janitor.last_round == 10.0
        scopes = [call.split("/")[1].split(" ")[0] for call in world.client.calls if call.startswith("list pods")]
        assert scopes == expected
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main)
