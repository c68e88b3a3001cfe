"""Before there is a pod: suspension, quota, scheduling, name conflicts. Every wait is visible and has an end."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.conformance import ahead, harness
from tests.conformance.harness import NOP, script, task

ONE = task("echo 1 > /logs/verifier/reward.txt")
NOWHERE = {"nodeSelector": {"example.com/there-is": "no-such-node"}}
QUEUE_SECONDS = 8

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def impatient(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """An operator with short waits, in a namespace of its own: for runs whose wait has to end."""
    running = harness.Operator(
        tmp_path_factory.mktemp("impatient"),
        cluster.kubeconfig,
        [own_namespace],
        limits={"queueSeconds": QUEUE_SECONDS, "sourceSeconds": 3},
    )
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def patient(cluster: harness.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another namespace, whose operator has two start slots and lets runs wait: no test of it has to be fast."""
    namespace = cluster.create_namespace()
    running = harness.Operator(
        tmp_path_factory.mktemp("patient"), cluster.kubeconfig, [namespace], concurrency={"podStarts": 2}
    )
    running.start()
    yield namespace
    running.stop()
    cluster.delete_namespace(namespace)


def create(cluster: harness.Cluster, namespace: str, name: str, agent: Any = NOP, **more: Any) -> None:
    cluster.create_run(namespace, name, harness.spec(ONE, agent, **more))


def no_pods(cluster: harness.Cluster, namespace: str, quota: str) -> None:
    """A quota of no pods, in force."""
    cluster.core.create_namespaced_resource_quota(
        namespace, {"metadata": {"name": quota}, "spec": {"hard": {"pods": "0"}}}
    )
    pod = {"metadata": {"name": "any"}, "spec": {"containers": [{"name": "main", "image": harness.IMAGE}]}}

    def refused() -> bool:
        try:
            cluster.core.create_namespaced_pod(namespace, pod, dry_run="All")
        except ApiException as error:
            return "exceeded quota" in error.body
        return False

    cluster.until(refused, f"quota {quota} is in force")


def test_a_suspended_run_has_no_pod_until_it_is_resumed(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    create(cluster, namespace, name, suspend=True)
    assert "suspend" in cluster.shown(namespace, name, "Suspended")
    assert cluster.pods(namespace, name) == []
    cluster.patch_run(namespace, name, {"suspend": False})
    assert ahead.verdict(cluster, namespace, name)["reward"] == "1"


def test_a_quota_that_is_exceeded_is_visible_and_waited_for(cluster: harness.Cluster, patient: str, name: str) -> None:
    no_pods(cluster, patient, "no-pods")
    create(cluster, patient, name)
    create(cluster, patient, f"{name}-late")
    assert "no-pods" in cluster.shown(patient, name, "QuotaExceeded")
    cluster.core.patch_namespaced_resource_quota("no-pods", patient, {"spec": {"hard": {"pods": "10"}}})
    try:
        assert ahead.verdict(cluster, patient, name)["reward"] == "1"
        assert ahead.verdict(cluster, patient, f"{name}-late")["reward"] == "1"
    finally:
        cluster.core.delete_namespaced_resource_quota("no-pods", patient)


def test_a_quota_that_stays_exceeded_ends_the_wait(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    no_pods(cluster, own_namespace, "never")
    try:
        create(cluster, own_namespace, name)
        status = ahead.verdict(cluster, own_namespace, name)
    finally:
        cluster.core.delete_namespaced_resource_quota("never", own_namespace)
    assert ahead.failure(status) == (None, "QuotaExceeded", "seed")
    assert "never" in status["failure"]["message"]
    assert status["failure"]["terminal"] is False


def test_pods_that_fit_no_node_are_visible_and_keep_no_other_from_starting(
    cluster: harness.Cluster, patient: str, name: str
) -> None:
    """Two of them, as many as there are start slots: a third run starts all the same."""
    for number in (1, 2):
        create(cluster, patient, f"{name}-{number}", pod=NOWHERE)
    for number in (1, 2):
        assert "node" in cluster.shown(patient, f"{name}-{number}", "Unschedulable")
    create(cluster, patient, f"{name}-3")
    assert ahead.verdict(cluster, patient, f"{name}-3")["reward"] == "1"
    for number in (1, 2):
        assert cluster.status(patient, f"{name}-{number}")["phase"] in ("Queued", "Seeding")
        cluster.delete_run(patient, f"{name}-{number}")


def test_the_wait_of_a_pod_that_fits_no_node_has_an_end(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    create(cluster, own_namespace, name, pod=NOWHERE)
    status = ahead.verdict(cluster, own_namespace, name)
    assert ahead.failure(status) == (None, "Unschedulable", "seed")
    assert "node" in status["failure"]["message"]
    complete = cluster.finished(own_namespace, name)
    assert complete["complete"] is True
    assert cluster.pods(own_namespace, name) == []


def test_the_time_of_a_suspension_is_no_wait_for_a_place(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    create(cluster, own_namespace, name, suspend=True)
    cluster.shown(own_namespace, name, "Suspended")
    create(cluster, own_namespace, f"{name}-clock", pod=NOWHERE)
    ahead.verdict(cluster, own_namespace, f"{name}-clock")  # by now the wait of the suspended one would be over
    cluster.patch_run(own_namespace, name, {"suspend": False})
    status = ahead.verdict(cluster, own_namespace, name)
    assert status.get("reward") == "1", status["failure"]


def test_the_time_of_earlier_tries_is_no_wait_for_a_place(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    create(cluster, own_namespace, name, script("true", install=f"sleep {QUEUE_SECONDS * 0.7}; exit 1"))
    status = ahead.verdict(cluster, own_namespace, name)
    assert ahead.failure(status) == (None, "AgentInstallFailed", "agent")
    assert status["attempts"][-1]["tries"] == 3


def test_a_missing_source_ends_the_wait(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    cluster.create_run(own_namespace, name, {"task": {"configMap": {"name": "nowhere"}}, "agent": NOP})
    create(cluster, own_namespace, f"{name}-env", environmentFrom=[{"secretRef": {"name": "nothing"}}])
    for run, wanted in ((name, "ConfigMap nowhere"), (f"{name}-env", "Secret nothing")):
        status = ahead.verdict(cluster, own_namespace, run)
        assert ahead.failure(status) == (None, "SourceNotFound", "admission")
        assert wanted in status["failure"]["message"]


def test_a_pod_of_somebody_else_under_the_same_name_is_left_alone(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    pod = {
        "metadata": {"name": f"{name}-1-1", "labels": {"mine": "yes"}},
        "spec": {
            "containers": [{"name": "main", "image": harness.IMAGE, "command": ["sleep", "600"]}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    made = cluster.core.create_namespaced_pod(namespace, pod)
    create(cluster, namespace, name)
    status = cluster.finished(namespace, name)
    assert ahead.failure(status) == (None, "NameConflict", "seed")
    assert f"{name}-1-1" in status["failure"]["message"]
    found = cluster.core.read_namespaced_pod(f"{name}-1-1", namespace)
    assert found.metadata.uid == made.metadata.uid
    assert found.metadata.deletion_timestamp is None
    cluster.core.delete_namespaced_pod(f"{name}-1-1", namespace)


def test_a_pod_that_the_cluster_does_not_admit_is_refused_with_its_words(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    create(cluster, namespace, name, pod={"priorityClassName": "no-such-class"})
    status = ahead.verdict(cluster, namespace, name)
    assert ahead.failure(status) == (None, "PodRejected", "seed")
    assert "no-such-class" in status["failure"]["message"]
    assert status["failure"]["terminal"] is True
