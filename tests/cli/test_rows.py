"""The runner of the conformance table: what it creates, sends, reports and takes away again, whatever happens."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from taskfold.cli import rows
from taskfold.cli.exits import Unavailable
from taskfold.conformance import manifests
from taskfold.conformance.case import NOP, Case, Expect, refused, rewarded, task
from taskfold.conformance.manifests import LABEL
from taskfold.conformance.report import Outcome, Result
from taskfold.effects import client as api
from taskfold.effects import errors

Json = dict[str, Any]

DONE: Json = {"phase": "Succeeded", "reward": "1", "complete": True}
PENDING: Json = {"phase": "Pending"}
RUNNING: Json = {"phase": "Running"}


class Server:
    """Objects by kind and name. A run's statuses come one after another, a list call each; the last one stays."""

    def __init__(self, **statuses: list[Json]) -> None:
        self.statuses = statuses
        self.objects: dict[tuple[str, str], Json] = {}
        self.sent: list[tuple[str, str]] = []
        self.highest = 0
        self._uids = itertools.count(1)

    async def create(self, resource: api.Resource, namespace: str | None, body: Mapping[str, Any]) -> Json:
        name = body["metadata"]["name"]
        if (resource.plural, name) in self.objects:
            raise errors.AlreadyExists("it exists", where=name)
        uid = f"uid-{next(self._uids)}"
        self.objects[resource.plural, name] = {**body, "metadata": {**body["metadata"], "uid": uid}}
        self.sent.append(("create", name))
        self.highest = max(self.highest, len(self.runs()))
        return self.objects[resource.plural, name]

    async def list(self, resource: api.Resource, namespace: str, *, labels: str, project: Callable[[Json], Any]) -> Any:
        assert labels == f"{LABEL}=abcde"
        for (_, name), run in list(self.objects.items()):
            waiting = self.statuses.get(name.removesuffix("-abcde").replace("-", "_"), [])
            if waiting and run.get("kind") == "TaskRun":
                run["status"] = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return api.Listing(tuple(project(run) for run in self.runs()), "1")

    async def patch(self, resource: api.Resource, namespace: str, name: str, body: Mapping[str, Any]) -> Json:
        self.sent.append(("patch", name))
        return dict(body)

    async def apply(self, resource: api.Resource, namespace: str, body: Json, *, manager: str) -> Json:
        name = body["metadata"]["name"]
        self.sent.append(("apply", name))
        uid = self.objects[resource.plural, name]["metadata"]["uid"]
        self.objects[resource.plural, name] = {**body, "metadata": {**body["metadata"], "uid": uid}}
        return self.objects[resource.plural, name]

    async def delete(self, resource: api.Resource, namespace: str | None, name: str, *, uid: str) -> Json:
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise errors.NotFound("it is gone", where=name)
        if found["metadata"]["uid"] != uid:
            raise errors.Conflict("another one has the name", where=name)
        return self.objects.pop((resource.plural, name))

    def runs(self) -> Sequence[Json]:
        return [each for (plural, _), each in self.objects.items() if plural == "taskruns"]


def row(name: str, expect: Expect | None = None, **more: Any) -> Case:
    return Case(name, "it works", "here", task("true"), NOP, expect or rewarded(), **more)


def config_map(name: str, value: str = "") -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LOOK_SECONDS", 0.001)


async def play(server: Server, *cases: Case, stop: asyncio.Event | None = None, **plan: Any) -> tuple[Result, ...]:
    told: list[Result] = []
    async with rows.Session(server, rows.Plan("ns", "abcde", **plan)) as session:  # type: ignore[arg-type]
        results = await session.play(cases, stop or asyncio.Event(), told.append)
    assert [each.id for each in results] == [case.id for case in cases]
    assert set(told) <= set(results)
    return results


async def test_a_row_that_is_as_expected_passes_and_leaves_nothing() -> None:
    server = Server(one=[PENDING, RUNNING, DONE])
    (result,) = await play(server, row("one", objects=(config_map("extra"),)))
    assert (result.outcome, result.notes, result.found) == (Outcome.PASSED, (), "Succeeded 1")
    assert server.sent == [("create", "extra"), ("create", "one-abcde")]
    assert server.objects == {}


