"""The rules of possible worlds: each fires on what it forbids, and a world that is possible passes them all."""

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from taskfold.api import names
from taskfold.effects import client as api
from tests.world import apiserver, checker

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EARLY, LATE = "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:10.000Z"


def meta(word: str, **more: Any) -> Json:
    found = {"name": word, "namespace": "team", "uid": f"uid-{word}", "resourceVersion": "1", "generation": 1}
    return {**found, "creationTimestamp": "2026-01-01T00:00:00Z", **more}


def complete(told: bool) -> list[Json]:
    return [{"type": "Complete", "status": "True" if told else "False"}]


def run(**status: Any) -> Json:
    return {"metadata": meta("run"), "spec": {}, "status": status}


def ended(**status: Any) -> Json:
    """A run with a verdict, files kept and pods removed."""
    whole = {"phase": "Succeeded", "reward": "1", "complete": True, "conditions": complete(True), "startTime": EARLY}
    return run(**{**whole, "verdictTime": EARLY, "completionTime": LATE, **status})


def entry(nonce: str = "a1", pod: str = "uid-pod", **more: Any) -> Json:
    return {"phase": "seed", "nonce": nonce, "podUID": pod, **more}


def pod(word: str = "pod", **status: Any) -> Json:
    labels = {names.RUN: "run", names.RUN_UID: "uid-run"}
    spec = {"restartPolicy": "Never", "nodeName": "node-1"}
    return {"metadata": meta(word, labels=labels), "spec": spec, "status": {"phase": "Running", **status}}


def container(state: str, number: str = "1", restarts: int = 0) -> list[Json]:
    return [{"name": "main", "containerID": f"containerd://{number}", "restartCount": restarts, "state": {state: {}}}]


def verification(owner: str = "uid-run", graded: str = "uid-run", **status: Any) -> Json:
    owners = [{"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "name": "run", "uid": owner}]
    metadata = meta("run-1-verify", ownerReferences=owners)
    return {"metadata": metadata, "spec": {"source": {"runRef": {"name": "run", "uid": graded}}}, "status": status}


def with_meta(obj: Json, **more: Any) -> Json:
    return {**obj, "metadata": {**obj["metadata"], **more}}


def without(obj: Json, key: str) -> Json:
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != key}}


class Story:
    """Writes one after the other, each with the next version unless it is told otherwise."""

    def __init__(self) -> None:
        self.checker = checker.Checker(apiserver.ApiServer(lambda: NOW))
        self.version = 1000

    def tell(self, kind: str, plural: str, obj: Json, version: int | None = None) -> None:
        self.version += 1
        found = copy.deepcopy(obj)
        found["metadata"]["resourceVersion"] = str(self.version if version is None else version)
        self.checker.see(kind, plural, found)

    @property
    def broken(self) -> list[str]:
        return sorted({each.rule for each in self.checker.violations})


def told(*writes: tuple[str, str, Json]) -> list[str]:
    """The rules that these writes break, after a run and a pod of it were created."""
    story = Story()
    story.tell("ADDED", "taskruns", run())
    story.tell("ADDED", "pods", pod())
    for kind, plural, obj in writes:
        story.tell(kind, plural, obj)
    return story.broken


def changed(plural: str, *states: Json) -> list[str]:
    return told(*(("MODIFIED", plural, state) for state in states))


ATTEMPTS = [{"number": 1, "tries": 1}, {"number": 2, "tries": 1}]

