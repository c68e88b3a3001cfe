"""`taskfold logs`: from a pod with the real helper in it, and without a pod."""

from pathlib import Path
from typing import Any

import pytest
from tests.effects import fake_exec
from tests.effects.conftest import helper  # noqa: F401 - a fixture

from taskfold.cli import logs, pod_logs
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
    monkeypatch.setattr(pod_logs, "ROOT", sandbox.Root(str(folder), "logs"))
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
    monkeypatch.setattr(pod_logs, "FILE_BYTES", 1000)
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


# -- a verifier with a pod of its own --------------------------------------------------------------------------------


SEPARATE = {"name": "r-1-verify", "uid": "uid-v", "mode": "separate"}
OWN = {"number": 1, "podName": "r-1-verify-1", "podUID": "uid-own"}
TEXTS = {"agent/stdout.txt": "worked", "entrypoint-stdout.txt": "started", "verifier/test-stdout.txt": "tested"}


def verifying(cluster: FakeCluster, *, agents: bool = False, own: str | None = "uid-own", **status: Any) -> None:
    """A run whose verifier works in a pod of its own, of which a test says whether it is there, and which one."""
    cluster.have("r", {"phase": "Verifying", "attempts": [ATTEMPT], "verifier": SEPARATE, **status})
    verifier = {"phase": "Verifying", "attempts": [OWN], "complete": status.get("complete", False)}
    cluster.verifiers["r-1-verify"] = {
        "metadata": {"name": "r-1-verify", "namespace": "ns", "uid": "uid-v"},
        "spec": {
            "mode": "separate",
            "source": {"runRef": {"name": "r", "uid": "uid-1"}},
        },
        "status": verifier,
    }
    cluster.pods.clear()
    if agents:
        cluster.pods["r-1-1"] = pod()
    if own is not None:
        cluster.pods["r-1-verify-1"] = pod(uid=own)
        cluster.pods["r-1-verify-1"]["metadata"]["name"] = "r-1-verify-1"


def fill(folder: Path) -> None:
    for name, text in TEXTS.items():
        (folder / name).write_text(f"{text}\n")


@pytest.mark.parametrize("run", ["r", "verifierrun/r-1-verify"])
def test_the_output_of_a_verifier_with_a_pod_of_its_own(
    cli: Cli, cluster: FakeCluster, sandbox_logs: Path, run: str
) -> None:
    verifying(cluster)
    fill(sandbox_logs)
    tested, started = (f"==> /logs/{name} <==\n{TEXTS[name]}\n" for name in list(TEXTS)[:0:-1])
    assert cli("logs", run, "--verifier").stdout == tested
    assert cli("logs", run, "--entrypoint").stdout == started
    both = cli("logs", run)
    assert (both.exit_code, both.stdout) == (0, f"{started}\n{tested}")
    assert "worked" not in both.stdout, "what a verifier's pod has of an agent's is not the agent's word"
    assert ("The agent's pod is gone: its work is verified." in both.stderr) == (run == "r")


def test_what_lies_in_the_agents_pod_is_no_verifiers_output(cli: Cli, cluster: FakeCluster, sandbox_logs: Path) -> None:
    verifying(cluster, agents=True, own=None)
    fill(sandbox_logs)
    nothing = cli("logs", "r", "--verifier")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "The verifier's pod is gone. What it printed can be read once the run is complete." in nothing.stderr
    shown = cli("logs", "r")
    assert (shown.exit_code, "worked" in shown.stdout, "started" in shown.stdout) == (0, True, True)
    assert "tested" not in shown.stdout
    assert "tested" not in cli("logs", "r", "--agent", "--verifier").stdout


def test_no_other_pod_is_taken_for_the_verifiers(cli: Cli, cluster: FakeCluster, sandbox_logs: Path) -> None:
    fill(sandbox_logs)
    verifying(cluster, own="another")
    assert (cli("logs", "r", "--verifier").exit_code, cli("logs", "verifierrun/r-1-verify").exit_code) == (2, 2)
    verifying(cluster)
    cluster.verifiers["r-1-verify"]["metadata"]["uid"] = "another"
    other = cli("logs", "r", "--verifier")
    assert (other.exit_code, other.stdout) == (2, "")
    assert "is another one than the run's" in other.stderr
    verifying(cluster)
    cluster.verifiers["r-1-verify"]["spec"]["step"] = "two"
    step = cli("logs", "r", "--verifier", "--step", "one")
    assert (step.exit_code, step.stdout) == (2, "")
    assert "What is verified now is step two." in step.stderr
    assert "tested" in cli("logs", "r", "--verifier", "--step", "two").stdout


def test_a_verifier_without_a_pod_yet(cli: Cli, cluster: FakeCluster, sandbox_logs: Path) -> None:
    verifying(cluster)
    cluster.verifiers["r-1-verify"]["status"] = {"phase": "Queued"}
    result = cli("logs", "r", "--verifier")
    assert (result.exit_code, "has no pod of its own yet: Queued" in result.stderr) == (2, True)


@pytest.mark.parametrize("run", ["r", "verifierrun/r-1-verify"])
def test_once_the_verifiers_pod_is_gone_its_kept_output_is_shown(
    cli: Cli, cluster: FakeCluster, sandbox_logs: Path, run: str
) -> None:
    cluster.kept = {"log": b"==> /logs/verifier/test-stdout.txt <==\nkept\n"}
    verifying(cluster, own=None, complete=True)
    assert "kept" in cli("logs", run, "--verifier").stdout
    verifying(cluster, complete=True)
    fill(sandbox_logs)
    assert "tested" in cli("logs", run, "--verifier").stdout, "a pod that is kept is read"
    assert ("kept" in cli("logs", run).stdout) == (run == "r"), "the agent's output is in the store alone"
    cluster.kept = None
    verifying(cluster, own=None, complete=True)
    nothing = cli("logs", run, "--verifier")
    assert (nothing.exit_code, "no results API" in nothing.stderr) == (2, True)


def test_a_run_that_ends_while_its_pod_is_looked_for(cli: Cli, cluster: FakeCluster, sandbox_logs: Path) -> None:
    cluster.kept = {"log": b"kept\n"}
    verifying(cluster, own=None)
    cluster.statuses[:] = [judged("1", complete=True, verifier=SEPARATE)]
    assert "kept" in cli("logs", "r", "--verifier").stdout
