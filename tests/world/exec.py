"""The exec endpoint of the API server: WebSockets into modelled containers, as a `transport.Socket`.

Guarantees: refusals at the handshake have the status and the words of a real server (looked at with Kubernetes 1.36);
frames are a channel byte and payload; the order on each channel is kept; the final status comes when the process has
ended; both directions wait for a slow reader. What goes wrong on the way is a `Fault`, chosen for each exec.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from taskfold.effects import transport
from taskfold.effects.exec import CLOSE, STATUS, STDERR, STDIN, STDOUT, V4, V5
from tests.world.faults import Gate
from tests.world.pipes import Pipe
from tests.world.sandbox import KILLED, Container, Streams

FRAME_BYTES = 32 * 1024
"""The kubelet reads so much at a time."""
INBOX_BYTES = 1 << 20
"""On the way to a client that does not read."""
HANDSHAKE_SECONDS = 0.02


@dataclass(frozen=True)
class Opening:
    """An exec that was asked for. `number`: among all of this endpoint."""

    number: int
    namespace: str
    pod: str
    container: str
    argv: tuple[str, ...]
    stdin: bool


@dataclass(frozen=True)
class Fault:
    """What befalls one exec."""

    cut_out: int | None = None
    """The connection breaks when so many bytes have gone to the client; a frame arrives whole or not at all."""
    cut_in: int | None = None
    """It breaks when so many bytes have come from the client."""
    drop_last: bool = False
    """The last frame of stdout gets lost, the status comes."""
    silent_after: int | None = None
    """After so many frames nothing comes any more, not even a pong; the connection stays."""
    frame_seconds: float = 0.0
    """Each frame to the client takes so long."""
    status: bytes | None = None
    """In place of the final status."""
    no_status: bool = False
    """The server closes without one."""
    status_first: bool = False
    """The status overtakes the last frame of stdout."""
    frame_bytes: int = FRAME_BYTES
    never_reads: bool = False
    """Nobody takes what the client sends."""
    protocols: tuple[str, ...] = (V5, V4)
    refusal: transport.Answer | None = None
    """In place of the handshake."""
    handshake_seconds: float = HANDSHAKE_SECONDS


NONE = Fault()


def status_of(code: int) -> bytes:
    """The final message as the API server writes it."""
    if code == 0:
        return b'{"metadata":{},"status":"Success"}'
    text = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    failure = {"metadata": {}, "status": "Failure", "message": text, "reason": "NonZeroExitCode"}
    return json.dumps({**failure, "details": {"causes": causes}}).encode()


def failure(message: str) -> bytes:
    """A final status without an exit code."""
    text = f"Internal error occurred: {message}"
    return json.dumps({"status": "Failure", "reason": "InternalError", "message": text, "code": 500}).encode()


def refused(status: int, reason: str, message: str) -> transport.Answer:
    """An answer with a Status object."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return transport.Answer(status, json.dumps({**body, "code": status}).encode(), reason)


def container_not_found(name: str) -> transport.Answer:
    """The kubelet's own words, which the API server hands on as they are."""
    return transport.Answer(500, f'container not found ("{name}")'.encode(), "Internal Server Error")


class Endpoint:
    """All execs of a cluster."""

    def __init__(self, find: Callable[[str, str, str], Container]) -> None:
        """`find(namespace, pod, container)`: an `ApiError` for what is not running."""
        self._find = find
        self.fault: Callable[[Opening], Fault] = lambda opening: NONE
        self.openings: list[Opening] = []
        self.opened: Callable[[Opening], None] = lambda opening: None
        """Told of each before anything is asked of its sandbox."""
        self.sockets: dict[Opening, Socket] = {}
        """Those that are open."""

    async def open(
        self, path: str, query: transport.Query, protocols: Sequence[str], gate: Gate | None = None
    ) -> "Socket":
        """An `ApiError` if it is refused. Frames pass `gate`, if there is one."""
        parts = path.strip("/").split("/")
        values: dict[str, list[str]] = {}
        for key, value in query:
            values.setdefault(key, []).append(value)
        opening = Opening(
            len(self.openings), parts[3], parts[5], values["container"][0], tuple(values["command"]), "stdin" in values
        )
        self.openings.append(opening)
        self.opened(opening)
        fault = self.fault(opening)
        await asyncio.sleep(fault.handshake_seconds)
        if fault.refusal is not None:
            raise fault.refusal.error()
        box = self._find(opening.namespace, opening.pod, opening.container)
        chosen = next((each for each in protocols if each in fault.protocols), None)
        socket = Socket(chosen, fault, gate, lambda: self.sockets.pop(opening, None))
        if chosen is not None:
            self.sockets[opening] = socket
            socket.serve(box, list(opening.argv))
        return socket

    def cut(self, which: Callable[[Opening], bool] = lambda opening: True) -> None:
        """These connections break: the processes behind them lose their streams, nothing else."""
        for opening, socket in list(self.sockets.items()):
            if which(opening):
                socket.abort()


