"""The way from a command to the cluster, and what the API server's errors mean to somebody at a terminal.

Guarantees: every EffectError becomes Refused (the same again would be refused again) or Unavailable (it may work
later), with what to type next. Never shows a credential.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from taskfold.cli import exits
from taskfold.cli.reasons import CommandReason
from taskfold.effects import client as api
from taskfold.effects import credentials, errors

INSTALL = "helm upgrade --install taskfold charts/taskfold --namespace taskfold --create-namespace"
LIMITS = api.Limits(connect_seconds=5.0, retry_seconds=10.0)
"""Somebody waits: five tries, a few seconds in all."""


@dataclass(frozen=True)
class Connection:
    """A client, its login, and the namespace that the command works in."""

    client: api.Client
    login: credentials.Source
    namespace: str


@dataclass(frozen=True)
class Target:
    """Which cluster and namespace the options name; None: as the kubeconfig says."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None


@contextlib.asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    """`async with`: EffectErrors that leave the block leave it as Refused or Unavailable."""
    try:
        login = credentials.find(target.kubeconfig, context=target.context)
        current = await login.current()
        async with api.Client(login, limits=LIMITS, user_agent="taskfold-cli") as client:
            yield Connection(client, login, target.namespace or current.namespace)
    except errors.EffectError as error:
        raise explained(error) from error


def explained(error: errors.EffectError) -> Exception:
    """The same error as an ending of a command."""
    match error:
        case errors.CredentialError():
            remedy = "" if error.remedy else " Name one with --kubeconfig and --context."
            return exits.Unavailable(CommandReason.NO_CREDENTIALS, f"{error}{remedy}")
        case errors.Unauthorized():
            text = f"{error}. The login is not accepted: try `kubectl auth whoami` with the same kubeconfig."
            return exits.Unavailable(CommandReason.NO_CREDENTIALS, text)
        case errors.NotFound() if _namespace(error):
            text = f"{error.problem}. Create it with `kubectl create namespace …`, or name another one."
            return exits.Refused(CommandReason.REJECTED, text)
        case errors.NotFound() if not error.details.get("name"):
            text = f"This cluster does not know TaskRuns. Install taskfold: {INSTALL}"
            return exits.Refused(CommandReason.NOT_INSTALLED, text)
        case errors.Forbidden():
            return exits.Refused(CommandReason.NOT_ALLOWED, str(error))
        case errors.AlreadyExists():
            text = f"{error.problem}. Take another --name, or delete that one first."
            return exits.Refused(CommandReason.REJECTED, text)
        case errors.Unavailable() | errors.TooManyRequests():
            text = f"{error}. `kubectl version` with the same kubeconfig shows whether it is reachable."
            return exits.Unavailable(CommandReason.UNREACHABLE, text)
        case errors.ApiError():
            return exits.Refused(CommandReason.REJECTED, str(error))
        case _:
            return exits.Unavailable(CommandReason.UNREACHABLE, str(error))


def _namespace(error: errors.NotFound) -> bool:
    return error.details.get("kind") == "namespaces" or error.problem.startswith('namespaces "')


@contextlib.contextmanager
def named(connection: Connection, name: str) -> Iterator[None]:
    """Ask for the TaskRun of this name inside. Refused, with the command that lists them, if there is none."""
    try:
        yield
    except errors.NotFound as error:
        if not error.details.get("name"):
            raise
        look = f"kubectl --namespace {connection.namespace} get taskruns"
        text = f"there is no TaskRun {name} in namespace {connection.namespace}. See: {look}"
        raise exits.Refused(CommandReason.NOT_FOUND, text) from None
