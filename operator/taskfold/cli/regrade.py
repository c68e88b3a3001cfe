"""`taskfold regrade`: a complete run graded again from the artifacts that it left, without its agent.

Guarantees: the run itself is only read; stdout gets the reward, or with --output json exactly the verification's
document; Ctrl-C leaves the VerifierRun, which goes on.
"""

import asyncio
import json
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import manifests, result
from taskfold.build import regrade as builder
from taskfold.cli import cluster, ending, exits, options, progress
from taskfold.cli.run import SUFFIX, Output
from taskfold.contract import folder
from taskfold.effects import client as api

POLL_SECONDS = 0.5


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
    if tests is not None and not tests.is_dir():
        raise typer.BadParameter(f"{str(tests)!r} is no folder", param_hint="--tests")
    suffix = "".join(secrets.choice(SUFFIX) for _ in range(manifests.SUFFIX_LENGTH))
    own = folder.DirectoryFolder(tests) if tests is not None else None
    wanted = builder.Wanted(options.name(name) or manifests.unique_name(run, suffix), own, step, timeout, force)
    target = cluster.Target(kubeconfig, context, namespace)
    before, verifier = asyncio.run(_graded(target, run, wanted, wait=wait))
    if output is Output.JSON:
        typer.echo(json.dumps(result.verification(verifier), indent=2, allow_nan=False))
    if wait:
        _finish(before, verifier, output)


async def _graded(
    target: cluster.Target, run: str, wanted: builder.Wanted, *, wait: bool
) -> tuple[TaskRun, VerifierRun]:
    async with cluster.connect(target) as connection:
        with cluster.named(connection, run):
            found = TaskRun.parse(await connection.client.get(api.TASKRUNS, connection.namespace, run))
        manifest = builder.manifest(found, wanted)
        made = await connection.client.create(api.VERIFIERRUNS, connection.namespace, manifest)
        where = f"verifierrun/{wanted.name} created in namespace {connection.namespace}"
        typer.echo(where + ("; it goes on without this command" if wait else ""), err=True)
        if not wait:
            return found, VerifierRun.parse(made)
        return found, await _complete(connection, VerifierRun.parse(made))


async def _complete(connection: cluster.Connection, verifier: VerifierRun) -> VerifierRun:
    """The VerifierRun once it is complete. One that is gone, or another of its name, is an error."""
    shown, name = progress.open_progress(), verifier.metadata.name
    try:
        while not verifier.status.complete:
            await asyncio.sleep(POLL_SECONDS)
            found = VerifierRun.parse(await connection.client.get(api.VERIFIERRUNS, connection.namespace, name))
            if found.metadata.uid != verifier.metadata.uid:
                raise exits.Unavailable("Replaced", f"{name} is another VerifierRun by now")
            verifier = found
            shown.step(progress.step_of(verifier))
    finally:
        shown.close()
    return verifier


def _finish(before: TaskRun, verifier: VerifierRun, output: Output) -> None:
    document: dict[str, Any] = result.verification(verifier)
    status = verifier.status
    if output is Output.TEXT and status.reward is not None:
        typer.echo(ending.reward_line(status.reward, status.rewards))
    old = before.status.reward if before.status.reward is not None else "none"
    typer.echo(f"reward of taskrun/{before.metadata.name}, which is not changed: {old}", err=True)
    if status.failure is not None:
        typer.echo(f"{status.failure.reason}: {progress.clean(status.failure.message)}", err=True)
    for warning in status.warnings:
        typer.echo(f"warning: {progress.clean(warning)}", err=True)
    if status.store is not None:
        typer.echo(f"files: `taskfold results verifierrun/{verifier.metadata.name}`", err=True)
    refused = status.failure is not None and status.failure.terminal
    raise typer.Exit(exits.REFUSED if refused else ending.of(document).code)
