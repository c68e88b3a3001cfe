"""Many long phases and one operator that begins anew: what it asks the sandboxes before any of them signals."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.decide import worlds
from tests.engine.parts import Operator

from taskfold.api import names, taskrun
from taskfold.api.settings import WaitingSettings
from taskfold.contract import folder as folders
from taskfold.decide import status as to
from taskfold.decide.world import PhaseWaiting, Signal
from taskfold.effects import client as api
from taskfold.effects import errors, lines, places
from taskfold.effects import exec as execs
from taskfold.engine.activities import Activities
from taskfold.engine.reconcile import Reconciler
from taskfold.engine.waiters import Waiters
from taskfold.engine.watch import Key, Kind

MANY = 1000
AT = "2026-03-01T11:00:00Z"
RUNNING, TOLD = {"running": {"startedAt": AT}}, {"terminated": {"exitCode": 0, "reason": "Completed"}}


class Exec:
    """In place of `effects.exec.Exec`: counts what is opened; nobody answers."""

    def __init__(self) -> None:
        self.opened: list[execs.PodPin] = []
        self.copies = places.Places(1, 1)

    @contextlib.asynccontextmanager
    async def open(self, pin: execs.PodPin, argv: Any, **_: Any) -> AsyncIterator[execs.ExecStream]:
        self.opened.append(pin)
        raise errors.ConnectionLost("nobody answers", where=pin.where)
        yield


class World:
    """An operator process that has just begun, and `MANY` agents at work."""

    def __init__(self, folder: Path) -> None:
        self.operator, self.exec = Operator(folder), Exec()
        parts = self.operator.parts
        self.activities = Activities(lambda key, delay: None, WaitingSettings(), chance=lambda: 0.5)
        fields: dict[str, Any] = {"clock": lambda: worlds.NOW, "exec": self.exec, "activities": self.activities}
        fields["lines"] = lines.Lines(self.exec)  # type: ignore[arg-type]
        self.parts = type(parts)(**{**vars(parts), **fields})
        self.reconciler = Reconciler(self.parts)

    async def begin(self, state: dict[str, Any] | None) -> None:
        """`state`: of every run's waiter; None: there are none."""
        folder = folders.MemoryFolder({"task.toml": (b"", False)})
        self.parts.snapshots.remember(worlds.TASK_DIGEST, folder, worlds.TASK)
        await self.parts.image_users.put((worlds.runs()["imageID"], worlds.TASK.image.reference), worlds.ROOT)
        run = worlds.run(to.begun(worlds.running(), worlds.AGENT, AT), agent=worlds.SCRIPT).wire()
        run["status"]["admitted"]["specDigest"] = taskrun.spec_digest(run["spec"])
        pod = worlds.pod_object({"phase": "Running", "containerStatuses": [worlds.runs()]})
        for number in range(MANY):
            self._add(copy.deepcopy(run), copy.deepcopy(pod), number, state)
        self.operator.see()

    def _add(self, run: Any, pod: Any, number: int, state: dict[str, Any] | None) -> None:
        name, nonce = f"run-{number}", f"{number:032x}"[::-1]
        run["metadata"] |= {"name": name, "uid": f"uid-{number}"}
        run["status"]["attempts"][0] |= {"podName": f"{name}-1-1", "podUID": f"uid-pod-{number}"}
        for entry in run["status"]["journal"]:
            entry.update({"podUID": f"uid-pod-{number}"}, **({"nonce": nonce} if entry["phase"] == "agent" else {}))
        pod["metadata"] |= {"name": f"{name}-1-1", "uid": f"uid-pod-{number}", "labels": {names.RUN: name}}
        pod["metadata"]["ownerReferences"][0] |= {"name": name, "uid": f"uid-{number}"}
        if state is not None:
            waiter = names.waiter(nonce)
            pod["spec"]["ephemeralContainers"] = [{"name": waiter}]
            pod["status"]["ephemeralContainerStatuses"] = [{"name": waiter, "state": state}]
        self.operator.client.put(api.TASKRUNS, run)
        self.operator.client.put(api.PODS, pod)

    async def look(self, numbers: Any = range(MANY)) -> None:
        """Each of these runs has its turn."""
        for number in numbers:
            await self.reconciler.reconcile(Key(Kind.TASK_RUN, "team", f"run-{number}"))
            await asyncio.sleep(0)
        while len(self.activities):
            await asyncio.sleep(0)

    def signal(self, number: int) -> None:
        """The kubelet reports the end of a waiter."""
        pod = copy.deepcopy(self.operator.client.find(api.PODS, f"run-{number}-1-1"))
        pod["status"]["ephemeralContainerStatuses"][0]["state"] = TOLD
        self.operator.watch.see_pod(self.operator.client.put(api.PODS, pod))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_restart_asks_nobody_until_somebody_signals(world: World) -> None:
    await world.begin(RUNNING)
    await world.look()
    assert world.exec.opened == []
    found = world.activities.report(f"{7:032x}"[::-1])
    assert isinstance(found, PhaseWaiting)
    assert found.signal is Signal.AWAITED
    signalled = range(3, 13)
    for number in signalled:
        world.signal(number)
    await world.look()
    assert {pin.name for pin in world.exec.opened} == {f"run-{number}-1-1" for number in signalled}
    assert {call.partition(" ")[0] for call in world.operator.client.calls} == {"status"}, "every pod is as it was"


async def test_without_waiters_a_restart_asks_everybody(world: World) -> None:
    await world.begin(None)
    await world.look()
    assert len({pin.name for pin in world.exec.opened}) == MANY


REFUSALS = {
    "no right to it": (errors.Forbidden("no", status=403), True),
    "a policy": (errors.Invalid("no", status=422), True),
    "not known": (errors.NotFound("no", status=404), True),
    "away": (errors.Unavailable("away", sent=False), False),
    "busy": (errors.TooManyRequests("later", status=429), False),
}


@pytest.mark.parametrize(("error", "for_good"), REFUSALS.values(), ids=REFUSALS)
async def test_a_waiter_that_cannot_be_had_is_no_error(tmp_path: Path, error: Exception, for_good: bool) -> None:
    operator = Operator(tmp_path)
    operator.client.failures["patch pods"] = error
    await Waiters(operator.parts).add("team", worlds.POD, worlds.POD_UID, worlds.AGENT)
    assert operator.phases.refused == [(worlds.AGENT, for_good)]


async def test_a_waiter_is_seen_at_once(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.client.put(api.PODS, worlds.pod_object({"phase": "Running", "containerStatuses": [worlds.runs()]}))
    await Waiters(operator.parts).add("team", worlds.POD, worlds.POD_UID, worlds.AGENT)
    assert operator.client.calls == [f"patch pods/{worlds.POD}"]
    (waiter,) = operator.watch.pods["team", worlds.POD].pod.waiters.values()
    assert not waiter.running
    assert operator.told == [Key(Kind.TASK_RUN, "team", worlds.NAME)]