async def test_a_row_that_is_otherwise_fails_with_what_differs_and_what_the_status_says() -> None:
    failure = {"kind": "harbor:missing_reward", "reason": "RewardMissing", "message": "no reward file"}
    server = Server(one=[{**DONE, "reward": "0", "failure": failure}])
    (result,) = await play(server, row("one"))
    assert result.outcome is Outcome.FAILED
    assert result.notes == (
        "reward: '1' expected, found '0'",
        "failure.kind: 'none' expected, found 'harbor:missing_reward'",
        "the status says: no reward file",
    )


@pytest.mark.parametrize(
    ("profile", "outcome"),
    [("restricted", Outcome.REFUSED), ("userns", Outcome.FAILED), (None, Outcome.FAILED)],
)
async def test_what_the_restricted_profile_refuses_is_no_mismatch_there(profile: str | None, outcome: Outcome) -> None:
    failure = {"kind": "", "reason": "ForbiddenByProfile", "message": "user 0 is root"}
    server = Server(one=[{"complete": True, "phase": "Failed", "failure": failure}])
    (result,) = await play(server, row("one"), place=manifests.Place(profile=profile))
    assert result.outcome is outcome
    assert result.notes[-1] == "the status says: user 0 is root"


@pytest.mark.parametrize(
    ("warnings", "outcome"),
    [(["profile restricted: one user"], Outcome.PASSED), (["profile restricted: one user", "odd"], Outcome.FAILED)],
    ids=["the standing one", "another"],
)
async def test_the_warning_of_every_restricted_run_is_not_the_rows(warnings: list[str], outcome: Outcome) -> None:
    server = Server(one=[{**DONE, "warnings": warnings}])
    case = row("one", expect=rewarded(absent=("warnings",)))
    (result,) = await play(server, case, place=manifests.Place(profile="restricted"))
    assert result.outcome is outcome


async def test_a_row_that_wants_the_refusal_passes_by_it() -> None:
    failure = {"reason": "ForbiddenByProfile", "message": "user 0 is root", "terminal": True}
    server = Server(one=[{"complete": True, "phase": "Failed", "failure": failure}])
    wants = row("one", expect=refused("ForbiddenByProfile", "user 0"))
    (result,) = await play(server, wants, place=manifests.Place(profile="restricted"))
    assert result.outcome is Outcome.PASSED


async def test_no_more_runs_than_allowed_exist_at_a_time() -> None:
    cases = [row(f"row-{number}") for number in range(20)]
    server = Server(**{f"row_{number}": [PENDING, RUNNING, DONE] for number in range(20)})
    results = await play(server, *cases, parallel=3)
    assert {each.outcome for each in results} == {Outcome.PASSED}
    assert server.highest == 3


async def test_an_object_that_two_rows_name_is_made_once() -> None:
    server = Server(one=[PENDING, DONE], two=[PENDING, DONE])
    await play(server, row("one", objects=(config_map("shared"),)), row("two", objects=(config_map("shared"),)))
    assert server.sent.count(("create", "shared")) == 1


async def test_somebody_elses_object_is_neither_used_nor_deleted() -> None:
    server = Server(one=[DONE], two=[DONE])
    mine = {**config_map("mine"), "metadata": {"name": "mine", "uid": "somebody's"}}
    server.objects["configmaps", "mine"] = mine
    first, second = await play(server, row("one", objects=(config_map("mine"),)), row("two"))
    assert first.outcome is Outcome.FAILED
    assert "it exists" in first.notes[0]
    assert second.outcome is Outcome.PASSED
    assert server.objects == {("configmaps", "mine"): mine}


async def test_patches_and_objects_are_sent_once_the_run_is_there_in_their_order() -> None:
    server = Server(one=[PENDING, RUNNING, RUNNING, {"phase": "Verifying"}, DONE])
    case = row("one", patches=(("Verifying", {"cancel": True}),), applies=(("Running", config_map("late")),))
    (result,) = await play(server, case)
    assert result.outcome is Outcome.PASSED
    assert server.sent == [("create", "one-abcde"), ("create", "late"), ("patch", "one-abcde")]
    assert server.objects == {}


