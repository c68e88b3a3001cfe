"""The image's ENTRYPOINT beside the phases of its sandbox: whether it has died.

Guarantee: it is told from what the helper reports at the end of every phase, so that no connection has to ask for it;
an end with 0 is none to speak of (C10).
"""

from taskfold.decide import programs
from taskfold.decide.losses import Cause, Loss
from taskfold.protocol.phase import PhaseResult


def died(result: PhaseResult) -> Loss | None:
    """The loss, if by the end of this phase the entrypoint had ended with anything but 0, or had not started."""
    for ended in result.background:
        if not ended.run.succeeded:
            return Loss(Cause.ENTRYPOINT_FAILED, f"the image's {programs.ended_how(ended.run)}")
    return None
