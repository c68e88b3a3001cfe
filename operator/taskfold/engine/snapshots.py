"""Task folders as they were when their runs were admitted (C25).

Guarantees: a snapshot is stored under the task's digest before the digest stands in a status; what is read later is
proven to be the same bytes; a task is parsed once per process while it is in use. The tar is written first, the small
manifest that names its checksum after it.
"""

import asyncio
import collections
import contextlib
import hashlib
import json
import tempfile
import weakref
from collections.abc import AsyncIterator
from typing import BinaryIO, TypeVar

from taskfold.contract import digest as digests
from taskfold.contract import effective, loader
from taskfold.contract import folder as folders
from taskfold.contract import task as tasks
from taskfold.effects import store as stores

K = TypeVar("K")
V = TypeVar("V")

HELD_FOLDERS = 64
HELD_BYTES = 64 * 1024 * 1024
"""Folders that were just loaded, and their bytes in all, that are kept in memory."""
HELD_KEYS = 4096
HELD_TASKS = 512
CHUNK = 256 * 1024
MANIFEST_BYTES = 4096
ASKED_SECONDS = 600.0
"""Within this time after it was asked for, a snapshot's digest stands in its run's status."""


class Snapshots:
    """The snapshots of one cluster in the store."""

    def __init__(self, store: stores.Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._folders: collections.OrderedDict[str, folders.Folder] = collections.OrderedDict()
        self._tasks: collections.OrderedDict[tuple[str, str, loader.Terms], tasks.Task] = collections.OrderedDict()
        self._kept: collections.OrderedDict[str, float] = collections.OrderedDict()
        """Known to be stored, and when they were last asked for, in the event loop's time."""
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def remember(self, digest: str, folder: folders.Folder, task: tasks.Task, terms: loader.Terms = loader.GYM) -> None:
        """Hold what was just loaded on these terms, so that its run needs no round trip through the store."""
        self._folders.pop(digest, None)
        _put(self._folders, digest, folder, HELD_FOLDERS)
        sizes = {key: sum(entry.size for entry in held.entries()) for key, held in self._folders.items()}
        while len(self._folders) > 1 and sum(sizes.values()) > HELD_BYTES:
            sizes.pop(self._folders.popitem(last=False)[0])
        _put(self._tasks, (digest, task.id, terms), task, HELD_TASKS)

    async def keep(self, namespace: str, digest: str) -> None:
        """Store the remembered folder under its digest, unless it is there."""
        key = stores.snapshot_key(self._cluster, namespace, digest)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._kept and not await self._store.exists(_manifest_key(key)):
                await self._write(key, digest, self._folders[digest])
            _put(self._kept, key, asyncio.get_running_loop().time(), HELD_KEYS)

    async def delete(self, namespace: str, digest: str) -> bool:
        """Delete a snapshot that no run names; False: it was asked for lately, so that a run may be about to name it.

        Its manifest goes first: a snapshot without one is not there.
        """
        key = stores.snapshot_key(self._cluster, namespace, digest)
        async with self._locks.setdefault(key, asyncio.Lock()):
            asked = self._kept.get(key)
            if asked is not None and asyncio.get_running_loop().time() - asked < ASKED_SECONDS:
                return False
            self._kept.pop(key, None)
            await self._store.remove([_manifest_key(key)])
            await self._store.remove([key])
            return True

    async def task(self, namespace: str, digest: str, task_id: str, terms: loader.Terms = loader.GYM) -> tasks.Task:
        """The task of a snapshot, parsed."""
        key = (digest, task_id, terms)
        held = self._tasks.get(key)
        if held is None:
            async with self.open(namespace, digest) as folder:
                held = await asyncio.to_thread(loader.load, folder, task_id=task_id, terms=terms)
        _put(self._tasks, key, held, HELD_TASKS)
        return held

    async def with_tests(self, namespace: str, digest: str, tests: folders.Folder, step: str | None) -> str:
        """The digest of a snapshot with other tests, which is held until it is kept. Raises TaskError."""
        async with self.open(namespace, digest) as folder:
            whole = effective.with_tests(folder, tests, step=step)
            files = {entry.path: (whole.read(entry.path), entry.executable) for entry in whole.entries()}
        joined = folders.MemoryFolder(files)
        found = digests.task_digest(joined)
        _put(self._folders, found, joined, HELD_FOLDERS)
        return found

    @contextlib.asynccontextmanager
    async def open(self, namespace: str, digest: str) -> AsyncIterator[folders.Folder]:
        """The folder of a snapshot, for the length of the block."""
        held = self._folders.get(digest)
        if held is not None:
            yield held
            return
        key = stores.snapshot_key(self._cluster, namespace, digest)
        manifest = json.loads(await self._store.get(_manifest_key(key), limit=MANIFEST_BYTES))
        async with self._store.local_copy(key, manifest["sha256"]) as path:
            yield await asyncio.to_thread(folders.TarFolder, path)

    async def _write(self, key: str, digest: str, folder: folders.Folder) -> None:
        with tempfile.TemporaryFile() as file:
            sha256, written = await asyncio.to_thread(_snapshot, folder, file)
            if written != digest:
                raise RuntimeError(f"the snapshot's digest is {written}, the task's {digest}")
            await self._store.put_stream(key, _chunks(file))
        await self._store.put_new(_manifest_key(key), json.dumps({"sha256": sha256}).encode())


def _put(held: collections.OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    held[key] = value
    held.move_to_end(key)
    while len(held) > limit:
        held.popitem(last=False)


def _manifest_key(key: str) -> str:
    return key.removesuffix(".tar") + ".json"


def _snapshot(folder: folders.Folder, file: BinaryIO) -> tuple[str, str]:
    written = digests.write_snapshot(folder, file)
    file.seek(0)
    sha256 = hashlib.sha256()
    while chunk := file.read(CHUNK):
        sha256.update(chunk)
    return f"sha256:{sha256.hexdigest()}", written


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := await asyncio.to_thread(file.read, CHUNK):
        yield chunk
