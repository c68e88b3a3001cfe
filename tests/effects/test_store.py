"""The store against a real folder: atomicity, create-if-absent, bounds, local copies."""

import asyncio
import hashlib
import os
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.effects import backends, errors, local_copies, store

MIB = 1024 * 1024
DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "st ore"


@pytest.fixture
def kept(root: Path, tmp_path: Path) -> store.Store:
    return store.Store(root.as_uri(), cache=local_copies.LocalCopies(tmp_path / "cache"))


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def read(kept: store.Store, key: str) -> bytes:
    return b"".join([chunk async for chunk in await kept.open(key)])


async def listing(kept: store.Store, prefix: str) -> dict[str, int]:
    return {stored.key: stored.size async for stored in kept.list(prefix)}


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# Layout and keys


def test_layout() -> None:
    assert store.run_prefix("prod", "team-a", "0f1e", 2) == "prod/team-a/0f1e/2/"
    assert store.snapshot_key("prod", "team-a", DIGEST) == f"prod/team-a/tasks/{'ab' * 32}.tar"


@pytest.mark.parametrize("digest", ["ab" * 32, "sha256:../../x", "sha512:" + "ab" * 32, "sha256:" + "AB" * 32])
def test_snapshot_key_takes_a_sha256_only(digest: str) -> None:
    with pytest.raises(errors.StoreError, match="digest"):
        store.snapshot_key("prod", "team-a", digest)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "a/./b",
        "a\\b",
        "a\nb",
        "a\0b",
        "a#1",
        "\ud800",
        "x" * 241,
        "é" * 500,
    ],
)
async def test_a_bad_key_is_refused_by_every_method(kept: store.Store, root: Path, bad: str) -> None:
    for call in (
        kept.put_new(bad, b"x"),
        kept.put_stream(bad, stream(b"x")),
        kept.get(bad, limit=1),
        kept.open(bad),
        kept.exists(bad),
        kept.delete(f"a/b/c/{bad}/"),
    ):
        with pytest.raises(errors.StoreError):
            await call
    with pytest.raises(errors.StoreError):
        await listing(kept, f"{bad}/")
    assert files(root.parent) == []


def test_a_segment_cannot_widen_the_layout() -> None:
    for namespace in ("", "..", "a/b", "/"):
        with pytest.raises(errors.StoreError):
            store.run_prefix("prod", namespace, "uid", 1)
        with pytest.raises(errors.StoreError):
            store.snapshot_key("prod", namespace, DIGEST)


@given(st.text(max_size=20))
def test_an_accepted_key_stays_below_its_prefix(text: str) -> None:
    try:
        key = store.check_key(f"a/{text}")
    except errors.StoreError:
        return
    assert os.path.normpath(f"/root/{key}") == f"/root/{key}"
    assert key.startswith("a/")


async def test_unusual_names_come_back_as_they_were(kept: store.Store, root: Path) -> None:
    keys = [f"c/n/u/{name}" for name in ("a b", "ü", "100%25", "~x", "a:b", "a*?[1]", "#", "-", "'\"")]
    for key in keys:
        await kept.put_new(key, key.encode())
    assert sorted(await listing(kept, "c/n/u/")) == sorted(keys)
    assert files(root) == sorted(keys)
    for key in keys:
        assert await kept.get(key, limit=100) == key.encode()


# put_new


async def test_put_new_takes_bytes_a_file_or_a_stream(kept: store.Store, tmp_path: Path) -> None:
    (tmp_path / "row.json").write_bytes(b"{}")
    for name, data in {"bytes": b"{}", "file": tmp_path / "row.json", "stream": stream(b"{", b"}")}.items():
        assert await kept.put_new(f"c/n/u/1/{name}", data) is True
        assert await kept.get(f"c/n/u/1/{name}", limit=2) == b"{}"


async def test_put_new_never_replaces(kept: store.Store) -> None:
    assert await kept.put_new("c/n/u/1/row.json", b"first") is True
    assert await kept.put_new("c/n/u/1/row.json", b"first") is False
    with pytest.raises(store.AlreadyStored, match=r"row\.json") as caught:
        await kept.put_new("c/n/u/1/row.json", b"second")
    assert isinstance(caught.value, errors.StoreError)
    assert await kept.get("c/n/u/1/row.json", limit=10) == b"first"


