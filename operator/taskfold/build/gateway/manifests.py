"""The gateway's three objects: its Service, its policy, its pod.

Guarantees: only that run's restricted pod reaches the gateway, at the served ports alone; the gateway reaches the
cluster's DNS, and outside of the cluster port 80 and the TLS ports; nothing in its pod is root, may write, or has a
token. The Service comes first, as its address stands in the pod's configuration; it stays when the pod is lost, so that
another pod takes its place at the same address. The same arguments give the same manifests.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taskfold.api import names as objects
from taskfold.api.gateway_settings import GatewaySettings
from taskfold.build import pod as sandbox
from taskfold.build.gateway import corefile, haproxy, names, ports, reach
from taskfold.contract.network import NetworkMode

RESTRICTED = NetworkMode.ALLOWLIST.value
"""Value of the network label of the pod that it serves."""
DNS, PROXY = "dns", "proxy"
"""Its containers."""
_NOBODY = 65534
_COREFILE, _CONFIGURATION = "Corefile", "haproxy.cfg"
_ANNOTATION = "gateway.taskfold.dev/"
_EVERYWHERE = "0.0.0.0/0"

_NO_RIGHTS: dict[str, Any] = {
    "privileged": False,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
# Upstream's binary has this as a capability of its file, and is not started where the container may not have it. As no
# privilege is gained, the process has none.
_OF_COREDNS = {**_NO_RIGHTS, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}


@dataclass(frozen=True)
class Wanted:
    """A gateway as it is decided.

    `owner`: reference to the TaskRun or VerifierRun whose restriction it is. `hosts`: the names of its allowlist, no
    addresses. `placement`: fields of the pod's spec that say on which nodes it may be, and its
    imagePullSecrets. `deadline_seconds`: for the case that no operator lives.
    """

    namespace: str
    owner: Mapping[str, Any]
    run: str
    run_uid: str
    attempt: int
    hosts: tuple[str, ...]
    placement: Mapping[str, Any] = field(default_factory=dict)
    deadline_seconds: int | None = None


def service(wanted: Wanted, settings: GatewaySettings) -> dict[str, Any]:
    """The Service. Its address is the restricted pod's name server, and every allowed name's."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(wanted, objects.gateway(wanted.owner["uid"])),
        "spec": {
            "selector": reach.selector(wanted.owner["uid"]),
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": ["IPv4"],
            "ports": [
                {"name": name, "protocol": protocol, "port": port, "targetPort": ports.inside(port)}
                for name, protocol, port in ports.served(settings)
            ],
        },
    }


def policy(wanted: Wanted, settings: GatewaySettings) -> dict[str, Any]:
    """The gateway's own policy."""
    ports_inside = reach.served_inside(settings)
    restricted = {objects.NETWORK_OF: wanted.owner["uid"], objects.NETWORK: RESTRICTED}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(wanted, objects.gateway(wanted.owner["uid"])),
        "spec": {
            "podSelector": {"matchLabels": reach.selector(wanted.owner["uid"])},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": restricted}}], "ports": ports_inside}],
            "egress": _ways_out(settings),
        },
    }


def pod(wanted: Wanted, settings: GatewaySettings, cluster_ip: str, number: int) -> dict[str, Any]:
    """The `number`th pod behind the Service, whose address is `cluster_ip`."""
    allowed = names.of(wanted.hosts)
    files = {
        _COREFILE: corefile.text(allowed, cluster_ip),
        _CONFIGURATION: haproxy.text(settings),
        **haproxy.lists(allowed, settings),
    }
    metadata = _metadata(wanted, objects.gateway_pod(wanted.owner["uid"], number))
    metadata["annotations"] = {**sandbox.DO_NOT_DISTURB, **{_ANNOTATION + name: text for name, text in files.items()}}
    deadline = {} if wanted.deadline_seconds is None else {"activeDeadlineSeconds": wanted.deadline_seconds}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            **wanted.placement,
            "restartPolicy": "Always",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": sandbox.GRACE_SECONDS,
            **deadline,
            "securityContext": {
                "runAsUser": _NOBODY,
                "runAsGroup": _NOBODY,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                _container(DNS, settings, ["/coredns", "-conf", f"{haproxy.FOLDER}/{_COREFILE}"]),
                _container(PROXY, settings, ["haproxy", "-db", "-f", f"{haproxy.FOLDER}/{_CONFIGURATION}"]),
            ],
            "volumes": [{"name": "configuration", "downwardAPI": {"items": [_item(name) for name in files]}}],
        },
    }


