"""Watches of an API server, in memory and real."""

import pytest

from taskfold.effects import client as api
from tests.world.servers import Json, Served, events, quiet

UNFINISHED = "status.complete!=true"


def told(found: list[tuple[str, Json]]) -> list[tuple[str, str]]:
    return [(kind, obj["metadata"]["name"].split("-")[0]) for kind, obj in found]


async def status(served: Served, word: str, **change: object) -> Json:
    obj = await served.client.get(api.TASKRUNS, served.namespace, served.name(word))
    version = obj["metadata"]["resourceVersion"]
    return await served.client.patch_status(
        api.TASKRUNS, served.namespace, served.name(word), change, resource_version=version
    )


@pytest.mark.parametrize("since", ["", "0"])
async def test_without_a_version_what_exists_comes_first(served: Served, since: str) -> None:
    for word in ("a", "b"):
        await served.create(api.TASKRUNS, served.run(word))
    async with served.watch(api.TASKRUNS, labels=served.selector, since=since) as watch:
        assert sorted(told(await events(watch, 2))) == [("ADDED", "a"), ("ADDED", "b")]
        await served.create(api.TASKRUNS, served.run("c"))
        assert told(await events(watch, 1)) == [("ADDED", "c")]


async def test_from_a_version_everything_after_it_comes_in_order(served: Served) -> None:
    made = await served.create(api.CONFIGMAPS, served.config("a"))
    await served.create(api.CONFIGMAPS, served.config("b"))
    await served.client.patch(api.CONFIGMAPS, served.namespace, served.name("a"), {"data": {"x": "1"}})
    await served.client.delete(api.CONFIGMAPS, served.namespace, served.name("b"))
    since = made["metadata"]["resourceVersion"]
    async with served.watch(api.CONFIGMAPS, labels=served.selector, since=since) as watch:
        found = await events(watch, 3)
    assert told(found) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in found]
    assert versions == sorted(set(versions))


async def test_from_the_version_of_a_list_nothing_is_missed_or_told_twice(served: Served) -> None:
    await served.create(api.CONFIGMAPS, served.config("a"))
    listing = await served.client.list(api.CONFIGMAPS, served.namespace, labels=served.selector)
    await served.create(api.CONFIGMAPS, served.config("b"))
    async with served.watch(api.CONFIGMAPS, labels=served.selector, since=listing.resource_version) as watch:
        assert told(await events(watch, 1)) == [("ADDED", "b")]
        assert await quiet(watch)


async def test_a_deleted_object_is_told_as_it_was_with_the_version_of_its_end(served: Served) -> None:
    made = await served.create(api.CONFIGMAPS, served.config("a", x="1"))
    version = made["metadata"]["resourceVersion"]
    async with served.watch(api.CONFIGMAPS, labels=served.selector, since=version) as watch:
        await served.client.delete(api.CONFIGMAPS, served.namespace, served.name("a"))
        ((kind, obj),) = await events(watch, 1)
    assert (kind, obj["data"]) == ("DELETED", {"x": "1"})
    assert int(obj["metadata"]["resourceVersion"]) > int(version)


async def test_what_leaves_a_field_selection_is_told_as_deleted(served: Served) -> None:
    """With the state that it had within, and the version of the write that took it out."""
    made = await served.create(api.TASKRUNS, served.run())
    since = made["metadata"]["resourceVersion"]
    async with served.watch(api.TASKRUNS, labels=served.selector, fields=UNFINISHED, since=since) as watch:
        await status(served, "a", phase="Running")
        last = await status(served, "a", phase="Succeeded", complete=True)
        back = await status(served, "a", complete=None)
        found = await events(watch, 3)
    assert [kind for kind, _ in found] == ["MODIFIED", "DELETED", "ADDED"]
    assert found[1][1]["status"] == {"phase": "Running"}
    assert found[1][1]["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]
    assert found[2][1]["metadata"]["resourceVersion"] == back["metadata"]["resourceVersion"]


async def test_what_was_never_selected_is_not_told(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run())
    done = await status(served, "a", phase="Succeeded", complete=True)
    since = done["metadata"]["resourceVersion"]
    async with served.watch(api.TASKRUNS, labels=served.selector, fields=UNFINISHED, since=since) as watch:
        await served.client.patch(api.TASKRUNS, served.namespace, served.name(), {"spec": {"cancel": True}})
        await served.client.delete(api.TASKRUNS, served.namespace, served.name())
        await served.create(api.TASKRUNS, served.run("b"))
        assert told(await events(watch, 1)) == [("ADDED", "b")]


async def test_labels_decide_what_a_watch_is_told(served: Served) -> None:
    made = await served.create(api.CONFIGMAPS, served.config())
    labels = f"{served.selector},colour=red"
    async with served.watch(api.CONFIGMAPS, labels=labels, since=made["metadata"]["resourceVersion"]) as watch:
        for colour in ("red", "blue"):
            patch = {"metadata": {"labels": {"colour": colour}}}
            await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), patch)
        found = await events(watch, 2)
    assert told(found) == [("ADDED", "a"), ("DELETED", "a")]
    assert found[1][1]["metadata"]["labels"]["colour"] == "red"


async def test_the_end_of_an_object_under_deletion_is_told_apart_from_its_mark(served: Served) -> None:
    body = served.config()
    body["metadata"]["finalizers"] = ["a.example/x"]
    made = await served.create(api.CONFIGMAPS, body)
    since = made["metadata"]["resourceVersion"]
    async with served.watch(api.CONFIGMAPS, labels=served.selector, since=since) as watch:
        await served.client.delete(api.CONFIGMAPS, served.namespace, served.name())
        await served.client.patch(api.CONFIGMAPS, served.namespace, served.name(), {"metadata": {"finalizers": None}})
        found = await events(watch, 2)
    assert told(found) == [("MODIFIED", "a"), ("DELETED", "a")]
    # The last finalizer goes with the object: nobody sees it without.
    assert all(obj["metadata"]["deletionTimestamp"] and obj["metadata"]["finalizers"] for _, obj in found)


async def test_a_version_that_is_forgotten_ends_the_watch_with_an_error(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run())
    served.forget()
    async with served.watch(api.TASKRUNS, since="1") as watch:
        event = await watch.next()
        assert event is not None
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert "too old resource version: 1" in event["object"]["message"]
        assert await watch.next() is None


async def test_a_bookmark_ends_what_existed_at_the_start(served: Served) -> None:
    await served.create(api.TASKRUNS, served.run())
    async with served.watch(api.TASKRUNS, labels=served.selector, since="0", bookmarks=True) as watch:
        assert told(await events(watch, 1)) == [("ADDED", "a")]
        ((kind, obj),) = await events(watch, 1)
    assert (kind, obj["kind"]) == ("BOOKMARK", "TaskRun")
    assert set(obj["metadata"]) >= {"resourceVersion"}
    assert "name" not in obj["metadata"]


async def test_two_watches_are_told_the_same(served: Served) -> None:
    made = await served.create(api.CONFIGMAPS, served.config("a"))
    since = made["metadata"]["resourceVersion"]
    async with (
        served.watch(api.CONFIGMAPS, labels=served.selector, since=since) as one,
        served.watch(api.CONFIGMAPS, labels=served.selector, since=since) as other,
    ):
        for word in ("b", "c"):
            await served.create(api.CONFIGMAPS, served.config(word))
        assert await events(one, 2) == await events(other, 2)
