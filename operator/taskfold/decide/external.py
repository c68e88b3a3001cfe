"""An agent outside of the cluster's pods: somebody drives the sandbox by exec and then sets `spec.finish`.

Guarantees: nothing is started in the sandbox for it and nothing is ended there (C1). Its phase has an end in any case:
`finish`, the agent's limit, a loss or a cancellation. The response is in the store before the pod is handed over, and
a response that cannot be had is given up after a while, never the agent's work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from taskfold.api.agent import FinishOutcome
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import AgentOutcome, AgentStatus, JournalEntry
from taskfold.api.taskrun import TaskRun, TaskRunStatus
from taskfold.contract import response as responses
from taskfold.contract import users
from taskfold.contract.task import Task
from taskfold.decide import grading, sandbox
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide.plan import Note, Plan, StoreResponse
from taskfold.decide.world import Refusal, RunWorld

LOOK_SECONDS = 2.0
"""How soon a ConfigMap that is not there yet is looked for again."""

OUTCOMES = {FinishOutcome.SUCCEEDED: AgentOutcome.SUCCEEDED, FinishOutcome.FAILED: AgentOutcome.FAILED}


def refusal(run: TaskRun, task: Task) -> str | None:
    """Why an external agent cannot have this run; None if it can, or if the agent is another one."""
    if run.spec.agent.external is None:
        return None
    if task.steps:
        return (
            "spec.agent.external cannot work on a task with [[steps]]: spec.finish is set once, and each step would "
            "need its own. Use agent.script."
        )
    if run.spec.retries is not None and run.spec.retries.infrastructure > 0:
        return (
            "spec.retries.infrastructure needs an agent that the operator can start again, and an external one has to "
            "be told by whoever drives it. Leave it out, and create a new run after a loss."
        )
    return None


def work(world: RunWorld, entry: JournalEntry) -> Plan:
    """The sandbox is ready, and somebody may be at work in it."""
    outcome = _outcome(world, entry)
    if outcome is None:
        return _await_finish(world, entry)
    found = _response(world, entry, outcome)
    status, agent = _ended(world, entry), _agent(world, entry, outcome)
    if found.missing is not None:
        closing = to.moved(status, Phase.CLOSING, agent=agent)
        return Plan(closing, Note(Reason(found.missing.reason), found.missing.message), again=LOOK_SECONDS)
    plan = grading.close(world, to.warned(status, found.notes), outcome, None)
    if isinstance(plan.status, TaskRunStatus):
        told = to.timed(plan.status.model_copy(update={"agent": agent}), agent=agent.seconds)
        plan = replace(plan, status=told)
    # Kept by every plan that hands over, so that no order of crashes hands a pod over without it.
    keep = (StoreResponse(world.store_prefix or "", found.document),) if found.document is not None else ()
    return replace(plan, effects=(*keep, *plan.effects))


def _outcome(world: RunWorld, entry: JournalEntry) -> AgentOutcome | None:
    """How the work ended; None while it goes on. What a status says already stands."""
    agent, finish = world.run.status.agent, world.run.spec.finish
    if agent is not None and agent.outcome is not None:
        return agent.outcome
    if finish is not None:
        return OUTCOMES[finish.outcome]
    return AgentOutcome.TIMED_OUT if _left(world, entry) <= 0 else None


def _left(world: RunWorld, entry: JournalEntry) -> float:
    """Seconds that the agent may still take; they count from when the sandbox was seen to be ready."""
    taken = to.seconds_between(entry.started_at, to.stamp(world.now)) or 0.0
    return sandbox.agent_limit(world) - taken


def _await_finish(world: RunWorld, entry: JournalEntry) -> Plan:
    status = to.begun(world.run.status, entry.nonce, to.stamp(world.now))
    agent = _agent(world, entry, None)
    text = (
        f"works in container {pods.MAIN} of pod {entry.pod_name}; ends when spec.finish is set, or "
        f"{sandbox.agent_limit(world):g} s after {entry.started_at or to.stamp(world.now)}"
    )
    told = status if status.agent == agent else status.model_copy(update={"agent": agent})
    return Plan(told, Note(Reason.AWAITING_FINISH, text), again=max(0.1, _left(world, entry)))


def _ended(world: RunWorld, entry: JournalEntry) -> TaskRunStatus:
    """The status with the phase's end; the first word stands."""
    if entry.ended_at is not None:
        return world.run.status
    return to.closed(world.run.status, entry.nonce, to.stamp(world.now))


def _agent(world: RunWorld, entry: JournalEntry, outcome: AgentOutcome | None) -> AgentStatus:
    """What the status says of the agent: where and as whom it works, and how it ended."""
    config = world.task.config if world.task is not None else None
    recorded = world.recorded.config if world.recorded is not None else None
    workdir = (config.environment.workdir if config else None) or (recorded.workdir if recorded else None) or None
    ended = entry.ended_at or to.stamp(world.now)
    late = f"spec.finish was not set within {sandbox.agent_limit(world):g} s"
    return AgentStatus(
        name=world.run.spec.agent.name,
        outcome=outcome,
        seconds=to.seconds_between(entry.started_at or ended, ended) if outcome is not None else None,
        message=late if outcome is AgentOutcome.TIMED_OUT else None,
        user=_user(world),
        workdir=workdir,
    )


def _user(world: RunWorld) -> str | None:
    """Who works, as `kubectl exec` cannot tell: a name or a number, with a group where there is one."""
    recorded = world.recorded.config.user if world.recorded is not None else None
    user = users.agent(world.task.config, recorded) if world.task is not None else None
    known = user or world.image_user
    if known is None:
        return None
    who = known.name if known.name is not None else str(known.uid)
    group = known.group if known.group is not None else known.gid
    return who if group is None else f"{who}:{group}"


@dataclass(frozen=True)
class _Response:
    """The agent's final response. `missing`: it is still waited for. `notes`: why there is none."""

    document: Mapping[str, Any] | None = None
    missing: Refusal | None = None
    notes: tuple[str, ...] = ()


def _response(world: RunWorld, entry: JournalEntry, outcome: AgentOutcome) -> _Response:
    finish = world.run.spec.finish
    if finish is None or outcome is AgentOutcome.TIMED_OUT:
        return _Response()
    if finish.response_from is None:
        return _parsed(finish.response) if finish.response is not None else _Response()
    match world.response:
        case str(text):
            return _parsed(text)
        case Refusal(message=message, terminal=False) as missing:
            limit, now = world.settings.limits.source_seconds, to.stamp(world.now)
            if (to.seconds_between(entry.ended_at or now, now) or 0.0) <= limit:
                return _Response(missing=missing)
            return _Response(notes=(f"verified without the agent's response: {message} (waited {limit:g} s)",))
        case Refusal(message=message):
            return _Response(notes=(f"verified without the agent's response: {message}",))
        case None:
            return _Response()


def _parsed(text: str) -> _Response:
    try:
        return _Response(document=responses.parse(text))
    except ValueError as error:
        return _Response(notes=(f"verified without the agent's response: {error}",))
