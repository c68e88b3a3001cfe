"""`taskfold run`: one task folder on a cluster, waited for, with its reward.

Guarantees: with --output json, stdout gets exactly one result document in every ending (usage errors, refusals and
internal errors included); the exit code follows from it, save for Ctrl-C (130), usage (64) and internal errors (70).
"""

import asyncio
import json
import secrets
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from taskfold.api.reasons import Reason
from taskfold.api.taskrun import TaskRun
from taskfold.build import manifests, result
from taskfold.cli import cluster, ending, exits, options, progress, render
from taskfold.cli.episode import Episode, Order
from taskfold.cli.interrupts import Interrupts
from taskfold.cli.reasons import CommandReason

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own letters for generated names: none that spell words."""


class Output(StrEnum):
    """What stdout gets."""

    TEXT = "text"
    JSON = "json"


class Command(TyperCommand):
    """`run`, which owes a document for a command line that cannot be read, too."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        words = tuple(args)
        try:
            return super().make_context(info_name, args, *more, **extra)
        except exits.UsageError as error:
            if _asks_for_json(words):
                _print(_usage(error))
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except exits.UsageError as error:
            if ctx.params.get("output") == Output.JSON:
                _print(_usage(error))
            raise


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
    try:
        checked = render.check(folder, chosen, spec)
        task_id, files, path = checked.task.id, checked.files, checked.path
        wanted = manifests.Wanted(run_name, namespace, task_id, files, chosen, source, spec, path)
        rendered = manifests.build(wanted)
        for warning in checked.warnings:
            typer.echo(f"warning: {warning}", err=True)
        found = asyncio.run(_episode(rendered, timeout, output, cluster.Target(kubeconfig, context, namespace)))
    except exits.Refused as refused:
        document = result.refusal(run_name, namespace or "", refused.reason, str(refused))
        found = ending.Ending(document, exits.REFUSED)
    except exits.Unavailable as unavailable:
        document = result.unknown(run_name, namespace or "", unavailable.reason, str(unavailable))
        found = ending.Ending(document, exits.NO_VERDICT)
    except KeyboardInterrupt:
        text = "Ctrl-C before the run was created"
        document = result.unknown(run_name, namespace or "", CommandReason.INTERRUPTED, text, outcome="cancelled")
        found = ending.Ending(document, exits.INTERRUPTED)
    except Exception as error:
        if output is Output.JSON:
            _print(result.unknown(run_name, namespace or "", Reason.INTERNAL, exits.internal(error)))
        raise
    _finish(found, output)


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


def _finish(found: ending.Ending, output: Output) -> None:
    for line in ending.lines(found.document):
        typer.echo(line, err=True)
    if output is Output.JSON:
        _print(found.document)
    raise typer.Exit(found.code)


def _usage(error: Exception) -> dict[str, Any]:
    return result.refusal("", "", CommandReason.USAGE, getattr(error, "format_message", str)())


def _asks_for_json(words: Sequence[str]) -> bool:
    pairs = zip(words, [*words[1:], ""], strict=True)
    return any(
        (word in ("--output", "-o") and value == "json") or word in ("--output=json", "-ojson", "-o=json")
        for word, value in pairs
    )


def _print(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
