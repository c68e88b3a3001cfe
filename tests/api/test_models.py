"""Parsing objects as the API server gives them, and writing them back."""

from __future__ import annotations

import copy

import pydantic
import pytest

from taskfold.api import digest, taskrun, verifierrun
from taskfold.api.phases import Phase
from taskfold.api.status import JournalEntry, JournalPhase, Mode, reward_text
from taskfold.api.taskrun import TaskRun, TaskRunSpec
from taskfold.api.verifierrun import VerifierRun

SPEC = {"task": {"inline": {"files": {"task.toml": ""}}}, "agent": {"oracle": {}}}


def task_run(**spec):
    return {
        "apiVersion": "taskfold.dev/v1alpha1",
        "kind": "TaskRun",
        "metadata": {"name": "a"},
        "spec": SPEC | spec,
    }


def test_parse_ignores_what_it_does_not_know():
    obj = task_run(later={"field": 1})
    obj["metadata"] |= {"managedFields": [{"manager": "kubectl"}], "uid": "u", "generation": 3}
    obj["status"] = {"phase": "Running", "later": True, "agent": {"name": "oracle", "later": 1}}
    run = TaskRun.parse(obj)
    assert (run.metadata.uid, run.metadata.generation, run.status.phase) == ("u", 3, Phase.RUNNING)


def test_parse_without_status():
    run = TaskRun.parse(task_run())
    assert run.status.phase is None
    assert run.status.complete is False
    assert run.status.journal == []


def test_defaults_are_those_of_the_schema():
    spec = TaskRun.parse(task_run()).spec
    assert (spec.suspend, spec.cancel, spec.pod_retention, spec.dialect, spec.on_agent_caused_loss) == (
        False, False, "Never", "gym", "mask",
    )  # fmt: skip


def test_a_phase_of_a_later_version_is_not_taken_for_none():
    obj = task_run() | {"status": {"phase": "Graded"}}
    with pytest.raises(pydantic.ValidationError):
        TaskRun.parse(obj)


def test_verifier_run():
    run = VerifierRun.parse(
        {
            "metadata": {"name": "v"},
            "spec": {"source": {"runRef": {"name": "a", "uid": "u"}}, "mode": "shared"},
        }
    )
    assert (run.spec.source.run_ref.name, run.spec.source.run_ref.uid, run.spec.mode) == (
        "a",
        "u",
        Mode.SHARED,
    )


def test_wire_names():
    entry = JournalEntry(phase=JournalPhase.SEED, attempt=1, try_=2, nonce="ab", pod_uid="u", pod_name="p")
    assert entry.wire() == {
        "phase": "seed", "attempt": 1, "try": 2, "nonce": "ab", "podUID": "u", "podName": "p",
    }  # fmt: skip
    assert JournalEntry.model_validate(entry.wire()) == entry


def test_status_survives_the_wire():
    status = TaskRun.parse(
        task_run()
        | {
            "status": {
                "phase": "Succeeded",
                "reward": "0.5",
                "rewards": {"a": 0.5},
                "complete": True,
                "verifier": {"mode": "shared", "timedOut": False, "uid": "u"},
                "attempts": [{"number": 1, "tries": 2, "podUID": "p"}],
            }
        }
    ).status
    assert taskrun.TaskRunStatus.model_validate(status.wire()) == status
    assert "journal" not in status.wire()


@pytest.mark.parametrize(
    ("given", "kept"),
    [(1000, 1000), ("1000", "1000"), ("app", "app")],
    ids=["uid", "numeric name (C30)", "name"],
)
def test_a_user_that_is_text_stays_text(given, kept):
    spec = TaskRunSpec.model_validate(SPEC | {"agent": {"script": {"run": "true", "user": given}}})
    assert spec.agent.script.user == kept
    assert type(spec.agent.script.user) is type(kept)


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ({"oracle": {}}, "oracle"),
        ({"nop": {}}, "nop"),
        ({"script": {"run": "x"}}, "script"),
        ({"external": {}}, "external"),
        ({"profile": {"name": "coder"}}, "coder"),
    ],
)
def test_agent_name(agent, name):
    assert TaskRunSpec.model_validate(SPEC | {"agent": agent}).agent.name == name


@pytest.mark.parametrize(
    ("reward", "text"),
    [(1.0, "1"), (0.0, "0"), (-0.0, "0"), (0.25, "0.25"), (1e-7, "1e-07"), (1e300, "1e+300")],
)
def test_reward_text(reward, text):
    assert reward_text(reward) == text
    assert float(text) == reward


def test_digest_ignores_what_may_change_and_what_is_default():
    before = taskrun.spec_digest(SPEC)
    mutable = {"suspend": True, "cancel": True, "ttlSecondsAfterFinished": 5, "podRetention": "Always"}
    assert taskrun.spec_digest(SPEC | mutable) == before
    assert taskrun.spec_digest(SPEC | {"dialect": "gym", "environmentFrom": []}) == before
    assert before.startswith("sha256:")


@pytest.mark.parametrize(
    "change",
    [
        {"agent": {"nop": {}}},
        {"task": {"inline": {"files": {"task.toml": "x"}}}},
        {"task": {"inline": {"files": {"task.toml": ""}}, "id": "other"}},
        {"multipliers": {"timeout": 2}},
        {"environmentFrom": [{"secretRef": {"name": "s"}}]},
        {"pod": {"nodeSelector": {"a": "b"}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_digest_sees_every_other_change(change):
    assert taskrun.spec_digest(copy.deepcopy(SPEC) | change) != taskrun.spec_digest(SPEC)


def test_digest_of_equal_numbers_is_equal():
    one = taskrun.spec_digest(SPEC | {"multipliers": {"timeout": 2}})
    assert one == taskrun.spec_digest(SPEC | {"multipliers": {"timeout": 2.0}})


def test_digest_is_pinned():
    """Stored digests outlive a release: this text changes only with a decision."""
    assert taskrun.spec_digest(SPEC) == digest.of_spec(TaskRunSpec.model_validate(SPEC))
    assert taskrun.spec_digest(SPEC) == "sha256:bccc64701fd7f4f8713291c56324fe4b726ded97619a418b3a822f473981ab68"


def test_digest_of_a_verifier_run():
    spec = {"source": {"runRef": {"name": "a", "uid": "u"}}, "mode": "shared"}
    assert verifierrun.spec_digest(spec) == verifierrun.spec_digest(spec | {"cancel": True})
    assert verifierrun.spec_digest(spec) != verifierrun.spec_digest(spec | {"mode": "separate"})
