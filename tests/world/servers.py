"""The servers that the shared suite runs against: the model in memory, the model over HTTP, and a real one.

What the real one does decides: a test that fails there is wrong, one that fails only on the model shows a fault of it.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, Self

import aiohttp

from taskfold.effects import client as api
from taskfold.effects import credentials, errors
from taskfold.effects import transport as transports
from taskfold.effects.client import Resource
from tests.world import apiserver, garbage, http, transport

Json = dict[str, Any]
SECONDS = 20.0
"""How long a test waits for something that has to come."""
QUIET_SECONDS = 0.3
"""How long a test listens for what must not come. A slow machine may hide a wrong event, never fail a right one."""


class Reader(Protocol):
    """One watch."""

    async def next(self) -> Json | None:
        """The next event; None at the end of the stream."""
        ...


@dataclass
class Served:
    """One server, and what a test of the suite needs of it."""

    client: api.Client
    namespace: str
    transport: transports.Transport
    source: credentials.Source
    model: apiserver.ApiServer | None = None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    """Distinguishes the objects of this test."""

    @property
    def labels(self) -> dict[str, str]:
        return {"suite": self.mark}

    @property
    def selector(self) -> str:
        return f"suite={self.mark}"

    def name(self, word: str = "a") -> str:
        return f"{word}-{self.mark}"

    def config(self, word: str = "a", **data: str) -> Json:
        """A ConfigMap of this test."""
        metadata = {"name": self.name(word), "namespace": self.namespace, "labels": self.labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def run(self, word: str = "a", **spec: Any) -> Json:
        """A TaskRun of this test. It is suspended: nobody shall work on it."""
        whole = {"task": {"inline": {"files": {"task.toml": ""}}}, "agent": {"oracle": {}}, "suspend": True, **spec}
        metadata = {"name": self.name(word), "namespace": self.namespace, "labels": self.labels}
        return {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "metadata": metadata, "spec": whole}

    def pod(self, word: str = "a", **spec: Any) -> Json:
        """A pod of this test that no scheduler takes."""
        containers = [{"name": "main", "image": "taskfold.invalid/none:1", "command": ["true"]}]
        whole = {"automountServiceAccountToken": False, "containers": containers, "schedulingGates": [{"name": "a/b"}]}
        metadata = {"name": self.name(word), "namespace": self.namespace, "labels": self.labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**whole, **spec}}

    async def create(self, resource: Resource, body: Json) -> Json:
        return await self.client.create(resource, self.namespace, body)

    async def ask(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        *,
        query: transports.Query = (),
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> transports.Answer:
        """A request that the client would not make."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        call = transports.Request(method.lower(), method, path, "", query, data, content_type, accept)
        return await self.transport.request(await self.source.current(), call)

    @contextlib.asynccontextmanager
    async def watch(
        self, resource: Resource, *, labels: str = "", fields: str = "", since: str = "", bookmarks: bool = False
    ) -> AsyncIterator["Reader"]:
        """A watch of the namespace."""
        if self.model is not None and isinstance(self.transport, transport.MemoryTransport):
            found = self.model.watch(
                resource, self.namespace, labels=labels, fields=fields, since=since, bookmarks=bookmarks
            )
            yield _Direct(found)
            found.close()
            return
        query = {"watch": "1", "labelSelector": labels, "fieldSelector": fields, "resourceVersion": since}
        query |= {"allowWatchBookmarks": "true"} if bookmarks else {}
        login = await self.source.current()
        url = login.server + resource.path(self.namespace)
        async with aiohttp.ClientSession(headers=dict(login.headers)) as session:
            ssl = login.ssl if login.ssl is not None else True
            kept = {key: value for key, value in query.items() if value}
            async with session.get(url, params=kept, ssl=ssl, raise_for_status=True) as response:
                yield _Streamed(response)

    async def until(self, look: Callable[[], Awaitable[bool]]) -> None:
        """Wait until the controllers have brought it about."""
        async with asyncio.timeout(SECONDS):
            while not await look():
                if self.model is not None:
                    garbage.Controllers(self.model).settle()
                else:
                    await asyncio.sleep(0.1)

    async def gone(self, resource: Resource, name: str) -> bool:
        listed = await self.client.list(resource, self.namespace, fields=f"metadata.name={name}")
        return not listed.items

    async def unknown(self, resource: Resource, name: str) -> bool:
        """Whether there is no such object, also of the kinds without a namespace."""
        try:
            await self.client.get(resource, None, name)
        except errors.NotFound:
            return True
        return False

    def forget(self) -> None:
        """Versions up to now become too old. A real server's first versions are that of themselves."""
        if self.model is not None:
            self.model.compact()


class _Direct:
    def __init__(self, found: Any) -> None:
        self._found = found

    async def next(self) -> Json | None:
        async with asyncio.timeout(SECONDS):
            return await anext(self._found, None)


class _Streamed:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Json | None:
        async with asyncio.timeout(SECONDS):
            line = await self._response.content.readline()
        return json.loads(line) if line else None


async def events(reader: Reader, count: int) -> list[tuple[str, Json]]:
    """The next events as (type, object)."""
    found = [await reader.next() for _ in range(count)]
    return [(event["type"], event["object"]) for event in found if event is not None]


async def quiet(reader: Reader) -> bool:
    """Whether nothing comes for a moment."""
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            await reader.next()
    except TimeoutError:
        return True
    return False


@dataclass
class Model:
    """A model with one namespace."""

    server: apiserver.ApiServer
    namespace: str = "suite"

    @classmethod
    def make(cls) -> Self:
        found = cls(apiserver.ApiServer(lambda: datetime.now(UTC)))
        found.server.ensure_namespace(found.namespace)
        return found


@contextlib.asynccontextmanager
async def in_memory() -> AsyncIterator[Served]:
    """The model, called directly."""
    model = Model.make()
    wire = transport.MemoryTransport(model.server)
    async with api.Client(transport.source(), over=lambda: wire) as client:
        yield Served(client, model.namespace, wire, transport.source(), model.server)


@contextlib.asynccontextmanager
async def over_http() -> AsyncIterator[Served]:
    """The model behind a socket, with the real transport."""
    model = Model.make()
    async with http.serving(model.server) as url, _real(credentials.static(url), model.namespace) as served:
        served.model = model.server
        yield served


@contextlib.asynccontextmanager
async def real(kubeconfig: str, namespace: str) -> AsyncIterator[Served]:
    """A real server."""
    async with _real(credentials.from_kubeconfig(kubeconfig), namespace) as served:
        yield served


@contextlib.asynccontextmanager
async def _real(source: credentials.Source, namespace: str) -> AsyncIterator[Served]:
    wire = transports.Http(connect_seconds=5, request_seconds=30, user_agent="taskfold-tests")
    try:
        async with api.Client(source) as client:
            yield Served(client, namespace, wire, source)
    finally:
        await wire.close()
