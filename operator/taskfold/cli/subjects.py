"""Whose results a command means: a TaskRun by its name, or any run as kubectl writes it, `verifierrun/NAME`."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from taskfold.api.taskrun import TaskRun
from taskfold.cli import cluster, exits
from taskfold.cli.reasons import CommandReason
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import results as remote

Argument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Name of the TaskRun, or verifierrun/NAME.", show_default=False),
]
KINDS = {
    **dict.fromkeys(("taskrun", "taskruns", "tr"), api.TASKRUNS),
    **dict.fromkeys(("verifierrun", "verifierruns", "vr"), api.VERIFIERRUNS),
}
NOT_SERVED = (
    "The cluster has no results API (group results.taskfold.dev): taskfold is not installed, or with "
    "reading.enabled=false. Ask whoever installed it; the files are in the operator's store."
)


@dataclass(frozen=True)
class Subject:
    """A run of the namespace."""

    resource: api.Resource
    name: str

    @property
    def word(self) -> str:
        return "TaskRun" if self.resource is api.TASKRUNS else "VerifierRun"


def parse(text: str) -> Subject:
    """`NAME`, `taskrun/NAME`, `verifierrun/NAME`, their plurals and short names."""
    kind, slash, name = text.partition("/")
    if not slash:
        return Subject(api.TASKRUNS, text)
    resource = KINDS.get(kind.lower().partition(".")[0])
    if resource is None or not name or "/" in name:
        raise typer.BadParameter(f"{text!r} is no run: write its name, taskrun/NAME or verifierrun/NAME")
    return Subject(resource, name)


async def get(connection: cluster.Connection, subject: Subject) -> dict[str, Any]:
    """The object. Refused if there is none."""
    try:
        return await connection.client.get(subject.resource, connection.namespace, subject.name)
    except errors.NotFound as error:
        if not error.details.get("name"):
            raise
        look = f"kubectl --namespace {connection.namespace} get {subject.resource.plural}"
        text = f"there is no {subject.word} {subject.name} in namespace {connection.namespace}. See: {look}"
        raise exits.Refused(CommandReason.NOT_FOUND, text) from None


def run(found: dict[str, Any]) -> TaskRun:
    """The object as a TaskRun."""
    return TaskRun.parse(found)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Errors of the results API as endings: what is not there yet or any more is no verdict (2)."""
    try:
        yield
    except remote.NotServed:
        raise exits.Refused(CommandReason.NOT_INSTALLED, NOT_SERVED) from None
    except (errors.NotFound, errors.Conflict) as error:
        raise exits.Unavailable("NothingKept", error.problem) from None
    except errors.Forbidden as error:
        text = (
            f"{error.problem}. Reading results needs `get` on taskruns/files, taskruns/log, verifierruns/files and "
            "verifierruns/log in the group results.taskfold.dev; the role `view` has it where taskfold is installed."
        )
        raise exits.Refused(CommandReason.NOT_ALLOWED, text) from None
    except OSError as error:
        raise exits.Refused("Folder", f"the folder cannot be written: {error}") from None
