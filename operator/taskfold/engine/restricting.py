"""What a network restriction consists of in the cluster: made before its pod, mended while that works, removed after.

Guarantees: a pod is created only after its policy, and with canaries that were ready a second ago; everything is owned
by the TaskRun or VerifierRun, under names that follow from its uid, and adopted only with that uid. Where the cluster
takes the pod and not its gateway, or the other way round, neither waits for the other: what was made of the two goes.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskfold.api import names
from taskfold.api.common import Resource
from taskfold.api.reasons import Reason
from taskfold.api.taskrun import TaskRun
from taskfold.build import pod as pod_builder
from taskfold.build import restriction as builder
from taskfold.build.gateway import log as gateways_log
from taskfold.build.gateway import manifests as gateways
from taskfold.build.gateway import reach
from taskfold.contract.network import Network
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine import canaries, collecting, networks, outcome
from taskfold.engine.parts import Parts
from taskfold.engine.watch import Seen

LOG_BYTES = 8 * 1024 * 1024
"""Most of a gateway's log that is looked at."""


@dataclass(frozen=True)
class Sandbox:
    """Whose sandbox is restricted. `run`: as that sandbox has it; `owner`: it, or the VerifierRun. `attempt`: its own.

    `limit_seconds`: that its pod may work.
    """

    run: TaskRun
    owner: Resource
    attempt: int
    network: Network
    limit_seconds: float = 0.0

    @property
    def namespace(self) -> str:
        return self.run.metadata.namespace

    @property
    def uid(self) -> str:
        return self.owner.metadata.uid

    @property
    def labels(self) -> dict[str, str]:
        """Of its pod, as far as policies may mean it."""
        run = self.run.metadata
        return {
            names.MANAGED_BY: names.OPERATOR,
            names.RUN: run.name,
            names.RUN_UID: run.uid,
            **builder.labels(self.network, self.uid),
        }


