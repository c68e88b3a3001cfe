"""What a TaskRun needs next: a ladder of early returns in the order of a run's life.

Guarantees:
- The same world gives the same plan; a run that is complete asks for nothing but its expiry.
- Nothing is sent to a sandbox under a nonce that is not in the status yet.
- The agent's phase is asked for only after the status says so (phase Running): from then on there is never a second
  start within the attempt, whatever is lost (C14).
- From the agent's end on the pod is the VerifierRun's (`grading`).
"""

from dataclasses import replace

from taskfold.api import unsupported as unsupported_fields
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import (
    Admitted,
    AgentOutcome,
    AgentStatus,
    Attempt,
    JournalPhase,
    Stage,
    TaskStatus,
)
from taskfold.api.taskrun import TaskRunStatus
from taskfold.decide import (
    attempts,
    ending,
    entrypoint,
    exposure,
    external,
    grading,
    network,
    profile,
    programs,
    restriction,
    sandbox,
    seed,
    starts,
    steps,
    waiting,
)
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import (
    NOTHING,
    CancelVerifierRun,
    Note,
    Plan,
    StoreRecordedImage,
    StoreSnapshot,
)
from taskfold.decide.pod import PodView, Standing
from taskfold.decide.world import (
    Admission,
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    PhaseUnreached,
    PhaseWaiting,
    Refusal,
    RunWorld,
)
from taskfold.protocol.phase import PhaseResult

RETRY_SECONDS = 5.0
"""How soon a refusal that may pass is looked at again."""


def decide(world: RunWorld) -> Plan:
    """The next step of this run."""
    run, status = world.run, world.run.status
    if run.metadata.deletion_timestamp is not None:
        return NOTHING
    if status.complete:
        return ending.expire(world)
    if status.phase is not None and status.phase.final:
        return ending.finish(world)
    verdict = grading.verdict(world)
    if verdict is not None:
        return grading.copy_verdict(world, verdict)
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
        return grading.await_verdict(world)
    pod, lost = world.pod, pods.loss(world.pod, attempt.pod_uid, world.departed)
    if pod is not None and lost is not None and pods.settles(pod, lost, to.stamp(world.now)):
        return Plan(again=pods.SETTLE_LOOK_SECONDS)
    if pod is None or lost is not None:
        return attempts.lose(world, lost or pods.GONE, _stage(world))
    if pods.newer(pod):
        return _leave_to_newer(world, pod)
    return _network(world, pod) or network.watched(_use(world, attempt, pod), status.network)


def _use(world: RunWorld, attempt: Attempt, pod: PodView) -> Plan:
    """The pod is there, and is what it should be."""
    status = world.run.status
    if pods.standing(pod) is not Standing.READY and status.phase is Phase.RUNNING:
        return Plan(again=pods.SETTLE_LOOK_SECONDS)  # it was ready: the picture of the pod is older than the status
    if pods.standing(pod) is not Standing.READY:
        return sandbox.await_start(world, attempt)
    if status.phase in (Phase.PENDING, Phase.QUEUED, Phase.SEEDING):
        return seed.decide(world)
    return _work(world)


def _network(world: RunWorld, pod: PodView) -> Plan | None:
    """What the restriction of the sandbox's network needs before anything else; None: nothing."""
    status, now = world.run.status, to.stamp(world.now)
    match network.look(world.network, status.network, pod, now, world.settings.limits):
        case Loss() as lost:
            told = network.disproved(status, lost, world.now)
            known = replace(world, run=world.run.model_copy(update={"status": told}))
            return attempts.lose(known, lost, _stage(world))
        case network.Change() as change:
            changed = to.restricted(status, change.status, world.now)
            return Plan(changed, effects=change.effects, again=1 if change.make else 0)
        case None:
            return None


