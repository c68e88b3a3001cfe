"""Gateways and restricted pods as the builders make them, and pods that play the internet for them.

They have a certificate and a DNS server of their own. No public address is ever tried.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskfold.api import names as objects
from taskfold.api.gateway_settings import GatewaySettings
from taskfold.build.gateway import manifests, reach
from tests.conformance import harness, inside

IMAGE = "python:3.13-slim"
RUN_UID = "5a9c8f6e-0000-4000-8000-000000000001"


@dataclass(frozen=True)
class Gateway:
    """Its Service's address, and the name of its pod."""

    address: str
    pod: str


@functools.cache
def images() -> tuple[str, str]:
    """The stand-ins of this tree, pinned by digest."""
    command = [sys.executable, str(harness.ROOT / "hack/images"), "--pinned", "coredns", "haproxy"]
    dns, proxy = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return dns, proxy


def settings(**more: Any) -> GatewaySettings:
    dns, proxy = images()
    return GatewaySettings(dns_image=dns, proxy_image=proxy, **more)


def certificate(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """File name -> content of a key and a certificate for these names."""
    where = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    said = ",".join(f"DNS:{name}" for name in names)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", "-x509", *key, "-subj", "/CN=internet", "-addext", f"subjectAltName={said}", *where]
    subprocess.run(command, check=True, capture_output=True)
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def internet(cluster: harness.Cluster, namespace: str, files: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """Pods that serve as `internet.py` does, and their addresses by name."""
    folder = Path(__file__).parent
    data = files | {name: (folder / name).read_text() for name in ("internet.py", "walk.py")}
    cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": "scene"}, "data": data})
    for name in names:
        body = _python(name, {"name": name}, "/scene/internet.py", name)
        cluster.core.create_namespaced_pod(namespace, body)
    return {name: address(cluster, namespace, name) for name in names}


def service(cluster: harness.Cluster, namespace: str, name: str, target: str, ports: Sequence[dict[str, Any]]) -> str:
    """A Service before the pod `target`; its address."""
    body = {"metadata": {"name": name}, "spec": {"selector": {"name": target}, "ports": list(ports)}}
    return str(cluster.core.create_namespaced_service(namespace, body).spec.cluster_ip)


def wanted(cluster: harness.Cluster, namespace: str, owner: str, hosts: tuple[str, ...]) -> manifests.Wanted:
    """A gateway that a ConfigMap owns, in a run's stead."""
    uid = cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": owner}}).metadata.uid
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}
    return manifests.Wanted(namespace, reference, "run", RUN_UID, 1, hosts)


def make(
    cluster: harness.Cluster, wanted: manifests.Wanted, chosen: GatewaySettings, name_server: str | None = None
) -> Gateway:
    """Its three objects. `name_server`: instead of the cluster's DNS."""
    namespace = wanted.namespace
    made = cluster.core.create_namespaced_service(namespace, manifests.service(wanted, chosen))
    cluster.networking.create_namespaced_network_policy(namespace, manifests.policy(wanted, chosen))
    body = manifests.pod(wanted, chosen, made.spec.cluster_ip, 1)
    if name_server is not None:
        body["spec"] |= {"dnsPolicy": "None", "dnsConfig": {"nameservers": [name_server]}}
    cluster.core.create_namespaced_pod(namespace, body)
    address(cluster, namespace, body["metadata"]["name"])
    return Gateway(made.spec.cluster_ip, body["metadata"]["name"])


def restricted(cluster: harness.Cluster, wanted: manifests.Wanted, chosen: GatewaySettings, gateway: Gateway) -> str:
    """A pod whose only way out is the gateway, and its policy; the pod's name."""
    name, namespace = f"restricted-{wanted.owner['name']}", wanted.namespace
    labels = {objects.NETWORK_OF: wanted.owner["uid"], objects.NETWORK: manifests.RESTRICTED}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [reach.egress(wanted.owner["uid"], chosen)],
        },
    }
    cluster.networking.create_namespaced_network_policy(namespace, policy)
    spec = {"dnsPolicy": "None", "dnsConfig": {"nameservers": [gateway.address]}, "enableServiceLinks": False}
    body = _python(name, labels, "-c", "import time; time.sleep(3600)", **spec)
    cluster.core.create_namespaced_pod(namespace, body)
    address(cluster, namespace, name)
    return name


def address(cluster: harness.Cluster, namespace: str, name: str) -> str:
    """The pod's address, once all of it is ready."""

    def ready() -> str | None:
        pod = cluster.core.read_namespaced_pod(name, namespace)
        states = [each.ready for each in pod.status.container_statuses or ()]
        return pod.status.pod_ip if states and all(states) else None

    return str(cluster.until(ready, f"pod {name} ready", 90))


def until_connected(cluster: harness.Cluster, namespace: str, source: str, target: str, what: str) -> None:
    """Wait until a connection from that pod to port 80 of that address comes to this: `open` or `blocked`."""
    command = f"cd /scene && python3 -c 'import walk; print(walk.blocked(\"{target}\", 80))'"
    cluster.until(
        lambda: what in inside.shell(cluster, namespace, source, command), f"from {source} to {target}: {what}"
    )


def _python(name: str, labels: dict[str, str], *command: str, **spec: Any) -> dict[str, Any]:
    probe = {"readinessProbe": {"tcpSocket": {"port": 443}, "periodSeconds": 1}} if command[0] != "-c" else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "command": ["python3", *command],
                    **probe,
                    "volumeMounts": [{"name": "scene", "mountPath": "/scene"}],
                }
            ],
            "volumes": [{"name": "scene", "configMap": {"name": "scene"}}],
            **spec,
        },
    }
