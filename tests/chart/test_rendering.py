"""What the chart renders: goldens for three sets of values, and what every set must hold."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from taskfold.api import crd, settings_docs
from taskfold.api.settings import Settings
from taskfold.api.taskrun import TaskRun

HERE = Path(__file__).resolve().parent
CHART = HERE.parents[1] / "charts" / "taskfold"
METADATA = {"name": "first", "namespace": "team-a", "uid": "u", "resourceVersion": "1", "generation": 1}
SETS = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))


def values(name: str) -> dict:
    return yaml.safe_load((HERE / "values" / f"{name}.yaml").read_text()) or {}


def one(objects: list[dict], kind: str) -> dict:
    """The operator's; canaries are looked at by themselves."""
    (found,) = [obj for obj in objects if obj["kind"] == kind and not obj["metadata"]["name"].endswith("-canary")]
    return found


def masked(text: str) -> str:
    """Certificates are made anew at every rendering."""
    return re.sub(r"^( *(?:ca\.crt|tls\.crt|tls\.key|caBundle): )\S{100,}$", r"\1…", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", SETS)
def test_golden(helm, name):
    """TASKFOLD_UPDATE_GOLDENS=1 writes them anew; read the diff before you commit it."""
    rendered, golden = masked(helm.text("taskfold-system", values(name))), HERE / "golden" / f"{name}.yaml"
    if os.environ.get("TASKFOLD_UPDATE_GOLDENS"):
        golden.write_text(rendered)
    assert rendered == golden.read_text()


@pytest.mark.parametrize("name", SETS)
def test_lint(helm, name):
    done = helm("lint", "--strict", str(CHART), "-n", "x", "-f", str(HERE / "values" / f"{name}.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SETS)
def test_the_operator_accepts_its_settings(helm, name):
    text = one(helm.objects("ns", values(name)), "ConfigMap")["data"]["settings.yaml"]
    settings = Settings.model_validate(yaml.safe_load(text))
    given = values(name)
    expected = [] if given.get("clusterWide") else given.get("namespaces", ["ns"])
    assert settings.namespaces == expected
    assert settings.cluster_name == given.get("clusterName", "default")
    assert settings.health_port == given.get("healthPort", 8080)
    assert settings.store.ephemeral is given.get("store", {}).get("ephemeral", False)
    assert settings.store.url == given.get("store", {}).get("url", "file:///var/lib/taskfold")
    assert settings.store.options == given.get("store", {}).get("options", {})
    election = settings.leader_election
    assert (election.enabled, election.lease_name, election.lease_namespace) == (True, "taskfold", "")


def test_large_and_small_numbers_reach_the_operator_whole(helm):
    text = one(helm.objects("ns", values("ephemeral-namespaces")), "ConfigMap")["data"]["settings.yaml"]
    limits = Settings.model_validate(yaml.safe_load(text)).limits
    assert (limits.collect_bytes, limits.collect_entries, limits.queue_seconds) == (8589934592, 1000000, 0.5)


def test_chart_has_the_crds(helm):
    assert {path.name: path.read_text() for path in (CHART / "crds").glob("*")} == crd.files()


def test_schema_has_the_settings_of_the_operator():
    text = (CHART / "values.schema.json").read_text()
    schema = json.loads(text)["properties"]["settings"]
    whole = Settings.model_json_schema(by_alias=True)
    assert settings_docs.with_chart_schema(text) == text
    assert set(schema["properties"]) == set(whole["properties"]) - set(settings_docs.DERIVED)
    for section, model in (("limits", "LimitSettings"), ("pod", "PodSettings"), ("registry", "RegistrySettings")):
        assert set(schema["properties"][section]["properties"]) == set(whole["$defs"][model]["properties"])


def test_schema_is_strict_and_describes_every_value():
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) == {*defaults, "global"}

    def walk(node: dict, given: object, path: str) -> None:
        if "properties" in node:
            assert node["additionalProperties"] is False, path
            for name, child in node["properties"].items():
                assert path.startswith(".settings") or child.get("description"), f"{path}.{name}"
                walk(child, given.get(name) if isinstance(given, dict) else None, f"{path}.{name}")
            free = path.startswith(".settings") or path.endswith("[]") or path == ""
            assert free or set(node["properties"]) == set(given or {}), path
        if isinstance(node.get("items"), dict):
            walk(node["items"], None, f"{path}[]")

    walk(schema, defaults, "")


def test_version_is_the_packages():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    text = (CHART.parents[1] / "pyproject.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in text


def test_the_operators_pod_is_locked_down(helm):
    spec = one(helm.objects("ns"), "Deployment")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/tmp", "/var/lib/taskfold"}
    assert pod["terminationGracePeriodSeconds"] == 30


@pytest.mark.parametrize(
    "store",
    [
        {"url": "s3://bucket"},
        {"persistence": {"accessModes": ["ReadWriteMany"]}},
        {"persistence": {"accessModes": ["ReadWriteMany"], "existingClaim": "mine"}},
    ],
    ids=["bucket", "claim", "existing claim"],
)
def test_several_operators_are_rolled_out_one_by_one_and_drained_one_by_one(helm, store):
    objects = helm.objects("ns", {"replicas": 2, "store": store})
    deployment = one(objects, "Deployment")["spec"]
    labels = deployment["selector"]["matchLabels"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    terms = deployment["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    found = [(t["weight"], t["podAffinityTerm"]["topologyKey"]) for t in terms]
    assert found == [(100, "kubernetes.io/hostname"), (50, "topology.kubernetes.io/zone")]
    assert all(t["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels for t in terms)
    budget = one(objects, "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels)


def test_an_affinity_that_is_given_is_taken_as_it_is(helm):
    given = {"replicas": 2, "store": {"url": "s3://b"}, "affinity": {"nodeAffinity": {}}}
    pod = one(helm.objects("ns", given), "Deployment")["spec"]["template"]["spec"]
    assert pod["affinity"] == {"nodeAffinity": {}}


def test_one_operator_has_no_budget_that_would_block_a_drain(helm):
    objects = helm.objects("ns")
    assert not [obj for obj in objects if obj["kind"] == "PodDisruptionBudget"]
    assert "affinity" not in one(objects, "Deployment")["spec"]["template"]["spec"]


def test_who_leads_is_told_by_the_pods_name(helm):
    (container,) = one(helm.objects("ns"), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in container["env"]


def test_changed_settings_restart_the_operator(helm):
    def sum_(settings: dict) -> str:
        template = one(helm.objects("ns", {"settings": settings}), "Deployment")["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/settings"]

    assert sum_({}) == sum_({})
    assert sum_({}) != sum_({"resyncSeconds": 60})


@pytest.mark.parametrize(
    ("store", "volume", "claims"),
    [
        ({}, {"persistentVolumeClaim": {"claimName": "taskfold-store"}}, 1),
        ({"persistence": {"existingClaim": "mine"}}, {"persistentVolumeClaim": {"claimName": "mine"}}, 0),
        ({"ephemeral": True}, {"emptyDir": {"sizeLimit": "10Gi"}}, 0),
        ({"ephemeral": True, "persistence": {"enabled": False}}, {"emptyDir": {"sizeLimit": "10Gi"}}, 0),
        ({"url": "s3://bucket/prefix"}, None, 0),
        ({"url": "gs://bucket", "persistence": {"enabled": False}}, None, 0),
    ],
    ids=["claim", "existing", "ephemeral", "ephemeral-no-claim", "s3", "gs"],
)
def test_store_volume(helm, store, volume, claims):
    objects = helm.objects("ns", {"store": store})
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    found = [{k: v for k, v in each.items() if k != "name"} for each in pod["volumes"] if each["name"] == "store"]
    assert found == ([volume] if volume else [])
    assert len([obj for obj in objects if obj["kind"] == "PersistentVolumeClaim"]) == claims


def test_claim_is_kept_unless_told_otherwise(helm):
    def claim(**persistence: object) -> dict:
        store = {"persistence": persistence}
        return one(helm.objects("ns", {"store": store}, only="persistentvolumeclaim"), "PersistentVolumeClaim")

    assert claim()["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in claim(keep=False)["metadata"]
    assert "storageClassName" not in claim()["spec"]
    assert claim(storageClass="-")["spec"]["storageClassName"] == ""
    assert claim(storageClass="fast")["spec"]["storageClassName"] == "fast"


def test_without_policies_and_cluster_wide_nothing_is_cluster_scoped(helm):
    objects = helm.objects("ns", {"admissionPolicies": {"enabled": False}, "reading": {"enabled": False}})
    assert {obj["metadata"].get("namespace") for obj in objects} == {"ns"}


def test_names_of_cluster_scoped_objects_hold_namespace_and_release(helm):
    for obj in helm.objects("team-x", {"clusterWide": True}):
        if "namespace" not in obj["metadata"] and obj["kind"] != "APIService":  # one in a cluster, by its group's name
            assert obj["metadata"]["name"].startswith("taskfold.team-x."), obj["metadata"]["name"]


def test_nothing_of_the_chart_has_labels_that_its_own_policies_refuse(helm):
    for name in SETS:
        for obj in helm.objects("ns", values(name)):
            template = obj.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
            assert not [k for k in {**obj["metadata"]["labels"], **template} if "taskfold.dev/" in k]


def test_canaries_are_locked_down_apart_and_known_to_the_operator(helm):
    objects = helm.objects("system", {"fullnameOverride": "mine", "network": {"canary": {"port": 9000}}})
    found = {obj["kind"]: obj for obj in objects if obj["metadata"]["name"] == "mine-canary"}
    assert set(found) == {"Deployment", "Service", "NetworkPolicy", "Role", "RoleBinding"}
    template = found["Deployment"]["spec"]["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    (container,) = pod["containers"]
    assert "--peers=mine-canary.system.svc" in container["command"]
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert found["Service"]["spec"]["publishNotReadyAddresses"], "else none is ever ready: each waits for another one"
    settings = Settings.model_validate(yaml.safe_load(one(objects, "ConfigMap")["data"]["settings.yaml"]))
    canary = settings.network.canary
    assert (canary.namespace, canary.port) == ("system", 9000)
    wanted = dict(each.split("=") for each in canary.selector.split(","))
    assert wanted.items() <= labels.items()
    assert found["Service"]["spec"]["selector"] == wanted
    assert found["NetworkPolicy"]["spec"]["podSelector"] == {"matchLabels": wanted}


def test_without_canaries_the_operator_knows_of_none(helm):
    objects = helm.objects("system", {"network": {"canary": {"enabled": False}}})
    assert not [obj for obj in objects if "canary" in obj["metadata"]["name"]]
    settings = Settings.model_validate(yaml.safe_load(one(objects, "ConfigMap")["data"]["settings.yaml"]))
    assert settings.network.canary.namespace is None


def test_gateways_are_what_the_values_say(helm):
    given = {"network": {"gateway": {"tlsPorts": [443], "proxyImage": "r/haproxy:1"}}}
    objects = helm.objects("system", given)
    settings = Settings.model_validate(yaml.safe_load(one(objects, "ConfigMap")["data"]["settings.yaml"]))
    assert (settings.network.gateway.tls_ports, settings.network.gateway.proxy_image) == ([443], "r/haproxy:1")


@pytest.mark.parametrize("denied", [True, False])
def test_network_policies(helm, denied):
    given = {"namespaces": ["a", "b"], "networkPolicy": {"denyMetadata": denied}}
    objects = helm.objects("ns", given, only="networkpolicy")
    names = ["taskfold-sandboxes"] + (["taskfold-sandboxes-egress"] if denied else [])
    assert [(o["metadata"]["namespace"], o["metadata"]["name"]) for o in objects] == [
        (namespace, name) for namespace in "ab" for name in names
    ]
    assert objects[0]["spec"]["policyTypes"] == ["Ingress"]
    assert "ingress" not in objects[0]["spec"]


def test_notes_start_a_run_in_the_first_served_namespace(helm):
    given = ("-n", "system", "--set", "namespaces={team-a,team-b}", "--dry-run=client")
    done = helm("install", "taskfold", str(CHART), *given)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.split("NOTES:\n")[1]
    command, _, rest = notes.partition("<<'END'\n")
    manifest, end, _ = rest.partition("\nEND\n")
    assert "serves team-a, team-b." in command
    assert command.splitlines()[-1] == "kubectl -n team-a apply -f - "
    assert end, "the here-document has no end at the start of a line"
    assert TaskRun.parse(yaml.safe_load(manifest) | {"metadata": METADATA}).spec.agent.oracle is not None
