"""A real API server refuses a wrong object when it is created, with field and remedy in the message."""

from __future__ import annotations

from typing import Any

import kubernetes
import pytest

from .manifests import BARE, INLINE, VERIFIER_BARE

pytestmark = pytest.mark.cluster

ONE_OF_TASK = "set exactly one of inline, configMap, archive, oci, git"
ONE_OF_AGENT = "set exactly one of oracle, nop, script, profile, external"
PATHS = "paths are relative, for example tests/test.sh"


def script(**fields: Any) -> dict[str, Any]:
    return {"agent": {"script": {"run": "true"} | fields}}


def files(**tables: Any) -> dict[str, Any]:
    return {"task": {"inline": tables}}


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("no source", {"task": {}}, "spec.task:", ONE_OF_TASK),
    ("only a path", {"task": {"path": "a"}}, "spec.task:", ONE_OF_TASK),
    ("two sources", {"task": INLINE | {"configMap": {"name": "c"}}}, "spec.task:", ONE_OF_TASK),
    ("no agent", {"agent": {}}, "spec.agent:", ONE_OF_AGENT),
    ("two agents", {"agent": {"oracle": {}, "nop": {}}}, "spec.agent:", ONE_OF_AGENT),
    (
        "empty envFrom",
        {"environmentFrom": [{}]},
        "environmentFrom[0]",
        "set exactly one of configMapRef, secretRef",
    ),
    (
        "two envFrom",
        {"environmentFrom": [{"configMapRef": {"name": "c"}, "secretRef": {"name": "s"}}]},
        "environmentFrom[0]",
        "set exactly one of configMapRef, secretRef",
    ),
    (
        "value and valueFrom",
        script(env=[{"name": "A", "value": "b", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        "env[0]",
        "set value or valueFrom, not both",
    ),
    (
        "empty valueFrom",
        script(env=[{"name": "A", "valueFrom": {}}]),
        "env[0].valueFrom",
        "set exactly one of secretKeyRef, configMapKeyRef",
    ),
    ("variable twice", script(env=[{"name": "A"}, {"name": "A"}]), "env[1]", "Duplicate value"),
    ("variable's name", script(env=[{"name": "A=B"}]), "env[0].name", "should match"),
    ("negative uid", script(user=-1), "script.user", "a uid is 0 or more, a name is not empty"),
    ("empty user", script(user=""), "script.user", "a uid is 0 or more, a name is not empty"),
    ("fractional uid", script(user=1.5), "script.user", "must be of type"),
    ("no time", script(timeoutSeconds=0), "timeoutSeconds", "should be greater than 0"),
    ("script too long", script(run="x" * 131_073), "script.run", "may not be more than 131072"),
    ("absolute path", files(files={"/etc/passwd": ""}), "inline.files", PATHS),
    ("path that leaves", files(files={"a/../../b": ""}), "inline.files", PATHS),
    ("path that is ..", files(files={"..": ""}), "inline.files", PATHS),
    ("path with .", files(files={"./a": ""}), "inline.files", PATHS),
    ("path with empty part", files(files={"a//b": ""}), "inline.files", PATHS),
    ("folder as a file", files(files={"a/": ""}), "inline.files", PATHS),
    ("empty path", files(files={"": ""}), "inline.files", PATHS),
    ("path too long", files(files={"a" * 513: ""}), "inline.files", PATHS),
    ("binary path that leaves", files(binaryFiles={"../a": "AA=="}), "inline.binaryFiles", PATHS),
    (
        "binary that is not base64",
        files(binaryFiles={"a": "?"}),
        "inline.binaryFiles",
        "should match",
    ),
    (
        "same path twice",
        files(files={"a": ""}, binaryFiles={"a": "AA=="}),
        "task.inline",
        "in files or in binaryFiles",
    ),
    (
        "too many files",
        files(files={f"f{n}": "" for n in range(513)}),
        "inline.files",
        "must have at most 512",
    ),
    (
        "item path that leaves",
        {"task": {"configMap": {"name": "c", "items": [{"key": "k", "path": "../a"}]}}},
        "items[0].path",
        PATHS,
    ),
    ("source path that leaves", {"task": INLINE | {"path": "/a"}}, "task.path", PATHS),
    (
        "http address",
        {"task": {"archive": {"url": "http://a", "sha256": "0" * 64}}},
        "archive.url",
        "should match",
    ),
    ("short checksum", {"task": {"archive": {"url": "https://a", "sha256": "0"}}}, "sha256", "should match"),
    (
        "finish of another agent",
        {"finish": {"outcome": "Failed"}},
        "spec.finish",
        "finish is only for agent.external",
    ),
    (
        "response twice",
        {
            "agent": {"external": {}},
            "finish": {
                "outcome": "Failed",
                "response": "a",
                "responseFrom": {"configMapKeyRef": {"name": "c", "key": "k"}},
            },
        },
        "spec.finish",
        "set response or responseFrom, not both",
    ),
    ("finish too long", {"finish": {"outcome": "Failed", "response": "x" * 131_073}}, "response", "131072"),
    (
        "hosts without allowlist",
        {"network": {"agent": {"mode": "no-network", "allowedHosts": ["a"]}}},
        "network.agent",
        "allowedHosts is only valid with mode allowlist",
    ),
    ("our labels", {"pod": {"labels": {"taskfold.dev/run": "x"}}}, "pod.labels", "belong to the operator"),
    (
        "our annotations",
        {"pod": {"annotations": {"taskfold.dev/x": "x"}}},
        "pod.annotations",
        "belong to the operator",
    ),
    ("quantity", {"pod": {"resources": {"limits": {"cpu": "a lot"}}}}, "limits.cpu", "should match"),
    ("negative quantity", {"pod": {"resources": {"limits": {"cpu": "-1"}}}}, "limits.cpu", "should match"),
    ("retention", {"podRetention": "Sometimes"}, "spec.podRetention", "supported values"),
    ("dialect", {"dialect": "other"}, "spec.dialect", "supported values"),
    ("security", {"security": {"profile": "privileged"}}, "security.profile", "supported values"),
    ("verifier mode", {"verifier": {"mode": "both"}}, "verifier.mode", "supported values"),
    ("multiplier 0", {"multipliers": {"timeout": 0}}, "multipliers.timeout", "should be greater than 0"),
    (
        "multiplier 101",
        {"multipliers": {"resource": 101}},
        "multipliers.resource",
        "should be less than or equal to 100",
    ),
    (
        "too many retries",
        {"retries": {"infrastructure": 10}},
        "infrastructure",
        "should be less than or equal to 9",
    ),
    (
        "negative ttl",
        {"ttlSecondsAfterFinished": -1},
        "ttlSecondsAfterFinished",
        "greater than or equal to 0",
    ),
    (
        "too many sources",
        {"secretsFrom": [{"name": f"s{n}"} for n in range(33)]},
        "secretsFrom",
        "at most 32",
    ),
    (
        "another namespace's name",
        {"secretsFrom": [{"name": "other/s"}]},
        "secretsFrom[0].name",
        "should match",
    ),
    ("relative artifact", {"artifacts": [{"source": "app"}]}, "artifacts[0].source", "should match"),
]


@pytest.mark.parametrize(("spec", "where", "what"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused_when_created(objects, spec, where, what):
    message = objects.refusal("create", "TaskRun", BARE | spec)
    assert where in message
    assert what in message


@pytest.mark.parametrize("missing", ["task", "agent"])
def test_required_fields(objects, missing):
    spec = {name: value for name, value in BARE.items() if name != missing}
    assert f"spec.{missing}: Required value" in objects.refusal("create", "TaskRun", spec)


def test_unknown_fields_are_refused_under_strict_validation(objects):
    with pytest.raises(kubernetes.client.ApiException) as caught:
        objects.create("TaskRun", BARE | {"agnet": {}})
    assert 'unknown field \\"spec.agnet\\"' in caught.value.body


@pytest.mark.parametrize("name", ["a" * 49, "a.b"], ids=["49 characters", "a dot"])
def test_bad_names(objects, name):
    assert "at most 48 characters and no dots" in objects.refusal("create", "TaskRun", BARE, name=name)


def test_longest_name(objects):
    assert objects.create("TaskRun", BARE, name="a" * 48)["metadata"]["name"] == "a" * 48


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ({"source": {}}, "source.runRef", "Required value"),
        ({"source": {"runRef": {"uid": "u"}}}, "runRef.name", "Required value"),
        ({"mode": "both"}, "spec.mode", "supported values"),
        ({"tests": {"path": "a"}}, "spec.tests", ONE_OF_TASK),
        ({"tests": INLINE | {"git": {"url": "https://a", "ref": "b"}}}, "spec.tests", ONE_OF_TASK),
        (
            {"network": {"mode": "public", "allowedHosts": ["a"]}},
            "spec.network",
            "only valid with mode allowlist",
        ),
        ({"step": ""}, "spec.step", "at least 1"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, dict) else "",
)
def test_verifier_run_refused_when_created(objects, change, where, what):
    message = objects.refusal("create", "VerifierRun", VERIFIER_BARE | change)
    assert where in message
    assert what in message
