"""The chart's network policies, enforced by a real cluster. The node plays the metadata service: no pod's address.

No public address is ever tried; traffic goes between pods of the test, and to a server of the test on the node.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

IMAGE = "python:3.13-slim"
PORT = 18099
OPEN, BLOCKED = "open", "blocked"
TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()
    print('open')
except TimeoutError:
    print('blocked')
except OSError as error:
    print('blocked' if error.errno in (111, 113) else error)
"""
LISTENS = f"import socket; socket.create_connection(('127.0.0.1', {PORT}), 2)"


def server(name: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "command": ["python3", "-m", "http.server", str(PORT)],
                    # By exec: the kubelet's own connections are let through, and prove nothing.
                    "readinessProbe": {
                        "exec": {"command": ["python3", "-c", LISTENS]},
                        "periodSeconds": 1,
                    },
                }
            ],
            **spec,
        },
    }


@pytest.fixture(scope="module")
def pods(helm, kubectl, make_namespace):
    namespace = make_namespace()
    bodies = [
        server("sandbox", {"taskfold.dev/run": "one"}),
        server("neighbour", {"taskfold.dev/run": "two"}),
        server("plain", {}),
        server("node", {}, hostNetwork=True),
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
    kubectl("-n", namespace, "create", "-f", "-", stdin=text, ok=True)
    names = [f"pod/{body['metadata']['name']}" for body in bodies]
    kubectl("-n", namespace, "wait", *names, "--for=condition=Ready", "--timeout=85s", ok=True)
    found = json.loads(kubectl("-n", namespace, "get", "pods", "-o", "json", ok=True).stdout)["items"]
    return namespace, {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in found}


@pytest.fixture(scope="module")
def connect(kubectl, pods):
    namespace, addresses = pods

    def attempt(source: str, target: str) -> str:
        command = ("python3", "-c", TRY, addresses[target], str(PORT))
        return kubectl("-n", namespace, "exec", source, "--", *command, ok=True).stdout.strip()

    return attempt


PAIRS = {
    ("plain", "sandbox"): BLOCKED,
    ("neighbour", "sandbox"): BLOCKED,
    ("sandbox", "neighbour"): BLOCKED,
    ("sandbox", "node"): BLOCKED,
    ("sandbox", "plain"): OPEN,
    ("plain", "node"): OPEN,
    ("node", "plain"): OPEN,
}


def test_policies_hold(helm, kubectl, pods, connect, eventually):
    namespace, addresses = pods
    assert {pair: connect(*pair) for pair in PAIRS} == dict.fromkeys(PAIRS, OPEN), "before the policies"
    given = {"networkPolicy": {"metadataAddresses": [f"{addresses['node']}/32", "fd00:ec2::254/128"]}}
    text = helm.text(namespace, given, only="networkpolicy")
    kubectl("apply", "-f", "-", stdin=text, ok=True)
    eventually(lambda: {pair: connect(*pair) for pair in PAIRS} == PAIRS, 120)
    # Cluster DNS: another namespace's pods, by the address of a Service.
    look_up = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"
    kubectl("-n", namespace, "exec", "sandbox", "--", "python3", "-c", look_up, ok=True)
    # A restricted sandbox is left to its own policy: these would widen it.
    kubectl("-n", namespace, "label", "pod", "sandbox", "taskfold.dev/network=no-network", ok=True)
    eventually(lambda: connect("sandbox", "node") == OPEN, 60)
    assert connect("plain", "sandbox") == BLOCKED
