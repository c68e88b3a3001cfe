"""`taskfold logs`: from a pod with the real helper in it, and without a pod."""

from pathlib import Path
from typing import Any

import pytest
from tests.effects import fake_exec
from tests.effects.conftest import helper  # noqa: F401 - a fixture

from taskfold.cli import logs
from taskfold.effects import sandbox

from .conftest import Cli
from .fakes import RUNNING, FakeCluster, judged, unjudged

ATTEMPT = {"number": 1, "podName": "r-1-1", "podUID": "uid-p"}


def pod(uid: str = "uid-p", state: str = "running") -> dict[str, Any]:
    found = fake_exec.pod(uid=uid, state=state)
    found["metadata"] |= {"name": "r-1-1", "namespace": "ns"}
    return found


@pytest.fixture
def sandbox_logs(
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    helper: Path,  # noqa: F811
) -> Path:
    """The folder that plays /logs of a running pod."""
    folder = tmp_path / "sandbox"
    for name in ("agent", "verifier"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setattr(logs, "ROOT", sandbox.Root(str(folder), "logs"))
    cluster.have("r", RUNNING | {"attempts": [ATTEMPT]})
    cluster.pods["r-1-1"] = pod()
    cluster.script = fake_exec.process(lambda argv: [str(helper), *argv[1:]])
    return folder


def test_text_files_with_their_names(cli: Cli, sandbox_logs: Path) -> None:
    (sandbox_logs / "agent/stdout.txt").write_text("working\n")
    (sandbox_logs / "agent/raw.bin").write_bytes(b"\0\1")
    (sandbox_logs / "verifier/test-stdout.txt").write_text("no line end")
    result = cli("logs", "r")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "==> /logs/agent/raw.bin <==\n(not text: 2 bytes)\n\n"
        "==> /logs/agent/stdout.txt <==\nworking\n\n"
        "==> /logs/verifier/test-stdout.txt <==\nno line end\n"
    )


def test_a_link_shows_nothing_of_this_machine(cli: Cli, sandbox_logs: Path) -> None:
    (sandbox_logs / "agent/link").symlink_to("/etc/passwd")
    result = cli("logs", "r")
    assert "root:" not in result.stdout


def test_long_files_are_cut_and_huge_ones_left_out(
    cli: Cli, sandbox_logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SHOWN_BYTES", 10)
    monkeypatch.setattr(logs, "FILE_BYTES", 1000)
    (sandbox_logs / "agent/long.txt").write_text("x" * 90 + "the end!!\n")
    (sandbox_logs / "agent/huge.txt").write_text("x" * 2000)
    result = cli("logs", "r")
    assert "(the first 90 of 100 bytes are left out)\nthe end!!\n" in result.stdout
    assert "huge.txt <==" not in result.stdout
    assert "left out: " in result.stderr
    assert "tooLarge" in result.stderr


def test_no_files_yet(cli: Cli, sandbox_logs: Path) -> None:
    result = cli("logs", "r")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no such files below /logs yet" in result.stderr


def test_a_gone_pod_says_why_and_where_the_files_are(cli: Cli, cluster: FakeCluster) -> None:
    cluster.have("r", judged("1", complete=True, attempts=[ATTEMPT]))
    result = cli("logs", "r")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "spec.podRetention is Never (`taskfold run --keep` keeps the pod)" in result.stderr
    assert "Its files: below default/ns/uid-1/1/ in the operator's store." in result.stderr


@pytest.mark.parametrize("found", [None, pod(uid="another")])
def test_a_lost_pod(cli: Cli, cluster: FakeCluster, found: Any) -> None:
    cluster.have("r", unjudged("Masked", "NodeLost", "agent") | {"complete": False, "attempts": [ATTEMPT]})
    if found:
        cluster.pods["r-1-1"] = found
    result = cli("logs", "r")
    assert result.exit_code == 2
    assert "NodeLost: because of NodeLost. No files of it are in the store." in result.stderr


def test_a_pod_that_has_ended(cli: Cli, cluster: FakeCluster) -> None:
    cluster.have("r", judged("1", attempts=[ATTEMPT]))
    cluster.pods["r-1-1"] = pod(state="terminated")
    result = cli("logs", "r")
    assert result.exit_code == 2
    assert "not running: terminated" in result.stderr


def test_a_run_without_a_pod(cli: Cli, cluster: FakeCluster) -> None:
    cluster.have("r", unjudged("Failed", "InvalidTask", "admission"))
    result = cli("logs", "r")
    assert result.exit_code == 2
    assert "the run has no pod and left no files: Failed. InvalidTask" in result.stderr


def test_an_unknown_run(cli: Cli, cluster: FakeCluster) -> None:
    result = cli("logs", "r")
    assert result.exit_code == 3
    assert "there is no TaskRun r in namespace ns. See: kubectl --namespace ns get taskruns" in result.stderr
