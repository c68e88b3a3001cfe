"""Worlds for decisions: each function states only what matters, the rest is a run that goes well.

`checked` refuses a world that no cluster could show, so that a test cannot prove anything about one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from taskfold import protocol
from taskfold.api.conditions import Condition, summarize
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.settings import Settings
from taskfold.api.status import (
    Admitted,
    AgentOutcome,
    AgentStatus,
    Attempt,
    Failure,
    JournalEntry,
    JournalPhase,
    Mode,
    Stage,
    TaskStatus,
    VerifierStatus,
)
from taskfold.api.taskrun import TaskRun, TaskRunStatus
from taskfold.api.verifierrun import VerifierRun, VerifierRunStatus
from taskfold.contract import loader
from taskfold.contract import steps as turns
from taskfold.contract import task as tasks
from taskfold.contract.folder import MemoryFolder
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide import step_status
from taskfold.decide.plan import Plan
from taskfold.decide.world import PhaseDone, RunWorld, VerifierWorld
from taskfold.protocol.phase import BackgroundEnd, FileState, PhaseResult, ReadFile, RunResult, User

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SETTINGS = Settings()
NAME, NAMESPACE, UID = "fix-bug", "team", "uid-run"
POD, POD_UID = "fix-bug-1-1", "uid-pod-1"
VERIFIER, VERIFIER_UID = "fix-bug-1-verify", "uid-verifier"
SPEC_DIGEST, TASK_DIGEST = "sha256:" + "5" * 64, "sha256:" + "7" * 64
SEED, AGENT, HOOKS, VERIFY = "5" * 32, "a" * 32, "b" * 32, "c" * 32
FRESH = ("e" * 32, "f" * 32, "d" * 32)
PREFIX = "default/team/uid-run/1/"
ROOT = User(uid=0, gid=0, groups=())
ORACLE: Mapping[str, Any] = {"oracle": {}}
NOP: Mapping[str, Any] = {"nop": {}}
SCRIPT: Mapping[str, Any] = {"script": {"run": "true"}}


def ago(seconds: float) -> str:
    """A time of a status, so many seconds before now."""
    return to.stamp(NOW - timedelta(seconds=seconds))


def in_a_while(seconds: float) -> datetime:
    """`now` of a world that is looked at so much later."""
    return NOW + timedelta(seconds=seconds)


def task(*lines: str, files: Mapping[str, str] | None = None) -> tasks.Task:
    """A task with an image, a solution, and these further lines of task.toml."""
    texts = {
        "task.toml": "\n".join(('environment.docker_image = "python:3.12-slim"', *lines)),
        "instruction.md": "Fix the bug.\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "true\n",
        **(files or {}),
    }
    return loader.load(MemoryFolder({path: (text.encode(), False) for path, text in texts.items()}), task_id="fix-bug")


TASK = task()
STEPS = ("one", "two", "three")


def stepped(*lines: str, tables: Mapping[str, str] | None = None) -> tasks.Task:
    """A task of three steps. `lines` stand at the top of task.toml; `tables`: what is added to a step's [[steps]]."""
    steps = [f'[[steps]]\nname = "{name}"\n{(tables or {}).get(name, "")}' for name in STEPS]
    files = {f"steps/{name}/{path}": "x\n" for name in STEPS for path in ("instruction.md", "solution/solve.sh")}
    return task(*lines, *steps, files=files)


def turn_of(whole: tasks.Task, name: str) -> tasks.Task:
    """The turn of one of its steps."""
    turn = turns.named(whole, name)
    assert turn is not None
    return turn


# -- TaskRuns ------------------------------------------------------------------------------------------------------