async def test_an_object_of_the_row_can_be_changed_and_somebody_elses_cannot() -> None:
    server = Server(one=[PENDING, RUNNING, DONE], two=[PENDING, RUNNING, DONE])
    mine = {**config_map("mine"), "metadata": {"name": "mine", "uid": "somebody's"}}
    server.objects["configmaps", "mine"] = mine
    changed = row("one", objects=(config_map("own"),), applies=(("Running", config_map("own", "changed")),))
    first, second = await play(server, changed, row("two", applies=(("Running", config_map("mine")),)))
    assert first.outcome is Outcome.PASSED
    assert ("apply", "own") in server.sent
    assert second.outcome is Outcome.FAILED
    assert second.notes == ("the apply for phase Running was refused: mine: it exists",)
    assert server.objects == {("configmaps", "mine"): mine}


async def test_a_patch_that_was_never_sent_fails_its_row() -> None:
    server = Server(one=[PENDING, DONE])
    (result,) = await play(server, row("one", patches=(("Running", {"cancel": True}),)))
    assert result.outcome is Outcome.FAILED
    assert "was never sent" in result.notes[0]


async def test_a_run_that_does_not_end_is_given_up_and_deleted() -> None:
    condition = {"type": "Succeeded", "message": "the image cannot be pulled"}
    server = Server(one=[{**PENDING, "conditions": [condition]}], two=[DONE])
    first, second = await play(server, row("one"), row("two"), limit_seconds=0.05)
    assert first.outcome is Outcome.FAILED
    assert first.notes == ("not complete within 0.05 s", "the status says: the image cannot be pulled")
    assert second.outcome is Outcome.PASSED
    assert server.objects == {}


async def test_a_run_that_somebody_deletes_fails_its_row() -> None:
    server = Server(one=[PENDING])
    playing = asyncio.create_task(play(server, row("one")))
    while not server.runs():
        await asyncio.sleep(0)
    del server.objects["taskruns", "one-abcde"]
    (result,) = await playing
    assert "deleted by somebody" in result.notes[0]


async def test_stopping_reports_what_has_not_ended_and_takes_it_away() -> None:
    server, stop = Server(one=[DONE], two=[RUNNING]), asyncio.Event()
    told: list[Result] = []
    async with rows.Session(server, rows.Plan("ns", "abcde", parallel=2)) as session:  # type: ignore[arg-type]

        def hear(result: Result) -> None:
            told.append(result)
            stop.set()

        results = await session.play([row("one"), row("two"), row("three")], stop, hear)
    assert [each.outcome for each in results] == [Outcome.PASSED, Outcome.STOPPED, Outcome.STOPPED]
    assert server.objects == {}


async def test_what_is_kept_stays() -> None:
    server = Server(one=[DONE])
    await play(server, row("one", objects=(config_map("extra"),)), keep=True)
    assert set(server.objects) == {("taskruns", "one-abcde"), ("configmaps", "extra")}


async def test_without_an_operator_it_ends_with_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "NOTICE_SECONDS", 0.05)
    server = Server()
    with pytest.raises(Unavailable, match="no operator looked at a run in namespace ns"):
        await play(server, row("one"))
    assert server.objects == {}


async def test_an_error_of_the_api_server_ends_it_and_takes_everything_away() -> None:
    class Broken(Server):
        async def list(self, *_: Any, **__: Any) -> Any:
            raise errors.Unavailable("it does not answer", sent=True)

    server = Broken(one=[DONE])
    with pytest.raises(errors.Unavailable):
        await play(server, row("one", objects=(config_map("extra"),)))
    assert server.objects == {}


async def test_a_namespace_of_its_own_is_made_and_deleted() -> None:
    server = Server()
    async with rows.namespace(server, None, "abcde", keep=False) as name:  # type: ignore[arg-type]
        assert name == "taskfold-conformance-abcde"
        assert ("namespaces", name) in server.objects
    assert server.objects == {}
    async with rows.namespace(server, None, "abcde", keep=True) as name:  # type: ignore[arg-type]
        pass
    assert ("namespaces", name) in server.objects


async def test_a_given_namespace_is_never_deleted() -> None:
    server = Server()
    async with rows.namespace(server, "given", "abcde", keep=False) as name:  # type: ignore[arg-type]
        assert name == "given"
    assert server.sent == []
