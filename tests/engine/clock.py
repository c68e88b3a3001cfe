"""An event loop whose clock is the test's: waiting takes no time, and its end is exact.

When nothing is ready the loop jumps to the next timer instead of sleeping. If there is no timer either, nothing could
ever happen again, and the test fails at once instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Does not wait: adds the time to the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        self.now += max(timeout, 0.0)
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop that starts at 0 seconds."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` on such a loop. No threads, no sockets."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()
