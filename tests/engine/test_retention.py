"""What is deleted in the store, and what never is."""

import asyncio
import json
import os
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine import parts

from taskfold.contract import digest as digests
from taskfold.contract import folder as folders
from taskfold.contract import loader
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.engine import retention

OLD = 10 * retention.DAY
GONE = "11111111-0000-0000-0000-000000000000"
DIGEST, OTHER = "ab" * 32, "cd" * 32
FAST = {"janitor": {"deletesPerSecond": 1e6}}


def operator(folder: Path, seconds: float | None = retention.DAY, **settings: Any) -> parts.Operator:
    """An operator with a retention of a day."""
    store = {"store": {"retentionSeconds": seconds}} if seconds is not None else {}
    return parts.Operator(folder, namespaces=["team"], **FAST, **store, **settings)


@pytest.fixture
def at_work(tmp_path: Path) -> parts.Operator:
    return operator(tmp_path)


def file(folder: Path, key: str, content: object = "", age: float = OLD) -> Path:
    """An object of a folder store, written so many seconds ago."""
    path = folder / "store" / "default" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.utime(path, (time.time() - age,) * 2)
    return path


def left(folder: Path) -> list[str]:
    root = folder / "store" / "default"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def run_files(folder: Path, uid: str, age: float = OLD, attempt: int = 1) -> None:
    """What a run leaves, all of it of one moment."""
    place = f"team/{uid}/{attempt}"
    index = {"archives": [{"key": "files-aa.tar"}], "artifacts": [{"step": None, "key": "artifacts.json"}]}
    file(folder, f"{place}/row.json", {}, age)
    file(folder, f"{place}/collected.json", index, age)
    file(folder, f"{place}/files-aa.tar", "x", age)
    file(folder, f"{place}/artifacts.json", {"artifacts": [{"archive": {"key": "artifacts/0-aa-0.tar"}}]}, age)
    file(folder, f"{place}/artifacts/0-aa-0.tar", "x", age)


def put_run(at_work: parts.Operator, uid: str, **status: Any) -> None:
    at_work.client.put(api.TASKRUNS, {"metadata": {"name": f"run-{uid[:8]}", "uid": uid}, "status": status})


# -- runs ------------------------------------------------------------------------------------------------------------


async def test_the_files_of_a_run_that_is_gone_go(tmp_path: Path, at_work: parts.Operator) -> None:
    run_files(tmp_path, GONE)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == []
    assert not (tmp_path / "store/default/team" / GONE).exists()


async def test_younger_files_stay_and_the_newest_counts(tmp_path: Path, at_work: parts.Operator) -> None:
    run_files(tmp_path, GONE, age=3600)
    run_files(tmp_path, "other")
    run_files(tmp_path, "other", age=3600, attempt=2)
    before = left(tmp_path)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == before


@pytest.mark.parametrize("complete", [True, False])
async def test_the_files_of_a_run_that_exists_stay(tmp_path: Path, at_work: parts.Operator, complete: bool) -> None:
    put_run(at_work, GONE, complete=complete)
    run_files(tmp_path, GONE)
    before = left(tmp_path)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == before


@pytest.mark.parametrize(
    "verifier",
    [
        {"metadata": {"uid": GONE}},
        {"metadata": {"ownerReferences": [{"uid": GONE}]}},
        {"spec": {"source": {"runRef": {"name": "run", "uid": GONE}}}},
        {"status": {"runUID": GONE}},
        {"status": {"store": f"default/team/{GONE}/1/"}},
    ],
    ids=["its own", "of its owner", "that it grades", "that it grades by name", "where it keeps its files"],
)
async def test_the_files_of_a_verification_that_exists_stay(
    tmp_path: Path, at_work: parts.Operator, verifier: dict[str, Any]
) -> None:
    metadata = {"name": "verify", **verifier.pop("metadata", {})}
    at_work.client.put(api.VERIFIERRUNS, {"metadata": metadata, **verifier})
    run_files(tmp_path, GONE)
    before = left(tmp_path)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == before


async def test_another_namespace_and_another_cluster_are_left_alone(tmp_path: Path, at_work: parts.Operator) -> None:
    file(tmp_path, f"others/{GONE}/1/row.json")
    file(tmp_path, f"../prod/team/{GONE}/1/row.json")
    file(tmp_path, "images/" + "0" * 64 + ".json")
    await retention.Retention(at_work.parts).round()
    assert len(list((tmp_path / "store").rglob("*.json"))) == 3


async def test_without_a_retention_everything_stays(tmp_path: Path) -> None:
    at_work = operator(tmp_path, None)
    run_files(tmp_path, GONE, age=1000 * retention.DAY)
    before = left(tmp_path)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == before


async def test_an_operator_of_the_whole_cluster_looks_at_every_namespace(tmp_path: Path) -> None:
    at_work = parts.Operator(tmp_path, **FAST, store={"retentionSeconds": retention.DAY})
    for namespace in ("team", "others", "third"):
        file(tmp_path, f"{namespace}/{GONE}/1/row.json")
    at_work.client.put(api.TASKRUNS, {"metadata": {"name": "run", "uid": GONE, "namespace": "others"}})
    file(tmp_path, "images/" + "0" * 64 + ".json")
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == ["images/" + "0" * 64 + ".json", f"others/{GONE}/1/row.json"]


