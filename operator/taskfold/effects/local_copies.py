"""Local copies of stored objects, for code that reads files: a bounded cache by sha256.

Guarantees: a path is handed out only when the bytes under it have the digest that was asked for; a copy in
use is never removed; what is not in use stays within the bound, least recently used first to go; any number
of callers cause one download. The folder belongs to one process: two would remove each other's unfinished
files.
"""

import asyncio
import collections
import contextlib
import hashlib
import os
import tempfile
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

from taskfold.effects import errors

CACHE_BYTES = 2 * 1024**3
OFF_LOOP_BYTES = 64 * 1024
"""Hashing less than this is cheaper than a change of thread."""


class Source(Protocol):
    """An object to copy: its size in bytes, and its bytes."""

    where: str
    size: int

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class LocalCopies:
    """`folder`: by default a temporary one. `limit`: bytes of all copies that are not in use."""

    def __init__(self, folder: Path | None = None, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._sizes: collections.OrderedDict[str, int] = collections.OrderedDict()  # oldest use first
        self._unproven: set[str] | None = None
        self._uses: collections.Counter[str] = collections.Counter()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def lease(self, sha256: str, source: Callable[[], Awaitable[Source]]) -> AsyncIterator[Path]:
        """The copy with this sha256 (hex) for the length of the block; `source` is asked if there is none."""
        path = self._open() / f"{sha256}.tar"
        lock = self._locks.setdefault(sha256, asyncio.Lock())
        self._uses[sha256] += 1
        try:
            async with lock:
                if not await self._holds(sha256, path):
                    await self._fetch(sha256, path, await source())
                self._sizes.move_to_end(sha256)
            yield path
        finally:
            self._uses[sha256] -= 1
            self._shrink()

    def _open(self) -> Path:
        """Take over what an earlier process left; its bytes are proven when they are asked for."""
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="taskfold-copies-")
            self._folder = Path(self._temporary.name)
        if self._unproven is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in self._folder.glob("*.part"):
                part.unlink(missing_ok=True)
            found = sorted((path.stat().st_mtime, path) for path in self._folder.glob("*.tar"))
            self._sizes.update((path.stem, path.stat().st_size) for _, path in found)
            self._unproven = set(self._sizes)
        return self._folder

    async def _holds(self, sha256: str, path: Path) -> bool:
        if sha256 not in self._sizes or not _touch(path):
            return False
        if self._unproven and sha256 in self._unproven:
            if await asyncio.to_thread(_file_sha256, path) != sha256:
                path.unlink()  # noqa: ASYNC240 - one system call on a local disk
                return False
            self._unproven.discard(sha256)
        return True

    async def _fetch(self, sha256: str, path: Path, source: Source) -> None:
        self._sizes[sha256] = source.size  # takes its room now: downloads at the same time do not add up
        self._shrink()
        part = path.with_suffix(".part")
        try:
            found = await _download(source, part)
            if found != sha256:
                raise errors.StoreError(
                    f"the object has the digest sha256:{found}, not sha256:{sha256}",
                    where=source.where,
                    remedy="It was damaged or replaced: delete it in the store and create the run again.",
                )
            part.replace(path)
        except BaseException as error:
            part.unlink(missing_ok=True)
            del self._sizes[sha256]
            if isinstance(error, OSError):
                remedy = f"Make room in {part.parent}."
                raise errors.StoreError(f"no local copy: {error}", where=source.where, remedy=remedy) from error
            raise
        if self._unproven:
            self._unproven.discard(sha256)

    def _shrink(self) -> None:
        excess = sum(self._sizes.values()) - self.limit
        for sha256 in [each for each in self._sizes if not self._uses[each]]:
            if excess <= 0:
                break
            (self._open() / f"{sha256}.tar").unlink(missing_ok=True)
            excess -= self._sizes.pop(sha256)
        self._uses += collections.Counter()  # drops the zeros


async def update(digest: "hashlib._Hash", chunk: bytes) -> None:
    """`digest.update` that never holds up the event loop."""
    if len(chunk) < OFF_LOOP_BYTES:
        digest.update(chunk)
    else:
        await asyncio.to_thread(digest.update, chunk)


async def _download(source: Source, part: Path) -> str:
    digest = hashlib.sha256()
    file = await asyncio.to_thread(part.open, "wb")
    with file:
        async for chunk in source:
            await update(digest, chunk)
            await asyncio.to_thread(file.write, chunk)
    return digest.hexdigest()


def _touch(path: Path) -> bool:
    """Mark a use; False when the file is gone (a temporary folder was swept)."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
