"""build/pod.py: whole manifests against goldens, and what must hold of every one.

A golden is reviewed by eye. After a wanted change: `TASKFOLD_GOLDENS=write pytest tests/build`, then read the diff.
"""

import dataclasses
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide import worlds

from taskfold.api.settings import Settings
from taskfold.api.taskrun import SecurityProfile
from taskfold.build import pod
from taskfold.build.restriction import Restriction
from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.images import RecordedImage
from taskfold.contract.network import NO_NETWORK, Network, NetworkMode

GOLDENS = Path(__file__).parent / "goldens"
ALLOWLIST = Network(NetworkMode.ALLOWLIST, ("*.example.test", "192.0.2.0/24", "allowed.test"))
DIGEST = "sha256:" + "9" * 64
PLAN = pod.PodPlan("fix-bug-1-1", 1, record=False, image_volumes=True, limit_seconds=29_400.5)
OPTIONS = {
    "labels": {"team": "blue", "taskfold.dev/run": "planted"},
    "annotations": {"note": "x", "karpenter.sh/do-not-disrupt": "false"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "low",
    "runtimeClassName": "gvisor",
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "sandbox",
    "resources": {"requests": {"cpu": 2, "example.com/gpu": 1}, "limits": {"cpu": "4", "example.com/gpu": 1}},
}
LIMITED = worlds.task(
    "environment.cpus = 1.5",
    "environment.memory_mb = 1000",
    "environment.storage_mb = 3000",
    'environment.env = { MODE = "fast", TOKEN = "${TOKEN}", LEVEL = "${LEVEL:-3}", GOMAXPROCS = "7" }',
)
DOCKERFILE = worlds.task(files={"environment/Dockerfile": "FROM python:3.12-slim\nENV A=1\nWORKDIR /app\nUSER app\n"})
RECORDED = RecordedImage(
    "registry.example:5000/python:3.12-slim", DIGEST, ImageConfig({"PATH": "/bin", "GOMAXPROCS": "2"}, "/app", "app")
)


RESTRICTED = {"profile": "restricted", "runAsUser": 1000, "emptyDirs": ["/work", "/app"]}
ACCELERATED = worlds.task(
    "environment.gpus = 2",
    'environment.gpu_types = ["NVIDIA-L4", "NVIDIA-A100-SXM4-40GB"]',
    'environment.tpu = { type = "tpu-v5-lite-podslice", topology = "2x4" }',
)
ACCELERATED_OPTIONS = {
    "nodeSelector": {"disk": "ssd"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                ]
            }
        }
    },
}


def confined(profile, uid=None, *, record=False):
    return dataclasses.replace(PLAN, profile=profile, uid=uid, record=record)


def made(plan=PLAN, *, task=worlds.TASK, recorded=None, settings=None, **spec):
    run = worlds.run(worlds.queued(), **spec)
    return pod.manifest(run, task, settings or Settings(), plan, recorded)


def restriction(network, gateway=""):
    """Of the run's network. `gateway`: its address."""
    owner = {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "name": "fix-bug", "uid": "uid-run"}
    return Restriction(network, owner, {"uid-2": "10.244.1.9", "uid-1": "fd00::9"}, gateway)