def run(status: TaskRunStatus | None = None, *, deleted: bool = False, **spec: Any) -> TaskRun:
    """A TaskRun with this status; `spec` in the object's own spelling over an oracle's."""
    metadata: dict[str, Any] = {
        "name": NAME,
        "namespace": NAMESPACE,
        "uid": UID,
        "resourceVersion": "10",
        "generation": 1,
        "creationTimestamp": ago(30),
    }
    if deleted:
        metadata["deletionTimestamp"] = ago(1)
    wire = {"task": {"inline": {}}, "agent": ORACLE, **spec}
    found = TaskRun.parse({"metadata": metadata, "spec": wire})
    return found.model_copy(update={"status": status or TaskRunStatus()})


def queued(**changes: Any) -> TaskRunStatus:
    """Admitted, no pod yet."""
    tries, start = changes.pop("tries", 1), changes.pop("since", 20.0)
    fields = {
        "phase": Phase.QUEUED,
        "admitted": Admitted(spec_digest=SPEC_DIGEST, task_digest=TASK_DIGEST),
        "task": TaskStatus(id="fix-bug", image="python:3.12-slim"),
        "agent": AgentStatus(name="oracle"),
        "start_time": ago(start),
        "store": PREFIX,
        "attempts": [Attempt(number=1, tries=tries, start_time=ago(start))],
    }
    return TaskRunStatus(**(fields | changes))


def placed(phase: Phase = Phase.SEEDING, *, seeded: float | None = None, **changes: Any) -> TaskRunStatus:
    """The pod stands in the status with its journal. `seeded`: seconds since the seed phase ended."""
    tries, since = changes.pop("tries", 1), changes.pop("since", 20.0)
    attempt = Attempt(number=1, tries=tries, start_time=ago(since), pod_name=POD, pod_uid=POD_UID, node_name="node-1")
    journal = [
        entry(JournalPhase.SEED, SEED, tries, ended_at=ago(seeded) if seeded is not None else None),
        entry(JournalPhase.AGENT, AGENT, tries),
    ]
    fields = {"attempts": [attempt], "journal": journal, "pod_name": POD, "start_time": ago(since)}
    return queued(phase=phase, **(fields | changes))


def running(**changes: Any) -> TaskRunStatus:
    """Seeded; the agent may work."""
    return placed(**({"phase": Phase.RUNNING, "seeded": 10.0} | changes))


def handed_over(uid: str | None = VERIFIER_UID, **changes: Any) -> TaskRunStatus:
    """The agent has ended and the VerifierRun is named; with its uid the pod is the VerifierRun's."""
    return running(
        **(
            {
                "phase": Phase.VERIFYING if uid else Phase.CLOSING,
                "agent": AgentStatus(name="oracle", outcome=AgentOutcome.SUCCEEDED, return_code=0, seconds=1.5),
                "verifier": VerifierStatus(mode=Mode.SHARED, name=VERIFIER, uid=uid),
            }
            | changes
        )
    )


def told(reason: Reason, message: str = "", *, seconds_ago: float, phase: Phase = Phase.QUEUED) -> list[Condition]:
    """Conditions with these last words, so since so many seconds."""
    return summarize(
        [], phase=phase, reason=reason, message=message, complete=False, generation=1, now=ago(seconds_ago)
    )


def ended(phase: Phase = Phase.SUCCEEDED, **changes: Any) -> TaskRunStatus:
    """The outcome stands; files and pod are still to be looked after."""
    if phase is Phase.SUCCEEDED:
        return handed_over(phase=phase, **({"reward": "1", "verdict_time": ago(1)} | changes))
    failure = Failure(reason=Reason.SANDBOX_LOST.value, message="gone", stage=Stage.AGENT)
    fields = {"failure": failure, "masked": phase is Phase.MASKED, "verdict_time": ago(1)}
    return running(phase=phase, **(fields | changes))


def complete(seconds_ago: float = 5.0, **changes: Any) -> TaskRunStatus:
    return ended(**({"complete": True, "completion_time": ago(seconds_ago), "journal": []} | changes))


