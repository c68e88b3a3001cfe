"""How pods, dependants and namespaces end, and what quota refuses, in memory and real."""

import contextlib
from typing import Any

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world import kinds
from tests.world.servers import Json, Served


def reference(owner: Json, **more: Any) -> Json:
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"], **more}


async def owned(served: Served, word: str, *owners: Json) -> Json:
    body = served.config(word)
    body["metadata"]["ownerReferences"] = [reference(owner) for owner in owners]
    return await served.create(api.CONFIGMAPS, body)


async def test_a_pod_begins_pending_with_defaults(served: Served) -> None:
    made = await served.create(api.PODS, {**served.pod(), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    expected = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "serviceAccountName": "default",
        "enableServiceLinks": True,
        "schedulerName": "default-scheduler",
    }
    assert {key: made["spec"][key] for key in expected} == expected
    (container,) = made["spec"]["containers"]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({"requests": {"cpu": "1m"}}, "Burstable"),
        ({"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1m"}}, "Burstable"),
    ],
)
async def test_the_quality_of_a_pod(served: Served, resources: Json, quality: str) -> None:
    body = served.pod()
    body["spec"]["containers"][0]["resources"] = resources
    assert (await served.create(api.PODS, body))["status"]["qosClass"] == quality


async def test_a_pod_without_containers(served: Served) -> None:
    with pytest.raises(errors.Invalid, match=r"spec.containers: Required value"):
        await served.create(api.PODS, served.pod(containers=[]))


async def test_a_pods_command_is_fixed_and_its_image_is_not(served: Served) -> None:
    made = await served.create(api.PODS, served.pod())
    (container,) = made["spec"]["containers"]
    other = {"spec": {"containers": [{**container, "image": "taskfold.invalid/none:2"}]}}
    changed = await served.client.patch(api.PODS, served.namespace, served.name(), other)
    assert changed["metadata"]["generation"] == 2
    wrong = {"spec": {"containers": [{**container, "command": ["false"]}]}}
    with pytest.raises(errors.Invalid, match="pod updates may not change fields other than"):
        await served.client.patch(api.PODS, served.namespace, served.name(), wrong)


async def test_a_pod_on_no_node_is_gone_at_once(served: Served) -> None:
    made = await served.create(api.PODS, served.pod())
    last = await served.client.delete(
        api.PODS, served.namespace, served.name(), uid=made["metadata"]["uid"], grace_seconds=5
    )
    assert last["kind"] == "Pod"
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert await served.gone(api.PODS, served.name())


async def bound(served: Served) -> Json:
    """A pod on a node that does not exist: nobody ends it there."""
    body = served.pod(nodeName=f"nowhere-{served.mark}")
    del body["spec"]["schedulingGates"]
    return await served.create(api.PODS, body)


