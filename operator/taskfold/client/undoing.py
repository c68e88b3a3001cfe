"""Undoing what a cancelled call may have done.

Guarantee: it is done to its end, bounded in time, however often the caller is cancelled meanwhile; no task is left.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

CLEANUP_SECONDS = 15.0
"""How long a cancelled call goes on to undo what it may have done."""


async def in_any_case(work: Coroutine[Any, Any, None]) -> None:
    """Do this to its end, also for a caller that is being cancelled, again and again if need be; bounded in time."""
    task = asyncio.ensure_future(work)
    deadline = asyncio.get_running_loop().time() + CLEANUP_SECONDS
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            left = deadline - asyncio.get_running_loop().time()
            _, pending = await asyncio.wait({task}, timeout=max(0.0, left))
            if pending:
                task.cancel()
        except asyncio.CancelledError as error:
            cancelled = error
    failure = None if task.cancelled() else task.exception()
    if cancelled is not None:
        raise cancelled
    if failure is not None:
        raise failure
