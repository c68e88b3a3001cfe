"""What `status.steps` says about a turn that is over.

Guarantees: one entry for each turn, in order, appended once and never changed: how many there are tells which turn is
at work.
"""

from taskfold.api.status import AgentStatus, StepAgentStatus, StepStatus, StepVerifierStatus, VerifierStatus
from taskfold.api.taskrun import TaskRunStatus
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.decide import status as to
from taskfold.decide.world import RunWorld


def place(prefix: str, step: str) -> str:
    """Where in the store the rewards of a step are kept. `prefix`: the attempt's."""
    return f"{prefix}steps/{step}/"


def graded(world: RunWorld, found: VerifierRunStatus) -> TaskRunStatus:
    """The status with the result of the step whose VerifierRun is complete. `found`: as it counts for the run."""
    failure, verifier = found.failure, found.verifier or VerifierStatus()
    name = world.verifier.metadata.name if world.verifier is not None else None
    before, uploaded = world.run.status.timings, found.timings.get("upload", 0.0)
    seconds = before.get("verification", 0.0) + (verifier.seconds or 0.0)
    return _with(
        to.timed(world.run.status, upload=before.get("upload", 0.0) + uploaded, verification=seconds),
        _over(world).model_copy(
            update={
                "reward": found.reward,
                "rewards": found.rewards,
                "components": bool(found.reward_components),
                "masked": found.masked,
                "kind": failure.kind if failure is not None else None,
                "reason": failure.reason if failure is not None else None,
                "verifier": StepVerifierStatus(
                    mode=world.verifier.spec.mode if world.verifier is not None else verifier.mode,
                    name=name,
                    return_code=verifier.return_code,
                    seconds=verifier.seconds,
                    timed_out=verifier.timed_out,
                ),
            }
        ),
    )


def broken_off(world: RunWorld, reason: str, kind: str | None, *, masked: bool) -> TaskRunStatus:
    """The status with the step that was lost on its way; as it is, for a single-step task."""
    if world.turn is None or world.turn.step is None:
        return world.run.status
    lost = {"masked": masked, "reason": reason, "kind": kind}
    return _with(world.run.status, _over(world).model_copy(update=lost))


def _over(world: RunWorld) -> StepStatus:
    """The step at work, with what is known of its agent."""
    if world.turn is None or world.turn.step is None:
        raise ValueError("no step is at work")
    agent = world.run.status.agent or AgentStatus()
    worked = StepAgentStatus(outcome=agent.outcome, return_code=agent.return_code, seconds=agent.seconds)
    ended = to.stamp(world.now)
    return StepStatus(name=world.turn.step.name, agent=worked if agent.outcome else None, ended_at=ended)


def _with(status: TaskRunStatus, step: StepStatus) -> TaskRunStatus:
    return status.model_copy(update={"steps": [*status.steps, step]})