CASES: dict[str, Callable[[], list[str]]] = {
    "identity-is-kept": lambda: changed("taskruns", with_meta(run(), uid="uid-pod")),
    "a-uid-is-given-once": lambda: told(("ADDED", "configmaps", {"metadata": meta("x", uid="uid-run")})),
    "deletion-is-final": lambda: changed("pods", with_meta(pod(), deletionTimestamp="2026-01-01T00:00:30Z"), pod()),
    "generation-never-falls": lambda: changed("taskruns", with_meta(run(), generation=2), run()),
    "owners-existed": lambda: told(("ADDED", "verifierruns", verification(owner="uid-none", graded="uid-none"))),
    "a-final-phase-is-never-left": lambda: changed(
        "taskruns", run(phase="Failed", failure={"reason": "X"}), run(phase="Running")
    ),
    "a-word-once-said-stands": lambda: changed(
        "taskruns", run(phase="Succeeded", reward="1"), run(phase="Succeeded", reward="0")
    ),
    "complete-is-never-taken-back": lambda: changed("taskruns", ended(), ended(complete=False, conditions=[])),
    "complete-needs-an-ending": lambda: changed(
        "taskruns", run(phase="Running", complete=True, completionTime=LATE, conditions=complete(True))
    ),
    "complete-is-told-in-both-places": lambda: changed("taskruns", ended(conditions=complete(False))),
    "times-are-in-order": lambda: changed("taskruns", ended(verdictTime=LATE, completionTime=EARLY)),
    "durations-are-not-negative": lambda: changed("taskruns", run(phase="Running", timings={"seed": -0.1})),
    "a-reward-is-a-verdict": lambda: changed("taskruns", run(phase="Running", reward="1")),
    "masked-is-told-in-both-places": lambda: changed("taskruns", run(phase="Masked", failure={"reason": "X"})),
    "no-ending-without-a-reason": lambda: changed("taskruns", run(phase="Cancelled")),
    "a-status-fits": lambda: changed("taskruns", run(phase="Running", store="x" * 17_000)),
    "generations-are-observed-in-order": lambda: changed("taskruns", run(observedGeneration=2)),
    "attempts-only-grow": lambda: changed("taskruns", run(attempts=ATTEMPTS), run(attempts=ATTEMPTS[:1])),
    "steps-only-grow": lambda: changed(
        "taskruns",
        run(attempts=ATTEMPTS[:1], steps=[{"name": "one", "reward": "1"}]),
        run(attempts=ATTEMPTS[:1], steps=[{"name": "one", "reward": "0"}]),
    ),
    "tries-are-bounded": lambda: changed("taskruns", run(attempts=[{"number": 1, "tries": 4}])),
    "a-nonce-is-one-phase-in-one-pod": lambda: changed(
        "taskruns", run(journal=[entry()]), run(journal=[entry(pod="uid-run")])
    ),
    "a-journals-times-stand": lambda: changed(
        "taskruns", run(journal=[entry(endedAt=EARLY)]), run(journal=[entry(endedAt=LATE)])
    ),
    "a-journals-pods-existed": lambda: changed("taskruns", run(journal=[entry(pod="uid-none")])),
    "what-is-graded-existed": lambda: told(("ADDED", "verifierruns", verification(graded="uid-pod"))),
    "a-run-has-its-verifications-reward": lambda: told(
        ("ADDED", "verifierruns", verification(phase="Succeeded", reward="0.5")),
        ("MODIFIED", "taskruns", run(phase="Succeeded", reward="1", verifier={"uid": "uid-run-1-verify"})),
    ),
    "a-pod-stays-on-its-node": lambda: changed("pods", {**pod(), "spec": {"nodeName": "node-2"}}),
    "an-ended-pod-stays-ended": lambda: changed("pods", pod(phase="Failed"), pod()),
    "what-has-terminated-does-not-run-again": lambda: changed(
        "pods", pod(containerStatuses=container("terminated")), pod(containerStatuses=container("running"))
    ),
    "another-container-is-a-restart": lambda: changed(
        "pods", *[pod(containerStatuses=container("running", number)) for number in "12"]
    ),
    "a-pod-is-created-once": lambda: told(
        ("DELETED", "pods", pod()), ("ADDED", "pods", with_meta(pod(), uid="uid-second"))
    ),
    "one-pod-at-a-time": lambda: told(("ADDED", "pods", pod("other"))),
}


@pytest.mark.parametrize("name", sorted({rule.name for rule in checker.RULES} - {"versions-rise"}))
def test_a_rule_fires_alone(name: str) -> None:
    assert CASES[name]() == [name]


