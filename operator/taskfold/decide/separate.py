"""A verification in a sandbox of its own: hooks and artifacts out of the agent's, that one stopped, a fresh one given
everything, then test.sh (seed "Shared and separate verification").

Guarantees:
- The agent's sandbox is stopped only after everything that is needed of it is in the store.
- Nothing is delivered to the verifier's sandbox before every container of the agent's pod is reported terminated, or
  that pod is gone (C32), unless a later step of the task still needs it. Its pod may be created meanwhile.
- test.sh is asked for only after the status says so (phase Verifying). Until then a lost pod is followed by a new one,
  from the kept artifacts; after, the verification is masked (C14).
"""

from dataclasses import replace

from taskfold.api import conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Attempt, JournalEntry, JournalPhase, Status
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.contract.failures import FailureKind
from taskfold.decide import entrypoint, network, own_pod, programs, seed, starts, verdicts, verifying
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import DeletePod, Export, Note, Plan
from taskfold.decide.pod import PodView, Standing
from taskfold.decide.world import (
    CopyActive,
    CopyFailed,
    OwnSandbox,
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    VerifierWorld,
)
from taskfold.protocol import artifacts
from taskfold.protocol.phase import PhaseResult

LOOK_SECONDS = 2.0
"""How soon to look again whether the agent's pod has ended, should its event not come."""


def admitted(world: VerifierWorld, status: VerifierRunStatus, phase: Phase) -> Plan:
    """The first write: where the files will lie, and the count of its own pods."""
    own = Attempt(number=1, tries=1, start_time=to.stamp(world.now))
    reason = Reason.COLLECTING if phase is Phase.CLOSING else Reason.POD_STARTING
    begun = status.model_copy(update={"phase": phase, "attempts": [own], "store": world.place})
    return Plan(begun, Note(reason), again=0)


def decide(world: VerifierWorld) -> Plan:
    """The next step of an admitted verification that has no verdict."""
    status = world.verifier.status
    if status.phase is Phase.CLOSING:
        return _close(world)
    own, attempt = world.own, status.attempts[-1]
    if own is None:
        raise ValueError("a separate verification without a sandbox of its own")
    if attempt.pod_uid is None:
        return own_pod.place(world, attempt, _stop(world))
    pod, lost = own.pod, pods.loss(own.pod, attempt.pod_uid, own.departed)
    if pod is not None and lost is not None and pods.settles(pod, lost, to.stamp(world.now)):
        return Plan(again=pods.SETTLE_LOOK_SECONDS)
    if pod is None or lost is not None:
        return _lose(world, lost or pods.GONE)
    if pods.newer(pod):
        return verifying.leave_to_newer(world, pod)
    changed = _network(world, own, pod)
    if changed is not None:
        return changed
    if status.phase is Phase.VERIFYING:
        return _verify(world, pod)
    if status.agent_stopped_time is None:
        stopping = _await_stop(world)
        if stopping is not None:
            return stopping
    if pods.standing(pod) is not Standing.READY:
        return own_pod.await_start(world, attempt, pod)
    if own.image_user is None:
        return own_pod.record_image_user(world, attempt, pod)
    return _seed(world, pod)


def _network(world: VerifierWorld, own: OwnSandbox, pod: PodView) -> Plan | None:
    """What the restriction of its own sandbox needs before anything else; None: nothing."""
    status, now = world.verifier.status, to.stamp(world.now)
    match network.look(own.network, status.network, pod, now, world.settings.limits):
        case Loss() as lost:
            return _lose(verifying.disproved(world, lost), lost)
        case network.Change() as change:
            return verifying.changed(world, change)
        case None:
            return None


# -- the agent's sandbox -------------------------------------------------------------------------------------------


def _close(world: VerifierWorld) -> Plan:
    """Hooks, then everything that is needed out of the agent's sandbox."""
    if world.manifest is not None:
        return _collected(world, world.manifest)
    agent = world.run.status.attempts[-1] if world.run is not None and world.run.status.attempts else None
    pod, lost = world.pod, pods.loss(world.pod, agent.pod_uid if agent else None, world.departed)
    if pod is not None and lost is not None and pods.settles(pod, lost, to.stamp(world.now)):
        return Plan(again=pods.SETTLE_LOOK_SECONDS)
    if pod is None or lost is not None:
        return verdicts.mask(world, lost or pods.GONE)
    if pods.newer(pod):
        return verifying.leave_to_newer(world, pod)
    changed = verifying.agents_network(world, pod)
    if changed is not None:
        return changed
    hooks = verifying.entry(world, JournalPhase.HOOKS)
    if hooks is not None and hooks.ended_at is None:
        return verifying.await_hooks(world, hooks)
    return _export(world)


