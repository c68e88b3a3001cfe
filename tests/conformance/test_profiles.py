"""Security profiles and accelerators, as a cluster enforces and schedules them."""

from collections.abc import Iterator
from typing import Any

import kubernetes.client as k8s
import pytest
from kubernetes.client.exceptions import ApiException

from tests.conformance import ahead, harness
from tests.conformance.facts import broken, facts
from tests.conformance.harness import IMAGE, NOP, ORACLE, script, task

ENFORCE = "pod-security.kubernetes.io/enforce"
GPU, TYPE = "example.test/gpu", "example.test/gpu-type"
ONE = "echo 1 > /logs/verifier/reward.txt"
PLAIN = f'[environment]\ndocker_image = "{IMAGE}"\n'
QUEUE_SECONDS = 60
"""Room for a scheduler that has much else to do."""

pytestmark = pytest.mark.timeout(300)


def restricted(uid: int = 1000, *folders: str) -> dict[str, Any]:
    return {"profile": "restricted", "runAsUser": uid, "emptyDirs": list(folders)}


# -- a namespace that enforces Pod Security "restricted" -----------------------------------------------------------


@pytest.fixture(scope="module", params=["imageVolume", "copy"])
def enforced(
    request: pytest.FixtureRequest, cluster: harness.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Such a namespace with an operator, for each way in which the helper gets into a pod."""
    namespace = cluster.create_namespace()
    cluster.core.patch_namespace(namespace, {"metadata": {"labels": {ENFORCE: "restricted"}}})
    running = harness.Operator(
        tmp_path_factory.mktemp("enforced"),
        cluster.kubeconfig,
        [namespace],
        helper={"image": harness.helper_image(), "mount": request.param},
        waiting={"streamSeconds": 0},
    )
    running.start()
    yield namespace
    running.stop()
    cluster.delete_namespace(namespace)


def test_restricted_pods_are_admitted_and_graded(cluster: harness.Cluster, enforced: str, name: str) -> None:
    """The container that waits for the agent's end, too: no stream waits for it here."""
    agent = script("id -u > x; sleep 5")
    files = task(facts(agent='[ "$(cat /app/x)" = 1000 ]'), toml=PLAIN + 'workdir = "/app"\n')
    cluster.create_run(enforced, name, harness.spec(files, agent, security=restricted(1000, "/app")))
    cluster.create_run(
        enforced, f"{name}-oracle", harness.spec(task(ONE, solve="true", toml=PLAIN), ORACLE, security=restricted())
    )

    def waiters() -> list[Any]:
        return [each for pod in cluster.pods(enforced, name) for each in pod.spec.ephemeral_containers or ()]

    cluster.until(waiters, "a container waits for the agent's end")
    status = ahead.verdict(cluster, enforced, name)
    assert not broken(status)
    assert ahead.verdict(cluster, enforced, f"{name}-oracle")["reward"] == "1"


def test_other_profiles_are_refused_there_with_the_remedy(cluster: harness.Cluster, enforced: str, name: str) -> None:
    for profile in ("root", "userns"):
        files = task(ONE, toml=PLAIN)
        cluster.create_run(enforced, f"{name}-{profile}", harness.spec(files, NOP, security={"profile": profile}))
    for profile in ("root", "userns"):
        status = ahead.verdict(cluster, enforced, f"{name}-{profile}")
        assert ahead.failure(status) == (None, "PodRejected", "seed")
        assert "spec.security.profile: restricted" in status["failure"]["message"]


# -- the operator's default ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def defaults(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """An operator with a default profile, accelerators of its own, and short waits."""
    pod = {
        "securityProfile": "userns",
        "gpuResource": GPU,
        "gpuTypeLabel": TYPE,
        "gpuTypes": {"big": ["big-40", "big-80"]},
    }
    running = harness.Operator(
        tmp_path_factory.mktemp("defaults"),
        cluster.kubeconfig,
        [own_namespace],
        pod={"cpuRequest": "20m", **pod},
        limits={"queueSeconds": QUEUE_SECONDS, "seedTries": 1},
    )
    running.start()
    yield running
    running.stop()


def test_the_operators_default_is_the_runs_profile_unless_it_names_one(
    cluster: harness.Cluster, own_namespace: str, defaults: harness.Operator, name: str
) -> None:
    mapped = facts(mapped="[ \"$(awk '{print ($2 > 0)}' /proc/1/uid_map)\" = 1 ]")
    cluster.create_run(own_namespace, name, harness.spec(task(mapped), NOP))
    unmapped = mapped.replace("= 1 ]", "= 0 ]")
    cluster.create_run(own_namespace, f"{name}-root", harness.spec(task(unmapped), NOP, security={"profile": "root"}))
    assert not broken(ahead.verdict(cluster, own_namespace, name))
    assert not broken(ahead.verdict(cluster, own_namespace, f"{name}-root"))


@pytest.fixture
def ignorant(cluster: harness.Cluster, own_namespace: str) -> Iterator[None]:
    """The wish for a user namespace is lost in this namespace, as API servers and kubelets before 1.33 lose it."""
    name = f"no-{own_namespace}"
    policies = k8s.AdmissionregistrationV1Api(cluster.core.api_client)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    lose = 'has(object.spec.hostUsers) ? [JSONPatch{op: "remove", path: "/spec/hostUsers"}] : []'
    policies.create_mutating_admission_policy(
        {
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": lose}}],
            },
        }
    )
    here = {"matchLabels": {"kubernetes.io/metadata.name": own_namespace}}
    policies.create_mutating_admission_policy_binding(
        {"metadata": {"name": name}, "spec": {"policyName": name, "matchResources": {"namespaceSelector": here}}}
    )
    pod = {
        "metadata": {"name": "any"},
        "spec": {"hostUsers": False, "containers": [{"name": "main", "image": IMAGE}]},
    }

    def loses() -> bool:
        made = cluster.core.create_namespaced_pod(own_namespace, pod, dry_run="All")
        return made.spec.host_users is None

    try:
        cluster.until(loses, "the wish is lost")
        yield
    finally:
        policies.delete_mutating_admission_policy_binding(name)
        policies.delete_mutating_admission_policy(name)


