"""The one exception tree of the contract.

    TaskError            the folder, or what it asks for, is wrong: terminal, a retry cannot help
    └── MissingVariable  a template in an env table has no value

Guarantee: a message names the file, the key, the value and what to write instead. It never holds a value of
an `env` table, of a header, or any value that is not a plain scalar.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping

SHOWN_CHARACTERS = 80
"""A value longer than this is cut: the message goes into a status and onto a terminal line."""

NOT_SUPPORTED = "not supported yet"
"""How the message of everything ends that a later release will do."""


class TaskError(Exception):
    """The task folder cannot be run as it stands.

    `problem` is a phrase that follows the value ("must be greater than 0"), `remedy` a sentence that says
    what to write. With `unsupported`, `problem` is the name of the missing feature, and the message ends with
    "not supported yet". `others` holds what else was found wrong in the same folder.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str,
        field: str | None = None,
        value: object = None,
        remedy: str,
        unsupported: bool = False,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.file = file
        self.field = field
        self.value = value
        self.remedy = remedy
        self.unsupported = unsupported
        self.others: tuple[TaskError, ...] = ()

    def __str__(self) -> str:
        where = self.file
        if self.field is not None:
            shown = show(self.value)
            where += f": {self.field}" + (f" = {shown}" if shown else "")
        if self.unsupported:
            return f"{where}: {self.problem} ({self.remedy.rstrip('.')}): {NOT_SUPPORTED}"
        return f"{where}: {self.problem.rstrip('.')}. {self.remedy}"


class MissingVariable(TaskError):  # noqa: N818 - it is named for what is wrong
    """Templates that must be filled and have no value. `missing` maps each key to its variable."""

    def __init__(self, missing: Mapping[str, str]) -> None:
        self.missing = dict(missing)
        wanted = ", ".join(f"{variable} (for {key})" for key, variable in self.missing.items())
        super().__init__(
            f"no value for {wanted}",
            file="task.toml",
            remedy=(
                "Set each one in spec.environmentFrom, or, for a table of a verifier, in spec.secretsFrom; or give it "
                "a default: ${NAME:-default}."
            ),
        )


def show(value: object) -> str:
    """`value` as task.toml would spell it, cut to `SHOWN_CHARACTERS`; "" for what is not a plain scalar."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = json.dumps(value, ensure_ascii=False)
        case int() if value.bit_length() > 256:
            text = "an integer of more than 256 bits"  # str() of it may be refused by the interpreter
        case int() | float() | datetime.date() | datetime.time():
            text = str(value)
        case _:
            return ""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
