"""Lists of an API server, in memory and real: selection, pages, metadata only."""

import asyncio
import base64
import json

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects.client import Resource
from tests.world.servers import Json, Served

COMPACTION_SECONDS = 660
"""The API server has etcd forget what is older than five minutes, every five minutes."""


def names(items: tuple[Json, ...]) -> list[str]:
    return [item["metadata"]["name"].split("-")[0] for item in items]


async def made(served: Served, *words: str) -> None:
    for word in words:
        await served.create(api.CONFIGMAPS, served.config(word))


async def listed(served: Served, resource: Resource = api.CONFIGMAPS, fields: str = "") -> list[str]:
    found = await served.client.list(resource, served.namespace, labels=served.selector, fields=fields)
    return names(found.items)


async def test_a_list_is_in_the_order_of_names_and_has_a_version(served: Served) -> None:
    await made(served, "b", "c", "a")
    found = await served.client.list(api.CONFIGMAPS, served.namespace, labels=served.selector)
    assert names(found.items) == ["a", "b", "c"]
    assert int(found.resource_version) >= max(int(item["metadata"]["resourceVersion"]) for item in found.items)


async def test_all_namespaces_are_listed_together(served: Served) -> None:
    await made(served, "a")
    found = await served.client.list(api.CONFIGMAPS, None, labels=served.selector)
    assert [item["metadata"]["namespace"] for item in found.items] == [served.namespace]


async def test_the_kind_of_a_list(served: Served) -> None:
    answer = json.loads((await served.ask("GET", api.TASKRUNS.path(served.namespace))).body)
    assert (answer["kind"], answer["apiVersion"]) == ("TaskRunList", "taskfold.dev/v1alpha1")


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_pages_together_are_the_list(served: Served, size: int) -> None:
    await made(served, *"abcde")
    found = await served.client.list(api.CONFIGMAPS, served.namespace, labels=served.selector, page=size)
    assert names(found.items) == [*"abcde"]


async def test_all_pages_are_as_of_the_first(served: Served) -> None:
    await made(served, *"abd")
    path = api.CONFIGMAPS.path(served.namespace)
    query = [("labelSelector", served.selector), ("limit", "1")]
    first = json.loads((await served.ask("GET", path, query=query)).body)
    await served.client.delete(api.CONFIGMAPS, served.namespace, served.name("d"))
    await made(served, "c")
    await served.client.patch(api.CONFIGMAPS, served.namespace, served.name("b"), {"data": {"new": "x"}})
    query = [("labelSelector", served.selector), ("continue", first["metadata"]["continue"])]
    rest = json.loads((await served.ask("GET", path, query=query)).body)
    assert names(tuple(rest["items"])) == ["b", "d"]
    assert "data" not in rest["items"][0]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.timeout(COMPACTION_SECONDS + 60)
async def test_a_continue_token_that_is_too_old(served: Served) -> None:
    await made(served, *"ab")
    served.forget()
    content = json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": f"{served.name('a')}\0"}).encode()
    token = base64.urlsafe_b64encode(content).rstrip(b"=").decode()
    query = [("labelSelector", served.selector), ("limit", "1"), ("continue", token)]
    # A real cluster forgets its first versions when it is compacted for the first time: minutes after it was born.
    for _ in range(COMPACTION_SECONDS):
        answer = await served.ask("GET", api.CONFIGMAPS.path(served.namespace), query=query)
        if answer.status >= 400:
            break
        await asyncio.sleep(1)
    assert isinstance(answer.error(), errors.Gone)
    status = json.loads(answer.body)
    assert status["reason"] == "Expired"
    # The answer's own token leads to the rest, as of now.
    query[-1] = ("continue", status["metadata"]["continue"])
    answer = await served.ask("GET", api.CONFIGMAPS.path(served.namespace), query=query)
    assert answer.status == 200


async def test_a_continue_token_that_is_none(served: Served) -> None:
    query = [("limit", "1"), ("continue", "zzz")]
    answer = await served.ask("GET", api.CONFIGMAPS.path(served.namespace), query=query)
    assert answer.status == 400
    assert "invalid continue token" in json.loads(answer.body)["message"]


async def test_metadata_only(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run())
    found = await served.client.list(api.TASKRUNS, served.namespace, labels=served.selector, metadata_only=True)
    (item,) = found.items
    assert set(item) == {"kind", "apiVersion", "metadata"}
    assert item["kind"] == "PartialObjectMetadata"
    assert item["metadata"]["labels"] == served.labels


