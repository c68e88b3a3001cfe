"""A VerifierRun that somebody made to grade a complete TaskRun again, from the artifacts that it left (C36).

Guarantees: the agent does not work again; what was not graded from artifacts, or whose artifacts are not all kept, is
refused, unless `force` is set, and then the verdict says so.
"""

from dataclasses import replace

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Admitted, Mode, VerifierStatus
from taskfold.contract.errors import TaskError
from taskfold.decide import pod as pods
from taskfold.decide import restriction, separate, verdicts
from taskfold.decide import status as to
from taskfold.decide.plan import Note, Plan, StoreSnapshot
from taskfold.decide.world import Admission, Refusal, VerifierWorld

LOOK_SECONDS = 30.0
RUN_LOOK_SECONDS = 5.0
SOURCE_SECONDS = 5.0
"""How soon to look again for what the spec names."""


def watched(plan: Plan) -> Plan:
    """The same plan, looked at again soon: nobody tells that the TaskRun, which was complete, is gone."""
    return replace(plan, again=RUN_LOOK_SECONDS if plan.again is None else min(plan.again, RUN_LOOK_SECONDS))


def admit(world: VerifierWorld) -> Plan:
    """The first step of a VerifierRun that stands alone."""
    run, spec = world.run, world.verifier.spec
    if run is None:
        raise ValueError("grades no run")
    if spec.mode is Mode.SHARED:
        text = "spec.mode shared needs the agent's live sandbox, which a complete run no longer has. Write separate."
        return verdicts.fail(world, Reason.NOT_GRADABLE, text)
    unreadable = restriction.wrong_host(spec.network, restriction.VERIFIER)
    if unreadable is not None:
        return verdicts.fail(world, Reason.INVALID_SPEC, unreadable)
    if not run.status.complete:
        return Plan(note=Note(Reason.AWAITING_RUN, f"TaskRun {run.metadata.name}"), again=LOOK_SECONDS)
    match world.regraded:
        case Admission(digest=found):
            digest = found
        case Refusal(reason=reason, message=message, terminal=False):
            return Plan(note=Note(Reason(reason), message), again=SOURCE_SECONDS)
        case Refusal(reason=reason, message=message):
            return verdicts.fail(world, Reason(reason), message)
        case None:
            return Plan(again=SOURCE_SECONDS)
    own = world.own
    wanted = (restriction.of_verifier(world.verifier, own.task),) if own is not None else ()
    unenforceable = restriction.unenforceable(wanted, world.settings)
    if unenforceable is not None:
        return verdicts.fail(world, Reason.CANARY_UNAVAILABLE, unenforceable)
    why = _refusal(world)
    if why is not None:
        return verdicts.fail(world, Reason.NOT_GRADABLE, why)
    status = world.verifier.status.model_copy(
        update={
            "admitted": Admitted(spec_digest=world.spec_digest, task_digest=digest),
            "start_time": to.stamp(world.now),
            "verifier": VerifierStatus(mode=Mode.SEPARATE),
        }
    )
    begun = separate.admitted(world, to.warned(status, _forced(world)), Phase.QUEUED)
    return replace(begun, effects=(StoreSnapshot(digest),))


def _refusal(world: VerifierWorld) -> str | None:
    """Why the run cannot be graded again; None: it can."""
    if world.task is None or world.own is None:
        return _without_task(world)
    if world.manifest is None:
        return "no artifacts of the run are kept"
    pod = separate.agent_pod(world)
    if pod is not None and not pods.stopped(pod):  # C32, and it is not ours to delete
        return f"the agent's pod {pod.name} still runs, as spec.podRetention has it. Delete it first"
    doubts = _doubts(world)
    return f"{'; '.join(doubts)}. Set spec.force to grade it nevertheless." if doubts and not _force(world) else None


def _without_task(world: VerifierWorld) -> str:
    """Why there is nothing to grade by: what spec.step names is no turn of the task."""
    whole, step = world.regraded.task if isinstance(world.regraded, Admission) else None, world.verifier.spec.step
    if whole is None:
        return "the task's folder is not kept any more"
    names = ", ".join(each.name for each in whole.steps)
    if step is not None and world.task is None:
        return f"spec.step: the task has no step {step}. " + (f"It has: {names}" if names else "Leave it out")
    if step is None and names:
        return f"spec.step: a multi-step task is graded one step at a time. Name one: {names}"
    return "the task has no image for a separate verifier. Name one in [verifier.environment], and run it anew"


def unfit(error: TaskError) -> str | None:
    """Why a task that was graded in its agent's sandbox cannot be graded in another, if it is for want of an image."""
    if error.field is None or error.unsupported or not error.field.endswith("environment.docker_image"):
        return None
    return (
        f"{error.file}: {error.field}: {error.problem}. A run is graded again in a pod of its own, with the folder as "
        "it was admitted, and spec.force does not change that. Name an image there, and run the task anew."
    )


def _doubts(world: VerifierWorld) -> list[str]:
    found = []
    graded = world.run.status.verifier if world.run is not None else None
    if graded is None or graded.mode is Mode.SHARED:
        found.append("the run was graded in the agent's live sandbox, or not at all; only its artifacts are left")
    lost = world.manifest.lost if world.manifest is not None else ()
    found += [f"artifact {entry.source} was not kept: {entry.reason}" for entry in lost]
    return found


def _force(world: VerifierWorld) -> bool:
    return world.verifier.spec.force


def _forced(world: VerifierWorld) -> list[str]:
    """What a verdict that was forced says about itself."""
    return [f"forced: {doubt}" for doubt in _doubts(world)]
