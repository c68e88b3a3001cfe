"""From an admitted run to a sandbox that is ready: creation, waits with their limits, tries, the journal's entries.

Guarantees: a try has its own pod name; the journal's entries are bound to a pod uid and written before anything is
sent; there are at most `limits.seedTries` tries within an attempt, and every wait ends.
"""

from taskfold.api import conditions, names
from taskfold.api.common import Condition
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.settings import LimitSettings
from taskfold.api.status import Attempt, JournalEntry, JournalPhase, Stage
from taskfold.api.taskrun import TaskRunStatus
from taskfold.contract import health
from taskfold.contract import steps as contract
from taskfold.contract.task import Task
from taskfold.decide import network, profile
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.plan import CreatePod, DeletePod, Note, Plan, StoreImageUser
from taskfold.decide.pod import PodView, Standing
from taskfold.decide.world import Admission, PhaseActive, PhaseUnreached, PhaseWaiting, Refusal, RunWorld

NEWS_SECONDS = 2.0
"""A start that is over sooner is not worth a write that says where it stands."""

QUEUE_REASONS = (
    Reason.QUOTA_EXCEEDED,
    Reason.UNSCHEDULABLE,
    Reason.QUEUED_FOR_START,
    Reason.SOURCE_NOT_FOUND,
    Reason.SOURCE_FORBIDDEN,
    Reason.STORE_UNAVAILABLE,
    Reason.CANARY_UNAVAILABLE,
)
"""What a wait for a place can be about; it becomes the reason of the failure when the wait is over its limit."""

MAX_PAUSE_SECONDS = 60.0
"""The longest wait between two pods of a run."""

START_FAILING_SECONDS = 30.0
"""How long a container may fail to start before the try is given up: kubelets retry, and some causes pass."""


def pod_name(world: RunWorld, attempt: Attempt) -> str:
    """The pod of the current try."""
    return names.pod(world.run.metadata.name, attempt.number, attempt.tries)


def place(world: RunWorld, attempt: Attempt) -> Plan:
    """No pod is recorded yet: create it, or find the one that was created before a crash."""
    if world.pod is not None:
        return _adopt(world, attempt, world.pod)
    if world.run.spec.suspend:
        return Plan(note=Note(Reason.SUSPENDED, "spec.suspend is true; no pod is created until it is false"))
    admitted = world.run.status.admitted
    match world.admission if attempt.number == 1 else None:  # later ones have the snapshot, whatever the source says
        case Admission(digest=digest) if admitted is not None and digest != admitted.task_digest:
            text = (
                f"the task's source changed between admission ({admitted.task_digest}) and seed ({digest}). "
                "Create a new run for the new folder."
            )
            return _fail(world, Reason.TASK_CHANGED, text, terminal=True)
        case Refusal(reason=reason, message=message, terminal=True):
            return _fail(world, Reason(reason), message, terminal=True)
        case Refusal(reason=reason, message=message):
            return _wait_in_queue(world, attempt, Note(Reason(reason), message))
        case _:
            pass
    refused, unproven = network.conflict(world.network), network.unprovable(world.network)
    if refused is not None:
        return _fail(world, Reason.NETWORK_POLICY_CONFLICT, refused)
    if unproven is not None:
        return _queued_too_long(world, attempt, unproven) or Plan(note=unproven, again=5)
    late = _queued_too_long(world, attempt)
    if late is not None:
        return late
    pause = _pause(world, attempt)
    if pause > 0:
        return Plan(again=pause)
    name = pod_name(world, attempt)
    create = CreatePod(name, attempt.number, attempt.tries, record=world.image_user is None or attempt.tries > 1)
    return Plan(effects=(create,), again=10)


def _pause(world: RunWorld, attempt: Attempt) -> float:
    """Seconds until a pod may follow the one that was given up: what broke it seldom passes in a moment."""
    before = attempt.number - 1 + attempt.tries - 1
    if before == 0:
        return 0.0
    return pause(before, world.settings.limits) - _age(world, attempt.try_time or attempt.start_time)


def pause(before: int, limits: LimitSettings) -> float:
    """Seconds between a pod and the next, when so many were given up already."""
    return min(limits.retry_seconds * 2.0 ** max(0, before - 1), MAX_PAUSE_SECONDS)


