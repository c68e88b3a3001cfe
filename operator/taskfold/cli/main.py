"""The commands and their order in `--help`."""

import typer

from taskfold.cli import operator

app = typer.Typer(name="taskfold", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
app.command()(operator.operator)


@app.callback()
def root() -> None:
    """Run task folders on Kubernetes and read their rewards."""


def main() -> None:
    """Entry point."""
    app()
