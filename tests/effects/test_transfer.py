"""Payloads into sinks: equal on both sides, safe whatever the archive holds, complete or an error."""

import asyncio
import gc
import hashlib
import io
import os
import random
import tarfile
from collections.abc import AsyncIterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfold.contract import errors as contract_errors
from taskfold.contract import folder as folders
from taskfold.effects import archive, errors, frames, sinks, transfer

BIG = 1 << 40


async def build(payload: transfer.Payload) -> tuple[bytes, frames.Trailer]:
    """The framed archive, as the wire sees it."""
    wire = bytearray()
    async with transfer.building(payload) as outgoing:
        async for block in outgoing.blocks():
            assert len(block) <= frames.BLOCK_BYTES
            wire += block[1:]
        return bytes(wire) + outgoing.trailer.encode(), outgoing.trailer


async def tar_of(payload: transfer.Payload) -> bytes:
    wire, _ = await build(payload)
    return b"".join(bytes(part) for part in frames.ArchiveDecoder().feed(wire))


async def deliver(wire: bytes, sink: sinks.Sink, piece: int = 32 * 1024) -> None:
    decoder = frames.ArchiveDecoder()
    try:
        for start in range(0, len(wire), piece):
            for part in decoder.feed(wire[start : start + piece]):
                await sink.write(part)
        await sink.finish(decoder.finish())
    except BaseException:
        await sink.abort()
        raise


def trailer_of(tar: bytes, entries: int) -> frames.Trailer:
    return frames.Trailer(entries, len(tar), hashlib.sha256(tar).hexdigest())


def framed(tar: bytes, entries: int) -> bytes:
    chunks = [tar[start : start + 60_000] for start in range(0, len(tar), 60_000)]
    return b"".join(frames.header(len(each)) + each for each in chunks) + trailer_of(tar, entries).encode()


def handmade(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return framed(out.getvalue(), len(members))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def tree(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o7777)
    return found


def to(path: Path, **more: int) -> sinks.ToDirectory:
    return sinks.ToDirectory(path, **({"max_bytes": BIG, "max_entries": 10**6} | more))


sizes = [0, 1, 511, 512, 513, 32767, 32768, 32769, frames.BLOCK_BYTES, 2**20 - 1, 2**20, 2**20 + 1]


async def test_a_folder_is_equal_on_the_other_side(tmp_path: Path) -> None:
    rng = random.Random(1)
    files = {f"d{size % 7}/{size}.bin": (rng.randbytes(size), size % 2 == 1) for size in sizes}
    folder = folders.MemoryFolder(files)
    wire, trailer = await build(transfer.from_folder(folder, under="tests"))
    assert trailer.entries == len(files)
    await deliver(wire, to(tmp_path / "out"), piece=40_000)
    for name, (content, executable) in files.items():
        path = tmp_path / "out" / "tests" / name
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == (0o755 if executable else 0o644)


async def test_a_directory_keeps_links_modes_and_odd_names(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "sub" / "deep").mkdir(parents=True)
    (source / "empty").mkdir(mode=0o750)
    (source / "sub" / "x").write_bytes(b"x")
    (source / "sub" / "x").chmod(0o711)
    (source / "sub" / "up").symlink_to("../empty")
    (source / ("n" * 200)).write_bytes(b"long")
    (source / "ünï\ncode").write_bytes(b"u")
    (source / os.fsdecode(b"raw-\xff")).write_bytes(b"raw")
    wire, trailer = await build(transfer.from_directory(source))
    await deliver(wire, to(tmp_path / "out"))
    assert tree(tmp_path / "out") == tree(source)
    assert trailer.entries == len(tree(source))


async def test_a_file_and_an_archive_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"content")
    wire, _ = await build(transfer.from_file(tmp_path / "x", "y/z", mode=0o600))
    await deliver(wire, sinks.ToFile(tmp_path / "kept.tar"))
    again, trailer = await build(transfer.from_archive(tmp_path / "kept.tar"))
    assert again == wire
    assert trailer.entries == 1
    await deliver(again, to(tmp_path / "out"))
    assert (tmp_path / "out" / "y" / "z").read_bytes() == b"content"


async def test_what_we_write_is_what_others_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ("ü" * 90)).write_bytes(b"x" * 700)
    data = await tar_of(transfer.from_directory(tmp_path / "in"))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [(each.name, each.size) for each in tar] == [("ü" * 90, 700)]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
async def test_every_format_is_read(tmp_path: Path, form: int) -> None:
    name = "a" * 90 + "/" + "b" * 90 if form != tarfile.USTAR_FORMAT else "a/b"
    wire = handmade((member(name), b"1"), (member("link", tarfile.SYMTYPE, name), b""), form=form)
    await deliver(wire, to(tmp_path))
    assert (tmp_path / "link").read_bytes() == b"1"


