"""Effects, one by one: the only place where a plan becomes deeds.

Guarantees: each effect may be applied again, after a crash or by a second operator, without a second consequence:
children have deterministic names and are adopted only with our uid, phases are known by their nonce, objects of the
store are created once. The first failure stops the plan.
"""

import contextlib
import functools
import json
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, assert_never

from taskfold.api.reasons import Reason
from taskfold.api.status import JournalPhase
from taskfold.api.taskrun import TaskRun
from taskfold.build import pod as pod_builder
from taskfold.build import result, separate, verifierrun
from taskfold.build.restriction import Restriction
from taskfold.contract import users
from taskfold.contract.task import Task
from taskfold.decide import network, own_pod, restriction, step_status
from taskfold.decide import plan as plans
from taskfold.decide import profile as profiles
from taskfold.decide import sandbox as deciding
from taskfold.decide.world import OwnSandbox, RunWorld, VerifierWorld
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.engine import collecting, image_users, observe, outcome, responses
from taskfold.engine.collecting import Collecting
from taskfold.engine.copying import What
from taskfold.engine.parts import Parts
from taskfold.engine.phases import Phases
from taskfold.engine.restricting import Restricting, Sandbox
from taskfold.engine.waiters import Waiters
from taskfold.engine.watch import Key, Kind
from taskfold.protocol.phase import User

log = logging.getLogger(__name__)


