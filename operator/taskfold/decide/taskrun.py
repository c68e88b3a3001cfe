"""What a TaskRun needs next: a ladder of early returns in the order of a run's life.

Guarantees:
- The same world gives the same plan; a run that is complete asks for nothing but its expiry.
- Nothing is sent to a sandbox under a nonce that is not in the status yet.
- The agent's phase is asked for only after the status says so (phase Running): from then on a lost sandbox is
  a masked run, never a second start within the attempt (C14).
- While a VerifierRun is not finished, nothing here touches the pod. Its reward is copied, never changed (C15).
"""

from taskfold.api import names
from taskfold.api import unsupported as unsupported_fields
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import (
    Admitted,
    AgentOutcome,
    AgentStatus,
    Attempt,
    JournalPhase,
    Mode,
    Stage,
    TaskStatus,
    VerifierStatus,
)
from taskfold.api.taskrun import TaskRunStatus
from taskfold.contract.failures import FailureKind
from taskfold.decide import ending, programs, sandbox
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.plan import (
    NOTHING,
    CancelVerifierRun,
    CreateVerifierRun,
    Note,
    Plan,
    RunPhase,
    StoreRecordedImage,
    StoreSnapshot,
)
from taskfold.decide.pod import Loss, Standing
from taskfold.decide.world import (
    Admission,
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    PhaseUnreached,
    Refusal,
    RunWorld,
)
from taskfold.protocol.phase import PhaseResult, RunResult

RETRY_SECONDS = 5.0
"""How soon a refusal that may pass is looked at again."""

HANDOVER_SECONDS = 1800.0
"""How long a VerifierRun may be refused by the cluster before the agent's work is given up."""

REFUSALS = frozenset({Reason.VERIFIER_ERROR, Reason.NAME_CONFLICT})
"""What the conditions say when the creation was tried and refused."""

SHELL_TOOLS = frozenset({"bash", "timeout"})
"""Without these test.sh cannot start at all: the contract masks as verifier_error, not as provider_unavailable."""


def decide(world: RunWorld) -> Plan:
    """The next step of this run."""
    run, status = world.run, world.run.status
    if run.metadata.deletion_timestamp is not None:
        return NOTHING
    if status.complete:
        return ending.expire(world)
    if status.phase is not None and status.phase.final:
        return ending.finish(world)
    if world.verifier is not None and world.verifier.status.phase is not None and _has_verdict(world):
        return _copy_verdict(world)
    if status.admitted is not None and status.admitted.spec_digest != world.spec_digest:
        return ending.refuse(world, Reason.SPEC_CHANGED, _spec_changed(world), _stage(world))
    if run.spec.cancel:
        return _cancel(world)
    if status.admitted is None:
        return _admit(world)
    attempt = status.attempts[-1]
    if attempt.pod_uid is None:
        return sandbox.place(world, attempt)
    if status.verifier is not None:
        return _await_verifier(world)
    pod = world.pod if world.pod is not None and world.pod.uid == attempt.pod_uid else None
    lost = pods.loss(pod)
    if pod is None or lost is not None:
        return _lose(world, lost or pods.GONE)
    if pods.standing(pod) is not Standing.READY:
        return sandbox.await_start(world, attempt)
    if status.phase in (Phase.PENDING, Phase.QUEUED, Phase.SEEDING):
        return _seed(world)
    return _work(world)


def _spec_changed(world: RunWorld) -> str:
    admitted = world.run.status.admitted
    return (
        f"the spec is no longer the one that was admitted ({admitted.spec_digest if admitted else ''} then, "
        f"{world.spec_digest} now). Create a new run instead of changing this one."
    )


def _cancel(world: RunWorld) -> Plan:
    verifier = world.verifier
    effects = (CancelVerifierRun(verifier.metadata.name),) if verifier and not verifier.spec.cancel else ()
    if verifier is not None and not verifier.status.complete:
        return Plan(note=Note(Reason.CANCELLED, "waits for the verification to stop"), effects=effects, again=5)
    message = "spec.cancel was set before there was a verdict"
    status = to.ended(world.run.status, Phase.CANCELLED, Reason.CANCELLED, message, stage=_stage(world), now=world.now)
    return Plan(status, Note(Reason.CANCELLED, message), again=0)


def _stage(world: RunWorld) -> Stage:
    match world.run.status.phase:
        case Phase.SEEDING | Phase.QUEUED:
            return Stage.SEED
        case Phase.RUNNING | Phase.CLOSING:
            return Stage.AGENT
        case Phase.VERIFYING:
            return Stage.VERIFICATION
        case _:
            return Stage.ADMISSION


