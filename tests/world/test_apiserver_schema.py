"""Custom resources against the schemas of the committed CRDs, in memory and real."""

from typing import Any

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.api import manifests
from tests.world.servers import Json, Served


def causes(error: errors.ApiError) -> set[tuple[str, str]]:
    """Field and reason of each, but for the remark that rules were not checked."""
    found = {(cause["field"], cause["reason"]) for cause in error.details["causes"]}
    return found - {("<nil>", "FieldValueInvalid")}


async def refused(served: Served, body: Json) -> set[tuple[str, str]]:
    with pytest.raises(errors.Invalid) as caught:
        await served.create(api.TASKRUNS, body)
    return causes(caught.value)


async def test_defaults_are_filled_in_and_unknown_fields_left_out(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run(bogus=1, verifier={"env": [{"name": "A", "bogus": 1}]}))
    assert made["spec"] == {
        "task": {"inline": {"files": {"task.toml": ""}}},
        "agent": {"oracle": {}},
        "verifier": made["spec"]["verifier"],
        "suspend": True,
        "cancel": False,
        "dialect": "gym",
        "onAgentCausedLoss": "mask",
        "podRetention": "Never",
    }
    assert made["spec"]["verifier"]["env"] == [{"name": "A"}]


async def test_null_is_absent(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run(dialect=None, verifier=None))
    assert made["spec"]["dialect"] == "gym"
    assert "verifier" not in made["spec"]


@pytest.mark.parametrize(("kind", "spec"), [("full", manifests.FULL), ("bare", manifests.BARE)])
async def test_whole_specs_are_taken_as_they_are(served: Served, kind: str, spec: dict[str, Any]) -> None:
    body = {**served.run(), "spec": spec}
    made = await served.create(api.TASKRUNS, body)
    assert {key: value for key, value in made["spec"].items() if key in spec} == spec, kind


async def test_a_whole_verifier_run_is_taken_as_it_is(served: Served) -> None:
    metadata = {"name": served.name()}
    body = {"apiVersion": "taskfold.dev/v1alpha1", "kind": "VerifierRun", "metadata": metadata}
    made = await served.create(api.VERIFIERRUNS, {**body, "spec": manifests.VERIFIER_FULL})
    assert {key: made["spec"][key] for key in manifests.VERIFIER_FULL} == manifests.VERIFIER_FULL


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"task": None}, {("spec.task", "FieldValueRequired")}, id="required"),
        pytest.param({"dialect": "x"}, {("spec.dialect", "FieldValueNotSupported")}, id="enum"),
        pytest.param({"suspend": "yes"}, {("spec.suspend", "FieldValueTypeInvalid")}, id="boolean"),
        pytest.param(
            {"ttlSecondsAfterFinished": 1.5}, {("spec.ttlSecondsAfterFinished", "FieldValueTypeInvalid")}, id="integer"
        ),
        pytest.param({"artifacts": {}}, {("spec.artifacts", "FieldValueTypeInvalid")}, id="list"),
        pytest.param({"verifier": []}, {("spec.verifier", "FieldValueTypeInvalid")}, id="map"),
        pytest.param(
            {"ttlSecondsAfterFinished": -1}, {("spec.ttlSecondsAfterFinished", "FieldValueInvalid")}, id="minimum"
        ),
        pytest.param(
            {"retries": {"infrastructure": 1000}}, {("spec.retries.infrastructure", "FieldValueInvalid")}, id="maximum"
        ),
        pytest.param(
            {"verifier": {"timeoutSeconds": 0}}, {("spec.verifier.timeoutSeconds", "FieldValueInvalid")}, id="exclusive"
        ),
        pytest.param(
            {"environmentFrom": [{"secretRef": {"name": "a"}}] * 33},
            {("spec.environmentFrom", "FieldValueTooMany")},
            id="items",
        ),
        pytest.param(
            {"task": {"inline": {"files": {}}, "id": ""}}, {("spec.task.id", "FieldValueInvalid")}, id="short"
        ),
        pytest.param(
            {"task": {"inline": {"files": {"a": ""}}, "id": "x" * 300}},
            {("spec.task.id", "FieldValueTooLong")},
            id="long",
        ),
        pytest.param(
            {"task": {"inline": {"binaryFiles": {"a": "%%"}}}},
            {("spec.task.inline.binaryFiles.a", "FieldValueInvalid")},
            id="base64",
        ),
        pytest.param(
            {"task": {"archive": {"url": "ftp://x", "sha256": "z"}}},
            {("spec.task.archive.url", "FieldValueInvalid"), ("spec.task.archive.sha256", "FieldValueInvalid")},
            id="pattern",
        ),
    ],
)
async def test_what_the_schema_refuses(served: Served, spec: Json, expected: set[tuple[str, str]]) -> None:
    assert await refused(served, served.run(**spec)) == expected


async def test_a_missing_spec_and_another_kind(served: Served) -> None:
    body = served.run()
    del body["spec"]
    assert await refused(served, body) == {("spec", "FieldValueRequired")}
    assert await refused(served, {**served.run(), "kind": "Foo"}) == {("kind", "FieldValueInvalid")}


async def test_all_faults_are_told_at_once_and_rules_are_left_for_later(served: Served) -> None:
    with pytest.raises(errors.Invalid, match="some validation rules were not checked") as caught:
        await served.create(api.TASKRUNS, served.run(dialect="x", suspend=3, task={}))
    assert causes(caught.value) == {
        ("spec.dialect", "FieldValueNotSupported"),
        ("spec.suspend", "FieldValueTypeInvalid"),
    }


