"""What is left behind runs, on the real cluster: orphans, times to live, leftovers, pods that are kept, stuck pods."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.conformance import harness
from tests.conformance.harness import NOP, script, spec, task

ONE = "echo 1 > /logs/verifier/reward.txt\n"
FOREVER = "sleep 600\n"


@pytest.fixture(scope="module")
def tidy(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """An operator whose rounds come fast."""
    rounds = {"janitor": {"finishedSeconds": 2}, "resyncSeconds": 2, "limits": {"deletionSeconds": 3}}
    operator = harness.Operator(tmp_path_factory.mktemp("operator"), cluster.kubeconfig, [own_namespace], **rounds)
    operator.start()
    yield operator
    operator.stop()


def gone(cluster: harness.Cluster, namespace: str, run: str) -> bool:
    try:
        cluster.run(namespace, run)
    except ApiException as error:
        return bool(error.status == 404)
    return False


def delete_and_orphan(cluster: harness.Cluster, namespace: str, run: str) -> None:
    """`kubectl delete --cascade=orphan`."""
    cluster.custom.delete_namespaced_custom_object(
        harness.GROUP, harness.VERSION, namespace, "taskruns", run, propagation_policy="Orphan"
    )
    cluster.until(lambda: gone(cluster, namespace, run), "the run is gone")


@pytest.mark.parametrize("retention", ["Never", "Always"])
def test_the_pod_of_a_run_that_was_deleted_without_its_children_goes(
    cluster: harness.Cluster, own_namespace: str, tidy: harness.Operator, name: str, retention: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), script(FOREVER), podRetention=retention))
    cluster.in_phase(own_namespace, name, "Running")
    delete_and_orphan(cluster, own_namespace, name)
    cluster.until(lambda: not cluster.pods(own_namespace, name), "its pod is gone")


def test_a_pod_that_only_looks_like_ours_stays(
    cluster: harness.Cluster, own_namespace: str, tidy: harness.Operator, name: str
) -> None:
    labels = {"taskfold.dev/run": name, "taskfold.dev/run-uid": "none", "app.kubernetes.io/managed-by": "taskfold"}
    container = {"name": "main", "image": harness.IMAGE, "command": ["sleep", "600"]}
    pod = {"metadata": {"name": f"{name}-tool", "labels": labels}, "spec": {"containers": [container]}}
    cluster.core.create_namespaced_pod(own_namespace, pod)
    cluster.create_run(own_namespace, f"{name}-b", spec(task(ONE), script(FOREVER)))
    cluster.in_phase(own_namespace, f"{name}-b", "Running")
    delete_and_orphan(cluster, own_namespace, f"{name}-b")
    cluster.until(lambda: not cluster.pods(own_namespace, f"{name}-b"), "a round has deleted what is ours")
    assert [each.metadata.deletion_timestamp for each in cluster.pods(own_namespace, name)] == [None]
    cluster.core.delete_namespaced_pod(f"{name}-tool", own_namespace, grace_period_seconds=0)


def test_a_time_to_live_that_is_set_after_the_end_counts(
    cluster: harness.Cluster, own_namespace: str, tidy: harness.Operator, name: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), NOP))
    cluster.finished(own_namespace, name)
    cluster.patch_run(own_namespace, name, {"ttlSecondsAfterFinished": 0})
    cluster.until(lambda: gone(cluster, own_namespace, name), "the run is gone")


def test_a_run_whose_time_ended_while_no_operator_lived_goes_at_the_start(
    cluster: harness.Cluster, own_namespace: str, tidy: harness.Operator, name: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), NOP))
    cluster.finished(own_namespace, name)
    tidy.kill()
    cluster.patch_run(own_namespace, name, {"ttlSecondsAfterFinished": 0})
    tidy.start()
    cluster.until(lambda: gone(cluster, own_namespace, name), "the run is gone")


def test_a_kept_pod_stays_until_its_run_says_otherwise(
    cluster: harness.Cluster, own_namespace: str, tidy: harness.Operator, name: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), NOP, podRetention="Always"))
    cluster.create_run(own_namespace, f"{name}-b", spec(task(ONE), NOP))
    cluster.finished(own_namespace, name)
    cluster.finished(own_namespace, f"{name}-b")
    cluster.patch_run(own_namespace, f"{name}-b", {"ttlSecondsAfterFinished": 0})
    cluster.until(lambda: gone(cluster, own_namespace, f"{name}-b"), "a round has passed")
    assert [each.metadata.deletion_timestamp for each in cluster.pods(own_namespace, name)] == [None]
    cluster.patch_run(own_namespace, name, {"podRetention": "Never"})
    cluster.until(lambda: not cluster.pods(own_namespace, name), "its pod is gone")


def events(cluster: harness.Cluster, namespace: str, run: str) -> list[Any]:
    found = cluster.core.list_namespaced_event(namespace, field_selector=f"involvedObject.name={run}")
    return [each for each in found.items if each.reason == "CleanupPending" and "should be gone since" in each.message]


def test_a_pod_that_does_not_go_is_told_and_goes_once_it_can(
    cluster: harness.Cluster, own_namespace: str, tidy: harness.Operator, name: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), script(FOREVER)))
    cluster.in_phase(own_namespace, name, "Running")
    (pod,) = cluster.pods(own_namespace, name)
    held = {"metadata": {"finalizers": ["example.org/hold"]}}
    cluster.core.patch_namespaced_pod(pod.metadata.name, own_namespace, held)
    cluster.patch_run(own_namespace, name, {"cancel": True})
    status = cluster.finished(own_namespace, name)
    assert any("did not go away in time" in each for each in status["warnings"])
    cluster.until(lambda: events(cluster, own_namespace, name), "an Event tells")
    assert cluster.pods(own_namespace, name)
    cluster.core.patch_namespaced_pod(pod.metadata.name, own_namespace, {"metadata": {"finalizers": None}})
    cluster.until(lambda: not cluster.pods(own_namespace, name), "its pod is gone")
