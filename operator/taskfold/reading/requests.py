"""The requests of this API, from the caller's name to the answer: who, may he, where, what.

GET /apis/results.taskfold.dev/v1alpha1/namespaces/NS/{taskruns,verifierruns}/NAME/files          the index
                                                                                 …/files/KEY      one stored object
                                                                                 …/log            texts
?attempt=N (all), ?presigned=true (an object), ?source=agent|entrypoint|verifier&step=NAME&tailBytes=N (log)
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from aiohttp import web

from taskfold.api import results
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.reading import answers, discovery, front_proxy, index, kept, logs, review, sending, turns

HEALTH = "/healthz"
_RUN = discovery.ROOT + "/" + results.VERSION + "/namespaces/{namespace}/{resource:taskruns|verifierruns}/{name}"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What the handlers need.

    `trusted`: what the cluster publishes. `verified`: whether the certificate of a request's connection counts.
    """

    trusted: Callable[[], front_proxy.Trust]
    verified: Callable[[web.Request], bool]
    reviews: review.Reviews
    runs: kept.Runs
    store: stores.Store
    indexes: index.Indexes
    turns: turns.Turns
    threads: Executor
    presigned_seconds: int


def application(parts: Parts) -> web.Application:
    """The routes."""
    made = web.Application(middlewares=[_refusals], client_max_size=1024)
    handlers = Handlers(parts)
    routes: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
        HEALTH: handlers.health,
        discovery.ROOT: handlers.group,
        f"{discovery.ROOT}/{results.VERSION}": handlers.resources,
        "/openapi/{version:v2|v3}": handlers.openapi,
        f"{_RUN}/files": handlers.files,
        _RUN + "/files/{key:.+}": handlers.file,
        f"{_RUN}/log": handlers.texts,
    }
    for path, handler in routes.items():
        made.router.add_get(path, handler, allow_head=False)
    return made


