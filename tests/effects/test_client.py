"""The API client against a server that answers what a test says."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import test_utils, web

from taskfold.effects import client as api
from taskfold.effects import credentials, errors

RUN = {"metadata": {"namespace": "ns", "name": "run"}}
FAST = api.Limits(retry_seconds=3.0)


@dataclass
class FakeApi:
    """Answers in order (the last one again and again); what it was asked is kept."""

    answers: list[Any] = field(default_factory=lambda: [{}])
    asked: list[web.Request] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    most: int = 0
    busy: int = 0

    async def respond(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        body = await request.read()
        self.bodies.append(json.loads(body) if body else None)
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            if callable(answer):
                answer = await answer(request)
        finally:
            self.busy -= 1
        if isinstance(answer, web.Response):
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        return web.json_response(answer)


def refusal(status: int, reason: str = "", message: str = "no", **headers: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return web.json_response(body, status=status, headers=headers)


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def serving(fake: FakeApi, limits: api.Limits = FAST) -> AsyncIterator[api.Client]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.respond)
    async with test_utils.TestServer(app) as server:
        source = credentials.static(str(server.make_url("")).rstrip("/"), "secret")
        async with api.Client(source, limits=limits) as client:
            yield client


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.BadRequest),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
    ],
)
async def test_an_error_keeps_what_the_server_said(status: int, reason: str, kind: type[errors.ApiError]) -> None:
    fake = FakeApi([refusal(status, reason, "the API's own words")])
    async with serving(fake) as client:
        with pytest.raises(kind) as caught:
            await client.create(api.TASKRUNS, "ns", RUN)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.reason) == (status, reason)
    assert str(error) == "create taskruns ns/run: the API's own words"
    assert len(fake.asked) == (2 if status == 401 else 1), "a write is not repeated"


async def test_an_error_of_a_proxy_is_not_json() -> None:
    async with serving(FakeApi([web.Response(status=404, text="<html>nginx</html>")])) as client:
        with pytest.raises(errors.NotFound, match="nginx"):
            await client.create(api.PODS, "ns", RUN)


@pytest.mark.parametrize("first", [refusal(500), refusal(503), hang_up], ids=["500", "503", "hang up"])
async def test_a_get_is_repeated_but_a_write_is_not(first: Any) -> None:
    async with serving(FakeApi([first, {"a": 1}])) as client:
        assert await client.get(api.PODS, "ns", "x") == {"a": 1}
        assert client.counters.retries in {0, 1}  # aiohttp itself repeats on a connection that was kept alive
    fake = FakeApi([first, {"a": 1}])
    async with serving(fake) as client:
        with pytest.raises(errors.Unavailable) as caught:
            await client.create(api.PODS, "ns", RUN)
        assert caught.value.sent
    assert len(fake.asked) == 1


async def test_a_get_is_repeated_a_bounded_number_of_times() -> None:
    fake = FakeApi([refusal(500)])
    async with serving(fake, api.Limits(attempts=3, retry_seconds=5)) as client:
        with pytest.raises(errors.Unavailable):
            await client.get(api.PODS, "ns", "x")
    assert len(fake.asked) == 3


async def test_retry_after_is_kept_within_its_bound() -> None:
    slow = {"Retry-After": "0"}
    fake = FakeApi([refusal(429, "TooManyRequests", **slow), {"a": 1}])
    async with serving(fake) as client:
        assert await client.create(api.PODS, "ns", RUN) == {"a": 1}
    fake = FakeApi([refusal(429, "TooManyRequests", **{"Retry-After": "60"})])
    async with serving(fake) as client:
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.create(api.PODS, "ns", RUN)
    assert (caught.value.retry_after, len(fake.asked)) == (60.0, 1)


async def test_a_refused_connection_was_surely_not_sent() -> None:
    limits = api.Limits(attempts=3, retry_seconds=1.0)
    async with api.Client(credentials.static("http://127.0.0.1:1"), limits=limits) as client:
        with pytest.raises(errors.Unavailable, match="did not answer") as caught:
            await client.create(api.PODS, "ns", RUN)
        assert not caught.value.sent
        assert client.counters.retries == 2


async def test_a_time_out_ends_a_call() -> None:
    over = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async with serving(FakeApi([hang]), api.Limits(request_seconds=1, attempts=1)) as client:
        with pytest.raises(errors.Unavailable) as caught:
            await client.get(api.PODS, "ns", "x")
        over.set()
    assert caught.value.sent


async def test_credentials_are_read_again_after_401() -> None:
    tokens = iter(["old", "new"])

    def read() -> credentials.Login:
        return credentials.Login(server, token=next(tokens))

    async def respond(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer new":
            return web.json_response({"a": 1})
        return refusal(401, "Unauthorized")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    async with test_utils.TestServer(app) as running:
        server = str(running.make_url(""))
        async with api.Client(credentials.Source(read)) as client:
            assert await client.create(api.PODS, "ns", RUN) == {"a": 1}


async def test_a_list_is_read_page_by_page_and_projected() -> None:
    pages = [
        {"metadata": {"continue": "next"}, "items": [{"n": 1}, {"n": 2}]},
        {"metadata": {"resourceVersion": "7"}, "items": [{"n": 3}]},
    ]
    fake = FakeApi(pages)
    async with serving(fake) as client:
        listing = await client.list(
            api.TASKRUNS, labels="a=b", fields="status.complete!=true", page=2, project=lambda item: item["n"]
        )
    assert listing == api.Listing((1, 2, 3), "7")
    assert fake.asked[0].path == "/apis/taskfold.dev/v1alpha1/taskruns"
    assert dict(fake.asked[0].query) == {
        "labelSelector": "a=b",
        "fieldSelector": "status.complete!=true",
        "limit": "2",
    }
    assert fake.asked[1].query["continue"] == "next"


async def test_an_expired_continue_token_starts_the_list_again() -> None:
    first = {"metadata": {"continue": "next"}, "items": [{"n": 1}]}
    last = {"metadata": {"resourceVersion": "7"}, "items": [{"n": 2}]}
    async with serving(FakeApi([first, refusal(410, "Expired"), first, last])) as client:
        listing = await client.list(api.PODS, "ns", resource_version="5")
    assert listing.items == ({"n": 1}, {"n": 2})


async def test_apply_is_server_side() -> None:
    fake = FakeApi()
    async with serving(fake) as client:
        await client.apply(api.NETWORKPOLICIES, "ns", RUN)
    request = fake.asked[0]
    assert request.method == "PATCH"
    assert request.path == "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies/run"
    assert dict(request.query) == {"fieldManager": "taskfold", "force": "true"}
    assert request.content_type == "application/apply-patch+yaml"


async def test_a_status_is_compared_and_swapped() -> None:
    fake = FakeApi()
    async with serving(fake) as client:
        await client.patch_status(api.TASKRUNS, "ns", "run", {"phase": "Running"}, resource_version="7", uid="u")
    assert fake.asked[0].path.endswith("/taskruns/run/status")
    assert fake.bodies[0] == {"status": {"phase": "Running"}, "metadata": {"resourceVersion": "7", "uid": "u"}}


async def test_a_deletion_names_the_uid() -> None:
    fake = FakeApi()
    async with serving(fake) as client:
        await client.delete(api.PODS, "ns", "x", uid="u", grace_seconds=0, propagation="Background")
    assert fake.bodies[0] == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


async def test_calls_are_bounded_and_counted() -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(0.02)
        return web.json_response({"a": 1})

    fake = FakeApi([slow])
    async with serving(fake, api.Limits(concurrent=3)) as client:
        await asyncio.gather(*(client.get(api.PODS, "ns", str(index)) for index in range(12)))
        assert client.counters.calls == {"get": 12}
        assert client.counters.bytes_received == 12 * len('{"a": 1}')
    assert fake.most <= 3