def _admit(world: RunWorld) -> Plan:
    run, status = world.run, world.run.status
    paths = unsupported_fields.unsupported(run)
    if paths:
        return ending.refuse(world, Reason.UNSUPPORTED_FIELD, unsupported_fields.message(paths))
    match world.admission:
        case Refusal(reason=reason, message=message, terminal=True):
            return ending.refuse(world, Reason(reason), message)
        case Refusal(reason=reason, message=message):
            return _wait_for_source(world, Reason(reason), message)
        case Admission(digest=digest, task=task, recorded=recorded):
            pass
        case _:
            return Plan(again=RETRY_SECONDS)
    if run.spec.agent.oracle is not None and task.solution is None:
        problem = "the oracle agent needs solution/solve.sh, and the task folder has none. Add it, or change the agent."
        return ending.refuse(world, Reason.INVALID_TASK, problem)
    admitted = status.model_copy(
        update={
            "phase": Phase.QUEUED,
            "admitted": Admitted(spec_digest=world.spec_digest, task_digest=digest),
            "task": TaskStatus(id=task.id, image=task.image.reference),
            "agent": AgentStatus(name=run.spec.agent.name),
            "start_time": status.start_time or to.stamp(world.now),
            "store": world.store_prefix,
            "attempts": [Attempt(number=1, tries=1, start_time=to.stamp(world.now))],
        }
    )
    note = Note(Reason.ADMITTED, f"task {task.id}, digest {digest}")
    record = (StoreRecordedImage(recorded),) if recorded is not None else ()
    effects = (StoreSnapshot(digest), *record)
    return Plan(to.warned(admitted, task.warnings), note, effects, again=0)


def _wait_for_source(world: RunWorld, reason: Reason, message: str) -> Plan:
    """Something that the run names is not there yet. The wait counts from the operator's first look."""
    limits, now = world.settings.limits, to.stamp(world.now)
    since = world.run.status.start_time or now
    limit = limits.image_pull_seconds if reason is Reason.IMAGE_UNREADABLE else limits.source_seconds
    if (to.seconds_between(since, now) or 0.0) > limit:
        text = f"{message} (waited {limit:g} s)"
        status = to.ended(world.run.status, Phase.FAILED, reason, text, stage=Stage.ADMISSION, now=world.now)
        return Plan(status, Note(reason, text), again=0)
    waiting = to.moved(world.run.status, Phase.PENDING, start_time=since)
    return Plan(waiting, Note(reason, message), again=RETRY_SECONDS)


# -- the sandbox is ready ------------------------------------------------------------------------------------------


def _seed(world: RunWorld) -> Plan:
    status, attempt = world.run.status, world.run.status.attempts[-1]
    entry = to.entry(status, JournalPhase.SEED, attempt.pod_uid)
    if entry is None:
        return sandbox.journal(world, attempt)
    if world.image_user is None:
        return sandbox.record_image_user(world, attempt)
    seeding, limit = to.moved(status, Phase.SEEDING), world.settings.limits.seed_seconds
    match world.phases.get(entry.nonce):
        case PhaseDone(result=result):
            return _seeded(world, result, entry.nonce)
        case PhaseRefused(reason="UnknownUser", message=message):
            return ending.refuse(world, Reason.UNKNOWN_USER, message)
        case PhaseRefused(message=message):
            return sandbox.another_try(world, Reason.SEED_FAILED, message)
        case (PhaseActive() | PhaseUnreached()) as report if sandbox.unanswered(world, report, limit):
            why = report.message if isinstance(report, PhaseUnreached) else "it took longer than its limit"
            return sandbox.another_try(world, Reason.SEED_FAILED, f"the seed phase: {why}")
        case PhaseUnreached(message=message, retry_in=retry_in):
            effects = () if retry_in > 0 else (RunPhase(JournalPhase.SEED, entry.nonce),)
            return Plan(seeding, Note(Reason.SEEDING, message), effects, again=max(retry_in, 1.0))
        case PhaseActive():
            return Plan(seeding, Note(Reason.SEEDING), again=sandbox.left(world, limit))
        case _:
            return Plan(effects=(RunPhase(JournalPhase.SEED, entry.nonce),), again=5)


