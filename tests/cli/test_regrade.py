"""`taskfold regrade` against a fake cluster: exit code and document of every ending."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from taskfold.build import regrade as builder
from taskfold.cli import following
from taskfold.effects import taskruns

from .conftest import Cli, verification
from .fakes import FakeCluster, going, judged, kubeconfig, refusal, unjudged

VERIFYING = going("Verifying", "Verifying")
TESTS = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
ENDINGS = {
    "reward 1": (judged("1", complete=True), 0, "verdict", None),
    "reward below 1": (judged("0.99", complete=True), 1, "verdict", None),
    "no reward file counts as 0": (
        judged("0", complete=True, failure={"reason": "RewardMissing", "stage": "verification"}),
        1,
        "verdict",
        "RewardMissing",
    ),
    "masked": (unjudged("Masked", "NodeLost", "verification"), 2, "masked", "NodeLost"),
    "failed": (unjudged("Failed", "PodRejected", "verification"), 2, "failed", "PodRejected"),
    "cancelled by somebody": (unjudged("Cancelled", "Cancelled", "verification"), 2, "cancelled", "Cancelled"),
    "refused by the operator": (
        unjudged("Failed", "NotGradable", "verification", terminal=True),
        3,
        "refused",
        "NotGradable",
    ),
    "its run is deleted": (
        unjudged("Failed", "SourceNotFound", "verification", terminal=True),
        2,
        "cancelled",
        "RunDeleted",
    ),
}
REFUSALS = {
    "invalid": (refusal, (422, "Invalid", "spec.tests: wrong"), 3, "refused", "Rejected"),
    "name taken": (refusal, (409, "AlreadyExists", 'verifierruns "a" already exists'), 3, "refused", "Rejected"),
    "not allowed": (refusal, (403, "Forbidden", "you may not"), 3, "refused", "NotAllowed"),
    "no such kind": (refusal, (404, "NotFound", "404 page not found"), 3, "refused", "NotInstalled"),
    "login refused": (refusal, (401, "Unauthorized", "who are you"), 2, "error", "NoCredentials"),
    "server ill": (refusal, (500, "InternalError", "etcd"), 2, "error", "Unreachable"),
}


@pytest.fixture
def graded(cluster: FakeCluster) -> FakeCluster:
    """A complete run with a reward of 0.5, and a verification of it that comes to 1."""
    cluster.have("r", judged("0.5", complete=True))
    cluster.statuses[:] = [VERIFYING, judged("1"), judged("1", complete=True)]
    return cluster


def reason(found: dict[str, Any]) -> str | None:
    return found["failure"]["reason"] if found["failure"] else None


@pytest.mark.parametrize("case", ENDINGS)
def test_exit_code_and_document_follow_from_the_status(cli: Cli, graded: FakeCluster, case: str) -> None:
    status, code, outcome, why = ENDINGS[case]
    graded.statuses[:] = [VERIFYING, status]
    result = cli("regrade", "r", "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (code, outcome, why), result.stderr
    assert (found["name"], found["namespace"]) == (graded.verifier["metadata"]["name"], "ns")
    assert found["run"] == {"name": "r", "uid": "uid-1", "step": None}
    assert found["previous_reward"] == 0.5


def test_text_gets_the_reward_and_what_it_was_before(cli: Cli, graded: FakeCluster) -> None:
    result = cli("regrade", "r")
    assert (result.stdout, result.exit_code) == ("reward: 1\n", 0)
    name = graded.verifier["metadata"]["name"]
    for words in (
        f"verifierrun/{name} created in namespace ns; it goes on without this command",
        "Verifying",
        "reward of taskrun/r, which is not changed: 0.5",
        f"taskfold results verifierrun/{name}",
    ):
        assert words in result.stderr
    assert graded.run["status"]["reward"] == "0.5"


def test_a_step_has_a_reward_of_its_own(cli: Cli, graded: FakeCluster) -> None:
    steps = [{"name": "first", "reward": "0.25"}, {"name": "second", "masked": True}]
    graded.have("r", judged("0.5", complete=True, steps=steps))
    for step, before, words in (("first", 0.25, "0.25"), ("second", None, "none"), ("third", None, "none")):
        graded.statuses[:] = [judged("1", complete=True)]
        result = cli("regrade", "r", "--step", step, "--output", "json")
        found = verification(result.stdout)
        assert (found["run"]["step"], found["previous_reward"]) == (step, before)
        assert f"reward of step {step} of taskrun/r, which is not changed: {words}" in result.stderr


def test_no_reward_says_why(cli: Cli, graded: FakeCluster) -> None:
    graded.have("r", unjudged("Masked", "QuotaExceeded", "verification"))
    graded.statuses[:] = [unjudged("Masked", "NodeLost", "verification", kind="harbor:provider_unavailable")]
    result = cli("regrade", "r")
    assert (result.stdout, result.exit_code) == ("", 2)
    assert "masked: no reward" in result.stderr
    assert "NodeLost (harbor:provider_unavailable): because of NodeLost" in result.stderr
    assert "which is not changed: none" in result.stderr


def test_without_waiting_it_ends_with_the_creation(cli: Cli, graded: FakeCluster) -> None:
    graded.statuses.clear()
    result = cli("regrade", "r", "--no-wait", "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], found["failure"]) == (0, "running", None)
    assert found["uid"] == graded.verifier["metadata"]["uid"]
    assert (cli("regrade", "r", "--no-wait").stdout, len(graded.verifiers)) == ("", 2)


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_api_server_refuses(cli: Cli, graded: FakeCluster, case: str) -> None:
    answer, arguments, code, outcome, why = REFUSALS[case]
    graded.create = lambda: answer(*arguments)
    result = cli("regrade", "r", "--output", "json", "--name", "a", "--force")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (code, outcome, why)
    assert (found["name"], found["namespace"], found["run"]["name"], found["forced"]) == ("a", "ns", "r", True)


def test_there_is_no_such_run(cli: Cli, cluster: FakeCluster) -> None:
    result = cli("regrade", "none", "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (3, "refused", "NotFound")
    assert "kubectl --namespace ns get taskruns" in found["message"]
    assert found["message"] in cli("regrade", "none").stderr


def test_connection_refused(cli: Cli, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    result = cli("regrade", "r", "--output", "json", "--kubeconfig", config)
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (2, "error", "Unreachable")
    assert "http://127.0.0.1:9" in found["message"]


def test_no_kubeconfig(cli: Cli, tmp_path: Path) -> None:
    result = cli("regrade", "r", "--output", "json", "--kubeconfig", tmp_path / "none")
    assert (result.exit_code, reason(verification(result.stdout))) == (2, "NoCredentials")


def test_an_api_server_that_goes_away_while_it_waits(cli: Cli, graded: FakeCluster, monkeypatch: Any) -> None:
    monkeypatch.setattr(taskruns, "CONTACT_SECONDS", -1.0)
    graded.read["verifierruns"] = lambda: refusal(503, "ServiceUnavailable", "away")
    result = cli("regrade", "r", "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (2, "running", "Unreachable")
    assert "The VerifierRun goes on. See: kubectl --namespace ns get verifierrun " in found["message"]


def test_without_an_operator_it_says_where_to_look_and_gives_up(
    cli: Cli, graded: FakeCluster, monkeypatch: Any
) -> None:
    monkeypatch.setattr(following, "NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(following, "ABSENT_SECONDS", 0.3)
    graded.statuses.clear()
    result = cli("regrade", "r", "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (2, "running", "OperatorAbsent")
    assert result.stderr.count("kubectl get pods --all-namespaces --selector app.kubernetes.io/name=taskfold") == 1
    assert "cancel" not in graded.calls


def test_a_verifierrun_that_somebody_deletes(cli: Cli, graded: FakeCluster, monkeypatch: Any) -> None:
    monkeypatch.setattr(taskruns, "POLL_SECONDS", 0.01)
    graded.statuses[:] = [VERIFYING]
    graded.delete_at_end = True
    result = cli("regrade", "r", "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (2, "cancelled", "RunDeleted")
    assert found["message"] == "the VerifierRun was deleted before it was complete"


def test_a_run_that_is_deleted_meanwhile_is_named(cli: Cli, graded: FakeCluster) -> None:
    graded.statuses[:] = [unjudged("Failed", "SourceNotFound", "verification", terminal=True)]
    result = cli("regrade", "r")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "RunDeleted: TaskRun r was deleted before the verdict" in result.stderr


def test_without_the_right_to_watch_it_polls(cli: Cli, graded: FakeCluster, monkeypatch: Any) -> None:
    monkeypatch.setattr(taskruns, "POLL_SECONDS", 0.01)
    graded.watchable = False
    assert cli("regrade", "r").exit_code == 0
    assert graded.calls.count("watch") > 1


def test_a_create_whose_answer_is_lost_is_looked_up(cli: Cli, graded: FakeCluster) -> None:
    async def lost() -> web.Response:
        metadata = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
        spec = {"mode": "separate", "source": {"runRef": {"name": "r", "uid": "uid-1"}}}
        graded.verifiers["a"] = {"metadata": metadata, "spec": spec}
        return refusal(504, "Timeout", "timed out")

    graded.create = lost
    assert cli("regrade", "r", "--name", "a").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["r", "--name", "Not A Name"],
        ["r", "--timeout", "soon"],
        ["r", "--timeout", "0"],
        ["r", "--tests", "/nonexistent"],
        ["r", "--unknown"],
        ["verifierrun/r"],
        ["pod/r"],
        [""],
        [],
    ],
)
@pytest.mark.parametrize("form", [["--output", "json"], ["--output=json"], ["-o", "json"]])
def test_a_usage_error_is_64_and_has_a_document(cli: Cli, cluster: FakeCluster, words: Any, form: Any) -> None:
    result = cli("regrade", *words, *form)
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (64, "refused", "UsageError")
    assert not cluster.verifiers


def test_a_run_may_be_written_as_kubectl_does(cli: Cli, graded: FakeCluster) -> None:
    assert cli("regrade", "taskrun/r").exit_code == 0
    assert graded.verifier["spec"]["source"]["runRef"] == {"name": "r", "uid": "uid-1"}
    assert graded.verifier["metadata"]["name"].startswith("r-")


def test_options_reach_the_verifierrun(cli: Cli, graded: FakeCluster, tmp_path: Path) -> None:
    script = tmp_path / "tests/test.sh"
    script.parent.mkdir()
    script.write_text(TESTS)
    script.chmod(0o755)
    words = ("--tests", script.parent, "--step", "build", "--timeout", "5", "--force", "--name", "a")
    assert cli("regrade", "r", *words).exit_code == 0
    spec = graded.verifiers["a"]["spec"]
    assert (spec["tests"]["inline"]["files"], spec["step"]) == ({"test.sh": TESTS}, "build")
    assert (spec["timeoutSeconds"], spec["force"]) == (5, True)


@pytest.mark.parametrize("what", ["link", "large"])
def test_tests_that_no_object_holds_are_refused(cli: Cli, graded: FakeCluster, tmp_path: Path, what: str) -> None:
    script = tmp_path / "tests/test.sh"
    script.parent.mkdir()
    if what == "link":
        script.symlink_to("/etc/passwd")
    else:
        script.write_text("#!" + "x" * 2**21)
    result = cli("regrade", "r", "--tests", script.parent, "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (3, "refused", "InvalidTask")
    assert "test.sh" in found["message"]
    assert not graded.verifiers


def test_an_internal_error_is_70_and_has_a_document(cli: Cli, graded: FakeCluster, monkeypatch: Any) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr(builder, "manifest", broken)
    result = cli("regrade", "r", "--output", "json")
    found = verification(result.stdout)
    assert (result.exit_code, found["outcome"], reason(found)) == (70, "error", "Internal")
    assert result.stderr.splitlines()[-1].startswith("internal error: ZeroDivisionError: a bug of ours")


def test_a_verifierrun_that_this_release_cannot_read_is_not_waited_for(cli: Cli, graded: FakeCluster) -> None:
    graded.statuses[:] = [VERIFYING, {"phase": "Dreaming"}]
    result = cli("regrade", "r", "--output", "json")
    assert (result.exit_code, reason(verification(result.stdout))) == (70, "Internal")


def test_hostile_text_cannot_write_to_the_terminal(cli: Cli, graded: FakeCluster) -> None:
    failure = {"reason": "RewardInvalid", "message": "got \x1b[2J\x07", "stage": "verification"}
    graded.statuses[:] = [judged("0", complete=True, failure=failure, warnings=["\x1b[31m"])]
    assert "\x1b" not in cli("regrade", "r").output
