"""One regrade from its creation to its end, as a command sees it.

Guarantees: a VerifierRun that was created goes on, whatever ends the command; an ending names the verification's own
outcome if there is one, else why the command stopped.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from taskfold.api.reasons import Reason
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import regrade as builder
from taskfold.build import result
from taskfold.cli import cluster, ending, exits, following, progress
from taskfold.cli.following import Left, Stop
from taskfold.cli.interrupts import Interrupts, Stopped, unless
from taskfold.cli.reasons import CommandReason
from taskfold.contract.errors import TaskError
from taskfold.effects import client as api
from taskfold.effects import errors, taskruns


@dataclass(frozen=True)
class Order:
    """What to grade, and whether to wait. `on_verdict` is called once, when there is a reward."""

    asked: result.Asked
    wanted: builder.Wanted
    wait: bool
    on_verdict: Callable[[VerifierRun], None]


class Regrading:
    """`await Regrading(…).play()`, once."""

    def __init__(
        self, connection: cluster.Connection, order: Order, shown: progress.Progress, interrupts: Interrupts
    ) -> None:
        self._connection, self._order, self._shown, self._interrupts = connection, order, shown, interrupts
        self._namespace = connection.namespace
        self._asked = replace(order.asked, namespace=connection.namespace)

    async def play(self) -> ending.Ending:
        """Create the VerifierRun and follow it. After Ctrl-C, the code is that of Ctrl-C."""
        try:
            run = await unless(self._source(), self._interrupts.first)
            manifest = await asyncio.to_thread(self._manifest, run)
        except Stopped:
            return self._stopped("Ctrl-C before the VerifierRun was created")
        except errors.EffectError as error:
            return self._not_created(cluster.explained(error))
        except exits.Refused as refused:
            return self._not_created(refused)
        try:
            made = taskruns.create_one(self._connection.client, VerifierRun, self._namespace, manifest)
            verifier = await unless(made, self._interrupts.first)
        except Stopped:
            return self._stopped(
                f"Ctrl-C while the VerifierRun was created; if it was, it goes on. See: {self._look()}"
            )
        except errors.EffectError as error:
            return self._not_created(cluster.explained(error))
        where = f"verifierrun/{self._asked.name} created in namespace {self._namespace}"
        if not self._order.wait:
            self._shown.note(where)
            return ending.Ending(result.verification(verifier, run), exits.REWARDED)
        self._shown.note(f"{where}; it goes on without this command")
        return await self._followed(run, verifier)

    async def _source(self) -> TaskRun:
        name = self._asked.run
        with cluster.named(self._connection, name):
            return TaskRun.parse(await self._connection.client.get(api.TASKRUNS, self._namespace, name))

    def _manifest(self, run: TaskRun) -> dict[str, Any]:
        """Refused: tests that cannot be read, or that no object holds."""
        try:
            return builder.manifest(run, self._order.wanted)
        except TaskError as error:
            raise exits.Refused(Reason.INVALID_TASK, f"--tests: {error}") from None
        except OSError as error:
            raise exits.Refused(Reason.INVALID_TASK, f"--tests: cannot be read: {error}") from None

    async def _followed(self, run: TaskRun, verifier: VerifierRun) -> ending.Ending:
        """How the verification ends, or why nobody waits for it any more."""
        followed = following.Following(self._connection, verifier, self._shown, self._order.on_verdict)
        stop = None
        try:
            stop = await followed.until(None, self._interrupts.first)
            left = self._left(stop)
        except errors.EffectError as error:
            left = following.lost(error, "the VerifierRun", self._look())
        if left is not None:
            document = result.unwatched(followed.run, run, left.reason, left.message, outcome=left.outcome)
        else:
            document = _told(result.verification(followed.run, run))
        found = ending.of(document)
        return ending.Ending(document, exits.INTERRUPTED) if stop is Stop.INTERRUPTED else found

    def _left(self, stop: Stop) -> Left | None:
        """Why the verification is left as it stands; None: it has come to its end."""
        match stop:
            case Stop.COMPLETE:
                return None
            case Stop.INTERRUPTED:
                return Left(CommandReason.INTERRUPTED, f"Ctrl-C; the VerifierRun goes on. See: {self._look()}")
            case Stop.OPERATOR_ABSENT:
                text = (
                    f"no operator looked at the VerifierRun for {following.ABSENT_SECONDS:g} s; it stays, and begins "
                    f"when there is one. See: {self._look()}"
                )
                return Left(CommandReason.OPERATOR_ABSENT, text)
            case Stop.TIMED_OUT:
                raise AssertionError("it is waited for without a time")

    def _not_created(self, error: Exception) -> ending.Ending:
        outcome = "refused" if isinstance(error, exits.Refused) else "error"
        return ending.of(result.ungraded(self._asked, following.reason(error), str(error), outcome=outcome))

    def _stopped(self, text: str) -> ending.Ending:
        left = result.ungraded(self._asked, CommandReason.INTERRUPTED, text, outcome="cancelled")
        return ending.Ending(left, exits.INTERRUPTED)

    def _look(self) -> str:
        return f"kubectl --namespace {self._namespace} get verifierrun {self._asked.name}"


def _told(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a verification that is over. That its run is gone was not so when it was made."""
    failure = document["failure"]
    if failure is None or failure["reason"] != Reason.SOURCE_NOT_FOUND:
        return document
    text = (
        f"TaskRun {document['run']['name']} was deleted before the verdict, and what it left cannot be graded any more"
    )
    return {
        **document,
        "outcome": "cancelled",
        "failure": {**failure, "reason": CommandReason.RUN_DELETED},
        "message": text,
    }
