"""The result documents of a run, and of a verification that stands alone: what `taskfold run` and `taskfold regrade`
print with --output json, and what the store keeps as their rows.

Each has one shape in every ending, refusals included. `schema` names it; a change that a reader could stumble over is a
new version. docs/reference/result.md and verification.md describe them.
"""

from dataclasses import dataclass
from typing import Any

from taskfold.api.phases import Phase
from taskfold.api.status import StepStatus
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun

SCHEMA = "taskfold.dev/result/v1"
VERIFICATION_SCHEMA = "taskfold.dev/verification/v1"

OUTCOMES = {
    Phase.SUCCEEDED: "verdict",
    Phase.FAILED: "failed",
    Phase.MASKED: "masked",
    Phase.CANCELLED: "cancelled",
}


def document(run: TaskRun) -> dict[str, Any]:
    """The document of a run as it stands. `outcome` is `running` until there is one."""
    status, wire = run.status, run.status.wire()
    refused = status.phase is Phase.FAILED and status.failure is not None and status.failure.stage == "admission"
    outcome = OUTCOMES.get(status.phase, "running") if status.phase is not None else "running"
    return {
        "schema": SCHEMA,
        "name": run.metadata.name,
        "namespace": run.metadata.namespace,
        "uid": run.metadata.uid or None,
        "task": (wire.get("task") or {}).get("id"),
        "outcome": "refused" if refused else outcome,
        "phase": status.phase.value if status.phase else None,
        "reward": float(status.reward) if status.reward is not None else None,
        "rewards": dict(status.rewards),
        "reward_components": list(status.reward_components),
        "masked": status.masked,
        "failure": _failure(run),
        "message": status.failure.message if status.failure else "",
        "warnings": list(status.warnings),
        "verifier": _verifier(run),
        "agent": _agent(run),
        "steps": [_step(step) for step in status.steps],
        "timings": dict(status.timings),
        "store": status.store,
    }


@dataclass(frozen=True)
class Asked:
    """A verification that somebody asks for, as far as it is known: its own name, and what it is to grade."""

    name: str = ""
    namespace: str = ""
    run: str = ""
    step: str | None = None
    force: bool = False


def verification(verifier: VerifierRun, run: TaskRun | None) -> dict[str, Any]:
    """The document of a verification that stands alone: what it graded, and what it came to. `run`: what it grades."""
    status, source, step = verifier.status, verifier.spec.source.run_ref, verifier.spec.step
    asked = Asked(verifier.metadata.name, verifier.metadata.namespace, source.name, step, verifier.spec.force)
    outcome = OUTCOMES.get(status.phase, "running") if status.phase is not None else "running"
    refused = status.phase is Phase.FAILED and status.failure is not None and status.failure.terminal
    graded = run if run is not None and run.metadata.uid == verifier.run_uid else None
    return _of_verification(asked) | {
        "uid": verifier.metadata.uid or None,
        "run": {"name": source.name, "uid": verifier.run_uid, "step": step},
        "task_digest": status.admitted.task_digest if status.admitted is not None else None,
        "outcome": "refused" if refused else outcome,
        "phase": status.phase.value if status.phase else None,
        "reward": float(status.reward) if status.reward is not None else None,
        "previous_reward": previous_reward(graded, step) if graded is not None else None,
        "rewards": dict(status.rewards),
        "reward_components": list(status.reward_components),
        "masked": status.masked,
        "failure": _failure(verifier),
        "message": status.failure.message if status.failure else "",
        "warnings": list(status.warnings),
        "timings": dict(status.timings),
        "store": status.store,
    }


def previous_reward(run: TaskRun, step: str | None) -> float | None:
    """What the run itself says of its work, or of this step's."""
    own = next((each.reward for each in run.status.steps if each.name == step), None) if step else run.status.reward
    return float(own) if own is not None else None


def ungraded(asked: Asked, reason: str, message: str, *, outcome: str) -> dict[str, Any]:
    """The document of a verification that never became an object."""
    failure = {**_of_command(reason), "terminal": outcome == "refused"}
    return _of_verification(asked) | {"outcome": outcome, "failure": failure, "message": message}


