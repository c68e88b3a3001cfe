"""Objects of an API server, in memory and real: creation, reading, changes, status, deletion."""

import json
from typing import Any

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects.client import Resource
from tests.world.servers import Served


async def test_the_server_fills_in_who_and_when(served: Served) -> None:
    body = served.run()
    body["metadata"] |= {"uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7}
    made = await served.create(api.TASKRUNS, body)
    metadata = made["metadata"]
    assert metadata["uid"] not in ("", "mine")
    assert metadata["creationTimestamp"] > "2025"
    assert metadata["generation"] == 1
    assert int(metadata["resourceVersion"]) > 0


async def test_what_was_created_is_read(served: Served) -> None:
    made = await served.create(api.CONFIGMAPS, served.config(a="1"))
    assert await served.client.get(api.CONFIGMAPS, served.namespace, served.name()) == made


async def test_a_name_is_taken_once(served: Served) -> None:
    await served.create(api.CONFIGMAPS, served.config())
    with pytest.raises(errors.AlreadyExists) as caught:
        await served.create(api.CONFIGMAPS, served.config())
    assert caught.value.problem == f'configmaps "{served.name()}" already exists'
    await served.create(api.SECRETS, {"kind": "Secret", "metadata": {"name": served.name()}})


async def test_what_is_not_there(served: Served) -> None:
    with pytest.raises(errors.NotFound) as caught:
        await served.client.get(api.TASKRUNS, served.namespace, "none")
    assert caught.value.problem == 'taskruns.taskfold.dev "none" not found'
    assert caught.value.details == {"name": "none", "group": "taskfold.dev", "kind": "taskruns"}
    for call in (
        served.client.patch(api.TASKRUNS, served.namespace, "none", {"spec": {}}),
        served.client.patch_status(api.TASKRUNS, served.namespace, "none", {}, resource_version="1"),
        served.client.delete(api.TASKRUNS, served.namespace, "none", uid="x"),
    ):
        with pytest.raises(errors.NotFound):
            await call


async def test_a_type_that_is_not_served(served: Served) -> None:
    answer = await served.ask("GET", "/apis/taskfold.dev/v1alpha1/namespaces/default/nothings")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    answer = await served.ask("GET", f"/api/v1/namespaces/default/configmaps/{served.name()}/status")
    assert answer.status == 404
    assert json.loads(answer.body)["message"] == "the server could not find the requested resource"


async def test_nothing_is_created_in_a_namespace_that_is_not_there(served: Served) -> None:
    body = {"kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        await served.client.create(api.CONFIGMAPS, "nowhere", body)


@pytest.mark.parametrize(
    ("metadata", "kind", "problem"),
    [
        pytest.param({"namespace": "default"}, errors.BadRequest, "does not match the namespace", id="namespace"),
        pytest.param({"resourceVersion": "5"}, errors.Unavailable, "should not be set on objects", id="version"),
        pytest.param({"name": ""}, errors.Invalid, "metadata.name: Required value", id="no name"),
        pytest.param({"name": "A_b"}, errors.Invalid, "metadata.name: Invalid value", id="name"),
        pytest.param({"labels": {"a": "b c"}}, errors.Invalid, "metadata.labels: Invalid value", id="label"),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": ""}]},
            errors.Invalid,
            "metadata.ownerReferences.uid: Invalid value",
            id="owner",
        ),
    ],
)
async def test_metadata_that_is_refused(
    served: Served, metadata: dict[str, Any], kind: type[errors.ApiError], problem: str
) -> None:
    body = served.config()
    body["metadata"] |= metadata
    with pytest.raises(kind, match=problem):
        await served.create(api.CONFIGMAPS, body)


async def test_every_write_has_a_greater_version(served: Served) -> None:
    first = await served.create(api.CONFIGMAPS, served.config(a="1"))
    other = await served.create(api.TASKRUNS, served.run())
    last = await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), {"data": {"a": "2"}})
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in (first, other, last)]
    assert versions == sorted(set(versions))


