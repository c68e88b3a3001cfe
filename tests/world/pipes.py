"""A pipe between two tasks, with the kernel's manners.

Guarantees: bytes come out in their order; a writer waits while `limit` bytes are unread; a reader gets what was written
before the writing end was closed, then the end; writing to a pipe that was closed at either end is a BrokenPipeError.
"""

import asyncio

CAPACITY = 64 * 1024


class Pipe:
    """One direction."""

    def __init__(self, limit: int = CAPACITY) -> None:
        self._limit = limit
        self._content = bytearray()
        self._changed = asyncio.Event()
        self._ended = self._broken = False

    @property
    def unread(self) -> int:
        return len(self._content)

    async def write(self, data: bytes) -> None:
        """All of it, a part at a time as there is room."""
        while data:
            if self._broken or self._ended:
                raise BrokenPipeError("nobody reads any more")
            room = self._limit - len(self._content)
            if room > 0:
                self._content += data[:room]
                data = data[room:]
                self._change()
            else:
                await self._wait()
        if self._broken:
            raise BrokenPipeError("nobody reads any more")

    async def read(self, limit: int = CAPACITY) -> bytes:
        """At least a byte; empty at the end."""
        while not self._content and not self._ended and not self._broken:
            await self._wait()
        data = bytes(self._content[:limit])
        del self._content[:limit]
        self._change()
        return data

    async def exactly(self, size: int) -> bytes:
        """EOFError, with what there was, if it ends before."""
        data = bytearray()
        while len(data) < size:
            part = await self.read(size - len(data))
            if not part:
                raise EOFError(bytes(data))
            data += part
        return bytes(data)

    async def hung_up(self) -> None:
        """Until the writing end is closed, whatever is still to be read."""
        while not self._ended:
            await self._wait()

    def end(self) -> None:
        """The writing end is closed."""
        self._ended = True
        self._change()

    def break_off(self) -> None:
        """The reading end is closed: what was not read is lost."""
        self._broken = True
        self._content.clear()
        self._change()

    def _change(self) -> None:
        """Wakes everybody who waits now; who comes later waits for the next change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait(self) -> None:
        await self._changed.wait()
