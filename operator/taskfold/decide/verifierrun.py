"""What a VerifierRun needs next, in shared mode: hooks, then test.sh in the run's live sandbox, then the verdict.

Guarantees:
- The pod is not touched before the TaskRun's status names this VerifierRun by uid.
- The outcome of a phase that ended counts even if the pod is lost by now (C15); a lost pod without it is masked,
  whatever the loss counts as for the run.
- A reward comes only from what the helper read the moment test.sh ended; it is never made up.
"""

from collections.abc import Mapping

from taskfold.api import unsupported as unsupported_fields
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import (
    MAX_REWARDS,
    Admitted,
    Failure,
    JournalEntry,
    JournalPhase,
    Stage,
    VerifierStatus,
    reward_text,
)
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.contract import dialect, rewards
from taskfold.contract.failures import Effect, FailureKind
from taskfold.decide import entrypoint, programs, starts, step_status, waiting
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import NOTHING, Note, Plan, StoreRewards
from taskfold.decide.pod import PodView
from taskfold.decide.world import PhaseActive, PhaseDone, PhaseRefused, PhaseUnreached, PhaseWaiting, VerifierWorld
from taskfold.protocol.phase import PhaseResult, ReadFile

REWARD_JSON = "/logs/verifier/reward.json"
REWARD_TXT = "/logs/verifier/reward.txt"

HANDOVER_SECONDS = 0.5
"""How soon to look again whether the TaskRun has handed its pod over, should its event not come."""

REASONS = {
    FailureKind.MISSING_REWARD: Reason.REWARD_MISSING,
    FailureKind.INVALID_REWARD: Reason.REWARD_INVALID,
    FailureKind.VERIFIER_TIMEOUT: Reason.VERIFIER_TIMED_OUT,
}


def decide(world: VerifierWorld) -> Plan:
    """The next step of this verification."""
    verifier, status, run = world.verifier, world.verifier.status, world.run
    if verifier.metadata.deletion_timestamp is not None or status.complete:
        return NOTHING
    if status.admitted is not None and status.admitted.spec_digest != world.spec_digest:
        return _fail(world, Reason.SPEC_CHANGED, "the spec is no longer the one that was admitted")
    verify = _entry(world, JournalPhase.VERIFY)
    report = world.phases.get(verify.nonce) if verify is not None else None
    if verify is not None and isinstance(report, PhaseDone):
        return _verdict(world, report.result, verify.nonce)
    if verifier.spec.cancel:
        return _end(world, Phase.CANCELLED, Reason.CANCELLED, "spec.cancel was set before there was a verdict")
    paths = unsupported_fields.unsupported(verifier)
    if paths:
        return _fail(world, Reason.UNSUPPORTED_FIELD, unsupported_fields.message(paths))
    if run is None or run.metadata.uid != verifier.spec.source.run_ref.uid:
        ref = verifier.spec.source.run_ref
        text = f"there is no TaskRun {ref.name} with uid {ref.uid} in this namespace"
        return _fail(world, Reason.SOURCE_NOT_FOUND, text)
    if status.admitted is None:
        return _admit(world)
    if run.status.verifier is None or run.status.verifier.uid != verifier.metadata.uid:
        if run.status.phase is not None and run.status.phase.final:
            return _fail(world, Reason.NAME_CONFLICT, "the TaskRun has ended without this verification")
        return Plan(again=HANDOVER_SECONDS)
    pod, lost = world.pod, pods.loss(world.pod, _pod_uid(world), world.departed)
    if pod is not None and lost is not None and pods.settles(pod, lost, to.stamp(world.now)):
        return Plan(again=pods.SETTLE_LOOK_SECONDS)
    if pod is None or lost is not None:
        return _mask(world, lost or pods.GONE)
    if pods.newer(pod):
        return _leave_to_newer(world, pod)
    hooks = _entry(world, JournalPhase.HOOKS)
    if hooks is not None and hooks.ended_at is None:
        return _await_hooks(world, hooks)
    if verify is None:
        return _admit(world)
    return _await_phase(world, verify) or Plan(effects=(waiting.ask(verify, world.pod),), again=5)


def _pod_uid(world: VerifierWorld) -> str | None:
    attempts = world.run.status.attempts if world.run is not None else ()
    return attempts[-1].pod_uid if attempts else None


def _entry(world: VerifierWorld, phase: JournalPhase) -> JournalEntry | None:
    return next((e for e in reversed(world.verifier.status.journal) if e.phase is phase), None)


