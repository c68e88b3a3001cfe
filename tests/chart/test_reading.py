"""What the chart makes for reading results: the certificate, the API's registration, and who may do what."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests import alone
from tests import cluster as under_test

from taskfold.api import results
from taskfold.api.settings import Settings

HOST = "taskfold-reading.ns.svc"


def found(objects: list[dict], kind: str) -> list[dict]:
    """Those of the operator; canaries are none of it."""
    return [obj for obj in objects if obj["kind"] == kind and not obj["metadata"]["name"].endswith("-canary")]


def test_the_certificate_is_for_the_service_and_of_the_authority_that_the_api_server_is_told(helm, tmp_path: Path):
    objects = helm.objects("ns", only="reading")
    (secret,), (service,) = found(objects, "Secret"), found(objects, "APIService")
    data = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    assert base64.b64decode(service["spec"]["caBundle"]) == data["ca.crt"]
    for name in ("ca.crt", "tls.crt"):
        (tmp_path / name).write_bytes(data[name])
    command = ["openssl", "verify", "-CAfile", str(tmp_path / "ca.crt"), "-verify_hostname", HOST]
    subprocess.run([*command, "-purpose", "sslserver", str(tmp_path / "tls.crt")], check=True, capture_output=True)
    assert service["spec"]["service"] == {"namespace": "ns", "name": "taskfold-reading", "port": 443}
    assert (service["spec"]["group"], service["spec"]["version"]) == (results.GROUP, results.VERSION)
    assert service["metadata"]["name"] == f"{results.VERSION}.{results.GROUP}"


def test_the_pod_mounts_it_where_the_operator_looks_and_the_service_leads_to_its_port(helm):
    objects = helm.objects("ns", {"reading": {"port": 9443, "streams": 3, "presignedSeconds": 0}})
    (deployment,), (service,) = found(objects, "Deployment"), found(objects, "Service")
    (configured,) = found(objects, "ConfigMap")
    settings = Settings.model_validate(yaml.safe_load(configured["data"]["settings.yaml"])).reading
    assert (settings.enabled, settings.port, settings.streams, settings.presigned_seconds) == (True, 9443, 3, 0)
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "reading"]
    assert mount["readOnly"] is True
    assert {str(Path(settings.certificate).parent), str(Path(settings.key).parent)} == {mount["mountPath"]}
    (volume,) = [each for each in spec["volumes"] if each["name"] == "reading"]
    assert volume["secret"] == {"secretName": "taskfold-reading"}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["reading"] == 9443
    assert [each["targetPort"] for each in service["spec"]["ports"]] == ["reading"]
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_a_certificate_of_ones_own(helm):
    own = {"secretName": "mine", "caBundle": "-----BEGIN CERTIFICATE-----\nx\n"}
    objects = helm.objects("ns", {"reading": {"certificate": own}})
    assert found(objects, "Secret") == []
    (service,) = found(objects, "APIService")
    assert base64.b64decode(service["spec"]["caBundle"]).decode() == own["caBundle"]
    by_annotation = {"secretName": "mine", "apiServiceAnnotations": {"cert-manager.io/inject-ca-from": "ns/mine"}}
    (service,) = found(helm.objects("ns", {"reading": {"certificate": by_annotation}}), "APIService")
    assert "caBundle" not in service["spec"]
    assert service["metadata"]["annotations"] == by_annotation["apiServiceAnnotations"]


def test_a_certificate_whose_authority_nobody_knows_is_refused(helm):
    done = helm(
        "template", "t", str(Path(__file__).parents[2] / "charts/taskfold"), "--set", "reading.certificate.secretName=x"
    )
    assert done.returncode != 0
    assert "reading.certificate.caBundle" in done.stderr


def test_switched_off_nothing_of_it_is_there(helm):
    text = helm.text("ns", {"reading": {"enabled": False}})
    settings = json.loads(found(list(yaml.safe_load_all(text)), "ConfigMap")[0]["data"]["settings.yaml"])
    assert settings.pop("reading")["enabled"] is False
    assert "results.taskfold.dev" not in text
    assert "/etc/taskfold-reading" not in text
    assert "kube-system" not in text


def test_the_operator_may_ask_who_may_read_and_nothing_else_of_the_cluster(helm):
    objects = helm.objects("ns", only="reading")
    roles = {obj["metadata"]["name"]: obj for obj in found(objects, "ClusterRole")}
    reviews = {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
    assert roles["taskfold.ns.reviews"]["rules"] == [reviews]
    (in_cluster,), (in_system,) = found(objects, "ClusterRoleBinding"), found(objects, "RoleBinding")
    assert in_cluster["roleRef"]["name"] == "taskfold.ns.reviews"
    assert in_system["metadata"]["namespace"] == "kube-system"
    assert in_system["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    account = [{"kind": "ServiceAccount", "name": "taskfold", "namespace": "ns"}]
    assert in_cluster["subjects"] == in_system["subjects"] == account
    reading = roles["taskfold.ns.results"]["rules"][0]
    assert reading["apiGroups"] == [results.GROUP]
    assert set(reading["resources"]) == {f"{a}/{b}" for a in results.RESOURCES for b in results.KINDS}
    assert reading["verbs"] == ["get"]
    without = helm.objects("ns", {"reading": {"viewRole": False}}, only="reading")
    assert [obj["metadata"]["name"] for obj in found(without, "ClusterRole")] == ["taskfold.ns.reviews"]


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_whoever_may_view_a_namespace_may_read_its_results(helm, kubectl, make_namespace, eventually, role):
    namespace, other = make_namespace(), make_namespace()
    rendered = yaml.safe_load_all(helm.text(namespace, only="reading"))
    (results_role,) = [obj for obj in rendered if obj["metadata"]["name"].endswith(".results")]
    kubectl("apply", "-f", "-", stdin=json.dumps(results_role), ok=True)
    try:
        kubectl("-n", namespace, "create", "rolebinding", "x", f"--clusterrole={role}", "--user=ada", ok=True)

        def may(subresource: str, where: str) -> bool:
            attributes = {
                "namespace": where,
                "verb": "get",
                "group": results.GROUP,
                "resource": "taskruns",
                "name": "x",
            }
            spec = {"user": "ada", "resourceAttributes": {**attributes, "subresource": subresource}}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            done = kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review), ok=True)
            return json.loads(done.stdout)["status"]["allowed"]

        eventually(lambda: may("files", namespace) and may("log", namespace), 20)
        assert not may("files", other)
    finally:
        kubectl("delete", "clusterrole", results_role["metadata"]["name"], "--wait=false")


@pytest.mark.timeout(400)  # it waits for whoever has the results API
def test_an_upgrade_keeps_the_certificate(helm, kubectl, make_namespace):
    namespace = make_namespace()
    (secret,) = found(helm.objects(namespace, only="reading"), "Secret")
    release = {"meta.helm.sh/release-name": "taskfold", "meta.helm.sh/release-namespace": namespace}
    secret["metadata"]["annotations"] = release
    kubectl("apply", "-f", "-", stdin=json.dumps(secret), ok=True)
    chart = str(Path(__file__).parents[2] / "charts/taskfold")
    path = str(under_test.existing())
    arguments = ("--dry-run=server", "--show-only", "templates/reading.yaml", "--kubeconfig", path)
    with alone.with_the(alone.RESULTS_API):  # Helm refuses what somebody else has registered
        done = helm("template", "taskfold", chart, "-n", namespace, *arguments)
    assert done.returncode == 0, done.stderr
    objects = [obj for obj in yaml.safe_load_all(done.stdout) if obj]
    (again,), (service,) = found(objects, "Secret"), found(objects, "APIService")
    assert again["data"] == secret["data"]
    assert service["spec"]["caBundle"] == secret["data"]["ca.crt"]
