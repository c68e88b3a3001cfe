"""How long a request may take by its own limits."""

from taskfold.protocol.phase import PhaseRequest


def of_runs(request: PhaseRequest, slack_seconds: float) -> float | None:
    """Seconds until all of its runs have ended, and so many more; None: some run has no limit."""
    if request.limit_seconds is not None:
        return request.limit_seconds + slack_seconds
    limits = [run.limit_seconds if run.check is None else None for run in request.runs if run.settle_seconds is None]
    if any(limit is None for limit in limits):
        return None
    return sum(limit for limit in limits if limit is not None) + slack_seconds
