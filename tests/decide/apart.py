"""Worlds of separate verifications: as in `worlds`, each function states only what matters."""

from dataclasses import replace
from typing import Any

from tests.decide import worlds

from taskfold.api import conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Admitted, Attempt, JournalEntry, JournalPhase, Mode, VerifierStatus
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun, VerifierRunStatus
from taskfold.contract import separate
from taskfold.decide import pod as pods
from taskfold.decide.world import Admission, OwnSandbox, VerifierWorld
from taskfold.protocol.artifacts import Archive, Entry, Manifest, Status, Type

TASK = worlds.task('verifier.environment_mode = "separate"', 'artifacts = ["/app/out.txt"]')
HOOKED = worlds.task('verifier.environment_mode = "separate"', '[[verifier.collect]]\ncommand = "make report"')
STEPPED = worlds.stepped('verifier.environment_mode = "separate"')
OWN, OWN_UID = "fix-bug-1-verify-1", "uid-own-1"
SEED, VERIFY = "8" * 32, "9" * 32
REGRADE, REGRADE_UID, REGRADE_PLACE = "again", "uid-again", "default/team/uid-again/1/"

KEPT = Entry(
    "/app/out.txt",
    "app/out.txt",
    Status.OK,
    type=Type.FILE,
    path="/app/out.txt",
    size=12,
    archive=Archive("artifacts/1-x.tar", 2048, "1" * 64, 1),
)
MISSING = Entry("/logs/artifacts", "logs/artifacts", Status.MISSING)
FAILED = Entry("/app/pipe", "app/pipe", Status.FAILED, reason="a FIFO")
MANIFEST = Manifest((MISSING, KEPT))
INDEX: dict[str, object] = {"archive": None, "error": ""}
"""What was kept of the verifier's own sandbox."""


def attempt(pod: bool = True, **changes: Any) -> Attempt:
    """The count of its own pods. `pod`: it is recorded."""
    named = {"pod_name": OWN, "pod_uid": OWN_UID} if pod else {}
    return Attempt(**({"number": 1, "tries": 1, "start_time": worlds.ago(20), **named} | changes))


def entry(phase: JournalPhase, nonce: str, pod: str = OWN_UID, *, ended_at: str | None = None) -> JournalEntry:
    return JournalEntry(phase=phase, attempt=1, try_=1, nonce=nonce, pod_name=OWN, pod_uid=pod, ended_at=ended_at)


def closing(*, hooks: str | None = None, hooked: bool = False, **changes: Any) -> VerifierRunStatus:
    """Admitted; the agent's sandbox still has everything. `hooked`: there are hooks, ended at `hooks`."""
    journal = [worlds.entry(JournalPhase.HOOKS, worlds.HOOKS, ended_at=hooks)] if hooked else []
    fields = {
        "phase": Phase.CLOSING,
        "admitted": Admitted(spec_digest=worlds.SPEC_DIGEST, task_digest=worlds.TASK_DIGEST),
        "start_time": worlds.ago(25),
        "journal": journal,
        "attempts": [attempt(pod=False)],
        "store": worlds.PREFIX,
        "verifier": VerifierStatus(mode=Mode.SEPARATE),
    }
    return VerifierRunStatus(**(fields | changes))


def collected(seconds_ago: float) -> list[conditions.Condition]:
    """Conditions that say so long that everything of the agent's is in the store."""
    kind, text = conditions.ConditionType.ARTIFACTS_COLLECTED, "1 of 2 artifacts, 12 bytes"
    return conditions.set_condition([], kind, "True", Reason.COLLECTED, text, 1, worlds.ago(seconds_ago))


def queued(**changes: Any) -> VerifierRunStatus:
    """Everything is in the store; no pod of its own yet."""
    return closing(**({"phase": Phase.QUEUED, "conditions": collected(20)} | changes))


def placed(phase: Phase = Phase.SEEDING, *, seeded: float | None = None, **changes: Any) -> VerifierRunStatus:
    """Its own pod stands in the status with its journal, and the agent's is proven stopped."""
    journal = [
        entry(JournalPhase.SEED, SEED, ended_at=worlds.ago(seeded) if seeded is not None else None),
        entry(JournalPhase.VERIFY, VERIFY),
    ]
    fields = {
        "attempts": [attempt()],
        "journal": journal,
        "pod_name": OWN,
        "agent_stopped_time": worlds.ago(10),
    }
    return queued(phase=phase, **(fields | changes))


