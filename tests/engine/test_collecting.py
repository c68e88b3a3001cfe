"""engine/collecting.py: what is copied, in which order, and what the documents say; the copies themselves are faked."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.decide import apart, worlds
from tests.engine.parts import Operator

from taskfold.api.phases import Phase
from taskfold.effects import errors
from taskfold.engine import collecting
from taskfold.protocol.artifacts import Manifest

PLACE = worlds.PREFIX
RUN = worlds.run(worlds.handed_over(), agent=worlds.NOP)
LOST = errors.ConnectionLost("reset")
AWAY = errors.StoreError("503")
MANIFEST = Manifest((apart.MISSING, apart.KEPT))


class Copies:
    """In place of `effects.artifacts`: writes what the real one would, notes the order, fails on demand."""

    Limits, Progress = collecting.artifacts.Limits, collecting.artifacts.Progress

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.packed: list[str] = []
        self.roots: list[list[str]] = []
        self.failures: list[Exception] = []
        self.export_failures: list[Exception] = []
        self.there: list[set[str]] = []
        """What stood at the place when artifacts were exported."""

    async def pack_archive(self, sandbox: Any, store: Any, place: str, key: str, roots: Any, **more: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        self.packed.append(key)
        self.roots.append([root.path for root in roots])

        async def content() -> Any:
            yield key.encode()

        await store.put_stream(place + key, content())
        digest = hashlib.sha256(key.encode()).hexdigest()
        return {"key": key, "bytes": len(key), "sha256": digest, "entries": 1, "truncated": False, "skipped": []}

    async def export(self, sandbox: Any, store: Any, place: str, wanted: Any, **more: Any) -> Manifest:
        self.there.append(await self.operator.kept(place))
        if self.export_failures:
            raise self.export_failures.pop(0)
        await collecting.put_once(store, place + collecting.MANIFEST, MANIFEST.document())
        more["on_progress"](self.Progress("/app", 300 * 2**20))
        more["on_progress"](self.Progress("/small", 5))
        return MANIFEST


class Kept(Operator):
    """An operator whose store is looked into."""

    async def kept(self, place: str = PLACE) -> set[str]:
        return {each.key.removeprefix(place) async for each in self.store.list(place)}

    async def document(self, name: str, place: str = PLACE) -> Any:
        return json.loads(await self.store.get(place + name, limit=100_000))


@pytest.fixture
def operator(tmp_path):
    return Kept(tmp_path)


@pytest.fixture
def copies(operator, monkeypatch):
    found = Copies(operator)
    monkeypatch.setattr(collecting, "artifacts", found)
    monkeypatch.setattr(collecting, "PAUSES", (0.0, 0.0))
    return found


def closing(**changes):
    return apart.world(apart.closing(), run=RUN, **changes)


def final(**changes):
    return worlds.world(worlds.ended(), agent=worlds.NOP, **changes)


async def export(operator, *, logs=True, world=None):
    told: list[str] = []
    await collecting.Collecting(operator.parts).export(world or closing(), PLACE, logs=logs, tell=told.append)
    return told


# -- out of the agent's sandbox ------------------------------------------------------------------------------------


async def test_the_manifest_is_the_last_to_be_written(operator, copies):
    assert await export(operator) == ["artifact /app: 300 MiB"], "a small copy tells nothing"
    (archive,) = copies.packed
    assert copies.there == [{"transcript.json", "agent.json", archive}]
    assert await operator.kept() == {"transcript.json", "agent.json", archive, "artifacts.json"}
    agent = await operator.document("agent.json")
    assert agent["error"] == ""
    assert agent["archive"]["key"] == archive


async def test_what_is_the_verifiers_is_not_among_the_agents_logs(operator, copies):
    await export(operator)
    assert all("/logs/verifier" not in path for path in copies.roots[0])
    assert "/logs/agent" in copies.roots[0]


async def test_a_sandbox_that_goes_on_keeps_its_logs_for_later(operator, copies):
    await export(operator, logs=False)
    assert await operator.kept() == {"transcript.json", "artifacts.json"}


async def test_a_second_operator_takes_what_the_first_has_written(operator, copies):
    await export(operator)
    first = {name: await operator.document(name) for name in ("agent.json", "transcript.json")}
    await export(operator)
    assert copies.packed == [first["agent.json"]["archive"]["key"]], "nothing is copied twice"
    assert {name: await operator.document(name) for name in first} == first


async def test_two_at_once_and_the_first_document_stands(operator, copies):
    """Both have packed before either has written; each archive has a name of its own."""
    pack = copies.pack_archive

    async def slower(*arguments, **more):
        found = await pack(*arguments, **more)
        archive = {**found, "key": "agent-of-the-other.tar"}
        await collecting.put_once(operator.store, PLACE + collecting.AGENT, {"archive": archive, "error": ""})
        return found

    copies.pack_archive = slower  # type: ignore[method-assign]
    await export(operator)
    assert (await operator.document("agent.json"))["archive"]["key"] == "agent-of-the-other.tar"
    assert copies.packed[0] in await operator.kept(), "unreferenced, and nobody's to trust"


async def test_logs_are_best_effort_and_say_what_is_missing(operator, copies):
    copies.failures = [LOST] * 3
    await export(operator)
    assert await operator.document("agent.json") == {"archive": None, "error": f"CollectFailed: {LOST}"}
    assert "artifacts.json" in await operator.kept()


async def test_a_connection_that_breaks_is_tried_again(operator, copies):
    copies.failures = [LOST, LOST]
    await export(operator)
    assert (await operator.document("agent.json"))["error"] == ""


async def test_a_store_that_is_away_is_no_missing_file(operator, copies):
    copies.failures = [AWAY]
    with pytest.raises(errors.StoreError):
        await export(operator)
    assert await operator.kept() == {"transcript.json"}, "no document without what it names"


@pytest.mark.parametrize("failure", [LOST, AWAY], ids=["connection", "store"])
async def test_artifacts_are_not_best_effort(operator, copies, failure):
    copies.export_failures = [failure]
    with pytest.raises(type(failure)):
        await export(operator)
    assert "artifacts.json" not in await operator.kept()
    await export(operator)
    assert "artifacts.json" in await operator.kept()
    assert len(copies.packed) == 1, "the logs were kept the first time"


# -- a verifier's own sandbox --------------------------------------------------------------------------------------


async def keep(operator, status, *, reachable, **changes):
    world = apart.world(status, run=RUN, **changes)
    await collecting.Collecting(operator.parts).keep_logs(world, PLACE, reachable=reachable)
    return await operator.document("verifier.json")


async def test_its_logs_are_kept(operator, copies):
    found = await keep(operator, apart.over(), reachable=True)
    assert (found["archive"]["key"], found["error"]) == (copies.packed[0], "")
    assert copies.roots[0][0] == "/logs"


async def test_one_that_is_gone_says_so(operator, copies):
    found = await keep(operator, apart.over(), reachable=False, own_pod=None)
    assert found["archive"] is None
    assert "gone before" in found["error"]


async def test_one_that_never_was_misses_nothing(operator, copies):
    assert await keep(operator, apart.closing(phase=Phase.CANCELLED), reachable=False) == {"archive": None, "error": ""}


async def test_they_are_kept_once(operator, copies):
    first = await keep(operator, apart.over(), reachable=True)
    assert await keep(operator, apart.over(), reachable=False) == first
    assert await keep(operator, apart.over(), reachable=True) == first
    assert len(copies.packed) == 1


# -- the end of a run ----------------------------------------------------------------------------------------------


async def collect(operator, world, *, reachable):
    await collecting.Collecting(operator.parts).collect(world, PLACE, reachable=reachable)
    return await operator.document("collected.json")


async def test_the_index_of_a_shared_run(operator, copies):
    index = await collect(operator, final(), reachable=True)
    (archive,) = index["archives"]
    assert (archive["of"], archive["step"], archive["key"], index["error"]) == ("sandbox", None, copies.packed[0], "")
    assert {"bytes", "sha256", "entries", "truncated", "skipped"} <= archive.keys()
    assert (index["artifacts"], copies.there) == ([], []), "no artifacts are declared"
    assert index["seconds"] >= 0


async def test_artifacts_that_a_shared_task_declares_are_kept_too(operator, copies):
    shared = worlds.task('artifacts = ["/app/out.txt"]')
    index = await collect(operator, final(task=shared), reachable=True)
    assert index["artifacts"] == [{"step": None, "key": "artifacts.json"}]


async def test_there_they_are_best_effort(operator, copies):
    copies.export_failures = [LOST]
    index = await collect(operator, final(task=worlds.task('artifacts = ["/app/out.txt"]')), reachable=True)
    assert (index["artifacts"], index["error"]) == ([], f"CollectFailed: artifacts: {LOST}")


async def test_a_store_that_is_away_writes_no_index(operator, copies):
    copies.export_failures = [AWAY]
    with pytest.raises(errors.StoreError):
        await collect(operator, final(task=worlds.task('artifacts = ["/app/out.txt"]')), reachable=True)
    assert "collected.json" not in await operator.kept()


async def test_the_index_of_a_separate_run(operator, copies):
    await export(operator)
    await keep(operator, apart.over(), reachable=True)
    index = await collect(operator, final(task=apart.TASK, pod=None), reachable=False)
    assert [(each["of"], each["step"]) for each in index["archives"]] == [("agent", None), ("verifier", None)]
    assert index["artifacts"] == [{"step": None, "key": "artifacts.json"}]
    assert index["error"] == "", "the agent's sandbox was stopped, and not lost"


async def test_the_index_of_steps_names_what_each_of_them_kept(operator, copies):
    for name in ("one", "three"):
        place = f"{PLACE}steps/{name}/"
        world = replace(closing(task=worlds.turn_of(apart.STEPPED, name), step=name), place=place)
        last = name == "three"
        await collecting.Collecting(operator.parts).export(world, place, logs=last, tell=lambda _: None)
    index = await collect(operator, final(task=apart.STEPPED, pod=None), reachable=False)
    assert [(each["of"], each["step"]) for each in index["archives"]] == [("agent", "three")]
    assert all(each["key"].startswith("steps/three/agent-") for each in index["archives"])
    assert index["artifacts"] == [
        {"step": "one", "key": "steps/one/artifacts.json"},
        {"step": "three", "key": "steps/three/artifacts.json"},
    ]
    for each in [*index["archives"], *index["artifacts"]]:
        assert await operator.store.exists(PLACE + each["key"]), "keys are those of the run's own place"


async def test_a_sandbox_that_was_lost_is_told(operator, copies):
    index = await collect(operator, final(pod=None), reachable=False)
    assert (index["archives"], index["error"]) == ([], "the sandbox was gone before its files could be kept")


async def test_a_run_without_a_sandbox_misses_nothing(operator, copies):
    refused = worlds.world(worlds.TaskRunStatus(phase=Phase.FAILED, store=PLACE), agent=worlds.NOP)
    assert (await collect(operator, refused, reachable=False))["error"] == ""


async def test_an_index_is_written_once(operator, copies):
    first = await collect(operator, final(), reachable=True)
    assert await collect(operator, final(pod=None), reachable=False) == first