def _leave_to_newer(world: RunWorld, pod: PodView) -> Plan:
    """A pod of a newer operator waits for it to come back, for as long as a pod waits for any operator."""
    left = sandbox.left_without_operator(world, pod)
    if left <= 0:
        return attempts.lose(world, pods.never_resumed(pod), _stage(world))
    return Plan(note=Note(Reason.UNKNOWN_PROTOCOL, pods.awaits_newer(pod)), again=left)


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
    if run.spec.agent.oracle is not None and not task.has_solution:
        problem = (
            "the oracle agent needs solution/solve.sh or solution/answer.md, and the task folder has neither. Add one, "
            "or change the agent."
        )
        return ending.refuse(world, Reason.INVALID_TASK, problem)
    unfit = external.refusal(run, task) or programs.oversized(run.spec.agent.script)
    if unfit is not None:
        return ending.refuse(world, Reason.INVALID_SPEC, unfit)
    unreadable = restriction.wrong_host(run.spec.network.agent if run.spec.network else None, restriction.AGENT)
    if unreadable is not None:
        return ending.refuse(world, Reason.INVALID_SPEC, unreadable)
    unenforceable = restriction.refusal(run, task, world.settings)
    if unenforceable is not None:
        return ending.refuse(world, Reason.CANARY_UNAVAILABLE, unenforceable)
    exposed = exposure.refusal(run, task, world.settings)
    if exposed is not None:
        return ending.refuse(world, Reason.SECRETS_EXPOSED, exposed)
    forbidden = profile.refusal(run, task, recorded, world.settings)
    if forbidden is not None:
        return ending.refuse(world, Reason.FORBIDDEN_BY_PROFILE, forbidden)
    admitted = status.model_copy(
        update={
            "phase": Phase.QUEUED,
            "admitted": Admitted(
                spec_digest=world.spec_digest,
                task_digest=digest,
                separate_for_artifacts=world.settings.separate_verifier_for_artifacts,
            ),
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
    exposures = exposure.warnings(run, task, recorded, world.settings)
    notes = (*task.warnings, *profile.warnings(run, task, world.settings), *exposures)
    return Plan(to.warned(admitted, notes), note, effects, again=0)


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


def _work(world: RunWorld) -> Plan:
    """The agent's phase: from here on nothing starts twice."""
    status, attempt = world.run.status, world.run.status.attempts[-1]
    entry = to.entry(status, JournalPhase.AGENT, attempt.pod_uid)
    if entry is None:
        return sandbox.journal(world, attempt)
    if world.run.spec.agent.nop is not None and steps.at_work(world) is None:
        return grading.close(world, to.closed(status, entry.nonce, to.stamp(world.now)), AgentOutcome.SKIPPED, None)
    if world.run.spec.agent.external is not None:
        return external.work(world, entry)
    limit = sandbox.agent_limit(world)
    match world.phases.get(entry.nonce):
        case PhaseDone(result=result):
            return _worked(world, result, entry.nonce)
        case PhaseRefused(reason=reason, message=message):
            return steps.refused(world, reason, message)
        case PhaseUnreached() as report if (lost := starts.killed(report)) is not None:
            return attempts.lose(world, lost, Stage.AGENT)
        case (PhaseActive() | PhaseWaiting() | PhaseUnreached()) as report if sandbox.unanswered(world, report, limit):
            text = "the agent's phase gave no result until the operator's own deadline, well after its limit"
            return attempts.lose(world, Loss(Cause.NO_RESULT, text), Stage.AGENT)
        case PhaseUnreached(message=message, retry_in=retry_in):
            again = () if retry_in > 0 else (waiting.ask(entry, world.pod),)
            return Plan(note=Note(Reason.AGENT_RUNNING, message), effects=again, again=max(retry_in, 1.0))
        case PhaseActive(started_at=started) if started is not None:
            return Plan(*_going(status, entry.nonce, started), again=sandbox.left(world, limit))
        case PhaseActive():
            return Plan(again=sandbox.left(world, limit))
        case PhaseWaiting(started_at=started) as report:
            late = sandbox.overdue(world, limit)
            effects = waiting.watch(entry, report, world.pod, world.settings.waiting, late=late)
            look = waiting.again(report, sandbox.left(world, limit), late=late)
            return Plan(*_going(status, entry.nonce, started), effects, again=look)
        case _:
            return Plan(effects=(waiting.ask(entry, world.pod),), again=5)


def _going(status: TaskRunStatus, nonce: str, started: str) -> tuple[TaskRunStatus, Note]:
    """The agent works: the journal and the conditions say since when, in one write."""
    return to.begun(status, nonce, started), Note(Reason.AGENT_RUNNING, f"since {started}")


def _worked(world: RunWorld, result: PhaseResult, nonce: str) -> Plan:
    """The agent's phase is over: what became of it, and on to verification."""
    lost = entrypoint.died(result)
    if lost is not None:
        return attempts.lose(world, lost, Stage.AGENT)
    hindered = steps.hindered(world, result)
    if hindered is not None:
        return hindered
    status = to.warned(to.closed(world.run.status, nonce, to.stamp(world.now)), steps.notes(world, result))
    if steps.idle(world):
        return grading.close(world, to.warned(status, result.notes), AgentOutcome.SKIPPED, None)
    install = result.run("install")
    if install is not None and not install.succeeded:
        return sandbox.another_try(world, Reason.AGENT_INSTALL_FAILED, programs.ended_how(install))
    agent = result.run("agent")
    if agent is None or agent.start_error is not None:
        error = agent.start_error if agent is not None else None
        text = f"the agent's program: {error or 'it was not started'}"
        return steps.unstarted(world, Reason.AGENT_START_FAILED, text, error)
    if agent.timed_out:
        outcome = AgentOutcome.TIMED_OUT
    else:
        outcome = AgentOutcome.SUCCEEDED if agent.return_code == 0 else AgentOutcome.FAILED
    notes = [*programs.oom_notes(agent), *result.notes]
    return grading.close(world, to.warned(status, notes), outcome, agent)
