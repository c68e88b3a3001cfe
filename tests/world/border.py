"""The border of one operator process: the gate that every call of it passes, and the ways that lead out.

Guarantees: a killed process reaches nothing any more, a stopped one nothing before it goes on; what runs on the other
side belongs to the world and not to the process: it goes on when the process is stopped or killed. Each call knows the
effect of the plan and the function of the engine that it comes from.
"""

import asyncio
import contextlib
import contextvars
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import format_datetime
from typing import Any, TypeVar

import aiohttp

from taskfold.effects import credentials, transport
from tests.world import faults
from tests.world.processes import PROCESS, Process, State

T = TypeVar("T")

ENGINE = "taskfold.engine."
EFFECT: contextvars.ContextVar[str] = contextvars.ContextVar("effect", default="")
"""Which effect of a plan the running code applies; "" while it observes, lists or writes a status."""


@dataclass(frozen=True)
class Call(faults.Call):
    """A call, and whose it is. `effect`: the effect of a plan, else "". `site`: module and function of the engine.
    `acted`: the other side has done it; a call that failed on the way has not.
    """

    effect: str = ""
    site: str = ""
    acted: bool = False

    def __str__(self) -> str:
        return f"{self.number}: {self.name} {self.where} [{self.effect or '-'} {self.site}]"


class Border(faults.Gate):
    """The gate of a process that the event loop can really stop."""

    def __init__(self, process: Process, changed: Callable[[], None] = lambda: None) -> None:
        """`changed`: told when the process is stopped or killed."""
        super().__init__()
        self.changed = changed
        self.process = process
        process.border = self
        self._outside = outer_context()

    async def before(self, name: str, where: str = "") -> faults.Call:
        self.process.cross()
        call = Call(len(self.calls), name, where, EFFECT.get(), _site())
        self.calls.append(call)
        await self._pass(faults.Point.BEFORE, call)
        return call

    async def after(self, call: faults.Call) -> None:
        assert isinstance(call, Call)
        self.calls[call.number] = replace(call, acted=True)
        await super().after(call)

    def stop(self) -> None:
        super().stop()
        self.process.stop()
        self.changed()

    def resume(self) -> None:
        super().resume()
        self.process.go_on()

    def kill(self) -> None:
        super().kill()
        self.process.kill()
        self.changed()

    async def _alive(self) -> None:
        if self.process.state is not State.RUNNING:
            await asyncio.sleep(0)  # comes back when the process goes on, or as a cancellation
        self.process.cross()

    @contextlib.asynccontextmanager
    async def crossing(self, name: str, where: str) -> AsyncIterator[None]:
        """Around what the other side does."""
        call = await self.before(name, where)
        yield
        await self.after(call)

    def outside(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work` on the other side."""
        self.process.cross()
        return self._outside.copy().run(work, *args)

    async def outside_async(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Let `work` run on the other side, and wait for it as one waits for an answer."""
        self.process.cross()
        return await asyncio.get_running_loop().create_task(_done(work, *args), context=self._outside.copy())


async def _done(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    return await work(*args)


def outer_context() -> contextvars.Context:
    """The context of what belongs to no process and applies no effect."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, None)
    context.run(EFFECT.set, "")
    return context


def _site() -> str:
    """The innermost function of the engine that is on its way to this call."""
    frame = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(ENGINE):
            return f"{module.removeprefix(ENGINE)}.{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


class Execs:
    """The way to the exec endpoint. Each frame is a call: `exec send`, `exec receive`."""

    def __init__(self, border: Border, endpoint: Any) -> None:
        self._border = border
        self._endpoint = endpoint

    async def open(
        self, path: str, query: transport.Query, protocols: Sequence[str], gate: faults.Gate
    ) -> transport.Socket:
        """What the endpoint does is the world's, and its frames pass this border alone."""
        socket = await self._border.outside_async(self._endpoint.open, path, query, protocols)
        return Wire(self._border, socket, path)


class Wire:
    """The process's end of a WebSocket. The kernel cuts it when the process dies."""

    def __init__(self, border: Border, socket: transport.Socket, where: str) -> None:
        self._border = border
        self._socket = socket
        self._where = where
        self._cut = socket.abort
        border.process.cuts.append(self._cut)

    @property
    def protocol(self) -> str | None:
        return self._socket.protocol

    @property
    def close_code(self) -> int | None:
        return self._socket.close_code

    async def receive(self) -> aiohttp.WSMessage:
        message = await self._socket.receive()
        async with self._border.crossing("exec receive", self._where):
            return message

    async def send(self, frame: bytes | memoryview) -> None:
        content = bytes(frame)  # the sender uses its buffer again while the frame is on its way
        async with self._border.crossing("exec send", self._where):
            await self._border.outside_async(self._socket.send, content)

    async def ping(self) -> None:
        await self._border.outside_async(self._socket.ping)

    async def pong(self, message: bytes) -> None:
        await self._border.outside_async(self._socket.pong, message)

    async def close(self) -> None:
        await self._border.outside_async(self._socket.close)
        self._closed()

    def abort(self) -> None:
        if self._border.process.state is not State.DEAD:  # else the kernel was faster
            self._border.outside(self._socket.abort)
            self._closed()

    def _closed(self) -> None:
        with contextlib.suppress(ValueError):
            self._border.process.cuts.remove(self._cut)


class Server:
    """The way to the API server: its reactions belong to the world. Answers have a date, as HTTP has it."""

    def __init__(
        self, border: Border, handle: Callable[[transport.Request], transport.Answer], now: Callable[[], datetime]
    ) -> None:
        self._border = border
        self._handle = handle
        self._now = now

    def handle(self, request: transport.Request) -> transport.Answer:
        answer = self._border.outside(self._handle, request)
        return replace(answer, headers={**answer.headers, "Date": format_datetime(self._now(), usegmt=True)})


class Login:
    """Credentials that nobody checks, read without a thread."""

    async def current(self) -> credentials.Credentials:
        return credentials.Credentials("http://world.invalid", None)

    async def renew(self, refused: credentials.Credentials) -> credentials.Credentials:
        return await self.current()