class Socket(transport.Socket):
    """One connection, both ends of it."""

    def __init__(self, protocol: str | None, fault: Fault, gate: Gate | None, ended: Callable[[], Any]) -> None:
        self._protocol = protocol
        self._fault = fault
        self._gate = gate
        self._ended = ended
        self._inbox: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()
        self._way = Pipe(INBOX_BYTES)
        self._streams = Streams()
        self._serving: asyncio.Task[None] | None = None
        self._close_code: int | None = None
        self._gone = asyncio.Event()
        self._frames = self._out = self._in = 0

    @property
    def protocol(self) -> str | None:
        return self._protocol

    @property
    def close_code(self) -> int | None:
        return self._close_code

    # -- the client's side -----------------------------------------------------------------------------------------

    async def receive(self) -> aiohttp.WSMessage:
        if self._closed and self._inbox.empty():
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)
        message = await self._inbox.get()
        if message.type is aiohttp.WSMsgType.BINARY:
            await self._way.read(len(message.data))
        if self._gate is not None:
            await self._gate.after(await self._gate.before("exec frame", "received"))
        return message

    async def send(self, frame: bytes | memoryview) -> None:
        content = bytes(frame)
        if self._closed:
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        call = await self._gate.before("exec frame", "sent") if self._gate is not None else None
        self._in += len(content)
        if self._fault.cut_in is not None and self._in > self._fault.cut_in:
            self.abort()
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        if content[:1] == bytes([CLOSE]) and content[1:] == bytes([STDIN]) and self._protocol == V5:
            self._streams.stdin.end()
        elif content[:1] == bytes([STDIN]):
            await self._input(content[1:])
        if self._gate is not None and call is not None:
            await self._gate.after(call)

    async def _input(self, data: bytes) -> None:
        if self._fault.never_reads:
            await self._gone.wait()
        if not self._closed:
            # A process that has ended takes no more: what is still on its way to it is thrown away.
            with contextlib.suppress(BrokenPipeError):
                await self._streams.stdin.write(data)
        if self._closed:
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async def ping(self) -> None:
        if not self._closed and not self._silent:
            self._inbox.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.PONG, b"", None))

    async def pong(self, message: bytes) -> None:
        """Nobody counts them."""

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._end(1006)
        if self._serving is not None:
            self._serving.cancel()

    @property
    def _closed(self) -> bool:
        return self._gone.is_set()

    # -- the server's side -----------------------------------------------------------------------------------------

    def serve(self, box: Container, argv: list[str]) -> None:
        """Start the process, and carry what it says."""
        self._serving = asyncio.get_running_loop().create_task(
            self._serve(box, argv), name=f"exec in {box.pod}/{box.name}"
        )

    @property
    def _silent(self) -> bool:
        return self._fault.silent_after is not None and self._frames >= self._fault.silent_after

    async def _serve(self, box: Container, argv: list[str]) -> None:
        try:
            process = box.execute(argv, self._streams)
        except FileNotFoundError as error:
            text = f'exec: "{error}": executable file not found in $PATH'
            runtime = "failed to exec in container: failed to start exec: OCI runtime exec failed: exec failed: "
            await self._say(STATUS, failure(f"{runtime}unable to start container process: {text}"))
            return self._end(1000)
        held = await self._outputs(process)
        await asyncio.wait([process])
        code = KILLED if process.cancelled() else process.result()
        status = self._fault.status if self._fault.status is not None else status_of(code)
        frames = [] if self._fault.no_status else [(STATUS, status)]
        if self._fault.status_first and held is not None:
            frames.append((STDOUT, held))
        for channel, payload in frames:
            await self._say(channel, payload)
        if not self._silent:
            self._end(1000)
        return None

    async def _outputs(self, process: "asyncio.Task[int]") -> bytes | None:
        """Carry stdout and stderr to their end. Where a fault is about the last frame of stdout, it is kept back."""
        errors = asyncio.create_task(self._carry(self._streams.stderr, STDERR))
        held, stdout = None, self._streams.stdout
        try:
            while data := await stdout.read(self._fault.frame_bytes):
                if self._fault.drop_last or self._fault.status_first:
                    # The last one is that behind which the process ends.
                    await asyncio.wait([process], timeout=0.001)
                    if process.done() and not stdout.unread:
                        held = data
                        continue
                await self._say(STDOUT, data)
            await errors
        finally:
            errors.cancel()
        return held

    async def _carry(self, stream: Pipe, channel: int) -> None:
        while data := await stream.read(self._fault.frame_bytes):
            await self._say(channel, data)

    async def _say(self, channel: int, payload: bytes) -> None:
        if self._silent:
            await asyncio.Event().wait()
        if self._fault.frame_seconds:
            await asyncio.sleep(self._fault.frame_seconds)
        frame = bytes([channel]) + payload
        self._out += len(frame)
        if self._fault.cut_out is not None and self._out > self._fault.cut_out:
            self._end(1006)
            raise asyncio.CancelledError
        self._frames += 1
        with contextlib.suppress(BrokenPipeError):
            await self._way.write(frame)
        if not self._closed:
            self._inbox.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, frame, None))

    def _end(self, code: int) -> None:
        if self._closed:
            return
        self._close_code = code
        self._gone.set()
        self._streams.cut()
        self._way.break_off()
        kind = aiohttp.WSMsgType.CLOSE if code == 1000 else aiohttp.WSMsgType.CLOSED
        self._inbox.put_nowait(aiohttp.WSMessage(kind, code, None))
        self._ended()
