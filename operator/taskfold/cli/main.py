"""The commands and their order in `--help`."""

from importlib import metadata
from typing import Annotated

import typer

from taskfold.cli import attach, conformance, exits, lint, logs, operator, regrade, render, results, run

app = typer.Typer(
    name="taskfold", cls=exits.Commands, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
)
app.command()(render.render)
app.command(cls=run.Command)(run.run)
app.command()(attach.attach)
app.command()(attach.finish)
app.command()(logs.logs)
app.command()(results.results)
app.command(cls=regrade.Command)(regrade.regrade)
app.command()(lint.lint)
app.command()(conformance.conformance)
app.command()(operator.operator)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"taskfold {metadata.version('taskfold')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="TASKFOLD_DEBUG", help="Show the traceback of internal errors.")
    ] = False,
) -> None:
    """Run task folders on Kubernetes and read their rewards."""


def main() -> None:
    """Entry point."""
    app()
