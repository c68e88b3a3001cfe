"""`taskfold operator` serves what its own runs left, while it works and while it stands by."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import kubernetes.client as k8s
import pytest
import yaml

from tests.conformance import harness
from tests.reading import scene, stored
from tests.reading.test_on_cluster import path


@pytest.fixture(scope="module")
def working(
    cluster: harness.Cluster, other_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """A whole operator that serves results."""
    running = whole(cluster, other_namespace, tmp_path_factory.mktemp("working"))
    running.start()
    yield running
    running.stop()


def whole(cluster: harness.Cluster, namespace: str, folder: Path, **settings: object) -> harness.Operator:
    certificate, key = scene.self_signed(folder, "serving", "reading", "IP:127.0.0.1")
    reading = {"enabled": True, "port": scene.free_port(), "certificate": str(certificate), "key": str(key)}
    return harness.Operator(folder, cluster.kubeconfig, [namespace], reading=reading, **settings)


def past(running: harness.Operator) -> scene.Login:
    """To its port, with the API server's certificate, as an administrator."""
    reading = yaml.safe_load(running.config.read_text())["reading"]
    folder = scene.local_cluster().certificates
    context = ssl.create_default_context(cafile=reading["certificate"])
    context.load_cert_chain(folder / "front-proxy-client.crt", folder / "front-proxy-client.key")
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    return scene.Login(f"https://127.0.0.1:{reading['port']}", context, headers)


def test_what_a_run_left_is_read_as_it_was_written(
    cluster: harness.Cluster, other_namespace: str, working: harness.Operator
) -> None:
    toml = f'artifacts = ["/app/report.txt"]\n{harness.DEFAULT_TOML}'
    files = harness.task(
        "echo graded; echo 0.5 > /logs/verifier/reward.txt", solve="echo solved; echo r > /app/report.txt", toml=toml
    )
    cluster.create_run(other_namespace, "real", harness.spec(files, harness.ORACLE))
    status = cluster.finished(other_namespace, "real")
    login = past(working)
    index = login.get(path(other_namespace, "real")).json
    (archive,) = index["archives"]
    assert (index["error"], archive["of"], archive["stored"], archive["truncated"]) == ("", "sandbox", True, False)
    content = login.get(path(other_namespace, "real", f"files/{archive['key']}")).body
    assert stored.sha256(content) == archive["sha256"]
    report = next(each for each in index["artifacts"] if each["source"] == "/app/report.txt")
    assert (report["status"], report["type"], report["archive"]["stored"]) == ("ok", "file", True)
    assert login.get(path(other_namespace, "real", "files/row.json")).json["reward"] == 0.5
    assert b"test-stdout.txt <==\ngraded\n" in login.get(path(other_namespace, "real", "log?source=verifier")).body
    assert b"solved\n" in login.get(path(other_namespace, "real", "log?source=agent")).body
    (verifier,) = cluster.custom.list_namespaced_custom_object(
        harness.GROUP, harness.VERSION, other_namespace, "verifierruns"
    )["items"]
    theirs = login.get(path(other_namespace, verifier["metadata"]["name"], "log?source=verifier", "verifierruns"))
    assert b"graded\n" in theirs.body
    assert status["reward"] == "0.5"


def test_who_stands_by_serves_too(
    cluster: harness.Cluster, other_namespace: str, working: harness.Operator, tmp_path: Path
) -> None:
    lease = {"enabled": True, "leaseName": "reading", "leaseNamespace": other_namespace}
    body = {
        "metadata": {"name": "reading"},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600},
    }
    k8s.CoordinationV1Api(cluster.core.api_client).create_namespaced_lease(other_namespace, body)
    store = {"url": f"file://{working.store}"}
    idle = whole(cluster, other_namespace, tmp_path, leaderElection=lease, store=store)
    idle.start()
    try:
        login = past(idle)

        def serves() -> bool:
            with contextlib.suppress(OSError):
                return login.get("/healthz").status == 200
            return False

        cluster.until(serves, "it serves")
        assert login.get(path(other_namespace, "real", "files/row.json")).json["reward"] == 0.5
    finally:
        idle.stop()
    assert idle.ended_with == 0, "readers do not keep it from ending"
