"""A real S3 server on loopback, versitygw on a folder, and a proxy before it that misbehaves as it is told to.

It is built with the local cluster's programs (`make cluster`, or `hack/cluster build`), from its Go module.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import aiohttp
import pytest
import yarl
from aiohttp import web

from tests import ports

ROOT = Path(__file__).resolve().parents[1]
ACCESS_KEY, SECRET_KEY = "taskfold-tests", "not-a-secret-of-anybody"
BUCKET = "results"
START_SECONDS = 30.0
_HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}


def program() -> str:
    """The server's binary; a test that asks for it fails where it was not built."""
    command = [sys.executable, "hack/cluster", "bin"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    path = shutil.which("versitygw", path=os.pathsep.join([found, os.environ.get("PATH", "")]))
    if path is None:
        pytest.fail("there is no versitygw: run `make cluster` or `python3 hack/cluster build`, which build it")
    return path


class Server:
    """The server: each bucket is a folder below `folder`. It can be ended and started again on the same port."""

    def __init__(self, folder: Path, log: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or ports.free()
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        (folder / BUCKET).mkdir(parents=True, exist_ok=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        command = [program(), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.folder)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **keys})
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"the S3 server does not listen; its log ends:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL: what it was doing stays undone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@dataclasses.dataclass
class Trouble:
    """What happens to the next `times` requests of this method whose path contains `path`; empty: of all.

    `delay`: seconds before anything. `status`: answered instead of the server. `cut`: the connection ends after so many
    bytes of the answer's body. `cut_request`: it ends after so many bytes of the request's body. `lost`: the server
    carries it out, and the connection ends instead of the answer.
    """

    method: str = ""
    path: str = ""
    times: int = 10**9
    delay: float = 0.0
    status: int | None = None
    cut: int | None = None
    cut_request: int | None = None
    lost: bool = False
    met: int = 0


class Proxy:
    """Between a client and the server, in a thread of its own. `troubles`: the first that fits is met."""

    def __init__(self, upstream: str) -> None:
        self.troubles: list[Trouble] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, path with query, headers."""
        self.port = ports.free()
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def meet(self, trouble: Trouble) -> Trouble:
        self.troubles.append(trouble)
        return trouble

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _listen(self) -> web.AppRunner:
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        return runner

    def _trouble(self, request: web.BaseRequest) -> Trouble:
        for each in self.troubles:
            if each.times > each.met and each.method in ("", request.method) and each.path in request.path_qs:
                each.met += 1
                return each
        return Trouble()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path, dict(request.headers)))
        trouble = self._trouble(request)
        await asyncio.sleep(trouble.delay)
        if trouble.status is not None:
            await request.read()
            return web.Response(status=trouble.status, text="<Error><Code>Trouble</Code></Error>")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        body = _limited(request, trouble.cut_request) if request.body_exists else None
        url = f"{self._upstream}{request.raw_path}"
        try:
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.request(
                    request.method, _exact(url), headers=headers, data=body, skip_auto_headers=("Content-Type",)
                ) as answer,
            ):
                if trouble.lost:
                    await answer.read()
                    return _ended(request)
                return await self._answer(request, answer, trouble.cut)
        except (aiohttp.ClientError, _CutError):
            return _ended(request)

    async def _answer(
        self, request: web.Request, answer: aiohttp.ClientResponse, cut: int | None
    ) -> web.StreamResponse:
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        sent = 0
        async for chunk in answer.content.iter_chunked(64 * 1024):
            if cut is not None and sent + len(chunk) > cut:
                await response.write(chunk[: cut - sent])
                return _ended(request)
            await response.write(chunk)
            sent += len(chunk)
        await response.write_eof()
        return response


class _CutError(Exception):
    """The request is to break off here."""


async def _limited(request: web.Request, limit: int | None) -> AsyncIterator[bytes]:
    sent = 0
    async for chunk in request.content.iter_chunked(64 * 1024):
        if limit is not None and sent + len(chunk) > limit:
            raise _CutError
        sent += len(chunk)
        yield chunk


def _exact(url: str) -> yarl.URL:
    """The URL as it was signed: nothing in it is quoted anew."""
    return yarl.URL(url, encoded=True)


def _ended(request: web.Request) -> web.StreamResponse:
    """The connection breaks off."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def options(endpoint: str, secret: str = SECRET_KEY) -> dict[str, str]:
    """`store.options` for this endpoint, and the credentials, which a real operator has in its environment."""
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "allow_http": "true",
        "access_key_id": ACCESS_KEY,
        "secret_access_key": secret,
    }


def environment(secret: str = SECRET_KEY) -> dict[str, str]:
    """The credentials as the Secret of `store.secretName` has them."""
    return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": secret}


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[Server, Proxy]]:
    """A server with an empty bucket, and the proxy before it."""
    with Server(folder / "s3", folder / "s3.log") as server, Proxy(server.endpoint) as proxy:
        yield server, proxy


def objects(server: Server) -> list[str]:
    """Keys of the bucket's finished objects, as its folder has them: read past server and client."""
    root = server.folder / BUCKET
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not path.parts[0].startswith("."))
