"""engine/janitor.py: one round against a fake API server."""

import asyncio

import pytest
from tests.engine import clock
from tests.engine.fakes import Client

from taskfold.api.settings import Settings
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.janitor import Janitor
from taskfold.engine.watch import Key, Kind, Watch


def run(name, *, complete=False, ttl=None, namespace="team"):
    spec = {"task": {"inline": {}}, "agent": {"nop": {}}}
    if ttl is not None:
        spec["ttlSecondsAfterFinished"] = ttl
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"complete": complete}}


class World:
    def __init__(self, **settings) -> None:
        self.client, self.watch, self.woken = Client(), Watch(), []
        self.janitor = Janitor(
            self.client, self.watch, lambda key, _: self.woken.append(key), Settings.model_validate(settings)
        )


def key(name, namespace="team"):
    return Key(Kind.TASK_RUN, namespace, name)


async def test_a_round_wakes_what_is_unfinished_and_what_expires():
    world = World()
    for each in (run("a"), run("done", complete=True), run("expiring", complete=True, ttl=5)):
        world.client.put(api.TASKRUNS, each)
    await world.janitor.round("team")
    assert sorted(world.woken) == [key("a"), key("expiring")]
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
