"""What a run leaves behind, and the snapshots of tasks: objects under keys, in a folder or a bucket.

Guarantees: an object is there whole or not at all; `put_new` never replaces one; what was acknowledged is on
disk (fsync) where the store is a folder; memory stays flat whatever the size of an object; an error names the
object and what to do. It never invents a key: `run_prefix` and `snapshot_key` are the layout.

    StoreError
    ├── AlreadyStored   another object has this key
    ├── NotStored       no object has this key
    └── TooLarge        more bytes than the caller allowed
"""

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import obstore.exceptions
import obstore.store

from taskfold.effects import backends, errors, local_copies

if TYPE_CHECKING:
    from obstore import GetOptions

KEY_BYTES = 900
"""S3 allows 1,024; the rest is for the prefix in the store's URL."""
SEGMENT_BYTES = 240
"""File systems allow 255; obstore appends `#<number>` while it writes."""
NEW_BYTES = 32 * 1024 * 1024
"""Create-if-absent is one request and held in memory: meant for manifests and rows, not for bulk."""
PART_BYTES = 5 * 1024 * 1024
"""One part of a multipart upload, the least that S3 takes: three of them are in memory for each object that is written.
S3 takes 10,000, so 48 GiB an object.
"""
READ_BYTES = 2 * 1024 * 1024
"""One piece of an object that is read."""
CALL_SECONDS = 120.0
"""Limit of every single exchange with the store; a stream has one for each of its parts."""

_LEFTOVER = re.compile(r"#\d+$")


class AlreadyStored(errors.StoreError):
    """The key has an object with other bytes. The first writer wins."""


class NotStored(errors.StoreError):
    """There is no such object."""


class TooLarge(errors.StoreError):
    """The object has more bytes than `limit`."""

    def __init__(self, problem: str, *, limit: int, where: str = "", remedy: str = "") -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Stored:
    """An object of a listing. `size` in bytes. `modified`: seconds since 1970, by the store's clock."""

    key: str
    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class Written:
    """What a stream was: bytes and `sha256:<hex>` of them."""

    size: int
    digest: str


def run_prefix(cluster: str, namespace: str, uid: str, attempt: int) -> str:
    """Everything that one attempt of a run keeps stands under this prefix."""
    return check_key(f"{cluster}/{namespace}/{uid}/{attempt}", segments=4) + "/"


def snapshot_key(cluster: str, namespace: str, digest: str) -> str:
    """The task folder's snapshot, shared by its runs. `digest`: the task's, `sha256:<hex>` (C25)."""
    return check_key(f"{cluster}/{namespace}/tasks/{_hex(digest)}.tar", segments=4)


def check_key(key: str, *, segments: int | None = None) -> str:
    """Return `key` if every backend can hold it as it is; StoreError otherwise."""
    problem = _key_problem(key)
    if problem is None and segments is not None and key.count("/") != segments - 1:
        problem = f"has not {segments} segments"
    if problem:
        raise errors.StoreError(f"the key {key!r} {problem}", remedy="Use relative paths of plain names.")
    return key


def _key_problem(key: str) -> str | None:
    try:
        parts = [part.encode() for part in key.split("/")]
    except UnicodeEncodeError:
        return "is not UTF-8"
    if len(key.encode()) > KEY_BYTES:
        return f"is longer than {KEY_BYTES} bytes"
    if any(part in (b"", b".", b"..") for part in parts):
        return "has an empty, `.` or `..` segment"
    if any(len(part) > SEGMENT_BYTES for part in parts):
        return f"has a segment longer than {SEGMENT_BYTES} bytes"
    if not key.isprintable() or "\\" in key:
        return "has a character that is not printable, or a backslash"
    if any(_LEFTOVER.search(part) for part in key.split("/")):
        return "has a segment that ends with `#` and a number, which is kept for unfinished files"
    return None


def _hex(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or not re.fullmatch(r"[0-9a-f]{64}", value):
        raise errors.StoreError(f"{digest!r} is not a digest", remedy="Write sha256:<64 hex digits>.")
    return value


class Reader:
    """An object, read piece by piece: `async for chunk in reader`. Every piece is a request with a limit."""

    def __init__(self, store: "Store", key: str, size: int, etag: str | None) -> None:
        self.key = key
        self.where = store.where(key)
        self.size = size
        self._store = store
        self._etag = etag

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, self.size, READ_BYTES):
            end = min(start + READ_BYTES, self.size)
            yield await self._store.get_range(self.key, start, end, etag=self._etag)


