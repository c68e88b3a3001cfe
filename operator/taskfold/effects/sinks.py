"""Archives into here: sinks, which take a tar stream and prove that all of it arrived.

Guarantees: sha256 is computed once over the tar's bytes; at most 2 MiB wait between the event loop and the
thread; a sink that did not get what the trailer counts raises `DigestMismatch` and delivers nothing as
complete: `ToFile` gives its file the name only then, `ToConsumer` ends its stream with the error,
`ToDirectory` leaves what was unpacked (so unpack into a fresh directory). Never: a whole file in memory, a
name outside of the target.
"""

import asyncio
import collections
import contextlib
import hashlib
import os
import queue
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from taskfold.effects import archive, errors, frames, transfer

R = TypeVar("R")

BATCH_BYTES = 512 * 1024  # the API server sends 32 KiB at a time; a change of thread costs more than that
BATCHES_IN_FLIGHT = 4
ABORT_SECONDS = 10.0
"""How long a consumer may take to notice that its stream is given up."""


@dataclass(frozen=True, slots=True)
class Received:
    """What a sink got: bytes of tar and their digest. `entries` None: it did not look inside."""

    size: int
    sha256: str
    entries: int | None = None


class Sink(Protocol):
    """Takes one archive: `write` in order, then exactly one of `finish` and `abort`."""

    async def write(self, data: memoryview) -> None:
        """The data must not change afterwards."""

    async def finish(self, trailer: frames.Trailer) -> None:
        """`DigestMismatch` unless everything that the trailer counts is here; then complete."""

    async def abort(self) -> None:
        """Undo or leave incomplete, visibly. Also after a failed `finish`."""


class Nowhere:
    """For an archive of which only the trailer matters."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._size = 0

    async def write(self, data: memoryview) -> None:
        self._size += len(data)
        self._sha256.update(data)

    async def finish(self, trailer: frames.Trailer) -> None:
        check(Received(self._size, self._sha256.hexdigest()), trailer, "an archive that is not kept")

    async def abort(self) -> None:
        pass


class _Batches:
    """What threads of sinks read: batches from the event loop, hashed as they come (an `archive.Input`)."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[list[memoryview] | None] = queue.SimpleQueue()
        self._room = asyncio.Semaphore(BATCHES_IN_FLIGHT)
        self._parts: collections.deque[memoryview] = collections.deque()
        self._ended = False
        self._sha256 = hashlib.sha256()
        self.size = 0

    async def put(self, batch: list[memoryview]) -> None:
        await self._room.acquire()
        self._queue.put(batch)

    def end(self) -> None:
        """Loop: nothing more will come."""
        self._queue.put(None)

    def release(self) -> None:
        """Loop: the thread has gone; whoever waits for room must see that."""
        self._room.release()

    def digest(self) -> str:
        return self._sha256.hexdigest()

    def some(self, limit: int) -> memoryview:
        """Thread: 1 to `limit` bytes."""
        if not self._parts and not self._next():
            raise errors.Truncated("the archive ended in the middle of a file")
        part = self._parts.popleft()
        if len(part) > limit:
            self._parts.appendleft(part[limit:])
            return part[:limit]
        return part

    def exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            parts += self.some(size - len(parts))
        return bytes(parts)

    def rest(self) -> Iterator[memoryview]:
        """Thread: everything up to the end."""
        while self._parts or self._next():
            yield self._parts.popleft()

    def _next(self) -> bool:
        if self._ended:
            return False
        batch = self._queue.get()
        if batch is None:
            self._ended = True
            return False
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._room.release)
        for part in batch:
            self._sha256.update(part)
            self.size += len(part)
        self._parts.extend(batch)
        return bool(batch)


class _ThreadSink:
    """The part of a sink that runs in a thread: `_consume` reads the batches to their end."""

    where: str

    def __init__(self) -> None:
        self._batch: list[memoryview] = []
        self._size = 0
        self._source: _Batches | None = None
        self._thread: asyncio.Future[Received] | None = None

    def _consume(self, source: _Batches) -> Received:
        raise NotImplementedError

    async def write(self, data: memoryview) -> None:
        self._batch.append(data)
        self._size += len(data)
        if self._size >= BATCH_BYTES:
            await self._hand_over()

    async def finish(self, trailer: frames.Trailer) -> None:
        check(await self._end(), trailer, self.where)

    async def abort(self) -> None:
        self._batch.clear()
        with contextlib.suppress(errors.EffectError):
            await self._end()

    async def _end(self) -> Received:
        source, thread = self._start()
        if self._batch:
            await self._hand_over()
        source.end()
        await asyncio.wait([thread])
        return thread.result()

    async def _hand_over(self) -> None:
        source, thread = self._start()
        batch, self._batch, self._size = self._batch, [], 0
        await source.put(batch)
        if thread.done():
            thread.result()
            raise errors.TransferError("bytes after the end of the archive", where=self.where)

    def _start(self) -> "tuple[_Batches, asyncio.Future[Received]]":
        if self._source is None or self._thread is None:
            source = self._source = _Batches()
            self._thread = transfer.in_thread(lambda: self._run(source))
            self._thread.add_done_callback(lambda _: source.release())
        return self._source, self._thread

    def _run(self, source: _Batches) -> Received:
        try:
            return self._consume(source)
        except errors.EffectError as error:
            error.where = error.where or self.where
            raise
        except OSError as error:
            raise errors.TransferError(f"cannot be written: {error}", where=self.where) from error


