"""From the agent's end to the verdict: the pod is handed over to a VerifierRun, and its verdict is copied.

Guarantees: while a VerifierRun is not finished, nothing here touches the pod. Its reward is copied, never changed
(C15); what a sandbox that was lost under it counts as is the run's to say.
"""

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import AgentOutcome, AgentStatus, Stage, VerifierStatus
from taskfold.api.taskrun import TaskRunStatus
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.decide import attempts, programs, sandbox, steps
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import CreateVerifierRun, Note, Plan
from taskfold.decide.world import RunWorld
from taskfold.protocol.phase import RunResult

HANDOVER_SECONDS = 1800.0
"""How long a VerifierRun may be refused by the cluster before the agent's work is given up."""

REFUSALS = frozenset({Reason.VERIFIER_ERROR, Reason.NAME_CONFLICT})
"""What the conditions say when the creation was tried and refused."""


def close(world: RunWorld, status: TaskRunStatus, outcome: AgentOutcome, agent: RunResult | None) -> Plan:
    """The agent has ended: on to its verification, whatever the outcome."""
    run, step = world.run, steps.at_work(world)
    name = steps.verifier_name(run, world.task)
    agent_status = AgentStatus(
        name=run.spec.agent.name,
        outcome=outcome,
        return_code=agent.return_code if agent else None,
        seconds=agent.seconds if agent else None,
        message=programs.ended_how(agent) if agent and outcome is not AgentOutcome.SUCCEEDED else None,
    )
    before = status.timings.get("agent", 0.0) if status.steps else 0.0
    status = to.timed(status, agent=before + (agent.seconds if agent else 0.0))
    verifier = VerifierStatus(mode=steps.mode(world), name=name)
    mine = world.verifier is not None and world.verifier.run_uid == run.metadata.uid
    if world.verifier is not None and mine and world.verifier.spec.step == (step.name if step else None):
        named = verifier.model_copy(update={"uid": world.verifier.metadata.uid})
        handed_over = to.moved(status, Phase.VERIFYING, agent=agent_status, verifier=named)
        return Plan(handed_over, Note(Reason.VERIFYING, f"the agent's outcome: {outcome.value}"))
    if not _refused(status):
        # Made first, so that one write tells the agent's end and hands the pod over.
        create = CreateVerifierRun(name, status.attempts[-1].number, steps.mode(world), step.name if step else None)
        return Plan(effects=(create,), again=0)
    closing = to.moved(status, Phase.CLOSING, agent=agent_status, verifier=verifier)
    return Plan(closing, Note(Reason.CLOSING, f"the agent's outcome: {outcome.value}"), again=0)


def _refused(status: TaskRunStatus) -> bool:
    """The creation of the VerifierRun was tried, and refused."""
    return any(condition.reason in REFUSALS for condition in status.conditions)


def await_verdict(world: RunWorld) -> Plan:
    """The pod is the VerifierRun's, or is about to be."""
    status, verifier = world.run.status, world.verifier
    recorded = status.verifier
    if recorded is None or recorded.name is None:
        raise ValueError("awaits a verification without a name")
    if recorded.uid is None and verifier is None and _refused(status) and sandbox.overdue(world, HANDOVER_SECONDS):
        text = f"the VerifierRun {recorded.name} could not be created within {HANDOVER_SECONDS:g} s"
        return attempts.lose(world, Loss(Cause.VERIFIER_RUN_REFUSED, text), Stage.VERIFICATION)
    if recorded.uid is None and verifier is None:
        step = steps.at_work(world)
        mode, number = recorded.mode or steps.mode(world), status.attempts[-1].number
        create = CreateVerifierRun(recorded.name, number, mode, step.name if step else None)
        return Plan(effects=(create,), again=0.2)
    if recorded.uid is None and verifier is not None:
        named = recorded.model_copy(update={"uid": verifier.metadata.uid})
        return Plan(to.moved(status, Phase.VERIFYING, verifier=named), Note(Reason.VERIFYING))
    if verifier is None or verifier.metadata.uid != recorded.uid:
        text = f"the VerifierRun {recorded.name} was deleted before it had a verdict"
        return attempts.lose(world, Loss(Cause.VERIFIER_RUN_DELETED, text), Stage.VERIFICATION)
    return Plan()


def verdict(world: RunWorld) -> VerifierRunStatus | None:
    """The status of the run's own VerifierRun, once it is over. A separate one may have its own sandbox to see to, for
    which only the end of the run waits, and a further step.
    """
    verifier, recorded = world.verifier, world.run.status.verifier
    if verifier is None or recorded is None or verifier.status.phase is None or not verifier.status.phase.final:
        return None
    turns = len(world.task.steps) if world.task is not None else 0
    if len(world.run.status.steps) + 1 < turns and not verifier.status.complete:
        return None
    return verifier.status if recorded.uid in (None, verifier.metadata.uid) else None


def copy_verdict(world: RunWorld, given: VerifierRunStatus) -> Plan:
    """The verdict is the VerifierRun's, or of all steps; a run that was cancelled meanwhile stays cancelled."""
    run, verifier = world.run, world.verifier
    if verifier is None:
        raise ValueError("no VerifierRun to copy from")
    if given.phase is Phase.CANCELLED:
        message = "spec.cancel was set before there was a verdict"
        stage = Stage.VERIFICATION
        cancelled = to.ended(run.status, Phase.CANCELLED, Reason.CANCELLED, message, stage=stage, now=world.now)
        return Plan(cancelled, Note(Reason.CANCELLED, message), again=0)
    found = attempts.after_verification(world, given)
    if isinstance(found, Plan):
        return found
    ending = steps.after_verdict(world, given, found)
    if isinstance(ending, Plan):
        return ending
    found = ending.verdict
    grading = found.verifier or VerifierStatus()
    status = to.moved(
        ending.status,
        found.phase or Phase.MASKED,
        reward=found.reward,
        rewards=found.rewards,
        reward_components=found.reward_components,
        masked=found.masked,
        failure=found.failure,
        verifier=grading.model_copy(
            update={"name": verifier.metadata.name, "uid": verifier.metadata.uid, "mode": verifier.spec.mode}
        ),
        verdict_time=to.stamp(world.now),
        duration_seconds=to.seconds_between(run.status.start_time, to.stamp(world.now)),
    )
    status = to.timed(
        to.warned(status, found.warnings),
        export=given.timings.get("export") if not status.steps else None,
        upload=given.timings.get("upload") if not status.steps else None,
        verification=grading.seconds if not status.steps else None,
        total=to.seconds_between(run.status.start_time, to.stamp(world.now)),
    )
    reason = Reason(found.failure.reason) if found.failure else Reason.VERDICT_REACHED
    message = found.failure.message if found.failure else to.rewarded(found)
    return Plan(status, Note(reason, message), ending.effects, again=0)
