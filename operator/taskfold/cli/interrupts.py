"""Ctrl-C in two steps: the first asks for an orderly end, the second leaves at once. SIGTERM counts as Ctrl-C."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818 - not an error
    """The event came first."""


class TooLate(Exception):  # noqa: N818 - not an error
    """The time passed first."""


class Interrupts:
    """Whether somebody wants to stop."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()

    @contextlib.contextmanager
    def installed(self) -> Iterator["Interrupts"]:
        """Inside, the two signals set the events and do nothing else."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._come)
        try:
            yield self
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _come(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def unless(work: Coroutine[Any, Any, T], event: asyncio.Event, seconds: float | None = None) -> T:
    """What `work` gives, or Stopped, or TooLate; then `work` was cancelled."""
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Stopped if stop.done() else TooLate
    finally:
        task.cancel()
        stop.cancel()
        await asyncio.wait({task, stop})
        if not task.cancelled():
            task.exception()