@settings(max_examples=30, deadline=None)
@given(
    files=st.dictionaries(
        st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
            lambda name: name not in {".", ".."} and len(name.encode()) < 250
        ),
        st.binary(max_size=2000),
        max_size=6,
    ),
    piece=st.integers(1, 3000),
)
def test_any_files_come_back(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], piece: int) -> None:
    out = tmp_path_factory.mktemp("out")

    async def there_and_back() -> None:
        folder = folders.MemoryFolder({name: (content, False) for name, content in files.items()})
        wire, _ = await build(transfer.from_folder(folder))
        await deliver(wire, to(out), piece)

    asyncio.run(there_and_back())
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("/etc/x", tarfile.REGTYPE, ""),
        ("a/../../x", tarfile.REGTYPE, ""),
        ("..", tarfile.DIRTYPE, ""),
        ("a", tarfile.LNKTYPE, "../x"),
        ("a", tarfile.LNKTYPE, "not/brought"),
        (".", tarfile.REGTYPE, ""),
    ],
)
async def test_an_unsafe_archive_is_refused(tmp_path: Path, name: str, kind: bytes, link: str) -> None:
    with pytest.raises(errors.UnsafeArchive):
        await deliver(handmade((member(name, kind, link), b"")), to(tmp_path / "out"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "d/../../x", "d/..", ""])
async def test_a_link_out_is_left_out(tmp_path: Path, target: str) -> None:
    sink = to(tmp_path / "out")
    await deliver(handmade((member("link", tarfile.SYMTYPE, target), b"")), sink)
    assert sink.unpacked.skipped_count == 1
    assert tree(tmp_path / "out") == {}


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
async def test_devices_are_left_out(tmp_path: Path, kind: bytes) -> None:
    sink = to(tmp_path)
    await deliver(handmade((member("dev", kind), b""), (member("x"), b"x")), sink)
    assert (sink.unpacked.skipped, list(tree(tmp_path))) == ([("dev", "not a file, directory or link")], ["x"])


async def test_no_link_is_followed(tmp_path: Path) -> None:
    """Neither one that the archive brought nor one that was there."""
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (outside / "file").write_bytes(b"mine")
    (out / "there").symlink_to(outside)
    (out / "file").symlink_to(outside / "file")
    wire = handmade(
        (member("d", tarfile.DIRTYPE), b""),
        (member("brought", tarfile.SYMTYPE, "d"), b""),
        (member("brought/x"), b"1"),
        (member("there/x"), b"2"),
        (member("file"), b"3"),
    )
    await deliver(wire, to(out))
    assert tree(outside) == {"file": (b"mine", 0o644)}
    assert (out / "brought" / "x").read_bytes() == b"1"
    assert (out / "there" / "x").read_bytes() == b"2"
    assert (out / "file").read_bytes() == b"3"
    assert tree(out)["d"] is None
    assert "d/x" not in tree(out)


async def test_setuid_is_dropped_and_hard_links_stay_inside(tmp_path: Path) -> None:
    wire = handmade((member("a", mode=0o6755), b"x"), (member("d/b", tarfile.LNKTYPE, "a"), b""))
    await deliver(wire, to(tmp_path))
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "d" / "b").samefile(tmp_path / "a")


@pytest.mark.parametrize("limits", [{"max_bytes": 9}, {"max_entries": 1}], ids=["bytes", "entries"])
async def test_limits(tmp_path: Path, limits: dict[str, int]) -> None:
    with pytest.raises(errors.LimitExceeded):
        await deliver(handmade((member("a"), b"12345"), (member("b"), b"12345")), to(tmp_path, **limits))


@pytest.mark.parametrize("cut", [0, 100, 700, 2000])
async def test_a_truncated_stream_is_no_copy(tmp_path: Path, cut: int) -> None:
    wire = handmade((member("a"), b"x" * 1000))
    for sink in (to(tmp_path / "out"), sinks.ToFile(tmp_path / "a.tar")):
        with pytest.raises(errors.Truncated):
            await deliver(wire[:cut], sink)
    assert not (tmp_path / "a.tar").exists()
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize("field", ["entries", "size", "sha256"])
async def test_a_trailer_that_differs_is_no_copy(tmp_path: Path, field: str) -> None:
    good = handmade((member("a"), b"x" * 1000))
    decoder = frames.ArchiveDecoder()
    tar = b"".join(bytes(part) for part in decoder.feed(good))
    trailer = decoder.finish()
    wrong = {"entries": 2, "size": trailer.size + 1, "sha256": "0" * 64}
    values = {"entries": 1, "size": trailer.size, "sha256": trailer.sha256, field: wrong[field]}
    wire = frames.header(len(tar)) + tar + frames.Trailer(**values).encode()  # type: ignore[arg-type]
    with pytest.raises(errors.DigestMismatch, match="differs"):
        await deliver(wire, to(tmp_path / "out"))
    if field != "entries":  # a sink that does not look inside proves bytes and digest
        with pytest.raises(errors.DigestMismatch):
            await deliver(wire, sinks.ToFile(tmp_path / "a.tar"))
        assert not (tmp_path / "a.tar").exists()


