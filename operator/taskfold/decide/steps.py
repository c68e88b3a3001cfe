"""The turns of a multi-step task: which one is at work, what its verdict leads to, and how the rewards become one.

Guarantees: the turn at work is the first that `status.steps` does not hold. A verdict is recorded in the same write
that begins the next turn, with its nonce, or ends the run. A masked turn masks the run (C17). Before the first turn's
agent nothing is lost that another try could not give; after it a turn that cannot begin is a loss like any other (C37).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from taskfold.api import names
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import (
    MAX_REWARDS,
    AgentStatus,
    Failure,
    JournalEntry,
    JournalPhase,
    Mode,
    Stage,
    StepStatus,
    reward_text,
)
from taskfold.api.taskrun import TaskRun, TaskRunStatus
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.contract import dialect
from taskfold.contract import steps as contract
from taskfold.contract.task import Step, Task
from taskfold.contract.task_toml import RewardStrategy
from taskfold.decide import attempts, programs, sandbox, starts, step_status
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import ForgetPhases, Note, Plan, StoreRewards
from taskfold.decide.world import RunWorld
from taskfold.protocol.phase import PhaseResult

SETUP = "setup"
HEALTHCHECK = "healthcheck"


@dataclass(frozen=True)
class Outcome:
    """What the run ends with: its status with all steps, the verdict to copy, and what is to be kept of it."""

    status: TaskRunStatus
    verdict: VerifierRunStatus
    effects: tuple[StoreRewards, ...] = ()


def verifier_name(run: TaskRun, task: Task | None) -> str:
    """The VerifierRun that grades what the agent does now."""
    over, attempt = len(run.status.steps), run.status.attempts[-1].number
    step = contract.turn(task, over).step if task is not None else None
    return names.verifier(run.metadata.name, attempt, step.name if step is not None else None, over + 1)


def mode(world: RunWorld) -> Mode:
    """Where the turn at work is verified."""
    return Mode.SEPARATE if world.turn is not None and world.turn.separate is not None else Mode.SHARED


def at_work(world: RunWorld) -> Step | None:
    """The turn at work; None: the task has a single one."""
    return world.turn.step if world.turn is not None else None


def idle(world: RunWorld) -> bool:
    """Nobody works in this turn: the agent is nop, or an oracle that has no solution for it."""
    agent, turn = world.run.spec.agent, world.turn
    return agent.nop is not None or (agent.oracle is not None and turn is not None and turn.solution is None)


# -- before the agent ----------------------------------------------------------------------------------------------


def hindered(world: RunWorld, result: PhaseResult) -> Plan | None:
    """What becomes of the run if setup.sh or the healthcheck kept the turn's agent from working; None: neither did."""
    for name, reason, cause in (
        (SETUP, Reason.STEP_SETUP_FAILED, Cause.STEP_SETUP),
        (HEALTHCHECK, Reason.STEP_UNHEALTHY, Cause.STEP_UNHEALTHY),
    ):
        run = result.run(name)
        if run is None or run.succeeded:
            continue
        broken = Cause.START_BROKEN if _tampered(world, run.start_error) else cause
        return _not_begun(world, reason, Loss(broken, programs.ended_how(run)))
    return None


def notes(world: RunWorld, result: PhaseResult) -> list[str]:
    """What could not be kept of the logs of the turn before."""
    lost = [op["error"] for op in result.prepared if op.get("op") == "move" and op.get("error")]
    return [
        f"not all logs of step {step.name} could be kept: {why}" for step in world.run.status.steps[-1:] for why in lost
    ]


def refused(world: RunWorld, reason: str, message: str) -> Plan:
    """The helper could not put the files of the turn in place, and started nothing."""
    if _later(world):
        return attempts.lose(world, starts.unprepared(reason, message, "the step's files"), Stage.AGENT)
    return _another_try(world, Reason.AGENT_START_FAILED, message)


def unstarted(world: RunWorld, reason: Reason, message: str, error: str | None = None) -> Plan:
    """The agent's own program did not start. `error`: the helper's word about it."""
    cause = Cause.START_BROKEN if _tampered(world, error) else Cause.STEP_UNSTARTED
    return _not_begun(world, reason, Loss(cause, message))


def _tampered(world: RunWorld, error: str | None) -> bool:
    """An agent that does nothing takes nothing away."""
    return world.run.spec.agent.nop is None and starts.proves_tampering(error)


def _not_begun(world: RunWorld, reason: Reason, loss: Loss) -> Plan:
    """The agent's work has not begun in this turn; in the first one not at all."""
    if _later(world):
        return attempts.lose(world, loss, Stage.AGENT)
    return _another_try(world, reason, loss.message)


