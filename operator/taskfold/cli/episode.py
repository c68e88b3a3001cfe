"""One run from its creation to its end, as a command sees it.

Guarantees: a run that was created is either followed to `Complete` or told to cancel; an ending names the run's own
outcome if there is one, else why the command stopped. A ConfigMap made for a run belongs to it, and is taken away if
the run is not created.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from taskfold.api.taskrun import TaskRun
from taskfold.build import result
from taskfold.build.manifests import Rendered
from taskfold.cli import cluster, ending, exits, progress
from taskfold.cli.interrupts import Interrupts, Stopped, TooLate, unless
from taskfold.cli.reasons import CommandReason
from taskfold.effects import client as api
from taskfold.effects import errors, taskruns

NOTICE_SECONDS = 10.0
"""An operator that runs looks at a new run within a second."""
ABSENT_SECONDS = 300.0
CANCEL_SECONDS = 20.0
"""A pod ends at once when it is told to; its files are collected before."""
UNSEEN_CANCEL_SECONDS = 2.0
"""Nobody was there to start the run; hardly anybody will be there to end it."""

State: TypeAlias = "TaskRun | errors.EffectError"


class Stop(StrEnum):
    """Why following a run ended, other than by an error."""

    COMPLETE = "Complete"
    INTERRUPTED = "Interrupted"
    TIMED_OUT = "TimedOut"
    OPERATOR_ABSENT = "OperatorAbsent"


@dataclass(frozen=True)
class Order:
    """What to run, and how long to wait for it. `on_verdict` is called once, with the reward as text."""

    rendered: Rendered
    timeout_seconds: float | None
    on_verdict: Callable[[TaskRun], None]


class Episode:
    """`await Episode(…).play()`, once."""

    def __init__(
        self, connection: cluster.Connection, order: Order, shown: progress.Progress, interrupts: Interrupts
    ) -> None:
        self._connection = connection
        self._client, self._namespace = connection.client, connection.namespace
        self._order, self._shown, self._interrupts = order, shown, interrupts
        self._name = order.rendered.run["metadata"]["name"]
        self._judged = False
        self._cancelled = False

    async def play(self) -> ending.Ending:
        """Create the run and follow it. After Ctrl-C, the code is that of Ctrl-C."""
        try:
            self._run = await unless(self._create(), self._interrupts.second)
        except Stopped:
            text = f"Ctrl-C while the run was created. See: {self._kubectl('get taskrun')}"
            left = result.unknown(self._name, self._namespace, CommandReason.INTERRUPTED, text, outcome="cancelled")
            return ending.Ending(left, exits.INTERRUPTED)
        except errors.EffectError as error:
            return self._not_created(cluster.explained(error))
        self._shown.note(f"taskrun/{self._name} created in namespace {self._namespace}; Ctrl-C cancels it")
        found = ending.of(await self._followed())
        interrupted = self._interrupts.first.is_set() and not self._run.status.complete
        return ending.Ending(found.document, exits.INTERRUPTED) if interrupted or self._cancelled else found

    def _not_created(self, error: Exception) -> ending.Ending:
        if isinstance(error, exits.Refused):
            return ending.of(result.refusal(self._name, self._namespace, error.reason, str(error)))
        return ending.of(result.unknown(self._name, self._namespace, _reason(error), str(error)))

    async def _followed(self) -> dict[str, Any]:
        """The run's document when there is nothing more to wait for."""
        try:
            stop = await self._follow(self._order.timeout_seconds, self._interrupts.first)
            self._cancelled = stop is Stop.INTERRUPTED
            if stop is not Stop.COMPLETE:
                await self._cancel(stop)
        except errors.NotFound:
            text = "the run was deleted before it was complete"
            return result.left(self._run, CommandReason.RUN_DELETED, text, outcome="cancelled")
        except errors.EffectError as error:
            explained = cluster.explained(error)
            text = f"{explained} The run goes on. See: {self._kubectl('get taskrun')}"
            return result.left(self._run, _reason(explained), text)
        return self._left(stop)

    def _left(self, stop: Stop) -> dict[str, Any]:
        match stop:
            case Stop.COMPLETE:
                return result.document(self._run)
            case Stop.INTERRUPTED:
                reason = CommandReason.INTERRUPTED
                text = f"Ctrl-C; the run is told to cancel. See: {self._kubectl('get taskrun')}"
            case Stop.TIMED_OUT:
                reason = CommandReason.TIMED_OUT
                text = f"no end within {self._order.timeout_seconds:g} s (--timeout); the run is told to cancel"
            case Stop.OPERATOR_ABSENT:
                reason = CommandReason.OPERATOR_ABSENT
                text = f"no operator looked at the run for {ABSENT_SECONDS:g} s; it is told to cancel"
        return result.left(self._run, reason, text)

    def _kubectl(self, command: str) -> str:
        return f"kubectl --namespace {self._namespace} {command} {self._name}"

    async def _create(self) -> TaskRun:
        rendered = self._order.rendered
        created = await taskruns.create(self._client, self._namespace, rendered.run, rendered.config_map)
        if created.unowned:
            self._shown.note(created.unowned)
        return created.run

    async def _follow(self, seconds: float | None, stop: asyncio.Event) -> Stop:
        """Until the run is complete, the event comes, the time is over or nobody works on the run."""
        clock = asyncio.get_running_loop().time
        began, noticed = clock(), False
        states: asyncio.Queue[State] = asyncio.Queue(16)
        pump = asyncio.create_task(self._pump(states))
        try:
            while not self._run.status.complete:
                due = [began + seconds] if seconds is not None else []
                if self._run.status.phase is None:
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

    async def _pump(self, states: "asyncio.Queue[State]") -> None:
        try:
            login, uid = self._connection.login, self._run.metadata.uid
            async for run in taskruns.changes(self._client, login, self._namespace, self._name, uid):
                await states.put(run)
        except errors.EffectError as error:
            await states.put(error)

    def _see(self, state: State) -> None:
        if isinstance(state, errors.EffectError):
            raise state
        self._run = state
        self._shown.step(progress.step_of(state))
        if state.status.reward is not None and not self._judged:
            self._judged = True
            self._order.on_verdict(state)

    async def _cancel(self, why: Stop) -> None:
        """Tell the run to cancel, and wait briefly for its end. A second Ctrl-C leaves at once."""
        self._shown.note(f"{why}: cancelling the run; Ctrl-C again leaves at once")
        seen = self._run.status.phase is not None
        with contextlib.suppress(Stopped):
            await unless(
                self._client.patch(api.TASKRUNS, self._namespace, self._name, {"spec": {"cancel": True}}),
                self._interrupts.second,
            )
            await self._follow(CANCEL_SECONDS if seen else UNSEEN_CANCEL_SECONDS, self._interrupts.second)


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, exits.Refused | exits.Unavailable) else CommandReason.UNREACHABLE


_ABSENT = (
    f"no operator has looked at the run for {NOTICE_SECONDS:g} s. Is it running? "
    "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=taskfold"
)