def entry(phase: JournalPhase, nonce: str, tries: int = 1, *, ended_at: str | None = None) -> JournalEntry:
    return JournalEntry(
        phase=phase, attempt=1, try_=tries, nonce=nonce, pod_name=POD, pod_uid=POD_UID, ended_at=ended_at
    )


def world(status: TaskRunStatus | None = None, **changes: Any) -> RunWorld:
    """The world of a run with this status. Keys of RunWorld; all others are fields of its spec."""
    known = {name: changes.pop(name) for name in tuple(changes) if name in RunWorld.__dataclass_fields__}
    deleted = changes.pop("deleted", False)
    status = status or TaskRunStatus()
    fields: dict[str, Any] = {
        "run": run(status, deleted=deleted, **changes),
        "spec_digest": SPEC_DIGEST,
        "now": NOW,
        "nonces": FRESH,
        "settings": SETTINGS,
        "task": TASK if status.admitted else None,
        "image_user": ROOT if status.admitted else None,
        "store_prefix": PREFIX,
    }
    if status.attempts and status.attempts[-1].pod_uid and not status.complete:
        fields["pod"] = ready()
    return checked(RunWorld(**(fields | known)))


def checked(found: RunWorld) -> RunWorld:
    """The world itself, unless no cluster could show it."""
    status = found.run.status
    final = status.phase is not None and status.phase.final
    attempt = status.attempts[-1] if status.attempts else None
    impossible = {
        "complete without a final phase": status.complete and not final,
        "a reward without a verdict": status.reward is not None and status.phase is not Phase.SUCCEEDED,
        "admitted without an attempt": status.admitted is not None and attempt is None,
        "a pod's uid without its name": attempt is not None and bool(attempt.pod_uid) and not attempt.pod_name,
        "a task before admission": found.task is not None and status.admitted is None,
        "a VerifierRun before the agent has worked": found.verifier is not None
        and status.phase in (None, Phase.PENDING, Phase.QUEUED, Phase.SEEDING),
        "a row before the files": found.row_stored and found.collected is None,
        "a report of a phase that the journal does not hold": bool(
            set(found.phases) - {each.nonce for each in status.journal}
        ),
    }
    wrong = [text for text, holds in impossible.items() if holds]
    if wrong:
        raise AssertionError(f"an impossible world: {'; '.join(wrong)}")
    return found


# -- VerifierRuns --------------------------------------------------------------------------------------------------


def verifier(status: VerifierRunStatus | None = None, *, deleted: bool = False, **spec: Any) -> VerifierRun:
    """The VerifierRun that the operator made for the run."""
    owner = {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "name": NAME, "uid": UID, "controller": True}
    metadata: dict[str, Any] = {
        "name": VERIFIER,
        "namespace": NAMESPACE,
        "uid": VERIFIER_UID,
        "resourceVersion": "20",
        "generation": 1,
        "ownerReferences": [owner],
    }
    if deleted:
        metadata["deletionTimestamp"] = ago(1)
    wire = {"source": {"runRef": {"name": NAME, "uid": UID}}, "mode": "shared", **spec}
    found = VerifierRun.parse({"metadata": metadata, "spec": wire})
    return found.model_copy(update={"status": status or VerifierRunStatus()})


def verifying(*, hooks: bool = False, **changes: Any) -> VerifierRunStatus:
    """Admitted, with its journal; `since` seconds ago."""
    since = changes.pop("since", 5.0)
    journal = [entry(JournalPhase.HOOKS, HOOKS)] if hooks else []
    fields = {
        "phase": Phase.VERIFYING,
        "admitted": Admitted(spec_digest=SPEC_DIGEST, task_digest=TASK_DIGEST),
        "start_time": ago(since),
        "journal": [*journal, entry(JournalPhase.VERIFY, VERIFY)],
        "pod_name": POD,
        "verifier": VerifierStatus(mode=Mode.SHARED),
    }
    return VerifierRunStatus(**(fields | changes))