def _admit(world: VerifierWorld) -> Plan:
    """The journal's entries, bound to the pod that will be handed over."""
    run = world.run
    if run is None or not run.status.attempts or run.status.admitted is None or world.task is None:
        return Plan(again=HANDOVER_SECONDS)
    attempt = run.status.attempts[-1]
    hooks = (JournalPhase.HOOKS,) if world.task.config.verifier.collect else ()
    entries = [
        JournalEntry(
            phase=phase,
            step=world.verifier.spec.step,
            attempt=attempt.number,
            try_=attempt.tries,
            nonce=nonce,
            pod_name=attempt.pod_name,
            pod_uid=attempt.pod_uid,
        )
        for phase, nonce in zip((*hooks, JournalPhase.VERIFY), world.nonces, strict=False)
    ]
    admitted = world.verifier.status.model_copy(
        update={
            "phase": Phase.VERIFYING,
            "admitted": Admitted(spec_digest=world.spec_digest, task_digest=run.status.admitted.task_digest),
            "start_time": to.stamp(world.now),
            "journal": entries,
            "pod_name": attempt.pod_name,
            "node_name": attempt.node_name,
            "verifier": VerifierStatus(mode=world.verifier.spec.mode),
        }
    )
    return Plan(admitted, Note(Reason.VERIFYING), again=0)


def _await_hooks(world: VerifierWorld, hooks: JournalEntry) -> Plan:
    """Collect hooks are best effort: what fails is a warning."""
    match world.phases.get(hooks.nonce):
        case PhaseDone(result=result) if (lost := entrypoint.died(result)) is not None:
            return _mask(world, lost)
        case PhaseDone(result=result):
            status = to.closed(world.verifier.status, hooks.nonce, result.ended_at)
            failed = [run for run in result.runs if not run.succeeded]
            notes = [f"[[verifier.collect]] {programs.ended_how(run)}" for run in failed]
            return Plan(to.warned(status, notes), again=0)
        case PhaseRefused(message=message):
            status = to.closed(world.verifier.status, hooks.nonce, to.stamp(world.now))
            return Plan(to.warned(status, [f"[[verifier.collect]] could not be started: {message}"]), again=0)
        case _:
            return _await_phase(world, hooks) or Plan(effects=(waiting.ask(hooks, world.pod),), again=5)


def _await_phase(world: VerifierWorld, entry: JournalEntry) -> Plan | None:
    """What to do while a phase has no outcome; None: ask for it."""
    waited = to.seconds_between(world.verifier.status.start_time, to.stamp(world.now)) or 0.0
    grace = world.settings.limits.agent_grace_seconds
    allowed = limit(world) + grace
    match world.phases.get(entry.nonce):
        case PhaseRefused(reason=reason, message=message):
            return _mask(world, starts.unprepared(reason, message))
        case PhaseUnreached() as report if (lost := starts.killed(report)) is not None:
            return _mask(world, lost)
        case (PhaseActive() | PhaseWaiting() | PhaseUnreached()) as report if waited > allowed and report.asked > grace:
            text = "the verifier gave no result until the operator's own deadline, well after its limit"
            return _mask(world, Loss(Cause.NO_RESULT, text))
        case PhaseUnreached(message=message, retry_in=retry_in) if retry_in > 0:
            return Plan(note=Note(Reason.VERIFYING, message), again=retry_in)
        case PhaseActive():
            return Plan(again=max(1.0, allowed - waited + 1))
        case PhaseWaiting(started_at=started) as report:
            late = waited > limit(world)
            effects = waiting.watch(entry, report, world.pod, world.settings.waiting, late=late)
            again = waiting.again(report, max(1.0, allowed - waited + 1), late=late)
            going = to.begun(world.verifier.status, entry.nonce, started)
            return Plan(going, Note(Reason.VERIFYING, f"since {started}"), effects, again=again)
        case _:
            return None


def _leave_to_newer(world: VerifierWorld, pod: PodView) -> Plan:
    """A pod of a newer operator waits for it to come back, for as long as a pod waits for any operator."""
    waited = to.seconds_between(world.verifier.status.start_time, to.stamp(world.now)) or 0.0
    left = limit(world) + world.settings.limits.outage_seconds - waited
    if left <= 0:
        return _mask(world, pods.never_resumed(pod))
    return Plan(note=Note(Reason.UNKNOWN_PROTOCOL, pods.awaits_newer(pod)), again=left)


def limit(world: VerifierWorld) -> float:
    """Seconds that the verifier's phases may take by their own limits, hooks included."""
    if world.task is None:
        return 600.0
    config, multipliers = world.task.config.verifier, world.run.spec.multipliers if world.run else None
    own = world.verifier.spec.timeout_seconds or config.timeout_sec * (multipliers.timeout if multipliers else 1.0)
    return own + sum(hook.timeout_sec for hook in config.collect)


# -- verdicts ------------------------------------------------------------------------------------------------------