async def test_put_new_has_one_winner(kept: store.Store) -> None:
    contents = [str(number).encode() for number in range(20)]
    results = await asyncio.gather(*(kept.put_new("c/n/u/1/row", each) for each in contents), return_exceptions=True)
    assert results.count(True) == 1
    assert sum(isinstance(each, store.AlreadyStored) for each in results) == 19
    assert await kept.get("c/n/u/1/row", limit=10) == contents[results.index(True)]


async def test_put_new_is_bounded(
    kept: store.Store, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "NEW_BYTES", 4)
    (tmp_path / "big").write_bytes(b"12345")
    for data in (b"12345", tmp_path / "big", stream(b"123", b"45")):
        with pytest.raises(store.TooLarge) as caught:
            await kept.put_new("c/n/u/1/row", data)
        assert caught.value.limit == 4
    assert files(root) == []


# put_stream


@pytest.mark.parametrize("size", [0, 1, 32_767, 32_768, 32_769, MIB - 1, MIB, MIB + 1, store.PART_BYTES, 20 * MIB + 1])
async def test_a_stream_comes_back_equal(kept: store.Store, size: int) -> None:
    content = os.urandom(size)
    chunks = [content[start : start + 300_000] for start in range(0, size, 300_000)]
    written = await kept.put_stream("c/n/u/1/big.bin", stream(*chunks))
    assert written == store.Written(size, f"sha256:{hashlib.sha256(content).hexdigest()}")
    assert await read(kept, "c/n/u/1/big.bin") == content
    assert (await kept.open("c/n/u/1/big.bin")).size == size


async def test_a_stream_is_not_seen_before_its_end(kept: store.Store, root: Path) -> None:
    go = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(20 * MIB)
        await go.wait()
        yield b"end"

    task = asyncio.create_task(kept.put_stream("c/n/u/1/slow", slow()))
    while not list(root.rglob("slow#*")):
        await asyncio.sleep(0)
    assert not await kept.exists("c/n/u/1/slow")
    assert await listing(kept, "c/") == {}
    go.set()
    assert (await task).size == 20 * MIB + 3
    assert await kept.exists("c/n/u/1/slow")


async def test_a_failing_stream_passes_its_error_and_leaves_nothing(kept: store.Store, root: Path) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield bytes(20 * MIB)
        raise FileNotFoundError("the source's own error")

    with pytest.raises(FileNotFoundError, match="own error"):
        await kept.put_stream("c/n/u/1/failing", failing())
    await gone(root)