def _seeded(world: RunWorld, result: PhaseResult, nonce: str) -> Plan:
    status = to.closed(world.run.status, nonce, result.ended_at)
    node = world.pod.node if world.pod is not None else None
    attempt = status.attempts[-1].model_copy(update={"node_name": node})
    main = world.pod.main if world.pod is not None else None
    image = {"image_digest": main.image_id if main is not None else None}
    task = status.task.model_copy(update=image) if status.task is not None else None
    status = status.model_copy(update={"attempts": [*status.attempts[:-1], attempt], "node_name": node, "task": task})
    status = to.timed(
        status,
        pod=to.seconds_between(attempt.start_time, result.started_at),
    )
    missing = result.missing_tools()
    if missing:
        kind = FailureKind.VERIFIER_ERROR if SHELL_TOOLS.issuperset(missing) else FailureKind.PROVIDER_UNAVAILABLE
        message = (
            f"the image lacks {', '.join(missing)}; without bash, timeout, tar, gzip and find no verifier can run. "
            "The run is masked. Take an image that has them (Debian and Ubuntu based ones do)."
        )
        masked = to.ended(
            status,
            Phase.MASKED,
            Reason.MISSING_TOOLS,
            message,
            stage=Stage.SEED,
            now=world.now,
            kind=kind,
            terminal=True,
        )
        return Plan(masked, Note(Reason.MISSING_TOOLS, message), again=0)
    return Plan(to.moved(status, Phase.RUNNING), Note(Reason.AGENT_STARTING), again=0)


def _work(world: RunWorld) -> Plan:
    """The agent's phase: from here on nothing starts twice."""
    status, attempt = world.run.status, world.run.status.attempts[-1]
    entry = to.entry(status, JournalPhase.AGENT, attempt.pod_uid)
    if entry is None:
        return sandbox.journal(world, attempt)
    if world.run.spec.agent.nop is not None:
        return _close(world, to.closed(status, entry.nonce, to.stamp(world.now)), AgentOutcome.SKIPPED, None)
    limit = sandbox.agent_limit(world)
    match world.phases.get(entry.nonce):
        case PhaseDone(result=result):
            return _worked(world, result, entry.nonce)
        case PhaseRefused(message=message):
            return sandbox.another_try(world, Reason.AGENT_START_FAILED, message)
        case (PhaseActive() | PhaseUnreached()) as report if sandbox.unanswered(world, report, limit):
            text = "the agent's phase gave no result until the operator's own deadline, well after its limit"
            return _lose(world, Loss(Reason.DEADLINE_EXCEEDED, text, by_agent=False))
        case PhaseUnreached(message=message, retry_in=retry_in):
            effects = () if retry_in > 0 else (RunPhase(JournalPhase.AGENT, entry.nonce),)
            return Plan(note=Note(Reason.AGENT_RUNNING, message), effects=effects, again=max(retry_in, 1.0))
        case PhaseActive(started_at=started) if started is not None:
            return Plan(note=Note(Reason.AGENT_RUNNING, f"since {started}"), again=sandbox.left(world, limit))
        case PhaseActive():
            return Plan(again=sandbox.left(world, limit))
        case _:
            return Plan(effects=(RunPhase(JournalPhase.AGENT, entry.nonce),), again=5)


def _worked(world: RunWorld, result: PhaseResult, nonce: str) -> Plan:
    """The agent's phase is over: what became of it, and on to verification."""
    install = result.run("install")
    if install is not None and not install.succeeded:
        return sandbox.another_try(world, Reason.AGENT_INSTALL_FAILED, programs.ended_how(install))
    agent = result.run("agent")
    if agent is None or agent.start_error is not None:
        why = agent.start_error if agent is not None and agent.start_error else "it was not started"
        return sandbox.another_try(world, Reason.AGENT_START_FAILED, f"the agent's program: {why}")
    if agent.timed_out:
        outcome = AgentOutcome.TIMED_OUT
    else:
        outcome = AgentOutcome.SUCCEEDED if agent.return_code == 0 else AgentOutcome.FAILED
    status = to.warned(to.closed(world.run.status, nonce, to.stamp(world.now)), programs.oom_notes(agent))
    return _close(world, status, outcome, agent)


def _close(world: RunWorld, status: TaskRunStatus, outcome: AgentOutcome, agent: RunResult | None) -> Plan:
    run = world.run
    name = names.verifier(run.metadata.name, status.attempts[-1].number)
    agent_status = AgentStatus(
        name=run.spec.agent.name,
        outcome=outcome,
        return_code=agent.return_code if agent else None,
        seconds=agent.seconds if agent else None,
        message=programs.ended_how(agent) if agent and outcome is not AgentOutcome.SUCCEEDED else None,
    )
    status = to.timed(status, agent=agent.seconds if agent else 0.0)
    verifier = VerifierStatus(mode=Mode.SHARED, name=name)
    if world.verifier is not None and world.verifier.spec.source.run_ref.uid == run.metadata.uid:
        named = verifier.model_copy(update={"uid": world.verifier.metadata.uid})
        handed_over = to.moved(status, Phase.VERIFYING, agent=agent_status, verifier=named)
        return Plan(handed_over, Note(Reason.VERIFYING, f"the agent's outcome: {outcome.value}"))
    if not _refused(status):
        # Made first, so that one write tells the agent's end and hands the pod over.
        return Plan(effects=(CreateVerifierRun(name, status.attempts[-1].number),), again=0)
    closing = to.moved(status, Phase.CLOSING, agent=agent_status, verifier=verifier)
    return Plan(closing, Note(Reason.CLOSING, f"the agent's outcome: {outcome.value}"), again=0)