async def test_a_pod_on_a_node_is_marked_and_stays(served: Served) -> None:
    await bound(served)
    marked = await served.client.delete(api.PODS, served.namespace, served.name())
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"] > marked["metadata"]["creationTimestamp"]
    longer = await served.client.delete(api.PODS, served.namespace, served.name(), grace_seconds=60)
    assert longer["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    shorter = await served.client.delete(api.PODS, served.namespace, served.name(), grace_seconds=5)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < marked["metadata"]["deletionTimestamp"]
    await served.client.delete(api.PODS, served.namespace, served.name(), grace_seconds=0)
    assert await served.gone(api.PODS, served.name())


async def test_the_grace_of_the_request_comes_before_the_pods(served: Served) -> None:
    await bound(served)
    marked = await served.client.delete(api.PODS, served.namespace, served.name(), grace_seconds=7)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
    await served.client.delete(api.PODS, served.namespace, served.name(), grace_seconds=0)


async def test_an_ended_pod_has_no_grace(served: Served) -> None:
    await bound(served)
    await served.client.patch(
        api.PODS, served.namespace, served.name(), {"status": {"phase": "Succeeded"}}, subresource="status"
    )
    await served.client.delete(api.PODS, served.namespace, served.name())
    assert await served.gone(api.PODS, served.name())


async def test_dependants_follow_their_owner(served: Served) -> None:
    owner = await served.create(api.CONFIGMAPS, served.config("owner"))
    await owned(served, "child", owner)
    await served.client.delete(api.CONFIGMAPS, served.namespace, served.name("owner"), propagation="Background")
    await served.until(lambda: served.gone(api.CONFIGMAPS, served.name("child")))


async def test_an_owner_that_never_existed_is_gone(served: Served) -> None:
    never = {"metadata": {"name": served.name("never"), "uid": "00000000-0000-4000-8000-000000000000"}}
    await owned(served, "child", never)
    await served.until(lambda: served.gone(api.CONFIGMAPS, served.name("child")))


async def test_a_name_that_was_given_again_is_no_owner(served: Served) -> None:
    owner = await served.create(api.CONFIGMAPS, served.config("owner"))
    await owned(served, "child", owner)
    await served.client.delete(api.CONFIGMAPS, served.namespace, served.name("owner"))
    await served.create(api.CONFIGMAPS, served.config("owner"))
    await served.until(lambda: served.gone(api.CONFIGMAPS, served.name("child")))
    assert not await served.gone(api.CONFIGMAPS, served.name("owner"))


async def test_one_owner_left_keeps_a_dependant(served: Served) -> None:
    owners = [await served.create(api.CONFIGMAPS, served.config(word)) for word in ("one", "two")]
    await owned(served, "child", *owners)
    await served.client.delete(api.CONFIGMAPS, served.namespace, served.name("one"))

    async def let_go() -> bool:
        child = await served.client.get(api.CONFIGMAPS, served.namespace, served.name("child"))
        return [each["name"] for each in child["metadata"]["ownerReferences"]] == [served.name("two")]

    await served.until(let_go)


async def test_orphans_lose_their_references(served: Served) -> None:
    owner = await served.create(api.CONFIGMAPS, served.config("owner"))
    await owned(served, "child", owner)
    with contextlib.suppress(errors.NotFound):
        await served.client.delete(api.CONFIGMAPS, served.namespace, served.name("owner"), propagation="Orphan")
    await served.until(lambda: served.gone(api.CONFIGMAPS, served.name("owner")))
    child = await served.client.get(api.CONFIGMAPS, served.namespace, served.name("child"))
    assert "ownerReferences" not in child["metadata"]


async def test_a_foreground_deletion_waits_for_what_blocks_it(served: Served) -> None:
    owner = await served.create(api.CONFIGMAPS, served.config("owner"))
    body = served.config("child")
    body["metadata"] |= {"ownerReferences": [reference(owner, blockOwnerDeletion=True)], "finalizers": ["a.example/x"]}
    await served.create(api.CONFIGMAPS, body)
    marked = await served.client.delete(
        api.CONFIGMAPS, served.namespace, served.name("owner"), propagation="Foreground"
    )
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def child_goes() -> bool:
        child = await served.client.get(api.CONFIGMAPS, served.namespace, served.name("child"))
        return "deletionTimestamp" in child["metadata"]

    await served.until(child_goes)
    assert not await served.gone(api.CONFIGMAPS, served.name("owner"))
    await served.client.patch(
        api.CONFIGMAPS, served.namespace, served.name("child"), {"metadata": {"finalizers": None}}
    )
    await served.until(lambda: served.gone(api.CONFIGMAPS, served.name("owner")))


async def test_a_quota_refuses_pods(served: Served) -> None:
    name = served.name("quota")
    own = f"world-quota-{served.mark}"
    await served.client.create(api.NAMESPACES, None, {"kind": "Namespace", "metadata": {"name": own}})
    body = {"kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": {"pods": "0"}}}
    await served.client.create(kinds.RESOURCEQUOTAS, own, body)
    pod = served.pod()
    pod["metadata"]["namespace"] = own

    async def refused() -> bool:
        try:
            await served.client.create(api.PODS, own, pod)
        except errors.Forbidden as error:
            # A real cluster first says that it does not know how much is used, or that the account is not there yet.
            return "exceeded quota" in error.problem
        await served.client.delete(api.PODS, own, pod["metadata"]["name"], grace_seconds=0)  # it has not seen the quota
        return False

    await served.until(refused)
    with pytest.raises(errors.Forbidden) as caught:
        await served.client.create(api.PODS, own, pod)
    expected = f'pods "{served.name()}" is forbidden: exceeded quota: {name}, requested: pods=1, used: pods=0, '
    assert caught.value.problem == f"{expected}limited: pods=0"
    await served.client.delete(api.NAMESPACES, None, own)


async def test_a_namespace_ends_with_its_content(served: Served) -> None:
    own = f"world-end-{served.mark}"
    await served.client.create(api.NAMESPACES, None, {"kind": "Namespace", "metadata": {"name": own}})
    body = {"kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["a.example/x"]}}
    await served.client.create(api.CONFIGMAPS, own, body)
    marked = await served.client.delete(api.NAMESPACES, None, own)
    assert marked["status"]["phase"] == "Terminating"
    with pytest.raises(errors.Forbidden, match="because it is being terminated") as caught:
        await served.client.create(api.CONFIGMAPS, own, {"kind": "ConfigMap", "metadata": {"name": "b"}})
    assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    with pytest.raises(errors.AlreadyExists, match="object is being deleted"):
        await served.client.create(api.NAMESPACES, None, {"kind": "Namespace", "metadata": {"name": own}})

    async def marked_inside() -> bool:
        found = await served.client.get(api.CONFIGMAPS, own, "a")
        return "deletionTimestamp" in found["metadata"]

    await served.until(marked_inside)
    await served.client.patch(api.CONFIGMAPS, own, "a", {"metadata": {"finalizers": None}})
    await served.until(lambda: served.unknown(api.NAMESPACES, own))
