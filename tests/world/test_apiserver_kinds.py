"""What is special about single kinds, bounds of size, and what the server tells of itself, in memory and real."""

import json

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world.servers import Served


@pytest.mark.parametrize("size", [1_100_000, 2_000_000])
async def test_a_configmap_of_more_than_a_mebibyte(served: Served, size: int) -> None:
    with pytest.raises(errors.Invalid, match="Too long: may not be more than 1048576 bytes"):
        await served.create(api.CONFIGMAPS, served.config(a="x" * size))


async def test_a_request_of_more_than_three_mebibytes(served: Served) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        await served.create(api.CONFIGMAPS, served.config(a="x" * 3_300_000))
    assert (caught.value.status, caught.value.reason) == (413, "RequestEntityTooLarge")


async def test_a_custom_resource_that_etcd_does_not_take(served: Served) -> None:
    """Its fields are within their bounds, the whole is too much: an error of the server, with no reason."""
    files = {f"f{number}": "x" * 250_000 for number in range(8)}
    with pytest.raises(errors.Unavailable, match="etcdserver: request is too large"):
        await served.create(api.TASKRUNS, served.run(task={"inline": {"files": files}}))


@pytest.mark.parametrize("key", ["a/b", "a b"])
async def test_keys_of_a_configmap(served: Served, key: str) -> None:
    with pytest.raises(errors.Invalid, match="a valid config key must consist of"):
        await served.create(api.CONFIGMAPS, served.config(**{key: "x"}))


async def test_a_secret_is_stored_encoded(served: Served) -> None:
    body = {"kind": "Secret", "metadata": {"name": served.name()}, "stringData": {"a": "b"}}
    made = await served.create(api.SECRETS, body)
    assert (made["data"], made["type"], "stringData" in made) == ({"a": "Yg=="}, "Opaque", False)


async def test_an_immutable_configmap(served: Served) -> None:
    await served.create(api.CONFIGMAPS, {**served.config(a="1"), "immutable": True})
    with pytest.raises(errors.Invalid, match="data: Forbidden: field is immutable when `immutable` is set"):
        await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), {"data": {"a": "2"}})


async def test_an_event_is_about_its_own_namespace(served: Served) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": served.namespace}
    body = {"kind": "Event", "metadata": {"name": served.name()}, "involvedObject": about, "reason": "x"}
    await served.create(api.EVENTS, body)
    with pytest.raises(errors.Invalid, match=r"involvedObject.namespace: Invalid value.*does not match"):
        await served.create(
            api.EVENTS, {**body, "metadata": {"name": "b"}, "involvedObject": {**about, "namespace": "default"}}
        )


async def test_a_lease_is_taken_by_one(served: Served) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    made = await served.create(api.LEASES, {"kind": "Lease", "metadata": {"name": served.name()}, "spec": spec})
    version = made["metadata"]["resourceVersion"]
    await served.client.patch(
        api.LEASES, served.namespace, served.name(), {"spec": {"holderIdentity": "b"}}, resource_version=version
    )
    with pytest.raises(errors.Conflict):
        await served.client.patch(
            api.LEASES, served.namespace, served.name(), {"spec": {"holderIdentity": "c"}}, resource_version=version
        )


async def test_types_are_discovered(served: Served) -> None:
    groups = json.loads((await served.ask("GET", "/apis")).body)["groups"]
    assert {"taskfold.dev", "coordination.k8s.io", "networking.k8s.io"} <= {group["name"] for group in groups}
    assert json.loads((await served.ask("GET", "/api")).body)["versions"] == ["v1"]
    own = json.loads((await served.ask("GET", "/apis/taskfold.dev/v1alpha1")).body)["resources"]
    found = {each["name"]: (each["kind"], each["namespaced"], each["singularName"]) for each in own}
    assert found == {
        "taskruns": ("TaskRun", True, "taskrun"),
        "taskruns/status": ("TaskRun", True, ""),
        "verifierruns": ("VerifierRun", True, "verifierrun"),
        "verifierruns/status": ("VerifierRun", True, ""),
    }
    core = json.loads((await served.ask("GET", "/api/v1")).body)["resources"]
    kinds = {each["name"]: (each["kind"], each["namespaced"]) for each in core}
    assert kinds["pods"] == ("Pod", True)
    assert kinds["namespaces"] == ("Namespace", False)
    assert (await served.ask("GET", "/apis/nothing.example")).status == 404


async def test_the_version(served: Served) -> None:
    found = await served.client.version()
    assert (found["major"], int(found["minor"]) >= 31) == ("1", True)