class Restricting:
    """Makes and removes restrictions."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._client = parts.client
        self._settings = parts.settings.network

    async def prepare(self, sandbox: Sandbox, number: int) -> builder.Restriction:
        """Everything but the pod itself. `number`: of the gateway's pod. Raises Waiting, Refused or ApiError."""
        wanted = self._wanted(sandbox)
        await self._look(sandbox)
        chosen = canaries.chosen(await self._parts.canaries.ready())
        if not chosen:
            raise outcome.Waiting(Reason.CANARY_UNAVAILABLE, "no canary is ready")
        owner, addresses = pod_builder.owner(sandbox.owner), {each.uid: each.ip for each in chosen}
        found = builder.Restriction(sandbox.network, owner, addresses)
        policy = builder.policy(found, self._metadata(sandbox), self._settings)
        await self._create(api.NETWORKPOLICIES, sandbox, policy)
        if wanted is None:
            return found
        address = await self._service(sandbox, wanted)
        await self._create(api.NETWORKPOLICIES, sandbox, gateways.policy(wanted, self._settings.gateway))
        await self._gateway(sandbox, wanted, address, number)
        return replace(found, gateway=address)

    async def _look(self, sandbox: Sandbox) -> None:
        """Policies that the watch has not told of yet count too. Raises Waiting: another one selects the pod."""
        listing = await self._client.list(api.NETWORKPOLICIES, sandbox.namespace)
        for each in listing.items:
            self._parts.wake(self._parts.watch.see_policy(each))
        options = sandbox.run.spec.pod
        labels = {**(options.labels if options is not None else {}), **sandbox.labels}
        found = networks.wider(self._parts.watch, sandbox.namespace, sandbox.uid, labels)
        if found:
            raise outcome.Waiting(Reason.NETWORK_POLICY_CONFLICT, f"NetworkPolicy {', '.join(found)}", 0.0)

    async def withdraw(self, sandbox: Sandbox, number: int) -> None:
        """The pod was refused: its gateway does not wait for it."""
        if sandbox.network.names:
            await self._remove(api.PODS, sandbox.namespace, names.gateway_pod(sandbox.uid, number))

    async def mend(self, sandbox: Sandbox, number: int) -> None:
        """The gateway's pod of this number, behind the address that is there. Raises Waiting, Refused or ApiError."""
        wanted = self._wanted(sandbox)
        if wanted is not None:
            await self._gateway(sandbox, wanted, await self._service(sandbox, wanted), number)

    async def remove(self, namespace: str, uid: str) -> None:
        """Everything of this TaskRun's or VerifierRun's restriction. Its own policy goes last: until then its pod, if
        there is one, reaches nothing, and what is left is found by it.
        """
        for seen in self._gateways(namespace, uid):
            await self._remove(api.PODS, namespace, seen.place[1])
        if (namespace, names.gateway(uid)) in self._parts.watch.policies:
            await self._remove(api.SERVICES, namespace, names.gateway(uid))
            await self._remove(api.NETWORKPOLICIES, namespace, names.gateway(uid))
        await self._remove(api.NETWORKPOLICIES, namespace, names.network(uid))

    async def keep_refusals(self, sandbox: Sandbox, place: str) -> None:
        """What the gateway told about what it refused, and how much that was. Best effort: what is lost is said."""
        total, counted, lost = 0, Counter[str](), []
        for seen in self._gateways(sandbox.namespace, sandbox.uid):
            try:
                found = await self._refusals(sandbox.namespace, seen.place[1])
            except errors.ApiError as error:
                lost.append(f"{seen.place[1]}: {error}")
                continue
            total += found.total
            counted.update(found.names)
        told = {"refused": total, "names": dict(counted.most_common(gateways_log.TOP)), "lost": lost}
        await collecting.put_once(self._parts.store, place + networks.REFUSALS, told)

    async def _refusals(self, namespace: str, pod: str) -> gateways_log.Refusals:
        containers = (gateways.DNS, gateways.PROXY)
        logs = [await self._client.pod_log(namespace, pod, name, LOG_BYTES) for name in containers]
        return gateways_log.refusals(*(text.decode(errors="replace").splitlines() for text in logs))

    def _gateways(self, namespace: str, uid: str) -> Sequence[Seen]:
        """The pods of a gateway, as the watch has them."""
        return [
            seen
            for (where, _), seen in self._parts.watch.pods.items()
            if where == namespace
            and seen.pod.labels.get(names.NETWORK_OF) == uid
            and seen.pod.labels.get(names.ROLE) == reach.ROLE
        ]

    def _wanted(self, sandbox: Sandbox) -> gateways.Wanted | None:
        if not sandbox.network.names:
            return None
        run, limits = sandbox.run, self._parts.settings.limits
        deadline = sandbox.limit_seconds + limits.queue_seconds + limits.outage_seconds
        bounded = run.spec.agent.external is None and sandbox.limit_seconds > 0
        return gateways.Wanted(
            namespace=sandbox.namespace,
            owner=pod_builder.owner(sandbox.owner),
            run=run.metadata.name,
            run_uid=run.metadata.uid,
            attempt=sandbox.attempt,
            hosts=sandbox.network.names,
            placement=_placement(run),
            deadline_seconds=math.ceil(deadline) if bounded else None,
        )

    def _metadata(self, sandbox: Sandbox) -> dict[str, Any]:
        run = sandbox.run.metadata
        labels = {names.MANAGED_BY: names.OPERATOR, names.RUN: run.name, names.RUN_UID: run.uid}
        return {"namespace": sandbox.namespace, "labels": labels}

    async def _service(self, sandbox: Sandbox, wanted: gateways.Wanted) -> str:
        """The gateway's address, which stays when its pod does not."""
        made = await self._create(api.SERVICES, sandbox, gateways.service(wanted, self._settings.gateway))
        return str(made["spec"]["clusterIP"])

    async def _gateway(self, sandbox: Sandbox, wanted: gateways.Wanted, address: str, number: int) -> None:
        manifest = gateways.pod(wanted, self._settings.gateway, address, number)
        self._parts.wake(self._parts.watch.see_pod(await self._create(api.PODS, sandbox, manifest)))

    async def _create(self, resource: api.Resource, sandbox: Sandbox, manifest: Mapping[str, Any]) -> api.Json:
        name = manifest["metadata"]["name"]
        try:
            made = await self._client.create(resource, sandbox.namespace, manifest)
        except errors.AlreadyExists:
            made = await self._client.get(resource, sandbox.namespace, name)
            ours = any(owner.get("uid") == sandbox.uid for owner in made["metadata"].get("ownerReferences") or ())
            if not ours or (resource == api.NETWORKPOLICIES and made["spec"] != manifest["spec"]):
                text = f"{resource.plural} {name} exists and belongs to somebody else; delete it"
                raise outcome.Waiting(Reason.NAME_CONFLICT, text) from None
        except errors.ApiError as error:
            raise outcome.of_creation(error, f"{resource.plural} {name}") from error
        if resource == api.NETWORKPOLICIES:
            self._parts.wake(self._parts.watch.see_policy(made))
        return made

    async def _remove(self, resource: api.Resource, namespace: str, name: str) -> None:
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(resource, namespace, name)
        if resource == api.NETWORKPOLICIES:
            self._parts.watch.policies.pop((namespace, name), None)


def _placement(run: TaskRun) -> dict[str, Any]:
    """Where a run's pods may be, its gateway's among them, and how images are pulled."""
    wire = run.spec.pod.wire() if run.spec.pod is not None else {}
    wanted = ("nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets")
    return {key: wire[key] for key in wanted if wire.get(key)}
