"""What a VerifierRun needs next: in shared mode hooks, then test.sh in the run's live sandbox, then the verdict. What
mode separate does in place of the first two is `separate`'s.

Guarantees:
- A pod of the TaskRun is not touched before its status names this VerifierRun by uid.
- The outcome of a phase that ended counts even if the pod is lost by now (C15); a lost pod without it is masked,
  whatever the loss counts as for the run.
"""

from taskfold.api import unsupported as unsupported_fields
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Admitted, JournalEntry, JournalPhase, Mode, VerifierStatus
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.decide import pod as pods
from taskfold.decide import regrade, separate, separate_ending, verdicts, verifying
from taskfold.decide import status as to
from taskfold.decide.plan import NOTHING, DeleteRun, Note, Plan
from taskfold.decide.world import PhaseDone, VerifierWorld

HANDOVER_SECONDS = 0.5
"""How soon to look again whether the TaskRun has handed its pod over, should its event not come."""


def decide(world: VerifierWorld) -> Plan:
    """The next step of this verification."""
    verifier, status, run = world.verifier, world.verifier.status, world.run
    if verifier.metadata.deletion_timestamp is not None:
        return NOTHING
    if status.complete:
        return _expire(world)
    if status.phase is not None and status.phase.final:
        return separate_ending.finish(world)
    if status.admitted is not None and status.admitted.spec_digest != world.spec_digest:
        return verdicts.fail(world, Reason.SPEC_CHANGED, "the spec is no longer the one that was admitted")
    verify = verifying.entry(world, JournalPhase.VERIFY)
    report = world.phases.get(verify.nonce) if verify is not None else None
    if verify is not None and isinstance(report, PhaseDone):
        return verdicts.verdict(world, report.result, verify.nonce)
    if verifier.spec.cancel:
        text = "spec.cancel was set before there was a verdict"
        return verdicts.end(world, Phase.CANCELLED, Reason.CANCELLED, text)
    paths = unsupported_fields.unsupported(verifier)
    if paths:
        return verdicts.fail(world, Reason.UNSUPPORTED_FIELD, unsupported_fields.message(paths))
    meant = verifier.run_uid
    if run is None or meant not in (None, run.metadata.uid):
        uid = f" with uid {meant}" if meant is not None else ""
        text = f"there is no TaskRun {verifier.spec.source.run_ref.name}{uid} in this namespace"
        return verdicts.fail(world, Reason.SOURCE_NOT_FOUND, text)
    if meant is None:  # before anything is done: another object may have the name by then
        return Plan(status.model_copy(update={"run_uid": run.metadata.uid}), again=0)
    if not made_for(verifier, run):
        return regrade.admit(world) if status.admitted is None else regrade.watched(separate.decide(world))
    if status.admitted is None:
        return _admit(world)
    if run.status.verifier is None or run.status.verifier.uid != verifier.metadata.uid:
        if run.status.phase is not None and run.status.phase.final:
            return verdicts.fail(world, Reason.NAME_CONFLICT, "the TaskRun has ended without this verification")
        return Plan(again=HANDOVER_SECONDS)
    return separate.decide(world) if verifier.spec.mode is Mode.SEPARATE else _shared(world)


def made_for(verifier: VerifierRun, run: TaskRun) -> bool:
    """The operator made it for the TaskRun that it grades; else it stands alone, and grades a complete run again."""
    uid = run.metadata.uid
    return any(owner.controller and owner.kind == TaskRun.KIND and owner.uid == uid
               for owner in verifier.metadata.owner_references)  # fmt: skip


def stands_alone(verifier: VerifierRun) -> bool:
    """No TaskRun has made it, so that none takes it along when it goes."""
    return not any(owner.controller and owner.kind == TaskRun.KIND for owner in verifier.metadata.owner_references)


def _expire(world: VerifierWorld) -> Plan:
    """A complete verification that stands alone lives for its time to live, counted from its completion."""
    ttl, completed = world.verifier.spec.ttl_seconds_after_finished, world.verifier.status.completion_time
    if ttl is None or completed is None or not stands_alone(world.verifier):
        return NOTHING
    left = ttl - (to.seconds_between(completed, to.stamp(world.now)) or 0.0)
    return Plan(again=left + 0.1) if left > 0 else Plan(effects=(DeleteRun(world.verifier.metadata.uid),))


def _shared(world: VerifierWorld) -> Plan:
    """In the agent's sandbox."""
    pod, lost = world.pod, pods.loss(world.pod, _pod_uid(world), world.departed)
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
    verify = verifying.entry(world, JournalPhase.VERIFY)
    if verify is None:
        return _admit(world)
    seconds = verifying.limit(world)
    return verifying.await_phase(world, verify, world.pod, seconds) or verifying.ask(verify, world.pod)


def _pod_uid(world: VerifierWorld) -> str | None:
    attempts = world.run.status.attempts if world.run is not None else ()
    return attempts[-1].pod_uid if attempts else None


def _admit(world: VerifierWorld) -> Plan:
    """The journal's entries for the agent's pod, which will be handed over."""
    run, mode = world.run, world.verifier.spec.mode
    if run is None or not run.status.attempts or run.status.admitted is None or world.task is None:
        return Plan(again=HANDOVER_SECONDS)
    attempt = run.status.attempts[-1]
    hooks = (JournalPhase.HOOKS,) if world.task.config.verifier.collect else ()
    phases = (*hooks, JournalPhase.VERIFY) if mode is Mode.SHARED else hooks
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
        for phase, nonce in zip(phases, world.nonces, strict=False)
    ]
    admitted = world.verifier.status.model_copy(
        update={
            "admitted": Admitted(spec_digest=world.spec_digest, task_digest=run.status.admitted.task_digest),
            "start_time": to.stamp(world.now),
            "journal": entries,
            "verifier": VerifierStatus(mode=mode),
        }
    )
    if mode is Mode.SEPARATE:
        return separate.admitted(world, admitted, Phase.CLOSING)
    pod = {"phase": Phase.VERIFYING, "pod_name": attempt.pod_name, "node_name": attempt.node_name}
    return Plan(admitted.model_copy(update=pod), Note(Reason.VERIFYING), again=0)
