"""`taskfold run`: one task folder on a cluster, waited for, with its reward.

Guarantees: with --output json, stdout gets exactly one result document in every ending (usage errors, refusals and
internal errors included); the exit code follows from it, save for Ctrl-C (130), usage (64) and internal errors (70).
"""

import asyncio
import secrets
from typing import Annotated, Any

import typer

from taskfold.api.taskrun import TaskRun
from taskfold.build import manifests, result
from taskfold.cli import cluster, documents, ending, options, progress, render
from taskfold.cli.documents import Output
from taskfold.cli.episode import Episode, Order
from taskfold.cli.interrupts import Interrupts
from taskfold.cli.reasons import CommandReason

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own letters for generated names: none that spell words."""


class Command(documents.Command):
    """`run`, with its document."""

    @staticmethod
    def unread(message: str) -> dict[str, Any]:
        return result.refusal("", "", CommandReason.USAGE, message)


def run(  # noqa: PLR0917 - options of a command line
    folder: options.Folder,
    agent: options.Agent = "oracle",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="text: the reward. json: one result document.")
    ] = Output.TEXT,
    namespace: options.Namespace = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the TaskRun. Unset: the folder's and five letters.", show_default=False)
    ] = None,
    source: options.Source = manifests.From.AUTO,
    settings: options.Set = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="SECONDS", help="Cancel the run when it has not ended by then.", show_default=False
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the pod after the end, to look around in it.")] = False,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Run a task folder, show how it goes, print its reward."""
    chosen, spec, given = options.agent(agent), options.spec(settings), options.name(name)
    if keep:
        spec.setdefault("podRetention", "Always")
    suffix = "".join(secrets.choice(SUFFIX) for _ in range(manifests.SUFFIX_LENGTH))
    run_name = given or manifests.unique_name(folder.resolve().name, suffix)
    target = cluster.Target(kubeconfig, context, namespace)

    def play() -> ending.Ending:
        checked = render.check(folder, chosen, spec)
        task_id, files, path = checked.task.id, checked.files, checked.path
        wanted = manifests.Wanted(run_name, namespace, task_id, files, chosen, source, spec, path)
        rendered = manifests.build(wanted)
        for warning in checked.warnings:
            typer.echo(f"warning: {warning}", err=True)
        return asyncio.run(_episode(rendered, timeout, output, target))

    def never(outcome: str, reason: str, message: str) -> dict[str, Any]:
        if outcome == "refused":
            return result.refusal(run_name, namespace or "", reason, message)
        return result.unknown(run_name, namespace or "", reason, message, outcome=outcome)

    documents.end(play, never, output)


async def _episode(
    rendered: manifests.Rendered, patience: float | None, output: Output, target: cluster.Target
) -> ending.Ending:
    interrupts, shown = Interrupts(), progress.open_progress()

    def on_verdict(judged: TaskRun) -> None:
        if output is Output.TEXT:
            with shown.paused():
                typer.echo(ending.reward_line(judged.status.reward or "", judged.status.rewards))

    try:
        with interrupts.installed():
            async with cluster.connect(target) as connection:
                return await Episode(connection, Order(rendered, patience, on_verdict), shown, interrupts).play()
    finally:
        shown.close()
