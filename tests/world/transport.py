"""A transport that leads to the world's API server instead of a network, through the gate of one process."""

from collections.abc import Sequence
from typing import Protocol

from taskfold.effects import credentials, errors, transport
from tests.world import apiserver, faults, paths


class ExecEndpoint(Protocol):
    """Where WebSockets lead."""

    async def open(
        self, path: str, query: transport.Query, protocols: Sequence[str], gate: faults.Gate
    ) -> transport.Socket:
        """An `ApiError` or WSServerHandshakeError if it is refused. Its frames pass `gate` as `exec frame`."""
        ...


class MemoryTransport:
    """`api.Client(source(), over=lambda: MemoryTransport(server, gate))`."""

    def __init__(
        self, server: "apiserver.ApiServer", gate: faults.Gate | None = None, execs: ExecEndpoint | None = None
    ) -> None:
        self._server = server
        self._gate = gate or faults.Gate()
        self._execs = execs

    async def request(self, login: credentials.Credentials, request: transport.Request) -> transport.Answer:
        try:
            call = await self._gate.before(name(request), request.where)
            answer = self._server.handle(request)
            await self._gate.after(call)
        except faults.Refused as refused:
            return refused.answer
        return answer

    async def websocket(
        self,
        login: credentials.Credentials,
        path: str,
        query: transport.Query,
        protocols: Sequence[str],
        where: str,
    ) -> transport.Socket:
        if self._execs is None:
            raise errors.NotFound("this world has no sandboxes", status=404)
        try:
            call = await self._gate.before("exec open", where)
            socket = await self._execs.open(path, query, protocols, self._gate)
            await self._gate.after(call)
        except faults.Refused as refused:
            raise refused.answer.error() from None
        return socket

    async def close(self) -> None:
        """Nothing is open."""


def name(request: transport.Request) -> str:
    """`verb plural[/subresource]`, from the verb and the path."""
    target = paths.Target.of(request.path)
    if target is None:
        return request.verb
    return f"{request.verb} {target.resource.plural}{'/' if target.subresource else ''}{target.subresource}"


class Known(credentials.Source):
    """Credentials that need no reading: no thread, no clock."""

    def __init__(self, login: credentials.Credentials) -> None:
        super().__init__(lambda: credentials.Login(server=login.server))
        self._known = login

    async def current(self) -> credentials.Credentials:
        return self._known

    async def renew(self, refused: credentials.Credentials) -> credentials.Credentials:
        return self._known


def source() -> credentials.Source:
    """Credentials of the one user of the world."""
    return Known(credentials.Credentials("http://world.invalid", None))