def test_a_cluster_that_ignores_the_wish_runs_nothing_of_the_task(
    cluster: harness.Cluster, own_namespace: str, defaults: harness.Operator, ignorant: None, name: str
) -> None:
    cluster.create_run(own_namespace, name, harness.spec(task(ONE), script("true")))
    status = ahead.verdict(cluster, own_namespace, name)
    assert ahead.failure(status) == (None, "NoUserNamespace", "seed")
    assert "Kubernetes 1.33" in status["failure"]["message"]
    assert "agent" not in status.get("timings", {})


# -- accelerators --------------------------------------------------------------------------------------------------


@pytest.fixture
def accelerated(cluster: harness.Cluster) -> Iterator[str]:
    """A node that says that it has two of an extended resource, of one type; taken back in the end."""
    node = sorted(each.metadata.name for each in cluster.core.list_node().items)[-1]
    capacity = f"/status/capacity/{GPU.replace('/', '~1')}"
    patch = [{"op": "add", "path": capacity, "value": "2"}]
    cluster.core.patch_node_status(node, patch)
    cluster.core.patch_node(node, {"metadata": {"labels": {TYPE: "big-80"}}})

    def can_be_had() -> bool:
        return GPU in (cluster.core.read_node(node).status.allocatable or {})

    cluster.until(can_be_had, "the resource can be had")
    try:
        yield node
    finally:
        cluster.core.patch_node_status(node, [{"op": "remove", "path": capacity}])
        cluster.core.patch_node(node, {"metadata": {"labels": {TYPE: None}}})
        cluster.until(lambda: not can_be_had(), "the resource is gone")


def gpus(number: int, *types: str) -> dict[str, str]:
    return task(ONE, toml=f"{PLAIN}gpus = {number}\ngpu_types = {list(types)}\n")


def test_a_task_with_gpus_runs_on_a_node_that_has_them(
    cluster: harness.Cluster, own_namespace: str, defaults: harness.Operator, accelerated: str, name: str
) -> None:
    cluster.create_run(
        own_namespace,
        name,
        harness.spec(gpus(2, "small", "big"), NOP, multipliers={"resource": 3}, podRetention="Always"),
    )
    status = ahead.verdict(cluster, own_namespace, name)
    assert (status.get("reward"), status.get("nodeName")) == ("1", accelerated), status
    (pod,) = cluster.pods(own_namespace, name)
    assert pod.spec.containers[0].resources.limits[GPU] == "2"
    cluster.delete_run(own_namespace, name)


@pytest.mark.parametrize(("number", "types"), [(3, ("big",)), (1, ("small",)), (1, ("big-8",))])
def test_a_task_with_gpus_that_no_node_has_waits_and_says_so(
    cluster: harness.Cluster,
    own_namespace: str,
    defaults: harness.Operator,
    accelerated: str,
    name: str,
    number: int,
    types: tuple[str, ...],
) -> None:
    cluster.create_run(own_namespace, name, harness.spec(gpus(number, *types), NOP))
    wanted = f"Insufficient {GPU}" if number > 2 else "didn't match Pod's node affinity/selector"
    assert wanted in cluster.shown(own_namespace, name, "Unschedulable")
    cluster.delete_run(own_namespace, name)


def test_a_task_with_gpus_on_a_cluster_without_them(
    cluster: harness.Cluster, own_namespace: str, defaults: harness.Operator, name: str
) -> None:
    cluster.create_run(own_namespace, name, harness.spec(gpus(1), NOP))
    assert f"Insufficient {GPU}" in cluster.shown(own_namespace, name, "Unschedulable")
    cluster.delete_run(own_namespace, name)


# -- the schema ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("security", "says"),
    [
        ({"profile": "root", "runAsUser": 5}, "runAsUser belongs to the profile restricted"),
        ({"profile": "userns", "emptyDirs": ["/a"]}, "emptyDirs belongs to the profile restricted"),
        ({"runAsUser": 0}, "greater than or equal to 1"),
        ({"emptyDirs": ["/a/../b"]}, "should match"),
        ({"emptyDirs": ["relative"]}, "should match"),
        ({"emptyDirs": ["/"]}, "should match"),
    ],
)
def test_the_api_server_refuses_what_belongs_to_another_profile(
    cluster: harness.Cluster, own_namespace: str, name: str, security: dict[str, Any], says: str
) -> None:
    with pytest.raises(ApiException) as caught:
        cluster.create_run(own_namespace, name, harness.spec(task(ONE), NOP, security=security))
    assert says in str(caught.value.body)