def _wait_in_queue(world: RunWorld, attempt: Attempt, note: Note) -> Plan:
    return _queued_too_long(world, attempt) or Plan(note=note, again=5)


def _adopt(world: RunWorld, attempt: Attempt, pod: PodView) -> Plan:
    if pod.owner_uid != world.run.metadata.uid:
        text = f"a pod {pod.name} exists and belongs to somebody else; delete it or name the run otherwise"
        return _fail(world, Reason.NAME_CONFLICT, text, terminal=True)
    taken = attempt.model_copy(update={"pod_name": pod.name, "pod_uid": pod.uid, "node_name": pod.node or None})
    status = world.run.status.model_copy(
        update={
            "attempts": [*world.run.status.attempts[:-1], taken],
            "pod_name": pod.name,
            "store": world.store_prefix,
        }
    )
    return Plan(to.journalled(status, _entries(world, taken)), Note(Reason.POD_STARTING, f"pod {pod.name}"), again=0)


def _entries(world: RunWorld, attempt: Attempt) -> list[JournalEntry]:
    overlay = (JournalPhase.OVERLAY,) if _overlaid(world.task) else ()
    phases = (*overlay, JournalPhase.SEED, JournalPhase.AGENT)
    step = world.turn.step if world.turn is not None else None
    return [
        JournalEntry(
            phase=phase,
            step=step.name if step is not None and phase is JournalPhase.AGENT else None,
            attempt=attempt.number,
            try_=attempt.tries,
            nonce=nonce,
            pod_name=attempt.pod_name,
            pod_uid=attempt.pod_uid,
        )
        for phase, nonce in zip(phases, world.nonces, strict=False)
    ]


def _overlaid(task: Task | None) -> bool:
    """Whether RUN lines are to be run at seed."""
    return task is not None and task.image.dockerfile is not None and task.image.dockerfile.overlay


def journal(world: RunWorld, attempt: Attempt) -> Plan:
    """Entries for a pod whose journal lost them: nothing can have been sent without them."""
    return Plan(to.journalled(world.run.status, _entries(world, attempt)), again=0)


def await_start(world: RunWorld, attempt: Attempt) -> Plan:
    """The pod exists and does not run yet."""
    pod, limits = world.pod, start_limits(world.settings.limits, world.task)
    if pod is None:
        raise ValueError("awaits the start of a pod that is not there")
    # From the moment the kubelet took the pod: what it waited for a node is the queue's time.
    message, age = pods.waiting_message(pod), _age(world, pod.started_at or pod.created)
    match pods.standing(pod):
        case Standing.UNSCHEDULED:
            late = _queued_too_long(world, attempt, Note(Reason.UNSCHEDULABLE, message))
            reason = Reason.UNSCHEDULABLE if message else Reason.POD_STARTING
            return late or Plan(note=Note(reason, message), again=max(1.0, limits.queue_seconds - age + 1))
        case Standing.PULL_FAILING if pods.pull_is_hopeless(pod):
            return _fail(world, Reason.IMAGE_PULL_FAILED, message, terminal=True)
        case Standing.PULL_FAILING if age > limits.image_pull_seconds:
            text = f"{message} (tried for {limits.image_pull_seconds:g} s)"
            return _fail(world, Reason.IMAGE_PULL_FAILED, text)
        case Standing.PULL_FAILING:
            again = limits.image_pull_seconds - age + 1
            return Plan(_seeding(world, pod), Note(Reason.IMAGE_PULL_FAILED, message), again=again)
        case Standing.START_FAILING if profile.hopeless(message):
            return _fail(world, Reason.FORBIDDEN_BY_PROFILE, profile.explained(world, message), terminal=True)
        case Standing.START_FAILING if age > START_FAILING_SECONDS:
            return another_try(world, Reason.CONTAINER_START_FAILED, profile.explained(world, message))
        case Standing.START_FAILING:
            note = Note(Reason.CONTAINER_START_FAILED, message)
            return Plan(_seeding(world, pod), note, again=START_FAILING_SECONDS - age + 1)
        case _ if age > limits.pod_start_seconds:
            text = f"the pod did not run within {limits.pod_start_seconds:g} s. {message}".strip()
            return another_try(world, Reason.POD_START_TIMEOUT, profile.explained(world, text))
        case _ if age < NEWS_SECONDS:
            return Plan(again=NEWS_SECONDS - age + 0.1)
        case _:
            note = Note(Reason.POD_STARTING, f"pod {pod.name} on node {pod.node}")
            return Plan(_seeding(world, pod), note, again=limits.pod_start_seconds - age + 1)