async def test_a_list_from_the_cache_knows_no_pages(served: Served) -> None:
    await made(served, *"abc")
    query = [("labelSelector", served.selector), ("limit", "1"), ("resourceVersion", "0")]
    answer = json.loads((await served.ask("GET", api.CONFIGMAPS.path(served.namespace), query=query)).body)
    assert len(answer["items"]) == 3


async def test_a_version_that_does_not_exist_yet(served: Served) -> None:
    with pytest.raises(errors.Unavailable, match="Too large resource version") as caught:
        answer = await served.ask(
            "GET", api.CONFIGMAPS.path(served.namespace), query=[("resourceVersion", "999999999999")]
        )
        raise answer.error()
    assert (caught.value.status, caught.value.retry_after) == (504, 1.0)


async def test_the_unfinished_are_all_that_are_not_marked_as_complete(served: Served) -> None:
    """An absent field is the empty text: unequal to `true`, and to `false`."""
    for word, status in (("a", None), ("b", {"complete": False}), ("c", {"complete": True}), ("d", {})):
        obj = await served.create(api.TASKRUNS, served.run(word))
        if status is not None:
            version = obj["metadata"]["resourceVersion"]
            await served.client.patch_status(
                api.TASKRUNS, served.namespace, served.name(word), status, resource_version=version
            )
    assert await listed(served, api.TASKRUNS, "status.complete!=true") == ["a", "b", "d"]
    assert await listed(served, api.TASKRUNS, "status.complete=true") == ["c"]
    assert await listed(served, api.TASKRUNS, "status.complete=false") == ["b"]
    assert await listed(served, api.TASKRUNS, "status.complete=") == ["a", "d"]


async def test_field_selectors_are_joined_by_and(served: Served) -> None:
    for word, phase in (("a", "Running"), ("b", "Pending")):
        obj = await served.create(api.TASKRUNS, served.run(word))
        version = obj["metadata"]["resourceVersion"]
        await served.client.patch_status(
            api.TASKRUNS, served.namespace, served.name(word), {"phase": phase}, resource_version=version
        )
    assert await listed(served, api.TASKRUNS, "status.complete!=true,status.phase==Running") == ["a"]
    assert await listed(served, api.TASKRUNS, f"metadata.name={served.name('b')}") == ["b"]
    assert await listed(served, api.TASKRUNS, f"metadata.name!={served.name('b')}") == ["a"]
    assert await listed(served, api.TASKRUNS, f"metadata.namespace={served.namespace}x") == []


async def test_pods_are_selected_by_phase_and_node(served: Served) -> None:
    await served.create(api.PODS, served.pod())
    assert await listed(served, api.PODS, "status.phase=Pending") == ["a"]
    assert await listed(served, api.PODS, "spec.nodeName=") == ["a"]
    assert await listed(served, api.PODS, "status.phase!=Pending") == []


@pytest.mark.parametrize("resource", [api.TASKRUNS, api.PODS, api.CONFIGMAPS], ids=lambda each: each.plural)
async def test_fields_that_cannot_be_selected(served: Served, resource: Resource) -> None:
    with pytest.raises(errors.BadRequest, match=r"not supported: status\.reward|status\.reward.*not a known field"):
        await served.client.list(resource, served.namespace, fields="status.reward=1")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("kind", ["a", "b"]),
        ("!kind", ["c"]),
        ("kind=x", ["a"]),
        ("kind==x", ["a"]),
        ("kind!=x", ["b", "c"]),
        ("kind in (x,y)", ["a", "b"]),
        ("kind notin (x)", ["b", "c"]),
        ("kind,kind!=y", ["a"]),
        ("kind=", []),
        ("a.example/deep=1", ["c"]),
    ],
)
async def test_label_selectors(served: Served, selector: str, expected: list[str]) -> None:
    for word, labels in (("a", {"kind": "x"}), ("b", {"kind": "y"}), ("c", {"a.example/deep": "1"})):
        body = served.config(word)
        body["metadata"]["labels"] |= labels
        await served.create(api.CONFIGMAPS, body)
    found = await served.client.list(api.CONFIGMAPS, served.namespace, labels=f"{served.selector},{selector}")
    assert names(found.items) == expected


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "=x"])
async def test_what_is_no_label_selector(served: Served, selector: str) -> None:
    with pytest.raises(errors.BadRequest):
        await served.client.list(api.CONFIGMAPS, served.namespace, labels=selector)