async def test_nothing_goes_while_the_api_server_does_not_answer(tmp_path: Path, at_work: parts.Operator) -> None:
    at_work.client.failures["list verifierruns"] = errors.NotFound("away", status=404)
    run_files(tmp_path, GONE)
    before = left(tmp_path)
    with pytest.raises(errors.NotFound):
        await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == before


async def test_what_is_written_to_after_it_was_found_stays(tmp_path: Path, at_work: parts.Operator) -> None:
    run_files(tmp_path, GONE)
    real = at_work.client.list

    async def written_meanwhile(*arguments: Any, **options: Any) -> Any:
        file(tmp_path, f"team/{GONE}/1/rewards.json", age=0)
        return await real(*arguments, **options)

    at_work.client.list = written_meanwhile  # type: ignore[method-assign]
    await retention.Retention(at_work.parts).round()
    assert f"team/{GONE}/1/row.json" in left(tmp_path)


class CrashError(Exception):
    """The process ends here."""


async def test_a_crash_anywhere_leaves_no_document_that_names_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crash after each single removal: whatever document is left finds its bulk; the next process ends the work."""
    real, rounds = stores.Store.remove, 0
    while True:
        folder = tmp_path / str(rounds)
        at_work = operator(folder)
        run_files(folder, GONE)
        budget = rounds

        async def one_by_one(self: stores.Store, keys: list[str]) -> None:
            nonlocal budget
            for key in keys:
                if not budget:
                    raise CrashError
                budget -= 1
                await real(self, [key])

        monkeypatch.setattr(stores.Store, "remove", one_by_one)
        crashed = False
        try:
            await retention.Retention(at_work.parts).round()
        except CrashError:
            crashed = True
        monkeypatch.setattr(stores.Store, "remove", real)
        there = left(folder)
        if any(key.endswith(".json") for key in there):
            assert {f"team/{GONE}/1/files-aa.tar", f"team/{GONE}/1/artifacts/0-aa-0.tar"} <= set(there)
        await retention.Retention(operator(folder).parts).round()
        assert left(folder) == []
        rounds += 1
        if not crashed:
            break
    assert rounds == 6  # five objects, each of which was the last that went


# -- snapshots -------------------------------------------------------------------------------------------------------


def snapshot(folder: Path, digest: str, age: float = OLD) -> None:
    file(folder, f"team/tasks/{digest}.tar", "tar", age)
    file(folder, f"team/tasks/{digest}.json", {"sha256": f"sha256:{digest}"}, age)


async def test_a_snapshot_that_no_run_names_goes(tmp_path: Path, at_work: parts.Operator) -> None:
    snapshot(tmp_path, DIGEST)
    snapshot(tmp_path, OTHER)
    put_run(at_work, "one", admitted={"taskDigest": f"sha256:{OTHER}"})
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == [f"team/tasks/{OTHER}.json", f"team/tasks/{OTHER}.tar"]


async def test_a_young_snapshot_stays(tmp_path: Path, at_work: parts.Operator) -> None:
    snapshot(tmp_path, DIGEST, age=3600)
    await retention.Retention(at_work.parts).round()
    assert len(left(tmp_path)) == 2


async def test_a_snapshot_that_was_asked_for_lately_stays_and_one_that_went_is_written_again(
    tmp_path: Path, at_work: parts.Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run has the digest in hand, and not in its status yet."""
    folder = folders.MemoryFolder({name: (text.encode(), False) for name, text in parts.FILES.items()})
    digest = digests.task_digest(folder)
    at_work.parts.snapshots.remember(digest, folder, loader.load(folder, task_id="task"))
    await at_work.parts.snapshots.keep("team", digest)
    for path in (tmp_path / "store/default/team/tasks").iterdir():
        os.utime(path, (time.time() - OLD,) * 2)
    await retention.Retention(at_work.parts).round()
    assert len(left(tmp_path)) == 2
    monkeypatch.setattr("taskfold.engine.snapshots.ASKED_SECONDS", -1.0)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == []
    await at_work.parts.snapshots.keep("team", digest)
    assert len(left(tmp_path)) == 2


# -- what nothing refers to ------------------------------------------------------------------------------------------


async def test_archives_that_no_document_names_go(tmp_path: Path) -> None:
    at_work = operator(tmp_path, None)
    run_files(tmp_path, GONE, age=2 * retention.DAY)
    named = left(tmp_path)
    place = f"team/{GONE}/1"
    for key in ("files-bb.tar", "agent-bb.tar", "artifacts/0-bb-0.tar", "steps/one/artifacts/0-bb-0.tar"):
        file(tmp_path, f"{place}/{key}", "x", 2 * retention.DAY)
    kept = ("steps/one/artifacts/0-aa-0.tar", "steps/one/agent-aa.tar", "steps/one/artifacts/1-aa-0.tar")
    for key in kept:
        file(tmp_path, f"{place}/{key}", "x", 2 * retention.DAY)
    step = f"{place}/steps/one"
    manifest = {"artifacts": [{"archive": {"key": "artifacts/0-aa-0.tar"}}]}
    documents = {
        f"{step}/artifacts.json": manifest,
        f"{step}/agent.json": {"archive": {"key": "agent-aa.tar"}, "error": ""},
        f"{step}/artifacts/1.json": {"archive": {"key": "artifacts/1-aa-0.tar"}},
    }
    for key, content in documents.items():
        file(tmp_path, key, content, 2 * retention.DAY)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == sorted([*named, *(f"{place}/{key}" for key in kept), *documents])


