"""What a run leaves in the store: its row, its files, and the manifest that names them by digest."""

import hashlib
import json
import tarfile
from typing import Any

import pytest

from taskfold.conformance.cases.steps import step, stepped
from tests.conformance import harness
from tests.conformance.conftest import Runner
from tests.conformance.facts import document, kept
from tests.conformance.harness import NOP, ORACLE, script, task

Status = dict[str, Any]


def result(namespace: str, name: str, uid: str, status: Status, outcome: str) -> dict[str, Any]:
    """The result document as the status at the end has it, written down here once more."""
    failure, verifier, agent = status.get("failure"), status.get("verifier"), status.get("agent")
    return {
        "schema": "taskfold.dev/result/v1",
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "task": status.get("task", {}).get("id"),
        "outcome": outcome,
        "phase": status["phase"],
        "reward": float(status["reward"]) if "reward" in status else None,
        "rewards": status.get("rewards", {}),
        "reward_components": status.get("rewardComponents", []),
        "masked": status.get("masked", False),
        "failure": failure and {
            "kind": failure.get("kind"),
            "reason": failure["reason"],
            "stage": failure["stage"],
            "terminal": failure.get("terminal", False),
        },
        "message": failure["message"] if failure else "",
        "warnings": status.get("warnings", []),
        "verifier": verifier and {
            "name": verifier["name"],
            "mode": verifier["mode"],
            "return_code": verifier.get("returnCode"),
            "seconds": verifier.get("seconds"),
            "timed_out": verifier.get("timedOut", False),
        },
        "agent": agent and {
            "name": agent["name"],
            "outcome": agent.get("outcome"),
            "return_code": agent.get("returnCode"),
            "seconds": agent.get("seconds"),
        },
        "steps": [],
        "timings": status.get("timings", {}),
        "store": status["store"],
    }  # fmt: skip


