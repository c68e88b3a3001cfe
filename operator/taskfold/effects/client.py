"""The API server, with plain JSON objects in and out.

One `Client` per process: one session, credentials that renew themselves, typed errors (`errors.ApiError`).
Guarantees: every call ends within its limits; a write is repeated only if the server surely did not act on it
(429, 401, or the connection was refused before anything was sent); a GET is repeated a bounded number of
times. It never caches an object and never decides what a conflict means.
"""

import asyncio
import collections
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload
from urllib.parse import quote

import aiohttp

from taskfold.effects import cluster_time, credentials, errors, transport
from taskfold.effects.transport import Query, Request

Json = dict[str, Any]
T = TypeVar("T")

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
JSON = "application/json"
DESCRIPTOR_SECONDS = 300.0
"""How long a call waits while this process has no free file descriptor."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type of the API."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """The URL path of a collection, an object or its subresource."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join([base, *(quote(part, safe="") for part in parts)])


PODS = Resource("", "v1", "pods")
CONFIGMAPS = Resource("", "v1", "configmaps")
SECRETS = Resource("", "v1", "secrets")
EVENTS = Resource("", "v1", "events")
NAMESPACES = Resource("", "v1", "namespaces")
SERVICES = Resource("", "v1", "services")
NETWORKPOLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
TASKRUNS = Resource("taskfold.dev", "v1alpha1", "taskruns")
VERIFIERRUNS = Resource("taskfold.dev", "v1alpha1", "verifierruns")


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a call. Waiting for a free place among `concurrent` calls is not time of the call."""

    concurrent: int = 64
    connect_seconds: float = 10.0
    request_seconds: float = 60.0
    attempts: int = 5
    retry_seconds: float = 30.0
    """All pauses between the attempts of one call, together; a longer Retry-After is the caller's to wait."""


