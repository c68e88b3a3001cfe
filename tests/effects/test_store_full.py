"""A store whose disk is full: nothing half-written is ever read as whole, and it works again once there is room."""

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import s3

from taskfold.effects import errors, local_copies, store

MIB = 1024 * 1024
ROOM = 32 * MIB

pytestmark = [
    pytest.mark.cluster,  # the S3 server is built with it
    pytest.mark.alone,
    pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a file system of its own"),
]


@contextlib.contextmanager
def small(folder: Path) -> Iterator[Path]:
    """A file system with this much room."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "taskfold-tests", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=["folder", "s3"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[store.Store, Path]]:
    """The store, and a file on its disk that takes all the room but a few bytes."""
    with small(tmp_path / "disk") as disk:
        filler = disk / "filler"
        if request.param == "folder":
            yield store.Store((disk / "store").as_uri()), filler
            return
        with s3.Server(disk / "s3", tmp_path / "s3.log") as server:
            yield store.Store(f"s3://{s3.BUCKET}/base", options=s3.options(server.endpoint)), filler


def fill(filler: Path, leave: int) -> None:
    room = os.statvfs(filler.parent)
    filler.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - leave)))


async def stream(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // MIB):
        yield b"x" * MIB


async def listed(kept: store.Store) -> list[str]:
    return [each.key async for each in kept.list("c/n/")]


async def test_bulk_on_a_full_disk_is_an_error_and_nothing_is_there(full: tuple[store.Store, Path]) -> None:
    kept, filler = full
    await kept.check()
    fill(filler, 4 * MIB)
    with pytest.raises(errors.StoreError) as caught:
        await kept.put_stream("c/n/u/1/files-aa.tar", stream(12 * MIB))
    assert "files-aa.tar" in str(caught.value)
    assert caught.value.remedy
    assert not await kept.exists("c/n/u/1/files-aa.tar")
    assert await listed(kept) == []
    filler.unlink()
    assert (await kept.put_stream("c/n/u/1/files-aa.tar", stream(12 * MIB))).size == 12 * MIB
    assert b"".join([chunk async for chunk in await kept.open("c/n/u/1/files-aa.tar")]) == b"x" * (12 * MIB)


async def test_a_document_on_a_full_disk_is_an_error_and_nothing_is_there(full: tuple[store.Store, Path]) -> None:
    kept, filler = full
    await kept.check()
    row = b"r" * MIB
    fill(filler, 256 * 1024)
    with pytest.raises(errors.StoreError) as caught:
        await kept.put_new("c/n/u/1/row.json", row)
    assert not isinstance(caught.value, store.AlreadyStored | store.NotStored)
    assert not await kept.exists("c/n/u/1/row.json")
    assert await listed(kept) == []
    filler.unlink()
    assert await kept.put_new("c/n/u/1/row.json", row) is True
    assert await kept.get("c/n/u/1/row.json", limit=MIB) == row


async def test_the_disk_is_full_from_the_first_byte(full: tuple[store.Store, Path]) -> None:
    kept, filler = full
    await kept.check()
    fill(filler, 0)
    for call in (kept.put_new("c/n/u/1/row.json", b"r"), kept.put_stream("c/n/u/1/big", stream(MIB)), kept.check()):
        with pytest.raises(errors.StoreError):
            await call
    filler.unlink()
    await kept.check()
    assert await kept.put_new("c/n/u/1/row.json", b"r") is True


async def test_room_for_local_copies_that_is_out_is_said(tmp_path: Path) -> None:
    with small(tmp_path / "copies") as disk:
        kept = store.Store((tmp_path / "store").as_uri(), cache=local_copies.LocalCopies(disk / "cache"))
        written = await kept.put_stream("c/n/tasks/a.tar", stream(12 * MIB))
        fill(disk / "filler", 4 * MIB)
        with pytest.raises(errors.StoreError, match="no local copy") as caught:
            async with kept.local_copy("c/n/tasks/a.tar", written.digest):
                pass
        assert str(disk) in caught.value.remedy
        (disk / "filler").unlink()
        async with kept.local_copy("c/n/tasks/a.tar", written.digest) as path:
            assert path.stat().st_size == 12 * MIB
