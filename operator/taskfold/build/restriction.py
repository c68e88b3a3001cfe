"""What restricts the network of a sandbox: its own policy, and the parts of its pod that go with it.

Guarantees: the policy names both directions, and allows nothing that the restriction does not; it selects this owner's
restricted pods alone. The pod has no other name server than its gateway, or none at all, and its probe comes before
everything that runs the task's image.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taskfold.api import names
from taskfold.api.settings import NetworkSettings, Settings
from taskfold.build import security
from taskfold.build.gateway import names as hosts
from taskfold.build.gateway import ports, reach
from taskfold.contract.network import Network

PROBE = "probe"
NOWHERE = "127.0.0.1"
"""A name server that is not there: every lookup fails at once."""


@dataclass(frozen=True)
class Restriction:
    """A restriction as it is decided.

    `owner`: reference to the TaskRun or VerifierRun. `canaries`: address by uid. `gateway`: the gateway's address;
    "" without one.
    """

    network: Network
    owner: Mapping[str, Any]
    canaries: Mapping[str, str] = field(default_factory=dict)
    gateway: str = ""

    @property
    def labels(self) -> dict[str, str]:
        return labels(self.network, self.owner["uid"])

    @property
    def annotations(self) -> dict[str, str]:
        return {names.CANARIES: ",".join(sorted(self.canaries))}


def policy(restriction: Restriction, metadata: Mapping[str, Any], settings: NetworkSettings) -> dict[str, Any]:
    """The restricted pods' own policy. `metadata`: namespace and labels."""
    uid = restriction.owner["uid"]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {**metadata, "name": names.network(uid), "ownerReferences": [dict(restriction.owner)]},
        "spec": policy_spec(restriction.network, uid, settings),
    }


def policy_spec(network: Network, owner_uid: str, settings: NetworkSettings) -> dict[str, Any]:
    """What such a policy says, and keeps saying. An allowed address is reached at every port: a list names none."""
    egress = [reach.egress(owner_uid, settings.gateway)] if network.names else []
    blocks = [_block(address) for address in network.addresses]
    if blocks:
        egress.append({"to": [{"ipBlock": {"cidr": block}} for block in blocks]})
    return {
        "podSelector": {"matchLabels": labels(network, owner_uid)},
        "policyTypes": ["Ingress", "Egress"],
        **({"egress": egress} if egress else {}),
    }


def labels(network: Network, owner_uid: str) -> dict[str, str]:
    """Of the restricted pods of this TaskRun or VerifierRun, and of nothing else."""
    return {names.NETWORK: network.mode.value, names.NETWORK_OF: owner_uid}


def _block(address: str) -> str:
    if "/" in address:
        return address
    return f"{address}/{128 if ':' in address else 32}"


def dns(restriction: Restriction) -> dict[str, Any]:
    """Fields of the pod's spec. No search list: `ndots` would ask for names that nobody allowed."""
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": [restriction.gateway or NOWHERE]}}


def probe(restriction: Restriction, settings: Settings) -> dict[str, Any]:
    """The init container that ends well once the restriction is in force, and lets nothing start before."""
    network = settings.network
    return {
        "name": PROBE,
        "image": settings.helper.image,
        "imagePullPolicy": settings.helper.image_pull_policy,
        "command": ["/helper", "probe", *_tried(restriction, network), "--deadline", f"{network.probe_seconds:g}s"],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "64Mi"},
            "limits": {"memory": "128Mi", "ephemeral-storage": "256Mi"},
        },
        "securityContext": security.NO_RIGHTS,
        "terminationMessagePolicy": "File",
    }


def _tried(restriction: Restriction, settings: NetworkSettings) -> list[str]:
    words = []
    for _, address in sorted(restriction.canaries.items()):
        words += ["--canary", _endpoint(address, settings.canary.port)]
    if restriction.gateway:
        words += [
            "--dns",
            _endpoint(restriction.gateway, ports.DNS),
            "--name",
            hosts.witness(hosts.of(restriction.network.names)),
        ]
        words += ["--gateway", _endpoint(restriction.gateway, settings.gateway.tls_ports[0])]
    return words


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
