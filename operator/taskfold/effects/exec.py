"""Commands in running containers: a thin WebSocket client for `pods/exec` (v5.channel.k8s.io).

Guarantees: a command is reported as ended only when the final status arrived on channel 3; otherwise the
outcome is `ConnectionLost` (unknown), never a guess. Nothing is started in another sandbox than the pinned
one. Input needs v5 (v4 cannot end stdin), so nothing else is offered then. Every buffer and every wait is
bounded. It never repeats a command: whether it may run twice is the caller's knowledge (the sandbox's
journal).

Each binary message is one channel byte and payload: 0 stdin, 1 stdout, 2 stderr, 3 the final Status, 4 a
terminal's size, 255 and a channel number: that channel is closed.
"""

import asyncio
import collections
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from taskfold.effects import client as api
from taskfold.effects import errors, places, transport

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

FRAME_BYTES = 128 * 1024  # larger client frames get the connection reset by some API servers
STDOUT_BUFFER = 1 << 20  # waiting for the reader; then the socket is left alone and the command blocks
STDERR_TAIL = 64 * 1024
HEARTBEAT_SECONDS = 30.0  # load balancers drop silent connections after a minute or more
DEAD_SECONDS = 3 * HEARTBEAT_SECONDS  # no frame, not even a pong, and no progress in sending
DESCRIPTOR_SECONDS = 600.0  # how long an exec waits for a free descriptor before it is told as refused
DESCRIPTOR_PAUSE = 1.0  # between two tries, on average
LATE_SECONDS = 5.0  # the server closes right after the status; output may still come between the two