def _export(world: VerifierWorld) -> Plan:
    limit = world.settings.limits.artifact_seconds
    export = (Export(world.place or "", logs=world.last),)
    match world.copy:
        case CopyActive(progress=progress):
            return Plan(note=Note(Reason.COLLECTING, progress), again=verifying.LOOK_SECONDS)
        case CopyFailed(reason=Reason.STORE_UNAVAILABLE, message=message, retry_in=left):
            again = export if left <= 0 else ()
            return Plan(note=Note(Reason.STORE_UNAVAILABLE, message), effects=again, again=max(left, 1.0))
        case CopyFailed(message=message, asked=asked) if asked > limit:
            text = f"the artifacts could not be copied out of the agent's sandbox within {limit:g} s: {message}"
            return verdicts.mask(world, Loss(Cause.NOT_EXPORTED, text))
        case CopyFailed(message=message, retry_in=left):
            again = export if left <= 0 else ()
            return Plan(note=Note(Reason.COLLECTING, message), effects=again, again=max(left, 1.0))
        case None:
            return Plan(effects=export, again=verifying.LOOK_SECONDS)


def _collected(world: VerifierWorld, manifest: artifacts.Manifest) -> Plan:
    """Everything is in the store: from now on the agent's sandbox is needed no more, and its work cannot be lost."""
    status = to.moved(to.warned(world.verifier.status, notes(manifest)), Phase.QUEUED)
    size = sum(entry.size for entry in manifest.delivered)
    text = f"{len(manifest.delivered)} of {len(manifest.entries)} artifacts, {size:,} bytes"
    took = to.seconds_between(status.start_time, to.stamp(world.now))
    status = to.collected(to.timed(status, export=took), text, world.now)
    return Plan(status, Note(Reason.STOPPING_AGENT, text), again=0)


def notes(manifest: artifacts.Manifest) -> list[str]:
    """What somebody who trusts the verdict should know about the artifacts."""
    found = [f"artifact {entry.source} is {entry.status.value}: {entry.reason}" for entry in manifest.refused]
    for entry in manifest.delivered:
        if entry.left_count:
            first = f"{entry.left[0].path}: {entry.left[0].reason}" if entry.left else "not told which"
            found.append(f"artifact {entry.source}: {entry.left_count} file(s) were left out, first {first}")
        if entry.changed:
            found.append(f"artifact {entry.source}: {entry.changed[0]} changed while it was read")
    return found


def _stop(world: VerifierWorld) -> tuple[DeletePod, ...]:
    """The agent's pod is asked to go, unless it has been, a later step needs it, or a complete run keeps it."""
    pod = agent_pod(world)
    if pod is None or pod.deleting or not world.last or (world.run is not None and world.run.status.complete):
        return ()
    return (DeletePod(pod.name, pod.uid),)


def agent_pod(world: VerifierWorld) -> PodView | None:
    """The agent's pod, while there is one."""
    attempts = world.run.status.attempts if world.run is not None else ()
    same = world.pod is not None and attempts and world.pod.uid == attempts[-1].pod_uid
    return world.pod if same else None


def _await_stop(world: VerifierWorld) -> Plan | None:
    """What to do until the agent's containers are proven to have ended; None: they are not to be, or that was written
    already.
    """
    pod = agent_pod(world)
    if not world.last:
        return None
    if pod is None or pods.stopped(pod):
        proven = world.verifier.status.model_copy(update={"agent_stopped_time": to.stamp(world.now)})
        return Plan(proven, Note(Reason.POD_STARTING, "the agent's pod has ended"), again=0)
    limit = world.settings.limits.stop_seconds
    waited = to.seconds_between(pod.deleted_at or None, to.stamp(world.now)) or 0.0
    if waited > limit:
        text = f"nothing proved within {limit:g} s that the containers of the agent's pod {pod.name} had ended"
        return verdicts.mask(world, Loss(Cause.AGENT_NOT_STOPPED, text))
    note = Note(Reason.STOPPING_AGENT, f"pod {pod.name}") if waited > 1 else None
    return Plan(note=note, effects=_stop(world), again=LOOK_SECONDS)


# -- the verifier's sandbox ----------------------------------------------------------------------------------------


def _lose(world: VerifierWorld, lost: Loss) -> Plan:
    """Its pod is lost. Before test.sh was asked for, nothing is lost that the store does not have."""
    if world.verifier.status.phase is Phase.VERIFYING:
        return verdicts.mask(world, lost)
    return own_pod.another_try(world, lost.reason, lost.message, lost.row.kind)


