"""The server in this process: a cluster that is a few answers, certificates of its own, and how they are changed."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yarl
from aiohttp import web

from taskfold.api.settings import Settings
from taskfold.effects import credentials
from taskfold.reading import sending, server
from tests.reading import scene, stored

RUN = "/apis/results.taskfold.dev/v1alpha1/namespaces/ns/taskruns/r"
PREFIX = "test/ns/u/1/"
Pair = tuple[Path, Path]


class Cluster:
    """The API server's part: what it publishes, one run, and who may read it."""

    def __init__(self, authority: Path) -> None:
        self.authority = authority
        self.reviews: list[dict[str, Any]] = []
        self.answer: dict[str, Any] | int = {"allowed": True}
        status = {"complete": True, "store": PREFIX, "attempts": [{"number": 1}, {"number": 2}]}
        self.run: dict[str, Any] = {"metadata": {"name": "r", "namespace": "ns", "uid": "u"}, "status": status}
        self.run["status"]["attempts"].pop()

    def application(self) -> web.Application:
        made = web.Application()
        path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        made.router.add_get(path, self.published)
        made.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self.review)
        made.router.add_get("/apis/taskfold.dev/v1alpha1/namespaces/ns/taskruns/r", self.found)
        return made

    async def published(self, _: web.Request) -> web.Response:
        data = {
            "requestheader-client-ca-file": self.authority.read_text(),
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        return web.json_response({"data": data})

    async def review(self, request: web.Request) -> web.Response:
        self.reviews.append((await request.json())["spec"])
        if isinstance(self.answer, int):
            return web.json_response({"kind": "Status", "message": "no"}, status=self.answer)
        return web.json_response({"status": self.answer})

    async def found(self, _: web.Request) -> web.Response:
        return web.json_response(self.run)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Certificates: of two servers, of two front proxies, each with its authority."""
    folder = tmp_path_factory.mktemp("certificates")
    made = {name: scene.self_signed(folder, name, name, "IP:127.0.0.1") for name in ("serving", "serving-2")}
    for number in ("", "-2"):
        made[f"ca{number}"] = scene.self_signed(folder, f"ca{number}", f"ca{number}")
        made[f"client{number}"] = scene.signed_by(folder, f"client{number}", "front-proxy-client", made[f"ca{number}"])
    return made


@pytest.fixture
def cluster(pairs: dict[str, Pair], tmp_path: Path) -> Cluster:
    return Cluster(pairs["ca"][0])


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STRANGER_SECONDS", 0.2)
    monkeypatch.setattr(server, "RENEW_SECONDS", 0.2)


@pytest.fixture
async def url(cluster: Cluster, pairs: dict[str, Pair], tmp_path: Path, fast: None) -> AsyncIterator[str]:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    put(pairs["serving"], tmp_path)
    runner = web.AppRunner(cluster.application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = f"http://127.0.0.1:{runner.addresses[0][1]}"
    port = scene.free_port()
    reading = {"enabled": True, "port": port, "certificate": str(certificate), "key": str(key), "streams": 2}
    store = {"url": f"file://{tmp_path / 'store'}"}
    settings = Settings.model_validate({"clusterName": "test", "store": store, "reading": reading})
    stored.plain(tmp_path / "store", PREFIX, "r")
    async with server.serving(settings, credentials.static(api)):
        yield f"https://127.0.0.1:{port}"
    await runner.cleanup()


def put(pair: Pair, folder: Path) -> None:
    (folder / "tls.crt").write_bytes(pair[0].read_bytes())
    (folder / "tls.key").write_bytes(pair[1].read_bytes())


class Proxy:
    """The API server, as it passes a request on: one connection that stays open."""

    def __init__(self, serving: Pair, client: Pair | None) -> None:
        self.context = ssl.create_default_context(cafile=serving[0])
        if client is not None:
            self.context.load_cert_chain(*client)

    async def __aenter__(self) -> Proxy:
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def get(self, url: str | yarl.URL, user: str = "ada", **headers: str) -> tuple[int, bytes]:
        named = {"X-Remote-User": user, **headers}
        async with self.session.get(url, ssl=self.context, headers=named) as response:
            return response.status, await response.read()


@pytest.fixture
async def proxy(pairs: dict[str, Pair]) -> AsyncIterator[Proxy]:
    async with Proxy(pairs["serving"], pairs["client"]) as made:
        yield made


async def test_the_review_has_all_that_is_known_of_the_caller(url: str, cluster: Cluster, proxy: Proxy) -> None:
    more = {"X-Remote-Group": "g", "X-Remote-Extra-A%2fB": "c"}
    status, body = await proxy.get(f"{url}{RUN}/files", **more)
    assert (status, json.loads(body)["metadata"]["uid"]) == (200, "u")
    assert cluster.reviews == [
        {
            "user": "ada",
            "uid": "",
            "groups": ["g"],
            "extra": {"a/b": ["c"]},
            "resourceAttributes": {
                "verb": "get",
                "group": "results.taskfold.dev",
                "version": "v1alpha1",
                "namespace": "ns",
                "resource": "taskruns",
                "subresource": "files",
                "name": "r",
            },
        }
    ]


async def test_a_permission_is_remembered_of_one_caller_and_one_wish_and_a_refusal_never(
    url: str, cluster: Cluster, proxy: Proxy
) -> None:
    for _ in range(3):
        assert (await proxy.get(f"{url}{RUN}/files"))[0] == 200
    assert len(cluster.reviews) == 1
    cluster.answer = {"allowed": False, "reason": "by no rule"}
    status, body = await proxy.get(f"{url}{RUN}/files", user="eve")
    assert (status, json.loads(body)["message"][-10:]) == (403, "by no rule")
    assert (await proxy.get(f"{url}{RUN}/log"))[0] == 403
    assert (await proxy.get(f"{url}{RUN}/files", **{"X-Remote-Group": "other"}))[0] == 403
    cluster.answer = {"allowed": True}
    assert (await proxy.get(f"{url}{RUN}/files", user="eve"))[0] == 200


@pytest.mark.parametrize(
    ("answer", "status"),
    [({}, 403), ({"allowed": "yes"}, 403), ({"allowed": True, "denied": True}, 403), (403, 500), (500, 503)],
)
async def test_what_is_no_clear_yes_is_a_refusal(
    url: str, cluster: Cluster, proxy: Proxy, answer: dict[str, Any] | int, status: int
) -> None:
    cluster.answer = answer
    found, body = await proxy.get(f"{url}{RUN}/files")
    assert (found, json.loads(body)["kind"]) == (status, "Status")


@pytest.mark.parametrize("part", ["a%2Fb", "..", "%2e%2e", "x%00", "ns%2Ftaskruns%2Fr%3F", "NS", "-x"])
async def test_what_is_no_name_goes_no_further(url: str, cluster: Cluster, proxy: Proxy, part: str) -> None:
    for path in (RUN.replace("/ns/", f"/{part}/"), RUN.removesuffix("r") + part):
        assert (await proxy.get(yarl.URL(f"{url}{path}/files", encoded=True)))[0] == 404
    assert cluster.reviews == []


async def test_a_damaged_archive_is_an_answer(url: str, proxy: Proxy, tmp_path: Path) -> None:
    content = stored.tar(stored.LOGS)
    (tmp_path / "store" / PREFIX / "files-0123.tar").write_bytes(b"\xff" * len(content))
    status, body = await proxy.get(f"{url}{RUN}/log")
    assert (status, json.loads(body)["reason"]) == (500, "InternalError")
    (tmp_path / "store" / PREFIX / "files-0123.tar").unlink()
    status, body = await proxy.get(f"{url}{RUN}/files/files-0123.tar")
    assert (status, json.loads(body)["reason"]) == (503, "ServiceUnavailable")


async def test_an_earlier_attempt_of_a_run_that_goes_on(
    url: str, cluster: Cluster, proxy: Proxy, tmp_path: Path
) -> None:
    cluster.run["status"] |= {"complete": False, "store": None, "attempts": [{"number": 1}, {"number": 2}]}
    assert (await proxy.get(f"{url}{RUN}/files"))[0] == 409
    status, body = await proxy.get(f"{url}{RUN}/files?attempt=1")
    assert (status, json.loads(body)["attempt"]) == (200, 1)


async def test_a_new_certificate_is_used_without_a_restart(
    url: str, pairs: dict[str, Pair], proxy: Proxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await proxy.get(f"{url}{RUN}/files"))[0] == 200
    # Between its two files it fits to nothing, and the old one stays.
    (tmp_path / "tls.crt").write_bytes(pairs["serving-2"][0].read_bytes())
    async with asyncio.timeout(20):
        while "were not read anew" not in caplog.text:
            await asyncio.sleep(0.05)
    async with Proxy(pairs["serving"], pairs["client"]) as other:
        assert (await other.get(f"{url}{RUN}/files"))[0] == 200
    put(pairs["serving-2"], tmp_path)
    assert await soon(url, pairs["serving-2"], pairs["client"]) == 200


async def test_an_authority_that_is_replaced_is_trusted_no_more_nor_are_its_connections(
    url: str, cluster: Cluster, pairs: dict[str, Pair], proxy: Proxy
) -> None:
    assert (await proxy.get(f"{url}{RUN}/files"))[0] == 200
    cluster.authority = pairs["ca-2"][0]
    assert await soon(url, pairs["serving"], pairs["client-2"]) == 200
    status, body = await proxy.get(f"{url}{RUN}/files")
    assert (status, json.loads(body)["reason"]) == (401, "Unauthorized"), "its connection was made before"
    async with Proxy(pairs["serving"], pairs["client"]) as other:
        with pytest.raises(aiohttp.ClientError):
            await other.get(f"{url}{RUN}/files")


async def soon(url: str, serving: Pair, client: Pair) -> int:
    """The answer to a new connection, once there is one."""
    async with asyncio.timeout(20):
        while True:
            async with Proxy(serving, client) as made:
                try:
                    return (await made.get(f"{url}{RUN}/files"))[0]
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)


async def test_no_more_streams_than_are_set(url: str, proxy: Proxy, pairs: dict[str, Pair], tmp_path: Path) -> None:
    big = stored.Kept(tmp_path / "store", PREFIX)
    content = bytes(64 * 1024 * 1024)
    big.archive("files-big.tar", "sandbox", content)
    big.end()
    async with (
        Proxy(pairs["serving"], pairs["client"]) as slow,
        slow.session.get(
            f"{url}{RUN}/files/files-big.tar", ssl=slow.context, headers={"X-Remote-User": "ada"}
        ) as response,
    ):
        assert response.status == 200
        status, body = await proxy.get(f"{url}{RUN}/files/files-big.tar")
        assert (status, json.loads(body)["reason"]) == (429, "TooManyRequests")
        assert (await proxy.get(f"{url}{RUN}/files/collected.json", user="bob"))[0] == 200
        response.close()


@pytest.mark.alone  # it has to be seen within two seconds that his turn is taken
async def test_a_reader_who_takes_nothing_is_hung_up_on(
    url: str, pairs: dict[str, Pair], proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SLOW_SECONDS", 2.0)
    big = stored.Kept(tmp_path / "store", PREFIX)
    big.archive("files-big.tar", "sandbox", bytes(64 * 1024 * 1024))
    big.end()
    made = Proxy(pairs["serving"], pairs["client"])
    address = url.removeprefix("https://127.0.0.1:")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address), ssl=made.context, limit=1024)
    writer.write(f"GET {RUN}/files/files-big.tar HTTP/1.1\r\nHost: x\r\nX-Remote-User: ada\r\n\r\n".encode())
    await writer.drain()
    async with asyncio.timeout(20):  # half of two turns is one: it is free once he has been hung up on
        while (await proxy.get(f"{url}{RUN}/files/collected.json"))[0] != 429:
            pass
        while (await proxy.get(f"{url}{RUN}/files/collected.json"))[0] != 200:
            pass
    got = 0
    async with asyncio.timeout(20):
        try:
            while chunk := await reader.read(1 << 20):
                got += len(chunk)
        except (ConnectionError, ssl.SSLError):
            pass
    assert 0 < got < 64 * 1024 * 1024
    writer.close()


async def test_documents_of_the_api_need_the_certificate_too(url: str, pairs: dict[str, Pair], proxy: Proxy) -> None:
    paths = ("/apis/results.taskfold.dev", "/apis/results.taskfold.dev/v1alpha1", "/openapi/v2", "/openapi/v3")
    for path in paths:
        assert (await proxy.get(url + path))[0] == 200
    async with Proxy(pairs["serving"], None) as stranger:
        for path in (*paths, f"{RUN}/files"):
            assert (await stranger.get(url + path))[0] == 401
        assert await stranger.get(f"{url}/healthz") == (200, b"ok")


@pytest.fixture
def beside(cluster: Cluster, pairs: dict[str, Pair], tmp_path: Path) -> Iterator[Settings]:
    reading = {"enabled": True, "port": scene.free_port(), "certificate": str(tmp_path / "none"), "key": "none"}
    store = {"url": f"file://{tmp_path / 'store'}"}
    yield Settings.model_validate({"store": store, "reading": reading})


def test_what_is_missing_is_awaited_and_the_process_works_and_ends(beside: Settings) -> None:
    with server.beside(beside, lambda: credentials.static("http://127.0.0.1:9")):
        worked = True
    assert worked


def test_switched_off_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> credentials.Source:
        raise AssertionError("nobody logs in")

    with server.beside(Settings(), never):
        pass
