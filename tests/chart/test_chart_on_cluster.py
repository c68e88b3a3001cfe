"""What the API server says to the chart: it takes every object, and the role is what it should be.

Nothing that would reach beyond the test's own namespaces is ever really applied.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests import alone

from taskfold.api.settings import Settings
from taskfold.api.taskrun import TaskRun
from taskfold.build import pod as sandbox
from taskfold.contract import folder, loader

from .test_rbac import granted, used

pytestmark = pytest.mark.cluster

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SETS = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))
IMPLICIT = {"authorization.k8s.io", "authentication.k8s.io"}
"""What every user may: ask about himself."""


@pytest.mark.timeout(400)  # it waits for whoever has the results API
@pytest.mark.parametrize("how", [("--server-side",), ()], ids=["server-side", "client-side"])
@pytest.mark.parametrize("name", SETS)
def test_every_object_is_taken(helm, kubectl, crds, make_namespace, name, how):
    namespace, other = make_namespace(), make_namespace()
    given = yaml.safe_load((HERE / "values" / f"{name}.yaml").read_text()) or {}
    if "namespaces" in given:
        given["namespaces"] = [namespace, other]
    text = helm.text(namespace, given)
    with alone.with_the(alone.RESULTS_API):  # what somebody else has registered is not taken
        done = kubectl("apply", *how, "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert len(done.stdout.splitlines()) == len([obj for obj in yaml.safe_load_all(text) if obj])


def test_policies_compile_for_every_type_they_match(helm, kubectl, crds, make_namespace, eventually):
    text = helm.text(make_namespace(), only="admissionpolicies")
    kubectl("apply", "-f", "-", stdin=text, ok=True)
    try:
        for policy in yaml.safe_load_all(text):
            if policy["kind"] != "ValidatingAdmissionPolicy":
                continue

            def checked(name: str = policy["metadata"]["name"]) -> dict:
                found = kubectl("get", "validatingadmissionpolicy", name, "-o", "json", ok=True)
                return json.loads(found.stdout).get("status") or {}

            assert eventually(checked)["typeChecking"] == {}
    finally:
        kubectl("delete", "--wait=false", "-f", "-", stdin=text)


def test_the_service_account_may_do_what_the_code_does_and_no_more(helm, kubectl, make_namespace, eventually):
    served, other = make_namespace(), make_namespace()
    for template in ("serviceaccount", "rbac"):
        kubectl("apply", "-f", "-", stdin=helm.text(served, only=template), ok=True)
    user = f"system:serviceaccount:{served}:taskfold"
    groups = [f"--as-group=system:serviceaccounts{suffix}" for suffix in ("", f":{served}")]
    groups.append("--as-group=system:authenticated")

    def rules(namespace: str) -> set[tuple[str, str, str]]:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        done = kubectl("create", "--raw", path, "-f", "-", f"--as={user}", *groups, stdin=json.dumps(review), ok=True)
        found = json.loads(done.stdout)["status"]["resourceRules"]
        return {each for each in granted(found) if each[0] not in IMPLICIT and each[0] != "certificates.k8s.io"}

    eventually(lambda: used() <= rules(served))  # the API server learns a role a moment after it took it
    assert rules(served) == used()
    assert rules(other) == set()


def test_the_operators_pod_is_allowed_where_pod_security_is_restricted(helm, kubectl, make_namespace):
    namespace = make_namespace(enforce="restricted")
    (deployment,) = helm.objects(namespace, only="deployment")
    template = deployment["spec"]["template"]
    template["spec"].pop("serviceAccountName")
    body = {"apiVersion": "v1", "kind": "Pod", **template}
    body["metadata"] |= {"name": "operator", "namespace": namespace}
    done = kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("image_volumes", [True, False], ids=["image volume", "copy"])
@pytest.mark.parametrize(
    ("level", "refused"),
    [("privileged", ""), ("baseline", ""), ("restricted", "violates PodSecurity")],
    ids=["privileged", "baseline", "restricted"],
)
def test_pod_security_of_sandboxes(kubectl, make_namespace, level, refused, image_volumes):
    namespace = make_namespace(enforce=level)
    metadata = {"name": "a", "namespace": namespace, "uid": "u", "resourceVersion": "1", "generation": 1}
    spec = {"task": {"inline": {"files": {"task.toml": ""}}}, "agent": {"oracle": {}}}
    run = TaskRun.parse({"metadata": metadata, "spec": spec})
    task = loader.load(folder.DirectoryFolder(ROOT / "environments/hello_dataset/file-state"), task_id="file-state")
    plan = sandbox.PodPlan("a-1-1", 1, record=True, image_volumes=image_volumes, limit_seconds=60)
    body = sandbox.manifest(run, task, Settings(), plan, None)
    done = kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    assert (done.returncode == 0) is not bool(refused), done.stderr
    assert refused in done.stderr
