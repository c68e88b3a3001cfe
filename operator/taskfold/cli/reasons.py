"""Why a command ended without an outcome of its run: the words in `failure.reason` beside the operator's own.

The operator's reasons (`api.reasons`) speak of runs; these speak of the command and of the way to the cluster.
"""

from enum import StrEnum


class CommandReason(StrEnum):
    """One word per cause."""

    USAGE = "UsageError"
    NO_CREDENTIALS = "NoCredentials"
    UNREACHABLE = "Unreachable"
    NOT_INSTALLED = "NotInstalled"
    NOT_ALLOWED = "NotAllowed"
    REJECTED = "Rejected"
    NOT_FOUND = "NotFound"
    OPERATOR_ABSENT = "OperatorAbsent"
    RUN_DELETED = "RunDeleted"
    TIMED_OUT = "TimedOut"
    INTERRUPTED = "Interrupted"

    @property
    def sentence(self) -> str:
        """What happened, for the reference."""
        return SENTENCES[self]


SENTENCES: dict[CommandReason, str] = {
    CommandReason.USAGE: "The command line cannot be read.",
    CommandReason.NO_CREDENTIALS: "There is no usable kubeconfig, or the API server does not accept the login.",
    CommandReason.UNREACHABLE: "The API server does not answer.",
    CommandReason.NOT_INSTALLED: "The cluster has no TaskRun resource: the CRDs of taskfold are not installed.",
    CommandReason.NOT_ALLOWED: "The account may not do this, or a rule of the cluster forbids it.",
    CommandReason.REJECTED: "The API server refuses the object: a field, its name, its size, its namespace.",
    CommandReason.NOT_FOUND: "There is no such run.",
    CommandReason.OPERATOR_ABSENT: "No operator looked at the run, which never started. `run` told it to cancel.",
    CommandReason.RUN_DELETED: "Somebody deleted the run before it was complete.",
    CommandReason.TIMED_OUT: "`--timeout` passed; the run was told to cancel and had no outcome yet.",
    CommandReason.INTERRUPTED: "Ctrl-C; there was no outcome yet. `run` told the run to cancel.",
}


def table_rows() -> list[tuple[str, str]]:
    """(reason, sentence), for the reference."""
    return [(reason.value, reason.sentence) for reason in CommandReason]
