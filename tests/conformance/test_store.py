"""Runs on a real cluster whose store is a bucket, is away for a while, is full, and is kept tidy."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests import s3
from tests.conformance import harness
from tests.conformance.harness import NOP, script, spec, task

ONE = "echo 1 > /logs/verifier/reward.txt\n"
SEPARATE = f"""
schema_version = "1.4"
artifacts = ["/app/out.txt"]
[environment]
docker_image = "{harness.IMAGE}"
workdir = "/app"
[verifier]
environment_mode = "separate"
"""
RETENTION = 3
ROOM = 8 * 1024 * 1024


@dataclass
class Bucket:
    """An operator whose store is a bucket behind a proxy."""

    operator: harness.Operator
    server: s3.Server
    proxy: s3.Proxy

    def objects(self, status: dict[str, Any]) -> list[str]:
        """What the bucket holds of this attempt, below its prefix."""
        prefix = f"base/{status['store']}"
        return [key.removeprefix(prefix) for key in s3.objects(self.server) if key.startswith(prefix)]


@pytest.fixture(scope="module")
def away(cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """An operator that keeps what runs leave in a bucket, and for a few seconds only if the run is gone."""
    folder = tmp_path_factory.mktemp("operator")
    with s3.served(folder) as (server, proxy), pytest.MonkeyPatch.context() as environment:
        for name, text in s3.environment().items():
            environment.setenv(name, text)
        options = {"endpoint": proxy.endpoint, "region": "us-east-1", "allow_http": "true"}
        store = {"url": f"s3://{s3.BUCKET}/base", "options": options, "retentionSeconds": RETENTION}
        rounds = {"finishedSeconds": 2, "storeSeconds": 2}
        operator = harness.Operator(folder, cluster.kubeconfig, [own_namespace], store=store, janitor=rounds)
        operator.start()
        yield Bucket(operator, server, proxy)
        operator.stop()


@pytest.fixture
def bucket(away: Bucket) -> Iterator[Bucket]:
    yield away
    away.proxy.troubles.clear()


def succeeded(status: dict[str, Any]) -> bool:
    return bool(status["phase"] == "Succeeded" and float(status["reward"]) == 1.0)


def test_a_run_leaves_its_files_in_the_bucket(
    cluster: harness.Cluster, own_namespace: str, bucket: Bucket, name: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), script("echo hello\n")))
    status = cluster.finished(own_namespace, name)
    assert succeeded(status)
    found = bucket.objects(status)
    assert {"row.json", "collected.json"} <= set(found)
    assert [key for key in found if key.startswith("files-") and key.endswith(".tar")]


def test_a_separate_verification_goes_through_the_bucket(
    cluster: harness.Cluster, own_namespace: str, bucket: Bucket, name: str
) -> None:
    test = 'test "$(cat /app/out.txt)" = made && echo 1 > /logs/verifier/reward.txt\n'
    agent = script("mkdir -p /app && echo made > /app/out.txt\n")
    cluster.create_run(own_namespace, name, spec(task(test, toml=SEPARATE), agent))
    status = cluster.finished(own_namespace, name, seconds=120)
    assert succeeded(status)
    found = bucket.objects(status)
    assert {"artifacts.json", "agent.json", "verifier.json", "collected.json", "row.json"} <= set(found)
    assert [key for key in found if key.startswith("artifacts/") and key.endswith(".tar")]


def test_a_run_that_is_admitted_while_the_store_is_away_waits(
    cluster: harness.Cluster, own_namespace: str, bucket: Bucket, name: str
) -> None:
    bucket.server.kill()
    try:
        fresh = task(f"{ONE}# {name}: a snapshot that is not in the store yet\n")
        cluster.create_run(own_namespace, name, spec(fresh, NOP))
        assert "s3://" in cluster.shown(own_namespace, name, "StoreUnavailable")
        assert not cluster.status(own_namespace, name).get("complete")
    finally:
        bucket.server.start()
    assert succeeded(cluster.finished(own_namespace, name))


@pytest.mark.parametrize("key", ["/files-", "/collected.json", "/row.json"])
def test_a_run_whose_store_goes_away_at_its_end_waits(
    cluster: harness.Cluster, own_namespace: str, bucket: Bucket, name: str, key: str
) -> None:
    """At its archive, at the index of what was kept, at its row: each is written, and the run is complete only then."""
    trouble = bucket.proxy.meet(s3.Trouble(path=key, status=503))
    cluster.create_run(own_namespace, name, spec(task(ONE), script("echo hello\n")))
    assert key in cluster.shown(own_namespace, name, "StoreUnavailable")
    assert trouble.met
    assert not cluster.status(own_namespace, name).get("complete")
    bucket.proxy.troubles.clear()
    status = cluster.finished(own_namespace, name)
    assert succeeded(status)
    assert {"row.json", "collected.json"} <= set(bucket.objects(status))


def test_the_server_restarts_while_files_are_collected(
    cluster: harness.Cluster, own_namespace: str, bucket: Bucket, name: str
) -> None:
    """24 MiB go in parts; the server ends at the second and forgets nothing of the first."""
    trouble = bucket.proxy.meet(s3.Trouble(method="PUT", path="partNumber=2", status=503))
    agent = script("head -c 25165824 /dev/urandom > /logs/agent/big.bin\n")
    cluster.create_run(own_namespace, name, spec(task(ONE), agent))
    cluster.until(lambda: trouble.met, "the archive is being written")
    bucket.server.kill()
    bucket.proxy.troubles.clear()
    bucket.server.start()
    status = cluster.finished(own_namespace, name, seconds=150)
    assert succeeded(status)
    (archive,) = [key for key in bucket.objects(status) if key.startswith("files-")]
    path = bucket.server.folder / s3.BUCKET / "base" / status["store"] / archive
    assert path.stat().st_size > 24 * 1024 * 1024


def test_an_operator_that_takes_over_reads_the_task_from_the_bucket(
    cluster: harness.Cluster, own_namespace: str, bucket: Bucket, name: str
) -> None:
    cluster.create_run(own_namespace, name, spec(task(ONE), script("until test -e /app/go; do sleep 0.2; done\n")))
    cluster.in_phase(own_namespace, name, "Running")
    bucket.operator.kill()
    bucket.proxy.requests.clear()
    bucket.operator.start()
    (pod,) = cluster.pods(own_namespace, name)
    inside = ("-n", own_namespace, "exec", pod.metadata.name, "-c", "main", "--", "touch", "/app/go")
    harness.kubectl(cluster, *inside)
    assert succeeded(cluster.finished(own_namespace, name))
    read = [path for method, path, _ in bucket.proxy.requests if method == "GET" and "/tasks/" in path]
    assert [path for path in read if ".tar" in path]


def gone(cluster: harness.Cluster, namespace: str, run: str) -> bool:
    try:
        cluster.run(namespace, run)
    except ApiException as error:
        return bool(error.status == 404)
    return False


def test_files_of_a_run_that_is_gone_go_and_those_of_one_that_exists_stay(
    cluster: harness.Cluster, own_namespace: str, bucket: Bucket, name: str
) -> None:
    cluster.create_run(own_namespace, f"{name}-stays", spec(task(ONE), NOP))
    stays = cluster.finished(own_namespace, f"{name}-stays")
    cluster.create_run(own_namespace, name, spec(task(ONE), NOP))
    goes = cluster.finished(own_namespace, name)
    assert "row.json" in bucket.objects(goes)
    cluster.patch_run(own_namespace, name, {"ttlSecondsAfterFinished": 0})
    cluster.until(lambda: gone(cluster, own_namespace, name), "the run is gone")
    cluster.until(lambda: not bucket.objects(goes), "its files are gone")
    assert {"row.json", "collected.json"} <= set(bucket.objects(stays))


# -- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    if os.getuid() != 0:
        pytest.skip("only root mounts a file system of its own")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "taskfold-tests", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_run_whose_files_find_no_room_waits_until_there_is(
    cluster: harness.Cluster, tmp_path: Path, disk: Path, name: str
) -> None:
    namespace = cluster.create_namespace()
    operator = harness.Operator(tmp_path, cluster.kubeconfig, [namespace], store={"url": f"file://{disk}/store"})
    operator.start()
    try:
        agent = script("head -c 4194304 /dev/urandom > /logs/agent/big.bin\n")
        (disk / "filler").write_bytes(bytes(6 * 1024 * 1024))
        cluster.create_run(namespace, name, spec(task(ONE), agent))
        assert "room" in cluster.shown(namespace, name, "StoreUnavailable")
        status = cluster.status(namespace, name)
        assert not status.get("complete")
        assert not list(disk.rglob("files-*.tar"))
        (disk / "filler").unlink()
        assert succeeded(cluster.finished(namespace, name))
        (archive,) = disk.rglob("files-*.tar")
        assert archive.stat().st_size > 4 * 1024 * 1024
    finally:
        operator.stop()
        cluster.delete_namespace(namespace)
