"""What the restriction of a sandbox rests on, read now.

Guarantees: canaries are asked for after the question; that a restricted pod's own policy is gone, or another than it
was made, is never concluded from the watch's picture alone.
"""

from collections.abc import Mapping

from taskfold.api import names
from taskfold.api.status import NetworkStatus
from taskfold.build import restriction as builder
from taskfold.contract.network import Network
from taskfold.decide import network, policies
from taskfold.decide import pod as pods
from taskfold.decide.world import NetworkWorld
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine import collecting
from taskfold.engine.parts import Parts
from taskfold.engine.watch import Watch

REFUSALS = "network.json"
"""Of the store: what the gateway refused."""


class Networks:
    """Reads the network of one sandbox at a time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def world(
        self,
        restriction: Network,
        namespace: str,
        uid: str,
        known: NetworkStatus | None,
        *,
        pod: pods.PodView | None,
        place: str | None = None,
    ) -> NetworkWorld | None:
        """What there is of it; None: there is no restriction. `uid`: of the TaskRun or VerifierRun. `pod`: the sandbox,
        while there is one. `place`: in the store, once the sandbox is over.
        """
        if not restriction.restricted:
            return None
        labels = {**(pod.labels if pod is not None else {}), **builder.labels(restriction, uid)}
        over = place is not None
        own = await self._policy(namespace, names.network(uid), confirm=over or pod is not None)
        gateway = self._parts.watch.pods.get((namespace, names.gateway_pod(uid, network.number(known))))
        gateways = await self._policy(namespace, names.gateway(uid), confirm=over) if restriction.names else None
        return NetworkWorld(
            restriction=restriction,
            canaries=await self._canaries(known, pod) if not over else frozenset(),
            wider=() if over else wider(self._parts.watch, namespace, uid, labels),
            intact=self._intact(own, restriction, uid) if pod is not None else None,
            gateway=gateway.pod if gateway is not None else None,
            kept=await collecting.document(self._parts.store, place + REFUSALS) if place is not None else None,
            exists=own is not None or gateways is not None or gateway is not None,
        )

    def _intact(self, policy: api.Json | None, restriction: Network, uid: str) -> bool:
        """Whether the policy is there, and says what it was made to say."""
        if policy is None or "deletionTimestamp" in policy["metadata"]:
            return False
        return bool(policy["spec"] == builder.policy_spec(restriction, uid, self._parts.settings.network))

    async def _canaries(self, known: NetworkStatus | None, pod: pods.PodView | None) -> frozenset[str]:
        """Those that are ready, when that counts: before there is a pod, and for its proof."""
        if pod is not None and (network.proven(known, pod) or pods.standing(pod) is not pods.Standing.READY):
            return frozenset()
        return frozenset(each.uid for each in await self._parts.canaries.ready())

    async def _policy(self, namespace: str, name: str, *, confirm: bool) -> api.Json | None:
        seen = self._parts.watch.policies.get((namespace, name))
        if seen is None and confirm:
            try:
                self._parts.watch.see_policy(await self._parts.client.get(api.NETWORKPOLICIES, namespace, name))
            except errors.NotFound:
                return None
            seen = self._parts.watch.policies.get((namespace, name))
        return seen.object if seen is not None else None


def wider(watch: Watch, namespace: str, uid: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Policies of others that allow a restricted pod of these labels something. `uid`: whose restriction it is."""
    return tuple(
        sorted(
            name
            for (where, name), seen in watch.policies.items()
            if where == namespace and name != names.network(uid) and policies.widens(seen.object, labels)
        )
    )
