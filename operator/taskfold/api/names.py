"""Names, labels and annotations of everything that belongs to a run: a function of the run, never a choice."""

import re

MANAGED_BY = "app.kubernetes.io/managed-by"
RUN = "taskfold.dev/run"
RUN_UID = "taskfold.dev/run-uid"
ATTEMPT = "taskfold.dev/attempt"
ROLE = "taskfold.dev/role"
PROTOCOL = "taskfold.dev/protocol"
TASK_DIGEST = "taskfold.dev/task-digest"
USABLE = "taskfold.dev/usable"

MAX_LABEL = 63
_PLAIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_UNFIT = re.compile(r"[^a-z0-9]+")

OPERATOR = "taskfold"
"""Value of `managed-by`, field manager and Event source."""


def pod(run: str, attempt: int, try_number: int) -> str:
    """The sandbox of one try. Another try is another name: a deleted pod may take its time to go."""
    return f"{run}-{attempt}-{try_number}"


def verifier(run: str, attempt: int, step: str | None = None, number: int = 0) -> str:
    """The VerifierRun of one attempt, or of one of its steps, which is the `number`th from 1.

    A step whose name is no part of a label, or too long for one, is told by as much of it as fits and its number, with
    two dashes between, which no name has that stands as it is.
    """
    name = f"{run}-{attempt}-verify"
    if step is None:
        return name
    room = MAX_LABEL - len(name) - 1
    if len(step) <= room and _PLAIN.fullmatch(step):
        return f"{name}-{step}"
    start = _UNFIT.sub("-", step.lower())[: max(0, room - len(f"--{number}"))].strip("-")
    return f"{name}-{start}--{number}" if start else f"{name}--{number}"


def verifier_pod(verifier: str, try_number: int) -> str:
    """The own sandbox of a separate verification, of one try."""
    return f"{verifier}-{try_number}"


WAITER = "wait-"


def waiter(nonce: str) -> str:
    """The container that waits for the end of this phase."""
    return WAITER + nonce[:12]
