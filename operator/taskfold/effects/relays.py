"""Archives that were made elsewhere and are passed on into a sandbox: out of the store, or out of another sandbox.

Guarantees: nothing is on disk; at most two chunks are held, one that is sent and one that is fetched and hashed
meanwhile, so that a slow reader stops the source; the trailer is sent only behind bytes that it proves. A source that
breaks breaks the copy with its own error.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass

from taskfold.effects import errors, frames, local_copies

PART_BYTES = frames.BLOCK_BYTES - frames.HEADROOM


@dataclass(frozen=True, slots=True)
class Relay:
    """The bytes of a tar, in chunks of any size, and what they must be.

    `chunks` may be called again for another try. `trailer` is asked once they have ended. `where`: whose bytes they
    are, for a message.
    """

    chunks: Callable[[], AsyncIterable[bytes]]
    trailer: Callable[[], frames.Trailer]
    where: str = ""


class Relayed:
    """One try of a relay (a `transfer.Outgoing`)."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._chunks = aiter(relay.chunks())
        self._next: asyncio.Task[bytes | None] | None = None

    async def blocks(self) -> AsyncIterator[memoryview]:
        """Blocks to send; each is valid until the next one is asked for."""
        block = memoryview(bytearray(frames.BLOCK_BYTES))
        self._next = asyncio.create_task(self._fetch())
        while (chunk := await self._next) is not None:
            self._next = asyncio.create_task(self._fetch())
            for start in range(0, len(chunk), PART_BYTES):
                part = memoryview(chunk)[start : start + PART_BYTES]
                end = frames.HEADROOM + len(part)
                block[1 : frames.HEADROOM] = frames.header(len(part))
                block[frames.HEADROOM : end] = part
                yield block[:end]

    @property
    def trailer(self) -> frames.Trailer:
        """`DigestMismatch`: what came is not what it must be."""
        trailer, sha256 = self._relay.trailer(), self._sha256.hexdigest()
        if (self._size, sha256) != (trailer.size, trailer.sha256):
            raise errors.DigestMismatch(
                f"the archive is damaged: {self._size} bytes with sha256 {sha256}, "
                f"not {trailer.size} with {trailer.sha256}",
                where=self._relay.where,
            )
        return trailer

    async def close(self) -> None:
        """End the source, wherever it is."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            if not self._next.cancelled():
                self._next.exception()
        if isinstance(self._chunks, AsyncGenerator):
            await self._chunks.aclose()

    async def _fetch(self) -> bytes | None:
        chunk = await anext(self._chunks, None)
        if chunk is not None:
            self._size += len(chunk)
            await local_copies.update(self._sha256, chunk)
        return chunk


@contextlib.asynccontextmanager
async def relaying(relay: Relay) -> AsyncIterator[Relayed]:
    """A try, which ends with the block."""
    relayed = Relayed(relay)
    try:
        yield relayed
    finally:
        await relayed.close()
