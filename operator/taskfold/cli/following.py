"""A run of either kind, followed by a command until it is complete.

Guarantees: nothing is changed; a run that no operator looks at is not waited for without a limit; a verdict is told
once, however often it is followed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic

from taskfold.cli import cluster, exits, progress
from taskfold.cli.interrupts import Stopped, TooLate, unless
from taskfold.cli.reasons import CommandReason
from taskfold.effects import errors, taskruns
from taskfold.effects.taskruns import R

NOTICE_SECONDS = 10.0
"""An operator that runs looks at a new run within a second."""
ABSENT_SECONDS = 300.0


class Stop(StrEnum):
    """Why following a run ended, other than by an error."""

    COMPLETE = "Complete"
    INTERRUPTED = "Interrupted"
    TIMED_OUT = "TimedOut"
    OPERATOR_ABSENT = "OperatorAbsent"


@dataclass(frozen=True)
class Left:
    """Why a command leaves a run that is not complete: as in the result document."""

    reason: str
    message: str
    outcome: str = "running"


class Following(Generic[R]):
    """`await Following(…).until(…)`; `run` is the run as it was last seen. `on_verdict` hears of the reward."""

    def __init__(
        self, connection: cluster.Connection, run: R, shown: progress.Progress, on_verdict: Callable[[R], None]
    ) -> None:
        self.run: R = run
        self._on_verdict: Callable[[R], None] = on_verdict
        self._connection, self._shown = connection, shown
        self._judged = False

    async def until(self, seconds: float | None, stop: asyncio.Event) -> Stop:
        """Until the run is complete, the event comes, the time is over or nobody works on the run."""
        clock = asyncio.get_running_loop().time
        began, noticed = clock(), False
        states: asyncio.Queue[R | Exception] = asyncio.Queue(16)
        pump = asyncio.create_task(self._pump(states))
        try:
            while not self.run.status.complete:
                due = [began + seconds] if seconds is not None else []
                if self.run.status.phase is None:
                    due.append(began + (ABSENT_SECONDS if noticed else NOTICE_SECONDS))
                try:
                    self._see(await unless(states.get(), stop, max(0.0, min(due) - clock()) if due else None))
                except Stopped:
                    return Stop.INTERRUPTED
                except TooLate:
                    if seconds is not None and clock() >= began + seconds:
                        return Stop.TIMED_OUT
                    if noticed:
                        return Stop.OPERATOR_ABSENT
                    noticed = True
                    self._shown.note(_ABSENT)
            return Stop.COMPLETE
        finally:
            pump.cancel()
            await asyncio.wait([pump])

    async def _pump(self, states: "asyncio.Queue[R | Exception]") -> None:
        try:
            async for run in taskruns.changes(self._connection.client, self._connection.login, self.run):
                await states.put(run)
        except Exception as error:  # an object that this release cannot read, too: nobody waits for more
            await states.put(error)

    def _see(self, state: R | Exception) -> None:
        if isinstance(state, Exception):
            raise state
        self.run = state
        self._shown.step(progress.step_of(state))
        if state.status.reward is not None and not self._judged:
            self._judged = True
            self._on_verdict(state)


def lost(error: errors.EffectError, what: str, look: str) -> Left:
    """Why `what` cannot be followed any more. `look`: the command that shows it."""
    if isinstance(error, errors.NotFound):
        return Left(CommandReason.RUN_DELETED, f"{what} was deleted before it was complete", "cancelled")
    explained = cluster.explained(error)
    return Left(reason(explained), f"{explained} {what[0].upper()}{what[1:]} goes on. See: {look}")


def reason(error: Exception) -> str:
    """The word for an error of the way to the cluster."""
    return error.reason if isinstance(error, exits.Refused | exits.Unavailable) else CommandReason.UNREACHABLE


_ABSENT = (
    f"no operator has looked at the run for {NOTICE_SECONDS:g} s. Is it running? "
    "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=taskfold"
)