ENDINGS = {
    "verdict": (task('echo \'{"a": 1, "b": 0.5}\' > /logs/verifier/reward.json; exit 2', solve="true"), ORACLE),
    "no reward": (task("echo so sorry; false"), script("exit 1")),
    "masked": (task("true"), script("rm -f /usr/bin/bash")),
    "failed": (task("true"), script("true", install="exit 1")),
    "refused": (task(), NOP),
}
OUTCOMES = {"no reward": "verdict"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_row_json_is_the_result_document_of_every_ending(
    run: Runner, cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str, ending: str
) -> None:
    status = run(*ENDINGS[ending])
    uid = cluster.run(namespace, name)["metadata"]["uid"]
    row = document(operator, status, "row.json")
    assert row == result(namespace, name, uid, status, OUTCOMES.get(ending, ending))
    assert status["store"] == f"test/{namespace}/{uid}/1/"


def test_a_cancelled_run_has_a_row(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    cluster.create_run(namespace, name, harness.spec(task("true"), script("sleep 600")))
    cluster.in_phase(namespace, name, "Running")
    cluster.patch_run(namespace, name, {"cancel": True})
    status = cluster.finished(namespace, name)
    uid = cluster.run(namespace, name)["metadata"]["uid"]
    assert document(operator, status, "row.json") == result(namespace, name, uid, status, "cancelled")
    assert cluster.pods(namespace, name) == []


def test_an_archive_has_the_logs_of_agent_and_verifier_and_the_index_its_digest(
    run: Runner, operator: harness.Operator
) -> None:
    agent = script("echo working; mkdir -p /logs/artifacts/deep; echo report > /logs/artifacts/deep/report")
    status = run(task("echo testing; echo 0.5 > /logs/verifier/reward.txt"), agent)
    files, index = kept(operator, status), document(operator, status, "collected.json")
    (archive,) = index["archives"]
    content = (operator.store / status["store"] / archive["key"]).read_bytes()
    assert files["logs/verifier/test-stdout.txt"] == b"testing\n"
    assert files["logs/verifier/reward.txt"] == b"0.5\n"
    assert files["logs/agent/stdout.txt"] == b"working\n"
    assert files["logs/artifacts/deep/report"] == b"report\n"
    assert json.loads(files["logs/agent/trajectory.json"])["schema_version"] == "ATIF-v1.7"
    assert (index["error"], archive["of"], archive["step"]) == ("", "sandbox", None)
    assert (archive["sha256"], archive["bytes"]) == (hashlib.sha256(content).hexdigest(), len(content))
    assert (archive["truncated"], archive["skipped"]) == (False, [])


def test_what_is_no_file_is_not_followed_and_named(run: Runner, operator: harness.Operator) -> None:
    agent = script(
        "cd /logs/artifacts; ln -s /etc/passwd link; ln -s /etc folder; mkfifo pipe; mknod device c 1 3\n"
        "echo secret > /root/secret; ln /root/secret hard; chmod 0 hard; echo x > 'sp ace'; chmod 4755 'sp ace'"
    )
    status = run(task("echo 1 > /logs/verifier/reward.txt"), agent)
    assert status["reward"] == "1"
    files = kept(operator, status)
    (archive,) = document(operator, status, "collected.json")["archives"]
    with tarfile.open(operator.store / status["store"] / archive["key"]) as tar:
        modes = {member.name: member.mode for member in tar}
        kinds = {member.name for member in tar if not (member.isreg() or member.isdir() or member.issym())}
    assert not kinds
    assert "logs/artifacts/link" not in files
    assert not any(path.startswith("logs/artifacts/folder/") for path in files)
    assert {each["path"].rpartition("/")[2] for each in archive["skipped"]} >= {"pipe", "device"}
    assert modes["logs/artifacts/sp ace"] & 0o7000 == 0


def test_the_row_has_every_reward_also_what_does_not_fit_the_status(run: Runner, operator: harness.Operator) -> None:
    numbers = {f"part-{number:03d}": 0.5 for number in range(300)}
    status = run(task(f"cat > /logs/verifier/reward.json <<'END'\n{json.dumps(numbers)}\nEND\n"), NOP)
    assert status["reward"] == "150"
    assert len(status["rewards"]) < 300
    assert json.loads(kept(operator, status)["logs/verifier/reward.json"]) == numbers
    row = document(operator, status, "row.json")
    assert row["rewards"] == numbers
    assert row["reward_components"] == list(numbers)


def test_every_step_keeps_its_logs_and_the_row_all_of_its_rewards(run: Runner, operator: harness.Operator) -> None:
    numbers = {f"part {number:03}": 1.0 for number in range(40)}
    files = stepped(
        step(f"cat > /logs/verifier/reward.json <<'E'\n{json.dumps(numbers)}\nE\necho graded one\n"),
        step("echo 1 > /logs/verifier/reward.txt; echo graded two\n", setup="echo set up two\n"),
    )
    status = run(files, script("echo worked on $TASKFOLD_STEP"))
    found, row = kept(operator, status), document(operator, status, "row.json")
    assert {path: found[path] for path in found if path.endswith(("stdout.txt", "reward.txt"))} == {
        "logs/steps/one/agent/stdout.txt": b"worked on one\n",
        "logs/steps/one/verifier/test-stdout.txt": b"graded one\n",
        "logs/agent/setup-stdout.txt": b"set up two\n",
        "logs/agent/stdout.txt": b"worked on two\n",
        "logs/verifier/test-stdout.txt": b"graded two\n",
        "logs/verifier/reward.txt": b"1\n",
    }
    assert json.loads(found["logs/steps/one/verifier/reward.json"]) == numbers
    assert [each["rewards"] for each in row["steps"]] == [numbers, {"reward": 1.0}]
    assert len(status["steps"][0]["rewards"]) == 16
    assert (row["reward"], len(row["rewards"])) == (0.5, 41)


def test_the_task_is_kept_as_a_snapshot_under_its_digest(
    run: Runner, namespace: str, operator: harness.Operator
) -> None:
    files = task("echo 1 > /logs/verifier/reward.txt", **{"tests/data": "x", "README.md": "not of the contract"})
    status = run(files, NOP)
    digest = status["admitted"]["taskDigest"].removeprefix("sha256:")
    with tarfile.open(operator.store / "test" / namespace / "tasks" / f"{digest}.tar") as tar:
        held = {member.name: tar.extractfile(member).read().decode() for member in tar}  # type: ignore[union-attr]
        modes = {member.name: member.mode for member in tar}
    assert held.items() <= files.items()
    assert set(held) >= {"task.toml", "instruction.md", "tests/test.sh", "tests/data"}
    assert modes["tests/test.sh"] & 0o777 == 0o755
    lines = (
        f"{path}\0{'0755' if modes[path] & 0o100 else '0644'}\0{hashlib.sha256(held[path].encode()).hexdigest()}\n"
        for path in sorted(held)
    )
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == digest


def test_a_lost_pod_keeps_its_row_and_says_that_its_files_are_lost(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    cluster.create_run(namespace, name, harness.spec(task("true"), script("sleep 600")))
    cluster.in_phase(namespace, name, "Running")
    cluster.core.delete_namespaced_pod(f"{name}-1-1", namespace, grace_period_seconds=0)
    status = cluster.finished(namespace, name)
    assert (status["phase"], status["failure"]["kind"]) == ("Masked", "provider_unavailable")
    assert status["failure"]["reason"] == "PodDeleted"
    assert document(operator, status, "collected.json")["error"]
    assert any("could not be kept" in warning or "could be kept" in warning for warning in status["warnings"])
    uid = cluster.run(namespace, name)["metadata"]["uid"]
    assert document(operator, status, "row.json") == result(namespace, name, uid, status, "masked")


def test_running_out_of_memory_is_masked_as_such_or_at_least_said(run: Runner) -> None:
    """cgroup v2: the whole container goes, masked. cgroup v1: the process may go alone, which is a warning (C13)."""
    toml = harness.DEFAULT_TOML + "memory_mb = 64\n"
    test = "echo 1 > /logs/verifier/reward.txt"
    status = run(task(test, toml=toml), script("python3 -c 'bytearray(500_000_000)'; true"))
    if status["phase"] == "Masked":
        assert (status["failure"]["kind"], status["failure"]["reason"]) == ("provider_oom_killed", "OOMKilled")
    else:
        assert status["reward"] == "1"
        assert any("memory" in warning for warning in status.get("warnings", ()))


@pytest.mark.parametrize(
    ("retention", "test", "kept_pods"),
    [("Never", "true", 0), ("OnFailure", "true", 0), ("OnFailure", "masked", 1), ("Always", "true", 1)],
)
def test_pod_retention(
    run: Runner, cluster: harness.Cluster, namespace: str, name: str, retention: str, test: str, kept_pods: int
) -> None:
    agent = script("rm -f /usr/bin/bash" if test == "masked" else "true")
    status = run(task("true"), agent, podRetention=retention)
    assert status["phase"] == ("Masked" if test == "masked" else "Succeeded")
    assert len(cluster.pods(namespace, name)) == kept_pods


def test_the_agents_output_is_kept_with_its_logs(run: Runner, operator: harness.Operator) -> None:
    agent = script("echo working; echo note > /logs/agent/note.txt", install="echo installing")
    status = run(task("echo 1 > /logs/verifier/reward.txt"), agent)
    files = kept(operator, status)
    assert files["logs/agent/stdout.txt"] == b"working\n"
    assert files["logs/agent/install-stdout.txt"] == b"installing\n"
    assert files["logs/agent/note.txt"] == b"note\n"