@dataclass(frozen=True, slots=True)
class PodPin:
    """One container of one pod in one life of it: equal pins mean the same sandbox."""

    namespace: str
    name: str
    uid: str
    container: str = "main"
    restart_count: int = 0
    node: str = ""

    @classmethod
    def of(cls, pod: Mapping[str, Any], container: str = "main") -> "PodPin":
        """The pin of an observed pod. Raises `NotRunning` if that container is not running in it."""
        meta = pod["metadata"]
        pin = cls(meta["namespace"], meta["name"], meta["uid"], container, 0, pod["spec"].get("nodeName", ""))
        return cls(**{**_fields(pin), "restart_count": pin._running(pod)["restartCount"]})

    @property
    def where(self) -> str:
        return f"pod {self.namespace}/{self.name}, container {self.container}"

    def check(self, pod: Mapping[str, Any]) -> None:
        """`PodReplaced`, `ContainerRestarted` or `NotRunning` if this is not the pinned sandbox, running."""
        uid = pod["metadata"]["uid"]
        if uid != self.uid:
            raise errors.PodReplaced(
                f"the pod was replaced (uid {uid}, not {self.uid})",
                where=self.where,
                remedy="What ran in it is lost.",
            )
        seen = self._status(pod).get("restartCount", 0)
        if seen != self.restart_count:
            raise errors.ContainerRestarted(
                f"the container was restarted ({seen} restarts, not {self.restart_count})",
                where=self.where,
                remedy="What ran in it is lost.",
            )
        self._running(pod)

    def _status(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        statuses: Sequence[Mapping[str, Any]] = pod.get("status", {}).get("containerStatuses") or ()
        return next((status for status in statuses if status.get("name") == self.container), {})

    def _running(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        status = self._status(pod)
        state: Mapping[str, Any] = status.get("state") or {}
        if "running" in state:
            return status
        phase = pod.get("status", {}).get("phase", "Unknown")
        kind = next(iter(state), phase)
        reason = (state.get(kind) or {}).get("reason")
        seen = f"{kind} ({reason})" if reason else kind
        raise errors.NotRunning(f"the container is not running: {seen}", state=seen, where=self.where)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for one exec. None: without that limit. Waiting for a free place counts for neither."""

    total_seconds: float | None = 600.0
    idle_seconds: float | None = 120.0
    """Nothing transferred in either direction; a reader that is slow does not count as idle."""
    start_seconds: float = 30.0
    """The pin's GET, the connection and the handshake."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The command's own end. `stderr`: its last 64 KiB."""

    code: int
    stderr: bytes = b""


@dataclass(frozen=True, slots=True)
class Completed:
    """`Exited` with everything it printed."""

    code: int
    stdout: bytes
    stderr: bytes


class ExecStream:
    """A running command. Read its `stdout()`, else it blocks once 1 MiB is waiting (`wait()` discards)."""

    def __init__(
        self,
        socket: transport.Socket,
        *,
        stdin: bool,
        limits: Limits,
        where: str,
        counters: api.Counters,
        seat: places.Seat,
        explain: Callable[[str], Awaitable[errors.ExecError]],
    ) -> None:
        self._socket = socket
        self._seat = seat
        self._stdin = stdin
        self._limits = limits
        self._where = where
        self._counters = counters
        self._explain = explain
        self._chunks: collections.deque[memoryview] = collections.deque()
        self._waiting = 0  # bytes in _chunks
        self._readable, self._space = asyncio.Event(), asyncio.Event()
        self._discard = False
        self._stderr = bytearray()
        self._status: Mapping[str, Any] | None = None
        self._failure: Exception | None = None
        self._pong: asyncio.Task[None] | None = None
        self._parked = False
        self._began = self._moved = self._heard = asyncio.get_running_loop().time()
        self._reader = asyncio.create_task(self._read())
        self._watchdog = asyncio.create_task(self._watch())

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Write to stdin in frames of at most 128 KiB, with back-pressure. The data may be reused afterwards.

        `InputRefused`: the command or the connection has ended, `wait()` says which.
        """
        if not self._stdin:
            raise RuntimeError("this command was started without stdin")
        view = memoryview(data).cast("B")
        for start in range(0, len(view), FRAME_BYTES - 1):
            await self._frame(b"\0" + view[start : start + FRAME_BYTES - 1])

    def rest(self) -> bool:
        """From now on nothing but an end is awaited: others may have the place. False: none is free for waiting."""
        return self._seat.rest()

    async def renew(self, limits: Limits) -> None:
        """The command begins something new: it waits for its place, and its limits count from then."""
        await self._seat.work()
        self._limits = limits
        self._began = self._moved = asyncio.get_running_loop().time()

    async def send_block(self, block: memoryview) -> None:
        """Write to stdin without another copy: the block's first byte is ours to overwrite, at most 128
        KiB.
        """
        block[0] = STDIN
        await self._frame(block)

    async def close_stdin(self) -> None:
        """Half close: the command sees the end of its input, its output goes on."""
        await self._frame(bytes([CLOSE, STDIN]))

    async def stdout(self) -> AsyncIterator[memoryview]:
        """Chunks until there are no more; also a lost connection ends them: `wait()` is the judge."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._waiting -= len(chunk)
                if self._waiting <= STDOUT_BUFFER // 2:
                    self._space.set()
                yield chunk
            if self._reader.done():
                return
            self._readable.clear()
            await self._readable.wait()

    async def wait(self) -> Exited:
        """The final status. Discards stdout that was not read. Raises what the errors' tree says of
        ExecError.
        """
        self._discard = True
        self._chunks.clear()
        self._waiting = 0
        self._space.set()
        await asyncio.wait([self._reader])
        if self._failure is not None:
            raise self._failure
        if self._status is None:
            raise errors.ConnectionLost(
                f"the connection ended without a final status (close code {self._socket.close_code})",
                where=self._where,
            )
        code = _exit_code(self._status)
        if code is None:
            self._failure = await self._explain(str(self._status.get("message") or self._status))
            raise self._failure
        return Exited(code, bytes(self._stderr))

    def abandon(self, failure: Exception) -> None:
        """Drop the connection at once; `wait()` raises `failure` unless the command has ended already."""
        if self._failure is None and not self._reader.done():
            self._failure = failure
            self._socket.abort()

    async def aclose(self) -> None:
        """End everything; the connection is dropped unless the server closed it."""
        if not self._reader.done():
            self._socket.abort()
        tasks = [task for task in (self._reader, self._watchdog, self._pong) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(2.0):
                await self._socket.close()

    async def resize(self, columns: int, rows: int) -> None:
        """The terminal has another size now."""
        await self._frame(bytes([RESIZE]) + json.dumps({"Width": columns, "Height": rows}).encode())

    async def _frame(self, frame: bytes | memoryview) -> None:
        if self._reader.done():
            raise self._refused()
        try:
            await self._socket.send(frame)
        except (aiohttp.ClientError, OSError) as error:
            await asyncio.wait([self._reader], timeout=LATE_SECONDS)
            raise self._refused() from error
        self._counters.bytes_sent += len(frame)
        self._moved = asyncio.get_running_loop().time()
        if len(frame) >= FRAME_BYTES // 2:
            # aiohttp suspends only when its buffer is full; the reader must have its turn
            await asyncio.sleep(0)

    def _refused(self) -> Exception:
        return self._failure or errors.InputRefused(
            "the command ended before it took all of its input", where=self._where
        )

    async def _read(self) -> None:
        """The only receiver. Ends when the server has closed, or shortly after the status."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                async with asyncio.timeout(LATE_SECONDS if self._status is not None else None):
                    message = await self._socket.receive()
                self._heard = clock()
                match message.type:
                    case aiohttp.WSMsgType.BINARY:
                        if message.data:
                            await self._take(memoryview(message.data))
                    case aiohttp.WSMsgType.PING:
                        # Not awaited: a full send buffer must not stop the reading (the command would block
                        # too).
                        if self._pong is None or self._pong.done():
                            self._pong = asyncio.create_task(self._socket.pong(message.data))
                    case aiohttp.WSMsgType.PONG:
                        pass
                    case _:
                        return
        except TimeoutError:
            return
        except (aiohttp.ClientError, OSError) as error:
            self._failure = self._failure or errors.ConnectionLost(f"the connection broke: {error}", where=self._where)
        finally:
            self._readable.set()

    async def _take(self, data: memoryview) -> None:
        self._counters.bytes_received += len(data)
        channel, payload = data[0], data[1:]
        if channel == STATUS:
            self._status = _status(bytes(payload))
        elif channel == STDERR:
            self._moved = self._heard
            self._stderr += payload
            del self._stderr[:-STDERR_TAIL]
        elif channel == STDOUT and payload:
            self._moved = self._heard
            if self._discard:
                return
            self._chunks.append(payload)
            self._waiting += len(payload)
            self._readable.set()
            if self._waiting > STDOUT_BUFFER:
                self._space.clear()
                self._parked = True
                await self._space.wait()
                self._parked = False
                self._moved = self._heard = asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        """Heartbeats, and the limits: nothing else here has a timer per message."""
        loop = asyncio.get_running_loop()
        pinged = loop.time()
        while True:
            now, began = loop.time(), self._began
            total, idle = self._limits.total_seconds, self._limits.idle_seconds
            if self._parked:
                self._moved = self._heard = now
            if total is not None and now >= began + total:
                return self.abandon(self._expired(total, idle=False))
            if idle is not None and now >= self._moved + idle:
                return self.abandon(self._expired(idle, idle=True))
            if now >= max(self._heard, self._moved) + DEAD_SECONDS:
                lost = f"the server was silent for {DEAD_SECONDS:.0f} s"
                return self.abandon(errors.ConnectionLost(lost, where=self._where))
            if now >= pinged + HEARTBEAT_SECONDS and (self._pong is None or self._pong.done()):
                pinged = now
                self._pong = asyncio.create_task(self._socket.ping())
            due = [pinged + HEARTBEAT_SECONDS, now + HEARTBEAT_SECONDS]
            due += [began + total] if total is not None else []
            due += [self._moved + idle] if idle is not None else []
            await asyncio.sleep(max(0.01, min(due) - now))

    def _expired(self, seconds: float, *, idle: bool) -> errors.ExecTimeout:
        text = f"nothing was transferred for {seconds:g} s" if idle else f"not finished after {seconds:g} s"
        return errors.ExecTimeout(text, seconds=seconds, idle=idle, where=self._where)


class Exec:
    """The execs of one process, bounded in all and per node. `copies`: places for bulk data, taken before an exec."""

    def __init__(self, client: api.Client, *, caps: places.Caps | None = None, limits: Limits | None = None) -> None:
        caps = caps or places.Caps()
        self._client = client
        self._limits = limits or Limits()
        self._places = places.Places(caps.execs, caps.execs_per_node)
        self._waiting = places.Waiting(caps.streams)
        self.copies = places.Places(caps.copies, caps.copies_per_node)

    @contextlib.asynccontextmanager
    async def open(
        self,
        pin: PodPin,
        argv: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
        limits: Limits | None = None,
        checked: bool = False,
    ) -> AsyncIterator[ExecStream]:
        """Start argv in the pinned container; leaving the context early drops the connection.

        `tty`: at a terminal of its own, which is hung up with the connection and has one output. `checked`: the caller
        has just observed the pod (`PodPin.of`); saves a GET of 3 ms.
        """
        limits = limits or self._limits
        seat = await places.Seat(self._places, self._waiting, pin.node).work()
        try:
            outputs = ("stdout", "tty") if tty else ("stdout", "stderr")
            streams = [(name, "true") for name in (*outputs, *(["stdin"] if stdin else []))]
            query = [("container", pin.container), *streams, *(("command", word) for word in argv)]
            protocols = (V5,) if stdin else (V5, V4)
            socket = await self._start(pin, query, protocols, limits, checked)
            stream = ExecStream(
                socket,
                stdin=stdin,
                limits=limits,
                where=pin.where,
                counters=self._client.counters,
                seat=seat,
                explain=lambda message: self._explain(pin, message),
            )
            try:
                yield stream
            finally:
                await stream.aclose()
        finally:
            seat.release()

    async def run(
        self,
        pin: PodPin,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        max_stdout: int = 1 << 20,
        limits: Limits | None = None,
        checked: bool = False,
    ) -> Completed:
        """A small command in one call. `OutputTooLarge` beyond `max_stdout` bytes."""
        parts: collections.deque[memoryview] = collections.deque()
        size = 0
        async with (
            self.open(pin, argv, stdin=stdin is not None, limits=limits, checked=checked) as stream,
            alongside(_feed(stream, stdin)),
        ):
            async for chunk in stream.stdout():
                size += len(chunk)
                if size > max_stdout:
                    raise errors.OutputTooLarge(
                        f"{argv[0]} printed more than {max_stdout} bytes", limit=max_stdout, where=pin.where
                    )
                parts.append(chunk)
            exited = await stream.wait()
        return Completed(exited.code, b"".join(parts), exited.stderr)

    async def verify_pin(self, pin: PodPin) -> None:
        """GET the pod and check it (`PodPin.check`); a missing pod is `NotRunning`."""
        try:
            pod = await self._client.get(api.PODS, pin.namespace, pin.name)
        except errors.NotFound as error:
            raise errors.NotRunning("the pod is gone", state="gone", where=pin.where) from error
        pin.check(pod)

    async def _start(
        self, pin: PodPin, query: transport.Query, protocols: Sequence[str], limits: Limits, checked: bool
    ) -> transport.Socket:
        socket = await self._patiently(lambda: self._upgraded(pin, query, protocols, limits, checked), pin)
        if socket.protocol is None:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await socket.close()
            raise errors.HandshakeRefused(
                "the server chose none of the offered subprotocols",
                where=pin.where,
                remedy="Kubernetes 1.30 or later is needed.",
            )
        return socket

    async def _patiently(self, connect: Callable[[], Awaitable[transport.Socket]], pin: PodPin) -> transport.Socket:
        """`connect()`, again and again while this process has no descriptor for it: what ends here frees some."""
        clock = asyncio.get_running_loop().time
        patience = clock() + DESCRIPTOR_SECONDS
        while True:
            try:
                return await connect()
            except errors.NoDescriptors as error:
                if clock() > patience:
                    raise _handshake(error, pin) from error
                await asyncio.sleep(random.uniform(0, 2 * DESCRIPTOR_PAUSE))  # noqa: S311  (spreads, protects nothing)

    async def _upgraded(
        self, pin: PodPin, query: transport.Query, protocols: Sequence[str], limits: Limits, checked: bool
    ) -> transport.Socket:
        try:
            async with asyncio.timeout(limits.start_seconds):
                if not checked:
                    await self.verify_pin(pin)
                return await self._connect(pin, query, protocols)
        except TimeoutError as error:
            raise errors.ConnectionLost(f"no handshake within {limits.start_seconds:g} s", where=pin.where) from error

    async def _connect(self, pin: PodPin, query: transport.Query, protocols: Sequence[str]) -> transport.Socket:
        path = api.PODS.path(pin.namespace, pin.name, "exec")
        try:
            return await self._client.websocket("exec", path, query, protocols, where=pin.where)
        except errors.NotFound as error:
            raise errors.NotRunning(error.problem, state="gone", where=pin.where) from error
        except errors.NoDescriptors:
            raise
        except errors.Unavailable as error:
            if error.sent and error.status not in {500, 503}:
                raise errors.ConnectionLost(error.problem, where=pin.where) from error
            if error.status == 500:  # the kubelet's own refusal comes like this: "container not found"
                raise await self._explain(pin, error.problem, status=error.status) from error
            raise _handshake(error, pin) from error
        except errors.BadRequest as error:
            raise await self._explain(pin, error.problem, status=error.status) from error
        except errors.ApiError as error:
            raise _handshake(error, pin) from error
        except aiohttp.WSServerHandshakeError as error:
            raise errors.HandshakeRefused(error.message, status=error.status, where=pin.where) from error

    async def _explain(self, pin: PodPin, message: str, *, status: int | None = None) -> errors.ExecError:
        """Why a command has no exit code: the pod's state first, then what the message is known to mean."""
        try:
            await self.verify_pin(pin)
        except errors.ExecError as error:
            return error
        except errors.ApiError:
            pass  # the message alone decides then
        if any(text in message for text in ("failed to start exec", "OCI runtime exec failed", "failed to exec")):
            return errors.StartFailed(message, where=pin.where)
        if any(text in message for text in ("container not found", "not running", "no running task")):
            return errors.NotRunning(message, state="unknown", where=pin.where)
        refused = ("error dialing backend", "unable to upgrade connection", "proxy error")
        if status is not None or any(text in message for text in refused):
            return errors.HandshakeRefused(message, status=status, where=pin.where)
        return errors.ConnectionLost(message, where=pin.where)


@contextlib.asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` beside the block and end it with the block; what it raises must be reported by itself."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()


async def _feed(stream: ExecStream, data: bytes | None) -> None:
    if data is None:
        return
    with contextlib.suppress(errors.ExecError):  # the reading side tells how it ended
        await stream.send(data)
        await stream.close_stdin()


def _status(payload: bytes) -> Mapping[str, Any]:
    """The final Status object; of anything else only its text."""
    try:
        found = json.loads(payload)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": payload[:500].decode(errors="replace")}


def _exit_code(status: Mapping[str, Any]) -> int | None:
    """None: the status does not say how the command ended. A failure with code 0 is no success either."""
    match status:
        case {"status": "Success"}:
            return 0
        case {"details": {"causes": [*causes]}}:
            for cause in causes:
                match cause:
                    case {"reason": "ExitCode", "message": str(text)} if text.isdecimal() and int(text) > 0:
                        return int(text)
    return None


def _handshake(error: errors.ApiError, pin: PodPin) -> errors.HandshakeRefused:
    remedy = error.remedy
    if isinstance(error, errors.Forbidden):
        remedy = "The account needs `get` and `create` on pods/exec."
    return errors.HandshakeRefused(
        error.problem, status=error.status, reason=error.reason, where=pin.where, remedy=remedy
    )


def _fields(pin: PodPin) -> dict[str, Any]:
    return {name: getattr(pin, name) for name in PodPin.__slots__}
