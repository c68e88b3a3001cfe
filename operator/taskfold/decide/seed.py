"""The seed of a sandbox that is ready: RUN lines first, then checks, folders, entrypoint and health checks.

Guarantees: what fails here is tried again in a new pod, at most `limits.seedTries` times, since a slow machine or a
package index that does not answer looks like a mistake of the task; only what can never become right is refused at
once. Nothing of the agent has run before the seed is over.
"""

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalEntry, JournalPhase, Stage
from taskfold.api.taskrun import TaskRunStatus
from taskfold.contract import health
from taskfold.contract.failures import FailureKind
from taskfold.decide import ending, entrypoint, profile, programs, sandbox, waiting
from taskfold.decide import status as to
from taskfold.decide.plan import Note, Plan
from taskfold.decide.world import (
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    PhaseUnreached,
    PhaseWaiting,
    RunWorld,
)
from taskfold.protocol.phase import PhaseResult

SHELL_TOOLS = frozenset({"bash", "timeout"})
"""Without these test.sh cannot start at all: the contract masks as verifier_error, not as provider_unavailable."""


def decide(world: RunWorld) -> Plan:
    """The next step of a run whose sandbox runs and whose agent must not start yet."""
    status, attempt = world.run.status, world.run.status.attempts[-1]
    entry = to.entry(status, JournalPhase.SEED, attempt.pod_uid)
    if entry is None:
        return sandbox.journal(world, attempt)
    if world.image_user is None:
        return sandbox.record_image_user(world, attempt)
    overlay = to.entry(status, JournalPhase.OVERLAY, attempt.pod_uid)
    if overlay is not None and overlay.ended_at is None:
        return _overlay(world, overlay)
    return _seed(world, entry)


def _overlay(world: RunWorld, entry: JournalEntry) -> Plan:
    """The RUN lines of the task's Dockerfile."""
    limit = sandbox.overlay_limit(world)
    match world.phases.get(entry.nonce):
        case PhaseDone(result=result):
            return _overlaid(world, result, entry.nonce)
        case PhaseRefused(reason="ForbiddenUser", message=message):
            return ending.refuse(world, Reason.FORBIDDEN_BY_PROFILE, f"{message}. {profile.ONE_USER}")
        case PhaseRefused(message=message):
            return sandbox.another_try(world, Reason.SEED_FAILED, message)
        case _:
            return _await(world, entry, limit)


def _overlaid(world: RunWorld, result: PhaseResult, nonce: str) -> Plan:
    failed = next((run for run in result.runs if not run.succeeded), None)
    if failed is not None:
        text = f"environment/Dockerfile, {programs.ended_how(failed)}"
        return sandbox.another_try(world, Reason.RUN_LINE_FAILED, text)
    took = to.seconds_between(result.started_at, result.ended_at)
    closed = to.timed(to.closed(world.run.status, nonce, to.stamp(world.now)), overlay=took)
    return Plan(to.moved(closed, Phase.SEEDING), Note(Reason.SEEDING), again=0)


def _seed(world: RunWorld, entry: JournalEntry) -> Plan:
    limit = seed_limit(world)
    match world.phases.get(entry.nonce):
        case PhaseDone(result=result):
            return _seeded(world, result, entry.nonce)
        case PhaseRefused(reason="UnknownUser", message=message):
            return ending.refuse(world, Reason.UNKNOWN_USER, message)
        case PhaseRefused(reason="ForbiddenUser", message=message):
            return ending.refuse(world, Reason.FORBIDDEN_BY_PROFILE, f"{message}. {profile.ONE_USER}")
        case PhaseRefused(reason="Prepare", message=message) if profile.lacks_folder(world, message):
            return ending.refuse(world, Reason.FORBIDDEN_BY_PROFILE, f"{message}. {profile.NEEDS_FOLDER}")
        case PhaseRefused(reason="NoUserNamespace", message=message):
            return sandbox.another_try(world, Reason.NO_USER_NAMESPACE, f"{message}. {profile.NEEDS_USERNS}")
        case PhaseRefused(message=message):
            return sandbox.another_try(world, Reason.SEED_FAILED, message)
        case _:
            return _await(world, entry, limit)


