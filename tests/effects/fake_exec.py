"""An API server on loopback with one pod: GET of it, and exec into it as a script that a test gives.

Speaks the v5 channel protocol from the server's side, so that a script can do what real servers do and what
broken ones do: split frames anywhere, close early, drop the connection, answer with odd statuses.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, test_utils, web
from tests.world import sandbox as boxes

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
async def serving(
    cluster: FakeCluster,
    *,
    tls: tuple[ssl.SSLContext, bytes] | None = None,
    through: "Cutter | None" = None,
    **options: Any,
) -> AsyncIterator[tuple[execs.Exec, str]]:
    """`tls`: the server's context, and the certificate that the client trusts. `through`: what lies between them."""
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods/pod", cluster.get_pod)
    app.router.add_get("/api/v1/namespaces/ns/pods/pod/exec", cluster.exec)
    server = test_utils.TestServer(app, scheme="https" if tls else "http")
    await server.start_server(ssl=tls[0] if tls else None)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.close)
        url = server.make_url("")
        if through is not None:
            url = url.with_port(await stack.enter_async_context(through.between(url.port or 0)))
        login = credentials.Login(server=str(url).rstrip("/"), ca=tls[1] if tls else None)
        client = await stack.enter_async_context(api.Client(credentials.Source(lambda: login)))
        yield execs.Exec(client, **options), str(url)


@dataclass
class Cutter:
    """A wire that breaks after so many bytes in one direction, wherever that is in a frame. None: it holds."""

    to_client: int | None = None
    to_server: int | None = None
    broke: bool = False

    @contextlib.asynccontextmanager
    async def between(self, port: int) -> AsyncIterator[int]:
        """The port of its near end."""
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            ends = (writer, far_writer)
            for source, target, limit in ((reader, far_writer, "to_server"), (far_reader, writer, "to_client")):
                task = asyncio.create_task(self._carry(source, target, limit, ends))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in tasks:
                task.cancel()

    async def _carry(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        limit: str,
        ends: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                left = getattr(self, limit)
                if left is not None:
                    setattr(self, limit, max(0, left - len(data)))
                target.write(data[:left] if left is not None else data)
                if left is not None and left < len(data):
                    self.broke = True
                    break
                await target.drain()
        # what is written already still arrives; then both ends see a broken connection
        for end in ends:
            with contextlib.suppress(OSError):
                end.close()


def frame(payload: bytes) -> bytes:
    """A whole binary message as it goes over the wire from a server."""
    size = len(payload)
    header = bytes([0x82, size]) if size < 126 else bytes([0x82, 126]) + size.to_bytes(2, "big")
    return header + payload


def modelled(box: boxes.Container) -> Script:
    """Run argv in a modelled container, as a kubelet would."""

    async def script(remote: Remote) -> None:
        streams = boxes.Streams()
        process = box.execute(remote.argv, streams)

        async def feed() -> None:
            with contextlib.suppress(ConnectionError):
                async for data in remote.stdin():
                    await streams.stdin.write(data)
            streams.stdin.end()

        async def copy(pipe: Any, channel: int) -> None:
            while data := await pipe.read():
                await remote.out(data, channel)

        feeding = asyncio.create_task(feed())
        try:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(copy(streams.stdout, 1), copy(streams.stderr, 2))
                await remote.end(await process)
        finally:
            feeding.cancel()
            streams.cut()

    return script


def process(
    remote_argv: Callable[[list[str]], list[str]] = lambda argv: argv, chunk: int = 32 * 1024, cwd: Path | None = None
) -> Script:
    """Run argv as a local process, as a kubelet would: stdin with half close, output in messages of `chunk`
    bytes.
    """

    async def script(remote: Remote) -> None:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *remote_argv(remote.argv), stdin=pipe, stdout=pipe, stderr=pipe, limit=1 << 20, cwd=cwd
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