def test_versions_rise() -> None:
    story = Story()
    story.tell("ADDED", "taskruns", run())
    story.tell("MODIFIED", "taskruns", run(phase="Running"), version=story.version)
    assert story.broken == ["versions-rise"]


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("a-final-phase-is-never-left", lambda: changed("verifierruns", verification(), verification(phase="Running"))),
        ("times-are-in-order", lambda: changed("taskruns", ended())),
        ("attempts-only-grow", lambda: changed("taskruns", run(attempts=ATTEMPTS[:1]), run(attempts=ATTEMPTS))),
        ("a-pod-is-created-once", lambda: told(("DELETED", "pods", pod()))),
        ("one-pod-at-a-time", lambda: told(("DELETED", "pods", pod()), ("ADDED", "pods", pod("next")))),
        ("one-pod-at-a-time", lambda: told(("MODIFIED", "pods", pod(phase="Failed")), ("ADDED", "pods", pod("next")))),
        ("what-has-terminated", lambda: changed("pods", *[pod(containerStatuses=container("terminated"))] * 2)),
        (
            "another-container",
            lambda: changed("pods", *[pod(containerStatuses=container("running", str(n), n)) for n in (1, 2)]),
        ),
        ("a-nonce", lambda: changed("taskruns", run(journal=[entry()]), run(journal=[entry(), entry("b2")]))),
    ],
)
def test_what_is_possible_passes(name: str, broken: Callable[[], list[str]]) -> None:
    assert broken() == [], name


@pytest.mark.parametrize(
    ("rule", "states"),
    [
        ("a-word-once-said-stands", [ended(), ended(completionTime="2026-01-01T00:00:11.000Z")]),
        ("attempts-only-grow", [run(attempts=[{**ATTEMPTS[0], "endTime": EARLY}]), run(attempts=[ATTEMPTS[0]])]),
        ("attempts-only-grow", [run(attempts=[{"number": 2}])]),
        ("tries-are-bounded", [run(attempts=[{"number": 1, "tries": 2}]), run(attempts=ATTEMPTS[:1])]),
        ("a-nonce-is-one-phase-in-one-pod", [run(journal=[entry(), entry()])]),
        ("a-journals-times-stand", [run(journal=[entry(startedAt=EARLY)]), run(journal=[entry()])]),
        ("generations-are-observed-in-order", [run(observedGeneration=1), run()]),
        ("complete-needs-an-ending", [run(phase="Succeeded", reward="1", complete=True, conditions=complete(True))]),
    ],
)
def test_a_rule_has_more_than_one_side(rule: str, states: list[Json]) -> None:
    assert rule in changed("taskruns", *states)


def test_a_nonce_is_nobody_elses_for_ever() -> None:
    other = with_meta(run(journal=[entry()]), name="other", uid="uid-other")
    writes = [("MODIFIED", "taskruns", run(journal=[entry()])), ("MODIFIED", "taskruns", run(journal=[]))]
    assert told(*writes, ("ADDED", "taskruns", other)) == ["a-nonce-is-one-phase-in-one-pod"]


def test_clocks_that_differ_are_allowed_for() -> None:
    late = ended(verdictTime=LATE, completionTime=EARLY)
    server = apiserver.ApiServer(lambda: NOW)
    strict, lenient = checker.Checker(server), checker.Checker(server, skew_seconds=10)
    for each in (strict, lenient):
        each.see("ADDED", "taskruns", with_meta(late, resourceVersion="1000"))
    assert [violation.rule for violation in strict.violations] == ["times-are-in-order"]
    assert lenient.violations == []


def test_it_is_told_of_every_write_of_its_server() -> None:
    server = apiserver.ApiServer(lambda: NOW)
    found = checker.Checker(server)
    spec = {"task": {"inline": {"files": {"a": ""}}}, "agent": {"oracle": {}}}
    server.put(api.TASKRUNS, {"metadata": {"name": "run", "namespace": "team"}, "spec": spec})
    server.write_status(api.TASKRUNS, "team", "run", lambda status: status.update(phase="Succeeded", reward="1"))
    found.check()
    server.write_status(api.TASKRUNS, "team", "run", lambda status: status.update(phase="Running"))
    with pytest.raises(AssertionError, match=r"a-final-phase-is-never-left: taskruns team/run: phase Succeeded became"):
        found.check()
