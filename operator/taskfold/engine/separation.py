"""Where a separate verification finds what it grades."""

from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.decide import step_status


def source(run: TaskRun, verifier: VerifierRun) -> str | None:
    """The place of the run's artifacts in the store, of the step that is graded; None: the run has left nothing."""
    prefix, step = run.status.store, verifier.spec.step
    return step_status.place(prefix, step) if prefix is not None and step is not None else prefix
