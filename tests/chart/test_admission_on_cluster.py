"""The admission policies on a real API server: only the operator labels sandboxes and writes rewards.

The others are played by a cluster admin: what he may not do, nobody may.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

ADMIN = ("--as=alice", "--as-group=system:masters")
IMAGE = "python:3.13-slim"
REFUSED = "may set, change or remove labels under taskfold.dev/"


def pod(name: str, labels: dict[str, str], **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": IMAGE, "command": ["sleep", "600"]}],
                **spec,
            },
        }
    )


def policy(name: str, labels: dict[str, str]) -> str:
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name, "labels": labels}}
    return json.dumps(body | {"spec": {"podSelector": {}}})


SPEC = {"task": {"inline": {"files": {"task.toml": ""}}}, "agent": {"oracle": {}}, "suspend": True}
RUN = {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "metadata": {"name": "run"}, "spec": SPEC}
VERIFIER = {
    "apiVersion": "taskfold.dev/v1alpha1",
    "kind": "VerifierRun",
    "metadata": {"name": "run"},
    "spec": {"source": {"runRef": {"name": "none", "uid": "u"}}, "mode": "shared"},
}


class Served:
    """A namespace under the chart's policies, and two users."""

    def __init__(self, kubectl, namespace: str) -> None:
        self._kubectl, self.namespace = kubectl, namespace
        self.operator = (f"--as=system:serviceaccount:{namespace}:taskfold",)

    def __call__(self, *arguments: str, as_: tuple[str, ...] = ADMIN, stdin: str | None = None, ok: bool = False):
        return self._kubectl("-n", self.namespace, *as_, *arguments, stdin=stdin, ok=ok)


@pytest.fixture(scope="module")
def served(helm, kubectl, crds, make_namespace, eventually):
    namespace = make_namespace()
    text = helm.text(namespace, only="admissionpolicies")
    kubectl("apply", "-f", "-", stdin=helm.text(namespace, only="serviceaccount"), ok=True)
    kubectl("apply", "-f", "-", stdin=helm.text(namespace, only="rbac"), ok=True)
    kubectl("apply", "-f", "-", stdin=text, ok=True)
    made = Served(kubectl, namespace)
    for body in (RUN, VERIFIER):
        made("create", "-f", "-", stdin=json.dumps(body), ok=True)
    probe = pod("probe", {"taskfold.dev/run": "x"})
    patch = ("patch", "taskrun", "run", "--subresource=status", "--type=merge", "-p", '{"status":{"reward":"9"}}')
    # The API server takes a moment to learn its policies and its roles.
    eventually(lambda: REFUSED in made("create", "--dry-run=server", "-f", "-", stdin=probe).stderr)
    eventually(lambda: "may write" in made(*patch, "--dry-run=server").stderr)
    eventually(lambda: made("auth", "can-i", "create", "pods", as_=made.operator).returncode == 0)
    made("create", "-f", "-", as_=made.operator, stdin=pod("sandbox", {"taskfold.dev/run": "run"}), ok=True)
    made("create", "-f", "-", stdin=pod("plain", {"app": "plain"}), ok=True)
    made("create", "-f", "-", stdin=policy("plain", {"app": "plain"}), ok=True)
    yield made
    kubectl("delete", "--wait=false", "-f", "-", stdin=text)


@pytest.mark.parametrize("labels", [{"taskfold.dev/run": "run"}, {"a": "b", "taskfold.dev/anything": "x"}])
@pytest.mark.parametrize("body", [pod, policy], ids=["pod", "networkpolicy"])
def test_nobody_else_creates_with_our_labels(served, body, labels):
    done = served("create", "--dry-run=server", "-f", "-", stdin=body("new", labels))
    assert done.returncode != 0
    assert REFUSED in done.stderr
    assert next(key for key in labels if key.startswith("taskfold.dev/")) in done.stderr.split("leave out:")[1]


@pytest.mark.parametrize(
    "labels", [{}, {"app": "x"}, {"taskfold.development/run": "x"}, {"example.org/taskfold.dev": "x"}]
)
@pytest.mark.parametrize("body", [pod, policy], ids=["pod", "networkpolicy"])
def test_other_labels_are_free(served, body, labels):
    served("create", "--dry-run=server", "-f", "-", stdin=body("new", labels), ok=True)


@pytest.mark.parametrize("kind", ["pod", "networkpolicy"])
def test_nobody_else_adds_a_label(served, kind):
    done = served("label", "--dry-run=server", kind, "plain", "taskfold.dev/run=run")
    assert done.returncode != 0
    assert REFUSED in done.stderr
    served("label", "--dry-run=server", kind, "plain", "team=a", ok=True)


