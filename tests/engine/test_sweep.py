"""engine/sweep.py: what becomes of pods, as a table; and the rounds that delete them."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.decide import worlds
from tests.engine import parts
from tests.world import clock

from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.decide import status as to
from taskfold.effects import client as api
from taskfold.engine import sweep
from taskfold.engine.sweep import Fate, Sweeper

UID = "uid-run"


def run(*attempts: tuple[int, int], phase="Running", complete=False, retention="Never", uid=UID, name="a"):
    """`attempts`: number and tries of each."""
    status: dict[str, Any] = {"phase": phase, "complete": complete}
    status["attempts"] = [{"number": number, "tries": tries, "startTime": worlds.ago(60)} for number, tries in attempts]
    spec = {"task": {"inline": {"files": {}}}, "agent": {"nop": {}}, "podRetention": retention}
    metadata = {"name": name, "namespace": "team", "uid": uid, "creationTimestamp": worlds.ago(60), "generation": 1}
    return {"metadata": metadata, "spec": spec, "status": status}


def pod(name="a-1-1", *, uid=UID, owner="a", deleted: str | None = None, labels=()):
    ours = {
        "app.kubernetes.io/managed-by": "taskfold",
        "taskfold.dev/run": owner,
        "taskfold.dev/run-uid": uid,
        "taskfold.dev/role": "sandbox",
    }
    metadata = {"name": name, "namespace": "team", "labels": {**ours, **dict(labels)}}
    if deleted is not None:
        metadata["deletionTimestamp"] = deleted
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}


FATES = {
    "no run": (None, "a-1-1", Fate.RUN_GONE),
    "the current try": (run((1, 1)), "a-1-1", Fate.NEEDED),
    "nothing is decided yet": (run(), "a-1-1", Fate.NEEDED),
    "another name": (run((1, 2)), "a-web", Fate.NEEDED),
    "a name with a zero": (run((1, 2)), "a-1-01", Fate.NEEDED),
    "an earlier try": (run((1, 2)), "a-1-1", Fate.EARLIER_TRY),
    "an earlier try, pods are kept": (run((1, 2), retention="Always"), "a-1-1", Fate.EARLIER_TRY),
    "an earlier try of a hundred": (run((1, 10)), "a-1-9", Fate.EARLIER_TRY),
    "a later try than the picture knows": (run((1, 1)), "a-1-2", Fate.NEEDED),
    "an earlier attempt": (run((1, 1), (2, 1)), "a-1-1", Fate.EARLIER_TRY),
    "an earlier attempt, kept": (run((1, 1), (2, 1), retention="Always"), "a-1-1", Fate.NEEDED),
    "an earlier attempt, kept if it fails": (run((1, 1), (2, 1), retention="OnFailure"), "a-1-1", Fate.NEEDED),
    "ending": (run((1, 1), phase="Succeeded"), "a-1-1", Fate.NEEDED),
    "complete": (run((1, 1), phase="Succeeded", complete=True), "a-1-1", Fate.RUN_COMPLETE),
    "complete, kept": (run((1, 1), phase="Succeeded", complete=True, retention="Always"), "a-1-1", Fate.KEPT),
    "complete, failed, kept": (run((1, 1), phase="Masked", complete=True, retention="OnFailure"), "a-1-1", Fate.KEPT),
    "complete, succeeded, kept if failed": (
        run((1, 1), phase="Succeeded", complete=True, retention="OnFailure"),
        "a-1-1",
        Fate.RUN_COMPLETE,
    ),
    "complete, an earlier attempt, kept": (
        run((1, 1), (2, 1), phase="Failed", complete=True, retention="Always"),
        "a-1-1",
        Fate.KEPT,
    ),
    "complete, an earlier attempt": (
        run((1, 1), (2, 1), phase="Succeeded", complete=True, retention="OnFailure"),
        "a-1-1",
        Fate.EARLIER_TRY,
    ),
}


@pytest.mark.parametrize(("given", "name", "expected"), FATES.values(), ids=FATES)
def test_fate(given, name, expected):
    found = TaskRun.parse({**given, "metadata": {**given["metadata"], "resourceVersion": "1"}}) if given else None
    assert sweep.fate(found, name) is expected


def verifier(tries=1, *, phase="Verifying", complete=False, uid="uid-v", name="v", reward=None, pods=True):
    """`tries`: of its own pods; `pods`: it has come so far as to have any."""
    attempts = [{"number": 1, "tries": tries, "startTime": worlds.ago(60)}] if pods else []
    status: dict[str, Any] = {"phase": phase, "complete": complete, "attempts": attempts}
    status |= {"reward": reward} if reward is not None else {}
    spec = {"source": {"runRef": {"name": "a", "uid": UID}}, "mode": "separate"}
    metadata = {"name": name, "namespace": "team", "uid": uid, "generation": 1}
    return {"metadata": metadata, "spec": spec, "status": status}


def own(name="v-1", *, uid: str | None = "uid-v", **more):
    """A separate verification's own pod; without `uid` nobody owns it any more."""
    found = pod(name, labels={"taskfold.dev/role": "verifier-sandbox"}, **more)
    if uid is not None:
        owner = {"kind": "VerifierRun", "name": "v", "uid": uid, "controller": True}
        found["metadata"]["ownerReferences"] = [owner]
    return found


