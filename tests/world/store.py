"""The result store in memory: what `effects.store.Store` promises, each of its calls at a process's border.

Guarantees: the same answers and the same errors as the real store for every call that the engine makes
(`test_store.py` asks both); an object is there whole or not at all. `Bucket` outlives operators; a `Store` is one
process's way to it.
"""

import contextlib
import hashlib
import math
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from taskfold.effects import errors
from taskfold.effects import store as stores


class Border(Protocol):
    """What a call goes through: it may wait there, fail there, or never come back."""

    def crossing(self, name: str, target: str) -> contextlib.AbstractAsyncContextManager[None]: ...


class Open:
    """A border that lets everything pass."""

    @contextlib.asynccontextmanager
    async def crossing(self, name: str, target: str) -> AsyncIterator[None]:
        yield


@dataclass
class Bucket:
    """The objects, and how often each key was written."""

    objects: dict[str, bytes] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)

    def write(self, key: str, content: bytes) -> None:
        self.objects[key] = content
        self.writes[key] = self.writes.get(key, 0) + 1


class Reader:
    """An object that is read in pieces, each of which is a call."""

    PIECE = 64 * 1024

    def __init__(self, store: "Store", key: str, content: bytes) -> None:
        self.size = len(content)
        self.where = store.where(key)
        self._store, self._key, self._content = store, key, content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, self.size, self.PIECE):
            async with self._store.call("get_range", self._key):
                pass
            yield self._content[start : start + self.PIECE]


class Store:
    """One process's store."""

    def __init__(self, bucket: Bucket, border: Border | None = None) -> None:
        self.url = "memory:///world"
        self._bucket = bucket
        self._border = border or Open()

    async def put_new(self, key: str, data: bytes | Path | AsyncIterable[bytes]) -> bool:
        if not isinstance(data, bytes):
            raise TypeError("the engine stores new objects from bytes only")
        if len(data) > stores.NEW_BYTES:
            raise _too_large(self.where(key), stores.NEW_BYTES)
        async with self.call("put_new", stores.check_key(key)):
            kept = self._bucket.objects.get(key)
            if kept is None:
                self._bucket.write(key, data)
        if kept is not None and kept != data:
            text = "there is an object already, with other content; it is kept"
            raise stores.AlreadyStored(text, where=self.where(key))
        return kept is None

    async def put_stream(self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None) -> stores.Written:
        stores.check_key(key)
        content = bytearray()
        async for chunk in chunks:
            content += chunk
            if limit is not None and len(content) > limit:
                raise _too_large(self.where(key), limit)
        async with self.call("put_stream", key):
            self._bucket.write(key, bytes(content))
        return stores.Written(len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")

    async def get(self, key: str, limit: int) -> bytes:
        async with self.call("get", stores.check_key(key)):
            content = self._bucket.objects.get(key)
        if content is None:
            raise stores.NotStored("there is no such object", where=self.where(key))
        if len(content) > limit:
            raise _too_large(self.where(key), limit)
        return content

    async def open(self, key: str) -> "Reader":
        async with self.call("open", stores.check_key(key)):
            content = self._bucket.objects.get(key)
        if content is None:
            raise stores.NotStored("there is no such object", where=self.where(key))
        return Reader(self, key, content)

    async def exists(self, key: str) -> bool:
        async with self.call("exists", stores.check_key(key)):
            return key in self._bucket.objects

    async def list(self, prefix: str) -> AsyncGenerator[stores.Stored, None]:
        async with self.call("list", prefix):
            found = sorted(key for key in self._bucket.objects if key.startswith(prefix))
        for key in found:
            yield stores.Stored(key, len(self._bucket.objects[key]), math.inf)  # nothing grows old

    async def delete(self, prefix: str, *, limit: int = 10_000) -> int:
        if prefix.count("/") < 3:
            raise errors.StoreError(f"{prefix!r} is too wide to delete", remedy="Name cluster, namespace and uid.")
        async with self.call("delete", prefix):
            found = sorted(key for key in self._bucket.objects if key.startswith(prefix))[:limit]
            for key in found:
                del self._bucket.objects[key]
        return len(found)

    async def remove(self, keys: Sequence[str]) -> None:
        async with self.call("remove", ", ".join(map(stores.check_key, keys))):
            for key in keys:
                self._bucket.objects.pop(key, None)

    async def sweep_unfinished(self, prefix: str, before: float) -> int:
        return 0

    @contextlib.asynccontextmanager
    async def local_copy(self, key: str, digest: str, *, limit: int | None = None) -> AsyncIterator[Path]:
        content = await self.get(key, limit if limit is not None else stores.NEW_BYTES)
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise errors.StoreError("the bytes are not those of the digest", where=self.where(key))
        with tempfile.NamedTemporaryFile(prefix="taskfold-world-") as file:
            file.write(content)
            file.flush()
            yield Path(file.name)

    def where(self, key: str) -> str:
        return f"{self.url}/{key}"

    def call(self, verb: str, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        return self._border.crossing(f"store {verb}", key)


def _too_large(where: str, limit: int) -> stores.TooLarge:
    return stores.TooLarge(f"more than {limit:,} bytes", limit=limit, where=where)