def verifying(**changes: Any) -> VerifierRunStatus:
    """test.sh may run."""
    return placed(**({"phase": Phase.VERIFYING, "seeded": 3.0} | changes))


def over(phase: Phase = Phase.SUCCEEDED, **changes: Any) -> VerifierRunStatus:
    """The outcome stands; its own sandbox is still to be seen to."""
    fields: dict[str, Any] = {"reward": "1"} if phase is Phase.SUCCEEDED else {"masked": phase is Phase.MASKED}
    return verifying(phase=phase, **({"verdict_time": worlds.ago(1)} | fields | changes))


def pod(found: pods.PodView | None = None, **changes: Any) -> pods.PodView:
    """A pod as the verifier's own one; by default it is ready."""
    fields = {"name": OWN, "uid": OWN_UID, "owner_uid": worlds.VERIFIER_UID}
    return replace(found if found is not None else worlds.ready(), **(fields | changes))


def starting(*containers: dict[str, Any], **more: Any) -> pods.PodView:
    """Its own pod before it runs, with what these containers wait for."""
    return pod(worlds.seen({"phase": "Pending", "containerStatuses": list(containers)}, **more))


def stopped_agent() -> pods.PodView:
    """The agent's pod, deleted, its container reported terminated."""
    ended = {"containerStatuses": [worlds.stopped("Error", 143)]}
    return worlds.seen(ended, deletionTimestamp=worlds.ago(1))


def deleting_agent(seconds_ago: float = 1.0) -> pods.PodView:
    """The agent's pod, asked to go; nobody says that its container has ended."""
    return worlds.ready(deletionTimestamp=worlds.ago(seconds_ago))


def run(**spec: Any) -> TaskRun:
    """The TaskRun whose agent's sandbox was handed over."""
    step = spec.pop("steps", [])
    verifier = VerifierStatus(mode=Mode.SEPARATE, name=worlds.VERIFIER, uid=worlds.VERIFIER_UID)
    return worlds.run(worlds.handed_over(verifier=verifier, steps=step), **spec)


def world(status: VerifierRunStatus | None, **changes: Any) -> VerifierWorld:
    """The world of a separate verification. Keys of OwnSandbox begin with `own_`: `own_pod`, `own_image_user`, …"""
    own = {name: changes.pop(name) for name in tuple(changes) if name.startswith("own_")}
    task = changes.setdefault("task", TASK)
    has_pod = status is not None and status.attempts and status.attempts[-1].pod_uid and not status.complete
    fields = {"name": OWN, "pod": pod() if has_pod else None, "image_user": worlds.ROOT}
    fields |= {name.removeprefix("own_"): value for name, value in own.items()}
    has_stopped = status is not None and status.agent_stopped_time is not None
    defaults: dict[str, Any] = {
        "run": run(),
        "pod": None if has_stopped else worlds.ready(),
        "own": OwnSandbox(task=separate.sandbox(task), **fields),
    }
    return worlds.verifier_world(status, **({"mode": "separate"} | defaults | changes))


def complete_run(**changes: Any) -> TaskRun:
    """The TaskRun that is graded again: separate, complete, its pod gone."""
    spec = {name: changes.pop(name) for name in tuple(changes) if name in ("podRetention",)}
    verifier = VerifierStatus(mode=Mode.SEPARATE, name=worlds.VERIFIER, uid=worlds.VERIFIER_UID)
    return worlds.run(worlds.complete(**({"verifier": verifier} | changes)), **spec)


def regrade(status: VerifierRunStatus | None = None, **spec: Any) -> VerifierRun:
    """A VerifierRun that stands alone."""
    made = worlds.verifier(status, **({"mode": "separate"} | spec))
    lone = {"name": REGRADE, "uid": REGRADE_UID, "owner_references": []}
    return made.model_copy(update={"metadata": made.metadata.model_copy(update=lone)})


def regrade_world(status: VerifierRunStatus | None = None, **changes: Any) -> VerifierWorld:
    """The world of a VerifierRun that grades a complete run again. `spec`: of the VerifierRun."""
    spec = changes.pop("spec", {})
    defaults = {
        "verifier": regrade(status, **spec),
        "run": complete_run(),
        "pod": None,
        "place": REGRADE_PLACE,
        "manifest": MANIFEST if status is None else None,
        "regraded": Admission(worlds.TASK_DIGEST, TASK),
    }
    return replace(world(status), **(defaults | changes))
