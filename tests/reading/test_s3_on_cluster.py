"""Results out of a real S3 server, through the API server: the bytes of its folder, or a clear error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import s3
from tests.conformance import harness
from tests.reading import conftest, scene, stored
from tests.reading.conftest import Finished
from tests.reading.test_commands_on_cluster import Command, arguments, taskfold, tree
from tests.reading.test_on_cluster import MIB, large

__all__ = ["taskfold"]  # a fixture


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Server]:
    folder = tmp_path_factory.mktemp("s3")
    with s3.Server(folder / "data", folder / "log") as running:
        yield running


@pytest.fixture(scope="module")
def operator(
    cluster: harness.Cluster,
    namespace: str,
    other_namespace: str,
    server: s3.Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[scene.Server]:
    """Its store is the server; what tests keep lies in the server's folder, put there past S3."""
    options = {key: value for key, value in s3.options(server.endpoint).items() if "key" not in key}
    store = {"url": f"s3://{s3.BUCKET}", "options": options}
    folder = tmp_path_factory.mktemp("operator")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment().items():
            patch.setenv(name, value)
        with conftest.aggregated(cluster, namespace, other_namespace, folder, store=store) as running:
            yield running


@pytest.fixture(autouse=True)
def kept_in_the_bucket(operator: scene.Server, server: s3.Server) -> None:
    operator.store = server.folder / s3.BUCKET


def test_a_download_is_what_the_buckets_folder_has(taskfold: Command, finished: Finished, tmp_path: Path) -> None:
    name, kept = finished()
    taskfold("results", name, "--download", str(tmp_path / "results"))
    found = tree(tmp_path / "results")
    for document in ("row.json", "rewards.json", "collected.json"):
        assert found[document] == (kept.folder / document).read_bytes()
    assert found["artifacts/app-report/deep/b"] == b"b"
    assert {path: found[path] for path in stored.LOGS} == stored.LOGS
    assert "tested, and well" in taskfold("logs", name, "--verifier").stdout


def test_a_store_that_is_away_is_an_error_that_says_so(
    taskfold: Command, finished: Finished, server: s3.Server, tmp_path: Path
) -> None:
    name, _ = finished()
    server.kill()
    try:
        refused = taskfold("results", name, "--download", str(tmp_path / "results"), code=2)
    finally:
        server.start()
    assert "the store does not answer" in refused.stderr
    assert not (tmp_path / "results/logs").exists()
    taskfold("results", name, "--download", str(tmp_path / "results"))
    assert (tmp_path / "results/logs/agent/stdout.txt").read_bytes() == b"worked\n"


def test_a_store_that_restarts_in_the_midst_costs_no_byte(
    cluster: harness.Cluster, namespace: str, finished: Finished, server: s3.Server, tmp_path: Path
) -> None:
    name, kept = finished(large(200))
    command = arguments(cluster.kubeconfig, "results", name, "--download", str(tmp_path), "--namespace", namespace)
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "operator")}
    partial = tmp_path / ".taskfold-download"
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:

        def under_way() -> bool:
            sizes = [path.stat().st_size for path in partial.glob("*.tar")] if partial.exists() else []
            return process.poll() is not None or any(size > 8 * MIB for size in sizes)

        cluster.until(under_way, "the download is under way")
        assert process.poll() is None, "it was over before the store went away"
        server.kill()
        server.start()
        assert process.stderr is not None
        said = process.stderr.read()
    # It is no tar: all bytes came and were proven, and only the unpacking refuses them.
    assert (process.returncode, "not a tar header" in said) == (2, True), said
    (whole,) = partial.glob("*.tar")
    assert whole.read_bytes() == (kept.folder / "files-big.tar").read_bytes()
