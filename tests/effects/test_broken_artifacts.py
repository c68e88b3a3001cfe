"""Copies of artifacts that break, anywhere: what a manifest names is whole, and what is not whole is named nowhere."""

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effects import fake_exec as fake
from tests.effects.exporting import PLACE, declared, export, kept, members, restore
from tests.effects.fake_exec import PIN, Cutter, FakeCluster, Remote, serving
from tests.effects.local_box import boxed
from tests.world import sandbox as boxes

from taskfold.effects import artifacts as copies
from taskfold.effects import errors, places, sandbox, sinks
from taskfold.effects import store as stores
from taskfold.protocol import artifacts
from taskfold.protocol.artifacts import Status

MIB = 1 << 20
LIMIT = 60.0
CONTENT = {"/work/a/one": b"1" * 5000, "/work/a/two": b"2" * 70_000, "/work/b": b"3" * 300_000}
WANTED = declared("/work/a", "/work/b", "/work/none")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture
def store(tmp_path: Path) -> stores.Store:
    return stores.Store((tmp_path / "store").as_uri())


def modelled(content: dict[str, bytes] = CONTENT) -> boxes.Container:
    box = boxes.Container()
    for path, data in content.items():
        box.files.write(path, data)
    return box


@contextlib.asynccontextmanager
async def reached(
    box: boxes.Container, *, script: fake.Script | None = None, through: Cutter | None = None, **options: Any
) -> AsyncIterator[sandbox.Sandbox]:
    """A modelled container, over a wire."""
    cluster = FakeCluster(script or fake.modelled(box))
    async with asyncio.timeout(LIMIT), serving(cluster, through=through, **options) as (exec_, _):
        yield sandbox.Sandbox(exec_, PIN)


async def proven(store: stores.Store, manifest: artifacts.Manifest) -> None:
    """It names what the container has, all of it, and nothing else is kept."""
    first, second, third = manifest.entries
    assert await members(store, first) == {".": None, "one": CONTENT["/work/a/one"], "two": CONTENT["/work/a/two"]}
    assert await members(store, second) == {"b": CONTENT["/work/b"]}
    assert third.status is Status.MISSING
    named = {entry.archive.key for entry in manifest.entries if entry.archive is not None}
    assert {key for key in await kept(store) if key.endswith(".tar")} == named


async def broken(store: stores.Store, box: sandbox.Sandbox) -> bool:
    """Try; whether it was said that it is not done. What is in the store then is whole."""
    try:
        await proven(store, await export(box, store, WANTED))
    except errors.EffectError:
        assert "artifacts.json" not in await kept(store)
        return True
    return False


# -- the stream breaks -------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(at=st.integers(0, 400_000), way=st.sampled_from(["to_client", "to_server"]))
def test_a_wire_that_breaks_at_any_byte(tmp_path_factory: pytest.TempPathFactory, at: int, way: str) -> None:
    async def main() -> None:
        store = stores.Store(tmp_path_factory.mktemp("store").as_uri())
        cutter, box = Cutter(**{way: at}), modelled()
        with pytest.MonkeyPatch.context() as once:
            once.setattr(copies, "PAUSES", ())  # the wire stays broken
            async with reached(box, through=cutter) as far:
                failed = await broken(store, far)
        assert cutter.broke or not failed
        async with reached(box) as far:
            await proven(store, await export(far, store, WANTED))

    asyncio.run(main())


@dataclass
class Cutting:
    """Ends each command after so many of its messages, of which a frame has one; the first `times` commands, or all."""

    script: fake.Script
    after: int
    how: str
    times: int = 1 << 30
    cut: int = 0

    async def __call__(self, remote: Remote) -> None:
        if self.cut >= self.times:
            return await self.script(remote)
        left, out = self.after, remote.out

        async def counted(data: bytes, channel: int = 1) -> None:
            nonlocal left
            if channel == 1 and left == 0:
                left = -1
                self.cut += 1
                await (remote.end(0) if self.how == "success" else _dropped(remote))
            if left < 0:
                raise ConnectionResetError
            left -= channel == 1
            await out(data, channel)

        remote.out = counted  # type: ignore[method-assign]
        return await self.script(remote)


async def _dropped(remote: Remote) -> None:
    remote.drop()