def _seeding(world: RunWorld, pod: PodView) -> TaskRunStatus:
    return to.moved(world.run.status, Phase.SEEDING, node_name=pod.node or None)


def record_image_user(world: RunWorld, attempt: Attempt) -> Plan:
    """The sandbox runs, and the image's own user is not known: read the record, or make a pod that records it."""
    pod = world.pod
    if pod is not None and pod.main is not None and pod.record is not None and pod.record.message:
        image = world.task.image.reference if world.task else ""
        return Plan(effects=(StoreImageUser(image, pod.main.image_id, pod.record.message),), again=0)
    text = "the image behind the name is another one than the recorded one"
    return another_try(world, Reason.RETRYING, text)


def another_try(world: RunWorld, reason: Reason, message: str) -> Plan:
    """Give this pod up. A new one, if the attempt has a try left."""
    status, limits = world.run.status, world.settings.limits
    attempt = status.attempts[-1]
    if attempt.tries >= limits.seed_tries:
        stage = Stage.AGENT if reason in (Reason.AGENT_INSTALL_FAILED, Reason.AGENT_START_FAILED) else Stage.SEED
        tries = f"after {attempt.tries} tries" if attempt.tries > 1 else "at the first try"
        return _fail(world, reason, f"{message} ({tries})", stage=stage)
    fresh = Attempt(
        number=attempt.number,
        tries=attempt.tries + 1,
        start_time=attempt.start_time,
        try_time=to.stamp(world.now),
    )
    delete = (DeletePod(attempt.pod_name, attempt.pod_uid),) if attempt.pod_name and attempt.pod_uid else ()
    queued = to.moved(status, Phase.QUEUED, attempts=[*status.attempts[:-1], fresh])
    note = Note(Reason.RETRYING, f"try {fresh.tries} of {limits.seed_tries}, because of {reason.value}: {message}")
    return Plan(queued, note, delete, again=0)


def overdue(world: RunWorld, seconds: float) -> bool:
    """More than `seconds` have gone since the phase that runs now could start."""
    since = _since(world)
    return since is not None and _age(world, since) > seconds


def _since(world: RunWorld) -> str | None:
    """When the phase that runs now could start: the end of the one before, as an operator saw it. None: there was none.

    When the container started only its node has told, and a node's clock may be minutes off.
    """
    status = world.run.status
    uid = status.attempts[-1].pod_uid
    phases = (e.ended_at for e in status.journal if e.pod_uid == uid and e.ended_at)
    steps = (step.ended_at for step in status.steps[-1:] if step.ended_at)  # its verification was the VerifierRun's
    return max((*phases, *steps), default=None)


def unanswered(world: RunWorld, report: PhaseActive | PhaseWaiting | PhaseUnreached, seconds: float) -> bool:
    """The phase is past its limit, and this process has asked long enough: after an outage of the operator the
    outcome may be waiting in the sandbox. Of a pod's first phase only the asking is known.
    """
    grace = world.settings.limits.agent_grace_seconds
    if _since(world) is None:
        return report.asked > seconds + grace
    return overdue(world, seconds + grace) and report.asked > grace


def left(world: RunWorld, seconds: float) -> float:
    """Seconds until a phase with this limit is to be given up, a little more; one at least."""
    now = to.stamp(world.now)
    return max(1.0, seconds + world.settings.limits.agent_grace_seconds - _age(world, _since(world) or now) + 1.0)


def start_limits(limits: LimitSettings, task: Task | None) -> LimitSettings:
    """The operator's limits; a task that sets `build_timeout_sec` says itself how long pull and start may take."""
    table = task.config.environment if task is not None else None
    if table is None or "build_timeout_sec" not in table.model_fields_set:
        return limits
    own = {"image_pull_seconds": table.build_timeout_sec, "pod_start_seconds": table.build_timeout_sec}
    return limits.model_copy(update=own)