def _seed(world: VerifierWorld, pod: PodView) -> Plan:
    """Artifacts, tests and transcript are put in place; entrypoint and health checks."""
    entry = verifying.entry(world, JournalPhase.SEED)
    if entry is None or entry.pod_uid != pod.uid:
        return own_pod.journal(world, pod)
    unready = FailureKind.PROVIDER_UNAVAILABLE
    match world.phases.get(entry.nonce):
        case PhaseDone(result=result):
            return _seeded(world, result, entry)
        case PhaseRefused(reason="UnknownUser", message=message):
            return verdicts.masked(world, Reason.UNKNOWN_USER, message, unready)
        case PhaseRefused(reason="ForbiddenUser", message=message):
            return verdicts.masked(world, Reason.FORBIDDEN_BY_PROFILE, message, unready)
        case PhaseRefused(reason=reason, message=message):
            lost = starts.unprepared(reason, message)
            cause = Reason.TRANSFER_FAILED if lost.cause is not Cause.DISK_FULL else Reason.DISK_FULL
            return own_pod.another_try(world, cause, lost.message, unready)
        case _:
            going = verifying.await_phase(world, entry, pod, verifying.seed_limit(world))
            return _seeding(going or verifying.ask(entry, pod), world, entry)


def _seeding(plan: Plan, world: VerifierWorld, entry: JournalEntry) -> Plan:
    """The same plan; the status says that the sandbox is being prepared, and how far a large delivery is, unless it has
    ended.
    """
    status, report = plan.status or world.verifier.status, world.phases.get(entry.nonce)
    if status.phase is None or status.phase.final:
        return plan
    note = plan.note or (_delivery(status, report) if isinstance(report, PhaseActive) else None)
    if status.phase is Phase.SEEDING:
        return replace(plan, note=note)
    return Plan(to.moved(status, Phase.SEEDING), note or Note(Reason.SEEDING), plan.effects, again=plan.again)


def _delivery(status: Status, report: PhaseActive) -> Note | None:
    """How far it is; once everything is there, that is taken back. None: there is nothing to say, nor to write."""
    if report.progress:
        return Note(Reason.SEEDING, report.progress)
    said = conditions.find(status.conditions, conditions.ConditionType.RECONCILING)
    return Note(Reason.SEEDING) if said is not None and said.reason == Reason.SEEDING else None


def _seeded(world: VerifierWorld, result: PhaseResult, entry: JournalEntry) -> Plan:
    missing = result.missing_tools()
    if missing:
        kind = seed.kind_of_missing(missing)
        return verdicts.masked(world, Reason.MISSING_TOOLS, seed.lacks(missing, "the verifier's image"), kind)
    lost = entrypoint.died(result)
    if lost is not None:
        kind = FailureKind.ENTRYPOINT_FAILED
        return own_pod.another_try(world, Reason.ENTRYPOINT_FAILED, lost.message, kind)
    failed = next((run for run in result.runs if not run.succeeded), None)
    if failed is not None:
        text = programs.ended_how(failed)
        return own_pod.another_try(world, Reason.HEALTHCHECK_FAILED, text, FailureKind.PROVIDER_UNAVAILABLE)
    status = to.closed(world.verifier.status, entry.nonce, to.stamp(world.now))
    pod = to.seconds_between(status.attempts[-1].start_time, result.started_at)
    status = to.timed(to.warned(status, _left_out(result)), pod=pod, upload=result.upload_seconds)
    return Plan(to.moved(status, Phase.VERIFYING), Note(Reason.VERIFYING), again=0)


def _left_out(result: PhaseResult) -> list[str]:
    """What of an artifact could not be put in place as it was."""
    found = []
    for op in result.prepared:
        listed = op.get("skipped") or [{}]
        if op.get("op") == "restore" and op.get("skippedCount"):
            first = f"{listed[0].get('path')}: {listed[0].get('reason')}"
            found.append(f"{op['skippedCount']} file(s) of an artifact were not put in place, first {first}")
    return found


def _verify(world: VerifierWorld, pod: PodView) -> Plan:
    entry = verifying.entry(world, JournalPhase.VERIFY)
    if entry is None or entry.pod_uid != pod.uid:
        raise ValueError("verifies in a pod that has no entry in the journal")
    seconds = verifying.limit(world)
    return verifying.await_phase(world, entry, pod, seconds) or verifying.ask(entry, pod)