def verdict(phase: Phase = Phase.SUCCEEDED, **changes: Any) -> VerifierRunStatus:
    """A VerifierRun that is complete."""
    fields: dict[str, Any] = {"complete": True, "completion_time": ago(1)}
    if phase is Phase.SUCCEEDED:
        graded = VerifierStatus(mode=Mode.SHARED, return_code=0, seconds=2.5)
        fields |= {"reward": "0.25", "rewards": {"style": 0.25}, "reward_components": ["style"], "verifier": graded}
    else:
        fields["failure"] = Failure(reason=Reason.POD_EVICTED.value, message="evicted", stage=Stage.VERIFICATION)
        fields["masked"] = phase is Phase.MASKED
    return verifying(phase=phase, **(fields | changes))


def verifier_world(status: VerifierRunStatus | None = None, **changes: Any) -> VerifierWorld:
    """The world of the VerifierRun. Keys of VerifierWorld; all others are fields of its spec."""
    known = {name: changes.pop(name) for name in tuple(changes) if name in VerifierWorld.__dataclass_fields__}
    deleted = changes.pop("deleted", False)
    graded = known.get("run", run(handed_over()))
    fields: dict[str, Any] = {
        "verifier": verifier(status, deleted=deleted, **changes),
        "spec_digest": SPEC_DIGEST,
        "now": NOW,
        "nonces": FRESH,
        "settings": SETTINGS,
        "run": graded,
        "task": TASK,
        "pod": ready(),
        "image_user": ROOT,
        "place": _place(graded, changes.get("step")),
    }
    return VerifierWorld(**(fields | known))


def _place(graded: TaskRun | None, step: str | None) -> str | None:
    prefix = graded.status.store if graded is not None else None
    return step_status.place(prefix, step) if prefix is not None and step is not None else prefix


# -- pods ----------------------------------------------------------------------------------------------------------


def pod_object(
    status: Mapping[str, Any], *, node: str | None = "node-1", owner: str = UID, created: float = 15.0, **metadata: Any
) -> dict[str, Any]:
    """A pod as the API server gives it, with this status."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": POD,
            "namespace": NAMESPACE,
            "uid": POD_UID,
            "resourceVersion": "30",
            "creationTimestamp": ago(created),
            "labels": {"taskfold.dev/run": NAME, "taskfold.dev/protocol": str(protocol.PROTOCOL)},
            "ownerReferences": [{"kind": "TaskRun", "name": NAME, "uid": owner, "controller": True}],
            **metadata,
        },
        "spec": {"nodeName": node} if node else {},
        "status": dict(status),
    }


def container(
    state: Mapping[str, Any], *, name: str = "main", restarts: int = 0, last: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One container status. `last`: its `lastState`."""
    return {
        "name": name,
        "state": dict(state),
        "lastState": dict(last or {}),
        "restartCount": restarts,
        "ready": "running" in state,
        "image": "python:3.12-slim",
        "imageID": "docker.io/library/python@sha256:" + "1" * 64,
    }


def waits(reason: str, message: str = "", *, name: str = "main") -> dict[str, Any]:
    return container({"waiting": {"reason": reason, "message": message}}, name=name)


def runs(*, since: float = 12.0, restarts: int = 0) -> dict[str, Any]:
    return container({"running": {"startedAt": ago(since)}}, restarts=restarts)


def stopped(reason: str, code: int, message: str = "", *, name: str = "main", ended: float = 1.0) -> dict[str, Any]:
    told = {"reason": reason, "exitCode": code, "message": message, "startedAt": ago(12), "finishedAt": ago(ended)}
    return container({"terminated": told}, name=name)


def seen(status: Mapping[str, Any], **more: Any) -> pods.PodView:
    return pods.view(pod_object(status, **more))


def ready(**more: Any) -> pods.PodView:
    """The sandbox works."""
    since = more.pop("since", 12.0)
    return seen({"phase": "Running", "startTime": ago(14), "containerStatuses": [runs(since=since)]}, **more)


