"""The thinnest reasonable Kubernetes client, so that what is measured beside us is the cluster and not a library.

No retries, no caches, no checks, nothing of `taskfold`: a benchmark that used our own client would compare it with
itself. Raw exec speaks v5.channel.k8s.io: every message is one channel byte and payload; 0 stdin, 1 stdout, 2 stderr,
3 the final Status as JSON, 255 and a channel number ends that channel.
"""

import asyncio
import base64
import collections
import contextlib
import json
import os
import secrets
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import yaml
from tests import cluster as under_test

Json = dict[str, Any]


class Failed(Exception):  # noqa: N818 - says what it is
    """An answer that is no success."""


class Kube:
    """`async with Kube(kubeconfig) as kube:`"""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        self.server = cluster["server"].rstrip("/")
        self.calls: collections.Counter[str] = collections.Counter()
        with contextlib.ExitStack() as files:
            self._ssl = ssl.create_default_context(cafile=_file(files, cluster, "certificate-authority"))
            certificate = _file(files, user, "client-certificate")
            if certificate is not None:
                self._ssl.load_cert_chain(certificate, _file(files, user, "client-key"))
        self._headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._ssl, limit=0),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use it with `async with`")
        return self._session

    async def request(self, method: str, path: str, body: Json | None = None) -> Json:
        """One call; `Failed` unless it succeeds."""
        self.calls[method.lower()] += 1
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        async with self.session.request(
            method, self.server + path, data=data, headers={"Content-Type": kind}
        ) as answer:
            found: Json = await answer.json()
            if answer.status >= 300:
                raise Failed(f"{method} {path}: {answer.status} {found.get('message')}")
            return found

    async def gone(self, path: str) -> None:
        """Wait until there is no such object."""
        while True:
            async with self.session.get(self.server + path) as answer:
                if answer.status == 404:
                    return
            await asyncio.sleep(0.1)

    async def watch(self, path: str, seen: Callable[[str, Json], None], *, labels: str = "") -> None:
        """`seen(type, object)` for everything that is there and for every change, until cancelled."""
        query = urlencode({"labelSelector": labels})
        while True:
            listing = await self.request("GET", f"{path}?{query}")
            for each in listing["items"]:
                seen("ADDED", each)
            version = listing["metadata"]["resourceVersion"]
            url = f"{self.server}{path}?{query}&watch=1&resourceVersion={version}"
            async with self.session.get(url, read_bufsize=1 << 22) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    seen(event["type"], event["object"])

    @contextlib.asynccontextmanager
    async def watching(self, path: str, seen: Callable[[str, Json], None], *, labels: str = "") -> AsyncIterator[None]:
        """A watch for the length of the block; if it fails, so does the block."""
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self.watch(path, seen, labels=labels))
            yield
            watch.cancel()

    @contextlib.asynccontextmanager
    async def exec(
        self, namespace: str, pod: str, argv: Sequence[str], *, stdin: bool = False
    ) -> AsyncIterator["Exec"]:
        """Start a command in the pod's only container."""
        self.calls["exec"] += 1
        query = [*(("command", word) for word in argv), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if stdin else []
        url = f"{self.server}/api/v1/namespaces/{namespace}/pods/{pod}/exec?{urlencode(query)}"
        protocols = ("v5.channel.k8s.io",)
        async with self.session.ws_connect(url, protocols=protocols, max_msg_size=0, compress=0) as socket:
            yield Exec(socket)

    async def run(self, namespace: str, pod: str, argv: Sequence[str], stdin: bytes | None = None) -> bytes:
        """A command's output; `Failed` unless it succeeds."""
        async with self.exec(namespace, pod, argv, stdin=stdin is not None) as command:
            if stdin is not None:
                await command.send(stdin)
                await command.end()
            parts = [bytes(part) async for part in command.output()]
        if not command.succeeded:
            raise Failed(f"{argv}: {command.status} {command.errors[:500]!r}")
        return b"".join(parts)


class Exec:
    """A running command."""

    FRAME = 256 * 1024

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.status: Json = {}
        self.errors = b""

    @property
    def succeeded(self) -> bool:
        return self.status.get("status") == "Success"

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), self.FRAME):
            await self._socket.send_bytes(b"\0" + data[start : start + self.FRAME])

    async def end(self) -> None:
        """End the command's input."""
        await self._socket.send_bytes(b"\xff\0")

    async def output(self) -> AsyncIterator[memoryview]:
        """Its output until it has ended and the server has closed."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, payload = message.data[0], memoryview(message.data)[1:]
            if channel == 1:
                yield payload
            elif channel == 2:
                self.errors += bytes(payload)
            elif channel == 3:
                self.status = json.loads(bytes(payload))


@contextlib.asynccontextmanager
async def namespace(kube: Kube) -> AsyncIterator[str]:
    """A namespace for the length of the block, usable: with its service account."""
    name = f"bench-{secrets.token_hex(4)}"
    await kube.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "metadata": {"name": name}})

    async def usable() -> bool:
        try:
            await kube.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")
        except Failed:
            return False
        return True

    try:
        await until(usable)
        yield name
    finally:
        await kube.request("DELETE", f"/api/v1/namespaces/{name}")


async def until(look: Callable[[], Awaitable[Any]], seconds: float = 120.0) -> Any:
    """Poll until it gives something true, and return that."""
    async with asyncio.timeout(seconds):
        while not (found := await look()):
            await asyncio.sleep(0.05)
    return found


def kubeconfig() -> Path:
    """The cluster under test: TASKFOLD_KUBECONFIG, or the local one."""
    found = under_test.kubeconfig()
    if not found.exists():
        raise SystemExit(f"no cluster: {found} does not exist. Run `make cluster`, or set TASKFOLD_KUBECONFIG.")
    return found


def _named(entries: Sequence[Json], name: str) -> Json:
    return next(each for each in entries if each["name"] == name)


def _file(files: contextlib.ExitStack, table: Json, key: str) -> str | None:
    """The material as a file that lives as long as `files`: Python's ssl reads client keys from files only."""
    if table.get(key):
        return str(table[key])
    if not table.get(f"{key}-data"):
        return None
    folder = files.enter_context(tempfile.TemporaryDirectory())
    path = Path(folder) / key
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(base64.b64decode(table[f"{key}-data"]))
    return str(path)
