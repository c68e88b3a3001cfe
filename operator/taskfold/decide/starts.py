"""What a sandbox that will not start something proves: that its agent altered it, or only that something is short.

Guarantees: tampering is told only where a shortage or a broken device cannot be the cause.
"""

from taskfold.decide.losses import Cause, Loss
from taskfold.decide.world import PhaseUnreached

NO_ROOM = ("no space left on device", "disk quota exceeded")
NO_PROOF = (
    "resource temporarily unavailable",
    "cannot allocate memory",
    "too many open files",
    "argument list too long",  # a variable of the run's own that Linux takes for none
    "input/output error",
    *NO_ROOM,
)
"""Words of the kernel about a shortage or a broken device: nobody altered anything."""

MAX_KILLS = 5
"""So many helpers are killed in a row by nothing but an agent: a pod that ends kills at most the one that is there."""


def unprepared(refusal: str, message: str, whose: str = "the verifier's files") -> Loss:
    """Why the helper could not put files in place after the agent had worked; nothing was started."""
    if any(words in message for words in NO_ROOM):
        return Loss(Cause.DISK_FULL, f"there is no room for {whose}: {message}")
    if refusal == "Prepare" and not any(words in message for words in NO_PROOF):
        return Loss(Cause.UNREPLACEABLE, f"the sandbox cannot be made ready for {whose}: {message}")
    return Loss(Cause.NOT_COPIED, f"{whose} could not be copied into the sandbox: {message}")


def killed(report: PhaseUnreached) -> Loss | None:
    """Nobody outside of a sandbox that goes on kills single processes in it again and again."""
    if report.killed < MAX_KILLS:
        return None
    text = f"{report.killed} helpers in a row were killed in the sandbox, by what the agent left or at its memory limit"
    return Loss(Cause.HELPERS_KILLED, text)


def proves_tampering(error: str | None) -> bool:
    """Whether a program that does not start, in a sandbox where it could be started before, was taken away."""
    return error is not None and not any(words in error for words in NO_PROOF)
