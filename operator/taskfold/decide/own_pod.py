"""The pod of a separate verification: creation, waits with their limits, tries, the journal's entries.

Guarantees: a try has its own pod name; entries are bound to a pod uid and written before anything is sent; there are at
most `limits.seedTries` tries, and every wait ends: masked, with the artifacts kept, so that the agent's work is never
thrown away for a full cluster.
"""

from taskfold.api import conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Attempt, JournalEntry, JournalPhase
from taskfold.api.verifierrun import VerifierRunStatus
from taskfold.contract.failures import FailureKind
from taskfold.decide import network, profile, sandbox, verdicts, verifying
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.plan import CreatePod, DeletePod, Effect, Note, Plan, StoreImageUser
from taskfold.decide.pod import PodView, Standing
from taskfold.decide.world import OwnSandbox, VerifierWorld

UNPLACED = FailureKind.PROVIDER_UNAVAILABLE
LOOK_SECONDS = 2.0
"""How soon to look again whether a name is free, should its event not come."""


def place(world: VerifierWorld, attempt: Attempt, before: tuple[Effect, ...]) -> Plan:
    """No pod is recorded yet: create it, or find the one that was created before a crash. `before`: effects that come
    first.
    """
    own = _own(world)
    if own.pod is not None:
        return _adopt(world, attempt, own.pod)
    refused, unproven = network.conflict(own.network), network.unprovable(own.network)
    if refused is not None:
        return verdicts.masked(world, Reason.NETWORK_POLICY_CONFLICT, refused, UNPLACED)
    if unproven is not None:
        return _queued_too_long(world, attempt, unproven) or Plan(note=unproven, effects=before, again=LOOK_SECONDS)
    late = _queued_too_long(world, attempt)
    if late is not None:
        return late
    left = sandbox.pause(attempt.tries - 1, world.settings.limits) - _age(world, attempt.try_time)
    if attempt.tries > 1 and left > 0:
        return Plan(effects=before, again=left)
    record = own.image_user is None or attempt.tries > 1
    return Plan(effects=(*before, CreatePod(own.name, 1, attempt.tries, record)), again=10)


def _own(world: VerifierWorld) -> OwnSandbox:
    if world.own is None:
        raise ValueError("a separate verification without a sandbox of its own")
    return world.own


def _adopt(world: VerifierWorld, attempt: Attempt, pod: PodView) -> Plan:
    if pod.owner_uid != world.verifier.metadata.uid and pod.deleting:  # of an older object of this name
        note = Note(Reason.NAME_CONFLICT, f"waits for an older pod {pod.name} to go away")
        return _queued_too_long(world, attempt, note) or Plan(note=note, again=LOOK_SECONDS)
    if pod.owner_uid != world.verifier.metadata.uid:
        text = f"a pod {pod.name} exists and belongs to somebody else; delete it and grade the run again"
        return verdicts.masked(world, Reason.NAME_CONFLICT, text, UNPLACED)
    taken = attempt.model_copy(update={"pod_name": pod.name, "pod_uid": pod.uid, "node_name": pod.node or None})
    status = world.verifier.status.model_copy(update={"attempts": [taken], "pod_name": pod.name})
    return Plan(_with_entries(world, status, pod), Note(Reason.POD_STARTING, f"pod {pod.name}"), again=0)


def journal(world: VerifierWorld, pod: PodView) -> Plan:
    """Entries for a pod whose journal lost them: nothing can have been sent without them."""
    return Plan(_with_entries(world, world.verifier.status, pod), again=0)


def _with_entries(world: VerifierWorld, status: VerifierRunStatus, pod: PodView) -> VerifierRunStatus:
    attempt = status.attempts[-1]
    entries = [
        JournalEntry(
            phase=phase,
            step=world.verifier.spec.step,
            attempt=attempt.number,
            try_=attempt.tries,
            nonce=nonce,
            pod_name=pod.name,
            pod_uid=pod.uid,
        )
        for phase, nonce in zip((JournalPhase.SEED, JournalPhase.VERIFY), world.nonces, strict=False)
    ]
    return to.journalled(status, entries)


