"""A process's turn: it stands by until the lease is its own, works, and gives the lease back.

Guarantees: while it stands by it watches nothing, holds no picture of the cluster and has not imported what only the
work needs; its liveness endpoint answers all the time. A process that lost the lease ends itself at once and not
gracefully: whatever it would still tidy up is somebody else's by now.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn

from taskfold.api.settings import LeaderElectionSettings, Settings
from taskfold.effects import client as api
from taskfold.effects import credentials
from taskfold.engine import health as healths
from taskfold.engine.lease import Lease

EXIT_LOST = 75
"""The exit code of a process that lost the lease: nothing is wrong with it, start it anew (EX_TEMPFAIL)."""
EXIT_STUCK = 70
"""The exit code of a process whose work did not come to its end (EX_SOFTWARE)."""
POD_NAME = "POD_NAME"

Work = Callable[[healths.Health], Awaitable[None]]

log = logging.getLogger(__name__)


class StuckError(Exception):
    """The work was told to end, all of ours has ended, and something in it still does not let go of the loop."""


def run(settings: Settings, source: credentials.Source, work: Work) -> None:
    """Stand by, then `work(health)` until it ends. Leaves by its exception, if it has one."""
    told: list[signal.Signals] = []
    try:
        asyncio.run(_main(settings, source, work, told))
    except asyncio.CancelledError:
        if not told:
            raise


async def _main(settings: Settings, source: credentials.Source, work: Work, told: list[signal.Signals]) -> None:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        told.append(number)
        if task is not None:
            task.cancel()

    for each in (signal.SIGTERM, signal.SIGINT):  # kopf puts its own in place once it runs
        loop.add_signal_handler(each, stop, each)
    health = healths.Health()
    try:
        async with health.serving(settings.health_port), _turn(settings.leader_election, source, health):
            await work(health)
    except StuckError as error:
        _end(str(error), EXIT_STUCK)  # an exception would have the loop wait for the same task


@contextlib.asynccontextmanager
async def _turn(
    settings: LeaderElectionSettings, source: credentials.Source, health: healths.Health
) -> AsyncIterator[None]:
    """Hold the lease for the length of the block."""
    if not settings.enabled:
        yield
        return
    # A client of its own: a renewal never waits behind the work's calls, and never longer than half its time.
    half = settings.renew_seconds / 2
    limits = api.Limits(concurrent=2, connect_seconds=half, request_seconds=half, attempts=1, retry_seconds=0)
    async with api.Client(source, limits=limits, user_agent="taskfold-lease") as client:
        namespace = settings.lease_namespace or (await source.current()).namespace
        pod = os.environ.get(POD_NAME, "")
        identity = f"{pod or socket.gethostname()}_{secrets.token_hex(4)}"
        lease = Lease(client, settings, namespace, identity, same_place=f"{pod}_" if pod else "")
        health.role = healths.Role.STANDING_BY
        await lease.acquire()
        health.role = healths.Role.STARTING
        holding = asyncio.create_task(lease.hold(_lost))
        try:
            yield
        finally:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            await lease.release()


def _lost(why: str) -> NoReturn:
    """A graceful end would go on writing in another leader's time."""
    _end(f"{why}: this process ends, another one leads", EXIT_LOST)


def _end(why: str, code: int) -> NoReturn:
    """End this process, now."""
    log.critical(why)
    sys.stderr.flush()
    os._exit(code)
