"""Exit codes, the same in every command (docs/reference/cli.md)."""

from typing import NoReturn

import typer

REWARDED = 0
BELOW_ONE = 1
NO_VERDICT = 2
REFUSED = 3
USAGE = 64
INTERNAL = 70
INTERRUPTED = 130


def fail(message: str, code: int) -> NoReturn:
    """End with a message on stderr."""
    typer.echo(message, err=True)
    raise typer.Exit(code)
