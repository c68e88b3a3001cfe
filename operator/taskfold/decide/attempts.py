"""What a loss means for its run: another try, a whole new attempt, a reward of 0, or masked.

Guarantees: `losses.consequence` decides, nothing else. A new attempt starts from nothing but the task's snapshot: other
names, other nonces, another place in the store; what the earlier one left stays as it is. There are at most
`spec.retries.infrastructure` of them.
"""

from typing import assert_never

from taskfold.api import conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import AgentStatus, Attempt, Failure, Stage, reward_text
from taskfold.api.taskrun import TaskRunStatus
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.decide import losses, profile, sandbox, step_status
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Consequence, Loss
from taskfold.decide.plan import CancelVerifierRun, DeletePod, Effect, ForgetPhases, Note, Plan
from taskfold.decide.world import RunWorld

MASKED = "The run is masked."
COUNTED = "The agent can cause this itself, and spec.onAgentCausedLoss is zero: the run counts as 0."


def lose(world: RunWorld, lost: Loss, stage: Stage) -> Plan:
    """The sandbox is lost, or cannot be graded, in this stage of the run."""
    kind = lost.row.kind
    match losses.consequence(lost.row.fault, stage, _policy(world)):
        case Consequence.ANOTHER_TRY:
            refused = lost.cause in (Cause.NEVER_STARTED, Cause.NOT_ADMITTED)
            text = profile.explained(world, lost.message) if refused else lost.message
            return sandbox.another_try(world, lost.reason, text)
        case Consequence.NEW_ATTEMPT:
            return _again(world, lost.reason.value, lost.message)
        case Consequence.ZERO:
            text, status = f"{_where(world)}{lost.message}. {COUNTED}", _broken_off(world, lost, masked=False)
            ended = to.ended(status, Phase.SUCCEEDED, lost.reason, text, stage=stage, now=world.now, kind=kind)
            counted = ended.model_copy(update={"reward": reward_text(0.0)})
            return Plan(counted, Note(lost.reason, text), again=0)
        case Consequence.MASKED:
            text, status = f"{_where(world)}{lost.message}. {MASKED}", _broken_off(world, lost, masked=True)
            masked = to.ended(status, Phase.MASKED, lost.reason, text, stage=stage, now=world.now, kind=kind)
            return Plan(masked, Note(lost.reason, text), again=0)
        case unreachable:
            assert_never(unreachable)


def _where(world: RunWorld) -> str:
    step = world.turn.step if world.turn is not None else None
    return f"step {step.name}: " if step is not None else ""


def _broken_off(world: RunWorld, lost: Loss, *, masked: bool) -> TaskRunStatus:
    return step_status.broken_off(world, lost.reason.value, lost.row.kind, masked=masked)


def after_verification(world: RunWorld, found: VerifierRunStatus) -> Plan | VerifierRunStatus:
    """What the run takes over from a VerifierRun that is complete; a plan, if a new attempt follows instead.

    A VerifierRun is masked whenever its sandbox is lost. Only its TaskRun knows what that counts as.
    """
    failure = found.failure
    fault = losses.fault_of(failure.reason) if failure is not None else None
    if found.phase is not Phase.MASKED or failure is None or fault is None:
        return found
    match losses.consequence(fault, Stage.VERIFICATION, _policy(world)):
        case Consequence.NEW_ATTEMPT if not _gradable(found):
            return _again(world, failure.reason, failure.message)
        case Consequence.ZERO if not _gradable(found):  # else the agent has been stopped before, or works on elsewhere
            return _counted(found, failure)
        case _:
            return found


def _gradable(found: VerifierRunStatus) -> bool:
    """Its artifacts are kept: they can be graded again, so that the agent's work need not be repeated."""
    return conditions.holds(found.conditions, conditions.ConditionType.ARTIFACTS_COLLECTED)


def _counted(found: VerifierRunStatus, failure: Failure) -> VerifierRunStatus:
    explained = failure.model_copy(update={"message": f"{failure.message} {COUNTED}"})
    zero = {"phase": Phase.SUCCEEDED, "reward": reward_text(0.0), "masked": False, "failure": explained}
    return found.model_copy(update=zero)


def _policy(world: RunWorld) -> losses.Policy:
    run = world.run
    return losses.policy(run.spec, run.status.attempts[-1].number)


def _again(world: RunWorld, reason: str, message: str) -> Plan:
    """A whole new attempt. The lost pod is asked to go and not waited for: the next one has another name."""
    run, verifier = world.run, world.verifier
    status, last, now = run.status, run.status.attempts[-1], to.stamp(world.now)
    over = last.model_copy(update={"end_time": now, "reason": reason, "message": message})
    fresh = Attempt(number=last.number + 1, tries=1, start_time=now)
    queued = to.moved(
        status,
        Phase.QUEUED,
        attempts=[*status.attempts[:-1], over, fresh],
        agent=AgentStatus(name=run.spec.agent.name),
        verifier=None,
        journal=[],
        steps=[],
        timings={},
        store=None,  # the new attempt's, once it has a pod
    )
    lost = f"attempt {last.number} was lost ({reason}): {message}"
    nonces = (*to.current_nonces(status), *(to.current_nonces(verifier.status) if verifier is not None else ()))
    effects: list[Effect] = []
    if verifier is not None and not verifier.status.complete:
        effects.append(CancelVerifierRun(verifier.metadata.name))
    if last.pod_name and last.pod_uid:
        effects.append(DeletePod(last.pod_name, last.pod_uid))
    effects.append(ForgetPhases(nonces))
    note = Note(Reason.RETRYING, f"attempt {fresh.number} of {_most(world)} begins: {lost}")
    return Plan(to.warned(queued, [lost]), note, tuple(effects), again=0)


def _most(world: RunWorld) -> int:
    retries = world.run.spec.retries
    return 1 + (retries.infrastructure if retries is not None else 0)
