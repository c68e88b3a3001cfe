"""What a run left, read through the API server: an index, texts, and stored files proven by their digests.

Guarantees: a file is delivered whole, with the size and the sha256 that the index names, or not at all; it is read in
pieces, because the API server ends ordinary requests after a minute, and a piece that is cut goes on where it was cut;
what was there from an earlier call is not read again. Memory is a chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote, urlencode

import aiohttp

from taskfold.api import results
from taskfold.effects import client as api
from taskfold.effects import credentials, errors, transport

PIECE_BYTES = 32 * 1024 * 1024
"""A piece at 1 MiB/s is there well within the API server's minute; one that is not goes on where it ended."""
CHUNK_BYTES = 256 * 1024
TRIES = 6
"""In a row without a byte."""
PAUSE_SECONDS = 0.5
SILENT_SECONDS = 70.0
INDEX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Subject:
    """Whose results. `resource`: taskruns or verifierruns. `attempt` None: the last one."""

    resource: str
    namespace: str
    name: str
    attempt: int | None = None

    def path(self, subresource: str, key: str = "") -> str:
        resource = api.Resource(results.GROUP, results.VERSION, self.resource)
        base = resource.path(self.namespace, self.name, subresource)
        return f"{base}/{quote(key)}" if key else base

    @property
    def where(self) -> str:
        return f"results of {self.resource.removesuffix('s')} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Stored:
    """A file of the index. `sha256` empty: not on record, the answer's own counts."""

    key: str
    size: int
    sha256: str = ""


class NotServed(errors.NotFound):
    """The cluster has no results API."""


class Results:
    """`async with Results(login, subject) as results:`"""

    def __init__(self, login: credentials.Source, subject: Subject) -> None:
        self.subject = subject
        self._login = login
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=SILENT_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout, headers={"User-Agent": "taskfold-cli"})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def index(self) -> api.Json:
        """What is kept. ApiError: NotServed, NotFound, Conflict (not finished), Forbidden, …"""
        content = await self._whole(self.subject.path("files"), INDEX_BYTES)
        found = json.loads(content)
        if not isinstance(found, dict) or found.get("kind") != results.KINDS["files"]:
            raise errors.Unavailable("the answer is no index", sent=True, where=self.subject.where)
        return found

    async def texts(
        self, source: results.Source | None, step: str | None, tail: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Output of agent, entrypoint and verifier. TransferError if it ends early."""
        wanted = {"source": source, "step": step, "tailBytes": tail}
        query = {key: str(value) for key, value in wanted.items() if value is not None}
        try:
            async with self._get(self.subject.path("log"), query) as response:
                async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Truncated(f"the answer ended early: {_text(error)}", where=self.subject.where) from error

    async def fetch(self, stored: Stored, target: Path) -> None:
        """The file into `target`. What of it is there already counts as its beginning.

        DigestMismatch: it is not what the index says; nothing is left then. Truncated: it stays as far as it came.
        """
        digest = hashlib.sha256()
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "r+b") as file:
                at = await asyncio.to_thread(_hashed, file, digest, stored.size)
                expected = await self._pieces(stored, file, digest, at)
            if digest.hexdigest() != expected:
                problem = f"{stored.key} has another sha256 than the one on record"
                raise errors.DigestMismatch(problem, where=self.subject.where, remedy="Read it again.")
        except errors.DigestMismatch:
            await asyncio.to_thread(target.unlink, missing_ok=True)
            raise

    async def _pieces(self, stored: Stored, file: BinaryIO, digest: Any, at: int) -> str:
        """From `at` to the end; the sha256 that it ought to have."""
        expected, failed = stored.sha256, 0
        while at < stored.size or not expected:
            before = at
            try:
                async with contextlib.aclosing(self._piece(stored, at)) as piece:
                    async for chunk, promised in piece:
                        expected = expected or promised
                        at += len(chunk)
                        if at > stored.size:
                            problem = f"{stored.key} is longer than the {stored.size} bytes on record"
                            raise errors.DigestMismatch(problem, where=self.subject.where)
                        digest.update(chunk)
                        file.write(chunk)
                if not expected:
                    raise errors.DigestMismatch(f"{stored.key} comes without a digest", where=self.subject.where)
            except (errors.Unavailable, errors.TooManyRequests, errors.Truncated) as error:
                failed = 1 if at > before else failed + 1
                if failed >= TRIES:
                    raise
                wait = getattr(error, "retry_after", None) or PAUSE_SECONDS * failed
                await asyncio.sleep(min(10.0, wait))
        return expected

    async def _piece(self, stored: Stored, at: int) -> AsyncGenerator[tuple[bytes, str], None]:
        """Chunks from `at` on, each with the digest of the whole file. Truncated: it went on, and ended early."""
        end = min(at + PIECE_BYTES, stored.size)
        headers = {"Range": f"bytes={at}-{end - 1}"} if end > at else {}
        try:
            async with self._get(self.subject.path("files", stored.key), {}, headers) as response:
                tag = response.headers.get("ETag", "").strip('"').removeprefix("sha256-")
                if at and response.status != 206:
                    raise errors.BadRequest("the server has no ranges", where=self.subject.where)
                if stored.sha256 and tag != stored.sha256:
                    problem = f"{stored.key} is another file by now"
                    raise errors.DigestMismatch(problem, where=self.subject.where, remedy="Start again.")
                yield b"", tag
                async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                    yield chunk, tag
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Truncated(f"the answer ended early: {_text(error)}", where=self.subject.where) from error

    async def _whole(self, path: str, limit: int) -> bytes:
        failed = 0
        while True:
            found = bytearray()
            try:
                async with self._get(path, {}) as response:
                    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                        found += chunk
                        if len(found) > limit:
                            raise errors.LimitExceeded(f"more than {limit:,} bytes", where=self.subject.where)
                return bytes(found)
            except (errors.Unavailable, errors.TooManyRequests, aiohttp.ClientError, TimeoutError, OSError) as error:
                failed += 1
                if failed < 3:
                    await asyncio.sleep(PAUSE_SECONDS * failed)
                    continue
                if isinstance(error, errors.EffectError):
                    raise
                raise errors.Unavailable(_text(error), sent=True, where=self.subject.where) from error

    @contextlib.asynccontextmanager
    async def _get(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("used outside of its `async with`")
        login = await self._login.current()
        attempt = {"attempt": str(self.subject.attempt)} if self.subject.attempt is not None else {}
        text = urlencode({**query, **attempt})
        async with self._session.get(
            f"{login.server}{path}{'?' + text if text else ''}",
            headers={**login.headers, "Accept": "*/*", "Accept-Encoding": "identity", **(headers or {})},
            ssl=login.ssl if login.ssl is not None else True,
            server_hostname=login.server_name,
            proxy=login.proxy,
        ) as response:
            if response.status >= 400:
                raise self._error(response, await response.content.read(1 << 16))
            yield response

    def _error(self, response: aiohttp.ClientResponse, body: bytes) -> errors.ApiError:
        error = transport.Answer(response.status, body, response.reason or "", response.headers).error()
        if isinstance(error, errors.NotFound) and error.details.get("group") != results.GROUP:
            error = NotServed("this cluster has no results API", status=404, reason="NotFound")
        error.where = self.subject.where
        return error


def _hashed(file: BinaryIO, digest: Any, size: int) -> int:
    """What of the file is there, hashed; it stands at its end then."""
    at = 0
    while chunk := file.read(min(CHUNK_BYTES, size - at)):
        digest.update(chunk)
        at += len(chunk)
    file.truncate(at)
    return at


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
