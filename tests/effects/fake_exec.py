"""An API server on loopback with one pod: GET of it, and exec into it as a script that a test gives.

Speaks the v5 channel protocol from the server's side, so that a script can do what real servers do and what
broken ones do: split frames anywhere, close early, drop the connection, answer with odd statuses.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, test_utils, web

from taskfold.effects import client as api
from taskfold.effects import credentials
from taskfold.effects import exec as execs

PIN = execs.PodPin("ns", "pod", "uid-1", "main", 0, "node-1")


def pod(*, uid: str = "uid-1", restarts: int = 0, state: str = "running", reason: str = "") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": "pod", "uid": uid},
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Running" if state == "running" else "Failed",
            "containerStatuses": [
                {"name": "main", "restartCount": restarts, "state": {state: {"reason": reason} if reason else {}}}
            ],
        },
    }


def status(code: int = 0) -> bytes:
    """The final message as the API server writes it."""
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps(
        {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": causes},
        }
    ).encode()


def failure(message: str) -> bytes:
    return json.dumps({"status": "Failure", "reason": "InternalError", "message": message, "code": 500}).encode()


@dataclass
class Remote:
    """One exec, seen from the server."""

    socket: web.WebSocketResponse
    argv: list[str]
    transport: asyncio.Transport

    async def out(self, data: bytes, channel: int = 1) -> None:
        await self.socket.send_bytes(bytes([channel]) + data)

    async def end(self, code: int = 0) -> None:
        await self.out(status(code), 3)

    async def stdin(self) -> AsyncIterator[bytes]:
        """Until the half close."""
        async for message in self.socket:
            if message.type is not WSMsgType.BINARY:
                continue
            if message.data[:1] == b"\xff":
                return
            assert message.data[0] == 0
            assert len(message.data) <= execs.FRAME_BYTES
            yield message.data[1:]

    def drop(self) -> None:
        self.transport.abort()


Script = Callable[[Remote], Awaitable[None]]


async def succeed(remote: Remote) -> None:
    await remote.end()


@dataclass
class FakeCluster:
    """What a test arranges and what it can look at afterwards."""

    script: Script = succeed
    pod: dict[str, Any] | None = field(default_factory=pod)
    protocols: tuple[str, ...] = (execs.V5, execs.V4)
    refuse: tuple[int, dict[str, Any]] | None = None
    offered: list[str] = field(default_factory=list)
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    running: int = 0
    most: int = 0
    gets: int = 0

    async def get_pod(self, _: web.Request) -> web.Response:
        self.gets += 1
        if self.pod is None:
            return web.json_response({"reason": "NotFound", "message": 'pods "pod" not found'}, status=404)
        return web.json_response(self.pod)

    async def exec(self, request: web.Request) -> web.StreamResponse:
        self.offered.append(request.headers.get("Sec-WebSocket-Protocol", ""))
        if self.refuse is not None:
            return web.json_response(self.refuse[1], status=self.refuse[0])
        socket = web.WebSocketResponse(protocols=self.protocols, max_msg_size=0, timeout=1.0)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        self.sockets.append(socket)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.script(Remote(socket, request.query.getall("command"), request.transport))
        finally:
            self.running -= 1
        with contextlib.suppress(ConnectionError):
            await socket.close()
        return socket


@contextlib.asynccontextmanager
async def serving(cluster: FakeCluster, **options: Any) -> AsyncIterator[tuple[execs.Exec, str]]:
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods/pod", cluster.get_pod)
    app.router.add_get("/api/v1/namespaces/ns/pods/pod/exec", cluster.exec)
    async with test_utils.TestServer(app) as server:
        source = credentials.static(str(server.make_url("")).rstrip("/"))
        async with api.Client(source) as client:
            yield execs.Exec(client, **options), str(server.make_url(""))


def process(remote_argv: Callable[[list[str]], list[str]] = lambda argv: argv, chunk: int = 32 * 1024) -> Script:
    """Run argv as a local process, as a kubelet would: stdin with half close, output in messages of `chunk`
    bytes.
    """

    async def script(remote: Remote) -> None:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *remote_argv(remote.argv), stdin=pipe, stdout=pipe, stderr=pipe, limit=1 << 20
        )
        assert child.stdin is not None

        async def feed(stdin: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                async for data in remote.stdin():
                    stdin.write(data)
                    await stdin.drain()
            stdin.close()

        async def copy(stream: asyncio.StreamReader | None, channel: int) -> None:
            assert stream is not None
            with contextlib.suppress(ConnectionError):
                while data := await stream.read(chunk):
                    await remote.out(data, channel)

        feeding = asyncio.create_task(feed(child.stdin))
        try:
            await asyncio.gather(copy(child.stdout, 1), copy(child.stderr, 2))
            code = await child.wait()
        finally:
            feeding.cancel()
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        with contextlib.suppress(ConnectionError):
            await remote.end(code if code >= 0 else 128 - code)

    return script
