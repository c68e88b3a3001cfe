"""Worlds of restricted sandboxes: as in `worlds`, each function states only what matters."""

import json
from dataclasses import replace
from typing import Any

from tests.decide import worlds

from taskfold.api import names
from taskfold.api.status import NetworkStatus
from taskfold.contract.network import NO_NETWORK, Network, NetworkMode
from taskfold.decide import network
from taskfold.decide import pod as pods
from taskfold.decide.world import NetworkWorld

ALLOWLIST = Network(NetworkMode.ALLOWLIST, ("allowed.test", "*.example.test", "192.0.2.0/24"))
CANARY, OTHER_CANARY = "uid-canary-1", "uid-canary-2"
GATEWAY = "gateway-uid-run-1"


def gateway(**more: Any) -> pods.PodView:
    """The gateway's pod; it serves."""
    fields = {"name": GATEWAY, "uid": "uid-gateway-1", "ready": True}
    return replace(worlds.ready(), **(fields | more))


def found(restriction: Network = NO_NETWORK, **changes: Any) -> NetworkWorld:
    """What the restriction rests on, all well."""
    served = gateway() if restriction.names else None
    fields = {"canaries": frozenset({CANARY, OTHER_CANARY}), "intact": True, "gateway": served, "exists": True}
    return NetworkWorld(restriction, **(fields | changes))


def proven(restriction: Network = NO_NETWORK, **changes: Any) -> NetworkStatus:
    """What the status says once the restriction is proven in the run's pod."""
    fields = {
        "mode": restriction.mode.value,
        "enforced": True,
        "mechanism": network.mechanism(restriction).value,
        "pod_uid": worlds.POD_UID,
        "proven_time": worlds.ago(9),
        "probe_seconds": 0.8,
        "attempts": 7,
        "opened": 2,
    }
    return NetworkStatus(**(fields | changes))


def line(**changes: Any) -> str:
    """The probe's last words."""
    fields = {"enforced": True, "blocked": True, "gateway": None, "seconds": 0.8, "attempts": 7, "open": 2, "error": ""}
    return json.dumps(fields | changes)


def probed(message: str, *, code: int = 0, canaries: str = CANARY) -> pods.PodView:
    """The pod whose probe has ended so."""
    probe = worlds.stopped("Completed" if code == 0 else "Error", code, message, name="probe")
    status: dict[str, Any] = {"initContainerStatuses": [probe]}
    if code == 0:
        status |= {"phase": "Running", "startTime": worlds.ago(14), "containerStatuses": [worlds.runs()]}
    else:
        status |= {"phase": "Failed", "containerStatuses": [worlds.waits("PodInitializing")]}
    return worlds.seen(status, annotations={names.CANARIES: canaries})