def _refused(status: TaskRunStatus) -> bool:
    """The creation of the VerifierRun was tried, and refused."""
    return any(condition.reason in REFUSALS for condition in status.conditions)


# -- the pod belongs to the VerifierRun ----------------------------------------------------------------------------


def _await_verifier(world: RunWorld) -> Plan:
    status, verifier = world.run.status, world.verifier
    recorded = status.verifier
    if recorded is None or recorded.name is None:
        raise ValueError("awaits a verification without a name")
    if recorded.uid is None and verifier is None and _refused(status) and sandbox.overdue(world, HANDOVER_SECONDS):
        text = f"the VerifierRun {recorded.name} could not be created within {HANDOVER_SECONDS:g} s; the run is masked"
        return _mask(world, Reason.VERIFIER_ERROR, text, FailureKind.VERIFIER_ERROR, Stage.VERIFICATION)
    if recorded.uid is None and verifier is None:
        return Plan(effects=(CreateVerifierRun(recorded.name, status.attempts[-1].number),), again=0.2)
    if recorded.uid is None and verifier is not None:
        named = recorded.model_copy(update={"uid": verifier.metadata.uid})
        return Plan(to.moved(status, Phase.VERIFYING, verifier=named), Note(Reason.VERIFYING))
    if verifier is None or verifier.metadata.uid != recorded.uid:
        text = f"the VerifierRun {recorded.name} was deleted before it had a verdict; the run is masked"
        return _mask(world, Reason.VERIFIER_ERROR, text, FailureKind.VERIFIER_ERROR, Stage.VERIFICATION)
    return Plan()


def _has_verdict(world: RunWorld) -> bool:
    verifier, recorded = world.verifier, world.run.status.verifier
    if verifier is None or recorded is None or not verifier.status.complete:
        return False
    return recorded.uid in (None, verifier.metadata.uid)


def _copy_verdict(world: RunWorld) -> Plan:
    """The verdict is the VerifierRun's; a run that was cancelled meanwhile stays cancelled."""
    run, verifier = world.run, world.verifier
    if verifier is None or verifier.status.phase is None:
        raise ValueError("no verdict to copy")
    found = verifier.status
    if found.phase is Phase.CANCELLED:
        message = "spec.cancel was set before there was a verdict"
        stage = Stage.VERIFICATION
        cancelled = to.ended(run.status, Phase.CANCELLED, Reason.CANCELLED, message, stage=stage, now=world.now)
        return Plan(cancelled, Note(Reason.CANCELLED, message), again=0)
    grading = found.verifier or VerifierStatus()
    status = to.moved(
        run.status,
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
        verification=grading.seconds,
        total=to.seconds_between(run.status.start_time, to.stamp(world.now)),
    )
    reason = Reason(found.failure.reason) if found.failure else Reason.VERDICT_REACHED
    message = found.failure.message if found.failure else f"reward {found.reward}"
    return Plan(status, Note(reason, message), again=0)


# -- losses --------------------------------------------------------------------------------------------------------


def _lose(world: RunWorld, lost: Loss) -> Plan:
    """The sandbox is gone: another try before the agent's first instruction, masked after it."""
    if world.run.status.phase in (Phase.PENDING, Phase.QUEUED, Phase.SEEDING):
        return sandbox.another_try(world, lost.reason, lost.message)
    kind = FailureKind.PROVIDER_OOM_KILLED if lost.reason is Reason.OOM_KILLED else FailureKind.PROVIDER_UNAVAILABLE
    return _mask(world, lost.reason, f"the sandbox was lost: {lost.message}. The run is masked.", kind, Stage.AGENT)


def _mask(world: RunWorld, reason: Reason, message: str, kind: FailureKind, stage: Stage) -> Plan:
    status = to.ended(world.run.status, Phase.MASKED, reason, message, stage=stage, now=world.now, kind=kind)
    return Plan(status, Note(reason, message), again=0)
