"""How a restricted pod and its gateway know each other: labels, and the rule that lets one reach the other."""

from typing import Any

from taskfold.api import names
from taskfold.api.gateway_settings import GatewaySettings
from taskfold.build.gateway import ports

ROLE = "gateway"
"""Value of the role label, and of the network label."""


def selector(owner_uid: str) -> dict[str, str]:
    """Labels that the pods of this owner's gateway have, and nothing else."""
    return {names.NETWORK_OF: owner_uid, names.NETWORK: ROLE}


def egress(owner_uid: str, settings: GatewaySettings) -> dict[str, Any]:
    """The rule of the restricted pod's own policy that lets it reach its gateway."""
    return {"to": [{"podSelector": {"matchLabels": selector(owner_uid)}}], "ports": served_inside(settings)}


def served_inside(settings: GatewaySettings) -> list[dict[str, Any]]:
    """Ports of a policy: those of the gateway's pod that its Service leads to."""
    return [{"protocol": protocol, "port": ports.inside(port)} for _, protocol, port in ports.served(settings)]
