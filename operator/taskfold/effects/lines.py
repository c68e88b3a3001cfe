"""Open streams to helpers that wait for the next phase of their pod: the connections, not the outcomes.

An exec costs the cluster about 55 ms of two cores, and its end as much time again on the way to a reward. A helper that
has told the end of a phase starts itself anew on the same stream and waits for the next one. Guarantees: a line serves
one phase at a time; a line that is not wanted within a moment is ended, beside whatever goes on; one that waits has no
command's place; losing one loses nothing, since a phase may be asked for on any line.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field

from taskfold.effects import errors
from taskfold.effects import exec as execs

IDLE_SECONDS = 5.0
"""How long a helper is kept waiting: the next phase of a run comes at once, or much later."""
LEAVE_SECONDS = 5.0


@dataclass
class Line:
    """One stream, and what holds it open."""

    pin: execs.PodPin
    stream: execs.ExecStream
    stack: contextlib.AsyncExitStack
    timer: asyncio.TimerHandle | None = field(default=None)


class Lines:
    """The idle streams of one process, at most one for a container."""

    def __init__(self, exec_: execs.Exec) -> None:
        self._exec = exec_
        self._idle: dict[execs.PodPin, Line] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def take(self, pin: execs.PodPin, argv: list[str], limits: execs.Limits, *, checked: bool) -> Line:
        """A line to this container: one that waits, else a new one. Its clocks begin anew."""
        line = await self.waiting(pin, limits)
        if line is not None:
            return line
        stack = contextlib.AsyncExitStack()
        opened = self._exec.open(pin, argv, stdin=True, limits=limits, checked=checked)
        return Line(pin, await stack.enter_async_context(opened), stack)

    async def waiting(self, pin: execs.PodPin, limits: execs.Limits) -> Line | None:
        """The line to this container that waits, if there is one, once there is a place for its command."""
        line = self._idle.pop(pin, None)
        if line is not None:
            if line.timer is not None:
                line.timer.cancel()
            try:
                await line.stream.renew(limits)
            except BaseException:
                self.end(line)
                raise
        return line

    def give(self, line: Line) -> None:
        """The phase is over and the helper waits: keep the line for a moment, where there is a place to wait."""
        if line.pin in self._idle or not line.stream.rest():
            self.end(line)
            return
        self._idle[line.pin] = line
        line.timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._expire, line)

    def end(self, line: Line) -> None:
        """Nobody needs this line any more; it is ended in the background."""
        task = asyncio.create_task(_leave(line))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def drop(self, line: Line) -> None:
        """The exchange broke off: drop the connection."""
        await line.stack.aclose()

    async def close(self) -> None:
        """End every line that waits."""
        for line in list(self._idle.values()):
            self._expire(line)
        if self._ending:
            await asyncio.wait(self._ending, timeout=LEAVE_SECONDS)

    def _expire(self, line: Line) -> None:
        if self._idle.get(line.pin) is line:
            del self._idle[line.pin]
            if line.timer is not None:
                line.timer.cancel()
            self.end(line)


async def _leave(line: Line) -> None:
    try:
        await leave(line.stream)
    finally:
        await line.stack.aclose()


async def leave(stream: execs.ExecStream) -> None:
    """The answer is complete: let the helper end by itself, so that the server need not cut the connection.

    A process that ends while its input is still coming loses its output on real servers (measured: half of the tries,
    kubectl too), so the helper goes on reading until stdin is ended here.
    """
    with contextlib.suppress(errors.ExecError, TimeoutError):
        async with asyncio.timeout(LEAVE_SECONDS):
            await stream.close_stdin()
            await stream.wait()
