"""Canaries of a test's own: what the chart installs beside the operator."""

from typing import Any

from tests.conformance import harness

PORT, READY_PORT = 8053, 8054


def make(cluster: harness.Cluster, namespace: str, count: int = 2) -> None:
    """So many canaries, on nodes apart where there are enough, once they are ready."""
    labels = {"app.kubernetes.io/component": "canary"}
    ports = [{"name": "canary", "port": PORT}]
    service = {"clusterIP": "None", "selector": labels, "ports": ports, "publishNotReadyAddresses": True}
    cluster.core.create_namespaced_service(namespace, {"metadata": {"name": "canary"}, "spec": service})
    for number in range(count):
        cluster.core.create_namespaced_pod(namespace, _pod(f"canary-{number}", namespace, labels))
    cluster.until(lambda: len(ready(cluster, namespace)) == count, "the canaries are ready")


def ready(cluster: harness.Cluster, namespace: str) -> list[Any]:
    """Those that are."""
    found = cluster.core.list_namespaced_pod(namespace, label_selector="app.kubernetes.io/component=canary").items
    conditions = {pod.metadata.name: {c.type: c.status for c in pod.status.conditions or ()} for pod in found}
    return [pod for pod in found if conditions[pod.metadata.name].get("Ready") == "True"]


def settings(namespace: str) -> dict[str, Any]:
    """The operator's settings that name them."""
    return {"canary": {"namespace": namespace, "port": PORT}}


def _pod(name: str, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    words = ["canary", "--port", str(PORT), "--ready-port", str(READY_PORT), "--peers", f"canary.{namespace}.svc"]
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    preferred = [{"weight": 1, "podAffinityTerm": apart}]
    probe = {"httpGet": {"port": READY_PORT, "path": "/"}, "periodSeconds": 1, "failureThreshold": 2}
    container = {
        "name": "canary",
        "image": harness.helper_image(),
        "command": ["/helper", *words],
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "containers": [container],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
            "terminationGracePeriodSeconds": 0,
        },
    }
