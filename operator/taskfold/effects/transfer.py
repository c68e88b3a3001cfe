"""Archives out of here: payloads, which become tar streams in a thread of their own, or are passed on (`relays`).

Guarantees: sha256 is computed once over the tar's bytes; between the thread and the event loop lie at most
2 MiB, in buffers that go round; a file that changes while it is read is an error. Never: a whole file in memory, a link
followed. The other direction is `sinks`.
"""

import asyncio
import collections
import contextlib
import hashlib
import os
import queue
import stat
import tarfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from taskfold.contract import folder as folders
from taskfold.effects import archive, errors, frames, relays

R = TypeVar("R")

BLOCKS_IN_FLIGHT = 16

Payload = Callable[["TarWriter"], None]
"""Writes the members of one archive. Called in a thread; may be called again for another try."""

AnyPayload = Payload | relays.Relay


class Outgoing(Protocol):
    """An archive on its way out: `blocks()` first, then `trailer`."""

    def blocks(self) -> AsyncIterator[memoryview]:
        """Chunks with their length in front and the exec channel's free byte before that, each valid until the next."""

    @property
    def trailer(self) -> frames.Trailer:
        """Raises what making the archive raised."""


def from_folder(folder: folders.Folder, *, under: str = "") -> Payload:
    """A task folder or a part of it (`folder.subtree`); `under`: a path to put in front of the names."""

    def write(tar: TarWriter) -> None:
        for entry in folder.entries():
            name = f"{under.rstrip('/')}/{entry.path}" if under else entry.path
            with folder.open(entry.path) as file:
                tar.file(name, entry.size, 0o755 if entry.executable else 0o644, file)

    return write


def from_directory(path: Path) -> Payload:
    """A local directory, its links as links; devices, FIFOs and sockets are refused."""

    def write(tar: TarWriter) -> None:
        for relative, found in _walk(path):
            mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISDIR(found.st_mode):
                tar.directory(relative, mode)
            elif stat.S_ISLNK(found.st_mode):
                tar.symlink(relative, str((path / relative).readlink()))
            else:
                _write_file(tar, path / relative, relative, mode)

    return write


def from_file(path: Path, name: str, *, mode: int | None = None) -> Payload:
    """One local file under another name."""

    def write(tar: TarWriter) -> None:
        _write_file(tar, path, name, mode)

    return write


def owned(payload: Payload, uid: int, gid: int) -> Payload:
    """The same members, as files of this user."""

    def write(tar: TarWriter) -> None:
        tar.owner = (uid, gid)
        payload(tar)

    return write


def from_archive(path: Path) -> Payload:
    """An uncompressed tar file as it is, for example kept artifacts."""

    def write(tar: TarWriter) -> None:
        with path.open("rb", buffering=0) as file:
            tar.verbatim(file, _count(path))

    return write


def _write_file(tar: "TarWriter", path: Path, name: str, mode: int | None) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise errors.TransferError("is not a regular file, a directory or a link", where=str(path))
        tar.file(name, found.st_size, stat.S_IMODE(found.st_mode) if mode is None else mode, file)


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as children:
            for child in sorted(children, key=lambda each: each.name):
                found = child.stat(follow_symlinks=False)
                yield prefix + child.name, found
                if stat.S_ISDIR(found.st_mode):
                    pending.append(f"{prefix}{child.name}/")


def _count(path: Path) -> int:
    with tarfile.open(path, "r:") as tar:
        entries = 0
        while tar.next() is not None:
            tar.members = []  # type: ignore[attr-defined]  # else every header is kept
            entries += 1
        return entries