class Applier:
    """Applies the effects of plans."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._phases = Phases(parts)
        self._waiters = Waiters(parts)
        self._collecting = Collecting(parts)
        self._restricting = Restricting(parts)

    async def run(self, effect: plans.Effect, world: RunWorld) -> None:
        """One effect of a TaskRun's plan."""
        namespace = world.run.metadata.namespace
        match effect:
            case plans.StoreSnapshot(digest=digest):
                await self._parts.snapshots.keep(namespace, digest)
            case plans.StoreRecordedImage(recorded=recorded):
                await self._put_once((world.store_prefix or "") + observe.IMAGE, recorded.document())
            case plans.CreatePod():
                await self._create_pod(effect, world)
            case plans.CreateGateway() | plans.KeepRefusals() | plans.DeleteNetwork():
                await self._network(effect, _agents(world.run, _task(world), deciding.pod_limit(world)))
            case plans.DeletePod(name=name, uid=uid):
                await self._delete(api.PODS, namespace, name, uid, grace=pod_builder.GRACE_SECONDS)
            case plans.StoreImageUser(reference=reference, image_id=image_id, record=record):
                await self._store_image_user(world.run, reference, image_id, record)
            case plans.RunPhase() | plans.RestPhase() | plans.AddWaiter():
                await self._phase(effect, Key(Kind.TASK_RUN, namespace, world.run.metadata.name), world)
            case plans.CreateVerifierRun():
                await self._create_verifier(world, effect)
            case plans.CancelVerifierRun(name=name):
                await self._cancel_verifier(namespace, name)
            case plans.Collect(prefix=prefix, reachable=reachable):
                key = Key(Kind.TASK_RUN, namespace, world.run.metadata.name)
                self._parts.copies.start(
                    key, What.END, lambda _: self._collecting.collect(world, prefix, reachable=reachable)
                )
            case plans.StoreResponse() | plans.StoreRow() | plans.StoreRewards():
                await self._store(effect, world)
            case plans.ForgetPhases(nonces=nonces):
                self._parts.activities.forget(nonces)
            case plans.DeleteRun(uid=uid):
                await self._delete(api.TASKRUNS, namespace, world.run.metadata.name, uid)
            case plans.Export() | plans.KeepLogs():
                raise TypeError(f"a TaskRun's plan holds {effect!r}")
            case _:
                assert_never(effect)

    async def _store(self, effect: plans.StoreResponse | plans.StoreRow | plans.StoreRewards, world: RunWorld) -> None:
        match effect:
            case plans.StoreResponse(prefix=prefix, response=response):
                await self._put_once(prefix + responses.RESPONSE, response)
            case plans.StoreRow():
                await self._store_row(effect, world)
            case plans.StoreRewards(prefix=prefix, rewards=rewards):
                await self._put_once(prefix + observe.REWARDS, dict(rewards))

    async def _store_row(self, effect: plans.StoreRow, world: RunWorld) -> None:
        prefix, took = effect.prefix, effect.collect_seconds
        row = {**result.document(world.run), **await self._all_rewards(prefix)}
        row["warnings"] = [*world.run.status.warnings, *effect.notes]
        row["timings"] = {**world.run.status.timings, **({"collect": took} if took is not None else {})}
        row["steps"] = await self._all_steps(world, prefix, row["steps"])
        await self._put_once(prefix + collecting.ROW, row)

    async def verifier(self, effect: plans.Effect, world: VerifierWorld) -> None:
        """One effect of a VerifierRun's plan."""
        metadata = world.verifier.metadata
        key = Key(Kind.VERIFIER_RUN, metadata.namespace, metadata.name)
        match effect:
            case plans.RunPhase() | plans.RestPhase() | plans.AddWaiter():
                await self._phase(effect, key, world)
            case plans.StoreRewards(prefix=prefix, rewards=rewards):
                await self._put_once(prefix + observe.REWARDS, dict(rewards))
            case plans.Export(place=place, logs=logs):
                export = self._collecting.export
                self._parts.copies.start(key, What.EXPORT, lambda tell: export(world, place, logs=logs, tell=tell))
            case plans.KeepLogs(place=place, reachable=reachable):
                keep = self._collecting.keep_logs
                self._parts.copies.start(key, What.LOGS, lambda _: keep(world, place, reachable=reachable))
            case plans.StoreSnapshot(digest=digest):
                await self._parts.snapshots.keep(metadata.namespace, digest)
            case plans.CreatePod():
                await self._create_own_pod(effect, key, world)
            case plans.CreateGateway() | plans.KeepRefusals() | plans.DeleteNetwork():
                await self._network(effect, _at_verification(world))
            case plans.DeletePod(name=name, uid=uid):
                await self._delete(api.PODS, metadata.namespace, name, uid, grace=pod_builder.GRACE_SECONDS)
            case plans.StoreImageUser(reference=reference, image_id=image_id, record=record) if world.run is not None:
                await self._store_image_user(world.run, reference, image_id, record)
            case plans.ForgetPhases(nonces=nonces):
                self._parts.activities.forget(nonces)
            case plans.DeleteRun(uid=uid):
                await self._delete(api.VERIFIERRUNS, metadata.namespace, metadata.name, uid)
            case _:
                raise TypeError(f"a VerifierRun's plan holds {effect!r}")

    async def _phase(
        self, effect: plans.RunPhase | plans.RestPhase | plans.AddWaiter, key: Key, world: RunWorld | VerifierWorld
    ) -> None:
        match effect:
            case plans.RunPhase(phase=phase, nonce=nonce, signal=signal):
                tell = functools.partial(self._parts.activities.tell, nonce)
                exchange = self._phases.of(JournalPhase(phase), nonce, world, signal, tell)
                self._parts.activities.start(key, nonce, exchange, signal)
            case plans.RestPhase(nonce=nonce, started_at=started_at, signal=signal):
                self._parts.activities.rest(key, nonce, started_at, signal)
            case plans.AddWaiter(pod=pod, uid=uid, nonce=nonce):
                await self._waiters.add(key.namespace, pod, uid, nonce)

    async def _create_pod(self, effect: plans.CreatePod, world: RunWorld) -> None:
        run, task = world.run, _task(world)
        namespace = run.metadata.namespace
        key = Key(Kind.TASK_RUN, namespace, run.metadata.name)
        if not self._parts.starts.take(key):
            text = "waits for a start slot: other pods are on their way"
            raise outcome.Waiting(Reason.QUEUED_FOR_START, text, 2.0)
        limit = deciding.pod_limit(world)
        confined = profiles.of(run, task, self._parts.settings, world.recorded)
        plan = self._pod_plan(effect, confined, limit)
        number = network.number(run.status.network)
        async with self._restricted(key, _agents(run, task, limit), number) as found:
            plan = replace(plan, restriction=found)
            await self._start_pod(key, pod_builder.manifest(run, task, self._parts.settings, plan, world.recorded))

    async def _create_own_pod(self, effect: plans.CreatePod, key: Key, world: VerifierWorld) -> None:
        """The pod of a separate verification. It goes ahead of those whose agents have not worked yet."""
        run, own = world.run, world.own
        if run is None or own is None:
            raise RuntimeError("a verification without run or sandbox")
        self._parts.starts.ahead(key)
        seen, settings = separate.run_of(run, world.verifier), self._parts.settings
        plan = self._pod_plan(effect, profiles.of(seen, own.task, settings, own.recorded), own_pod.limit(world))
        number = network.number(world.verifier.status.network)
        async with self._restricted(key, _own(world, run, own), number) as found:
            plan = replace(plan, verifier=world.verifier, restriction=found)
            await self._start_pod(key, pod_builder.manifest(seen, own.task, settings, plan, own.recorded))

    @contextlib.asynccontextmanager
    async def _restricted(self, key: Key, sandbox: Sandbox, number: int) -> AsyncIterator[Restriction | None]:
        """What the pod that is created in the block is restricted by; taken back if it is not."""
        if not sandbox.network.restricted:
            yield None
            return
        try:
            yield await self._restricting.prepare(sandbox, number)
        except (outcome.Outcome, errors.ApiError):
            self._parts.starts.forget(key)
            await self._restricting.withdraw(sandbox, number)
            raise

    async def _network(
        self, effect: plans.CreateGateway | plans.KeepRefusals | plans.DeleteNetwork, sandbox: Sandbox
    ) -> None:
        match effect:
            case plans.CreateGateway(number=number):
                await self._restricting.mend(sandbox, number)
            case plans.KeepRefusals(place=place):
                await self._restricting.keep_refusals(sandbox, place)
            case plans.DeleteNetwork():
                await self._restricting.remove(sandbox.namespace, sandbox.uid)

    def _pod_plan(self, effect: plans.CreatePod, confined: profiles.Confinement, limit: float) -> pod_builder.PodPlan:
        return pod_builder.PodPlan(
            effect.name,
            effect.attempt,
            effect.record,
            self._parts.image_volumes,
            limit,
            confined.profile,
            confined.uid,
            confined.gid,
        )

    async def _start_pod(self, key: Key, manifest: api.Json) -> None:
        name = manifest["metadata"]["name"]
        try:
            pod = await self._parts.client.create(api.PODS, key.namespace, manifest)
        except errors.AlreadyExists:
            pod = await self._parts.client.get(api.PODS, key.namespace, name)
        except errors.ApiError as error:
            self._parts.starts.forget(key)
            raise outcome.of_creation(error, f"pod {name}") from error
        self._parts.wake(self._parts.watch.see_pod(pod))
        self._parts.starts.placed(key)

    async def _create_verifier(self, world: RunWorld, effect: plans.CreateVerifierRun) -> None:
        namespace, name = world.run.metadata.namespace, effect.name
        manifest = verifierrun.manifest(world.run, name, effect.attempt, effect.mode, effect.step)
        try:
            created = await self._parts.client.create(api.VERIFIERRUNS, namespace, manifest)
        except errors.AlreadyExists:
            created = await self._parts.client.get(api.VERIFIERRUNS, namespace, name)
            owners = created["metadata"].get("ownerReferences") or ()
            graded = created["spec"]["source"]["runRef"].get("uid")
            uid, step = world.run.metadata.uid, created["spec"].get("step")
            if graded != uid or step != effect.step or all(owner.get("uid") != uid for owner in owners):
                text = f"a VerifierRun {name} exists and belongs to somebody else; delete it"
                raise outcome.Waiting(Reason.NAME_CONFLICT, text) from None
        except errors.ApiError as error:
            # The agent's work is done: whatever refuses the object now is waited for.
            raise outcome.Waiting(Reason.VERIFIER_ERROR, f"VerifierRun {name}: {error}") from error
        self._parts.wake(self._parts.watch.see_verifier(created))

    async def _cancel_verifier(self, namespace: str, name: str) -> None:
        try:
            await self._parts.client.patch(api.VERIFIERRUNS, namespace, name, {"spec": {"cancel": True}})
        except errors.NotFound:
            return

    async def _delete(
        self, resource: api.Resource, namespace: str, name: str, uid: str, *, grace: int | None = None
    ) -> None:
        try:
            await self._parts.client.delete(resource, namespace, name, uid=uid, grace_seconds=grace)
        except (errors.NotFound, errors.Conflict):
            if resource == api.PODS:
                self._parts.watch.pods.pop((namespace, name), None)

    async def _store_image_user(self, run: TaskRun, reference: str, image_id: str, record: str) -> None:
        try:
            user = image_users.parse(record)
        except ValueError as error:
            raise outcome.Waiting(Reason.SEED_FAILED, str(error)) from error
        if user.uid != 0 and user.gid == 0:
            user = await self._with_group(run, user, image_id or reference)
        await self._parts.image_users.put((image_id, reference), user)

    async def _with_group(self, run: TaskRun, user: User, image: str) -> User:
        """The kubelet starts an image's `USER uid:gid` with the uid alone: the group is in the image's configuration.

        Best effort: where the registry does not tell, the group stays the one that the container really got.
        """
        secrets = run.spec.pod.image_pull_secrets if run.spec.pod is not None else ()
        try:
            logins = await self._parts.sources.logins(run.metadata.namespace, [secret.name for secret in secrets])
            found = await self._parts.registry.image_config(image.removeprefix("docker-pullable://"), logins=logins)
        except (errors.EffectError, outcome.Outcome) as error:
            log.info("the group of %s's user is not known: %s", image, error)
            return user
        written = users.of_image(found.config.user)
        if written is None or (written.gid is None and written.group is None):
            return user
        return User(uid=user.uid, gid=written.gid, group=written.group)

    async def _all_rewards(self, prefix: str) -> dict[str, object]:
        """Every reward of a verdict with more of them than its status holds."""
        try:
            content = await self._parts.store.get(prefix + observe.REWARDS, limit=stores.NEW_BYTES)
        except stores.NotStored:
            return {}
        except errors.StoreError as error:
            raise outcome.of_store(error) from error
        rewards = json.loads(content)
        return {"rewards": rewards, "reward_components": [] if "reward" in rewards else list(rewards)}

    async def _all_steps(self, world: RunWorld, prefix: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The steps with their own names and all of their rewards, whatever the status had room for."""
        steps = world.task.steps if world.task is not None else ()
        found = []
        for step, row in zip(steps, rows, strict=False):
            rewards = (await self._all_rewards(step_status.place(prefix, step.name))).get("rewards", row["rewards"])
            found.append({**row, "name": step.name, "rewards": rewards})
        return found

    async def _put_once(self, key: str, document: object) -> None:
        content = json.dumps(document, ensure_ascii=False, sort_keys=True, indent=1).encode()
        try:
            await self._parts.store.put_new(key, content)
        except stores.AlreadyStored:
            log.debug("%s is in the store already; the first one stands", key)
        except errors.StoreError as error:
            raise outcome.of_store(error) from error


def _task(world: RunWorld) -> Task:
    if world.task is None:
        raise RuntimeError("an admitted run without a task")
    return world.task


def _agents(run: TaskRun, task: Task, limit_seconds: float) -> Sandbox:
    """The agent's sandbox, as its restriction has it. `limit_seconds`: that its pod may work."""
    attempt = run.status.attempts[-1].number if run.status.attempts else 1
    return Sandbox(run, run, attempt, restriction.of_run(run, task), limit_seconds)


def _own(world: VerifierWorld, run: TaskRun, own: OwnSandbox) -> Sandbox:
    """A separate verification's own sandbox, likewise."""
    seen, wanted = separate.run_of(run, world.verifier), restriction.of_verifier(world.verifier, own.task)
    return Sandbox(seen, world.verifier, 1, wanted, own_pod.limit(world))


def _at_verification(world: VerifierWorld) -> Sandbox:
    """The sandbox that a verification sees to: its own, or the agent's."""
    if world.run is None or world.task is None:
        raise RuntimeError("a verification without run or task")
    return _own(world, world.run, world.own) if world.own is not None else _agents(world.run, world.task, 0)