async def test_a_merge_patch_merges_removes_and_replaces_lists(served: Served) -> None:
    await served.create(api.CONFIGMAPS, served.config(a="1", b="2"))
    patch = {"data": {"a": None, "c": "3"}, "metadata": {"finalizers": ["a.example/x"]}}
    await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), patch)
    patch = {"metadata": {"finalizers": ["a.example/y"], "labels": None}}
    found = await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), patch)
    assert found["data"] == {"b": "2", "c": "3"}
    assert found["metadata"]["finalizers"] == ["a.example/y"]
    assert "labels" not in found["metadata"]
    await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), {"metadata": {"finalizers": None}})


async def test_a_write_that_changes_nothing_is_none(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    same = await served.client.patch(api.TASKRUNS, served.namespace, served.name(), {"spec": {"suspend": True}})
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_patch_for_an_older_version_is_a_conflict(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    version = made["metadata"]["resourceVersion"]
    await served.client.patch(api.TASKRUNS, served.namespace, served.name(), {"spec": {"cancel": True}})
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await served.client.patch(
            api.TASKRUNS, served.namespace, served.name(), {"spec": {"cancel": True}}, resource_version=version
        )
    with pytest.raises(errors.Conflict):
        await served.client.patch_status(
            api.TASKRUNS, served.namespace, served.name(), {"phase": "Running"}, resource_version=version
        )


@pytest.mark.parametrize("resource", [api.CONFIGMAPS, api.TASKRUNS], ids=["configmap", "taskrun"])
async def test_a_patch_for_another_uid_is_invalid(served: Served, resource: Resource) -> None:
    await served.create(resource, served.run() if resource == api.TASKRUNS else served.config())
    with pytest.raises(errors.Invalid, match=r"metadata.uid: Invalid value: .* field is immutable"):
        await served.client.patch(resource, served.namespace, served.name(), {}, uid="another")


async def test_a_status_patch_does_not_look_at_the_uid(served: Served) -> None:
    """Only the version guards it: metadata is none of a status's business."""
    made = await served.create(api.TASKRUNS, served.run())
    version = made["metadata"]["resourceVersion"]
    found = await served.client.patch_status(
        api.TASKRUNS, served.namespace, served.name(), {"phase": "Running"}, resource_version=version, uid="another"
    )
    assert found["status"] == {"phase": "Running"}
    assert found["metadata"]["uid"] == made["metadata"]["uid"]


async def test_generation_counts_changes_of_the_spec(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    assert made["metadata"]["generation"] == 1
    version = made["metadata"]["resourceVersion"]
    status = await served.client.patch_status(
        api.TASKRUNS, served.namespace, served.name(), {"phase": "Pending"}, resource_version=version
    )
    assert status["metadata"]["generation"] == 1
    labelled = await served.client.patch(
        api.TASKRUNS, served.namespace, served.name(), {"metadata": {"labels": {"a": "b"}}}
    )
    assert labelled["metadata"]["generation"] == 1
    changed = await served.client.patch(api.TASKRUNS, served.namespace, served.name(), {"spec": {"cancel": True}})
    assert changed["metadata"]["generation"] == 2


async def test_a_status_is_written_by_its_subresource_only(served: Served) -> None:
    made = await served.create(api.TASKRUNS, {**served.run(), "status": {"phase": "Succeeded"}})
    assert "status" not in made
    elsewhere = await served.client.patch(
        api.TASKRUNS, served.namespace, served.name(), {"status": {"phase": "Failed"}, "spec": {"cancel": True}}
    )
    assert "status" not in elsewhere
    patch = {"status": {"phase": "Running"}, "spec": {"cancel": False}, "metadata": {"labels": {"x": "y"}}}
    found = await served.client.patch(api.TASKRUNS, served.namespace, served.name(), patch, subresource="status")
    assert found["status"] == {"phase": "Running"}
    assert found["spec"]["cancel"] is True
    assert found["metadata"]["labels"] == served.labels


async def test_a_status_keeps_what_a_patch_does_not_name(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    found = await served.client.patch_status(
        api.TASKRUNS,
        served.namespace,
        served.name(),
        {"phase": "Running", "podName": "p"},
        resource_version=made["metadata"]["resourceVersion"],
    )
    found = await served.client.patch_status(
        api.TASKRUNS,
        served.namespace,
        served.name(),
        {"podName": None, "nodeName": "n"},
        resource_version=found["metadata"]["resourceVersion"],
    )
    assert found["status"] == {"phase": "Running", "nodeName": "n"}


async def test_a_put_of_a_custom_resource_needs_a_version(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    path = api.TASKRUNS.path(served.namespace, served.name())
    answer = await served.ask("PUT", path, served.run(cancel=True))
    assert answer.status == 422
    assert "metadata.resourceVersion: Invalid value" in json.loads(answer.body)["message"]
    made["spec"]["cancel"] = True
    assert json.loads((await served.ask("PUT", path, made)).body)["spec"]["cancel"] is True
    assert (await served.ask("PUT", path, made)).status == 409


async def test_a_put_creates_nothing(served: Served) -> None:
    answer = await served.ask("PUT", api.CONFIGMAPS.path(served.namespace, served.name()), served.config())
    assert answer.status == 404


async def test_methods_and_content_types_that_are_not_served(served: Served) -> None:
    path = api.CONFIGMAPS.path(served.namespace)
    assert (await served.ask("PUT", path, {})).status == 405
    await served.create(api.CONFIGMAPS, served.config())
    answer = await served.ask("PATCH", f"{path}/{served.name()}", {}, content_type="application/xml")
    assert answer.status == 415


async def test_a_body_that_is_no_json(served: Served) -> None:
    answer = await served.ask("POST", api.CONFIGMAPS.path(served.namespace), b"{zz")
    assert answer.status == 400
    assert json.loads(answer.body)["reason"] == "BadRequest"


async def test_a_deleted_object_is_gone(served: Served) -> None:
    made = await served.create(api.TASKRUNS, served.run())
    answer = await served.client.delete(api.TASKRUNS, served.namespace, served.name(), uid=made["metadata"]["uid"])
    assert answer["status"] == "Success"
    assert answer["details"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(errors.NotFound):
        await served.client.get(api.TASKRUNS, served.namespace, served.name())
    again = await served.create(api.TASKRUNS, served.run())
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


@pytest.mark.parametrize("guard", [{"uid": "another"}, {"resource_version": "1"}], ids=["uid", "version"])
async def test_a_deletion_with_a_precondition_that_does_not_hold(served: Served, guard: dict[str, str]) -> None:
    await served.create(api.TASKRUNS, served.run())
    with pytest.raises(errors.Conflict, match="in the precondition"):
        await served.client.delete(api.TASKRUNS, served.namespace, served.name(), **guard)
    await served.client.get(api.TASKRUNS, served.namespace, served.name())


async def test_a_propagation_policy_that_does_not_exist(served: Served) -> None:
    await served.create(api.CONFIGMAPS, served.config())
    with pytest.raises(errors.Invalid, match="propagationPolicy: Unsupported value"):
        await served.client.delete(api.CONFIGMAPS, served.namespace, served.name(), propagation="Sideways")


async def test_finalizers_hold_a_deleted_object(served: Served) -> None:
    body = served.config()
    body["metadata"]["finalizers"] = ["a.example/x"]
    await served.create(api.CONFIGMAPS, body)
    marked = await served.client.delete(api.CONFIGMAPS, served.namespace, served.name())
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await served.client.delete(api.CONFIGMAPS, served.namespace, served.name())
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    with pytest.raises(errors.AlreadyExists, match="object is being deleted"):
        await served.create(api.CONFIGMAPS, served.config())
    with pytest.raises(errors.Invalid, match="no new finalizers can be added if the object is being deleted"):
        await served.client.patch(
            api.CONFIGMAPS,
            served.namespace,
            served.name(),
            {"metadata": {"finalizers": ["a.example/x", "a.example/y"]}},
        )
    back = {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}}
    still = await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), back)
    assert still["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), {"metadata": {"finalizers": None}})
    assert await served.gone(api.CONFIGMAPS, served.name())
