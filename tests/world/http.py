"""The world's API server behind a socket: for kopf, for readers that speak HTTP, for the shared suite.

Guarantees: requests get the very answers that `ApiServer.handle` gives; a watch is a stream of JSON lines that ends
with its subscription or after `timeoutSeconds`. Plain HTTP, on the loopback only, with no authentication.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from taskfold.effects import errors, transport
from tests.world import apiserver, faults, paths, refusals
from tests.world.transport import ExecEndpoint

BODY_BYTES = 64 << 20
"""More than the server takes: it is the one that refuses."""
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@contextlib.asynccontextmanager
async def serving(server: "apiserver.ApiServer", execs: ExecEndpoint | None = None) -> AsyncIterator[str]:
    """The server's URL, for the length of the block."""
    application = web.Application(client_max_size=BODY_BYTES)
    front = _Front(server, execs)
    application.router.add_route("*", "/{path:.*}", front.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        for watch in server.watches:
            watch.drop()
        await runner.cleanup()


class _Front:
    def __init__(self, server: "apiserver.ApiServer", execs: ExecEndpoint | None) -> None:
        self._server = server
        self._execs = execs

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket" and self._execs is not None:
            return await self._exec(request, self._execs)
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request)
        call = transport.Request(
            _VERBS.get(request.method, request.method.lower()),
            request.method,
            request.raw_path.partition("?")[0],
            "",
            list(request.query.items()),
            await request.read() or None,
            request.headers.get("Content-Type", "application/json"),
            request.headers.get("Accept", "application/json"),
        )
        return _response(self._server.handle(call))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        target = paths.Target.of(request.raw_path.partition("?")[0])
        if target is None:
            return web.Response(status=404, text="404 page not found")
        query = request.query
        try:
            watch = self._server.watch(
                target.resource,
                target.namespace,
                labels=query.get("labelSelector", ""),
                fields=query.get("fieldSelector", ""),
                since=query.get("resourceVersion", ""),
                bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
            )
        except refusals.Refusal as refusal:
            return _response(refusal.answer())
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seconds = float(query.get("timeoutSeconds") or 3600)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                async for event in watch:
                    await response.write(json.dumps(event).encode() + b"\n")
        watch.close()
        return response

    async def _exec(self, request: web.Request, execs: ExecEndpoint) -> web.StreamResponse:
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        try:
            socket = await execs.open(request.path, list(request.query.items()), offered, faults.Gate())
        except errors.ApiError as error:
            refusal = refusals.Refusal(error.status or 500, error.reason, error.problem, dict(error.details))
            return _response(refusal.answer())
        browser = web.WebSocketResponse(protocols=[socket.protocol] if socket.protocol else [], max_msg_size=0)
        await browser.prepare(request)

        async def outwards() -> None:
            while (message := await socket.receive()).type == aiohttp.WSMsgType.BINARY:
                await browser.send_bytes(message.data)
            await browser.close()

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(outwards())
            async for message in browser:
                await socket.send(message.data)
            sending.cancel()
            await socket.close()
        return browser


def _response(answer: transport.Answer) -> web.Response:
    headers = {key: value for key, value in answer.headers.items() if key != "Content-Type"}
    kind = answer.headers.get("Content-Type", "application/json").partition(";")[0]
    return web.Response(status=answer.status, body=answer.body, headers=headers, content_type=kind)
