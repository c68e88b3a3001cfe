"""One reconcile, from top to bottom: observe → decide → apply → status last.

Guarantees: nothing is passed from one reconcile to the next but what stands in the cluster, in the sandbox's journal
or in the store, so that killing the process between any two lines changes nothing. Effects are applied in order, the
first failure stops; the status is written last, only if it differs, and only onto what was observed.
"""

import contextlib
import logging

from taskfold.api import conditions
from taskfold.api.common import Resource
from taskfold.api.status import Status
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.contract.failures import FailureKind
from taskfold.decide import status as to
from taskfold.decide import taskrun, verdicts, verifierrun
from taskfold.decide.ending import refuse
from taskfold.decide.plan import CreatePod, Plan
from taskfold.decide.world import RunWorld, VerifierWorld
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine import outcome
from taskfold.engine import status as statuses
from taskfold.engine.apply import Applier
from taskfold.engine.observe import Observer
from taskfold.engine.outcome import Refused, Waiting
from taskfold.engine.parts import Parts
from taskfold.engine.watch import Key, Kind
from taskfold.engine.words import Words

log = logging.getLogger(__name__)


class Reconciler:
    """Brings one object a step further, whenever its key's turn comes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._observer = Observer(parts)
        self._applier = Applier(parts)
        self._words = Words()

    async def reconcile(self, key: Key) -> float | None:
        """The next step. Returns the seconds after which the key wants to be looked at again, or None."""
        try:
            match key.kind:
                case Kind.TASK_RUN:
                    return await self._run(key)
                case Kind.VERIFIER_RUN:
                    return await self._verifier(key)
        except Exception as error:
            self._parts.starts.forget(key)
            await self._explain(key, error)
            raise

    async def _run(self, key: Key) -> float | None:
        world = await self._observer.run(key)
        if world is None or world.run.metadata.deletion_timestamp is not None:
            self._parts.starts.forget(key)
            self._parts.activities.drop(key)
            self._parts.copies.drop(key)
            self._words.forget(key)
            return None
        plan = taskrun.decide(world)
        if not any(isinstance(effect, CreatePod) for effect in plan.effects):
            self._parts.starts.forget(key)
        try:
            for effect in plan.effects:
                await self._applier.run(effect, world)
        except Waiting as waiting:
            plan = Plan(note=waiting.note, again=waiting.delay)
        except Refused as refused:
            plan = refuse(world, refused.reason, refused.message)
        again = await self._write(key, world, plan)
        if world.run.status.complete:
            self._parts.watch.forget(world.run.wire())
        return again

    async def _verifier(self, key: Key) -> float | None:
        world = await self._observer.verifier(key)
        if world is None:
            self._parts.activities.drop(key)
            self._parts.copies.drop(key)
            self._words.forget(key)
            return None
        plan = verifierrun.decide(world)
        try:
            for effect in plan.effects:
                await self._applier.verifier(effect, world)
        except Waiting as waiting:
            plan = Plan(note=waiting.note, again=waiting.delay)
        except Refused as refused:
            plan = verdicts.masked(world, refused.reason, refused.message, FailureKind.PROVIDER_UNAVAILABLE)
        again = await self._write(key, world, plan)
        if world.verifier.status.complete and verifierrun.stands_alone(world.verifier):
            self._parts.watch.forget_verifier(world.verifier.wire())  # others are forgotten with their runs
        return again

    async def _write(self, key: Key, world: RunWorld | VerifierWorld, plan: Plan) -> float | None:
        """The status, if it differs. A conflict: somebody was faster, look again at what is there now."""
        run = world.run if isinstance(world, RunWorld) else world.verifier
        old: Status = run.status
        if plan.status is None and plan.note is None:
            return plan.again
        new = statuses.wished(run, plan.status or old, plan.note, world.now)
        patch = statuses.merge_patch(old.wire(), new.wire())
        if not patch:
            return plan.again
        wait = self._words.wait(key, patch, new)
        if wait > 0:
            return wait if plan.again is None else min(plan.again, wait)
        metadata, runs = run.metadata, isinstance(world, RunWorld)
        resource = api.TASKRUNS if runs else api.VERIFIERRUNS
        try:
            written = await self._parts.client.patch_status(
                resource,
                metadata.namespace,
                metadata.name,
                patch,
                resource_version=metadata.resource_version,
                uid=metadata.uid,
            )
        except errors.Conflict:
            await self._look_again(resource, metadata.namespace, metadata.name)
            return 0
        except errors.NotFound:
            return None
        self._words.wrote(key, new)
        self._see(resource, written)
        self._tell(run, old, new, plan, to.stamp(world.now))
        return plan.again

    async def _explain(self, key: Key, error: Exception) -> None:
        """Say in the conditions why a run does not go on; the queue tries again. Best effort."""
        held = self._parts.watch.runs if key.kind is Kind.TASK_RUN else self._parts.watch.verifiers
        seen = held.get((key.namespace, key.name))
        if seen is None:
            return
        kind = TaskRun if key.kind is Kind.TASK_RUN else VerifierRun
        with contextlib.suppress(Exception):
            run = kind.parse(seen.object)
            note = outcome.of_error(error)
            told = conditions.find(run.status.conditions, conditions.ConditionType.RECONCILING)
            if told is not None and told.reason == note.reason:
                return  # said already: a write would wake the key at once, past the queue's growing delay
            new = statuses.wished(run, run.status, note, self._parts.clock())
            patch = statuses.merge_patch(run.status.wire(), new.wire())
            if self._words.wait(key, patch, new) > 0:
                return
            resource = api.TASKRUNS if key.kind is Kind.TASK_RUN else api.VERIFIERRUNS
            version = run.metadata.resource_version
            written = await self._parts.client.patch_status(
                resource, key.namespace, key.name, patch, resource_version=version
            )
            self._words.wrote(key, new)
            self._see(resource, written)

    async def _look_again(self, resource: api.Resource, namespace: str, name: str) -> None:
        try:
            self._see(resource, await self._parts.client.get(resource, namespace, name))
        except errors.NotFound:
            held = self._parts.watch.runs if resource == api.TASKRUNS else self._parts.watch.verifiers
            held.pop((namespace, name), None)

    def _see(self, resource: api.Resource, obj: api.Json) -> None:
        watch = self._parts.watch
        self._parts.wake(watch.see_run(obj) if resource == api.TASKRUNS else watch.see_verifier(obj))

    def _tell(self, run: Resource, old: Status, new: Status, plan: Plan, moment: str) -> None:
        """Log and announce what changed: a phase, a reason, never every look."""
        before, after = _word(old), _word(new)
        if before == after:
            return
        metadata = run.metadata
        fields = {"uid": metadata.uid, "object": f"{metadata.namespace}/{metadata.name}"}
        log.info("%s %s/%s: %s %s", run.KIND, metadata.namespace, metadata.name, *after, extra=fields)
        if plan.note is None:
            return
        # A VerifierRun that was made for a run has nothing to tell that its run does not tell, unless it is bad news.
        if not metadata.owner_references or run.KIND == TaskRun.KIND or plan.note.reason.event_type == "Warning":
            self._parts.events.tell(run, plan.note.reason, plan.note.message, moment)


def _word(status: Status) -> tuple[str, str]:
    """Phase and reason: what makes a line in the log."""
    going_on = conditions.find(status.conditions, conditions.ConditionType.RECONCILING)
    return (status.phase.value if status.phase else "", going_on.reason if going_on else "")
