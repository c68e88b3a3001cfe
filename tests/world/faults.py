"""Faults of one operator process: what happens at each of its I/O calls, before and after the deed.

Guarantees: every call of the process passes its gate twice and is recorded; a stopped process's calls wait until it is
continued; a killed process's calls never return (they only end by cancellation), on whatever side of the deed they are.
A call is named `verb plural[/subresource]`, `exec open`, `exec frame`, `store put` and so on.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from taskfold.effects import errors, transport
from tests.world import refusals


class Point(StrEnum):
    """Which side of the deed."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class Call:
    """One I/O call. `number` counts the calls of the process from 0, `where` names the object."""

    number: int
    name: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.number}: {self.where or self.name}"


@dataclass(frozen=True)
class Refuse:
    """An answer instead of the deed (before), or instead of the true answer (after)."""

    refusal: refusals.Refusal


@dataclass(frozen=True)
class Fail:
    """An exception, made anew each time."""

    make: Callable[[], Exception]


@dataclass(frozen=True)
class Delay:
    """Latency."""

    seconds: float


@dataclass(frozen=True)
class Kill:
    """SIGKILL at this point."""


@dataclass(frozen=True)
class Stop:
    """SIGSTOP at this point; `Gate.resume` is SIGCONT."""


@dataclass(frozen=True)
class Do:
    """Anything else that happens in the world at this point: a pod is lost, a user writes."""

    deed: Callable[[], None]


Action = Refuse | Fail | Delay | Kill | Stop | Do


@dataclass
class Fault:
    """`times`: how often it still strikes."""

    point: Point
    matches: Callable[[Call], bool]
    action: Action
    times: int = 1


def unreachable() -> errors.Unavailable:
    """Connection refused: the server has not seen the request."""
    return errors.Unavailable("the API server did not answer (refused)", sent=False, reason="Unreachable")


def lost_answer() -> errors.Unavailable:
    """The server may have acted: the answer is lost."""
    return errors.Unavailable("the API server did not answer (connection lost)", sent=True, reason="NoAnswer")


def named(*names: str) -> Callable[[Call], bool]:
    """Calls with one of these names."""
    return lambda call: call.name in names


def numbered(number: int) -> Callable[[Call], bool]:
    """The one call with this number."""
    return lambda call: call.number == number


@dataclass
class Gate:
    """Give each process one of its own, shared by its transport, its execs and its store."""

    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    died: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the process is killed: whoever runs it cancels its tasks."""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the process is stopped."""
    _running: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._running.set()

    async def before(self, name: str, where: str = "") -> Call:
        """Pass in. `Refused` instead of the deed, or whatever a fault raises."""
        call = Call(len(self.calls), name, where)
        self.calls.append(call)
        await self._pass(Point.BEFORE, call)
        return call

    async def after(self, call: Call) -> None:
        """Pass out, with the deed done."""
        await self._pass(Point.AFTER, call)

    def stop(self) -> None:
        """SIGSTOP."""
        self._running.clear()
        self.stopped.set()

    def resume(self) -> None:
        """SIGCONT."""
        self.stopped.clear()
        self._running.set()

    def kill(self) -> None:
        """SIGKILL: also of a stopped process."""
        self.died.set()
        self._running.set()

    def add(self, point: Point, matches: Callable[[Call], bool], action: Action, *, times: int = 1) -> Fault:
        """Plan a fault."""
        fault = Fault(point, matches, action, times)
        self.faults.append(fault)
        return fault

    async def _pass(self, point: Point, call: Call) -> None:
        await self._alive()
        for fault in [each for each in self.faults if each.point is point and each.times > 0 and each.matches(call)]:
            fault.times -= 1
            await self._strike(fault.action)
            await self._alive()

    async def _strike(self, action: Action) -> None:
        match action:
            case Refuse(refusal):
                raise Refused(refusal.answer())
            case Fail(make):
                raise make()
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Kill():
                self.kill()
            case Stop():
                self.stop()
            case Do(deed):
                deed()

    async def _alive(self) -> None:
        await self._running.wait()
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()


class Refused(Exception):  # noqa: N818  (it is an answer, not a fault)
    """A fault answered in the server's place."""

    def __init__(self, answer: transport.Answer) -> None:
        super().__init__(f"status {answer.status}")
        self.answer = answer