def await_start(world: VerifierWorld, attempt: Attempt, pod: PodView) -> Plan:
    """The pod exists and does not run yet."""
    limits = sandbox.start_limits(world.settings.limits, _own(world).task)
    message = pods.waiting_message(pod)
    age = _age(world, pod.started_at or pod.created)
    match pods.standing(pod):
        case Standing.UNSCHEDULED:
            late = _queued_too_long(world, attempt, Note(Reason.UNSCHEDULABLE, message))
            note = Note(Reason.UNSCHEDULABLE, message) if message else None
            return late or Plan(note=note, again=max(1.0, limits.queue_seconds - age + 1))
        case Standing.PULL_FAILING if pods.pull_is_hopeless(pod) or age > limits.image_pull_seconds:
            return verdicts.masked(world, Reason.IMAGE_PULL_FAILED, f"the verifier's image: {message}", UNPLACED)
        case Standing.PULL_FAILING:
            again = limits.image_pull_seconds - age + 1
            return Plan(_seeding(world, pod), Note(Reason.IMAGE_PULL_FAILED, message), again=again)
        case Standing.START_FAILING if profile.hopeless(message):
            return verdicts.masked(world, Reason.FORBIDDEN_BY_PROFILE, message, UNPLACED)
        case Standing.START_FAILING if age > sandbox.START_FAILING_SECONDS:
            return another_try(world, Reason.CONTAINER_START_FAILED, message)
        case Standing.START_FAILING:
            note = Note(Reason.CONTAINER_START_FAILED, message)
            return Plan(_seeding(world, pod), note, again=sandbox.START_FAILING_SECONDS - age + 1)
        case _ if age > limits.pod_start_seconds:
            text = f"the verifier's pod did not run within {limits.pod_start_seconds:g} s. {message}".strip(". ")
            return another_try(world, Reason.POD_START_TIMEOUT, text)
        case _ if age < sandbox.NEWS_SECONDS:
            return Plan(again=sandbox.NEWS_SECONDS - age + 0.1)
        case _:
            note = Note(Reason.POD_STARTING, f"pod {pod.name} on node {pod.node}")
            return Plan(_seeding(world, pod), note, again=limits.pod_start_seconds - age + 1)


def _seeding(world: VerifierWorld, pod: PodView) -> VerifierRunStatus:
    return to.moved(world.verifier.status, Phase.SEEDING, node_name=pod.node or None)


def record_image_user(world: VerifierWorld, attempt: Attempt, pod: PodView) -> Plan:
    """The sandbox runs, and its image's own user is not known: read the record, or make a pod that records it."""
    if pod.main is not None and pod.record is not None and pod.record.message:
        reference = _own(world).task.image.reference
        return Plan(effects=(StoreImageUser(reference, pod.main.image_id, pod.record.message),), again=0)
    return another_try(world, Reason.RETRYING, "the image behind the name is another one than the recorded one")


def another_try(world: VerifierWorld, reason: Reason, message: str, kind: FailureKind = UNPLACED) -> Plan:
    """Give this pod up. A new one, if a try is left."""
    status, limits = world.verifier.status, world.settings.limits
    attempt = status.attempts[-1]
    if attempt.tries >= limits.seed_tries:
        return verdicts.masked(world, reason, f"{message} (after {attempt.tries} tries)", kind)
    fresh = Attempt(number=1, tries=attempt.tries + 1, start_time=attempt.start_time, try_time=to.stamp(world.now))
    delete = (DeletePod(attempt.pod_name, attempt.pod_uid),) if attempt.pod_name and attempt.pod_uid else ()
    queued = to.moved(status, Phase.QUEUED, attempts=[fresh])
    note = Note(Reason.RETRYING, f"try {fresh.tries} of {limits.seed_tries}, because of {reason.value}: {message}")
    return Plan(queued, note, delete, again=0)


def _queued_too_long(world: VerifierWorld, attempt: Attempt, note: Note | None = None) -> Plan | None:
    limit = world.settings.limits.queue_seconds
    since = max(filter(None, (_collected(world), attempt.start_time, attempt.try_time)), default=None)
    if _age(world, since) <= limit:
        return None
    if note is None:
        waits = conditions.find(world.verifier.status.conditions, conditions.ConditionType.RECONCILING)
        known = next((reason for reason in sandbox.QUEUE_REASONS if waits is not None and waits.reason == reason), None)
        note = Note(known or Reason.POD_START_TIMEOUT, waits.message if known and waits is not None else "")
    text = f"no place for the verifier's pod within {limit:g} s. {note.message}".strip(". ")
    return verdicts.masked(world, note.reason, text, UNPLACED)


def _collected(world: VerifierWorld) -> str | None:
    """When its artifacts were in the store: what they took is no waiting."""
    found = conditions.find(world.verifier.status.conditions, conditions.ConditionType.ARTIFACTS_COLLECTED)
    return found.last_transition_time if found is not None else None


def _age(world: VerifierWorld, since: str | None) -> float:
    return to.seconds_between(since, to.stamp(world.now)) or 0.0


def limit(world: VerifierWorld) -> float:
    """Seconds that the pod may work by the limits of its phases."""
    return verifying.seed_limit(world) + verifying.limit(world) + world.settings.limits.collect_seconds