async def test_a_cancelled_stream_leaves_nothing(kept: store.Store, root: Path) -> None:
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(20 * MIB)
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(kept.put_stream("c/n/u/1/endless", endless()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(root)


async def test_a_stream_has_a_limit(kept: store.Store, root: Path) -> None:
    with pytest.raises(store.TooLarge):
        await kept.put_stream("c/n/u/1/big", stream(bytes(MIB), bytes(MIB)), limit=2 * MIB - 1)
    assert (await kept.put_stream("c/n/u/1/fits", stream(bytes(MIB), bytes(MIB)), limit=2 * MIB)).size == 2 * MIB
    assert files(root) == ["c/n/u/1/fits"]


async def gone(root: Path) -> None:
    """The backend removes an unfinished file a moment after its writer is dropped."""
    async with asyncio.timeout(60):
        while files(root):
            await asyncio.sleep(0.01)


@pytest.mark.bulk
async def test_memory_stays_flat(kept: store.Store, tmp_path: Path) -> None:
    size = (1024 if os.environ.get("TASKFOLD_SOAK") else 256) * MIB
    block = os.urandom(MIB)

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(size // MIB):
            yield block

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    written = await kept.put_stream("c/n/u/1/bulk", blocks())
    async with kept.local_copy("c/n/u/1/bulk", written.digest) as path:
        assert path.stat().st_size == size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


# get, open, exists, list, delete


async def test_get_is_bounded(kept: store.Store) -> None:
    await kept.put_new("c/n/u/1/row", b"12345")
    assert await kept.get("c/n/u/1/row", limit=5) == b"12345"
    with pytest.raises(store.TooLarge) as caught:
        await kept.get("c/n/u/1/row", limit=4)
    assert caught.value.limit == 4


async def test_what_is_not_there(kept: store.Store) -> None:
    assert not await kept.exists("c/n/u/1/none")
    for call in (kept.get("c/n/u/1/none", limit=1), kept.open("c/n/u/1/none")):
        with pytest.raises(store.NotStored, match="c/n/u/1/none"):
            await call
    assert await listing(kept, "c/n/") == {}
    assert await kept.delete("c/n/u/") == 0


async def test_a_replaced_object_is_not_read_as_a_mixture(kept: store.Store) -> None:
    await kept.put_stream("c/n/u/1/a", stream(bytes(store.PART_BYTES + 1)))
    reader = await kept.open("c/n/u/1/a")
    await kept.put_stream("c/n/u/1/a", stream(b"1" * (store.PART_BYTES + 1)))
    with pytest.raises(errors.StoreError):
        _ = [chunk async for chunk in reader]


async def test_list_goes_by_whole_segments(kept: store.Store) -> None:
    for key in ("c/n/u/1/a", "c/n/u/10/b", "c/n/u2/1/c"):
        await kept.put_new(key, b"xy")
    assert await listing(kept, "c/n/u/1/") == {"c/n/u/1/a": 2}
    assert await listing(kept, "c/n/u/") == {"c/n/u/1/a": 2, "c/n/u/10/b": 2}
    with pytest.raises(errors.StoreError, match="end with /"):
        await listing(kept, "c/n/u")


async def test_delete_is_bounded_and_says_when_nothing_is_left(kept: store.Store, root: Path) -> None:
    for number in range(5):
        await kept.put_new(f"c/n/u/1/{number}", b"")
    await kept.put_new("c/n/u2/1/other", b"")
    (root / "c/n/u/1/killed#1").write_bytes(b"left by a killed process")
    assert await kept.delete("c/n/u/", limit=3) == 3
    assert await kept.delete("c/n/u/", limit=3) == 2
    assert files(root) == ["c/n/u2/1/other"]
    assert not (root / "c/n/u").exists()


@pytest.mark.parametrize("prefix", ["c/", "c/n/", "", "/", "c/n//"])
async def test_delete_refuses_what_is_wider_than_a_run(kept: store.Store, root: Path, prefix: str) -> None:
    await kept.put_new("c/n/u/1/row", b"")
    with pytest.raises(errors.StoreError):
        await kept.delete(prefix)
    assert files(root) == ["c/n/u/1/row"]


async def test_two_delete_the_same(kept: store.Store, root: Path) -> None:
    for number in range(50):
        await kept.put_new(f"c/n/u/1/{number}", b"")
    await asyncio.gather(kept.delete("c/n/u/"), kept.delete("c/n/u/"))
    assert files(root) == []


# Settings and check


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/store",
        "file://relative",
        "http://h/x",
        "ftp://h/x",
        "s3://",
        "s3://key:secret@bucket",
        "az://container/x",
    ],
)
def test_a_bad_url_is_refused_with_a_remedy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.StoreError) as caught:
        store.Store(url)
    assert caught.value.remedy
    assert "secret" not in str(caught.value)
    assert "Debug source" not in str(caught.value)


async def test_check_passes_and_leaves_nothing(kept: store.Store, root: Path) -> None:
    await kept.check()
    await kept.check()
    assert files(root) == []


async def test_check_passes_in_memory() -> None:
    await store.Store("memory:///").check()


async def test_check_says_that_the_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taskfold-check").write_text("a file where the probe's folder would be: fails for root as well")
    with pytest.raises(errors.StoreError) as caught:
        await store.Store(tmp_path.as_uri()).check()
    assert str(tmp_path) in str(caught.value)
    assert "writable" in caught.value.remedy


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.StoreError, match="mounted, writable"):
        store.Store((tmp_path / "file" / "store").as_uri())