def _another_try(world: RunWorld, reason: Reason, message: str) -> Plan:
    step = at_work(world)
    return sandbox.another_try(world, reason, f"step {step.name}: {message}" if step else message)


def _later(world: RunWorld) -> bool:
    return bool(world.run.status.steps)


# -- after the verdict ---------------------------------------------------------------------------------------------


def after_verdict(world: RunWorld, given: VerifierRunStatus, found: VerifierRunStatus) -> Plan | Outcome:
    """The next turn, or what the run ends with. `given`: the VerifierRun's own words; `found`: what they count as."""
    step, task = at_work(world), world.task
    if step is None or task is None:
        return Outcome(world.run.status, found)
    status = to.warned(step_status.graded(world, found), found.warnings)
    if given.phase is not Phase.SUCCEEDED:
        return Outcome(status, _about(found, step.name))
    unmet = contract.unmet(step.config.min_reward, _results(world, status)[-1])
    if unmet is None and len(status.steps) < len(task.steps):
        return _begin(world, task, status)
    skipped = len(task.steps) - len(status.steps)
    if unmet is not None and skipped:
        status = to.warned(status, [f"{skipped} step(s) after {step.name} were left out: {unmet}"])
    return _rolled_up(world, task, status, found)


def _begin(world: RunWorld, task: Task, status: TaskRunStatus) -> Plan:
    """The next turn. What the journal held of the one before is asked for no more."""
    step, attempt = task.steps[len(status.steps)], status.attempts[-1]
    entry = JournalEntry(
        phase=JournalPhase.AGENT,
        step=step.name,
        attempt=attempt.number,
        try_=attempt.tries,
        nonce=world.nonces[0],
        pod_name=attempt.pod_name,
        pod_uid=attempt.pod_uid,
    )
    over = [e for e in status.journal if e.phase is JournalPhase.AGENT and e.pod_uid == attempt.pod_uid]
    begun = to.moved(
        status,
        Phase.RUNNING,
        agent=AgentStatus(name=world.run.spec.agent.name),
        verifier=None,
        journal=[*(e for e in status.journal if e not in over), entry],
    )
    verifier = world.verifier
    nonces = (*(e.nonce for e in over), *(to.current_nonces(verifier.status) if verifier is not None else ()))
    note = Note(Reason.AGENT_STARTING, f"step {step.name}, {len(status.steps) + 1} of {len(task.steps)}")
    return Plan(begun, note, (ForgetPhases(nonces),), again=0)


def _rolled_up(world: RunWorld, task: Task, status: TaskRunStatus, found: VerifierRunStatus) -> Outcome:
    """The run's verdict, in place of the last turn's own."""
    sums = dialect.RULES[world.run.spec.dialect.value].sums_components
    total = contract.roll_up(task.config.multi_step_reward_strategy, _results(world, status), sums=sums)
    verdict = found.model_copy(
        update={
            "reward": reward_text(total.reward) if total.reward is not None else None,
            "rewards": dict(total.rewards),
            "reward_components": list(total.components),
            "failure": _failure(task, status, found) if total.reward == 0 else None,
        }
    )
    many = status.store is not None and len(total.rewards) > MAX_REWARDS
    return Outcome(status, verdict, (StoreRewards(status.store or "", total.rewards),) if many else ())


def _results(world: RunWorld, status: TaskRunStatus) -> list[contract.StepResult]:
    """Of the turns that are over; each has one, or the run were over too. All of its rewards are in the store."""
    return [_result(step, world.step_rewards.get(number)) for number, step in enumerate(status.steps)]


def _result(step: StepStatus, stored: Mapping[str, float] | None) -> contract.StepResult:
    rewards = step.rewards if stored is None else stored
    return contract.StepResult(float(step.reward or 0.0), rewards, step.components, given=step.kind is None)


def _failure(task: Task, status: TaskRunStatus, found: VerifierRunStatus) -> Failure | None:
    """Why the run's reward is 0 although nobody gave it: of the last turn in it that has such a 0."""
    if found.failure is not None:
        return _about(found, status.steps[-1].name).failure
    counts = status.steps[:-1] if task.config.multi_step_reward_strategy is not RewardStrategy.FINAL else []
    earlier = next((step for step in reversed(counts) if step.kind is not None), None)
    if earlier is None or earlier.reason is None:
        return None
    text = f"step {earlier.name}: {Reason(earlier.reason).sentence}"
    return Failure(kind=earlier.kind, reason=earlier.reason, message=text, stage=Stage.VERIFICATION)


def _about(found: VerifierRunStatus, step: str) -> VerifierRunStatus:
    """The verdict, whose failure names the step."""
    if found.failure is None:
        return found
    named = found.failure.model_copy(update={"message": f"step {step}: {found.failure.message}"})
    return found.model_copy(update={"failure": named})
