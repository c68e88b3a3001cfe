"""One stored object as an answer: in pieces, whole or visibly not.

Guarantees: the length is said first and the digest where it is on record, so that an answer that ends early is an error
at the reader; memory is a piece or two, whatever the object's size and the reader's speed; a reader that takes nothing
for a while is hung up on. The API server ends ordinary requests after a minute (`--request-timeout`), so a range may be
asked for: large files are read in several requests.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web

from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.reading import answers

PIECE_BYTES = 1024 * 1024
WRITE_BYTES = 128 * 1024
SLOW_SECONDS = 60.0
"""Within this time a reader takes the next WRITE_BYTES, or it is given up."""
_RANGE = re.compile(r"bytes=(\d{0,20})-(\d{0,20})")


@dataclass(frozen=True)
class Span:
    """Which bytes: from `start` up to but not including `end`. `whole`: all, and nobody asked for less."""

    start: int
    end: int
    whole: bool


def span(header: str | None, size: int) -> Span:
    """What a Range header asks for (RFC 9110). One range is served; what is none of ours is ignored, as allowed there.

    Refusal 416 if it begins behind the end.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or not (match[1] or match[2]):
        return Span(0, size, whole=True)
    if match[1]:
        start, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    else:
        start, end = max(0, size - int(match[2])), size
    if start >= size or start >= end:
        text = f"the file has {size} bytes, and {header} is not among them"
        raise answers.Refusal(416, text, headers={"Content-Range": f"bytes */{size}"})
    return Span(start, end, whole=False)


async def pieces(store: stores.Store, key: str, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes of an object, one request to the store for each piece. StoreError, also if it ends early."""
    for at in range(start, end, PIECE_BYTES):
        yield await store.get_range(key, at, min(at + PIECE_BYTES, end))


async def digest(store: stores.Store, key: str, size: int) -> str:
    """The sha256 of a small object, whose digest is on no record."""
    found = hashlib.sha256()
    async for piece in pieces(store, key, 0, size):
        found.update(piece)
    return found.hexdigest()


async def send(request: web.Request, store: stores.Store, key: str, size: int, sha256: str) -> web.StreamResponse:
    """The object, or the part that the request's Range header asks for."""
    wanted = span(request.headers.get("Range"), size)
    tag = f'"sha256-{sha256}"'
    if not wanted.whole and request.headers.get("If-Range", tag) != tag:
        wanted = Span(0, size, whole=True)
    source = pieces(store, key, wanted.start, wanted.end)
    try:
        first = await anext(source, b"")  # a store that fails at once is an answer, not a broken stream
    except errors.StoreError as error:
        raise answers.Refusal(503, f"the store does not answer: {error}", retry_seconds=5) from error
    response = web.StreamResponse(status=200 if wanted.whole else 206)
    response.content_length = wanted.end - wanted.start
    response.content_type = "application/json" if key.endswith(".json") else "application/octet-stream"
    response.headers["ETag"] = tag
    response.headers["Repr-Digest"] = f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if not wanted.whole:
        response.headers["Content-Range"] = f"bytes {wanted.start}-{wanted.end - 1}/{size}"
    await response.prepare(request)
    async with broken_off_on_error(request):
        await write(response, first)
        async for piece in source:
            await write(response, piece)
        await response.write_eof()
    return response


async def write(response: web.StreamResponse, data: bytes) -> None:
    """As fast as the reader takes it, in small parts, so that little waits in buffers. TimeoutError: he is too slow."""
    view = memoryview(data)
    for start in range(0, len(view), WRITE_BYTES):
        async with asyncio.timeout(SLOW_SECONDS):
            await response.write(view[start : start + WRITE_BYTES])


class broken_off_on_error:  # noqa: N801 - reads as a phrase
    """What has begun and cannot be ended is cut, so that nobody takes it for the whole."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and self._request.transport is not None:
            self._request.transport.abort()