@pytest.mark.parametrize(
    ("spec", "field", "problem"),
    [
        ({"task": {}}, "spec.task", "set exactly one of inline, configMap"),
        ({"agent": {"oracle": {}, "nop": {}}}, "spec.agent", "set exactly one of oracle, nop"),
        ({"finish": {"outcome": "Succeeded"}}, "spec.finish", "finish is only for agent.external"),
        ({"task": {"path": "../a"}}, "spec.task.path", "paths are relative"),
        ({"task": {"inline": {"files": {"/a": ""}}}}, "spec.task.inline.files", "paths are relative"),
        (
            {"task": {"inline": {"files": {"a": ""}, "binaryFiles": {"a": "YQ=="}}}},
            "spec.task.inline",
            "in files or in binaryFiles, not in both",
        ),
        ({"pod": {"labels": {"taskfold.dev/x": "y"}}}, "spec.pod.labels", "belong to the operator"),
        ({"network": {"agent": {"mode": "public", "allowedHosts": ["a.b"]}}}, "spec.network.agent", "only valid with"),
        ({"agent": {"script": {"run": "x", "user": ""}}}, "spec.agent.script.user", "a name is not empty"),
    ],
)
async def test_what_the_rules_refuse(served: Served, spec: Json, field: str, problem: str) -> None:
    inline = {"inline": {"files": {"task.toml": ""}}}
    if set(spec.get("task", {})) == {"path"}:
        spec = {"task": {**inline, **spec["task"]}}
    with pytest.raises(errors.Invalid, match=problem) as caught:
        await served.create(api.TASKRUNS, served.run(**spec))
    assert field in {name for name, _ in causes(caught.value)}


async def test_the_rule_about_names(served: Served) -> None:
    body = served.run()
    body["metadata"]["name"] = f"{served.name()}.{served.name()}"
    with pytest.raises(errors.Invalid, match="at most 48 characters and no dots"):
        await served.create(api.TASKRUNS, body)


async def patched(served: Served, spec: Json) -> Json:
    return await served.client.patch(api.TASKRUNS, served.namespace, served.name(), {"spec": spec})


@pytest.mark.parametrize("field", sorted(manifests.OTHER))
async def test_what_is_fixed_cannot_change(served: Served, field: str) -> None:
    await served.create(api.TASKRUNS, {**served.run(), "spec": manifests.FULL})
    with pytest.raises(errors.Invalid) as caught:
        await patched(served, {field: manifests.OTHER[field]})
    assert (f"spec.{field}", "FieldValueForbidden") in causes(caught.value)


async def test_what_is_fixed_cannot_appear_or_vanish(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run(verifier={"timeoutSeconds": 5}))
    for spec in ({"verifier": None}, {"retries": {"infrastructure": 1}}):
        with pytest.raises(errors.Invalid, match="cannot be changed, added or removed later"):
            await patched(served, spec)


async def test_what_may_change(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run())
    changed = await patched(served, {"suspend": False, "cancel": True, "ttlSecondsAfterFinished": 5})
    assert changed["spec"]["ttlSecondsAfterFinished"] == 5
    with pytest.raises(errors.Invalid, match="cancel cannot be taken back"):
        await patched(served, {"cancel": False})


async def test_finish_is_set_once(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run(agent={"external": {}}))
    await patched(served, {"finish": {"outcome": "Succeeded"}})
    for spec in ({"finish": None}, {"finish": {"outcome": "Failed"}}):
        with pytest.raises(errors.Invalid, match="finish is set once"):
            await patched(served, spec)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"phase": "Nope"}, {("status.phase", "FieldValueNotSupported")}, id="phase"),
        pytest.param({"complete": "x"}, {("status.complete", "FieldValueTypeInvalid")}, id="complete"),
        pytest.param({"startTime": "yesterday"}, {("status.startTime", "FieldValueTypeInvalid")}, id="time"),
        pytest.param(
            {"journal": [{"phase": "seed"}]}, {("status.journal[0].nonce", "FieldValueRequired")}, id="missing"
        ),
        pytest.param(
            {"journal": [{"phase": "seed", "nonce": "XY"}]},
            {("status.journal[0].nonce", "FieldValueInvalid")},
            id="pattern",
        ),
        pytest.param({"warnings": ["x"] * 21}, {("status.warnings", "FieldValueTooMany")}, id="many"),
    ],
)
async def test_a_status_is_checked_too(served: Served, status: Json, expected: set[tuple[str, str]]) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    version = made["metadata"]["resourceVersion"]
    with pytest.raises(errors.Invalid) as caught:
        await served.client.patch_status(
            api.TASKRUNS, served.namespace, served.name(), status, resource_version=version
        )
    assert causes(caught.value) == expected


async def test_a_status_is_pruned(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    status = {"phase": "Running", "bogus": 1, "agent": {"name": "oracle", "bogus": 2}}
    version = made["metadata"]["resourceVersion"]
    found = await served.client.patch_status(
        api.TASKRUNS, served.namespace, served.name(), status, resource_version=version
    )
    assert found["status"] == {"phase": "Running", "agent": {"name": "oracle"}}


async def test_conditions_have_their_type_once(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    condition = {"type": "Complete", "status": "True", "reason": "X", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    with pytest.raises(errors.Invalid, match=r"status.conditions\[1\]: Duplicate value"):
        await served.client.patch_status(
            api.TASKRUNS,
            served.namespace,
            served.name(),
            {"conditions": [condition, condition]},
            resource_version=made["metadata"]["resourceVersion"],
        )
