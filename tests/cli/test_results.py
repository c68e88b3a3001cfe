"""`taskfold results` and the kept part of `taskfold logs`: what they say, and how they end."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli
from .fakes import RUNNING, FakeCluster, judged

ATTEMPT = {"number": 1, "podName": "p", "podUID": "u"}
ROW = b'{"reward": 1.0}'


def index(*documents: tuple[str, bytes], **more: Any) -> bytes:
    listed = [{"key": key, "step": None, "bytes": len(content)} for key, content in documents]
    body = {
        "kind": "KeptFiles",
        "apiVersion": "results.taskfold.dev/v1alpha1",
        "metadata": {"name": "r", "namespace": "ns", "uid": "uid-1"},
        "attempt": 1,
        "step": None,
        "error": "",
        "documents": listed,
        "archives": [],
        "artifacts": [],
        **more,
    }
    return json.dumps(body).encode()


@pytest.fixture
def kept(cluster: FakeCluster) -> FakeCluster:
    cluster.have("r", judged("1", complete=True, attempts=[ATTEMPT], rewards={"reward": 1.0, "style": 0.5}))
    cluster.kept = {
        "files": index(("row.json", ROW)),
        "row.json": ROW,
        "log": b"==> /logs/agent/x.txt <==\nworked\n\n",
    }
    return cluster


def test_reward_timings_and_what_is_kept(cli: Cli, kept: FakeCluster) -> None:
    result = cli("results", "r")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "reward: 1 (style 0.5)",
            "seconds: agent 0.5",
            "",
            "WHAT      STEP  BYTES  SHA256  NAME",
            "document  -     15     -       row.json",
        ],
    )


def test_an_attempt_and_a_step_are_asked_for(cli: Cli, kept: FakeCluster) -> None:
    assert cli("results", "r", "--attempt", "3").exit_code == 0
    assert "files?attempt=3" in kept.calls
    cli("logs", "r", "--verifier", "--step", "one")
    assert any(call.startswith("log?source=verifier&step=one&tailBytes=") for call in kept.calls)


def test_a_step_that_nothing_is_kept_of_is_refused(cli: Cli, kept: FakeCluster) -> None:
    archive = {"key": "k", "of": "agent", "step": "one", "bytes": 1, "sha256": "0", "entries": 1}
    archive |= {"truncated": True, "skipped": [], "stored": True}
    assert kept.kept is not None
    kept.kept["files"] = index(archives=[archive])
    refused = cli("results", "r", "--step", "two")
    assert (refused.exit_code, "kept are: one" in refused.stderr) == (3, True)
    assert "agent  one   1      0       k (not all of it: a limit was reached)" in cli("results", "r").stdout


def test_a_document_is_proven_by_the_digest_of_its_answer(cli: Cli, kept: FakeCluster, tmp_path: Path) -> None:
    result = cli("results", "r", "--download", tmp_path, "-o", "json")
    assert json.loads(result.stdout)["download"] == {
        "folder": str(tmp_path),
        "files": 1,
        "bytes": len(ROW),
        "leftOut": [],
    }
    assert (tmp_path / "row.json").read_bytes() == ROW


@pytest.mark.parametrize("key", ["../row.json", "/etc/row.json", ".taskfold-download/row.json", ""])
def test_keys_that_lead_out_are_not_followed(cli: Cli, kept: FakeCluster, tmp_path: Path, key: str) -> None:
    assert kept.kept is not None
    kept.kept["files"] = index((key, ROW))
    result = cli("results", "r", "--download", tmp_path / "here")
    assert result.exit_code == 2
    assert not (tmp_path / "row.json").exists()


def test_an_archive_of_another_digest_is_not_taken(cli: Cli, kept: FakeCluster, tmp_path: Path) -> None:
    assert kept.kept is not None
    archive = {"key": "a.tar", "of": "sandbox", "step": None, "bytes": 4, "entries": 1, "truncated": False}
    archive |= {"skipped": [], "stored": True, "sha256": hashlib.sha256(b"other").hexdigest()}
    kept.kept |= {"files": index(archives=[archive]), "a.tar": b"tar!"}
    result = cli("results", "r", "--download", tmp_path)
    assert (result.exit_code, "another file by now" in result.stderr) == (2, True)
    assert not (tmp_path / "logs").exists()


def test_a_name_of_a_run_writes_nothing_to_the_terminal(cli: Cli, kept: FakeCluster) -> None:
    assert kept.kept is not None
    kept.kept["files"] = index(("\x1b]0;x\x07", ROW), error="\x1b[2J")
    assert "\x1b" not in cli("results", "r").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("results", "none"), 3, "there is no TaskRun none"),
        (("results", "pod/x"), 64, "write its name, taskrun/NAME or verifierrun/NAME"),
        (("results", "taskrun/"), 64, "is no run"),
        (("logs", "none"), 3, "there is no TaskRun none"),
    ],
)
def test_endings(cli: Cli, kept: FakeCluster, words: tuple[str, ...], code: int, said: str) -> None:
    result = cli(*words)
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


def test_a_run_that_goes_on_and_a_cluster_without_the_api(cli: Cli, kept: FakeCluster) -> None:
    kept.kept = {}
    waiting = cli("results", "r")
    assert (waiting.exit_code, waiting.stderr.strip()) == (2, "not finished. Wait for it")
    kept.kept = None
    absent = cli("results", "r")
    assert (absent.exit_code, "no results API" in absent.stderr) == (3, True)
    logs = cli("logs", "r")
    assert (logs.exit_code, "no results API" in logs.stderr) == (2, True)
    assert "The pod of the run is gone" in logs.stderr


def test_logs_of_a_run_without_a_pod_come_from_the_store(cli: Cli, kept: FakeCluster) -> None:
    result = cli("logs", "r", "--agent", "--verifier")
    assert result.exit_code == 0
    assert result.stdout == 2 * "==> /logs/agent/x.txt <==\nworked\n\n"
    assert [call.partition("&")[0] for call in kept.calls] == ["log?source=agent", "log?source=verifier"]


def test_logs_of_a_run_that_goes_on_never_come_from_the_store(cli: Cli, kept: FakeCluster) -> None:
    kept.have("r", RUNNING | {"attempts": [ATTEMPT]})
    assert cli("logs", "r").exit_code == 2
    assert kept.calls == []
