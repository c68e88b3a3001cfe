"""What the schema has and this version does not implement is named by its dotted path."""

from __future__ import annotations

import pytest

from taskfold.api.taskrun import TaskRun
from taskfold.api.unsupported import message, unsupported
from taskfold.api.verifierrun import VerifierRun

INLINE = {"inline": {"files": {"task.toml": ""}}}
RESTRICTION = {"mode": "no-network"}


def task_run(**spec):
    return TaskRun.parse({"metadata": {"name": "a"}, "spec": {"task": INLINE, "agent": {"oracle": {}}} | spec})


def verifier_run(owned=True, **spec):
    owner = {
        "apiVersion": "taskfold.dev/v1alpha1",
        "kind": "TaskRun",
        "name": "a",
        "uid": "u",
        "controller": True,
    }
    return VerifierRun.parse(
        {
            "metadata": {"name": "v", "ownerReferences": [owner] if owned else []},
            "spec": {"source": {"runRef": {"name": "a", "uid": "u"}}, "mode": "shared"} | spec,
        }
    )


SUPPORTED = {
    "task": {"configMap": {"name": "c"}, "path": "a/b", "id": "x", "data": {"a": 1}},
    "agent": {"script": {"run": "true", "user": 1000, "timeoutSeconds": 2.5, "install": "true"}},
    "verifier": {"mode": "separate", "timeoutSeconds": 1, "env": [{"name": "A", "value": "b"}]},
    "environmentFrom": [{"configMapRef": {"name": "c"}}],
    "secretsFrom": [{"name": "s"}],
    "network": {"agent": RESTRICTION},
    "dialect": "gym",
    "multipliers": {"timeout": 2, "resource": 0.5},
    "pod": {"nodeSelector": {"a": "b"}},
    "security": {"profile": "restricted"},
    "onAgentCausedLoss": "zero",
    "retries": {"infrastructure": 9},
    "artifacts": [{"source": "/app"}],
    "ttlSecondsAfterFinished": 1,
    "podRetention": "Always",
    "suspend": True,
    "cancel": True,
}


def test_all_that_is_supported_at_once():
    assert unsupported(task_run(**SUPPORTED)) == []


@pytest.mark.parametrize(
    "agent", [{"oracle": {}}, {"nop": {}}, {"script": {"run": "true"}}, {"external": {}}], ids=lambda a: next(iter(a))
)
def test_supported_agents(agent):
    assert unsupported(task_run(agent=agent)) == []


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        ("spec.task.archive", {"task": {"archive": {"url": "https://a/b", "sha256": "0" * 64}}}),
        ("spec.task.oci", {"task": {"oci": {"reference": "r/t"}}}),
        ("spec.task.git", {"task": {"git": {"url": "https://a/b", "ref": "main"}}}),
        ("spec.agent.profile", {"agent": {"profile": {"name": "p"}}}),
        ("spec.mcpGrants", {"mcpGrants": "none"}),
        ("spec.composeOverlay", {"composeOverlay": {"name": "c", "keys": ["k"]}}),
    ],
)
def test_not_supported_yet(path, spec):
    assert unsupported(task_run(**spec)) == [path]
    assert f"{path} is not supported yet" in message([path])


def test_several_are_all_named():
    run = task_run(mcpGrants="none", agent={"profile": {"name": "p"}})
    assert unsupported(run) == ["spec.agent.profile", "spec.mcpGrants"]
    assert message(unsupported(run)).count("not supported yet") == 2


def test_verifier_run_of_a_task_run():
    assert unsupported(verifier_run(timeoutSeconds=3, env=[{"name": "A"}], pod={}, step="one")) == []


@pytest.mark.parametrize("tests", [INLINE, {"configMap": {"name": "c"}}], ids=lambda tests: next(iter(tests)))
def test_verifier_run_of_its_own(tests):
    """One that grades a complete run again."""
    security = {"profile": "userns"}
    assert (
        unsupported(
            verifier_run(False, mode="separate", tests=tests, security=security, force=True, network=RESTRICTION)
        )
        == []
    )


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        ("spec.tests.archive", {"tests": {"archive": {"url": "https://a/b", "sha256": "0" * 64}}}),
        ("spec.tests.oci", {"tests": {"oci": {"reference": "r/t"}}}),
        ("spec.tests.git", {"tests": {"git": {"url": "https://a/b", "ref": "main"}}}),
    ],
)
def test_verifier_run_not_supported_yet(path, spec):
    assert unsupported(verifier_run(**spec)) == [path]