@pytest.mark.parametrize("how", ["drop", "success"])
async def test_a_stream_cut_between_any_two_messages(tmp_path: Path, how: str) -> None:
    """A connection that is lost, and one whose end is reported as a success although half of it is missing."""
    box, whole, after = modelled(), False, 0
    while not whole:
        store = stores.Store((tmp_path / f"store-{after}").as_uri())
        cutting = Cutting(fake.modelled(box), after, how, times=1)
        async with reached(box, script=cutting) as far:
            await proven(store, await export(far, store, WANTED))  # the second try had the whole
        whole, after = cutting.cut == 0, after + 1
    assert after > 6, "look, and two archives, each with its chunks and its trailer"


async def test_a_stream_that_breaks_each_time_ends_in_an_error(store: stores.Store) -> None:
    box = modelled()
    async with reached(box, script=Cutting(fake.modelled(box), 3, "drop")) as far:
        with pytest.raises(errors.TransferError, match="not copied in 4 tries"):
            await export(far, store, WANTED)
    assert [key for key in await kept(store) if key.startswith(("artifacts/1", "artifacts.json"))] == []


async def test_another_sandbox_of_that_name_is_not_packed(store: stores.Store) -> None:
    """The connection is lost because the pod was replaced: the first try is on what was observed, no later one."""
    box = modelled()
    cluster = FakeCluster(Cutting(fake.modelled(box), 0, "drop", times=1), pod=fake.pod(uid="another"))
    async with asyncio.timeout(LIMIT), serving(cluster) as (exec_, _):
        with pytest.raises(errors.PodReplaced):
            await export(sandbox.Sandbox(exec_, PIN), store, WANTED)


async def test_the_time_for_all_artifacts_has_an_end(store: stores.Store) -> None:
    async with reached(modelled()) as far:
        with pytest.raises(errors.TransferError, match="limit for all artifacts"):
            await export(far, store, WANTED, limits=copies.Limits(1 << 30, 1000, 0.0))


# -- the store breaks --------------------------------------------------------------------------------------------------


async def test_a_store_that_fails_in_the_middle(store: stores.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put, box, calls = stores.Store.put_stream, modelled(), 0

    async def failing(self: stores.Store, key: str, chunks: AsyncIterable[bytes], **options: Any) -> stores.Written:
        nonlocal calls
        calls += 1

        async def some() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                yield chunk[: len(chunk) // 2]
                raise errors.StoreError("no answer", where=self.where(key))

        return await put(self, key, some() if calls == 2 else chunks, **options)

    monkeypatch.setattr(stores.Store, "put_stream", failing)
    async with reached(box) as far:
        with pytest.raises(errors.StoreError, match=r"1-.*no answer"):
            await export(far, store, WANTED)
        assert {Path(key).suffix for key in await kept(store)} == {".json", ".tar"}
        await proven(store, await export(far, store, WANTED))
    assert calls == 3, "the first artifact was settled"


async def test_a_full_disk_leaves_no_half_of_an_archive(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        store, box = stores.Store(small.as_uri()), modelled({**CONTENT, "/work/b": bytes(4 * MIB)})
        async with reached(box) as far:
            with pytest.raises(errors.StoreError, match=r"(?i)space"):
                await export(far, store, WANTED)
        assert [key for key in await kept(store) if key.startswith(("artifacts/1", "artifacts.json"))] == []
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.fixture
async def taken(store: stores.Store) -> artifacts.Manifest:
    async with reached(modelled()) as far:
        return await export(far, store, WANTED)


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2000] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-512])


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(512))


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (_flipped, errors.DigestMismatch),
        (_cut, errors.DigestMismatch),
        (_longer, errors.DigestMismatch),
        (Path.unlink, stores.NotStored),
    ],
    ids=["a bit is wrong", "the end is missing", "something follows", "it is gone"],
)
async def test_a_damaged_archive_is_never_delivered(
    tmp_path: Path,
    store: stores.Store,
    taken: artifacts.Manifest,
    harm: Callable[[Path], None],
    kind: type[errors.EffectError],
) -> None:
    key = taken.delivered[1].archive
    assert key is not None
    harm(tmp_path / "store" / PLACE / key.key)
    async with reached(boxes.Container()) as far:
        with pytest.raises(kind, match=key.key):
            await restore(far, store, taken)


