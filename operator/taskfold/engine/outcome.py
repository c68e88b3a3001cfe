"""How an error becomes scheduling: the one place that knows.

    Outcome
    ├── Waiting   not a failure: look again in `delay` seconds, and say why in the conditions
    └── Refused   the object asks for what cannot be: terminal

Every other exception leaves the reconcile and comes back with the queue's growing delay.
"""

from taskfold.api.reasons import Reason
from taskfold.contract.errors import MissingVariable, TaskError
from taskfold.decide.plan import Note
from taskfold.effects import errors

SOON = 5.0
QUOTA = 5.0
UNREAD_RULES = ("not yet ready to handle request", 'Get "http')
"""An API server that has just started, or has lost its etcd, cannot read the rules of admission (limit ranges, quotas)
and says Forbidden for it: no rule has refused anything.
"""


class Outcome(Exception):  # noqa: N818 - it is not always an error
    """Base of the tree: a reason of the closed enum and a message for people."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def note(self) -> Note:
        return Note(self.reason, self.message)


class Waiting(Outcome):
    """Something is not there yet."""

    def __init__(self, reason: Reason, message: str, delay: float = SOON) -> None:
        super().__init__(reason, message)
        self.delay = delay


class Refused(Outcome):
    """The same again would be refused again."""


def of_creation(error: errors.ApiError, what: str) -> Exception:
    """What a refused creation means. A quota passes, and a namespace gets its service account a moment after it was
    made, later when the controllers are behind; a rule of the cluster does not pass, unless it could not be read.
    """
    text = f"{what}: {error}"
    match error:
        case errors.Forbidden() if any(words in str(error) for words in UNREAD_RULES):
            return error
        case errors.Forbidden() if "exceeded quota" in str(error):
            return Waiting(Reason.QUOTA_EXCEEDED, text, QUOTA)
        case errors.Forbidden() if "error looking up service account" in str(error):
            return Waiting(Reason.SOURCE_NOT_FOUND, text, SOON)
        case errors.Forbidden() if "is being terminated" in str(error):
            return Waiting(Reason.POD_REJECTED, text, SOON)
        case errors.Forbidden() if 'violates PodSecurity "restricted' in str(error):
            return Refused(Reason.POD_REJECTED, f"{text}. Write spec.security.profile: restricted.")
        case errors.Forbidden() | errors.Invalid() | errors.BadRequest():
            return Refused(Reason.POD_REJECTED, text)
        case _:
            return error


def of_task(error: TaskError) -> Refused:
    """A folder that does not load."""
    reason = Reason.UNSUPPORTED_FIELD if error.unsupported else Reason.INVALID_TASK
    if isinstance(error, MissingVariable):
        reason = Reason.MISSING_VARIABLE
    others = "".join(f"\nalso: {other}" for other in error.others[:10])
    return Refused(reason, f"{error}{others}")


def of_store(error: errors.StoreError) -> Waiting:
    """The store does not work: nothing is lost, it is tried again."""
    return Waiting(Reason.STORE_UNAVAILABLE, str(error), SOON)


def of_error(error: Exception) -> Note:
    """What the conditions say while a reconcile fails and is tried again."""
    match error:
        case errors.StoreError():
            return Note(Reason.STORE_UNAVAILABLE, str(error))
        case errors.EffectError():
            return Note(Reason.INTERNAL, f"tried again: {error}")
        case _:
            return Note(Reason.INTERNAL, f"tried again after {type(error).__name__}: {error}")
