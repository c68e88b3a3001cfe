"""What must hold once every run has ended, whatever was done meanwhile. Each finding is one sentence.

Guarantees: a run is judged by its status, by the VerifierRun that graded it, by what the store keeps and by what was
counted outside of the sandboxes; the four must tell the same.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos import kept
from tests.chaos.runs import Case

Object = Mapping[str, Any]

TRIES = 3
"""Sandboxes within an attempt before its agent's first instruction."""


@dataclass(frozen=True)
class Evidence:
    """Everything that is known of one run."""

    case: Case
    run: Object
    verifier: Object | None
    starts: Mapping[str, int]
    """By step, how often it was started."""
    store: Path

    @property
    def status(self) -> Mapping[str, Any]:
        return self.run.get("status") or {}

    @property
    def failure(self) -> Mapping[str, Any]:
        return self.status.get("failure") or {}

    def lost(self, reasons: Collection[str]) -> bool:
        """The run has no verdict, because its sandbox was lost for one of these reasons."""
        reason = self.failure.get("reason")
        if reason not in reasons or "reward" in self.status:
            return False
        tries = self.status["attempts"][-1]["tries"] if self.status.get("attempts") else 0
        before = self.failure.get("stage") == "seed" and tries == TRIES
        phase = self.status.get("phase")
        return (phase == "Masked" and self.status.get("masked") is True) or (phase == "Failed" and before)


def of_run(found: Evidence, losses: Collection[str]) -> list[str]:
    """Everything that is wrong with one run."""
    if not found.status.get("complete"):
        return [f"is not complete: {dict(found.status)}"]
    problems = _doubles(found) + _record(found) + _history(found)
    problems += kept.wrong(found.store / found.status.get("store", ""), found.case.known)
    if found.lost(losses):
        return problems
    return problems + _end(found) + _missing(found)


def _end(found: Evidence) -> list[str]:
    status, wanted = found.status, found.case.end
    graded = status.get("phase") == "Succeeded"
    outcome = (status.get("agent") or {}).get("outcome") if graded else None
    got = (status.get("phase"), status.get("reward"), found.failure.get("reason"), outcome)
    expected = (wanted.phase, wanted.reward, wanted.reason, wanted.outcome)
    return [] if got == expected else [f"ended as {got} and not as {expected}: {found.failure.get('message')}"]


def _missing(found: Evidence) -> list[str]:
    """A verdict without the agent's or the verifier's start would be an invented one."""
    if found.status.get("phase") != "Succeeded":
        return []
    return [f"has a verdict, but {step} was never started" for step in sorted(found.case.steps - found.starts.keys())]


def _doubles(found: Evidence) -> list[str]:
    attempts = len(found.status.get("attempts") or ())
    # Without a sandbox there was nothing to start anything in.
    return [
        f"{step} was started {count} times in {attempts} attempts"
        for step, count in sorted(found.starts.items())
        if count > attempts
    ]


def _record(found: Evidence) -> list[str]:
    """The row and the files in the store tell what the status tells."""
    status = found.status
    folder = found.store / status.get("store", "")
    try:
        row = json.loads((folder / "row.json").read_text())
        collected = json.loads((folder / "collected.json").read_text())
    except (OSError, ValueError) as error:
        return [f"is complete and has no record in the store: {error}"]
    reward = float(status["reward"]) if "reward" in status else None
    told = (found.run["metadata"]["uid"], status["phase"], reward, status.get("masked", False))
    kept = (row["uid"], row["phase"], row["reward"], row["masked"])
    problems = [] if told == kept else [f"has the row {kept} and the status {told}"]
    problems += _archives(folder, collected)
    if not collected["archives"] and not collected["error"] and status.get("attempts", [{}])[-1].get("podUID"):
        problems.append("keeps no files and does not say why")
    return problems


def _archives(folder: Path, collected: dict[str, Any]) -> list[str]:
    """Every archive that the index, or a manifest of artifacts that it names, speaks of is there as it says."""
    named = [(each["key"], each["sha256"]) for each in collected["archives"]]
    for each in collected["artifacts"]:
        below = each["key"].rpartition("/")[0]
        entries = json.loads((folder / each["key"]).read_text())["artifacts"]
        archives = [entry["archive"] for entry in entries if entry["archive"] is not None]
        named += [(f"{below}/{one['key']}".lstrip("/"), one["sha256"]) for one in archives]
    wrong = [key for key, digest in named if hashlib.sha256(_content(folder / key)).hexdigest() != digest]
    return [f"keeps {key} with another digest than the recorded one" for key in wrong]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b"there is no such file"


def _history(found: Evidence) -> list[str]:
    """Attempts, journal, conditions and the VerifierRun agree with the outcome."""
    status, problems = found.status, []
    attempts = status.get("attempts") or []
    if [each["number"] for each in attempts] != list(range(1, len(attempts) + 1)):
        problems.append(f"has attempts out of order: {attempts}")
    if any(not 1 <= each["tries"] <= TRIES for each in attempts):
        problems.append(f"has more tries than allowed: {attempts}")
    reason = found.failure.get("reason", "VerdictReached")
    if attempts and (attempts[-1].get("reason") != reason or "endTime" not in attempts[-1]):
        problems.append(f"has a last attempt that does not tell its end ({reason}): {attempts[-1]}")
    if status.get("journal"):
        problems.append(f"is complete and still has a journal: {status['journal']}")
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    wanted = {"Complete": "True", "Succeeded": "True" if "reward" in status else "False"}
    if {kind: conditions.get(kind) for kind in wanted} != wanted:
        problems.append(f"has the conditions {conditions} and not {wanted}")
    graded = (found.verifier or {}).get("status") or {}
    if graded.get("reward") != status.get("reward"):
        problems.append(f"has the reward {status.get('reward')}, its VerifierRun has {graded.get('reward')}")
    return problems


def orphans(
    cases: Collection[Case], runs: Mapping[str, Object], verifiers: Mapping[str, Object], pods: Collection[Any]
) -> list[str]:
    """What is left in the namespace and belongs to no run, or should be gone."""
    uids = {run["metadata"]["uid"] for run in runs.values()}
    kept = {case.name for case in cases if case.keeps_pod}
    found = [
        f"pod {pod.metadata.name} is left"
        for pod in pods
        if pod.metadata.labels["taskfold.dev/run"] not in kept
        or not any(owner.uid in uids for owner in pod.metadata.owner_references or ())
    ]
    for name, verifier in verifiers.items():
        if not any(owner["uid"] in uids for owner in verifier["metadata"].get("ownerReferences") or ()):
            found.append(f"VerifierRun {name} has no owner")
        if not (verifier.get("status") or {}).get("complete"):
            found.append(f"VerifierRun {name} never ended")
    graded = [verifier["spec"]["source"]["runRef"]["uid"] for verifier in verifiers.values()]
    found += [f"the run {uid} has several VerifierRuns" for uid in sorted(set(graded)) if graded.count(uid) > 1]
    return found
