"""Exit codes, the same in every command (docs/reference/cli.md), and how an error becomes one.

Guarantees: a usage error ends with 64, something refused with 3, an error that nobody foresaw with 70 and one
line that says so (with --debug, its traceback). Ctrl-C ends with 130.
"""

import traceback
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from taskfold.build.refused import Refused as Refused  # noqa: PLC0414 - one of the ways in which a command ends

REWARDED = 0
BELOW_ONE = 1
NO_VERDICT = 2
REFUSED = 3
USAGE = 64
INTERNAL = 70
INTERRUPTED = 130

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for a command line that cannot be read; typer itself ends with 2, our NO_VERDICT."""
_PASSING: tuple[type[BaseException], ...] = (typer.Exit, typer.Abort, BrokenPipeError, EOFError)


class Unavailable(Exception):  # noqa: N818 - as above
    """The cluster gives no answer now; the same command may work later."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Commands(TyperGroup):
    """The commands, with our exit codes."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        try:
            return super().make_context(info_name, args, *more, **extra)
        except UsageError as error:
            raise as_usage(error) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise as_usage(error) from None
        except Refused as refused:
            fail(str(refused), REFUSED)
        except Unavailable as unavailable:
            fail(str(unavailable), NO_VERDICT)
        except _PASSING:
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            fail(internal(error), INTERNAL)


def as_usage(error: Exception) -> Exception:
    """The same error, ending with 64."""
    error.exit_code = USAGE  # type: ignore[attr-defined]
    return error


def internal(error: Exception) -> str:
    """One line about an error that nobody foresaw."""
    text = " ".join(str(error).split())
    return (
        f"internal error: {type(error).__name__}{': ' + text if text else ''}. "
        "`taskfold --debug …` shows where; please report it."
    )


def fail(message: str, code: int) -> NoReturn:
    """End with a message on stderr."""
    typer.echo(message, err=True)
    raise typer.Exit(code)