DONE = {"phase": "Succeeded", "complete": True, "reward": "1"}
LOST = {"phase": "Masked", "complete": True}
OWN_FATES = {
    "no VerifierRun": (None, "Never", "v-1", Fate.VERIFIER_GONE),
    "the current try": (verifier(2), "Never", "v-2", Fate.NEEDED),
    "it has not come so far": (verifier(pods=False), "Never", "v-1", Fate.NEEDED),
    "an earlier try": (verifier(2), "Always", "v-1", Fate.EARLIER_TRY),
    "a later try than the picture knows": (verifier(1), "Never", "v-2", Fate.NEEDED),
    "ending": (verifier(phase="Succeeded", reward="1"), "Never", "v-1", Fate.NEEDED),
    "complete": (verifier(**DONE), "Never", "v-1", Fate.VERIFIER_COMPLETE),
    "complete, kept": (verifier(**DONE), "Always", "v-1", Fate.KEPT),
    "complete, graded, kept if it fails": (verifier(**DONE), "OnFailure", "v-1", Fate.VERIFIER_COMPLETE),
    "complete, masked, kept if it fails": (verifier(**LOST), "OnFailure", "v-1", Fate.KEPT),
    "complete, its run gone": (verifier(**DONE), None, "v-1", Fate.VERIFIER_COMPLETE),
}


@pytest.mark.parametrize(("given", "retention", "name", "expected"), OWN_FATES.values(), ids=OWN_FATES)
def test_fate_of_a_verifications_own_pod(given, retention, name, expected):
    found = VerifierRun.parse({**given, "metadata": {**given["metadata"], "resourceVersion": "1"}}) if given else None
    graded = run((1, 1), phase="Succeeded", complete=True, retention=retention or "Never")
    of = TaskRun.parse({**graded, "metadata": {**graded["metadata"], "resourceVersion": "1"}}) if retention else None
    assert sweep.fate_of_own(found, of, name) is expected


class World:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.operator = parts.Operator(folder, **settings)
        self.client, self.watch = self.operator.client, self.operator.watch
        self.sweeper = Sweeper(self.operator.parts)
        self.told: list[str] = []
        self.grace: list[int | None] = []
        self.operator.parts.events.tell = lambda _, reason, message, __: self.told.append(f"{reason}: {message}")
        delete = self.client.delete

        async def noted(*arguments: Any, **options: Any) -> api.Json:
            self.grace.append(options["grace_seconds"])
            return await delete(*arguments, **options)

        self.client.delete = noted  # type: ignore[method-assign]

    def ago(self, seconds: float) -> str:
        return to.stamp(self.operator.parts.clock() - timedelta(seconds=seconds))

    def pods(self, *pods: api.Json) -> None:
        for each in pods:
            self.watch.see_pod(self.client.put(api.PODS, each))

    def round(self) -> list[str]:
        """The calls of one round."""
        self.client.calls.clear()
        clock.run(lambda: self.sweeper.sweep("team"))
        return self.client.calls


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_orphan_is_deleted_once_the_api_server_says_that_its_run_is_gone(world):
    world.pods(pod("a-1-1"), pod("b-1-1", owner="b"))
    world.client.put(api.TASKRUNS, run((1, 1), name="b"))
    assert world.round() == ["get taskruns/a", "delete pods/a-1-1", "get taskruns/b"]


def test_an_own_pod_that_came_too_late_goes(world):
    """Its operator had been stopped right before it created it: the verification is complete by now."""
    world.client.put(api.TASKRUNS, run((1, 1), phase="Succeeded", complete=True))
    world.client.put(api.VERIFIERRUNS, verifier(**DONE))
    world.pods(own())
    assert world.round() == ["get taskruns/a", "get verifierruns/v", "delete pods/v-1"]


@pytest.mark.parametrize("given", [own(uid=None), own(uid="older")], ids=["orphan", "of an older one"])
def test_an_own_pod_whose_verification_is_gone_goes(world, given):
    world.watch.see_run(world.client.put(api.TASKRUNS, run((1, 1))))
    world.client.put(api.VERIFIERRUNS, verifier())
    world.pods(given)
    assert world.round()[-1] == "delete pods/v-1"


