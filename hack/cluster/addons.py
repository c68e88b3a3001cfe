"""What a cluster has besides its programs: DNS, rights of the policy controller, a local volume.

Pure functions from settings to manifests; `apply` sends them.
"""

import os
import shutil
from typing import Any

from hack.cluster.api import Api, wait
from hack.cluster.settings import Settings

DNS_IMAGE = "docker.io/coredns/coredns:1.15.0"
STORAGE_CLASS = "taskfold-local"
VOLUMES = 3
# The uid the operator's image runs as: a local volume is not chowned by anybody else.
VOLUME_OWNER = 65532
_DNS_LABELS = {"k8s-app": "kube-dns"}

# No forward: nothing outside can be reached from the cluster, and NXDOMAIN says so at once. It is a
# server block of its own, because `template` answers before `kubernetes` does in the same one.
COREFILE = """\
cluster.local:53 in-addr.arpa:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa {
        pods insecure
        ttl 5
    }
}
.:53 {
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


def apply(settings: Settings, api: Api) -> None:
    for manifest in [*policy_rights(), *dns(settings), *volumes(settings)]:
        api.apply(manifest)


def make_volume_folders(settings: Settings) -> None:
    for number in range(1, VOLUMES + 1):
        folder = settings.node_state(1) / f"store-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o770)
        os.chown(folder, VOLUME_OWNER, VOLUME_OWNER)


def free_volumes(settings: Settings, api: Api) -> list[str]:
    """Empty the volumes whose claim is gone and offer them again; returns their names."""
    freed = []
    for number in range(1, VOLUMES + 1):
        name = f"taskfold-store-{number}"
        volume = api.get(f"/api/v1/persistentvolumes/{name}")
        if volume and volume["status"].get("phase") in {"Available", "Bound"}:
            continue
        api.request("DELETE", f"/api/v1/persistentvolumes/{name}")
        wait(
            f"the end of volume {name}",
            lambda path=name: not api.get(f"/api/v1/persistentvolumes/{path}"),
            20,
        )
        shutil.rmtree(settings.node_state(1) / f"store-{number}", ignore_errors=True)
        freed.append(name)
    make_volume_folders(settings)
    for manifest in volumes(settings):
        api.apply(manifest)
    return freed


def policy_rights() -> list[dict[str, Any]]:
    """kube-router only reads."""
    return _rights(
        "kube-router",
        [
            {
                "apiGroups": [""],
                "resources": ["namespaces", "pods", "services", "nodes", "endpoints"],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": ["networking.k8s.io"],
                "resources": ["networkpolicies"],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["get", "list", "watch"],
            },
        ],
        {"kind": "User", "name": "kube-router", "apiGroup": "rbac.authorization.k8s.io"},
    )


def dns(settings: Settings) -> list[dict[str, Any]]:
    """CoreDNS as pods with the usual labels, so that a NetworkPolicy can name them."""
    where = {"name": "coredns", "namespace": "kube-system"}
    probe = {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 30}
    container = {
        "name": "coredns",
        "image": DNS_IMAGE,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "40Mi"}, "limits": {"memory": "170Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, **probe},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, **probe, "periodSeconds": 10},
        "securityContext": {
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        },
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": where},
        *_rights(
            "system:coredns",
            [
                {
                    "apiGroups": [""],
                    "resources": ["services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
            {"kind": "ServiceAccount", **where},
        ),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {"Corefile": COREFILE}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**where, "labels": _DNS_LABELS},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": _DNS_LABELS},
                "template": {
                    "metadata": {"labels": _DNS_LABELS},
                    "spec": {
                        "serviceAccountName": "coredns",
                        "priorityClassName": "system-cluster-critical",
                        "dnsPolicy": "Default",
                        "containers": [container],
                        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": _DNS_LABELS},
            "spec": {
                "selector": _DNS_LABELS,
                "clusterIP": str(settings.dns_address),
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
    ]


def volumes(settings: Settings) -> list[dict[str, Any]]:
    """Static volumes on node 1 for the operator's store: there is no provisioner."""
    affinity = {
        "required": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": [settings.node_name(1)]}
                    ]
                }
            ]
        }
    }
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    return [
        storage_class,
        *(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"taskfold-store-{number}"},
                "spec": {
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": STORAGE_CLASS,
                    "local": {"path": str(settings.node_state(1) / f"store-{number}")},
                    "nodeAffinity": affinity,
                },
            }
            for number in range(1, VOLUMES + 1)
        ),
    ]


def _rights(name: str, rules: list[dict[str, Any]], subject: dict[str, Any]) -> list[dict[str, Any]]:
    version = "rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
