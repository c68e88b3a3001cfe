"""One run from its creation to its end, as a command sees it.

Guarantees: a run that was created is either followed to `Complete` or told to cancel; an ending names the run's own
outcome if there is one, else why the command stopped. A ConfigMap made for a run belongs to it, and is taken away if
the run is not created.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from taskfold.api.taskrun import TaskRun
from taskfold.build import result
from taskfold.build.manifests import Rendered
from taskfold.cli import cluster, ending, exits, following, progress
from taskfold.cli.following import Stop
from taskfold.cli.interrupts import Interrupts, Stopped, unless
from taskfold.cli.reasons import CommandReason
from taskfold.effects import client as api
from taskfold.effects import errors, taskruns

CANCEL_SECONDS = 20.0
"""A pod ends at once when it is told to; its files are collected before."""
UNSEEN_CANCEL_SECONDS = 2.0
"""Nobody was there to start the run; hardly anybody will be there to end it."""


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
        self._cancelled = False

    async def play(self) -> ending.Ending:
        """Create the run and follow it. After Ctrl-C, the code is that of Ctrl-C."""
        try:
            run = await unless(self._create(), self._interrupts.second)
        except Stopped:
            text = f"Ctrl-C while the run was created. See: {self._kubectl('get taskrun')}"
            left = result.unknown(self._name, self._namespace, CommandReason.INTERRUPTED, text, outcome="cancelled")
            return ending.Ending(left, exits.INTERRUPTED)
        except errors.EffectError as error:
            return self._not_created(cluster.explained(error))
        self._following = following.Following(self._connection, run, self._shown, self._order.on_verdict)
        self._shown.note(f"taskrun/{self._name} created in namespace {self._namespace}; Ctrl-C cancels it")
        found = ending.of(await self._followed())
        interrupted = self._interrupts.first.is_set() and not self._run.status.complete
        return ending.Ending(found.document, exits.INTERRUPTED) if interrupted or self._cancelled else found

    def _not_created(self, error: Exception) -> ending.Ending:
        if isinstance(error, exits.Refused):
            return ending.of(result.refusal(self._name, self._namespace, error.reason, str(error)))
        return ending.of(result.unknown(self._name, self._namespace, following.reason(error), str(error)))

    async def _followed(self) -> dict[str, Any]:
        """The run's document when there is nothing more to wait for."""
        try:
            stop = await self._following.until(self._order.timeout_seconds, self._interrupts.first)
            self._cancelled = stop is Stop.INTERRUPTED
            if stop is not Stop.COMPLETE:
                await self._cancel(stop)
        except errors.EffectError as error:
            left = following.lost(error, "the run", self._kubectl("get taskrun"))
            return result.left(self._run, left.reason, left.message, outcome=left.outcome)
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
                text = f"no operator looked at the run for {following.ABSENT_SECONDS:g} s; it is told to cancel"
        return result.left(self._run, reason, text)

    @property
    def _run(self) -> TaskRun:
        return self._following.run

    def _kubectl(self, command: str) -> str:
        return f"kubectl --namespace {self._namespace} {command} {self._name}"

    async def _create(self) -> TaskRun:
        rendered = self._order.rendered
        created = await taskruns.create(self._client, self._namespace, rendered.run, rendered.config_map)
        if created.unowned:
            self._shown.note(created.unowned)
        return created.run

    async def _cancel(self, why: Stop) -> None:
        """Tell the run to cancel, and wait briefly for its end. A second Ctrl-C leaves at once."""
        self._shown.note(f"{why}: cancelling the run; Ctrl-C again leaves at once")
        seen = self._run.status.phase is not None
        with contextlib.suppress(Stopped):
            await unless(
                self._client.patch(api.TASKRUNS, self._namespace, self._name, {"spec": {"cancel": True}}),
                self._interrupts.second,
            )
            await self._following.until(CANCEL_SECONDS if seen else UNSEEN_CANCEL_SECONDS, self._interrupts.second)