@pytest.mark.parametrize("change", ["taskfold.dev/run=other", "taskfold.dev/run-", "taskfold.dev/network=public"])
def test_nobody_else_changes_a_sandboxs_labels(served, change):
    done = served("label", "--dry-run=server", "--overwrite", "pod", "sandbox", change)
    assert done.returncode != 0
    assert REFUSED in done.stderr


def test_a_sandbox_can_be_annotated_labelled_and_deleted_by_others(served):
    served("annotate", "--dry-run=server", "pod", "sandbox", "note=x", ok=True)
    served("label", "--dry-run=server", "pod", "sandbox", "team=a", ok=True)
    served("delete", "--dry-run=server", "pod", "sandbox", ok=True)


def test_a_controller_does_not_create_them_for_somebody_else(served, eventually):
    template = json.loads(pod("", {"app": "d", "taskfold.dev/run": "run"}))
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "disguised"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": template["metadata"] | {"name": None},
                "spec": template["spec"] | {"terminationGracePeriodSeconds": 0},
            },
        },
    }
    served("create", "-f", "-", stdin=json.dumps(body), ok=True)
    look = ("get", "events", "--field-selector=reason=FailedCreate", "-o", "jsonpath={.items[*].message}")
    eventually(lambda: REFUSED in served(*look).stdout)
    served("delete", "deployment", "disguised", ok=True)


@pytest.mark.parametrize("kind", ["taskrun", "verifierrun"])
def test_only_the_operator_writes_status(served, kind):
    patch = ("patch", kind, "run", "--subresource=status", "--type=merge", "--dry-run=server", "-p")
    reward = '{"status":{"reward":"1"}}'
    done = served(*patch, reward)
    assert done.returncode != 0
    assert f"only the taskfold operator (system:serviceaccount:{served.namespace}:taskfold) may write" in done.stderr
    # kubectl reads the subresource first, which the operator needs not: the group lends the right to.
    served(*patch, reward, as_=(*served.operator, "--as-group=system:masters"), ok=True)


@pytest.mark.parametrize("kind", ["taskrun", "verifierrun"])
def test_a_status_beside_a_spec_is_ignored(served, kind):
    """What is written to the object itself never reaches its status: the API server drops it."""
    body = RUN if kind == "taskrun" else VERIFIER
    body = body | {"metadata": {"name": "planted"}, "status": {"reward": "1", "phase": "Succeeded"}}
    done = served("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(body), ok=True)
    assert "status" not in json.loads(done.stdout)
    patch = ("patch", kind, "run", "--type=merge", "--dry-run=server", "-o", "json", "-p")
    done = served(*patch, '{"metadata":{"labels":{"a":"b"}},"status":{"reward":"1"}}', ok=True)
    assert "status" not in json.loads(done.stdout)


def test_another_service_account_is_not_the_operator(served):
    other = ("--as=system:serviceaccount:default:taskfold", "--as-group=system:masters")
    done = served("create", "--dry-run=server", "-f", "-", as_=other, stdin=pod("new", {"taskfold.dev/run": "x"}))
    assert REFUSED in done.stderr


def test_other_namespaces_are_untouched(kubectl, served, make_namespace):
    text = pod("new", {"taskfold.dev/run": "run"})
    kubectl("-n", make_namespace(), *ADMIN, "create", "--dry-run=server", "-f", "-", stdin=text, ok=True)


def test_the_cluster_goes_on_scheduling_starting_and_removing_sandboxes(served, kubectl):
    """Scheduler, kubelet and garbage collector write to labelled pods all the time."""
    served("wait", "pod/sandbox", "--for=condition=Ready", "--timeout=60s", ok=True)
    owner = json.loads(served("get", "taskrun", "run", "-o", "json", ok=True).stdout)["metadata"]
    body = json.loads(pod("owned", {"taskfold.dev/run": "run"}))
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": RUN["apiVersion"], "kind": "TaskRun", "name": "run", "uid": owner["uid"], "controller": True}
    ]
    served("create", "-f", "-", as_=served.operator, stdin=json.dumps(body), ok=True)
    served("wait", "pod/owned", "--for=condition=Ready", "--timeout=60s", ok=True)
    # The garbage collector updates a pod that its owner leaves behind.
    served("delete", "taskrun", "run", "--cascade=orphan", ok=True)
    kept = json.loads(served("get", "pod", "owned", "-o", "json", ok=True).stdout)["metadata"]
    assert "ownerReferences" not in kept
    served("delete", "pod", "owned", "--timeout=30s", ok=True)
    served("create", "-f", "-", stdin=json.dumps(RUN), ok=True)