def unwatched(
    verifier: VerifierRun, run: TaskRun, reason: str, message: str, *, outcome: str = "running"
) -> dict[str, Any]:
    """The document of a verification that a command no longer waits for. An outcome that is there stands."""
    found = verification(verifier, run)
    if found["outcome"] != "running":
        return found
    return {**found, "outcome": outcome, "failure": _of_command(reason), "message": message}


def _of_verification(asked: Asked) -> dict[str, Any]:
    """The document with nothing in it yet."""
    return {
        "schema": VERIFICATION_SCHEMA,
        "name": asked.name,
        "namespace": asked.namespace,
        "uid": None,
        "run": {"name": asked.run, "uid": None, "step": asked.step},
        "task_digest": None,
        "outcome": "error",
        "phase": None,
        "reward": None,
        "previous_reward": None,
        "rewards": {},
        "reward_components": [],
        "masked": False,
        "failure": None,
        "message": "",
        "forced": asked.force,
        "warnings": [],
        "timings": {},
        "store": None,
    }


def refusal(name: str, namespace: str, reason: str, message: str) -> dict[str, Any]:
    """The document of a run that never became an object: refused by the client or by the API server."""
    failure = {"kind": None, "reason": reason, "stage": "admission", "terminal": True}
    return {**_never(name, namespace), "outcome": "refused", "failure": failure, "message": message}


def unknown(name: str, namespace: str, reason: str, message: str, *, outcome: str = "error") -> dict[str, Any]:
    """The document of a command that could not find out: no answer of the API server, an error of its own."""
    return {**_never(name, namespace), "outcome": outcome, "failure": _of_command(reason), "message": message}


def left(run: TaskRun, reason: str, message: str, *, outcome: str = "running") -> dict[str, Any]:
    """The document of a run that a command no longer waits for. An outcome that is there stands."""
    found = document(run)
    if found["outcome"] != "running":
        return found
    return {**found, "outcome": outcome, "failure": _of_command(reason), "message": message}


def _never(name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return document(TaskRun.parse({"metadata": metadata, "spec": {"task": {}, "agent": {}}}))


def _of_command(reason: str) -> dict[str, Any]:
    return {"kind": None, "reason": reason, "stage": None, "terminal": False}


def _failure(run: TaskRun | VerifierRun) -> dict[str, Any] | None:
    failure = run.status.failure
    if failure is None:
        return None
    return {
        "kind": failure.kind,
        "reason": failure.reason,
        "stage": failure.stage.value if failure.stage else None,
        "terminal": failure.terminal,
    }


def _verifier(run: TaskRun) -> dict[str, Any] | None:
    verifier = run.status.verifier
    if verifier is None:
        return None
    return {
        "name": verifier.name,
        "mode": verifier.mode.value if verifier.mode else None,
        "return_code": verifier.return_code,
        "seconds": verifier.seconds,
        "timed_out": verifier.timed_out,
    }


def _agent(run: TaskRun) -> dict[str, Any] | None:
    agent = run.status.agent
    if agent is None:
        return None
    return {
        "name": agent.name,
        "outcome": agent.outcome.value if agent.outcome else None,
        "return_code": agent.return_code,
        "seconds": agent.seconds,
    }


def _step(step: StepStatus) -> dict[str, Any]:
    agent, verifier = step.agent, step.verifier
    return {
        "name": step.name,
        "reward": float(step.reward) if step.reward is not None else None,
        "rewards": dict(step.rewards),
        "masked": step.masked,
        "kind": step.kind,
        "reason": step.reason,
        "agent": {
            "outcome": agent.outcome.value if agent.outcome else None,
            "return_code": agent.return_code,
            "seconds": agent.seconds,
        }
        if agent is not None
        else None,
        "verifier": {
            "name": verifier.name,
            "mode": verifier.mode.value if verifier.mode else None,
            "return_code": verifier.return_code,
            "seconds": verifier.seconds,
            "timed_out": verifier.timed_out,
        }
        if verifier is not None
        else None,
    }
