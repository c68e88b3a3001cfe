"""`taskfold results` and `taskfold logs` against the real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance import harness
from tests.reading import scene, stored
from tests.reading.conftest import Finished
from tests.reading.test_on_cluster import MIB, large

Completed = subprocess.CompletedProcess[str]
Command = Callable[..., Completed]


def arguments(kubeconfig: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "taskfold", *words, "--kubeconfig", str(kubeconfig)]


@pytest.fixture
def taskfold(cluster: harness.Cluster, namespace: str, operator: scene.Server) -> Command:
    """`taskfold("results", name)` as the administrator, or as somebody else."""

    def run(*words: str, kubeconfig: Path = cluster.kubeconfig, code: int = 0) -> Completed:
        command = arguments(kubeconfig, *words, "--namespace", namespace)
        environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "operator")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return run


def tree(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".taskfold-download" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_the_reward_and_a_table_of_what_is_kept(taskfold: Command, finished: Finished) -> None:
    name, _ = finished()
    lines = taskfold("results", name).stdout.splitlines()
    assert lines[:4] == ["reward: 1", "seconds: total 1.5", "", lines[3]]
    assert lines[3].split() == ["WHAT", "STEP", "BYTES", "SHA256", "NAME"]
    rows = [line.split(maxsplit=4) for line in lines[4:]]
    assert [(row[0], row[4]) for row in rows] == [
        ("document", "artifacts.json"),
        ("document", "collected.json"),
        ("document", "rewards.json"),
        ("document", "row.json"),
        ("sandbox", "files-0123.tar"),
        ("artifact", "app-report"),
        ("artifact", "app-out.json"),
        ("artifact", "app-none (missing: there is no such path)"),
    ]
    assert rows[4][3] == stored.sha256(stored.tar(stored.LOGS))
    document = json.loads(taskfold("results", name, "-o", "json").stdout)
    assert (document["schema"], document["run"]["reward"]) == ("taskfold.dev/results/v1", 1.0)
    assert document["kept"]["archives"][0]["key"] == "files-0123.tar"
    assert document["download"] is None


def test_download_puts_everything_in_its_place_and_again_reads_nothing(
    taskfold: Command, finished: Finished, tmp_path: Path
) -> None:
    name, kept = finished()
    target = tmp_path / "results"
    assert "new files in" in taskfold("results", name, "--download", str(target)).stdout
    expected = {
        "row.json": (kept.folder / "row.json").read_bytes(),
        "rewards.json": (kept.folder / "rewards.json").read_bytes(),
        "collected.json": (kept.folder / "collected.json").read_bytes(),
        "artifacts/manifest.json": (kept.folder / "artifacts.json").read_bytes(),
        "artifacts/app-report/a.txt": b"a",
        "artifacts/app-report/deep/b": b"b",
        "artifacts/app-out.json": b"{}",
        **stored.LOGS,
    }
    assert {path: content for path, content in tree(target).items() if "link" not in path} == expected
    assert not (target / "logs/agent/link.txt").exists()
    again = json.loads(taskfold("results", name, "--download", str(target), "-o", "json").stdout)["download"]
    assert again["files"] == 0
    assert again["bytes"] == sum(len(expected[each]) for each in ("row.json", "rewards.json", "collected.json")) + len(
        expected["artifacts/manifest.json"]
    )
    (target / "logs/agent/stdout.txt").unlink()
    taskfold("results", name, "--download", str(target))
    assert (target / "logs/agent/stdout.txt").read_bytes() == b"worked\n"


def test_files_that_are_there_are_never_replaced(taskfold: Command, finished: Finished, tmp_path: Path) -> None:
    name, _ = finished()
    target = tmp_path / "results"
    (target / "logs/verifier").mkdir(parents=True)
    (target / "logs/verifier/reward.txt").write_text("mine")
    refused = taskfold("results", name, "--download", str(target), code=3)
    assert "logs/verifier/reward.txt" in refused.stderr
    assert (target / "logs/verifier/reward.txt").read_text() == "mine"
    assert not (target / "logs/agent").exists(), "nothing of an archive is put in place then"
    (target / "logs/verifier/reward.txt").unlink()
    taskfold("results", name, "--download", str(target))
    assert (target / "logs/verifier/reward.txt").read_text() == "1\n"


def test_nothing_is_written_through_a_link(taskfold: Command, finished: Finished, tmp_path: Path) -> None:
    name, _ = finished()
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "results"
    elsewhere.mkdir()
    target.mkdir()
    (target / "logs").symlink_to(elsewhere)
    taskfold("results", name, "--download", str(target), code=3)
    assert list(elsewhere.iterdir()) == []


def test_a_hostile_archive_reaches_nothing_outside(taskfold: Command, finished: Finished, tmp_path: Path) -> None:
    def hostile(store: Path, prefix: str, _: str) -> stored.Kept:
        kept = stored.Kept(store, prefix)
        kept.archive("files-01.tar", "sandbox", stored.tar({"../outside": b"x"}))
        kept.end()
        return kept

    name, _ = finished(hostile)
    target = tmp_path / "results"
    assert "leads out" in taskfold("results", name, "--download", str(target), code=2).stderr
    assert not (tmp_path / "outside").exists()


def test_bytes_that_are_not_those_on_record_are_not_taken(
    taskfold: Command, finished: Finished, tmp_path: Path
) -> None:
    name, kept = finished()
    content = bytearray((kept.folder / "files-0123.tar").read_bytes())
    content[600] ^= 1
    (kept.folder / "files-0123.tar").write_bytes(content)
    refused = taskfold("results", name, "--download", str(tmp_path / "results"), code=2)
    assert "another sha256" in refused.stderr
    assert not (tmp_path / "results/logs").exists()


def test_a_download_goes_on_where_a_dead_server_left_it(
    cluster: harness.Cluster, namespace: str, finished: Finished, operator: scene.Server, tmp_path: Path
) -> None:
    name, _ = finished(large(200))
    command = arguments(cluster.kubeconfig, "results", name, "--download", str(tmp_path), "--namespace", namespace)
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "operator")}
    partial = tmp_path / ".taskfold-download"
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:

        def under_way() -> bool:
            sizes = [path.stat().st_size for path in partial.glob("*.tar")] if partial.exists() else []
            return process.poll() is not None or any(size > 8 * MIB for size in sizes)

        cluster.until(under_way, "the download is under way")
        operator.kill()
        operator.start()
        assert process.stderr is not None
        said = process.stderr.read()
    # 200 MiB of no tar: all bytes came and were proven, and only the unpacking refuses them.
    assert process.returncode == 2
    assert "not a tar header" in said
    (whole,) = partial.glob("*.tar")
    assert whole.stat().st_size == 200 * MIB


def test_logs_by_source(taskfold: Command, finished: Finished) -> None:
    name, _ = finished()
    assert taskfold("logs", name, "--verifier").stdout == (
        "==> /logs/verifier/test-stdout.txt <==\ntested, and well\n\n"
    )
    assert taskfold("logs", name, "--agent", "--entrypoint").stdout == (
        "==> /logs/agent/stdout.txt <==\nworked\n\n==> /logs/verifier/entrypoint-stdout.txt <==\nstarted\n\n"
    )
    assert "tested, and well" in taskfold("logs", f"taskrun/{name}").stdout


def test_endings(taskfold: Command, finished: Finished, people: scene.People, cluster: harness.Cluster) -> None:
    name, _ = finished(phase="Running", complete=False)
    assert "kubectl --namespace" in taskfold("results", name, code=2).stderr
    assert "there is no TaskRun none" in taskfold("results", "none", code=3).stderr
    assert "there is no VerifierRun none" in taskfold("results", "verifierrun/none", code=3).stderr
    taskfold("results", "pod/none", code=64)
    taskfold("results", name, "--attempt", "0", code=64)


def test_who_may_see_a_run_but_not_its_results_is_told_what_he_needs(
    taskfold: Command, finished: Finished, people: scene.People, cluster: harness.Cluster, namespace: str
) -> None:
    name, _ = finished()
    kubeconfig = people.by_certificate("bob")
    scene.allow(cluster, namespace, scene.user("bob"))
    scene.when_answered(
        people.login(kubeconfig), f"/apis/taskfold.dev/v1alpha1/namespaces/{namespace}/taskruns/{name}", 200
    )
    refused = taskfold("results", name, kubeconfig=kubeconfig, code=3)
    assert "taskruns/files" in refused.stderr


@pytest.fixture
def without_api(cluster: harness.Cluster, namespace: str, operator: scene.Server) -> Iterator[None]:
    """The API is not registered for the length of a test."""
    aggregated = scene.Aggregated(cluster, namespace)
    found = aggregated.read()
    aggregated.remove()
    try:
        yield
    finally:
        aggregated.create(found)


def test_a_cluster_without_the_api(
    taskfold: Command,
    finished: Finished,
    without_api: None,
    cluster: harness.Cluster,
    namespace: str,
    admin: scene.Login,
) -> None:
    name, _ = finished()
    scene.when_answered(admin, f"{scene.ROOT}/namespaces/{namespace}/taskruns/{name}/files", 404)
    refused = taskfold("results", name, code=3)
    assert "no results API" in refused.stderr
    nothing = taskfold("logs", name, code=2)
    assert "no results API" in nothing.stderr
    assert "in the operator's store" in nothing.stderr
