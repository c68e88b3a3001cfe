"""The phases of a verification: hooks and test.sh, in whichever sandbox they run.

Guarantees: hooks are best effort; a phase without an outcome is given up only after its limit, when this process has
asked long enough as well.
"""

from dataclasses import replace

from taskfold.api.reasons import Reason
from taskfold.api.status import JournalEntry, JournalPhase
from taskfold.contract import health
from taskfold.decide import entrypoint, network, programs, starts, verdicts, waiting
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import Note, Plan
from taskfold.decide.pod import PodView
from taskfold.decide.world import (
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    PhaseReport,
    PhaseUnreached,
    PhaseWaiting,
    VerifierWorld,
)

LOOK_SECONDS = 5.0
"""How soon to look again after a phase was asked for, should nothing wake us."""


def entry(world: VerifierWorld, phase: JournalPhase) -> JournalEntry | None:
    """The journal's latest entry of this phase."""
    return next((e for e in reversed(world.verifier.status.journal) if e.phase is phase), None)


def await_hooks(world: VerifierWorld, hooks: JournalEntry) -> Plan:
    """Collect hooks are best effort: what fails is a warning."""
    match world.phases.get(hooks.nonce):
        case PhaseDone(result=result) if (lost := entrypoint.died(result)) is not None:
            return verdicts.mask(world, lost)
        case PhaseDone(result=result):
            status = to.closed(world.verifier.status, hooks.nonce, result.ended_at)
            failed = [run for run in result.runs if not run.succeeded]
            notes = [f"[[verifier.collect]] {programs.ended_how(run)}" for run in failed]
            return Plan(to.warned(status, notes), again=0)
        case PhaseRefused(message=message):
            status = to.closed(world.verifier.status, hooks.nonce, to.stamp(world.now))
            return Plan(to.warned(status, [f"[[verifier.collect]] could not be started: {message}"]), again=0)
        case _:
            return await_phase(world, hooks, world.pod, limit(world)) or ask(hooks, world.pod)


def agents_network(world: VerifierWorld, pod: PodView) -> Plan | None:
    """What the restriction of the agent's sandbox needs, which is this verification's for now; None: nothing."""
    status, run = world.verifier.status, world.run
    known = status.network or (run.status.network if run is not None else None)
    match network.look(world.network, known, pod, to.stamp(world.now), world.settings.limits):
        case Loss() as lost:
            return verdicts.mask(disproved(world, lost), lost)
        case network.Change() as change:
            return changed(world, change)
        case None:
            return None


def changed(world: VerifierWorld, change: network.Change) -> Plan:
    """The plan that writes what is known of the restriction, and mends it."""
    status = to.restricted(world.verifier.status, change.status, world.now)
    return Plan(status, effects=change.effects, again=1 if change.make else 0)


def disproved(world: VerifierWorld, lost: Loss) -> VerifierWorld:
    """The same world, in whose status the restriction is no longer in force, if that is what was lost."""
    status = network.disproved(world.verifier.status, lost, world.now)
    return replace(world, verifier=world.verifier.model_copy(update={"status": status}))


def ask(entry: JournalEntry, pod: PodView | None) -> Plan:
    """Begin the phase, or attach to it."""
    return Plan(effects=(waiting.ask(entry, pod),), again=LOOK_SECONDS)


def await_phase(world: VerifierWorld, entry: JournalEntry, pod: PodView | None, seconds: float) -> Plan | None:
    """What to do while a phase has no outcome; None: ask for it. `seconds`: its limit, and what came before it."""
    report = world.phases.get(entry.nonce)
    grace = world.settings.limits.agent_grace_seconds
    allowed, waited = seconds + grace, _waited(world, entry, report)
    match report:
        case PhaseRefused(reason=reason, message=message):
            return verdicts.mask(world, starts.unprepared(reason, message))
        case PhaseUnreached() as report if (lost := starts.killed(report)) is not None:
            return verdicts.mask(world, lost)
        case (PhaseActive() | PhaseWaiting() | PhaseUnreached()) as report if waited > allowed and report.asked > grace:
            text = "the verifier gave no result until the operator's own deadline, well after its limit"
            return verdicts.mask(world, Loss(Cause.NO_RESULT, text))
        case PhaseUnreached(message=message, retry_in=retry_in) if retry_in > 0:
            return Plan(note=Note(Reason.VERIFYING, message), again=retry_in)
        case PhaseActive():
            return Plan(again=max(1.0, allowed - waited + 1))
        case PhaseWaiting(started_at=started) as report:
            late = waited > seconds
            effects = waiting.watch(entry, report, pod, world.settings.waiting, late=late)
            again = waiting.again(report, max(1.0, allowed - waited + 1), late=late)
            going = to.begun(world.verifier.status, entry.nonce, started)
            return Plan(going, Note(Reason.VERIFYING, f"since {started}"), effects, again=again)
        case _:
            return None


def _waited(world: VerifierWorld, entry: JournalEntry, report: PhaseReport | None) -> float:
    """Seconds since the phase could start: with the verification, or at the end of the phase before it in the same pod.

    A pod of its own may have waited long for its place: of its first phase only the asking is known.
    """
    status = world.verifier.status
    ends = [e.ended_at for e in status.journal if e.pod_uid == entry.pod_uid and e.ended_at]
    if not ends and status.attempts and status.attempts[-1].pod_uid == entry.pod_uid:
        return report.asked if isinstance(report, PhaseActive | PhaseWaiting | PhaseUnreached) else 0.0
    since = max(filter(None, (status.start_time, *ends)), default=None)
    return to.seconds_between(since, to.stamp(world.now)) or 0.0


def leave_to_newer(world: VerifierWorld, pod: PodView) -> Plan:
    """A pod of a newer operator waits for it to come back, for as long as a pod waits for any operator."""
    waited = to.seconds_between(world.verifier.status.start_time, to.stamp(world.now)) or 0.0
    left = limit(world) + world.settings.limits.outage_seconds - waited
    if left <= 0:
        return verdicts.mask(world, pods.never_resumed(pod))
    return Plan(note=Note(Reason.UNKNOWN_PROTOCOL, pods.awaits_newer(pod)), again=left)


def limit(world: VerifierWorld) -> float:
    """Seconds that the verifier's phases may take by their own limits, hooks included."""
    if world.task is None:
        return 600.0
    config, multipliers = world.task.config.verifier, world.run.spec.multipliers if world.run else None
    own = world.verifier.spec.timeout_seconds or config.timeout_sec * (multipliers.timeout if multipliers else 1.0)
    return own + sum(hook.timeout_sec for hook in config.collect)


def seed_limit(world: VerifierWorld) -> float:
    """Seconds that the verifier's own sandbox may take to be given everything, and to be healthy."""
    limits, own = world.settings.limits, world.own
    recorded = own.recorded.config if own is not None and own.recorded is not None else None
    checks = health.seed_seconds(own.task.config, recorded) if own is not None else 0.0
    return limits.seed_seconds + limits.artifact_seconds + checks
