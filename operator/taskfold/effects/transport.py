"""How a request gets to the API server and its answer back: the only place that opens connections to it.

Guarantees: an answer is handed over as it came, whatever its status; what cannot be answered is `Unavailable`, and says
whether the server may have seen the request. A transport never repeats anything and knows no objects. `Http` is the
real one; any other that keeps to `Transport` serves the same client.
"""

import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
import yarl

from taskfold.effects import credentials, errors

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `verb` and `where` are for people and counters; they are not sent."""

    verb: str
    method: str
    path: str
    where: str
    query: Query = ()
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said, whatever it was."""

    status: int
    body: bytes
    phrase: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def error(self) -> errors.ApiError:
        """The typed error of a status of 400 or more."""
        return _error(self.status, self.phrase, self.headers, self.body)


class Socket(Protocol):
    """An open WebSocket. Errors are aiohttp's `ClientError` and OSError."""

    @property
    def protocol(self) -> str | None:
        """The chosen subprotocol."""
        ...

    @property
    def close_code(self) -> int | None:
        """Why the connection ended, once it has."""
        ...

    async def receive(self) -> aiohttp.WSMessage:
        """The next message; a type of CLOSE, CLOSED, CLOSING or ERROR ends them."""
        ...

    async def send(self, frame: bytes | memoryview) -> None:
        """One binary message; waits while the send buffer is full."""
        ...

    async def ping(self) -> None: ...

    async def pong(self, message: bytes) -> None: ...

    async def close(self) -> None: ...

    def abort(self) -> None:
        """Drop the connection at once, whatever is still to be sent."""
        ...


class Transport(Protocol):
    """Requests and WebSockets to one API server."""

    async def request(self, login: credentials.Credentials, request: Request) -> Answer:
        """`Unavailable` if there is no whole answer."""
        ...

    async def websocket(
        self, login: credentials.Credentials, path: str, query: Query, protocols: Sequence[str], where: str
    ) -> Socket:
        """An upgraded connection. An `ApiError` if the server refused, WSServerHandshakeError if it is no WebSocket."""
        ...

    async def close(self) -> None: ...


class Http:
    """The real transport: one aiohttp session."""

    def __init__(self, *, connect_seconds: float, request_seconds: float, user_agent: str) -> None:
        self._timeout = aiohttp.ClientTimeout(total=request_seconds, sock_connect=connect_seconds)
        # Connections are bounded by the client and by `effects.exec`: a hundred open execs must not starve calls.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
            headers={"User-Agent": user_agent},
            raise_for_status=_raise_typed,  # for WebSockets, which take no such argument of their own
            auto_decompress=True,
        )

    async def request(self, login: credentials.Credentials, request: Request) -> Answer:
        headers = {"Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            async with self._session.request(
                request.method,
                _url(login, request.path, request.query),
                data=request.body,
                timeout=self._timeout,
                raise_for_status=False,
                **_connection(login, headers),
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error, login.server, request.where) from error
        return Answer(response.status, body, response.reason or "", response.headers)

    async def websocket(
        self, login: credentials.Credentials, path: str, query: Query, protocols: Sequence[str], where: str
    ) -> "HttpSocket":
        try:
            socket = await self._session.ws_connect(
                _url(login, path, query),
                protocols=protocols,
                autoping=False,
                autoclose=True,
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                # The API server answers 406 to an upgrade that accepts JSON only.
                **_connection(login, {"Accept": "*/*"}),
            )
        except aiohttp.WSServerHandshakeError:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error, login.server, where) from error
        return HttpSocket(socket)

    async def close(self) -> None:
        await self._session.close()


class HttpSocket:
    """aiohttp's WebSocket, with a way to drop it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    @property
    def protocol(self) -> str | None:
        return self._socket.protocol

    @property
    def close_code(self) -> int | None:
        return self._socket.close_code

    async def receive(self) -> aiohttp.WSMessage:
        message: aiohttp.WSMessage = await self._socket.receive()
        return message

    async def send(self, frame: bytes | memoryview) -> None:
        # aiohttp copies and masks any buffer, and waits here when its send buffer is full
        await self._socket.send_frame(frame, aiohttp.WSMsgType.BINARY)  # type: ignore[arg-type]

    async def ping(self) -> None:
        await self._socket.ping()

    async def pong(self, message: bytes) -> None:
        await self._socket.pong(message)

    async def close(self) -> None:
        await self._socket.close()

    def abort(self) -> None:
        # aiohttp has no public abort; close() would wait for a send buffer that nobody empties.
        connection = self._socket._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


async def _raise_typed(response: aiohttp.ClientResponse) -> None:
    """The answer to a refused WebSocket handshake keeps its Status object this way."""
    if response.status >= 400:
        raise _error(response.status, response.reason or "", response.headers, await response.read())


def _error(status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> errors.ApiError:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        answer = {"message": body[:500].decode(errors="replace").strip()}
    reason = str(answer.get("reason") or phrase)
    message = str(answer.get("message") or phrase or f"HTTP status {status}")
    details = answer.get("details") or {}
    retry_after = _seconds(headers.get("Retry-After"), details.get("retryAfterSeconds"))
    if status >= 500:
        return errors.Unavailable(
            message, sent=True, status=status, reason=reason, retry_after=retry_after, details=details
        )
    kinds: dict[int, type[errors.ApiError]] = {
        401: errors.Unauthorized,
        403: errors.Forbidden,
        404: errors.NotFound,
        409: errors.AlreadyExists if reason == "AlreadyExists" else errors.Conflict,
        410: errors.Gone,
        422: errors.Invalid,
        429: errors.TooManyRequests,
    }
    kind = kinds.get(status, errors.BadRequest)
    return kind(message, status=status, reason=reason, retry_after=retry_after, details=details)


def _unreachable(error: Exception, server: str, where: str) -> errors.Unavailable:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return errors.NoDescriptors(f"no free descriptor for a connection to {server}", where=where)
    unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    text = str(error) or type(error).__name__
    return errors.Unavailable(
        f"the API server at {server} did not answer ({text})",
        sent=not unsent,
        where=where,
        reason="Unreachable" if unsent else "NoAnswer",
    )


def _seconds(*values: object) -> float | None:
    """The first that is a number of seconds (a Retry-After may also be a date: then none)."""
    for value in values:
        try:
            return max(0.0, float(str(value)))
        except ValueError:
            continue
    return None


def _url(login: credentials.Credentials, path: str, query: Query) -> yarl.URL:
    return yarl.URL(f"{login.server}{path}{'?' + urlencode(query) if query else ''}", encoded=True)


def _connection(login: credentials.Credentials, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "headers": {**login.headers, **headers},
        "ssl": login.ssl if login.ssl is not None else True,
        "server_hostname": login.server_name,
        "proxy": login.proxy,
    }
