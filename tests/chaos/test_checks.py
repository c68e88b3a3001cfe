"""The checks find what they are for: each wrong world gives its sentence, the right ones give none."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import checks
from tests.chaos.runs import Case, End

UID, STORE = "uid-1", "test/ns/uid-1/1"
CASE = Case("run-1", {}, End(reward="0.5", outcome="Succeeded"))
STARTS = {"agent": 1, "test": 1}


def run(**changes: Any) -> dict[str, Any]:
    """A run that has ended as it must."""
    status = {
        "phase": "Succeeded",
        "reward": "0.5",
        "complete": True,
        "store": STORE,
        "agent": {"outcome": "Succeeded"},
        "attempts": [{"number": 1, "tries": 1, "podUID": "p", "endTime": "t", "reason": "VerdictReached"}],
        "conditions": [{"type": "Complete", "status": "True"}, {"type": "Succeeded", "status": "True"}],
        **changes,
    }
    return {
        "metadata": {"uid": UID, "name": "run-1"},
        "status": {k: v for k, v in status.items() if v is not None},
    }


def masked(reason: str, **changes: Any) -> dict[str, Any]:
    """A run whose sandbox was lost."""
    attempt = {"number": 1, "tries": 1, "podUID": "p", "endTime": "t", "reason": reason}
    conditions = [{"type": "Complete", "status": "True"}, {"type": "Succeeded", "status": "False"}]
    failure = {"reason": reason, "stage": "agent"}
    ended = {"phase": "Masked", "masked": True, "reward": None, "agent": None, "failure": failure}
    return run(**{**ended, "attempts": [attempt], "conditions": conditions, **changes})


def verifier(reward: str | None = "0.5") -> dict[str, Any]:
    status = {"complete": True, **({"reward": reward} if reward else {})}
    owner = {"uid": UID}
    return {
        "metadata": {"ownerReferences": [owner]},
        "spec": {"source": {"runRef": owner}},
        "status": status,
    }


FILES = {"key": "files.tar", "sha256": hashlib.sha256(b"files").hexdigest()}


def stored(folder: Path, status: dict[str, Any], **changes: Any) -> Path:
    """The store as the operator leaves it."""
    place = folder / STORE
    place.mkdir(parents=True)
    (place / "files.tar").write_bytes(b"files")
    reward = float(status["reward"]) if "reward" in status else None
    row = {"uid": UID, "phase": status["phase"], "reward": reward, "masked": status.get("masked", False)}
    (place / "artifacts.json").write_text(
        json.dumps({"artifacts": [{"archive": FILES | changes.get("artifact", {})}, {"archive": None}]})
    )
    index = {"step": None, "key": "artifacts.json"}
    collected = {"error": "", "archives": [{"of": "sandbox", "step": None, **FILES}], "artifacts": [index]}
    (place / "row.json").write_text(json.dumps({**row, **changes.get("row", {})}))
    (place / "collected.json").write_text(json.dumps({**collected, **changes.get("collected", {})}))
    return folder


def found(
    folder: Path, ended: dict[str, Any], *, starts: dict[str, int] = STARTS, grader: Any = None, **changes: Any
) -> list[str]:
    graded = verifier(ended["status"].get("reward")) if grader is None else grader
    evidence = checks.Evidence(CASE, ended, graded, starts, stored(folder, ended["status"], **changes))
    return checks.of_run(evidence, {"PodDeleted"})


def test_a_right_end_and_an_allowed_loss_give_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path / "a", run()) == []
    assert found(tmp_path / "b", masked("PodDeleted"), starts={"agent": 1}) == []


def test_tries_that_were_used_up_by_allowed_losses_are_no_finding(tmp_path: Path) -> None:
    attempt = {"number": 1, "tries": 3, "podUID": "p", "endTime": "t", "reason": "PodDeleted"}
    failure = {"reason": "PodDeleted", "stage": "seed"}
    ended = masked("PodDeleted", phase="Failed", masked=None, failure=failure, attempts=[attempt])
    assert found(tmp_path, ended, starts={}) == []


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "not complete": (run(complete=False), {}, "is not complete"),
    "another reward": (run(reward="1"), {}, "ended as"),
    "another outcome of the agent": (run(agent={"outcome": "Failed"}), {}, "ended as"),
    "a loss that the fault does not cause": (masked("NodeLost"), {}, "ended as"),
    "failed with tries left": (masked("PodDeleted", phase="Failed", masked=None), {}, "ended as"),
    "agent started twice": (run(), {"starts": {"agent": 2, "test": 1}}, "agent was started 2 times in 1 attempts"),
    "verifier started twice": (run(), {"starts": {"agent": 1, "test": 2}}, "test was started 2 times"),
    "started twice before a loss": (masked("PodDeleted"), {"starts": {"agent": 2}}, "agent was started 2 times"),
    "verdict without a verifier": (run(), {"starts": {"agent": 1}}, "test was never started"),
    "another row": (run(), {"row": {"reward": 1.0}}, "has the row"),
    "another digest": (run(), {"collected": {"archives": [FILES | {"sha256": "x"}]}}, "keeps files.tar with another"),
    "an archive that is not there": (run(), {"collected": {"archives": [FILES | {"key": "gone.tar"}]}}, "keeps gone"),
    "an artifact with another digest": (run(), {"artifact": {"sha256": "x"}}, "keeps files.tar with another"),
    "no files": (run(), {"collected": {"archives": []}}, "keeps no files"),
    "another reward of its grader": (run(), {"grader": verifier("1")}, "its VerifierRun has 1"),
    "a reward without a grader": (run(), {"grader": {}}, "its VerifierRun has None"),
    "journal left": (run(journal=[{"phase": "seed"}]), {}, "still has a journal"),
    "attempts out of order": (run(attempts=[{**run()["status"]["attempts"][0], "number": 2}]), {}, "out of order"),
    "too many tries": (run(attempts=[{**run()["status"]["attempts"][0], "tries": 4}]), {}, "more tries"),
    "an attempt without its end": (run(attempts=[{"number": 1, "tries": 1, "podUID": "p"}]), {}, "last attempt"),
    "conditions of a running run": (run(conditions=[]), {}, "has the conditions"),
}


@pytest.mark.parametrize(("ended", "more", "says"), WRONG.values(), ids=WRONG)
def test_whatever_is_wrong_is_found(tmp_path: Path, ended: dict[str, Any], more: dict[str, Any], says: str) -> None:
    assert any(says in problem for problem in found(tmp_path, ended, **more))


def test_a_run_without_a_row_is_found(tmp_path: Path) -> None:
    evidence = checks.Evidence(CASE, run(), verifier(), STARTS, tmp_path)
    assert any("no record in the store" in problem for problem in checks.of_run(evidence, ()))


def pod(run_name: str, owner: str = UID) -> Any:
    owners = [SimpleNamespace(uid=owner)]
    labels = {"taskfold.dev/run": run_name}
    return SimpleNamespace(metadata=SimpleNamespace(name=f"{run_name}-1-1", labels=labels, owner_references=owners))


KEEPER = Case("kept-1", {}, End(), keeps_pod=True)
LEFT: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "a pod": ([pod("run-1")], {}, "pod run-1-1-1 is left"),
    "a kept pod of nobody": ([pod("kept-1", "gone")], {}, "pod kept-1-1-1 is left"),
    "a VerifierRun of nobody": ([], {"v": {**verifier(), "metadata": {}}}, "v has no owner"),
    "a VerifierRun that goes on": ([], {"v": {**verifier(), "status": {}}}, "v never ended"),
    "two VerifierRuns": ([], {"v": verifier(), "w": verifier()}, "several VerifierRuns"),
}


@pytest.mark.parametrize(("pods", "verifiers", "says"), LEFT.values(), ids=LEFT)
def test_whatever_is_left_is_found(pods: list[Any], verifiers: dict[str, Any], says: str) -> None:
    left = checks.orphans([CASE, KEEPER], {"run-1": run()}, verifiers, pods)
    assert any(says in problem for problem in left)


def test_a_kept_pod_and_a_verifier_of_its_run_are_no_orphans() -> None:
    assert checks.orphans([CASE, KEEPER], {"run-1": run()}, {"v": verifier()}, [pod("kept-1")]) == []