async def test_check_notices_a_store_that_replaces(kept: store.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store.obstore.put_async

    async def careless(backend: object, key: str, data: bytes, **options: object) -> object:
        return await real(backend, key, data, mode="overwrite")  # type: ignore[arg-type]

    monkeypatch.setattr(store.obstore, "put_async", careless)
    with pytest.raises(errors.StoreError, match="replaced"):
        await kept.check()


async def test_a_store_that_does_not_answer_has_a_limit(kept: store.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store.obstore, "head_async", silent)
    monkeypatch.setattr(store, "CALL_SECONDS", 0.05)
    with pytest.raises(errors.StoreError, match="no answer"):
        await kept.exists("c/n/u/1/row")


# Local copies


@pytest.fixture
def counted(kept: store.Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that were opened for download."""
    opened: list[str] = []
    real = kept.open

    async def counting(key: str) -> store.Reader:
        opened.append(key)
        return await real(key)

    monkeypatch.setattr(kept, "open", counting)
    return opened


async def snapshots(kept: store.Store, count: int, size: int = 1000) -> list[tuple[str, str]]:
    """(key, digest of the bytes) of `count` different objects."""
    made = []
    for number in range(count):
        key = f"c/n/tasks/{number}.tar"
        made.append((key, (await kept.put_stream(key, stream(bytes([number]) * size))).digest))
    return made


async def test_many_callers_cause_one_download(kept: store.Store, counted: list[str]) -> None:
    [(key, digest)] = await snapshots(kept, 1, size=3 * MIB)

    async def use() -> bytes:
        async with kept.local_copy(key, digest) as path:
            return path.read_bytes()

    results = await asyncio.gather(*(use() for _ in range(20)))
    assert set(results) == {bytes(3 * MIB)}
    assert await use() == bytes(3 * MIB)
    assert counted == [key]


async def test_a_copy_while_the_same_object_is_put_again(kept: store.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    [(key, digest)] = await snapshots(kept, 1, size=2 * store.PART_BYTES)
    real = kept.get_range

    async def put_again_first(*arguments: object, **options: object) -> bytes:
        await snapshots(kept, 1, size=2 * store.PART_BYTES)
        return await real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kept, "get_range", put_again_first)
    async with kept.local_copy(key, digest) as path:
        assert path.stat().st_size == 2 * store.PART_BYTES


async def test_a_copy_with_another_digest_is_refused(kept: store.Store, tmp_path: Path) -> None:
    [(key, _)] = await snapshots(kept, 1)
    with pytest.raises(errors.StoreError, match="digest"):
        async with kept.local_copy(key, DIGEST):
            pytest.fail("handed out")
    assert files(tmp_path / "cache") == []


async def test_a_copy_of_nothing(kept: store.Store, tmp_path: Path) -> None:
    with pytest.raises(store.NotStored):
        async with kept.local_copy("c/n/tasks/none.tar", DIGEST):
            pytest.fail("handed out")
    assert files(tmp_path / "cache") == []


async def test_a_copy_has_a_limit(kept: store.Store, tmp_path: Path) -> None:
    [(key, digest)] = await snapshots(kept, 1, size=1000)
    with pytest.raises(store.TooLarge):
        async with kept.local_copy(key, digest, limit=999):
            pytest.fail("handed out")
    assert files(tmp_path / "cache") == []


async def test_the_least_recently_used_copy_goes_first(root: Path, tmp_path: Path) -> None:
    kept = store.Store(root.as_uri(), cache=local_copies.LocalCopies(tmp_path / "cache", limit=2500))
    first, second, third = await snapshots(kept, 3)
    for key, digest in (first, second, first, third):
        async with kept.local_copy(key, digest):
            pass
    assert files(tmp_path / "cache") == sorted(f"{digest[7:]}.tar" for _, digest in (first, third))


async def test_a_copy_in_use_stays(root: Path, tmp_path: Path) -> None:
    kept = store.Store(root.as_uri(), cache=local_copies.LocalCopies(tmp_path / "cache", limit=1500))
    (key, digest), *others = await snapshots(kept, 3)
    async with kept.local_copy(key, digest) as path:
        for other_key, other_digest in others:
            async with kept.local_copy(other_key, other_digest) as other:
                assert other.stat().st_size == 1000
            assert not other.exists()
        assert path.read_bytes() == bytes(1000)
    assert files(tmp_path / "cache") == [f"{digest[7:]}.tar"]


async def test_a_cancelled_download_leaves_nothing_and_harms_nobody(
    kept: store.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(key, digest)] = await snapshots(kept, 1, size=3 * MIB)
    real, reached, go = kept.get_range, asyncio.Event(), asyncio.Event()

    async def held(*arguments: object, **options: object) -> bytes:
        reached.set()
        await go.wait()
        return await real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kept, "get_range", held)

    async def use() -> int:
        async with kept.local_copy(key, digest) as path:
            return path.stat().st_size

    first, second = asyncio.create_task(use()), asyncio.create_task(use())
    await reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go.set()
    assert await second == 3 * MIB
    assert files(tmp_path / "cache") == [f"{digest[7:]}.tar"]


async def test_copies_of_an_earlier_process_are_proven_again(root: Path, tmp_path: Path) -> None:
    before = store.Store(root.as_uri(), cache=local_copies.LocalCopies(tmp_path / "cache"))
    good, damaged = await snapshots(before, 2)
    for key, digest in (good, damaged):
        async with before.local_copy(key, digest) as path:
            pass
    path.write_bytes(b"x" * 1000)
    (tmp_path / "cache" / "unfinished.part").write_bytes(b"")

    after = store.Store(root.as_uri(), cache=local_copies.LocalCopies(tmp_path / "cache"))
    for number, (key, digest) in enumerate((good, damaged)):
        async with after.local_copy(key, digest) as path:
            assert path.read_bytes() == bytes([number]) * 1000
    assert len(files(tmp_path / "cache")) == 2


async def test_a_damaged_copy_that_cannot_be_fetched_again_is_not_handed_out(root: Path, tmp_path: Path) -> None:
    before = store.Store(root.as_uri(), cache=local_copies.LocalCopies(tmp_path / "cache"))
    [(key, digest)] = await snapshots(before, 1)
    async with before.local_copy(key, digest) as path:
        pass
    path.write_bytes(b"x" * 1000)
    (root / key).unlink()
    after = store.Store(root.as_uri(), cache=local_copies.LocalCopies(tmp_path / "cache"))
    for _ in range(2):
        with pytest.raises(store.NotStored):
            async with after.local_copy(key, digest):
                pytest.fail("handed out")


async def test_a_copy_that_was_swept_away_is_fetched_again(kept: store.Store, counted: list[str]) -> None:
    [(key, digest)] = await snapshots(kept, 1)
    async with kept.local_copy(key, digest) as path:
        pass
    path.unlink()
    async with kept.local_copy(key, digest) as path:
        assert path.read_bytes() == bytes(1000)
    assert counted == [key, key]


async def test_the_default_cache_is_a_private_folder(root: Path) -> None:
    kept = store.Store(root.as_uri())
    [(key, digest)] = await snapshots(kept, 1)
    async with kept.local_copy(key, digest) as path:
        assert path.parent.stat().st_mode & 0o777 == 0o700


# What does not fit a backend


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://b", {"nonsense": "x"}),
        ("s3://b", {"allow_http": "perhaps"}),
        ("s3://b", {"timeout": "soon"}),
        ("s3://b", {"server_side_encryption": "rot13"}),
        ("file:///tmp/nowhere-at-all", {"region": "eu"}),
    ],
)
def test_options_that_do_not_fit_are_an_error_and_not_the_end_of_the_process(url: str, options: dict[str, str]) -> None:
    with pytest.raises(errors.StoreError) as caught:
        store.Store(url, options=options)
    assert "Debug source" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(backends.CLIENT_OPTIONS - {"root_certificate", "proxy_ca_certificate"}))
def test_every_option_of_the_http_client_is_known(name: str) -> None:
    values = {"timeout": "5s", "connect_timeout": "5s", "read_timeout": "5s", "pool_idle_timeout": "5s"}
    values |= {"pool_max_idle_per_host": "3", "proxy_url": "http://proxy.example:3128", "proxy_excludes": "localhost"}
    values |= {"user_agent": "test"}
    backends.make("s3://b", {name: values.get(name, "true")})


async def test_unfinished_files_go_by_their_age(kept: store.Store, root: Path) -> None:
    await kept.put_new("c/n/u/1/row.json", b"{}")
    for name, age in {"old.tar#1": 100, "new.tar#2": 0}.items():
        (root / "c/n/u/1" / name).write_bytes(b"x")
        os.utime(root / "c/n/u/1" / name, (time.time() - age,) * 2)
    assert await kept.sweep_unfinished("c/", time.time() - 50) == 1
    assert files(root) == ["c/n/u/1/new.tar#2", "c/n/u/1/row.json"]
    with pytest.raises(errors.StoreError):
        await kept.sweep_unfinished("c", 0.0)


async def test_a_listing_says_when(kept: store.Store, root: Path) -> None:
    await kept.put_new("c/n/u/1/row.json", b"{}")
    os.utime(root / "c/n/u/1/row.json", (1_000_000_000,) * 2)
    assert [each.modified async for each in kept.list("c/n/")] == [1_000_000_000]