class Store:
    """One store: a folder, or a prefix in a bucket.

    `url`: `file:///path` (made if it is not there), `s3://bucket/prefix`, `gs://…`, `az://…`; `memory:///`
    is for tests. `options`: obstore's settings of that backend (endpoint, region, …); credentials come from
    them or from the process's environment, never from the URL. `cache`: where `local_copy` keeps its files.
    StoreError when the settings are wrong; whether the store works is what `check` tells.
    """

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, str] | None = None,
        cache: local_copies.LocalCopies | None = None,
    ) -> None:
        self.url = url
        self._backend = backends.make(url, options or {})
        self._copies = cache or local_copies.LocalCopies()
        self._root: Path | None = None
        if isinstance(self._backend, obstore.store.LocalStore):
            self._root = Path(self._backend.prefix or "/")

    async def put_new(self, key: str, data: bytes | Path | AsyncIterable[bytes]) -> bool:
        """Store an object of at most NEW_BYTES unless its key is taken.

        True: written now. False: it was there with the same bytes (as after a request whose answer was lost).
        AlreadyStored: it was there with others; they stay. TooLarge, StoreError: nothing was written.
        """
        content = await self._content(check_key(key), data)
        try:
            async with self._call(key):
                await obstore.put_async(self._backend, key, content, mode="create", use_multipart=False)
        except AlreadyStored:
            if await self.get(key, limit=NEW_BYTES) == content:
                return False
            raise
        await self._sync(key)
        return True

    async def put_stream(self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None) -> Written:
        """Store an object of any size from a stream; it appears whole when the stream has ended.

        Replaces an object of that key: bulk stands under a nonce, or under its own digest. Nothing is stored
        when `chunks` raises (it passes through), when the caller is cancelled, or on more than `limit` bytes
        (TooLarge). On S3 invisible parts remain then: the bucket needs a rule that ends incomplete uploads.
        """
        digest, size = hashlib.sha256(), 0
        # Closed only at the end, never by `async with`: an unclosed writer publishes nothing.
        writer = obstore.open_writer_async(self._backend, check_key(key), buffer_size=PART_BYTES, max_concurrency=2)
        async for chunk in chunks:
            size += len(chunk)
            if limit is not None and size > limit:
                raise _too_large(self.where(key), limit)
            await local_copies.update(digest, chunk)
            async with self._call(key):
                await writer.write(chunk)
        async with self._call(key):
            await writer.close()
        await self._sync(key)
        return Written(size, f"sha256:{digest.hexdigest()}")

    async def get(self, key: str, limit: int) -> bytes:
        """The whole object, at most `limit` bytes. NotStored, TooLarge (nothing was read), StoreError."""
        async with self._call(check_key(key)):
            result = await obstore.get_async(self._backend, key)
            if result.meta["size"] > limit:
                raise _too_large(self.where(key), limit)
            return bytes(await result.bytes_async())

    async def open(self, key: str) -> Reader:
        """A stream of the object; if it is replaced meanwhile, StoreError, never a mixture. NotStored."""
        async with self._call(check_key(key)):
            meta = await obstore.head_async(self._backend, key)
        return Reader(self, key, meta["size"], meta["e_tag"])

    async def presigned(self, key: str, seconds: int) -> str | None:
        """An address where anybody who has it can read the object for so long; None: this store has no addresses."""
        if not isinstance(self._backend, obstore.store.S3Store | obstore.store.GCSStore | obstore.store.AzureStore):
            return None
        async with self._call(check_key(key)):
            return await obstore.sign_async(self._backend, "GET", key, timedelta(seconds=seconds))

    async def exists(self, key: str) -> bool:
        try:
            async with self._call(check_key(key)):
                await obstore.head_async(self._backend, key)
        except NotStored:
            return False
        return True

    async def list(self, prefix: str) -> AsyncGenerator[Stored, None]:
        """The objects under `prefix` (whole segments, ends with `/`), in no order."""
        pages = obstore.list(self._backend, _folder(prefix), chunk_size=1000)
        while True:
            async with self._call(prefix):
                page = await anext(pages, None)
            if page is None:
                return
            for meta in page:
                yield Stored(meta["path"], meta["size"], meta["last_modified"].timestamp())

    async def delete(self, prefix: str, *, limit: int = 10_000) -> int:
        """Delete at most `limit` objects under `prefix`, return how many: fewer than `limit` = none is left.

        A prefix of fewer than three segments is refused: no slip of a caller empties a namespace.
        """
        if _folder(prefix).count("/") < 2:
            raise errors.StoreError(f"{prefix!r} is too wide to delete", remedy="Name cluster, namespace and uid.")
        keys: list[str] = []
        async with contextlib.aclosing(self.list(prefix)) as found:
            async for stored in found:
                if len(keys) == limit:
                    break
                keys.append(stored.key)
        await self.remove(keys)
        if self._root is not None and len(keys) < limit:
            # Empty folders, and unfinished files of a killed process, which a listing does not show.
            await asyncio.to_thread(shutil.rmtree, self._root / prefix, ignore_errors=True)
        return len(keys)

    async def remove(self, keys: Sequence[str]) -> None:
        """Delete these objects; one that is not there is as good as deleted."""
        for start in range(0, len(keys), 1000):
            await self._delete([check_key(key) for key in keys[start : start + 1000]])

    async def sweep_unfinished(self, prefix: str, before: float) -> int:
        """Delete what killed processes left half-written under `prefix` before this time (seconds since 1970).

        Of a folder; a bucket has a rule for it (docs/store.md). Returns how many files went.
        """
        folder = _folder(prefix)
        if self._root is None:
            return 0
        async with self._call(prefix):
            return await asyncio.to_thread(_sweep_unfinished, self._root / folder, before)

    async def check(self) -> None:
        """Prove that objects can be written, read, deleted and *not* replaced. StoreError says what fails."""
        folder = f"taskfold-check/{secrets.token_hex(8)}/0/"
        try:
            await self.put_new(f"{folder}probe", b"first")
            with contextlib.suppress(AlreadyStored):
                await self.put_new(f"{folder}probe", b"second")
            kept = await self.get(f"{folder}probe", limit=64)
            await self.delete(folder)
        except NotStored as error:
            raise errors.StoreError(
                "a new object cannot be found", where=self.url, remedy="Check that the bucket exists."
            ) from error
        if kept != b"first":
            raise errors.StoreError(
                "an object was replaced although the request forbade it",
                where=self.url,
                remedy="Use a store that honours If-None-Match on writes: without it, attempts of a run "
                "could overwrite each other's results.",
            )

    @contextlib.asynccontextmanager
    async def local_copy(self, key: str, digest: str, *, limit: int | None = None) -> AsyncIterator[Path]:
        """`async with store.local_copy(key, digest) as path`: the object as a file, proven by its sha256.

        `digest`: `sha256:<hex>` of the object's bytes (`Written.digest`), not the task's digest. The file is
        for reading, and stays for the length of the block. TooLarge: more than `limit` bytes (default: what
        the cache holds). NotStored. StoreError: the bytes are not those of `digest`, or there is no room.
        """
        bound = self._copies.limit if limit is None else limit

        async def source() -> Reader:
            reader = await self.open(key)
            if reader.size > bound:
                raise _too_large(reader.where, bound)
            # Not pinned: another run may put the same snapshot meanwhile, and the digest proves the bytes.
            return Reader(self, key, reader.size, etag=None)

        async with self._copies.lease(_hex(digest), source) as path:
            yield path

    async def _content(self, key: str, data: bytes | Path | AsyncIterable[bytes]) -> bytes:
        if isinstance(data, Path):
            data = await asyncio.to_thread(_read, data, NEW_BYTES + 1)
        if not isinstance(data, bytes):
            parts = bytearray()
            async for chunk in data:
                parts += chunk
                if len(parts) > NEW_BYTES:
                    break
            data = bytes(parts)
        if len(data) > NEW_BYTES:
            raise _too_large(self.where(key), NEW_BYTES)
        return data

    async def get_range(self, key: str, start: int, end: int, *, etag: str | None = None) -> bytes:
        """The bytes from `start` to `end`, of the object with this `etag` where one is given."""
        options: GetOptions = {"range": (start, end)}
        if etag is not None:
            options["if_match"] = etag
        async with self._call(key):
            result = await obstore.get_async(self._backend, key, options=options)
            content = bytes(await result.bytes_async())
        if len(content) != end - start:
            raise errors.StoreError("the object ended early", where=self.where(key), remedy="Read it again.")
        return content

    async def _delete(self, keys: Sequence[str]) -> None:
        try:
            async with self._call(keys[0]):
                await obstore.delete_async(self._backend, [*keys])
        except NotStored:  # somebody else deletes the same: the local backend stops at the first missing one
            for key in keys:
                with contextlib.suppress(NotStored):
                    async with self._call(key):
                        await obstore.delete_async(self._backend, key)

    async def _sync(self, key: str) -> None:
        if self._root is not None:
            async with self._call(key):
                await asyncio.to_thread(_fsync, self._root, key)

    def where(self, key: str) -> str:
        return f"{self.url.rstrip('/')}/{key}"

    @contextlib.asynccontextmanager
    async def _call(self, key: str) -> AsyncIterator[None]:
        """One exchange with the store: within its limit, and with its errors in our words."""
        where = self.where(key)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                yield
        except TimeoutError as error:
            raise errors.StoreError(
                f"no answer for {CALL_SECONDS:.0f} s",
                where=where,
                remedy="Check that the store is reachable.",
            ) from error
        except FileNotFoundError as error:
            raise NotStored("there is no such object", where=where) from error
        except obstore.exceptions.AlreadyExistsError as error:
            raise AlreadyStored("there is an object already, with other content; it is kept", where=where) from error
        except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
            raise errors.StoreError(
                backends.text(error), where=where, remedy="Give the operator's identity read, write and delete there."
            ) from error
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise errors.StoreError(backends.text(error), where=where, remedy=backends.remedy(self._root)) from error


def _folder(prefix: str) -> str:
    if not prefix.endswith("/"):
        raise errors.StoreError(f"the prefix {prefix!r} does not end with /")
    return check_key(prefix[:-1])


def _too_large(where: str, limit: int) -> TooLarge:
    return TooLarge(f"more than {limit:,} bytes", limit=limit, where=where)


def _sweep_unfinished(folder: Path, before: float) -> int:
    swept = 0
    for parent, _, files in os.walk(folder):
        for path in (Path(parent, name) for name in files if _LEFTOVER.search(name)):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
                    swept += 1
    return swept


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        return file.read(limit)


def _fsync(root: Path, key: str) -> None:
    """The file, then every folder up to the root: their entries may be new as well."""
    path = root / key
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path == root:
            return
        path = path.parent
