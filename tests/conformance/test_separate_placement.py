"""A verifier's own pod that finds no place after the agent's work: the run waits, or stays gradable; nothing is lost.

A quota that never has room for it is in test_regrade.py.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from taskfold.conformance.cases import separate
from tests.conformance import ahead, harness
from tests.conformance.facts import document
from tests.conformance.harness import IMAGE, script, task

pytestmark = pytest.mark.timeout(300)

ANSWER = script("echo 42 > answer")
TEST = "grep -qx 42 /app/answer && echo 1 > /logs/verifier/reward.txt\n"


@pytest.fixture(scope="module")
def operator(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """One that reserves little, in a namespace of its own."""
    running = harness.Operator(tmp_path_factory.mktemp("operator"), cluster.kubeconfig, [own_namespace])
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def impatient(
    cluster: harness.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, harness.Operator]]:
    """Another namespace, whose operator waits for a place for a few seconds only."""
    namespace = cluster.create_namespace()
    limits = {"queueSeconds": 8}
    running = harness.Operator(tmp_path_factory.mktemp("impatient"), cluster.kubeconfig, [namespace], limits=limits)
    running.start()
    yield namespace, running
    running.stop()
    cluster.delete_namespace(namespace)


def files(own: str | None = None) -> dict[str, str]:
    """A task that is verified separately. `own`: of [verifier.environment]."""
    return task(TEST) | {"task.toml": separate.toml(artifacts='"/app/answer"', own=own)}


def answer_is_kept(operator: harness.Operator, status: dict[str, Any]) -> None:
    """The agent's work is in the store, equal by digest, and the failure says how to go on with it."""
    place = operator.store / status["store"]
    (entry,) = [each for each in document(operator, status, "artifacts.json")["artifacts"] if each["status"] == "ok"]
    content = (place / entry["archive"]["key"]).read_bytes()
    assert (entry["source"], entry["size"]) == ("/app/answer", 3)
    assert entry["sha256"] == hashlib.sha256(b"42\n").hexdigest()
    assert entry["archive"]["sha256"] == hashlib.sha256(content).hexdigest()
    with tarfile.open(place / entry["archive"]["key"]) as tar:
        assert [tar.extractfile(member).read() for member in tar] == [b"42\n"]  # type: ignore[union-attr]
    assert json.loads((place / "row.json").read_text())["masked"] is True


def test_a_quota_with_room_for_one_pod_is_enough(
    cluster: harness.Cluster, own_namespace: str, operator: harness.Operator, name: str
) -> None:
    """The second pod is refused for as long as the agent's is there; the run goes on once that is gone."""
    quota = {"metadata": {"name": "one-pod"}, "spec": {"hard": {"pods": "1"}}}
    cluster.core.create_namespaced_resource_quota(own_namespace, quota)
    try:
        cluster.until(
            lambda: (cluster.core.read_namespaced_resource_quota("one-pod", own_namespace).status.hard or {}).get(
                "pods"
            ),
            "the quota is in force",
        )
        cluster.create_run(own_namespace, name, harness.spec(files(), ANSWER))
        status = cluster.finished(own_namespace, name)
    finally:
        cluster.core.delete_namespaced_resource_quota("one-pod", own_namespace)
    assert (status["reward"], status["verifier"]["mode"]) == ("1", "separate"), status
    verifier = cluster.verifier(own_namespace, f"{name}-1-verify")["status"]
    assert verifier["attempts"][0]["tries"] == 1
    said = cluster.core.list_namespaced_event(own_namespace, field_selector="reason=QuotaExceeded").items
    assert {f"{name}-1-verify"} == {each.involved_object.name for each in said}


def test_a_verifier_that_fits_no_node_is_masked_and_its_agents_work_kept(
    cluster: harness.Cluster, impatient: tuple[str, harness.Operator], name: str
) -> None:
    namespace, operator = impatient
    own = f'docker_image = "{IMAGE}"\nworkdir = "/app"\ncpus = 40000\n'
    cluster.create_run(namespace, name, harness.spec(files(own), ANSWER))
    status = cluster.finished(namespace, name)
    assert ahead.failure(status) == ("provider_unavailable", "Unschedulable", "verification")
    assert "node" in status["failure"]["message"]
    assert f"taskfold regrade {name}" in status["failure"]["message"]
    assert cluster.pods(namespace, name) == []
    answer_is_kept(operator, status)


def test_a_verifier_whose_image_cannot_be_pulled_is_masked_and_its_agents_work_kept(
    cluster: harness.Cluster, impatient: tuple[str, harness.Operator], name: str
) -> None:
    namespace, operator = impatient
    own = f'docker_image = "{separate.TEST}/absent:1"\nbuild_timeout_sec = 4\n'
    cluster.create_run(namespace, name, harness.spec(files(own), ANSWER))
    status = cluster.finished(namespace, name)
    assert ahead.failure(status) == ("provider_unavailable", "ImagePullFailed", "verification")
    assert "absent" in status["failure"]["message"]
    assert f"taskfold regrade {name}" in status["failure"]["message"]
    answer_is_kept(operator, status)