def _verdict(world: VerifierWorld, result: PhaseResult, nonce: str) -> Plan:
    lost = entrypoint.died(result)
    if lost is not None:
        return _mask(world, lost)
    test = result.run("test")
    status = to.closed(world.verifier.status, nonce, result.ended_at)
    if test is None or test.start_error is not None:
        return _mask(world, _unstarted(world, test.start_error if test is not None else None))
    verdict = rewards.judge(
        _reward_file(result.files.get(REWARD_JSON)),
        _reward_file(result.files.get(REWARD_TXT)),
        timed_out=test.timed_out,
        tail=test.inline,
        rules=dialect.RULES[world.run.spec.dialect.value] if world.run is not None else dialect.GYM,
    )
    if verdict.kind is not None and verdict.kind.effect is Effect.MASKED:
        return _mask(world, Loss(Cause.NOT_COPIED, verdict.message.rstrip(".")))
    graded = VerifierStatus(
        mode=world.verifier.spec.mode,
        return_code=test.return_code,
        seconds=test.seconds,
        timed_out=test.timed_out,
    )
    failure = None
    if verdict.kind is not None:
        failure = Failure(
            kind=verdict.kind,
            reason=REASONS[verdict.kind].value,
            message=verdict.message,
            stage=Stage.VERIFICATION,
        )
    notes = [f"test.sh's output: {test.output_error}"] if test.output_error else []
    notes += programs.oom_notes(test)
    notes += [
        f"the input {name} was no regular file after the agent's end, and was removed" for name in result.dropped()
    ]
    done = to.moved(
        to.timed(to.warned(status, notes), upload=result.upload_seconds, verification=test.seconds),
        Phase.MASKED if verdict.effect is Effect.MASKED else Phase.SUCCEEDED,
        masked=verdict.effect is Effect.MASKED,
        reward=None if verdict.effect is Effect.MASKED or verdict.reward is None else reward_text(verdict.reward),
        rewards=dict(verdict.rewards),
        reward_components=list(verdict.components),
        verifier=graded,
        failure=failure,
    )
    reason = Reason(failure.reason) if failure is not None else Reason.VERDICT_REACHED
    note = Note(reason, failure.message if failure else to.rewarded(done))
    return _completed(world, done, _kept(world, verdict.rewards), note)


def _kept(world: VerifierWorld, rewards: Mapping[str, float]) -> tuple[StoreRewards, ...]:
    """A step's rewards are kept in any case, the run's are made of them; else what no status holds."""
    prefix, step = world.run.status.store if world.run is not None else None, world.verifier.spec.step
    if prefix is None or (step is None and len(rewards) <= MAX_REWARDS):
        return ()
    return (StoreRewards(step_status.place(prefix, step) if step is not None else prefix, rewards),)


def _unstarted(world: VerifierWorld, error: str | None) -> Loss:
    """Why test.sh did not start. The seed found bash and the user, and bash was started for the agent: what is not
    there now is gone since then. An agent that does nothing proves nothing.
    """
    text = f"test.sh could not be started: {error or 'the helper does not say why'}"
    worked = world.run is not None and world.run.spec.agent.nop is None
    proven = worked and starts.proves_tampering(error)
    return Loss(Cause.START_BROKEN if proven else Cause.START_STARVED, text)


def _reward_file(file: ReadFile | None) -> rewards.RewardFile:
    if file is None:
        return rewards.RewardFile(rewards.FileState.MISSING)
    return rewards.RewardFile(rewards.FileState(file.state.value), file.content)


def _mask(world: VerifierWorld, lost: Loss) -> Plan:
    text = f"{lost.message}. The verification is masked."
    return _end(world, Phase.MASKED, lost.reason, text, kind=lost.row.kind)


def _fail(world: VerifierWorld, reason: Reason, message: str) -> Plan:
    return _end(world, Phase.FAILED, reason, message, terminal=True)


def _end(
    world: VerifierWorld,
    phase: Phase,
    reason: Reason,
    message: str,
    *,
    kind: FailureKind | None = None,
    terminal: bool = False,
) -> Plan:
    status = to.ended(
        world.verifier.status,
        phase,
        reason,
        message,
        stage=Stage.VERIFICATION,
        now=world.now,
        kind=kind,
        terminal=terminal,
    )
    return _completed(world, status, (), Note(reason, message))


def _completed(world: VerifierWorld, status: VerifierRunStatus, effects: tuple[StoreRewards, ...], note: Note) -> Plan:
    moment = to.stamp(world.now)
    complete = status.model_copy(
        update={
            "complete": True,
            "completion_time": moment,
            "verdict_time": moment,
            "duration_seconds": to.seconds_between(status.start_time, moment),
        }
    )
    return Plan(complete, note, effects)
