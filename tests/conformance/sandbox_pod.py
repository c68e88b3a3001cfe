"""A sandbox pod without a run around it: the helper in its image volume, as build/pod.py does it, and room at /data."""

from typing import Any

from tests.conformance import harness

DATA = "/data"


def manifest(name: str) -> dict[str, Any]:
    """The pod; it needs image volumes, Kubernetes 1.35."""
    main = {
        "name": "main",
        "image": harness.IMAGE,
        "command": ["/.taskfold/helper", "init", "--name", "main"],
        "securityContext": {"runAsUser": 0, "runAsGroup": 0},
        "volumeMounts": [
            {"name": "helper", "mountPath": "/.taskfold", "readOnly": True},
            {"name": "data", "mountPath": DATA},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "containers": [main],
            "volumes": [
                {"name": "helper", "image": {"reference": harness.helper_image(), "pullPolicy": "IfNotPresent"}},
                {"name": "data", "emptyDir": {}},
            ],
        },
    }
