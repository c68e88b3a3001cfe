"""Texts out of kept archives, without unpacking them: what agent, entrypoint and verifier printed.

Guarantees: memory is a window of the archive, whatever its size and whatever its members are called; what is not wanted
is jumped over, not read; a file's end can be asked for alone; what is sent is bounded, and where it was cut it says so.
Archives hold what a sandbox left: a member that is not a plain file is never followed.
"""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

from taskfold.effects import archive, errors
from taskfold.effects import store as stores

WINDOW_BYTES = 512 * 1024
TOTAL_BYTES = 256 * 1024 * 1024
"""Of all texts of one answer."""
PART_BYTES = 256 * 1024
STORE_SECONDS = 150.0
"""More than the store's own limit of an exchange."""


@dataclass(frozen=True)
class Archive:
    """A tar of the store. `size` in bytes."""

    store: stores.Store
    key: str
    size: int


class Tape:
    """An archive of the store as the blocking input of `archive.members`. Its methods belong to a thread."""

    def __init__(self, stored: Archive, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._key, self._size, self._loop = stored.store, stored.key, stored.size, loop
        self._window, self._start, self._at = b"", 0, 0

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            found += self.some(size - len(found))
        return bytes(found)

    def some(self, limit: int) -> memoryview:
        """At least one byte. Truncated at the end, StoreError."""
        if self._at >= self._size:
            raise errors.Truncated("the archive ends before its end", where=self._key)
        if not self._start <= self._at < self._start + len(self._window):
            end = min(self._at + WINDOW_BYTES, self._size)
            call = self._store.get_range(self._key, self._at, end)
            self._window = asyncio.run_coroutine_threadsafe(call, self._loop).result(STORE_SECONDS)
            self._start = self._at
        offset = self._at - self._start
        part = memoryview(self._window)[offset : offset + limit]
        self._at += len(part)
        return part

    def skip(self, size: int) -> None:
        self._at += size


async def texts(
    stored: Archive, want: Callable[[str], bool], tail: int | None, threads: Executor
) -> AsyncGenerator[bytes, None]:
    """The wanted files of one archive, each under a line with its name. `tail`: only so many bytes of each one's end.

    TransferError: the archive is damaged. StoreError.
    """
    loop = asyncio.get_running_loop()
    tape = Tape(stored, loop)
    parts = _parts(tape, want, tail)
    while (part := await loop.run_in_executor(threads, next, parts, None)) is not None:
        yield part


def _parts(tape: Tape, want: Callable[[str], bool], tail: int | None) -> Iterator[bytes]:
    for member in archive.members(tape):
        rest = member.size + -member.size % archive.BLOCK
        if member.kind != tarfile.REGTYPE or not want(member.name):
            tape.skip(rest)
            continue
        left = member.size
        yield f"==> /{_shown(member.name)} <==\n".encode()
        if tail is not None and tail < left:
            yield f"(the first {left - tail:,} of {left:,} bytes are left out)\n".encode()
            tape.skip(left - tail)
            left = tail
        last = b"\n"
        while left:
            part = bytes(tape.some(min(left, PART_BYTES)))
            left -= len(part)
            last = part[-1:]
            yield part
        yield b"\n" if last == b"\n" else b"\n\n"
        tape.skip(-member.size % archive.BLOCK)


def _shown(name: str) -> str:
    """A name in one line, whatever it is."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in name)
