"""engine/janitor.py: rounds against a fake API server, in time that is the test's."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine import parts
from tests.world import clock

from taskfold.api import names
from taskfold.decide import status as to
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine import janitor as janitors
from taskfold.engine.janitor import Janitor
from taskfold.engine.watch import Key, Kind

UNFINISHED, FINISHED = "status.complete!=true", "status.complete=true"
ALONE = f"verifierruns/team !{names.RUN}{FINISHED}"
VERIFIERS = f"list {ALONE}"
"""As long as none is known that stands alone."""


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
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.operator = parts.Operator(folder, **settings)
        self.client, self.watch = self.operator.client, self.operator.watch
        self.delays: dict[Key, float] = {}
        self.janitor = Janitor(self.operator.parts, self.delays.__setitem__)

    def put(self, *runs: api.Json) -> list[api.Json]:
        return [self.client.put(api.TASKRUNS, each) for each in runs]

    def calls(self, of: Callable[[], Coroutine[Any, Any, None]]) -> list[str]:
        self.client.calls.clear()
        self.delays.clear()
        asyncio.run(of())
        return self.client.calls


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def key(name, namespace="team"):
    return Key(Kind.TASK_RUN, namespace, name)


# -- beside the watches --------------------------------------------------------------------------------------------


def test_without_a_difference_a_round_costs_names_and_wakes_nobody(world):
    for each in world.put(run("a"), run("done", complete=True)):
        if not each["status"]["complete"]:
            world.watch.see_run(each)
    assert world.calls(lambda: world.janitor.unfinished("team")) == [
        "names pods/team taskfold.dev/run",
        f"names verifierruns/team {UNFINISHED}",
        f"names taskruns/team {UNFINISHED}",
    ]
    assert world.delays == {}


def test_what_vanished_in_a_gap_is_dropped_and_its_key_looks(world):
    (ghost,) = world.put(run("ghost"))
    world.watch.see_run(ghost)
    del world.client.objects["taskruns", "team", "ghost"]
    world.calls(lambda: world.janitor.unfinished(None))
    assert world.delays == {key("ghost"): 0.0}
    assert world.watch.runs == {}


def test_what_changed_or_came_in_a_gap_is_read_and_nothing_else(world):
    for each in world.put(run("a"), run("b")):
        world.watch.see_run(each)
    world.put(run("b"), run("new"))
    calls = world.calls(lambda: world.janitor.unfinished("team"))
    assert [call for call in calls if call.startswith("get")] == ["get taskruns/b", "get taskruns/new"]
    assert world.delays == {key("b"): 0.0, key("new"): 0.0}
    assert world.calls(lambda: world.janitor.unfinished("team"))[3:] == []


def test_much_that_changed_is_read_in_pages(world):
    world.put(*(run(f"r{number}") for number in range(janitors.FEW + 1)))
    calls = world.calls(lambda: world.janitor.unfinished("team"))
    assert calls[-1] == f"list taskruns/team {UNFINISHED}"
    assert len(world.watch.runs) == len(world.delays) == janitors.FEW + 1


def test_a_run_that_is_deleted_while_it_is_being_read_is_no_trouble(world):
    world.put(run("a"), run("b"))
    world.client.failures["get taskruns/a"] = errors.NotFound("gone", status=404)
    world.calls(lambda: world.janitor.unfinished("team"))
    assert set(world.watch.runs) == {("team", "b")}


@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_every_unfinished_run_is_looked_at_once_within_its_time_and_not_all_together(tmp_path, count):
    world = World(tmp_path, resyncSeconds=30, lookSeconds=180)
    for each in world.put(*(run(f"r{number}") for number in range(count))):
        world.watch.see_run(each)
    seen: list[Key] = []
    for _ in range(6):
        world.delays.clear()
        world.janitor.look()
        seen += world.delays
        assert all(0 <= delay < 30 for delay in world.delays.values())
        assert len(set(world.delays.values())) == len(world.delays), "one after the other"
        assert len(world.delays) <= max(10, count / 3)
    assert sorted(seen) == sorted(key(f"r{number}") for number in range(count))


# -- behind finished runs ------------------------------------------------------------------------------------------


def test_a_finished_run_that_was_dealt_with_costs_its_name(world):
    done, other = world.put(run("done", complete=True), run("other", complete=True))
    for each in (done, other):
        world.watch.forget(each)
    assert world.calls(lambda: world.janitor.finished("team")) == [f"names taskruns/team {FINISHED}", VERIFIERS]
    assert world.delays == {}


def test_a_time_to_live_that_is_set_late_is_noticed(world):
    (done,) = world.put(run("done", complete=True, completed=9))
    world.watch.forget(done)
    world.put(run("done", complete=True, completed=9, ttl=5))
    world.calls(lambda: world.janitor.finished("team"))
    assert world.delays == {key("done"): 0.0}


def test_at_the_start_finished_runs_are_read_and_their_names_are_not(world):
    world.put(run("done", complete=True, completed=9), run("late", complete=True, completed=9, ttl=5))
    assert world.calls(lambda: world.janitor.finished("team")) == [f"list taskruns/team {FINISHED}", VERIFIERS]
    assert (set(world.watch.finished), world.delays) == ({("team", "done")}, {key("late"): 0.0})


def test_a_finished_run_that_is_gone_is_forgotten(world):
    done, far = world.put(run("done", complete=True), run("far", complete=True, namespace="other"))
    world.watch.forget(done)
    world.watch.forget(far)
    del world.client.objects["taskruns", "team", "done"]
    world.calls(lambda: world.janitor.finished("team"))
    assert set(world.watch.finished) == {("other", "far")}, "a list says nothing about other namespaces"


def test_a_run_that_finished_after_the_list_was_made_is_not_forgotten(world):
    (done,) = world.put(run("done", complete=True))
    done["metadata"]["resourceVersion"] = "999999"
    world.watch.forget(done)
    del world.client.objects["taskruns", "team", "done"]
    world.calls(lambda: world.janitor.finished("team"))
    assert set(world.watch.finished) == {("team", "done")}


def test_many_finished_runs_are_read_in_pages_once_and_only_the_mortal_are_woken(tmp_path):
    world = World(tmp_path, janitor={"deletesPerSecond": 10})
    world.put(*(run(f"done-{number}", complete=True, completed=9) for number in range(janitors.FEW)))
    world.put(*(run(f"late-{number}", complete=True, completed=9, ttl=5) for number in range(3)))
    world.put(run("later", complete=True, completed=1000, ttl=3000))
    world.watch.forget(world.put(run("known", complete=True))[0])
    calls = world.calls(lambda: world.janitor.finished("team"))
    assert calls == [f"names taskruns/team {FINISHED}", f"list taskruns/team {FINISHED}", VERIFIERS]
    assert set(world.delays) == {*(key(f"late-{number}") for number in range(3)), key("later")}
    assert sorted(delay for name, delay in world.delays.items() if name != key("later")) == [0.0, 0.1, 0.2]
    assert 1900 < world.delays[key("later")] <= 2000, "what is left of its time"
    assert world.watch.runs == {}, "finished runs are not held"
    for number in range(3):
        world.watch.forget(world.client.find(api.TASKRUNS, f"late-{number}"))
    world.watch.forget(world.client.find(api.TASKRUNS, "later"))
    assert world.calls(lambda: world.janitor.finished("team")) == [f"names taskruns/team {FINISHED}", VERIFIERS]


def test_verifications_that_stand_alone_have_a_time_to_live_too(world):
    for each in (run("done", complete=True, completed=9), run("late", complete=True, completed=9, ttl=5)):
        world.client.put(api.VERIFIERRUNS, each)
    late = Key(Kind.VERIFIER_RUN, "team", "late")
    assert world.calls(lambda: world.janitor.finished("team"))[1:] == [VERIFIERS]
    assert (set(world.watch.finished_verifiers), world.delays) == ({("team", "done")}, {late: 0.0})
    assert world.watch.finished == {}
    world.client.put(api.VERIFIERRUNS, run("done", complete=True, completed=9, ttl=5))
    world.watch.forget_verifier(world.client.find(api.VERIFIERRUNS, "late"))
    assert world.calls(lambda: world.janitor.finished("team"))[1:] == [f"names {ALONE}"]
    assert world.delays == {Key(Kind.VERIFIER_RUN, "team", "done"): 0.0}


# -- rounds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("namespaces", "expected"), [([], ["*"]), (["one", "two"], ["one", "two"])], ids=str)
def test_rounds_go_on_over_every_namespace_whatever_fails(tmp_path, namespaces, expected):
    world = World(tmp_path, namespaces=namespaces, resyncSeconds=10, janitor={"finishedSeconds": 60})

    def scopes(call: str) -> list[str]:
        return [each.split("/")[1].split(" ")[0] for each in world.client.calls if each.startswith(call)]

    async def main() -> None:
        trouble = errors.Unavailable("no answer", sent=False)
        failing = f"list taskruns/{expected[0]} {FINISHED}"
        world.client.failures |= {failing: trouble, "names pods": trouble}
        task = asyncio.create_task(world.janitor.run())
        await asyncio.sleep(1)
        assert scopes("list taskruns") == expected, "one that fails does not keep the others from it"
        assert scopes("names pods") == expected
        assert world.janitor.last_round is None
        world.client.failures.clear()
        world.client.calls.clear()
        await asyncio.sleep(5)
        assert (scopes("list taskruns"), scopes("names pods")) == (expected, expected), "tried again soon"
        assert world.janitor.last_round == 5.0
        world.client.calls.clear()
        await asyncio.sleep(60)
        assert scopes("names pods") == expected * 6
        finished = [call.split("/")[0] for call in world.client.calls if call.endswith(FINISHED)]
        assert finished == ["list taskruns", "list verifierruns"] * len(expected)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main)
