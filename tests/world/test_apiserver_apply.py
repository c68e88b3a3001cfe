"""Server-side apply, in memory and real: as much of it as the client offers."""

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world.servers import Json, Served


async def applied(served: Served, manager: str = "one", *, force: bool = False, **data: str) -> Json:
    return await served.client.apply(
        api.CONFIGMAPS, served.namespace, served.config(**data), manager=manager, force=force
    )


async def test_apply_creates_and_owns(served: Served) -> None:
    made = await applied(served, a="1")
    assert made["data"] == {"a": "1"}
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert entry["fieldsV1"]["f:data"] == {"f:a": {}}


async def test_apply_of_the_same_is_no_write(served: Served) -> None:
    first = await applied(served, a="1")
    again = await applied(served, a="1")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_what_is_not_applied_any_more_goes(served: Served) -> None:
    await applied(served, a="1", b="2")
    assert (await applied(served, a="3"))["data"] == {"a": "3"}


async def test_another_manager_adds_without_touching(served: Served) -> None:
    await applied(served, a="1")
    assert (await applied(served, "two", b="2"))["data"] == {"a": "1", "b": "2"}
    assert (await applied(served, "two", c="3"))["data"] == {"a": "1", "c": "3"}


async def test_a_field_of_another_manager_is_a_conflict(served: Served) -> None:
    await applied(served, a="1")
    with pytest.raises(errors.Conflict, match=r'conflict with "one": \.data\.a') as caught:
        await applied(served, "two", a="2")
    assert caught.value.details["causes"][0]["reason"] == "FieldManagerConflict"
    assert (await applied(served, "two", force=True, a="2"))["data"] == {"a": "2"}
    with pytest.raises(errors.Conflict, match='conflict with "two"'):
        await applied(served, "one", a="1")


async def test_the_same_value_is_owned_together(served: Served) -> None:
    await applied(served, a="1")
    await applied(served, "two", a="1")
    assert (await applied(served, "one", b="2"))["data"] == {"a": "1", "b": "2"}


async def test_a_patch_takes_what_it_changes(served: Served) -> None:
    await applied(served, a="1")
    await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), {"data": {"a": "2"}})
    with pytest.raises(errors.Conflict, match=r'conflict with "taskfold".*: \.data\.a'):
        await applied(served, a="3")


async def test_what_was_created_belongs_to_its_creator(served: Served) -> None:
    await served.create(api.CONFIGMAPS, served.config(a="1"))
    with pytest.raises(errors.Conflict, match=r'conflict with "taskfold".*: \.data\.a'):
        await applied(served, a="2")
    assert (await applied(served, b="2"))["data"] == {"a": "1", "b": "2"}
    assert (await applied(served, force=True, a="2"))["data"] == {"a": "2"}


async def test_apply_with_an_older_version_is_a_conflict(served: Served) -> None:
    await applied(served, a="1")
    body = served.config(a="2")
    body["metadata"]["resourceVersion"] = "1"
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await served.client.apply(api.CONFIGMAPS, served.namespace, body)


async def test_apply_of_a_custom_resource_gets_defaults(served: Served) -> None:
    body = served.run()
    made = await served.client.apply(api.TASKRUNS, served.namespace, body)
    assert made["spec"]["dialect"] == "gym"
    again = await served.client.apply(api.TASKRUNS, served.namespace, body)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_apply_of_a_status_needs_an_object(served: Served) -> None:
    body = {key: value for key, value in served.run().items() if key != "spec"} | {"status": {"phase": "Running"}}
    body["metadata"] = {"name": served.name()}
    with pytest.raises(errors.NotFound):
        await served.client.apply(api.TASKRUNS, served.namespace, body, subresource="status")
    await served.create(api.TASKRUNS, served.run())
    found = await served.client.apply(api.TASKRUNS, served.namespace, body, subresource="status")
    assert found["status"] == {"phase": "Running"}
    assert found["spec"]["suspend"] is True


async def test_conditions_are_applied_by_their_type(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run())

    async def condition(manager: str, kind: str, status: str) -> Json:
        item = {"type": kind, "status": status, "reason": "X", "message": ""}
        item["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        body = {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "metadata": {"name": served.name()}}
        body["status"] = {"conditions": [item]}
        return await served.client.apply(
            api.TASKRUNS, served.namespace, body, manager=manager, force=False, subresource="status"
        )

    await condition("one", "Complete", "False")
    await condition("two", "Stalled", "False")
    found = await condition("one", "Complete", "True")
    states = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert states == {"Complete": "True", "Stalled": "False"}
    with pytest.raises(errors.Conflict):
        await condition("two", "Complete", "False")