class ToDirectory(_ThreadSink):
    """Unpack below `path` (see `archive.unpack` for what is let through). `unpacked` tells what was
    skipped.
    """

    def __init__(self, path: Path, *, max_bytes: int, max_entries: int) -> None:
        super().__init__()
        self.path, self.where = path, str(path)
        self.unpacked = archive.Unpacked()
        self._max_bytes, self._max_entries = max_bytes, max_entries

    def _consume(self, source: _Batches) -> Received:
        self.unpacked = archive.unpack(source, self.path, max_bytes=self._max_bytes, max_entries=self._max_entries)
        for part in source.rest():  # tar writers pad the end to their record size
            if any(part):
                raise errors.UnsafeArchive("bytes after the end of the archive")
        return Received(source.size, source.digest(), self.unpacked.entries)


class ToFile(_ThreadSink):
    """The tar itself as a file, which appears under its name only when it is complete."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.where = path, str(path)
        self._partial = path.with_name(f".{path.name}.{os.getpid()}-{id(self):x}.partial")

    def _consume(self, source: _Batches) -> Received:
        with self._partial.open("xb", buffering=0) as file:
            for part in source.rest():
                while part:
                    part = part[file.write(part) :]  # noqa: PLW2901
        return Received(source.size, source.digest())

    async def finish(self, trailer: frames.Trailer) -> None:
        await super().finish(trailer)
        self._partial.replace(self.path)

    async def abort(self) -> None:
        await super().abort()
        self._partial.unlink(missing_ok=True)


class ToConsumer(Generic[R]):
    """The tar itself to something that takes a stream, for example `store.put_stream`; `result` afterwards.

    The stream ends normally only after the digest was found right, and `trailer` is there then; else it raises in the
    consumer.
    """

    def __init__(self, consume: Callable[[AsyncIterable[bytes]], Awaitable[R]], *, where: str = "") -> None:
        self.where = where
        self.result: R | None = None
        self.trailer: frames.Trailer | None = None
        self._consume = consume
        self._sha256 = hashlib.sha256()
        self._bytes = 0
        self._batch: list[memoryview] = []
        self._size = 0
        self._queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(BATCHES_IN_FLIGHT)
        self._task: asyncio.Task[R] | None = None

    async def write(self, data: memoryview) -> None:
        self._batch.append(data)
        self._size += len(data)
        if self._size >= BATCH_BYTES:
            await self._hand_over()

    async def finish(self, trailer: frames.Trailer) -> None:
        if self._batch:
            await self._hand_over()
        check(Received(self._bytes, self._sha256.hexdigest()), trailer, self.where)
        self.trailer = trailer
        await self._offer(None)
        self.result = await self._started()

    async def abort(self) -> None:
        task = self._task
        if task is None or task.done():
            return
        offer = asyncio.ensure_future(self._offer(errors.Truncated("the copy was given up", where=self.where)))
        offer.add_done_callback(_known)
        try:
            await asyncio.wait([task], timeout=ABORT_SECONDS)
        finally:  # whoever does not wait for it any more must not leave it behind
            offer.cancel()
            task.cancel()
        await asyncio.wait([task, offer])

    async def _hand_over(self) -> None:
        data = b"".join(self._batch)
        self._batch, self._size = [], 0
        self._bytes += len(data)
        await asyncio.to_thread(self._sha256.update, data)
        await self._offer(data)

    async def _offer(self, item: bytes | BaseException | None) -> None:
        """Wait for room, or for the consumer's own failure."""
        task = self._started()
        put = asyncio.ensure_future(self._queue.put(item))
        try:
            await asyncio.wait([put, task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            put.cancel()
        if task.done() and item is not None:
            task.result()
            raise errors.TransferError("the receiver stopped before the end", where=self.where)

    def _started(self) -> asyncio.Task[R]:
        if self._task is None:

            async def consume() -> R:
                return await self._consume(self._chunks())

            self._task = asyncio.create_task(consume())
            self._task.add_done_callback(_known)
        return self._task

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            match await self._queue.get():
                case None:
                    return
                case BaseException() as error:
                    raise error
                case data:
                    yield data


def _known(ended: "asyncio.Future[R]") -> None:
    """How the consumer failed is told by the copy; the loop has nothing to add when nobody asks for it."""
    if not ended.cancelled():
        ended.exception()


def check(received: Received, trailer: frames.Trailer, where: str) -> None:
    """`DigestMismatch` unless both ends have the same."""
    pairs = [("bytes", received.size, trailer.size), ("sha256", received.sha256, trailer.sha256)]
    if received.entries is not None:
        pairs.append(("entries", received.entries, trailer.entries))
    for name, here, there in pairs:
        if here != there:
            raise errors.DigestMismatch(
                f"the copy differs from its source: {name} is {here} here and {there} there", where=where
            )
