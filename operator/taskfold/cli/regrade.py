"""`taskfold regrade`: a complete run graded again from the artifacts that it left, without its agent.

Guarantees: the run itself is only read; stdout gets the reward, or with --output json exactly one document in every
ending; whatever ends the command, a VerifierRun that it made goes on.
"""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from taskfold.api.verifierrun import VerifierRun
from taskfold.build import manifests, result
from taskfold.build import regrade as builder
from taskfold.cli import cluster, documents, ending, options, progress, subjects
from taskfold.cli.documents import Output
from taskfold.cli.interrupts import Interrupts
from taskfold.cli.reasons import CommandReason
from taskfold.cli.regrading import Order, Regrading
from taskfold.cli.run import SUFFIX
from taskfold.contract import folder
from taskfold.effects import client as api


class Command(documents.Command):
    """`regrade`, with its document."""

    @staticmethod
    def unread(message: str) -> dict[str, Any]:
        return result.ungraded(result.Asked(), CommandReason.USAGE, message, outcome="refused")


def regrade(  # noqa: PLR0917 - options of a command line
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of the TaskRun.", show_default=False)],
    tests: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Other tests than those of the run's task.", show_default=False),
    ] = None,
    step: Annotated[str | None, typer.Option(help="Which step of a multi-step task.", show_default=False)] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Limit of test.sh. Unset: the run's.", show_default=False),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also a run that was graded in its agent's sandbox, or lost artifacts.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the VerifierRun. Unset: the run's and five letters.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the verdict.")] = True,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="text: the reward. json: one document.")
    ] = Output.TEXT,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Grade a complete run again, from the artifacts that it left."""
    given, source = options.name(name), _source(run)
    if tests is not None and not tests.is_dir():
        raise typer.BadParameter(f"{str(tests)!r} is no folder", param_hint="--tests")
    suffix = "".join(secrets.choice(SUFFIX) for _ in range(manifests.SUFFIX_LENGTH))
    own = folder.DirectoryFolder(tests) if tests is not None else None
    wanted = builder.Wanted(given or manifests.unique_name(source, suffix), own, step, timeout, force)
    asked = result.Asked(wanted.name, namespace or "", source, step, force)
    target = cluster.Target(kubeconfig, context, namespace)

    def never(outcome: str, reason: str, message: str) -> dict[str, Any]:
        return result.ungraded(asked, reason, message, outcome=outcome)

    documents.end(lambda: asyncio.run(_regraded(asked, wanted, target, output, wait=wait)), never, output)


def _source(text: str) -> str:
    """The name of the TaskRun, which may be written as kubectl does."""
    subject = subjects.parse(text)
    if subject.resource is not api.TASKRUNS or not subject.name:
        raise typer.BadParameter(f"{text!r} is no TaskRun: write the name of the run that is to be graded again")
    return subject.name


async def _regraded(
    asked: result.Asked, wanted: builder.Wanted, target: cluster.Target, output: Output, *, wait: bool
) -> ending.Ending:
    interrupts, shown = Interrupts(), progress.open_progress()

    def on_verdict(judged: VerifierRun) -> None:
        if output is Output.TEXT:
            with shown.paused():
                typer.echo(ending.reward_line(judged.status.reward or "", judged.status.rewards))

    try:
        with interrupts.installed():
            async with cluster.connect(target) as connection:
                order = Order(asked, wanted, wait, on_verdict)
                return await Regrading(connection, order, shown, interrupts).play()
    finally:
        shown.close()