class Handlers:
    """One request each."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def health(self, _: web.Request) -> web.Response:
        """For the kubelet, which has no certificate."""
        response = web.Response(text="ok")
        response.force_close()
        return response

    async def group(self, request: web.Request) -> web.Response:
        self._caller(request)
        return answers.document(discovery.group())

    async def resources(self, request: web.Request) -> web.Response:
        self._caller(request)
        return answers.document(discovery.resources())

    async def openapi(self, request: web.Request) -> web.Response:
        self._caller(request)
        return answers.document(discovery.openapi(request.match_info["version"]))

    async def files(self, request: web.Request) -> web.StreamResponse:
        await self._allowed(request, "files")
        return answers.document((await self._index(request))[1].document)

    async def file(self, request: web.Request) -> web.StreamResponse:
        caller = await self._allowed(request, "files")
        place, found = await self._index(request)
        file = found.files.get(request.match_info["key"])
        if file is None:
            raise answers.Refusal(404, f"{place.kind} {place.name} has no such file; …/files lists what there is")
        if request.query.get("presigned") == "true":
            return await self._presigned(place, file)
        with self._parts.turns.turn(caller.name):
            key = place.prefix + file.key
            try:
                sha256 = file.sha256 or await sending.digest(self._parts.store, key, file.size)
            except errors.StoreError as error:
                raise answers.Refusal(503, f"the store does not answer: {error}", retry_seconds=5) from error
            return await sending.send(request, self._parts.store, key, file.size, sha256)

    async def texts(self, request: web.Request) -> web.StreamResponse:
        caller = await self._allowed(request, "log")
        place, found = await self._index(request)
        step = request.query.get("step") or place.step
        sources, tail = _sources(request), _number(request, "tailBytes", 0, logs.TOTAL_BYTES)
        with self._parts.turns.turn(caller.name):
            async with contextlib.aclosing(self._printed(place, found, sources, step, tail)) as parts:
                try:
                    first = await anext(parts, b"")  # what fails at once is an answer, not a broken stream
                except errors.StoreError as error:
                    raise answers.Refusal(503, f"the store does not answer: {error}", retry_seconds=5) from error
                except errors.TransferError as error:
                    raise answers.Refusal(500, f"an archive is damaged: {error}") from error
                response = web.StreamResponse()
                response.content_type, response.charset = "text/plain", "utf-8"
                response.headers["Cache-Control"] = "no-store"
                response.headers["X-Content-Type-Options"] = "nosniff"
                await response.prepare(request)
                async with sending.broken_off_on_error(request):
                    await sending.write(response, first)
                    async for part in parts:
                        await sending.write(response, part)
                    await response.write_eof()
            return response

    async def _printed(
        self,
        place: kept.Place,
        found: index.Index,
        sources: frozenset[results.Source],
        step: str | None,
        tail: int | None,
    ) -> AsyncGenerator[bytes, None]:
        """The texts of all archives, and a line where they were too much."""
        sent = 0
        for file in found.archives(step):
            stored = logs.Archive(self._parts.store, place.prefix + file.key, file.size)
            want = functools.partial(results.printed, of=file.of, sources=sources, step=step)
            async with contextlib.aclosing(logs.texts(stored, want, tail, self._parts.threads)) as parts:
                async for part in parts:
                    sent += len(part)
                    if sent > logs.TOTAL_BYTES:
                        yield b"\n(there is more: read the archives)\n"
                        return
                    yield part

    async def _presigned(self, place: kept.Place, file: index.File) -> web.Response:
        seconds = self._parts.presigned_seconds
        try:
            url = await self._parts.store.presigned(place.prefix + file.key, seconds) if seconds else None
        except errors.StoreError as error:
            raise answers.Refusal(503, f"the store gives no address: {error}", retry_seconds=5) from error
        if url is None:
            why = "the store is no bucket" if seconds else "the operator's setting reading.presignedSeconds is 0"
            raise answers.Refusal(400, f"there are no presigned addresses here: {why}; read the file itself")
        body = {
            "kind": "PresignedFile",
            "apiVersion": results.GROUP_VERSION,
            "key": file.key,
            "url": url,
            "expiresSeconds": seconds,
            "bytes": file.size,
            "sha256": file.sha256 or None,
        }
        return answers.document(body, headers={"Cache-Control": "no-store"})

    def _caller(self, request: web.Request) -> front_proxy.Caller:
        certificate = None
        if request.transport is not None and self._parts.verified(request):
            certificate = request.transport.get_extra_info("peercert")
        return front_proxy.caller(self._parts.trusted(), certificate, request.headers)

    async def _allowed(self, request: web.Request, subresource: str) -> front_proxy.Caller:
        caller, at = self._caller(request), request.match_info
        if not kept.is_name(at["namespace"]) or not kept.is_name(at["name"]):
            raise answers.Refusal(404, "there is no such run: a part of the path is no name")
        wish = review.Wish(at["namespace"], at["resource"], subresource, at["name"])
        await self._parts.reviews.allow(caller, wish)
        return caller

    async def _index(self, request: web.Request) -> tuple[kept.Place, index.Index]:
        at, attempt = request.match_info, _number(request, "attempt", 1, 1_000_000)
        place = await self._parts.runs.place(at["resource"], at["namespace"], at["name"], attempt)
        return place, await self._parts.indexes.of(place)


def _sources(request: web.Request) -> frozenset[results.Source]:
    text = request.query.get("source")
    if text is None:
        return frozenset(results.Source)
    try:
        return frozenset({results.Source(text)})
    except ValueError:
        known = ", ".join(results.Source)
        raise answers.Refusal(400, f"source is {text!r}, and it must be one of {known}") from None


def _number(request: web.Request, name: str, low: int, high: int) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and low <= int(text) <= high):
        raise answers.Refusal(400, f"{name} is {text!r}, and it must be a number from {low} to {high}")
    return int(text)


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every error as a Status, as long as nothing else was sent."""
    try:
        return await handler(request)
    except answers.Refusal as refusal:
        return refusal.response()
    except web.HTTPException as error:
        return answers.Refusal(error.status, f"{request.method} {request.path}: {error.reason}").response()
    except (errors.EffectError, TimeoutError, ConnectionError) as error:
        # A stream that has begun: the connection is cut already, and no answer can follow.
        log.warning("an answer was broken off: %s: %s", type(error).__name__, error)
        raise ConnectionResetError(str(error)) from error