@dataclass(slots=True)
class Counters:
    """What this client did, for metrics and benchmarks. Bytes are bodies, without headers and TLS."""

    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    retries: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A consistent list: the items (projected) and the resourceVersion to watch from."""

    items: tuple[T, ...]
    resource_version: str


class Client:
    """`async with Client(credentials.find()) as client:`"""

    def __init__(
        self,
        source: credentials.Source,
        *,
        limits: Limits | None = None,
        user_agent: str = "taskfold",
        over: Callable[[], transport.Transport] | None = None,
    ) -> None:
        """`over` makes the transport; by default it is HTTP."""
        self.limits = limits or Limits()
        self.counters = Counters()
        self.time = cluster_time.ClusterTime()
        self._source = source
        self._over = over or self._http
        self._user_agent = user_agent
        self._places = asyncio.Semaphore(self.limits.concurrent)
        self._transport: transport.Transport | None = None

    async def __aenter__(self) -> Self:
        self._transport = self._over()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    def _http(self) -> transport.Transport:
        return transport.Http(
            connect_seconds=self.limits.connect_seconds,
            request_seconds=self.limits.request_seconds,
            user_agent=self._user_agent,
        )

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        """One object; `NotFound` if there is none."""
        path = resource.path(namespace, name)
        return await self._json(Request("get", "GET", path, _where("get", resource, namespace, name)))

    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str | None = None,
        page: int = 500,
        metadata_only: bool = False,
    ) -> Listing[Json]: ...
    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str | None = None,
        page: int = 500,
        metadata_only: bool = False,
        project: Callable[[Json], T],
    ) -> Listing[T]: ...
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str | None = None,
        page: int = 500,
        metadata_only: bool = False,
        project: Callable[[Json], Any] | None = None,
    ) -> Listing[Any]:
        """Everything that matches, page by page (`namespace` None: in all namespaces).

        `project` is called on each object as its page arrives, so that whole objects need not be kept.
        `metadata_only`: each object has its `metadata` and nothing else; selectors work as ever.
        `resource_version="0"` allows the server's watch cache, which may be stale. A continue token that
        expired under way starts the list again, once; then `Gone`.
        """
        query = [("labelSelector", labels), ("fieldSelector", fields), ("limit", str(page))]
        query = [(key, value) for key, value in query if value]
        first = [*query, *([("resourceVersion", resource_version)] if resource_version is not None else [])]
        accept = METADATA_LIST if metadata_only else JSON
        try:
            return await self._pages(resource, namespace, first, query, project or _whole, accept=accept)
        except errors.Gone:
            self.counters.retries += 1
            return await self._pages(resource, namespace, first, query, project or _whole, accept=accept)

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Json:
        """POST; `AlreadyExists` if the name is taken (then compare owner and attempt: it may be ours)."""
        where = _where("create", resource, namespace, _name(body))
        return await self._json(Request("create", "POST", resource.path(namespace), where, body=_encode(body)))

    async def apply(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        manager: str = "taskfold",
        force: bool = True,
        subresource: str = "",
    ) -> Json:
        """Server-side apply: an idempotent upsert. `Conflict` (another field manager) only with
        `force=False`.
        """
        name = _name(body)
        return await self._json(
            Request(
                "apply",
                "PATCH",
                resource.path(namespace, name, subresource),
                _where("apply", resource, namespace, name),
                [("fieldManager", manager), ("force", "true" if force else "false")],
                _encode(body),
                APPLY_PATCH,
            )
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        resource_version: str | None = None,
        uid: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> Json:
        """Merge patch (RFC 7386), or `STRATEGIC_PATCH`, which knows the keys of lists, for built-in resources.

        `resource_version`: `Conflict` if the object is another by now. `uid`: `Conflict` or `Invalid` if another has
        the name; the status subresource of a custom resource does not look at it, so never the only guard there.
        """
        guard = {"resourceVersion": resource_version, "uid": uid}
        guard = {key: value for key, value in guard.items() if value is not None}
        guarded = {**body, "metadata": {**body.get("metadata", {}), **guard}} if guard else body
        return await self._json(
            Request(
                "patch",
                "PATCH",
                resource.path(namespace, name, subresource),
                _where("patch", resource, namespace, name, subresource),
                [("fieldManager", "taskfold")],
                _encode(guarded),
                content_type,
            )
        )

    async def patch_status(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        status: Mapping[str, Any],
        *,
        resource_version: str,
        uid: str | None = None,
    ) -> Json:
        """Compare-and-swap of the status: a merge patch on the subresource. `Conflict`: read and decide again."""
        return await self.patch(
            resource,
            namespace,
            name,
            {"status": status},
            subresource="status",
            resource_version=resource_version,
            uid=uid,
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> Json:
        """Ask for the deletion; the server's last look at the object, or a Status.

        `NotFound`: it is gone already. `Conflict`: the name belongs to another uid or version.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options["preconditions"] = {key: value for key, value in preconditions.items() if value is not None}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        where = _where("delete", resource, namespace, name)
        path = resource.path(namespace, name)
        return await self._json(Request("delete", "DELETE", path, where, body=_encode(options)))

    async def pod_log(self, namespace: str, pod: str, container: str, limit: int) -> bytes:
        """What a container has written so far, at most `limit` bytes from its beginning."""
        path, query = PODS.path(namespace, pod, "log"), [("container", container), ("limitBytes", str(limit))]
        call = Request("log", "GET", path, _where("get", PODS, namespace, pod, "log"), query, accept="*/*")
        return await self._bytes(call)

    async def version(self) -> Json:
        """`/version`: gitVersion, platform and so on."""
        return await self._json(Request("version", "GET", "/version", "get /version"))

    async def websocket(
        self, verb: str, path: str, query: Query, protocols: Sequence[str], *, where: str
    ) -> transport.Socket:
        """A WebSocket to a subresource, for `effects.exec`; its first answer is mapped to `ApiError` like any other."""

        async def connect(login: credentials.Credentials) -> transport.Socket:
            return await self._open().websocket(login, path, query, protocols, where)

        self.counters.calls[verb] += 1
        return await self._attempts(connect, where, repeatable=False, patient=False)

    async def _pages(
        self,
        resource: Resource,
        namespace: str | None,
        query: Query,
        following: Query,
        project: Callable[[Json], Any],
        *,
        accept: str,
    ) -> Listing[Any]:
        where = _where("list", resource, namespace)
        items: collections.deque[Any] = collections.deque()
        while True:
            page = await self._json(Request("list", "GET", resource.path(namespace), where, query, accept=accept))
            items.extend(project(item) for item in page.get("items") or ())
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return Listing(tuple(items), meta.get("resourceVersion", ""))
            query = [*following, ("continue", meta["continue"])]

    async def _json(self, call: Request) -> Json:
        try:
            value = json.loads(await self._bytes(call))
        except ValueError as error:
            raise errors.Unavailable(f"the answer is not JSON: {error}", sent=True, where=call.where) from error
        if not isinstance(value, dict):
            raise errors.Unavailable("the answer is not a JSON object", sent=True, where=call.where)
        return value

    async def _bytes(self, call: Request) -> bytes:
        async def once(login: credentials.Credentials) -> bytes:
            async with self._places:
                return await self._once(call, login)

        self.counters.calls[call.verb] += 1
        return await self._attempts(once, call.where, repeatable=call.method == "GET")

    async def _once(self, call: Request, login: credentials.Credentials) -> bytes:
        self.counters.bytes_sent += len(call.body or b"")
        answer = await self._open().request(login, call)
        self.time.heard(answer.headers.get("Date"))
        if answer.status >= 400:
            raise answer.error()
        self.counters.bytes_received += len(answer.body)
        return answer.body

    async def _attempts(
        self,
        once: Callable[[credentials.Credentials], Awaitable[T]],
        where: str,
        *,
        repeatable: bool,
        patient: bool = True,
    ) -> T:
        """Call `once` until it succeeds or its failure is final. `repeatable`: acting twice does no harm. `patient`:
        wait for a free descriptor, which is no time of the call.
        """
        left, renewed, attempt, starved = self.limits.retry_seconds, False, 0, 0.0
        while True:
            attempt += 1
            login = await self._source.current()
            try:
                return await once(login)
            except errors.Unauthorized as error:
                if renewed:
                    raise _located(error, where) from None
                renewed = True
                await self._source.renew(login)
                continue
            except errors.NoDescriptors as error:
                starved += (wait := random.uniform(0.1, 2.0))  # noqa: S311
                if not patient or starved > DESCRIPTOR_SECONDS:
                    raise _located(error, where) from None
                self.counters.retries += 1
                attempt -= 1
                await asyncio.sleep(wait)
                continue
            except errors.ApiError as error:
                failure = _located(error, where)
            pause = _pause(failure, attempt, repeatable=repeatable)
            if pause is None or attempt >= self.limits.attempts or pause > left:
                raise failure
            left -= pause
            self.counters.retries += 1
            await asyncio.sleep(pause)

    def _open(self) -> transport.Transport:
        if self._transport is None:
            raise RuntimeError("the client is used outside of its `async with`")
        return self._transport


def _pause(failure: errors.ApiError, attempt: int, *, repeatable: bool) -> float | None:
    """Seconds until the next attempt, None for never."""
    match failure:
        case errors.TooManyRequests():
            wait = 1.0 if failure.retry_after is None else failure.retry_after
            return wait + random.uniform(0, 0.25)  # noqa: S311  (spreads clients, protects nothing)
        case errors.Unavailable(sent=False) if not isinstance(failure.__cause__, aiohttp.ClientSSLError):
            pass
        case errors.Unavailable(sent=True) if repeatable:
            pass
        case _:
            return None
    return min(5.0, 0.1 * 2.0**attempt) * random.uniform(0.5, 1.0)  # noqa: S311


def _located(error: errors.ApiError, where: str) -> errors.ApiError:
    error.where = where
    return error


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _whole(item: Json) -> Json:
    return item


def _name(body: Mapping[str, Any]) -> str:
    return str((body.get("metadata") or {}).get("name") or "")


def _where(verb: str, resource: Resource, namespace: str | None, name: str = "", subresource: str = "") -> str:
    kind = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return f"{verb} {kind} {'/'.join(part for part in (namespace, name) if part)}".rstrip()