async def test_of_a_run_that_exists_and_is_older_than_the_retention_only_those_go(tmp_path: Path) -> None:
    at_work = operator(tmp_path, 60.0)
    put_run(at_work, GONE)
    run_files(tmp_path, GONE, age=2 * retention.DAY)
    named = left(tmp_path)
    file(tmp_path, f"team/{GONE}/1/files-bb.tar", "x", 2 * retention.DAY)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == named


async def test_archives_of_an_attempt_that_goes_on_or_has_just_ended_stay(tmp_path: Path) -> None:
    at_work = operator(tmp_path, None)
    file(tmp_path, "team/going-on/1/files-bb.tar", "x", 3 * retention.DAY)
    run_files(tmp_path, GONE, age=3600)
    file(tmp_path, f"team/{GONE}/1/files-bb.tar", "x", 3 * retention.DAY)
    before = left(tmp_path)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == before


async def test_an_attempt_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work = operator(tmp_path, None)
    run_files(tmp_path, GONE, age=2 * retention.DAY)
    read: list[str] = []
    real = stores.Store.get

    async def counting(self: stores.Store, key: str, limit: int) -> bytes:
        read.append(key)
        return await real(self, key, limit)

    monkeypatch.setattr(stores.Store, "get", counting)
    rounds = retention.Retention(at_work.parts)
    await rounds.round()
    assert len(read) == 2
    await rounds.round()
    assert len(read) == 2


async def test_half_written_files_of_a_killed_process_go_after_a_day(tmp_path: Path) -> None:
    at_work = operator(tmp_path, None)
    file(tmp_path, "team/uid/1/files-aa.tar#1", "x", 2 * retention.DAY)
    file(tmp_path, "team/uid/1/files-bb.tar#2", "x", 3600)
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == ["team/uid/1/files-bb.tar#2"]


# -- much, and trouble -----------------------------------------------------------------------------------------------


class Large:
    """A store of 100,000 objects of 20,000 runs, that are made while they are listed."""

    def __init__(self, age: float) -> None:
        self.modified = time.time() - age
        self.gone: list[str] = []

    async def list(self, prefix: str) -> AsyncGenerator[stores.Stored, None]:
        if prefix != "default/team/":
            yield stores.Stored(f"{prefix}1/files-aa.tar", 1, self.modified)
            return
        for run in range(20_000):
            for name in ("row.json", "collected.json", "files-aa.tar", "rewards.json", "transcript.json"):
                yield stores.Stored(f"default/team/{run:06}/1/{name}", 1, self.modified)

    async def delete(self, prefix: str, *, limit: int) -> int:
        self.gone.append(prefix)
        return 1

    async def remove(self, keys: Sequence[str]) -> None:
        return

    async def sweep_unfinished(self, prefix: str, before: float) -> int:
        return 0


@pytest.mark.parametrize("age", [3600, OLD])
async def test_memory_does_not_grow_with_the_store(
    tmp_path: Path, at_work: parts.Operator, monkeypatch: pytest.MonkeyPatch, age: float
) -> None:
    large = Large(age)
    rounds = retention.Retention(at_work.parts)
    monkeypatch.setattr(rounds, "_store", large)

    async def at_once(_: float) -> None:
        return

    monkeypatch.setattr(asyncio, "sleep", at_once)
    tracemalloc.start()
    try:
        await rounds.round()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - sum(map(sys.getsizeof, large.gone)) < 4 * 1024 * 1024
    assert len(large.gone) == (20_000 if age == OLD else 0)


@pytest.mark.bulk
async def test_a_real_folder_of_many_objects(tmp_path: Path, at_work: parts.Operator) -> None:
    for run in range(2_000):
        for number in range(5):
            file(tmp_path, f"team/{run:06}/1/{number}.tar", "x")
    put_run(at_work, "001000")
    await retention.Retention(at_work.parts).round()
    assert left(tmp_path) == [f"team/001000/1/{number}.tar" for number in range(5)]


async def test_a_round_that_fails_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at_work = operator(tmp_path)
    rounds, done = retention.Retention(at_work.parts), asyncio.Event()
    tries = 0

    async def failing_once() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise errors.StoreError("no answer")
        done.set()

    async def at_once(_: float) -> None:
        await real_sleep(0)

    real_sleep = asyncio.sleep
    monkeypatch.setattr(rounds, "round", failing_once)
    monkeypatch.setattr(asyncio, "sleep", at_once)
    task = asyncio.create_task(rounds.run())
    async with asyncio.timeout(60):
        await done.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "a round over the store failed: no answer" in caplog.text
