"""How a VerifierRun ends: with a verdict of what test.sh left, masked, failed or cancelled.

Guarantees: a reward comes only from what the helper read the moment test.sh ended; it is never made up. A shared
verification is complete with its verdict. A separate one has a sandbox of its own to see to, and is complete after.
"""

from collections.abc import Mapping

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import MAX_REWARDS, Failure, Mode, Stage, VerifierStatus, reward_text
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.contract import dialect, rewards
from taskfold.contract.failures import Effect, FailureKind
from taskfold.decide import entrypoint, programs, starts
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import Note, Plan, StoreRewards
from taskfold.decide.world import VerifierWorld
from taskfold.protocol.phase import PhaseResult, ReadFile

REWARD_JSON = "/logs/verifier/reward.json"
REWARD_TXT = "/logs/verifier/reward.txt"

REASONS = {
    FailureKind.MISSING_REWARD: Reason.REWARD_MISSING,
    FailureKind.INVALID_REWARD: Reason.REWARD_INVALID,
    FailureKind.VERIFIER_TIMEOUT: Reason.VERIFIER_TIMED_OUT,
}


def verdict(world: VerifierWorld, result: PhaseResult, nonce: str) -> Plan:
    """The end of the phase in which test.sh ran."""
    lost = entrypoint.died(result)
    if lost is not None:
        return mask(world, lost)
    test = result.run("test")
    status = to.closed(world.verifier.status, nonce, result.ended_at)
    if test is None or test.start_error is not None:
        return mask(world, _unstarted(world, test.start_error if test is not None else None))
    judged = rewards.judge(
        _reward_file(result.files.get(REWARD_JSON)),
        _reward_file(result.files.get(REWARD_TXT)),
        timed_out=test.timed_out,
        tail=test.inline,
        rules=dialect.RULES[world.run.spec.dialect.value] if world.run is not None else dialect.GYM,
    )
    if judged.kind is not None and judged.kind.effect is Effect.MASKED:
        return mask(world, Loss(Cause.NOT_COPIED, judged.message.rstrip(".")))
    graded = VerifierStatus(
        mode=world.verifier.spec.mode,
        return_code=test.return_code,
        seconds=test.seconds,
        timed_out=test.timed_out,
    )
    failure = None
    if judged.kind is not None:
        failure = Failure(
            kind=judged.kind,
            reason=REASONS[judged.kind].value,
            message=judged.message,
            stage=Stage.VERIFICATION,
        )
    notes = [f"test.sh's output: {test.output_error}"] if test.output_error else []
    notes += programs.oom_notes(test)
    notes += [
        f"the input {name} was no regular file after the agent's end, and was removed" for name in result.dropped()
    ]
    uploaded = result.upload_seconds if world.verifier.spec.mode is Mode.SHARED else None  # else the seed has told it
    done = to.moved(
        to.timed(to.warned(status, notes), upload=uploaded, verification=test.seconds),
        Phase.MASKED if judged.effect is Effect.MASKED else Phase.SUCCEEDED,
        masked=judged.effect is Effect.MASKED,
        reward=None if judged.effect is Effect.MASKED or judged.reward is None else reward_text(judged.reward),
        rewards=dict(judged.rewards),
        reward_components=list(judged.components),
        verifier=graded,
        failure=failure,
    )
    reason = Reason(failure.reason) if failure is not None else Reason.VERDICT_REACHED
    note = Note(reason, failure.message if failure else to.rewarded(done))
    return _over(world, done, _kept(world, judged.rewards), note)


def _kept(world: VerifierWorld, rewards: Mapping[str, float]) -> tuple[StoreRewards, ...]:
    """A step's rewards are kept in any case, the run's are made of them; else what no status holds."""
    step = world.verifier.spec.step
    if world.place is None or (step is None and len(rewards) <= MAX_REWARDS):
        return ()
    return (StoreRewards(world.place, rewards),)


def _unstarted(world: VerifierWorld, error: str | None) -> Loss:
    """Why test.sh did not start. In the agent's sandbox the seed found bash and the user, and bash was started for the
    agent: what is not there now is gone since then. An agent that does nothing proves nothing.
    """
    text = f"test.sh could not be started: {error or 'the helper does not say why'}"
    worked = world.run is not None and world.run.spec.agent.nop is None and world.verifier.spec.mode is Mode.SHARED
    proven = worked and starts.proves_tampering(error)
    return Loss(Cause.START_BROKEN if proven else Cause.START_STARVED, text)


def _reward_file(file: ReadFile | None) -> rewards.RewardFile:
    if file is None:
        return rewards.RewardFile(rewards.FileState.MISSING)
    return rewards.RewardFile(rewards.FileState(file.state.value), file.content)


def mask(world: VerifierWorld, lost: Loss) -> Plan:
    """The work cannot be graded, for this cause."""
    return masked(world, lost.reason, lost.message, lost.row.kind)


def masked(world: VerifierWorld, reason: Reason, message: str, kind: FailureKind) -> Plan:
    """The work cannot be graded now. Once its artifacts are kept it still can be, later."""
    text = f"{message}. The verification is masked."
    if kept(world.verifier.status):
        run = world.run.metadata.name if world.run is not None else "RUN"
        text += f" The artifacts are kept: `taskfold regrade {run}` grades them again."
    return end(world, Phase.MASKED, reason, text, kind=kind)


def kept(status: VerifierRunStatus) -> bool:
    """Whether everything that a separate verification needs is in the store: it has had a pod of its own, or waits."""
    return bool(status.attempts) and status.phase is not Phase.CLOSING


def fail(world: VerifierWorld, reason: Reason, message: str) -> Plan:
    """The request is wrong."""
    return end(world, Phase.FAILED, reason, message, terminal=True)


def end(
    world: VerifierWorld,
    phase: Phase,
    reason: Reason,
    message: str,
    *,
    kind: FailureKind | None = None,
    terminal: bool = False,
) -> Plan:
    """An end without a verdict."""
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
    return _over(world, status, (), Note(reason, message))


def _over(world: VerifierWorld, status: VerifierRunStatus, effects: tuple[StoreRewards, ...], note: Note) -> Plan:
    moment = to.stamp(world.now)
    known = status.model_copy(
        update={"verdict_time": moment, "duration_seconds": to.seconds_between(status.start_time, moment)}
    )
    if world.verifier.spec.mode is Mode.SEPARATE and status.attempts:
        return Plan(known, note, effects, again=0)
    return Plan(known.model_copy(update={"complete": True, "completion_time": moment}), note, effects)