async def test_bytes_behind_the_archive_are_refused(tmp_path: Path) -> None:
    tar = archive.header("a", size=0) + archive.END
    await deliver(framed(tar + bytes(9216), 1), to(tmp_path))
    with pytest.raises(errors.UnsafeArchive, match="after the end"):
        await deliver(framed(tar + b"x", 1), to(tmp_path))


async def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"a file")
    wire, _ = await build(transfer.from_folder(folders.MemoryFolder({"x": (bytes(8 << 20), False)})))
    with pytest.raises(errors.TransferError, match="cannot be written"):
        await deliver(wire, to(tmp_path / "out"))


async def consume(chunks: AsyncIterable[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def test_a_consumer_gets_the_tar() -> None:
    payload = transfer.from_folder(folders.MemoryFolder({"x": (os.urandom(3 << 20), False)}))
    sink = sinks.ToConsumer(consume)
    await deliver((await build(payload))[0], sink)
    assert sink.result == await tar_of(payload)


async def test_a_consumer_never_sees_a_good_end_of_a_bad_stream() -> None:
    ended: list[BaseException | None] = []

    async def store(chunks: AsyncIterable[bytes]) -> None:
        try:
            async for _ in chunks:
                pass
        except errors.TransferError as error:
            ended.append(error)
            raise
        ended.append(None)

    wire, _ = await build(transfer.from_folder(folders.MemoryFolder({"x": (os.urandom(3 << 20), False)})))
    with pytest.raises(errors.Truncated):
        await deliver(wire[:-10], sinks.ToConsumer(store))
    assert [type(each) for each in ended] == [errors.Truncated]


async def test_a_consumer_that_fails_fails_the_copy() -> None:
    async def store(chunks: AsyncIterable[bytes]) -> None:
        async for _ in chunks:
            raise errors.StoreError("the bucket is full")

    wire, _ = await build(transfer.from_folder(folders.MemoryFolder({"x": (os.urandom(9 << 20), False)})))
    with pytest.raises(errors.StoreError):
        await deliver(wire, sinks.ToConsumer(store))


async def test_a_copy_that_is_dropped_while_it_is_given_up_ends_its_consumer() -> None:
    """As when its run is masked at the moment at which its pod is lost."""
    closing, closed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def store(chunks: AsyncIterable[bytes]) -> None:
        try:
            async for _ in chunks:
                pass
        except errors.TransferError:
            closing.set()
            await closed.wait()  # a slow disk
            raise
        finally:
            ended.set()

    sink = sinks.ToConsumer(store)
    await sink.write(memoryview(bytes(sinks.BATCH_BYTES)))
    dropped = asyncio.create_task(sink.abort())
    await closing.wait()
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    await asyncio.wait_for(ended.wait(), 5)  # closed or not


async def test_a_consumer_that_fails_unasked_is_no_complaint_of_the_loop() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about["message"]))
    full, failed = asyncio.Event(), asyncio.Event()

    async def store(chunks: AsyncIterable[bytes]) -> None:
        async for _ in chunks:
            await full.wait()
            failed.set()
            raise errors.StoreError("the bucket is full")

    sink = sinks.ToConsumer(store)
    await sink.write(memoryview(bytes(sinks.BATCH_BYTES)))
    full.set()
    await failed.wait()
    await sink.abort()
    del sink
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


class Lying(folders.MemoryFolder):
    """A folder whose file has another size than its listing says."""

    def __init__(self, delta: int) -> None:
        super().__init__({"x": (b"12345", False)})
        self._delta = delta

    def entries(self) -> list[folders.Entry]:
        return [folders.Entry("x", False, 5 + self._delta)]


@pytest.mark.parametrize("delta", [-1, 1])
async def test_a_file_that_changes_is_an_error(delta: int) -> None:
    with pytest.raises(errors.SourceChanged, match="changed"):
        await build(transfer.from_folder(Lying(delta)))


async def test_what_is_wrong_with_a_folder_passes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(contract_errors.TaskError):
        await build(transfer.from_folder(folders.DirectoryFolder(tmp_path)))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.TransferError, match="not a regular file"):
        await build(transfer.from_directory(tmp_path))
    with pytest.raises(errors.SourceChanged, match="cannot be read"):
        await build(transfer.from_file(tmp_path / "none", "x"))


async def test_a_reader_that_leaves_ends_the_thread() -> None:
    payload = transfer.from_folder(folders.MemoryFolder({"x": (bytes(64 << 20), False)}))
    async with transfer.building(payload) as outgoing:
        async for _ in outgoing.blocks():
            break
    # leaving the context has waited for the thread, which cannot have finished the archive
    with pytest.raises(transfer.Abandoned):
        _ = outgoing.trailer