def ready_with_record(message: str = '{"uid": 1000, "gid": 1000, "groups": []}') -> pods.PodView:
    record = stopped("Completed", 0, message, name="record")
    return seen({"phase": "Running", "initContainerStatuses": [record], "containerStatuses": [runs()]})


def starting(**more: Any) -> pods.PodView:
    return seen({"phase": "Pending", "containerStatuses": [waits("ContainerCreating")]}, **more)


def unscheduled(message: str = "0/3 nodes are available: 3 Insufficient memory.", **more: Any) -> pods.PodView:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return seen({"phase": "Pending", "conditions": [scheduled]}, node=None, **more)


def oom_killed() -> pods.PodView:
    return seen({"phase": "Failed", "containerStatuses": [stopped("OOMKilled", 137)]})


def disrupted(reason: str, *, failed: bool = False, status: str = "True", **metadata: Any) -> pods.PodView:
    """With the condition DisruptionTarget; being deleted, as all but PodGC and the kubelet do it at the same time."""
    condition = {"type": "DisruptionTarget", "status": status, "reason": reason}
    deleted = {} if failed else {"deletionTimestamp": ago(0)}
    found = {"phase": "Failed" if failed else "Running", "conditions": [condition], "containerStatuses": [runs()]}
    return seen(found, **(deleted | metadata))


def rejected(reason: str, message: str = "") -> pods.PodView:
    """Refused by the kubelet: it says nothing about containers."""
    return seen({"phase": "Failed", "reason": reason, "message": message})


def evicted(message: str = "The node was low on resource: memory.") -> pods.PodView:
    return seen({"phase": "Failed", "reason": "Evicted", "message": message})


# -- phases --------------------------------------------------------------------------------------------------------


def result(
    nonce: str,
    *runs_: RunResult,
    files: Mapping[str, bytes | FileState] | None = None,
    missing: Sequence[str] = (),
    seconds_ago: float = 2.0,
    beside: Sequence[RunResult] = (),
) -> PhaseResult:
    """What a phase reports. `files`: content, or the state of what is no regular file. `beside`: what has ended."""
    read = {
        path: ReadFile(path, FileState.REGULAR, len(found), found)
        if isinstance(found, bytes)
        else ReadFile(path, found, 0)
        for path, found in (files or {}).items()
    }
    prepared: tuple[Mapping[str, Any], ...] = ({"op": "tools", "missing": list(missing)},)
    ended = tuple(BackgroundEnd(SEED, each) for each in beside)
    return PhaseResult(nonce, ago(seconds_ago + 1), ago(seconds_ago), prepared, runs_, read, ended)


def done(nonce: str, *runs_: RunResult, **more: Any) -> dict[str, PhaseDone]:
    """`phases` with this one ended."""
    return {nonce: PhaseDone(result(nonce, *runs_, **more))}


def program(name: str, code: int | None = 0, **changes: Any) -> RunResult:
    """How a program ended."""
    ended_well = RunResult(
        name,
        code,
        signal=None,
        seconds=1.5,
        timed_out=False,
        start_error=None,
        output_bytes=0,
        output_gap=False,
        output_error=None,
    )
    return replace(ended_well, **changes)


# -- plans ---------------------------------------------------------------------------------------------------------


def phase_of(plan: Plan) -> Phase | None:
    return plan.status.phase if plan.status is not None else None


def reason_of(plan: Plan) -> Reason | None:
    return plan.note.reason if plan.note is not None else None


def deeds(plan: Plan) -> tuple[str, ...]:
    """The kinds of the plan's effects, in order."""
    return tuple(type(effect).__name__ for effect in plan.effects)


def failure_of(plan: Plan) -> Failure:
    """Why the plan ends the run; there must be a cause."""
    assert plan.status is not None
    assert plan.status.failure is not None
    return plan.status.failure
