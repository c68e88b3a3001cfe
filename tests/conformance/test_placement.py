"""Before there is a pod: suspension, quota, scheduling, name conflicts. Every wait is visible and has an end."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.harness import NOP, script, task

ONE = task("echo 1 > /logs/verifier/reward.txt")
NOWHERE = {"nodeSelector": {"example.com/there-is": "no-such-node"}}
QUEUE_SECONDS = 8


@pytest.fixture(scope="module")
def impatient(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """An operator with short waits and two start slots, in a namespace of its own."""
    running = harness.Operator(
        tmp_path_factory.mktemp("impatient"),
        cluster.kubeconfig,
        [own_namespace],
        limits={"queueSeconds": QUEUE_SECONDS, "sourceSeconds": 3},
        concurrency={"podStarts": 2},
    )
    running.start()
    yield running
    running.stop()


def create(cluster: harness.Cluster, namespace: str, name: str, agent: Any = NOP, **more: Any) -> None:
    cluster.create_run(namespace, name, harness.spec(ONE, agent, **more))


def shown(cluster: harness.Cluster, namespace: str, name: str, reason: str) -> str:
    """The message of a condition with this reason, as soon as there is one."""

    def message() -> str | None:
        conditions = cluster.status(namespace, name).get("conditions", ())
        return next((each["message"] for each in conditions if each["reason"] == reason), None)

    return str(cluster.until(message, f"TaskRun {name} shows {reason}"))


def test_a_suspended_run_has_no_pod_until_it_is_resumed(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    create(cluster, namespace, name, suspend=True)
    assert "suspend" in shown(cluster, namespace, name, "Suspended")
    assert cluster.pods(namespace, name) == []
    cluster.patch_run(namespace, name, {"suspend": False})
    assert ahead.verdict(cluster, namespace, name)["reward"] == "1"


def test_a_quota_that_is_exceeded_is_visible_and_waited_for(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    quota = {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}}
    cluster.core.create_namespaced_resource_quota(own_namespace, quota)
    cluster.until(
        lambda: (cluster.core.read_namespaced_resource_quota("no-pods", own_namespace).status.hard or {}).get("pods"),
        "the quota is in force",
    )
    create(cluster, own_namespace, name)
    create(cluster, own_namespace, f"{name}-late")
    assert "no-pods" in shown(cluster, own_namespace, name, "QuotaExceeded")
    cluster.core.patch_namespaced_resource_quota("no-pods", own_namespace, {"spec": {"hard": {"pods": "10"}}})
    try:
        assert ahead.verdict(cluster, own_namespace, name)["reward"] == "1"
        assert ahead.verdict(cluster, own_namespace, f"{name}-late")["reward"] == "1"
    finally:
        cluster.core.delete_namespaced_resource_quota("no-pods", own_namespace)


def test_a_quota_that_stays_exceeded_ends_the_wait(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    quota = {"metadata": {"name": "never"}, "spec": {"hard": {"pods": "0"}}}
    cluster.core.create_namespaced_resource_quota(own_namespace, quota)
    try:
        cluster.until(
            lambda: (cluster.core.read_namespaced_resource_quota("never", own_namespace).status.hard or {}).get("pods"),
            "the quota is in force",
        )
        create(cluster, own_namespace, name)
        status = ahead.verdict(cluster, own_namespace, name)
    finally:
        cluster.core.delete_namespaced_resource_quota("never", own_namespace)
    assert ahead.failure(status) == (None, "QuotaExceeded", "seed")
    assert "never" in status["failure"]["message"]
    assert status["failure"]["terminal"] is False


def test_a_pod_that_fits_no_node_is_visible_and_the_wait_has_an_end(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    """Two of them, as many as there are start slots: a third run starts all the same."""
    for number in (1, 2):
        create(cluster, own_namespace, f"{name}-{number}", pod=NOWHERE)
    assert "node" in shown(cluster, own_namespace, f"{name}-1", "Unschedulable")
    create(cluster, own_namespace, f"{name}-3")
    third = ahead.verdict(cluster, own_namespace, f"{name}-3")
    waiting = cluster.status(own_namespace, f"{name}-1")
    assert third["reward"] == "1"
    assert waiting["phase"] in ("Queued", "Seeding")
    status = ahead.verdict(cluster, own_namespace, f"{name}-1")
    assert ahead.failure(status) == (None, "Unschedulable", "seed")
    assert "node" in status["failure"]["message"]
    complete = cluster.finished(own_namespace, f"{name}-1")
    assert complete["complete"] is True
    assert cluster.pods(own_namespace, f"{name}-1") == []


def test_the_time_of_a_suspension_is_no_wait_for_a_place(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator, name: str
) -> None:
    create(cluster, own_namespace, name, suspend=True)
    shown(cluster, own_namespace, name, "Suspended")
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
