"""Ephemeral containers: what is added to a pod that is there already, and what is refused."""

import json
from typing import Any

import pytest

from taskfold.api.settings import HelperSettings
from taskfold.build import pod as pod_builder
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import transport as transports
from tests.world import servers
from tests.world.servers import Json, Served

SUB = "ephemeralcontainers"
IMAGE = "taskfold.invalid/none:1"


def waiter(name: str = "first", **more: Any) -> Json:
    return {"name": name, "image": IMAGE, "command": ["/helper", "wait"], **more}


async def add(served: Served, *containers: Json, **more: Any) -> Json:
    body = {"spec": {"ephemeralContainers": list(containers)}}
    return await served.client.patch(
        api.PODS, served.namespace, served.name(), body, subresource=SUB, content_type=api.STRATEGIC_PATCH, **more
    )


async def sent(served: Served, body: Json, content_type: str = api.STRATEGIC_PATCH) -> transports.Answer:
    path = api.PODS.path(served.namespace, served.name(), SUB)
    return await served.ask("PATCH", path, body, content_type=content_type)


def named(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("ephemeralContainers") or ()]


async def test_the_operators_waiter_is_added(served: Served) -> None:
    made = await served.create(api.PODS, served.pod())
    body = pod_builder.waiter("a" * 32, HelperSettings())
    found = await add(served, body, uid=made["metadata"]["uid"])
    (container,) = found["spec"]["ephemeralContainers"]
    defaults = {"resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    assert container == {**body, **defaults}
    assert found["metadata"]["generation"] == made["metadata"]["generation"] + 1
    again = await add(served, body, uid=made["metadata"]["uid"])
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_a_watch_tells_of_it(served: Served) -> None:
    made = await served.create(api.PODS, served.pod())
    since = made["metadata"]["resourceVersion"]
    async with served.watch(api.PODS, labels=served.selector, since=since) as reader:
        await add(served, waiter())
        ((kind, seen),) = await servers.events(reader, 1)
    assert (kind, named(seen)) == ("MODIFIED", ["first"])


async def test_the_newest_comes_first(served: Served) -> None:
    await served.create(api.PODS, served.pod())
    for name in ("b", "a", "c"):
        found = await add(served, waiter(name))
    assert named(found) == ["c", "a", "b"]
    path = api.PODS.path(served.namespace, served.name(), SUB)
    assert named(json.loads((await served.ask("GET", path)).body)) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        pytest.param(
            {"resources": {"limits": {"memory": "1Mi"}}}, r"\[0\].resources: Forbidden: cannot be set", id="resources"
        ),
        pytest.param({"ports": [{"containerPort": 1}]}, r"\[0\].ports: Forbidden: cannot be set", id="ports"),
        pytest.param(
            {"livenessProbe": {"exec": {"command": ["a"]}}}, r"\[0\].livenessProbe: Forbidden: cannot be", id="probe"
        ),
        pytest.param({"name": "main"}, r'\[0\].name: Duplicate value: "main"', id="name that is taken"),
        pytest.param({"name": "A_b"}, r'\[0\].name: Invalid value: "A_b": a lowercase RFC 1123 label', id="name"),
        pytest.param({"image": ""}, r"\[0\].image: Required value", id="no image"),
        pytest.param({"targetContainerName": "x"}, r'\[0\].targetContainerName: Not found: "x"', id="target"),
    ],
)
async def test_a_container_that_is_refused(served: Served, container: Json, problem: str) -> None:
    await served.create(api.PODS, served.pod())
    with pytest.raises(errors.Invalid, match=f"spec.ephemeralContainers{problem}"):
        await add(served, waiter(**container))


async def test_one_without_a_name(served: Served) -> None:
    await served.create(api.PODS, served.pod())
    body = {"spec": {"ephemeralContainers": [{"image": IMAGE}]}}
    first = await sent(served, body)
    await add(served, waiter())
    then = await sent(served, body)
    assert (first.status, then.status) == (422, 500)
    assert "spec.ephemeralContainers[0].name: Required value" in json.loads(first.body)["message"]
    assert "does not contain declared merge key: name" in json.loads(then.body)["message"]


async def test_what_is_there_neither_changes_nor_goes(served: Served) -> None:
    await served.create(api.PODS, served.pod())
    await add(served, waiter("kept"))
    with pytest.raises(errors.Invalid, match='existing ephemeral containers "kept" may not be changed'):
        await add(served, waiter("kept", command=["/helper", "init"]))
    for body, kind in (
        ({"spec": {"ephemeralContainers": None}}, api.STRATEGIC_PATCH),
        ({"spec": {"ephemeralContainers": [waiter("other")]}}, api.MERGE_PATCH),
    ):
        answer = await sent(served, body, kind)
        assert answer.status == 422
        assert 'existing ephemeral containers "kept" may not be removed' in json.loads(answer.body)["message"]


async def test_nothing_else_of_the_pod_changes(served: Served) -> None:
    made = await served.create(api.PODS, served.pod())
    spec = {"activeDeadlineSeconds": 5, "ephemeralContainers": [waiter()]}
    body = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}, "spec": spec}
    found = json.loads((await sent(served, body)).body)
    assert found["metadata"]["labels"] == served.labels
    assert found["status"] == made["status"]
    assert named(found) == ["first"]
    assert {**found["spec"], "ephemeralContainers": None} == {**made["spec"], "ephemeralContainers": None}


async def test_it_is_the_only_way_to_add_one(served: Served) -> None:
    with pytest.raises(errors.Invalid, match="ephemeralContainers: Forbidden: cannot be set on create"):
        await served.create(api.PODS, served.pod(ephemeralContainers=[waiter()]))
    await served.create(api.PODS, served.pod())
    with pytest.raises(errors.Invalid, match="spec: Forbidden: pod updates may not change fields other than"):
        await served.client.patch(
            api.PODS, served.namespace, served.name(), {"spec": {"ephemeralContainers": [waiter()]}}
        )


async def test_a_patch_for_another_pod(served: Served) -> None:
    made = await served.create(api.PODS, served.pod())
    with pytest.raises(errors.Invalid, match=r"metadata.uid: Invalid value: .* field is immutable"):
        await add(served, waiter(), uid="another")
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await add(served, waiter(), resource_version=str(int(made["metadata"]["resourceVersion"]) - 1))
    with pytest.raises(errors.NotFound, match=f'pods "{served.name("gone")}" not found'):
        await served.client.patch(
            api.PODS, served.namespace, served.name("gone"), {}, subresource=SUB, content_type=api.STRATEGIC_PATCH
        )


async def test_a_pod_that_has_ended_takes_one(served: Served) -> None:
    await served.create(api.PODS, served.pod())
    patch = {"status": {"phase": "Failed"}}
    await served.client.patch(api.PODS, served.namespace, served.name(), patch, subresource="status")
    assert named(await add(served, waiter())) == ["first"]


async def test_other_kinds_have_none(served: Served) -> None:
    await served.create(api.CONFIGMAPS, served.config())
    path = api.CONFIGMAPS.path(served.namespace, served.name(), SUB)
    answer = await served.ask("PATCH", path, {}, content_type=api.STRATEGIC_PATCH)
    assert answer.status == 404


async def test_a_subresource_cannot_be_deleted(served: Served) -> None:
    await served.create(api.PODS, served.pod())
    answer = await served.ask("DELETE", api.PODS.path(served.namespace, served.name(), SUB))
    assert answer.status == 405
    await served.client.get(api.PODS, served.namespace, served.name())
