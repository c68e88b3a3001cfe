"""What only the model offers: faults of watches and lists on demand, hooks, trusted hands, and the same world again."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world import apiserver, faults, garbage, kinds, refusals, servers, storage, transport
from tests.world.servers import Json

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def server(seed: int = 0) -> apiserver.ApiServer:
    return apiserver.ApiServer(lambda: NOW, seed=seed)


def config(name: str = "a", **data: str) -> Json:
    return {"metadata": {"name": name, "namespace": "team"}, "data": data}


def pod(name: str = "a", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"containers": [{"name": "main"}], **spec}}


def client(found: apiserver.ApiServer, gate: faults.Gate | None = None) -> api.Client:
    limits = api.Limits(attempts=1)
    return api.Client(transport.source(), limits=limits, over=lambda: transport.MemoryTransport(found, gate))


def polled(watch: storage.Subscription) -> list[str]:
    return [event["type"] for event in iter(watch.poll, None)]


def test_a_dropped_watch_loses_what_was_not_read_and_ends() -> None:
    found = server()
    watch = found.watch(api.CONFIGMAPS)
    found.put(api.CONFIGMAPS, config())
    watch.drop()
    found.put(api.CONFIGMAPS, config("b"))

    async def read() -> list[Json]:
        return [event async for event in watch]

    assert asyncio.run(read()) == []
    assert found.watches == []


def test_a_silent_watch_tells_nothing_until_it_is_dropped() -> None:
    found = server()

    async def read() -> None:
        watch = found.watch(api.CONFIGMAPS)
        watch.silence()
        found.put(api.CONFIGMAPS, config())
        reading = asyncio.ensure_future(anext(watch, None))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not reading.done()
        watch.drop()
        assert await reading is None

    asyncio.run(read())


def test_watches_expire_under_way() -> None:
    found = server()
    watch = found.watch(api.CONFIGMAPS)
    found.put(api.CONFIGMAPS, config())
    found.expire_watches()
    assert polled(watch) == ["ADDED", "ERROR"]
    assert watch.closed


def test_a_forgotten_version_may_be_refused_at_the_handshake() -> None:
    found = server()
    found.gone_at_handshake = True
    found.compact()
    with pytest.raises(refusals.Refusal) as caught:
        found.watch(api.CONFIGMAPS, since="1")
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_the_past_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "KEPT", 3)
    found = server()
    versions = [found.put(api.CONFIGMAPS, config(x=str(number)))["metadata"]["resourceVersion"] for number in range(5)]
    assert polled(found.watch(api.CONFIGMAPS, since=versions[1])) == ["MODIFIED"] * 3
    assert polled(found.watch(api.CONFIGMAPS, since=versions[0])) == ["ERROR"]


def test_a_watch_that_is_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "BUFFER", 2)
    found = server()
    watch = found.watch(api.CONFIGMAPS)
    for number in range(3):
        found.put(api.CONFIGMAPS, config(x=str(number)))
    assert watch.closed


def test_bookmarks_go_to_those_who_want_them() -> None:
    found = server()
    found.put(api.CONFIGMAPS, config())
    head = found.put(api.CONFIGMAPS, config("b"))["metadata"]["resourceVersion"]
    with_bookmarks = found.watch(api.CONFIGMAPS, since=head)
    without = found.watch(api.CONFIGMAPS, since=head, bookmarks=False)
    found.bookmark()
    event = with_bookmarks.poll()
    assert event is not None
    assert (event["type"], event["object"]["metadata"]) == ("BOOKMARK", {"resourceVersion": head})
    assert without.poll() is None


def test_a_list_from_the_cache_may_be_stale() -> None:
    found = server()
    found.put(api.CONFIGMAPS, config("a"))
    found.put(api.CONFIGMAPS, config("b"))
    found.stale_by = 1

    async def listed(version: str | None) -> list[str]:
        async with client(found) as client_:
            items = (await client_.list(api.CONFIGMAPS, "team", resource_version=version)).items
        return [item["metadata"]["name"] for item in items]

    assert asyncio.run(listed("0")) == ["a"]
    assert asyncio.run(listed(None)) == ["a", "b"]


def test_an_admission_hook_refuses() -> None:
    found = server()
    found.ensure_namespace("team")
    seen: list[tuple[str, bool, bool]] = []

    def hook(review: Any) -> None:
        seen.append((review.verb, review.old is None, review.new is None))
        if review.verb == "create" and review.new["data"] == {"a": "bad"}:
            raise refusals.forbidden(api.CONFIGMAPS, review.target.name, "admission webhook says no")

    found.admission.append(hook)

    async def play() -> None:
        async with client(found) as client_:
            with pytest.raises(errors.Forbidden, match="webhook says no"):
                await client_.create(api.CONFIGMAPS, "team", config(a="bad"))
            await client_.create(api.CONFIGMAPS, "team", config(a="good"))
            await client_.patch(api.CONFIGMAPS, "team", "a", {"data": {"a": "better"}})
            await client_.delete(api.CONFIGMAPS, "team", "a")

    asyncio.run(play())
    assert seen == [
        ("create", True, False),
        ("create", True, False),
        ("patch", False, False),
        ("delete", False, True),
    ]


def test_what_goes_in_and_out_is_copied() -> None:
    found = server()
    body = config(a="1")
    found.put(api.CONFIGMAPS, body)
    body["data"]["a"] = "2"
    for obj in (found.read(api.CONFIGMAPS, "team", "a"), found.all(api.CONFIGMAPS)[0], found.put(api.CONFIGMAPS, body)):
        assert obj is not None
        obj["data"]["a"] = "3"
    watch = found.watch(api.CONFIGMAPS)
    event = watch.poll()
    assert event is not None
    event["object"]["data"]["a"] = "4"
    told: list[Json] = []
    found.subscribe(lambda kind, plural, obj: told.append(obj["data"].update(a="5") or obj))
    found.change(api.CONFIGMAPS, "team", "a", lambda obj: obj["data"].update(b="1"))
    assert found.read(api.CONFIGMAPS, "team", "a")["data"] == {"a": "2", "b": "1"}  # type: ignore[index]


def test_subscribers_are_told_in_order_also_when_one_of_them_writes() -> None:
    found = server()
    told: list[tuple[str, str]] = []

    def writer(kind: str, plural: str, obj: Json) -> None:
        if plural == "configmaps" and kind == "ADDED":
            found.write_status(api.PODS, "team", "a", lambda status: status.update(phase="Running"))

    found.put(api.PODS, pod())
    found.subscribe(writer)
    found.subscribe(lambda kind, plural, obj: told.append((kind, plural)))
    found.put(api.CONFIGMAPS, config())
    assert told == [("ADDED", "configmaps"), ("MODIFIED", "pods")]


def test_a_put_holds_to_the_schema_and_takes_a_status() -> None:
    found = server()
    body = {"metadata": {"name": "a", "namespace": "team"}, "spec": {"task": {}, "agent": {"oracle": {}}}}
    with pytest.raises(refusals.Refusal, match="set exactly one of inline"):
        found.put(api.TASKRUNS, body)
    body["spec"]["task"] = {"inline": {"files": {"a": ""}}}
    assert found.put(api.TASKRUNS, {**body, "status": {"phase": "Running"}})["status"] == {"phase": "Running"}
    with pytest.raises(refusals.Refusal, match=r"status\.phase: Unsupported value"):
        found.write_status(api.TASKRUNS, "team", "a", lambda status: status.update(phase="Walking"))


def test_a_scheduler_binds_a_pod_once() -> None:
    found = server()
    found.put(api.PODS, pod())
    found.change(api.PODS, "team", "a", lambda obj: obj["spec"].update(nodeName="node-1"))
    with pytest.raises(refusals.Refusal, match="pod updates may not change"):
        found.change(api.PODS, "team", "a", lambda obj: obj["spec"].update(nodeName="node-2"))


def test_a_kubelet_removes_what_it_has_ended_and_nothing_else() -> None:
    found = server()
    made = found.put(api.PODS, pod(nodeName="node-1"))
    found.delete(api.PODS, "team", "a", {"gracePeriodSeconds": 10})
    marked = found.read(api.PODS, "team", "a")
    assert marked is not None
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:10Z"
    assert not found.remove(api.PODS, "team", "a", uid="another")
    assert found.remove(api.PODS, "team", "a", uid=made["metadata"]["uid"])
    assert found.read(api.PODS, "team", "a") is None


def test_a_namespace_waits_for_its_pods() -> None:
    found = server()
    found.put(api.PODS, pod(nodeName="node-1"))
    found.delete(api.NAMESPACES, None, "team")
    controllers = garbage.Controllers(found)
    controllers.settle()
    assert found.read(api.NAMESPACES, None, "team") is not None
    found.remove(api.PODS, "team", "a")
    controllers.settle()
    assert found.read(api.NAMESPACES, None, "team") is None


def test_a_quota_counts_pods_that_have_not_ended() -> None:
    found = server()
    found.put(kinds.RESOURCEQUOTAS, {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"pods": "1"}}})
    found.put(api.PODS, pod("first"))

    async def play() -> None:
        async with client(found) as client_:
            with pytest.raises(errors.Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=1, limited"):
                await client_.create(api.PODS, "team", pod("second"))
            found.write_status(api.PODS, "team", "first", lambda status: status.update(phase="Succeeded"))
            await client_.create(api.PODS, "team", pod("second"))

    asyncio.run(play())


def test_the_same_seed_gives_the_same_uids() -> None:
    uids = [server(seed).put(api.CONFIGMAPS, config())["metadata"]["uid"] for seed in (1, 1, 2)]
    assert uids[0] == uids[1] != uids[2]


def test_a_refusal_over_http_keeps_its_headers() -> None:
    async def play() -> None:
        async with servers.over_http() as served:
            assert served.model is not None

            def busy(review: Any) -> None:
                raise refusals.too_many(7)

            served.model.admission.append(busy)
            answer = await served.ask("POST", api.CONFIGMAPS.path(served.namespace), served.config())
            error = answer.error()
            assert isinstance(error, errors.TooManyRequests)
            assert (error.retry_after, answer.headers["Retry-After"]) == (7, "7")

    asyncio.run(play())


def test_a_watch_over_http_can_be_refused_and_dropped() -> None:
    async def play() -> None:
        async with servers.over_http() as served:
            assert served.model is not None
            async with served.watch(api.CONFIGMAPS, labels=served.selector) as watch:
                await served.create(api.CONFIGMAPS, served.config())
                assert await watch.next() is not None
                for each in served.model.watches:
                    each.drop()
                assert await watch.next() is None
            served.model.gone_at_handshake = True
            served.model.compact()
            query = [("watch", "1"), ("resourceVersion", "1")]
            answer = await served.ask("GET", api.CONFIGMAPS.path(served.namespace), query=query)
            assert isinstance(answer.error(), errors.Gone)

    asyncio.run(play())
