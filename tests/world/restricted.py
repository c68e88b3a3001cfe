"""Scenarios of restricted networks: proven before anything is sent, watched, mended, taken away.

What a policy or a gateway does to a connection is not modelled; what the operator does about them is.
"""

from collections.abc import Callable
from typing import Any

from taskfold.api.phases import Phase
from taskfold.effects import client as api
from tests.world.play import GONE, End, Scenario
from tests.world.scenarios import (
    CANCELLED,
    GRADED,
    IMAGE,
    LONG,
    RUN,
    cancel,
    delete,
    has_pod,
    on,
    one,
    runs,
)
from tests.world.surroundings import PROVEN
from tests.world.world import NAMESPACE, SCRIPT, Deed, Object, World

CANARY = {"app.kubernetes.io/component": "canary"}
SETTINGS: Object = {"network": {"canary": {"namespace": NAMESPACE}}}
ROUNDS: Object = {"janitor": {"finishedSeconds": 5}}
"""The janitor comes by before all is over."""
NOBODY = {"network": {"agent": {"mode": "no-network"}}}
NAMED = {"network": {"agent": {"mode": "allowlist", "allowedHosts": ["allowed.test"]}}}
APART = {"task.toml": f'{IMAGE}[verifier]\nenvironment_mode = "separate"\nnetwork_mode = "no-network"\n'}
JUDGED = {
    "task.toml": f'{IMAGE}[verifier]\nenvironment_mode = "separate"\n'
    'network_mode = "allowlist"\nallowed_hosts = ["judge.test"]\n'
}
ALLOW_ALL: Object = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}
OPEN = PROVEN.replace("true", "false").replace('"open": 2', '"open": 7').format(gateway="null")


def restricted(
    name: str, *ends: End, happens: Callable[[World], None] = lambda world: None, canary: bool = True, **more: Any
) -> Scenario:
    """A scenario of one run, in whose namespace there is a canary."""

    def arrange(world: World) -> None:
        if canary:
            _canary(world)
        happens(world)

    return one(name, *ends, happens=arrange, settings={**SETTINGS, **more.pop("settings", {})}, **more)


def _canary(world: World, name: str = "canary") -> None:
    box = {"name": "canary", "image": "helper"}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": CANARY}
    world.server.put(api.PODS, {"metadata": metadata, "spec": {"containers": [box], "nodeName": "node-1"}})


def _policy(world: World) -> None:
    world.apply(api.NETWORKPOLICIES, "allow-all", ALLOW_ALL)


def _its_policy_gone(world: World) -> None:
    for each in world.server.all(api.NETWORKPOLICIES, NAMESPACE):
        if each["metadata"]["name"].startswith("network-"):
            world.delete(api.NETWORKPOLICIES, each["metadata"]["name"])


def gateways(world: World) -> list[Object]:
    return [pod for pod in world.pods(RUN) if pod["metadata"]["name"].startswith("gateway-")]


def _lose_gateway(world: World) -> None:
    for pod in gateways(world):
        world.delete(api.PODS, pod["metadata"]["name"], gracePeriodSeconds=0)


def _no_gateway_any_more(world: World) -> None:
    """Whatever comes in its place goes as well."""
    _lose_gateway(world)
    if world.status(RUN).get("phase") == Phase.RUNNING:
        world.after(0.5, _no_gateway_any_more)


def _canary_gone(world: World) -> None:
    world.delete(api.PODS, "canary", gracePeriodSeconds=0)


def _probe_is_never_blocked(world: World) -> None:
    world.nodes.around.probe = lambda words: (1, OPEN)


WORKING: dict[str, Any] = {"agent": SCRIPT, "programs": {"agent": LONG}}
WIDENED = End(Phase.MASKED, reason="NetworkWidened", kind="provider_unavailable")
SHUT = End(Phase.MASKED, reason="GatewayUnavailable", kind="provider_unavailable")


def while_it_works(name: str, end: End, deed: Deed, **spec: Any) -> Scenario:
    return restricted(name, end, happens=on(runs("agent"), deed), **WORKING, **spec)


CALM = [
    restricted("no network", GRADED, **NOBODY),
    restricted("an allowlist", GRADED, **NAMED),
    restricted(
        "an allowlist of addresses", GRADED, network={"agent": {"mode": "allowlist", "allowedHosts": ["192.0.2.1"]}}
    ),
    restricted("a verifier without network", GRADED, files=APART),
    restricted("a verifier with an allowlist", GRADED, files=JUDGED),
    restricted("no network, a pod that stays", GRADED, settings=ROUNDS, retained=True, podRetention="Always", **NOBODY),
    restricted(
        "a verifier without network, a pod that stays",
        GRADED,
        files=APART,
        settings=ROUNDS,
        retained=True,
        podRetention="Always",
    ),
    restricted("no network, cancelled", CANCELLED, happens=on(has_pod, cancel), **NOBODY),
    restricted("an allowlist, deleted", GONE, happens=on(has_pod, delete), **NAMED),
    restricted("beside a wider policy", End(Phase.FAILED, reason="NetworkPolicyConflict"), happens=_policy, **NOBODY),
    restricted(
        "a network that enforces nothing",
        End(Phase.FAILED, reason="NetworkNotEnforced"),
        happens=_probe_is_never_blocked,
        **NOBODY,
    ),
    restricted("no canary", End(Phase.FAILED, reason="CanaryUnavailable"), canary=False, **NOBODY),
    restricted(
        "a canary that comes later",
        GRADED,
        happens=lambda world: world.after(100.0, _canary),
        canary=False,
        **NOBODY,
    ),
]
LOST = [
    while_it_works("a wider policy comes", WIDENED, _policy, **NOBODY),
    while_it_works("its policy goes", WIDENED, _its_policy_gone, **NAMED),
    while_it_works("its gateway is lost", GRADED, _lose_gateway, **NAMED),
    while_it_works("no gateway comes any more", SHUT, _no_gateway_any_more, **NAMED),
    restricted(
        "its canary is lost before the proof",
        End(Phase.FAILED, reason="CanaryUnavailable"),
        happens=on(has_pod, _canary_gone),
        **NOBODY,
    ),
]