def test_an_own_pod_that_is_needed_costs_nothing(world):
    world.watch.see_run(world.client.put(api.TASKRUNS, run((1, 1))))
    world.watch.see_verifier(world.client.put(api.VERIFIERRUNS, verifier()))
    world.pods(own())
    assert world.round() == []


def test_the_pod_of_an_older_run_of_the_same_name_is_an_orphan(world):
    world.watch.see_run(world.client.put(api.TASKRUNS, run((1, 1), uid="uid-new")))
    world.pods(pod("a-1-1", uid="uid-old"))
    assert world.round() == ["get taskruns/a", "delete pods/a-1-1"]


@pytest.mark.parametrize(
    "foreign",
    [
        pod("a-1-1", labels={"app.kubernetes.io/managed-by": "x"}),
        pod("web", owner="a"),
        pod("a-1-1", labels={"taskfold.dev/role": "tool"}),
        pod("a-1-1", uid=""),
    ],
    ids=["managed by another", "another name", "another role", "no uid"],
)
def test_what_we_did_not_make_is_never_touched(world, foreign):
    world.pods(foreign)
    assert world.round() == []


def test_pods_that_their_runs_need_cost_nothing(world):
    world.watch.see_run(world.client.put(api.TASKRUNS, run((1, 1))))
    world.pods(pod())
    assert world.round() == []


def test_the_pod_of_an_earlier_try_goes(world):
    world.watch.see_run(world.client.put(api.TASKRUNS, run((1, 2))))
    world.pods(pod("a-1-1"), pod("a-1-2"))
    assert world.round() == ["delete pods/a-1-1"]


def test_a_kept_pod_costs_one_look_for_each_version_of_its_run(world):
    done = world.client.put(api.TASKRUNS, run((1, 1), phase="Failed", complete=True, retention="Always"))
    world.watch.forget(done)
    world.pods(pod())
    assert world.round() == ["get taskruns/a"]
    assert world.round() == []
    changed = world.client.put(api.TASKRUNS, run((1, 1), phase="Failed", complete=True))
    world.watch.forget(changed)
    assert world.round() == ["get taskruns/a", "delete pods/a-1-1"]


def test_deletion_is_bound_to_the_uid(world):
    world.pods(pod())
    world.client.put(api.PODS, {**pod(), "metadata": {**pod()["metadata"], "uid": "uid-of-another"}})
    assert world.round() == ["get taskruns/a", "delete pods/a-1-1"]
    assert ("pods", "team", "a-1-1") in world.client.objects, "the one of today stands"
    assert world.watch.pods == {}


@pytest.mark.parametrize(
    ("overdue", "force", "calls", "grace", "told"),
    [
        (60, None, 0, [], 0),
        (-5, None, 0, [], 0),
        (500, None, 1, [5], 1),
        (500, 600, 1, [5], 1),
        (700, 600, 1, [0], 1),
    ],
    ids=["on its way", "in its grace", "stuck", "stuck, not long enough to force", "stuck, forced"],
)
def test_a_deletion_on_its_way_is_given_its_time_and_a_stuck_one_is_told(tmp_path, overdue, force, calls, grace, told):
    world = World(tmp_path, limits={"deletionSeconds": 120}, janitor={"forceDeleteSeconds": force})
    world.watch.forget(world.client.put(api.TASKRUNS, run((1, 1), phase="Succeeded", complete=True)))
    world.pods(pod(deleted=world.ago(overdue)))
    assert [call for call in world.round() if call.startswith("delete")] == ["delete pods/a-1-1"] * calls
    assert world.grace == grace
    assert len(world.told) == told
    if told:
        assert "node node-1 does not answer, or a finalizer holds it" in world.told[0]
        assert world.told[0].startswith("CleanupPending")


def test_a_stuck_pod_is_told_once_and_asked_for_at_every_round(world):
    world.watch.forget(world.client.put(api.TASKRUNS, run((1, 1), phase="Succeeded", complete=True)))
    stuck = pod(deleted=world.ago(1000))
    for _ in range(3):
        world.pods(stuck)  # the API server still has it
        assert world.round()[-1] == "delete pods/a-1-1"
    assert len(world.told) == 1


def test_deletions_are_paced_and_bounded_by_round(tmp_path):
    world = World(tmp_path, janitor={"deletesPerSecond": 2, "finishedSeconds": 10})
    world.pods(*(pod(f"a-1-{number}") for number in range(1, 31)))

    async def main() -> float:
        await world.sweeper.sweep(None)
        return clock.now()

    assert clock.run(main) == pytest.approx(10.0)
    assert len([call for call in world.client.calls if call.startswith("delete")]) == 20


def test_other_namespaces_are_left_alone(world):
    world.pods(pod())
    asyncio.run(world.sweeper.sweep("other"))
    assert world.client.calls == []
