"""Which network restriction a sandbox is to have: the task's and the run's together, and why it cannot have that.

Guarantees: of two restrictions both hold; what cannot be read or enforced is refused before any sandbox exists, never
taken for no restriction.
"""

from taskfold.api.settings import Settings
from taskfold.api.taskrun import NetworkRestriction, TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.contract import network, restrictions, steps
from taskfold.contract.errors import TaskError
from taskfold.contract.network import Network
from taskfold.contract.task import Task

Place = tuple[str, str]
AGENT: Place = ("TaskRun", "spec.network.agent")
VERIFIER: Place = ("VerifierRun", "spec.network")
"""Where a restriction is written: the kind, and the field."""


def of_run(run: TaskRun, task: Task) -> Network:
    """What the agent's sandbox may reach. TaskError: a host that is none (`refusal` tells)."""
    own = run.spec.network
    return network.stricter(task.network, _asked(own.agent if own is not None else None, AGENT))


def of_verifier(verifier: VerifierRun, sandbox: Task) -> Network:
    """What a separate verifier's own sandbox may reach. `sandbox`: `contract.separate.sandbox`. TaskError likewise."""
    return network.stricter(sandbox.network, _asked(verifier.spec.network, VERIFIER))


def refusal(run: TaskRun, task: Task, settings: Settings) -> str | None:
    """Why this operator cannot restrict a run's sandboxes as they ask; None: it can, or is not to."""
    turns = steps.turns(task)
    verifiers = [turn.separate.network for turn in turns if turn.separate is not None]
    return unenforceable((of_run(run, task), *verifiers), settings)


def wrong_host(wanted: NetworkRestriction | None, place: Place) -> str | None:
    """Which hosts of a restriction are none, in words."""
    try:
        _asked(wanted, place)
    except TaskError as error:
        return " ".join(map(str, (error, *error.others)))
    return None


def unenforceable(wanted: tuple[Network, ...], settings: Settings) -> str | None:
    """Why this operator cannot prove any restriction; None: it can, or none is wanted."""
    if settings.network.canary.namespace is not None or not any(each.restricted for each in wanted):
        return None
    return (
        "a restricted network is asked for, and this operator has no canaries by which it could be proven to be in "
        "force. Install the chart with network.canary.enabled=true (settings.network.canary)."
    )


def _asked(wanted: NetworkRestriction | None, place: Place) -> Network:
    if wanted is None:
        return network.PUBLIC
    return restrictions.asked(wanted.mode.value, wanted.allowed_hosts, file=place[0], field=place[1])
