"""What programs get from a command that ends with a verdict: exactly one document on stdout.

Guarantees: with --output json there is one in every ending (usage errors, refusals and internal errors included); the
exit code follows from it, save for Ctrl-C (130), usage (64) and internal errors (70).
"""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NoReturn, TypeAlias

import typer
from typer.core import TyperCommand

from taskfold.api.reasons import Reason
from taskfold.cli import ending, exits
from taskfold.cli.reasons import CommandReason

Document = dict[str, Any]
Never: TypeAlias = Callable[[str, str, str], Document]
"""Outcome, reason and message as the document of what never became an object."""


class Output(StrEnum):
    """What stdout gets."""

    TEXT = "text"
    JSON = "json"


class Command(TyperCommand):
    """A command that owes a document for a command line that cannot be read, too."""

    @staticmethod
    def unread(message: str) -> Document:
        """The document of a usage error."""
        raise NotImplementedError

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        words = tuple(args)
        try:
            return super().make_context(info_name, args, *more, **extra)
        except exits.UsageError as error:
            if _asks_for_json(words):
                self._tell(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except exits.UsageError as error:
            if ctx.params.get("output") == Output.JSON:
                self._tell(error)
            raise

    def _tell(self, error: Exception) -> None:
        show(type(self).unread(getattr(error, "format_message", lambda: str(error))()))


def end(play: Callable[[], ending.Ending], never: Never, output: Output) -> NoReturn:
    """End as `play` does; where it gives up with an error, with the document that `never` makes of that."""
    try:
        found = play()
    except exits.Refused as refused:
        found = ending.Ending(never("refused", refused.reason, str(refused)), exits.REFUSED)
    except exits.Unavailable as unavailable:
        found = ending.Ending(never("error", unavailable.reason, str(unavailable)), exits.NO_VERDICT)
    except KeyboardInterrupt:
        text = "Ctrl-C before anything was created"
        found = ending.Ending(never("cancelled", CommandReason.INTERRUPTED, text), exits.INTERRUPTED)
    except Exception as error:
        if output is Output.JSON:
            show(never("error", Reason.INTERNAL, exits.internal(error)))
        raise
    for line in ending.lines(found.document):
        typer.echo(line, err=True)
    if output is Output.JSON:
        show(found.document)
    raise typer.Exit(found.code)


def show(document: Document) -> None:
    """The document on stdout."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def _asks_for_json(words: Sequence[str]) -> bool:
    pairs = zip(words, [*words[1:], ""], strict=True)
    return any(
        (word in ("--output", "-o") and value == "json") or word in ("--output=json", "-ojson", "-o=json")
        for word, value in pairs
    )