def _await(world: RunWorld, entry: JournalEntry, limit: float) -> Plan:
    """What to do while a phase has no outcome."""
    seeding = to.moved(world.run.status, Phase.SEEDING)
    match world.phases.get(entry.nonce):
        case (PhaseActive() | PhaseWaiting() | PhaseUnreached()) as report if sandbox.unanswered(world, report, limit):
            why = report.message if isinstance(report, PhaseUnreached) else "it took longer than its limit"
            return sandbox.another_try(world, Reason.SEED_FAILED, f"the {entry.phase.value} phase: {why}")
        case PhaseUnreached(message=message, retry_in=retry_in):
            asked = () if retry_in > 0 else (waiting.ask(entry, world.pod),)
            return Plan(seeding, Note(Reason.SEEDING, message), asked, again=max(retry_in, 1.0))
        case PhaseActive(started_at=started) if started is not None:
            return Plan(*_going(seeding, entry, started), again=sandbox.left(world, limit))
        case PhaseActive():
            return Plan(seeding, Note(Reason.SEEDING), again=sandbox.left(world, limit))
        case PhaseWaiting(started_at=started) as report:
            late = sandbox.overdue(world, limit)
            effects = waiting.watch(entry, report, world.pod, world.settings.waiting, late=late)
            look = waiting.again(report, sandbox.left(world, limit), late=late)
            return Plan(*_going(seeding, entry, started), effects, again=look)
        case _:
            return Plan(effects=(waiting.ask(entry, world.pod),), again=5)


def _going(status: TaskRunStatus, entry: JournalEntry, started: str) -> tuple[TaskRunStatus, Note]:
    return to.begun(status, entry.nonce, started), Note(Reason.SEEDING, f"{entry.phase.value}, since {started}")


def seed_limit(world: RunWorld) -> float:
    """Seconds that the seed phase may take, what the image and the task want waited for included."""
    recorded = world.recorded.config if world.recorded is not None else None
    own = health.seed_seconds(world.task.config, recorded) if world.task is not None else 0.0
    return world.settings.limits.seed_seconds + own


def _seeded(world: RunWorld, result: PhaseResult, nonce: str) -> Plan:
    status = _known(world, result, nonce)
    missing = result.missing_tools()
    if missing:
        return _masked(world, status, missing)
    lost = entrypoint.died(result)
    if lost is not None:
        return sandbox.another_try(world, Reason.ENTRYPOINT_FAILED, lost.message)
    failed = next((run for run in result.runs if not run.succeeded), None)
    if failed is not None:
        times = f"{failed.attempts} attempts" if failed.attempts != 1 else "1 attempt"
        text = f"{programs.ended_how(failed)} ({times})"
        return sandbox.another_try(world, Reason.HEALTHCHECK_FAILED, text)
    return Plan(to.moved(status, Phase.RUNNING), Note(Reason.AGENT_STARTING), again=0)


def _known(world: RunWorld, result: PhaseResult, nonce: str) -> TaskRunStatus:
    """The status with what is known once the seed is over: node, image, times."""
    status = to.closed(world.run.status, nonce, to.stamp(world.now))
    node = world.pod.node if world.pod is not None else None
    attempt = status.attempts[-1].model_copy(update={"node_name": node})
    main = world.pod.main if world.pod is not None else None
    image = {"image_digest": main.image_id if main is not None else None}
    task = status.task.model_copy(update=image) if status.task is not None else None
    status = status.model_copy(update={"attempts": [*status.attempts[:-1], attempt], "node_name": node, "task": task})
    took = to.seconds_between(result.started_at, result.ended_at) if result.runs or result.background else None
    overlay = status.timings.get("overlay", 0.0)
    pod = to.seconds_between(attempt.start_time, result.started_at)
    return to.timed(status, pod=max(0.0, pod - overlay) if pod is not None else None, seed=took)


def _masked(world: RunWorld, status: TaskRunStatus, missing: tuple[str, ...]) -> Plan:
    kind = kind_of_missing(missing)
    message = f"{lacks(missing, 'the image')}. The run is masked."
    reason, stage = Reason.MISSING_TOOLS, Stage.SEED
    masked = to.ended(status, Phase.MASKED, reason, message, stage=stage, now=world.now, kind=kind, terminal=True)
    return Plan(masked, Note(reason, message), again=0)


def kind_of_missing(tools: tuple[str, ...]) -> FailureKind:
    """What the contract calls it when the verifier's image lacks these tools (C29)."""
    return FailureKind.VERIFIER_ERROR if SHELL_TOOLS.issuperset(tools) else FailureKind.PROVIDER_UNAVAILABLE


def lacks(tools: tuple[str, ...], image: str) -> str:
    """The same for people. `image`: whose."""
    return (
        f"{image} lacks {', '.join(tools)}; without bash, timeout, tar, gzip and find no verifier can run. Take "
        "one that has them (Debian and Ubuntu based ones do)"
    )
