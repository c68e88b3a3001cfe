"""WebSockets through the front: what the model's sandboxes say arrives over a real connection."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import aiohttp
import pytest

from taskfold.effects import credentials, errors
from taskfold.effects import transport as transports
from tests.world import apiserver, faults, http

PROTOCOL = "v5.channel.k8s.io"


class Echo:
    """A socket that gives back each frame, and ends after `limit` of them."""

    protocol = PROTOCOL
    close_code: int | None = None

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    async def receive(self) -> aiohttp.WSMessage:
        if self._limit == 0:
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)
        self._limit -= 1
        return await self._frames.get()

    async def send(self, frame: bytes | memoryview) -> None:
        await self._frames.put(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, bytes(frame), None))

    async def ping(self) -> None: ...

    async def pong(self, message: bytes) -> None: ...

    async def close(self) -> None: ...

    def abort(self) -> None: ...


class Endpoint:
    """Opens an echo for one pod; no other is there."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, transports.Query, Sequence[str]]] = []

    async def open(
        self, path: str, query: transports.Query, protocols: Sequence[str], gate: faults.Gate
    ) -> transports.Socket:
        self.asked.append((path, query, protocols))
        if "/pods/here/" not in path:
            raise errors.NotFound('pods "gone" not found', status=404, reason="NotFound")
        return Echo(2)


async def opened(wire: transports.Http, url: str, pod: str) -> transports.Socket:
    login = await credentials.static(url).current()
    path = f"/api/v1/namespaces/team/pods/{pod}/exec"
    return await wire.websocket(login, path, [("command", "a b"), ("command", "ü")], [PROTOCOL], "exec")


async def test_frames_go_both_ways_until_the_sandbox_ends() -> None:
    endpoint, wire = Endpoint(), transports.Http(connect_seconds=5, request_seconds=5, user_agent="test")
    server = apiserver.ApiServer(lambda: datetime.now(UTC))
    async with asyncio.timeout(30), http.serving(server, endpoint) as url:
        socket = await opened(wire, url, "here")
        assert socket.protocol == PROTOCOL
        for frame in (b"one", b"\x00\xff"):
            await socket.send(frame)
            assert (await socket.receive()).data == frame
        assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        await socket.close()
        await wire.close()
    ((path, query, protocols),) = endpoint.asked
    assert (path, list(query)) == ("/api/v1/namespaces/team/pods/here/exec", [("command", "a b"), ("command", "ü")])
    assert list(protocols) == [PROTOCOL]


async def test_a_refused_handshake_keeps_its_reason() -> None:
    wire = transports.Http(connect_seconds=5, request_seconds=5, user_agent="test")
    server = apiserver.ApiServer(lambda: datetime.now(UTC))
    async with asyncio.timeout(30), http.serving(server, Endpoint()) as url:
        with pytest.raises(errors.NotFound, match='pods "gone" not found'):
            await opened(wire, url, "gone")
        await wire.close()