def _container(name: str, settings: GatewaySettings, command: list[str]) -> dict[str, Any]:
    of_dns = name == DNS
    ready = ("/ready", ports.DNS_READY) if of_dns else ("/", ports.PROXY_READY)
    alive = ("/health", ports.DNS_ALIVE) if of_dns else ready
    # Logs count: a client that is refused all the time writes more of them than the kubelet has rotated.
    limits = {"memory": settings.memory_limit, "ephemeral-storage": "512Mi"}
    if settings.cpu_limit is not None:
        limits["cpu"] = settings.cpu_limit
    return {
        "name": name,
        "image": settings.dns_image if of_dns else settings.proxy_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": command,
        "resources": {
            "requests": {"cpu": settings.cpu_request, "memory": settings.memory_request, "ephemeral-storage": "32Mi"},
            "limits": limits,
        },
        "securityContext": _OF_COREDNS if of_dns else _NO_RIGHTS,
        "volumeMounts": [{"name": "configuration", "mountPath": haproxy.FOLDER, "readOnly": True}],
        "readinessProbe": {**_asking(*ready), "periodSeconds": 1, "failureThreshold": 2},
        "livenessProbe": {**_asking(*alive), "periodSeconds": 10, "failureThreshold": 6},
    }


def _asking(path: str, port: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 2}


def _item(name: str) -> dict[str, Any]:
    return {"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{_ANNOTATION}{name}']"}}


def _metadata(wanted: Wanted, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": wanted.namespace,
        "labels": {
            objects.MANAGED_BY: objects.OPERATOR,
            objects.RUN: wanted.run,
            objects.RUN_UID: wanted.run_uid,
            objects.ATTEMPT: str(wanted.attempt),
            objects.ROLE: reach.ROLE,
            **reach.selector(wanted.owner["uid"]),
        },
        "annotations": {},
        "ownerReferences": [dict(wanted.owner)],
    }


def _ways_out(settings: GatewaySettings) -> list[dict[str, Any]]:
    servers: list[dict[str, Any]] = [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.dns_namespace}},
            "podSelector": {"matchLabels": settings.dns_labels},
        },
        *({"ipBlock": {"cidr": each}} for each in settings.dns_addresses),
    ]
    inside: list[dict[str, Any]] = [{"ipBlock": {"cidr": each}} for each in settings.in_cluster_ranges]
    if settings.in_cluster_labels:
        inside.append({"namespaceSelector": {}, "podSelector": {"matchLabels": settings.in_cluster_labels}})
    never = sorted({each for each in (*settings.never_ranges, *settings.cluster_ranges) if _version(each) == 4})
    asked = [{"protocol": "TCP", "port": port} for port in (ports.HTTP, *settings.tls_ports)]
    return [
        {
            "to": servers,
            "ports": [
                {"protocol": protocol, "port": port} for port in settings.dns_ports for protocol in ("UDP", "TCP")
            ],
        },
        {"to": [{"ipBlock": {"cidr": _EVERYWHERE, "except": never}}], "ports": asked},
        # A Service's pods have ports of their own, and the proxy asks for no others than the Service's.
        *([{"to": inside}] if inside else []),
    ]


def _version(cidr: str) -> int:
    return ipaddress.ip_network(cidr).version