VARIANTS = {
    "plain": made(),
    "record": made(pod.PodPlan("fix-bug-1-1", 1, record=True, image_volumes=True, limit_seconds=1)),
    "copy": made(pod.PodPlan("fix-bug-2-3", 2, record=True, image_volumes=False, limit_seconds=1)),
    "options": made(pod=OPTIONS),
    "limits": made(task=LIMITED, multipliers={"resource": 2}),
    "dockerfile": made(task=DOCKERFILE, recorded=RECORDED, podRetention="Always"),
    "userns": made(confined(SecurityProfile.USERNS, record=True)),
    "restricted": made(confined(SecurityProfile.RESTRICTED, 1000, record=True), security=RESTRICTED),
    "restricted-image-user": made(confined(SecurityProfile.RESTRICTED, record=True), agent={"oracle": {}}),
    "no-network": made(dataclasses.replace(PLAN, record=True, restriction=restriction(NO_NETWORK))),
    "allowlist": made(dataclasses.replace(PLAN, image_volumes=False, restriction=restriction(ALLOWLIST, "10.96.1.2"))),
    "accelerators": made(task=ACCELERATED, multipliers={"resource": 2}, pod=ACCELERATED_OPTIONS),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_manifest_is_the_golden_one(name):
    path = GOLDENS / f"{name}.yaml"
    if os.environ.get("TASKFOLD_GOLDENS") == "write":
        path.write_text(yaml.safe_dump(VARIANTS[name], sort_keys=False, width=110))
    assert VARIANTS[name] == yaml.safe_load(path.read_text())


def test_every_golden_is_tested():
    assert {path.stem for path in GOLDENS.glob("*.yaml")} == set(VARIANTS)


# -- what holds of every pod ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", VARIANTS.values(), ids=VARIANTS)
def test_every_pod_is_confined(manifest):
    spec = manifest["spec"]
    assert spec["restartPolicy"] == "Never"
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec.get("hostUsers", False) is False
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert "NET_RAW" not in container["securityContext"]["capabilities"].get("add", ())
        assert not container["securityContext"].get("privileged", False)
        assert {"memory", "ephemeral-storage"} <= set(container["resources"]["limits"])
        assert {"cpu", "memory", "ephemeral-storage"} <= set(container["resources"]["requests"])
    for volume in spec["volumes"]:
        assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"]
        assert "hostPath" not in volume


@pytest.mark.parametrize("manifest", VARIANTS.values(), ids=VARIANTS)
def test_every_pod_is_found_and_owned(manifest):
    metadata = manifest["metadata"]
    assert metadata["labels"]["taskfold.dev/run"] == worlds.NAME
    assert metadata["labels"]["taskfold.dev/run-uid"] == worlds.UID
    assert metadata["labels"]["taskfold.dev/protocol"] == "1"
    assert metadata["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["kind"], owner["controller"]) == (worlds.UID, "TaskRun", True)


@pytest.mark.parametrize("manifest", VARIANTS.values(), ids=VARIANTS)
def test_main_starts_with_the_helper_mounted_read_only(manifest):
    (main,) = manifest["spec"]["containers"]
    assert main["name"] == "main"
    assert main["command"] == ["/.taskfold/helper", "init", "--name", "main"]
    assert main["volumeMounts"][0] == {"name": "helper", "mountPath": "/.taskfold", "readOnly": True}


def test_the_record_runs_as_the_images_own_user():
    (record,) = VARIANTS["record"]["spec"]["initContainers"]
    assert "runAsUser" not in record["securityContext"]
    assert record["image"] == VARIANTS["record"]["spec"]["containers"][0]["image"]


@pytest.mark.parametrize(
    ("retention", "expected"), [("Never", 29_401 + 3600 + 86_400), ("OnFailure", None), ("Always", None)]
)
def test_a_pod_has_a_deadline_unless_it_is_kept(retention, expected):
    assert made(podRetention=retention)["spec"].get("activeDeadlineSeconds") == expected


@pytest.mark.parametrize("retention", ["Never", "Always"])
def test_a_pod_that_somebody_outside_works_in_has_none(retention):
    assert "activeDeadlineSeconds" not in made(agent={"external": {}}, podRetention=retention)["spec"]


# -- profiles ------------------------------------------------------------------------------------------------------


def admitted_by_restricted(spec, container):
    """What Pod Security "restricted" asks of a container, as its documentation lists it."""
    context, of_pod = container["securityContext"], spec["securityContext"]
    return (
        context["allowPrivilegeEscalation"] is False
        and context["capabilities"] == {"drop": ["ALL"]}
        and (context.get("runAsNonRoot") or of_pod.get("runAsNonRoot")) is True
        and context.get("runAsUser") != 0
        and (context.get("seccompProfile") or of_pod["seccompProfile"])["type"] == "RuntimeDefault"
    )


@pytest.mark.parametrize("image_volumes", [True, False])
@pytest.mark.parametrize("uid", [None, 1000])
def test_every_container_of_a_restricted_pod_is_restricted(uid, image_volumes):
    plan = dataclasses.replace(confined(SecurityProfile.RESTRICTED, uid, record=True), image_volumes=image_volumes)
    spec = made(plan)["spec"]
    waiter = pod.waiter(worlds.AGENT, Settings().helper)
    for container in [*spec["initContainers"], *spec["containers"], waiter]:
        assert admitted_by_restricted(spec, container), container["name"]
    assert all({"emptyDir", "image"} & set(volume) for volume in spec["volumes"])


def test_a_restricted_pod_with_a_chosen_user_records_none():
    """The image's own user may be root, whom the pod would not start as."""
    assert made(confined(SecurityProfile.RESTRICTED, 1000, record=True))["spec"]["initContainers"] == []


@pytest.mark.parametrize("profile", [SecurityProfile.ROOT, SecurityProfile.USERNS])
def test_only_restricted_has_folders_that_hide_those_of_the_image(profile):
    assert len(made(confined(profile))["spec"]["volumes"]) == 1


def test_userns_is_root_in_a_user_namespace_and_nothing_else():
    root, userns = made()["spec"], made(confined(SecurityProfile.USERNS))["spec"]
    assert userns == {**root, "hostUsers": False}


# -- resources -----------------------------------------------------------------------------------------------------


def resources(task=worlds.TASK, **more):
    found = made(task=task, **more)["spec"]["containers"][0]["resources"]
    return found["requests"], found["limits"]


@pytest.mark.parametrize(
    ("megabytes", "gibibytes"), [(1, "1Gi"), (1024, "1Gi"), (1025, "2Gi"), (10_240, "10Gi")], ids=str
)
def test_storage_is_whole_gibibytes(megabytes, gibibytes):
    _, limits = resources(worlds.task(f"environment.storage_mb = {megabytes}"))
    assert limits["ephemeral-storage"] == gibibytes


def test_the_multiplier_scales_the_tasks_resources_only():
    requests, limits = resources(worlds.task("environment.cpus = 0.5"), multipliers={"resource": 3})
    assert (requests["cpu"], limits["cpu"]) == ("1500m", "1500m")
    assert (requests["memory"], limits["memory"]) == ("256Mi", "4Gi")


def test_a_fraction_reserves_less_than_the_limit():
    shared = Settings.model_validate({"pod": {"cpuRequestFraction": 0.25}})
    requests, limits = resources(worlds.task("environment.cpus = 2"), settings=shared)
    assert (requests["cpu"], limits["cpu"]) == ("500m", "2000m")


@pytest.mark.parametrize("resource", ["memory", "ephemeral-storage"])
def test_a_runs_own_limit_is_not_below_the_request(resource):
    requests, limits = resources(pod={"resources": {"limits": {resource: "128Mi"}}})
    assert limits[resource] == "128Mi"
    assert requests[resource] == "128Mi"  # what Kubernetes itself does when only a limit is given


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_gpus_are_an_extended_resource_that_no_multiplier_scales(gpus):
    own = Settings.model_validate({"pod": {"gpuResource": "amd.com/gpu"}})
    task = worlds.task(f"environment.gpus = {gpus}", 'environment.gpu_types = ["MI300X"]')
    requests, limits = resources(task, settings=own, multipliers={"resource": 3})
    wanted = {"amd.com/gpu": str(gpus)} if gpus else {}
    assert {name: value for name, value in limits.items() if "gpu" in name} == wanted
    assert {name: value for name, value in requests.items() if "gpu" in name} == wanted
    assert ("affinity" in made(task=task)["spec"]) == bool(gpus)


def test_the_runs_own_number_of_gpus_wins():
    task = worlds.task("environment.gpus = 4")
    requests, limits = resources(task, pod={"resources": {"limits": {"nvidia.com/gpu": 1}}})
    assert (requests["nvidia.com/gpu"], limits["nvidia.com/gpu"]) == ("1", "1")


def test_a_type_of_a_gpu_means_what_the_operator_says():
    own = Settings.model_validate({"pod": {"gpuTypeLabel": "gpu", "gpuTypes": {"H100": ["H100-PCIe", "H100-SXM"]}}})
    task = worlds.task("environment.gpus = 1", 'environment.gpu_types = ["H100", "L4", "L4"]')
    (term,) = made(task=task, settings=own)["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["H100-PCIe", "H100-SXM", "L4"]}]}


def test_the_type_of_a_gpu_is_asked_for_in_every_term_of_the_run():
    terms = VARIANTS["accelerators"]["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert len(terms) == 2
    for term in terms:
        assert term["matchExpressions"][-1]["values"] == ["NVIDIA-L4", "NVIDIA-A100-SXM4-40GB"]


def test_a_tpu_is_its_chips_and_two_labels():
    spec = VARIANTS["accelerators"]["spec"]
    assert spec["containers"][0]["resources"]["limits"]["google.com/tpu"] == "8"
    assert spec["nodeSelector"] == {
        "disk": "ssd",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }


# -- variables -----------------------------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True)
SECRETS = st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True).map(lambda name: f"secret-of-{name}")


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(NAMES, st.tuples(NAMES, st.booleans()), max_size=5),
    st.dictionaries(NAMES, st.sampled_from(["a", "b c", "x${Y}", "$Z", "$(A)", "$$(A)"]), max_size=5),
)
def test_what_a_template_could_fill_is_never_in_a_manifest(templates, literals):
    values = {
        **literals,
        **{name: f"${{{wanted}{':-a-default' if default else ''}}}" for name, (wanted, default) in templates.items()},
    }
    table = ", ".join(f"{name} = '{value}'" for name, value in values.items())
    manifest = made(task=worlds.task(f"environment.env = {{ {table} }}", "verifier.env = { V = '${SECRET}' }"))
    env = {each["name"]: each["value"] for each in manifest["spec"]["containers"][0]["env"]}
    assert not [value for value in env.values() if "$" in value.replace("$$", "")], "Kubernetes would expand it"
    as_written = {name: value.replace("$$", "$") for name, value in env.items()}
    assert as_written == {name: value for name, value in literals.items() if name not in templates}
    assert "a-default" not in str(manifest)
    assert "SECRET" not in str(manifest)


def test_hints_lose_to_the_image_on_record_and_to_the_task():
    env = {
        each["name"]: each["value"] for each in made(task=LIMITED, recorded=RECORDED)["spec"]["containers"][0]["env"]
    }
    assert (env["GOMAXPROCS"], env["OMP_NUM_THREADS"], env["PATH"]) == ("7", "1", "/bin")


def test_a_recorded_image_is_pinned():
    (main,) = VARIANTS["dockerfile"]["spec"]["containers"]
    assert main["image"] == f"registry.example:5000/python@{DIGEST}"


def test_a_container_that_waits_has_no_rights_and_nothing_of_the_run():
    helper = Settings().helper.model_copy(update={"image": "registry.example/helper@" + DIGEST})
    found = pod.waiter(worlds.AGENT, helper)
    assert found == {
        "name": "wait-" + worlds.AGENT[:12],
        "image": helper.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/helper", "wait", "--name", "main", "--nonce", worlds.AGENT],
        "securityContext": {
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "runAsNonRoot": True,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
