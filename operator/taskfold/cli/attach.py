"""`taskfold attach` and `taskfold finish`: an external agent's work by hand.

Guarantees: a shell that ends does not end the run; only an outcome that somebody names does, and the commands say so.
What is typed and printed is passed through as it is; what the operator says is shown without control characters.
"""

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from taskfold import client as clients
from taskfold.api.agent import FinishOutcome
from taskfold.api.reasons import Reason
from taskfold.build import result as results
from taskfold.cli import cluster, ending, exits, options, terminal
from taskfold.cli.progress import clean
from taskfold.contract import response as responses
from taskfold.effects import commands, errors

SHELLS = ("bash", "sh")
INPUT_BYTES = 16 * 2**20
"""Of commands that come from a pipe: they are sent whole."""


class Outcome(StrEnum):
    """How the work ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def finish(self) -> FinishOutcome:
        return FinishOutcome(self.value.capitalize())


RunName: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="Name of the TaskRun.", show_default=False)]
Response: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The final response: text, or @FILE with text or a Responses API object.",
        show_default=False,
    ),
]


def attach(  # noqa: PLR0917 - options of a command line
    run: RunName,
    outcome: Annotated[
        Outcome | None,
        typer.Option("--finish", help="Say so when the shell has ended. Unset: the run goes on.", show_default=False),
    ] = None,
    response: Response = None,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Open a shell in the sandbox of a run whose agent is external."""
    if response is not None and outcome is None:
        raise typer.BadParameter("--response needs --finish", param_hint="--response")
    said = _response(response)
    target = cluster.Target(kubeconfig, context, namespace)
    given = None if sys.stdin.isatty() else sys.stdin.buffer.read(INPUT_BYTES + 1)
    if given is not None and len(given) > INPUT_BYTES:
        exits.fail(f"more than {INPUT_BYTES:,} bytes of commands", exits.REFUSED)
    code = asyncio.run(_attach(run, target, outcome, said, given))
    raise typer.Exit(code)


def finish(  # noqa: PLR0917 - options of a command line
    run: RunName,
    outcome: Annotated[Outcome, typer.Argument(help="How the work ended; verification follows in both cases.")],
    response: Response = None,
    wait: Annotated[bool, typer.Option(help="Wait for the reward and print it.")] = True,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Say that the work of an external agent is done."""
    said, target = _response(response), cluster.Target(kubeconfig, context, namespace)
    raise typer.Exit(asyncio.run(_finish_alone(run, target, outcome, said, wait=wait)))


async def _attach(
    name: str, target: cluster.Target, outcome: Outcome | None, response: str | None, given: bytes | None
) -> int:
    async with cluster.connect(target) as connection:
        run = await _external(connection, name)
        typer.echo(f"waits until the sandbox of {name} is ready", err=True)
        place = await _ready(run)
        typer.echo(f"container {place.container} of pod {place.pod}, as {place.user}; the task:\n", err=True)
        typer.echo(_shown(await run.instruction()), err=True)
        code = await _worked(run, given)
        if outcome is None:
            outcome = _asked() if given is None and terminal.is_one() else None
        if outcome is None:
            where = f"--namespace {run.namespace} "
            typer.echo(f"The run waits. To end it: taskfold finish {where}{name} succeeded", err=True)
            return code
        return await _finish(run, outcome, response, wait=True)


async def _finish_alone(
    name: str, target: cluster.Target, outcome: Outcome, response: str | None, *, wait: bool
) -> int:
    async with cluster.connect(target) as connection:
        return await _finish(await _external(connection, name), outcome, response, wait=wait)


async def _external(connection: cluster.Connection, name: str) -> clients.Run:
    """The run, which somebody outside may work on."""
    with cluster.named(connection, name):
        run = await clients.Client(connection.client, connection.login, connection.namespace).get(name)
    agent = run.last.spec.agent
    if agent.external is None:
        text = f"TaskRun {name} has the agent {agent.name}, which works by itself. Make one with `--agent external`."
        raise exits.Refused(Reason.INVALID_SPEC, text)
    return run


async def _ready(run: clients.Run) -> clients.Sandbox:
    try:
        return await run.ready()
    except clients.RunEnded as ended:
        raise exits.Refused(Reason.COMPLETED, clean(str(ended))) from None


async def _worked(run: clients.Run, given: bytes | None) -> int:
    """The shell's exit code, once it has ended. `given`: its commands, when nobody types them."""
    try:
        for shell in SHELLS:
            try:
                if given is not None:
                    done = await run.exec([shell], stdin=given, output_bytes=commands.MAX_OUTPUT, tell=_tell)
                    return done.returncode if done.returncode >= 0 else 128 - done.returncode
                await run.exec([shell, "-c", ":"])
                async with run.terminal([shell]) as stream:
                    return await terminal.passed_through(stream)
            except errors.StartFailed:
                if shell == SHELLS[-1]:
                    raise
    except (errors.ExecError, errors.SandboxError) as error:
        raise exits.Unavailable(Reason.SANDBOX_LOST, f"the shell was cut off: {error}") from error
    raise AssertionError("a shell, or an error")


def _tell(channel: int, content: bytes) -> None:
    out = sys.stdout if channel == commands.STDOUT else sys.stderr
    out.buffer.write(content)
    out.flush()


async def _finish(run: clients.Run, outcome: Outcome, response: str | None, *, wait: bool) -> int:
    await run.finish(outcome.finish, response)
    if not wait:
        return 0
    await run.result()
    found = ending.of(results.document(run.last))
    if found.document["reward"] is not None:
        typer.echo(ending.reward_line(run.last.status.reward or "", run.last.status.rewards))
    for line in ending.lines(found.document):
        typer.echo(line, err=True)
    return found.code


def _asked() -> Outcome | None:
    """What somebody at a terminal says about the end of the work."""
    names = [each.value for each in Outcome]
    said = typer.prompt(
        f"Is the work done? {', '.join(names)}, or nothing to go on later", "", show_default=False, err=True
    )
    return Outcome(said) if said in names else None


def _response(text: str | None) -> str | None:
    """`--response`, as the run takes it."""
    if text is None:
        return None
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{text[1:]}: cannot be read as text: {error}", param_hint="--response") from None
    try:
        responses.parse(text)
    except responses.InvalidResponseError as error:
        raise typer.BadParameter(f"the response {error}", param_hint="--response") from None
    return text


def _shown(text: str) -> str:
    return "\n".join(clean(line) if line.strip() else "" for line in text.splitlines()) + "\n"