async def test_a_store_that_fails_while_an_archive_is_delivered(
    store: stores.Store, taken: artifacts.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = stores.Store.get_range, 0

    async def failing(self: stores.Store, key: str, start: int, end: int, **options: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise errors.StoreError("no answer", where=self.where(key))
        return await read(self, key, start, end, **options)

    monkeypatch.setattr(stores.Store, "get_range", failing)
    box = boxes.Container()
    async with reached(box) as far:
        with pytest.raises(errors.StoreError, match="no answer"):
            await restore(far, store, taken)
        await restore(far, store, taken)
    assert box.files.read("/work/b") == CONTENT["/work/b"]


@settings(max_examples=30)
@given(at=st.integers(0, 400_000))
def test_a_wire_that_breaks_while_archives_are_delivered(tmp_path_factory: pytest.TempPathFactory, at: int) -> None:
    async def main() -> None:
        store = stores.Store(tmp_path_factory.mktemp("store").as_uri())
        async with reached(modelled()) as far:
            manifest = await export(far, store, WANTED)
        cutter, box = Cutter(to_server=at), boxes.Container()
        async with reached(box, through=cutter) as far:
            with contextlib.suppress(errors.EffectError):
                await restore(far, store, manifest)
                assert box.files.read("/work/b") == CONTENT["/work/b"]
        async with reached(box) as far:
            for _ in range(50):  # the helper of the lost connection may still hold its claim
                with contextlib.suppress(errors.PhaseFailed):
                    await restore(far, store, manifest)
                    break
            else:
                raise AssertionError("never let go")
        assert {path: box.files.read(path) for path in CONTENT} == CONTENT

    asyncio.run(main())


# -- several at it -----------------------------------------------------------------------------------------------------


async def test_two_at_once_agree(store: stores.Store) -> None:
    box = modelled()
    async with reached(box) as one, reached(box) as other:
        first, second = await asyncio.gather(export(one, store, WANTED), export(other, store, WANTED))
    assert first == second
    await proven(store, first)


async def test_who_comes_later_goes_on(store: stores.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first artifact is settled, the second under way when the first operator ends; it is not copied again."""
    put, box, second = stores.Store.put_stream, modelled(), asyncio.Event()
    keys: list[str] = []

    async def held(self: stores.Store, key: str, chunks: AsyncIterable[bytes], **options: Any) -> stores.Written:
        keys.append(key)
        if len(keys) == 2:
            second.set()
            await asyncio.Event().wait()
        return await put(self, key, chunks, **options)

    monkeypatch.setattr(stores.Store, "put_stream", held)
    monkeypatch.setattr(sinks, "ABORT_SECONDS", 0.0)
    async with reached(box) as far:
        ended = asyncio.create_task(export(far, store, WANTED))
        await second.wait()
        ended.cancel()
        await asyncio.wait([ended])
    box.files.write("/work/a/one", b"changed since")
    async with reached(box) as far:
        manifest = await export(far, store, WANTED)
        await proven(store, manifest)
        assert len(keys) == 3
        box.files.remove("/work")
        assert await export(far, store, WANTED) == manifest
    assert len(keys) == 3


async def test_what_others_left_is_swept(store: stores.Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"half of an operator's work"

    await store.put_stream(f"{PLACE}artifacts/0-dead-0.tar", chunks())
    async with reached(modelled()) as far:
        await proven(store, await export(far, store, WANTED))


@pytest.mark.parametrize(("caps", "most"), [((8, 2), 2), ((3, 8), 3)], ids=["of a node", "of all"])
async def test_copies_keep_to_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caps: tuple[int, int], most: int
) -> None:
    """Eight exports at once, from one node: so many copy, and the others wait without a stream to the store."""
    put, busy, seen, full = stores.Store.put_stream, 0, 0, asyncio.Event()

    async def counted(self: stores.Store, key: str, chunks: AsyncIterable[bytes], **options: Any) -> stores.Written:
        nonlocal busy, seen
        busy += 1
        seen = max(seen, busy)
        if busy == most:
            full.set()
        await full.wait()
        try:
            return await put(self, key, chunks, **options)
        finally:
            busy -= 1

    monkeypatch.setattr(stores.Store, "put_stream", counted)
    limits = places.Caps(copies=caps[0], copies_per_node=caps[1])
    made = [stores.Store((tmp_path / f"store-{number}").as_uri()) for number in range(8)]
    async with reached(modelled(), caps=limits) as far:
        found = await asyncio.gather(*(export(far, store, WANTED) for store in made))
    for store, manifest in zip(made, found, strict=True):
        await proven(store, manifest)
    assert seen == most


# -- files that change -------------------------------------------------------------------------------------------------


class Growing:
    """A file that becomes longer all the time."""

    def __init__(self, path: Path) -> None:
        self._path, self._over = path, threading.Event()
        path.write_bytes(bytes(8 * MIB))
        self._thread = threading.Thread(target=self._grow)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _grow(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            while not self._over.is_set():
                file.write(b"x")


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "each time"])
async def test_a_file_that_changes_is_packed_again(
    helper: Path, tmp_path: Path, store: stores.Store, monkeypatch: pytest.MonkeyPatch, for_ever: bool
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    growing, pack, packs = Growing(work / "log"), sandbox.Sandbox.pack, 0

    async def counted(self: sandbox.Sandbox, *values: Any, **options: Any) -> sandbox.PackResult:
        nonlocal packs
        found = await pack(self, *values, **options)
        packs += options["max_entries"] > 0
        if packs and not for_ever:
            growing.end()
        return found

    monkeypatch.setattr(sandbox.Sandbox, "pack", counted)
    try:
        async with boxed(helper) as box:
            manifest = await export(box, store, declared(work))
    finally:
        growing.end()
    entry = manifest.entries[0]
    assert (entry.status, packs) == (Status.OK, 3 if for_ever else 2)
    assert entry.changed == ((str(work / "log"),) if for_ever else ())
    assert entry.archive is not None
    assert {key for key in await kept(store) if key.endswith(".tar")} == {entry.archive.key}
    content = await members(store, entry)
    assert len(content["log"] or b"") == entry.size


async def test_what_is_over_a_limit_is_not_packed_again_because_it_changed(
    helper: Path, tmp_path: Path, store: stores.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "large").write_bytes(bytes(20 * MIB))
    growing, put, puts = Growing(work / "log"), stores.Store.put_stream, 0

    async def counted(self: stores.Store, key: str, chunks: AsyncIterable[bytes], **options: Any) -> stores.Written:
        nonlocal puts
        puts += 1
        return await put(self, key, chunks, **options)

    monkeypatch.setattr(stores.Store, "put_stream", counted)
    try:
        async with boxed(helper) as box:
            found = await export(box, store, declared(work), limits=copies.Limits(16 * MIB, 100, 60))
    finally:
        growing.end()
    assert ([entry.status for entry in found.entries], puts) == ([Status.SKIPPED], 1)


async def test_names_have_a_bound_in_the_manifest(helper: Path, tmp_path: Path, store: stores.Store) -> None:
    """A hundred names of a kilobyte would make a manifest of many artifacts too large to be kept."""
    work = tmp_path / "work"
    folder = work / ("\n" * 250) / ("\n" * 250)
    folder.mkdir(parents=True)
    for number in range(90):
        os.mkfifo(folder / f"{number:03}{'x' * 240}")
    async with boxed(helper) as box:
        entry = (await export(box, store, declared(work))).entries[0]
    assert entry.left_count == 90
    assert 0 < len(entry.left) < 90


async def test_a_large_copy_tells_how_far_it_is(
    helper: Path, tmp_path: Path, store: stores.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "TOLD_BYTES", MIB)
    monkeypatch.setattr(copies, "TOLD_SECONDS", 0.0)
    (tmp_path / "file").write_bytes(bytes(4 * MIB))
    told: list[copies.Progress] = []
    async with boxed(helper) as box:
        await export(box, store, declared(tmp_path / "file"), told=told.append)
    sizes = [each.size for each in told]
    assert sizes == sorted(sizes)
    assert MIB < sizes[0] < sizes[-1] <= 4 * MIB + 10_240
    assert {each.source for each in told} == {str(tmp_path / "file")}
