"""`taskfold run` against a fake cluster: exit code and document of every ending."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from taskfold.build import manifests
from taskfold.cli import episode, following
from taskfold.effects import taskruns

from .conftest import Cli, document
from .fakes import RUNNING, FakeCluster, going, judged, kubeconfig, refusal, unjudged

ENDINGS = {
    "reward 1": ([judged("1", complete=True)], 0, "verdict", None),
    "reward above 1": ([judged("1.5", complete=True)], 0, "verdict", None),
    "reward below 1": ([judged("0.99", complete=True)], 1, "verdict", None),
    "reward 0": ([judged("0", complete=True)], 1, "verdict", None),
    "no reward file counts as 0": (
        [
            judged(
                "0",
                complete=True,
                failure={"reason": "RewardMissing", "kind": "harbor:missing_reward", "stage": "verification"},
            )
        ],
        1,
        "verdict",
        "RewardMissing",
    ),
    "failed": ([unjudged("Failed", "ImagePullFailed", "seed")], 2, "failed", "ImagePullFailed"),
    "masked": ([unjudged("Masked", "NodeLost", "agent")], 2, "masked", "NodeLost"),
    "cancelled by somebody": ([unjudged("Cancelled", "Cancelled", "agent")], 2, "cancelled", "Cancelled"),
    "refused by the operator": (
        [unjudged("Failed", "InvalidTask", "admission", terminal=True)],
        3,
        "refused",
        "InvalidTask",
    ),
}
REFUSALS = {
    "invalid": (refusal, (422, "Invalid", "spec.agent: wrong"), 3, "refused", "Rejected"),
    "too large": (refusal, (413, "RequestEntityTooLarge", "too large"), 3, "refused", "Rejected"),
    "name taken": (refusal, (409, "AlreadyExists", 'taskruns "a" already exists'), 3, "refused", "Rejected"),
    "not allowed": (refusal, (403, "Forbidden", "you may not"), 3, "refused", "NotAllowed"),
    "no namespace": (refusal, (404, "NotFound", 'namespaces "x" not found'), 3, "refused", "Rejected"),
    "login refused": (refusal, (401, "Unauthorized", "who are you"), 2, "error", "NoCredentials"),
    "server ill": (refusal, (500, "InternalError", "etcd"), 2, "error", "Unreachable"),
}


def reason(found: dict[str, Any]) -> str | None:
    return found["failure"]["reason"] if found["failure"] else None


@pytest.mark.parametrize("case", ENDINGS)
def test_exit_code_and_document_follow_from_the_status(cli: Cli, write: Any, cluster: FakeCluster, case: str) -> None:
    statuses, code, outcome, why = ENDINGS[case]
    cluster.statuses[:] = [RUNNING, *statuses]
    result = cli("run", write(), "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (code, outcome, why), result.stderr
    assert found["name"] == cluster.run["metadata"]["name"]
    assert found["namespace"] == "ns"


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_api_server_refuses(cli: Cli, write: Any, cluster: FakeCluster, case: str) -> None:
    answer, arguments, code, outcome, why = REFUSALS[case]
    cluster.create = lambda: answer(*arguments)
    result = cli("run", write(), "--output", "json", "--name", "a")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (code, outcome, why)
    assert (found["name"], found["namespace"]) == ("a", "ns")
    assert arguments[2] in found["message"]


def test_without_the_crd_it_says_how_to_install(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    cluster.create = lambda: web.Response(status=404, text="404 page not found")
    result = cli("run", write(), "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, reason(found)) == (3, "NotInstalled")
    assert "helm upgrade --install taskfold charts/taskfold" in found["message"]


def test_connection_refused(cli: Cli, write: Any, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    result = cli("run", write(), "--output", "json", "--kubeconfig", config)
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (2, "error", "Unreachable")
    assert "http://127.0.0.1:9" in found["message"]


def test_no_kubeconfig(cli: Cli, write: Any, tmp_path: Path) -> None:
    result = cli("run", write(), "--output", "json", "--kubeconfig", tmp_path / "none")
    assert (result.exit_code, reason(document(result.stdout))) == (2, "NoCredentials")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"task.toml": "environment.docker_image = 7\n"}, "InvalidTask"),
        ({"instruction.md": None}, "InvalidTask"),
        ({"environment/docker-compose.yaml": "services: {}\n"}, "UnsupportedField"),
    ],
)
def test_a_folder_that_does_not_load(cli: Cli, write: Any, cluster: FakeCluster, files: Any, why: str) -> None:
    result = cli("run", write("bad", files), "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (3, "refused", why)
    assert not cluster.runs


@pytest.mark.parametrize(
    "words",
    [
        ["--agent", "robot"],
        ["--agent", "script:/nonexistent"],
        ["--name", "Not A Name"],
        ["--timeout", "soon"],
        ["--timeout", "0"],
        ["--set", "spec"],
        ["--unknown"],
    ],
)
@pytest.mark.parametrize("form", [["--output", "json"], ["--output=json"], ["-o", "json"]])
def test_a_usage_error_is_64_and_has_a_document(cli: Cli, write: Any, words: list[str], form: list[str]) -> None:
    result = cli("run", write(), *words, *form)
    found = document(result.stdout)
    assert (result.exit_code, reason(found)) == (64, "UsageError")


def test_an_internal_error_is_70_in_one_line(cli: Cli, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr(manifests, "build", broken)
    result = cli("run", write(), "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (70, "error", "Internal")
    assert len(result.stderr.splitlines()) == 1
    assert "ZeroDivisionError: a bug of ours" in result.stderr
    monkeypatch.setenv("TASKFOLD_DEBUG", "1")
    assert "Traceback" in cli("run", write()).stderr
    monkeypatch.delenv("TASKFOLD_DEBUG")
    assert "Traceback" in cli("--debug", "run", write()).stderr


def test_text_prints_the_reward_at_the_verdict_and_progress_on_stderr(
    cli: Cli, write: Any, cluster: FakeCluster
) -> None:
    result = cli("run", write())
    assert result.stdout == "reward: 1\n"
    assert result.exit_code == 0
    for word in ("created in namespace ns", "Seeding  PodStarting", "Running  AgentRunning", "taskfold results "):
        assert word in result.stderr


def test_text_shows_named_rewards_and_the_reason(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    cluster.statuses[:] = [judged("0.5", complete=True, rewards={"a": 0.2, "b": 0.3})]
    assert cli("run", write()).stdout == "reward: 0.5 (a 0.2, b 0.3)\n"
    cluster.runs.clear()
    cluster.statuses[:] = [unjudged("Masked", "NodeLost", "agent", kind="harbor:provider_unavailable")]
    result = cli("run", write())
    assert (result.stdout, result.exit_code) == ("", 2)
    assert "NodeLost (harbor:provider_unavailable): because of NodeLost" in result.stderr


def test_steps_are_told_while_they_go_on_and_at_the_end(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    entry = {"phase": "agent", "step": "sec\x1bond", "nonce": "a" * 32}
    over = [{"name": "first", "reward": "0.5"}, {"name": "sec\x1bond", "reward": "0", "reason": "RewardMissing"}]
    working = going("Running", "AgentRunning", "since 12:00")
    working["journal"] = [entry]
    cluster.statuses[:] = [working, judged("0.25", complete=True, steps=over)]
    result = cli("run", write())
    for line in ("step sec ond: since 12:00", "step first: 0.5", "step sec ond: 0 (RewardMissing)"):
        assert line in result.stderr
    cluster.statuses[:] = [judged("0.25", complete=True, steps=over)]
    found = document(cli("run", write(), "--output", "json").stdout)
    assert [step["reward"] for step in found["steps"]] == [0.5, 0.0]


def test_the_verdict_counts_even_if_the_end_does_not_come(
    cli: Cli, write: Any, cluster: FakeCluster, monkeypatch: Any
) -> None:
    monkeypatch.setattr(episode, "CANCEL_SECONDS", 0.1)
    cluster.statuses[:] = [judged("1")]
    cluster.on_cancel = []
    result = cli("run", write(), "--timeout", "3")
    assert (result.stdout, result.exit_code) == ("reward: 1\n", 0)


def test_hostile_text_cannot_write_to_the_terminal(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    failure = {"reason": "RewardInvalid", "message": "got \x1b[2J\x07 [red]x[/red]", "stage": "verification"}
    cluster.statuses[:] = [going("Seeding", "PodStarting", "\x1b[31m"), judged("0", complete=True, failure=failure)]
    result = cli("run", write())
    assert "\x1b" not in result.output
    assert "[red]x[/red]" in result.stderr


def test_without_the_right_to_watch_it_polls(cli: Cli, write: Any, cluster: FakeCluster, monkeypatch: Any) -> None:
    monkeypatch.setattr(taskruns, "POLL_SECONDS", 0.01)
    cluster.watchable = False
    assert cli("run", write()).exit_code == 0
    assert cluster.calls.count("watch") > 1


def test_the_timeout_cancels_the_run(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    cluster.statuses[:] = [RUNNING]
    result = cli("run", write(), "--timeout", "0.3", "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"]) == (2, "cancelled")
    assert cluster.run["spec"]["cancel"] is True


def test_a_timeout_that_nobody_answers(cli: Cli, write: Any, cluster: FakeCluster, monkeypatch: Any) -> None:
    monkeypatch.setattr(episode, "CANCEL_SECONDS", 0.1)
    cluster.statuses[:] = [RUNNING]
    cluster.on_cancel = []
    result = cli("run", write(), "--timeout", "0.2", "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (2, "running", "TimedOut")


def test_without_an_operator_it_says_where_to_look_and_gives_up(
    cli: Cli, write: Any, cluster: FakeCluster, monkeypatch: Any
) -> None:
    monkeypatch.setattr(following, "NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(following, "ABSENT_SECONDS", 0.3)
    monkeypatch.setattr(episode, "UNSEEN_CANCEL_SECONDS", 0.1)
    cluster.statuses.clear()
    cluster.on_cancel = []
    result = cli("run", write(), "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (2, "running", "OperatorAbsent")
    assert result.stderr.count("kubectl get pods --all-namespaces --selector app.kubernetes.io/name=taskfold") == 1


def test_a_run_that_somebody_deletes(cli: Cli, write: Any, cluster: FakeCluster, monkeypatch: Any) -> None:
    monkeypatch.setattr(taskruns, "POLL_SECONDS", 0.01)
    cluster.statuses[:] = [RUNNING]
    cluster.delete_at_end = True
    found = document(cli("run", write(), "--output", "json").stdout)
    assert (found["outcome"], reason(found)) == ("cancelled", "RunDeleted")


def test_a_run_that_this_release_cannot_read_is_not_waited_for(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    cluster.statuses[:] = [RUNNING, {"phase": "Dreaming"}]
    result = cli("run", write(), "--output", "json")
    found = document(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (70, "error", "Internal")


def test_a_create_whose_answer_is_lost_is_looked_up(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    async def lost() -> web.Response:
        metadata = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
        spec = {"task": {"inline": {}}, "agent": {"nop": {}}}
        cluster.runs["a"] = {"metadata": metadata, "spec": spec}
        return refusal(504, "Timeout", "timed out")

    cluster.create = lost
    assert cli("run", write(), "--name", "a").exit_code == 0


def test_names(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    for _ in range(2):
        cli("run", write("My Task_1"))
        cluster.statuses[:] = [judged("1", complete=True)]
    first, second = cluster.runs
    assert first != second
    assert first.startswith("my-task-1-")
    cli("run", write(), "--name", "given")
    assert "given" in cluster.runs


def test_options_reach_the_run(cli: Cli, write: Any, cluster: FakeCluster, tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("echo hi\n")
    words = ("--agent", f"script:{script}", "--keep", "--namespace", "other", "--set", "multipliers.timeout=2")
    assert cli("run", write(), *words).exit_code == 0
    run = cluster.run
    assert run["metadata"]["namespace"] == "other"
    assert run["spec"]["agent"] == {"script": {"run": "echo hi\n"}}
    assert run["spec"]["podRetention"] == "Always"
    assert run["spec"]["multipliers"] == {"timeout": 2}
    assert run["spec"]["task"]["id"] == "hello"


def test_a_config_map_belongs_to_its_run(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    assert cli("run", write(), "--from", "configmap").exit_code == 0
    (files,) = cluster.maps.values()
    (owner,) = files["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.run["metadata"]["uid"]
    assert cluster.run["spec"]["task"]["configMap"]["name"] == files["metadata"]["name"]


def test_a_config_map_goes_when_its_run_is_refused(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    cluster.create = lambda: refusal(422, "Invalid", "no")
    assert cli("run", write(), "--from", "configmap").exit_code == 3
    assert not cluster.maps


def test_the_document_is_ascii(cli: Cli, write: Any, cluster: FakeCluster) -> None:
    cluster.statuses[:] = [judged("1", complete=True, warnings=["naïve ☃"])]
    result = cli("run", write(), "--output", "json")
    assert result.stdout.isascii()
    assert json.loads(result.stdout)["warnings"] == ["naïve ☃"]