def overlay_limit(world: RunWorld) -> float:
    """Seconds that all RUN lines together may take: what the contract gives to the build of an image."""
    return world.task.config.environment.build_timeout_sec if world.task is not None else 0.0


def pod_limit(world: RunWorld) -> float:
    """Seconds that the pod may work by the limits of all of its phases."""
    turns = contract.turns(world.task) if world.task is not None else (None,)
    return _seed_limit(world) + sum(_turn_limit(world, turn) for turn in turns)


def _seed_limit(world: RunWorld) -> float:
    """What runs before the agent."""
    if world.task is None:
        return 0.0
    recorded = world.recorded.config if world.recorded is not None else None
    overlay = overlay_limit(world) if _overlaid(world.task) else 0.0
    return overlay + health.seed_seconds(world.task.config, recorded)


def _turn_limit(world: RunWorld, turn: Task | None) -> float:
    """Of the agent and of the verification of one turn."""
    config = turn.config.verifier if turn is not None else None
    own, multipliers = world.run.spec.verifier, world.run.spec.multipliers
    verifier = (config.timeout_sec if config is not None else 600.0) * (multipliers.timeout if multipliers else 1.0)
    if own is not None and own.timeout_seconds is not None:
        verifier = own.timeout_seconds
    hooks = sum(hook.timeout_sec for hook in config.collect) if config is not None else 0.0
    return _agent_limit(world, turn) + verifier + hooks


def left_without_operator(world: RunWorld, pod: PodView) -> float:
    """Seconds that a pod may still wait for an operator that goes on with it: as its own deadline has it."""
    limits = world.settings.limits
    return pod_limit(world) + limits.queue_seconds + limits.outage_seconds - _age(world, pod.created)


def agent_limit(world: RunWorld) -> float:
    """Seconds that the agent's phase may take by its own limits, installation and a step's setup included."""
    return _agent_limit(world, world.turn)


def _agent_limit(world: RunWorld, turn: Task | None) -> float:
    from_task = turn.config.agent.timeout_sec if turn is not None else 28_800.0
    script, multipliers = world.run.spec.agent.script, world.run.spec.multipliers
    limit = script.timeout_seconds if script is not None and script.timeout_seconds else from_task
    install = world.settings.limits.install_seconds if script is not None and script.install else 0.0
    return limit * (multipliers.timeout if multipliers else 1.0) + install + _step_limit(world, turn)


def _step_limit(world: RunWorld, turn: Task | None) -> float:
    """Of what comes before the agent in a turn of a multi-step task."""
    step = turn.step if turn is not None else None
    if step is None:
        return 0.0
    check = step.config.healthcheck
    setup = world.settings.limits.install_seconds if step.setup else 0.0
    return setup + (health.of_table(check).longest if check is not None else 0.0)


def _age(world: RunWorld, since: str | None) -> float:
    return to.seconds_between(since, to.stamp(world.now)) or 0.0


def _queued_too_long(world: RunWorld, attempt: Attempt, note: Note | None = None) -> Plan | None:
    limit = world.settings.limits.queue_seconds
    waits = conditions.find(world.run.status.conditions, conditions.ConditionType.RECONCILING)
    since = max(filter(None, (attempt.start_time, attempt.try_time, _resumed(waits))), default=None)
    if _age(world, since) <= limit or (waits is not None and waits.reason == Reason.SUSPENDED):
        return None
    if note is None:
        known = next((reason for reason in QUEUE_REASONS if waits is not None and waits.reason == reason), None)
        note = Note(known or Reason.POD_START_TIMEOUT, waits.message if known and waits is not None else "")
    return _fail(world, note.reason, f"no place for the pod within {limit:g} s. {note.message}".strip())


def _resumed(waits: Condition | None) -> str | None:
    """When the run began to work towards its end: after a suspension, when that ended."""
    return waits.last_transition_time if waits is not None and waits.status == "True" else None


def _fail(world: RunWorld, reason: Reason, message: str, *, terminal: bool = False, stage: Stage = Stage.SEED) -> Plan:
    status = to.ended(world.run.status, Phase.FAILED, reason, message, stage=stage, now=world.now, terminal=terminal)
    return Plan(status, Note(reason, message), again=0)
