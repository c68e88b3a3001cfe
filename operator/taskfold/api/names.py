"""Names, labels and annotations of everything that belongs to a run: a function of the run, never a choice."""

MANAGED_BY = "app.kubernetes.io/managed-by"
RUN = "taskfold.dev/run"
RUN_UID = "taskfold.dev/run-uid"
ATTEMPT = "taskfold.dev/attempt"
ROLE = "taskfold.dev/role"
PROTOCOL = "taskfold.dev/protocol"
TASK_DIGEST = "taskfold.dev/task-digest"
USABLE = "taskfold.dev/usable"

OPERATOR = "taskfold"
"""Value of `managed-by`, field manager and Event source."""


def pod(run: str, attempt: int, try_number: int) -> str:
    """The sandbox of one try. Another try is another name: a deleted pod may take its time to go."""
    return f"{run}-{attempt}-{try_number}"


def verifier(run: str, attempt: int) -> str:
    """The VerifierRun of one attempt."""
    return f"{run}-{attempt}-verify"


WAITER = "wait-"


def waiter(nonce: str) -> str:
    """The container that waits for the end of this phase."""
    return WAITER + nonce[:12]
