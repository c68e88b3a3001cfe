"""Artifacts out of a sandbox into a store and into another sandbox: the real helper, a real folder, a real stream."""

import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.effects.exporting import PLACE, declared, export, kept, members, restore
from tests.effects.local_box import boxed

from taskfold.contract.task import Artifact
from taskfold.effects import artifacts as copies
from taskfold.effects import sandbox
from taskfold.effects import store as stores
from taskfold.protocol import artifacts
from taskfold.protocol.artifacts import Status

MIB = 1 << 20


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """What the agent left."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> stores.Store:
    return stores.Store((tmp_path / "store").as_uri())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PAUSES", (0.0, 0.0, 0.0))


def tree(root: Path) -> dict[str, Any]:
    """What is there, as far as a copy keeps it."""
    found: dict[str, Any] = {}
    for path in sorted([root, *root.rglob("*")]):
        stat = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        mode = None if path.is_symlink() else stat.st_mode & 0o777
        found[os.fsdecode(path.relative_to(root))] = (content, mode, stat.st_uid, stat.st_gid, int(stat.st_mtime))
    return found


# What becomes of an artifact


async def test_each_thing_has_its_status(helper: Path, work: Path, store: stores.Store) -> None:
    (work / "file").write_bytes(b"content")
    (work / "folder").mkdir()
    (work / "folder" / "a").write_bytes(b"12345")
    (work / "empty").mkdir()
    (work / "link").symlink_to("folder")
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(work / "socket"))
    (work / "behind").symlink_to("folder")
    names = ["file", "folder", "empty", "missing", "link", "behind/a", "fifo", "socket"]
    async with boxed(helper) as box:
        manifest = await export(box, store, declared(*(work / name for name in names)))
    found = {Path(entry.source).name: entry for entry in manifest.entries}
    assert [entry.status for entry in manifest.entries] == [
        Status.OK,
        Status.OK,
        Status.EMPTY,
        Status.MISSING,
        Status.FAILED,
        Status.FAILED,
        Status.FAILED,
        Status.FAILED,
    ]
    assert found["file"].sha256 == hashlib.sha256(b"content").hexdigest()
    assert (found["file"].type, found["file"].size) == (artifacts.Type.FILE, 7)
    assert (found["folder"].type, found["folder"].size) == (artifacts.Type.DIRECTORY, 5)
    assert await members(store, found["file"]) == {"file": b"content"}
    assert await members(store, found["folder"]) == {".": None, "a": b"12345"}
    assert await members(store, found["empty"]) == {".": None}
    assert "link" in found["link"].reason
    assert "neither" in found["fifo"].reason
    assert await kept(store) >= {"artifacts.json", "artifacts/0.json"}
    document = json.loads(await store.get(PLACE + "artifacts.json", limit=MIB))
    assert artifacts.Manifest.of(document) == manifest


async def test_a_relative_source_is_below_the_working_directory(helper: Path, work: Path, store: stores.Store) -> None:
    (work / "out").mkdir()
    (work / "out" / "a").write_bytes(b"a")
    async with boxed(helper, cwd=work) as box:
        manifest = await export(box, store, declared("out", "out/a/"))
    assert [entry.path for entry in manifest.entries] == [str(work / "out"), None]
    assert [entry.status for entry in manifest.entries] == [Status.OK, Status.SKIPPED]


@pytest.mark.parametrize("source", ["tests", "logs/verifier", "proc/self", "dev", "sys"])
async def test_what_is_protected_is_so_from_any_working_directory(
    helper: Path, store: stores.Store, source: str
) -> None:
    async with boxed(helper, cwd=Path("/")) as box:
        manifest = await export(box, store, declared(source))
    entry = manifest.entries[0]
    assert entry.archive is None
    assert entry.status is (Status.FAILED if Path("/", source).exists() else Status.MISSING)


async def test_what_is_excluded_is_not_listed_as_left_out(helper: Path, work: Path, store: stores.Store) -> None:
    for name in ("keep", "leave.log", "sub/leave.log", "sub/keep"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_bytes(b"x")
    os.mkfifo(work / "fifo")
    async with boxed(helper) as box:
        manifest = await export(box, store, declared(work, exclude=("*.log",)))
    entry = manifest.entries[0]
    assert set(await members(store, entry)) == {".", "keep", "sub", "sub/keep"}
    assert entry.left == (artifacts.Left(str(work / "fifo"), "special"),)
    assert entry.left_count == 1


async def test_the_first_claim_of_a_place_counts(helper: Path, work: Path, store: stores.Store) -> None:
    (work / "a").write_bytes(b"a")
    (work / "b").write_bytes(b"b")
    wanted = [
        Artifact(str(work / "a"), "place"),
        Artifact(str(work / "b"), "place"),
        Artifact(str(work / "a"), "place"),
    ]
    async with boxed(helper) as box:
        manifest = await export(box, store, wanted)
    assert [entry.status for entry in manifest.entries] == [Status.OK, Status.SKIPPED, Status.SKIPPED]
    assert f"{work}/a comes first" in manifest.entries[1].reason


@pytest.mark.parametrize(
    ("limits", "text"),
    [(copies.Limits(150, 100, 60), "150 bytes"), (copies.Limits(10_000, 3, 60), "3 files and folders")],
)
async def test_nothing_is_kept_of_what_is_over_a_limit(
    helper: Path, work: Path, store: stores.Store, limits: copies.Limits, text: str
) -> None:
    for name in ("first", "second", "third"):
        (work / name).mkdir()
        (work / name / "file").write_bytes(bytes(100))
    (work / "last").mkdir()
    async with boxed(helper) as box:
        manifest = await export(
            box, store, declared(*(work / each for each in ("first", "second", "third", "last"))), limits=limits
        )
    assert [entry.status for entry in manifest.entries][:3] == [Status.OK, Status.SKIPPED, Status.SKIPPED]
    assert manifest.entries[3].status is Status.EMPTY
    assert text in manifest.entries[1].reason
    assert [key for key in await kept(store) if key.endswith(".tar")].__len__() == 2


# Into the other sandbox


async def test_what_was_taken_is_put_back_as_it_was(helper: Path, work: Path, store: stores.Store) -> None:
    """Everything a tree may have, over whatever is in the way."""
    folder = work / "folder"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "a").write_bytes(b"a" * 100_000)
    (folder / "deep").chmod(0o750)
    (folder / "shut").mkdir()
    (folder / "shut" / "secret").write_bytes(b"s")
    (folder / "shut" / "secret").chmod(0)
    (folder / "shut").chmod(0)
    (folder / "inside").symlink_to("deep/er/a")
    (folder / "loop").symlink_to("loop")
    (folder / "new\nline").write_bytes(b"n")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe")).write_bytes(b"u")
    with (folder / "sparse").open("wb") as file:
        file.truncate(3 * MIB)
        file.seek(2 * MIB)
        file.write(b"in the middle")
    (work / "file").write_bytes(b"one")
    (work / "empty").mkdir()
    os.utime(folder, (1_000_000_000, 1_000_000_000))
    before = tree(work)
    async with boxed(helper) as box:
        manifest = await export(box, store, declared(folder, work / "file", work / "empty"))
        (folder / "shut").chmod(0o700)
        (folder / "planted").write_bytes(b"by the image")
        (work / "file").unlink()
        (work / "file").mkdir()
        (work / "file" / "x").write_bytes(b"x")
        (work / "empty").rmdir()
        (work / "empty").write_bytes(b"a file is in the way")
        result = await restore(box, store, manifest)
        os.utime(work, (before["."][4], before["."][4]))
        assert tree(work) == before
    assert [op["op"] for op in result.prepared] == ["restore"] * 3
    assert result.upload_seconds is not None


async def test_a_folder_is_put_back_before_what_lies_in_it(helper: Path, work: Path, store: stores.Store) -> None:
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "c").write_bytes(b"c")
    (work / "a" / "d").write_bytes(b"d")
    wanted = [
        Artifact(str(work / "a" / "b"), "x"),
        Artifact(str(work / "a"), "y", exclude=("b",)),
        Artifact(str(work / "a" / "b"), "z", exclude=("c",)),
    ]
    before = tree(work / "a")
    async with boxed(helper) as box:
        manifest = await export(box, store, wanted)
        assert [entry.status for entry in manifest.entries] == [Status.OK, Status.OK, Status.EMPTY]
        await restore(box, store, manifest)
    assert {name: each[0] for name, each in tree(work / "a").items()} == {
        name: each[0] for name, each in before.items()
    }


# Logs


async def test_an_archive_of_logs_and_what_is_said_of_it(helper: Path, work: Path, store: stores.Store) -> None:
    (work / "log").write_bytes(b"the token is very-secret-value.")
    (work / "reward").write_bytes(b"very-secret-value")
    os.mkfifo(work / "fifo")
    async with boxed(helper) as box:
        said = await copies.pack_archive(
            box,
            store,
            PLACE,
            "files-0123.tar",
            [sandbox.Root(str(work), "logs")],
            max_bytes=MIB,
            max_entries=10,
            scrub=[b"very-secret-value"],
            scrub_except=[str(work / "reward")],
        )
    archive = artifacts.Archive(said["key"], said["bytes"], said["sha256"], said["entries"])
    found = await members(store, artifacts.Entry("logs", "logs", Status.OK, archive=archive))
    assert found == {"logs": None, "logs/log": b"the token is *****************.", "logs/reward": b"very-secret-value"}
    assert said["skipped"] == [{"path": str(work / "fifo"), "reason": "special"}]
    assert said["truncated"] is False