class TarWriter:
    """The thread's side of an outgoing archive: members into blocks, hashed and counted on the way."""

    def __init__(self, pipe: "_Pipe") -> None:
        self.entries = self.size = 0
        self.owner = (0, 0)
        self._ended = False
        self._pipe = pipe
        self._sha256 = hashlib.sha256()
        self._block = memoryview(pipe.take())
        self._used = frames.HEADROOM

    def file(self, name: str, size: int, mode: int, content: BinaryIO) -> None:
        """A regular file of exactly `size` bytes; `SourceChanged` if `content` has fewer or more."""
        self.entries += 1
        self._write(archive.header(name, size=size, mode=mode, owner=self.owner))
        left = size
        while left:
            count = self._read(content, left)
            if not count:
                break
            left -= count
        if left or content.read(1):
            raise errors.SourceChanged("the file changed while it was read", where=name)
        self._write(archive.padding(size))

    def directory(self, name: str, mode: int) -> None:
        self.entries += 1
        self._write(archive.header(f"{name}/", mode=mode, kind=tarfile.DIRTYPE, owner=self.owner))

    def symlink(self, name: str, target: str) -> None:
        self.entries += 1
        self._write(archive.header(name, mode=0o777, kind=tarfile.SYMTYPE, link=target, owner=self.owner))

    def verbatim(self, content: BinaryIO, entries: int) -> None:
        """A tar stream made elsewhere, its end included: the only thing in this archive."""
        self._ended = True
        while self._read(content, frames.BLOCK_BYTES):
            pass
        self.entries += entries

    def finish(self) -> frames.Trailer:
        if not self._ended:
            self._write(archive.END)
        self._flush()
        return frames.Trailer(self.entries, self.size, self._sha256.hexdigest())

    def _read(self, content: BinaryIO, limit: int) -> int:
        """From the file straight into the block."""
        if self._used == len(self._block):
            self._flush()
        window = self._block[self._used : min(len(self._block), self._used + limit)]
        if hasattr(content, "readinto"):
            count: int = content.readinto(window) or 0
        else:
            data = content.read(len(window))
            count = len(data)
            window[:count] = data
        self._used += count
        return count

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._used == len(self._block):
                self._flush()
            count = min(len(view), len(self._block) - self._used)
            self._block[self._used : self._used + count] = view[:count]
            self._used += count
            view = view[count:]

    def _flush(self) -> None:
        content = self._block[frames.HEADROOM : self._used]
        if content:
            self._sha256.update(content)
            self.size += len(content)
            self._block[1 : frames.HEADROOM] = frames.header(len(content))
            self._pipe.put(self._block[: self._used])
            self._block = memoryview(self._pipe.take())
            self._used = frames.HEADROOM


class Abandoned(Exception):  # noqa: N818  (not an error: it ends a thread whose reader has gone)
    """The archive was left before its end."""


class _Pipe:
    """Blocks from one thread to the event loop; the buffers go round."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._free: queue.SimpleQueue[bytearray | None] = queue.SimpleQueue()
        for _ in range(BLOCKS_IN_FLIGHT):
            self._free.put(bytearray(frames.BLOCK_BYTES))
        self._full: collections.deque[memoryview] = collections.deque()
        self._ready = asyncio.Event()
        self._closed = False

    def take(self) -> bytearray:
        """Thread: an empty buffer, when there is one."""
        buffer = self._free.get()
        if buffer is None or self._closed:
            raise Abandoned
        return buffer

    def put(self, block: memoryview) -> None:
        """Thread: hand over."""
        self._full.append(block)
        self._wake()

    async def blocks(self, finished: asyncio.Future[Any]) -> AsyncIterator[memoryview]:
        """Loop: until the thread is done; a block is valid until the next one is asked for."""
        finished.add_done_callback(lambda _: self._ready.set())
        while True:
            while self._full:
                block = self._full.popleft()
                yield block
                self._free.put(block.obj)  # type: ignore[arg-type]
            if finished.done() and not self._full:
                return
            self._ready.clear()
            if not self._full and not finished.done():
                await self._ready.wait()

    def close(self) -> None:
        """Loop: nobody reads any more; the thread ends at its next block."""
        self._closed = True
        self._free.put(None)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._ready.set)


class _Built:
    """An archive being built in a thread."""

    def __init__(self, pipe: _Pipe, finished: asyncio.Future[frames.Trailer]) -> None:
        self._pipe, self._finished = pipe, finished

    def blocks(self) -> AsyncIterator[memoryview]:
        return self._pipe.blocks(self._finished)

    @property
    def trailer(self) -> frames.Trailer:
        return self._finished.result()


@contextlib.asynccontextmanager
async def opened(payload: AnyPayload, *, where: str = "") -> AsyncIterator[Outgoing]:
    """The payload's archive on its way; leaving the context ends whatever makes it."""
    if isinstance(payload, relays.Relay):
        async with relays.relaying(payload) as relayed:
            yield relayed
    else:
        async with building(payload, where=where) as built:
            yield built


@contextlib.asynccontextmanager
async def building(payload: Payload, *, where: str = "") -> AsyncIterator[_Built]:
    """Build the payload's archive in a thread; leaving the context ends the thread."""
    pipe = _Pipe()

    def build() -> frames.Trailer:
        try:
            tar = TarWriter(pipe)
            payload(tar)
            return tar.finish()
        except OSError as error:
            raise errors.SourceChanged(f"cannot be read: {error}", where=where) from error

    finished = in_thread(build)
    try:
        yield _Built(pipe, finished)
    finally:
        pipe.close()
        await asyncio.wait([finished])
        if not finished.cancelled():
            finished.exception()


def in_thread(work: Callable[[], R]) -> asyncio.Future[R]:
    """A thread of its own: transfers last long and would fill asyncio's pool (6 threads on 2 cores)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def settle(result: R | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: R | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # handed to the waiting task, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="taskfold-transfer", daemon=True).start()
    return future
