"""An API server in memory: requests in, answers out, as the real one gives them, at once and one at a time.

Guarantees: what goes in and out is copied; every write has a version of its own and is told to every watch in order; a
write that changes nothing is no write. The shared suite (`test_apiserver*.py`) holds this server and a real one to the
same behaviour.

Not modelled: permissions, JSON patch, strategic merge patch (but that of ephemeral containers), deletion of
collections, dry runs, `fieldValidation`, `generateName`, Tables, `sendInitialEvents`, admission by policies (there are
hooks), service accounts, the schemas of built-in kinds beyond what `lifecycle` and `pod_objects` say; owners of fields
(`managedFields`) before the first apply.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from taskfold.effects import client as api
from taskfold.effects.client import Resource
from taskfold.effects.transport import Answer, Request
from tests.world import apply, discovery, ephemeral, kinds, lifecycle, lists, refusals, selectors, storage, writes
from tests.world.paths import Target
from tests.world.refusals import Refusal
from tests.world.storage import Change, Subscription, clone
from tests.world.writes import MANAGER, Write, Writes

Json = dict[str, Any]
REQUEST_BYTES = 3 << 20
"""The largest body that is read."""
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}


class ApiServer:
    """`admission`: hooks on every write by request. `stale_by`: how many versions a list with resourceVersion 0 lags
    behind. `gone_at_handshake`: whether a watch from a forgotten version is refused with HTTP status 410 (as with a
    proxy or an old server) instead of an ERROR event.
    """

    def __init__(self, now: Callable[[], datetime], *, seed: int = 0) -> None:
        self.now = now
        self.stale_by = 0
        self.gone_at_handshake = False
        self.version: Json = dict(VERSION)
        self._store = storage.Storage()
        self._writes = Writes(self._store, now, seed)
        self.admission = self._writes.admission
        self._kinds = {kind.resource: kind for kind in kinds.known()}
        self.ensure_namespace("default")

    # Requests

    def handle(self, request: Request) -> Answer:
        """Any verb but watch and exec."""
        try:
            return self._handled(request)
        except Refusal as refusal:
            return refusal.answer()

    def _handled(self, request: Request) -> Answer:
        if request.path == "/version":
            return _answer(self.version)
        found = discovery.answer(request.path, self._kinds.values())
        if found is not None:
            return _answer(found)
        target = Target.of(request.path)
        kind = self._kinds.get(target.resource) if target else None
        if target is None or kind is None:
            return Answer(404, b"404 page not found\n", "Not Found", {"Content-Type": "text/plain; charset=utf-8"})
        if target.subresource not in kind.subresources:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if request.body is not None and len(request.body) > REQUEST_BYTES:
            text = f"Request entity too large: limit is {REQUEST_BYTES}"
            raise Refusal(413, "RequestEntityTooLarge", text)
        query = dict(request.query)
        write = Write(kind, target, (target.namespace or "", target.name), query.get("fieldManager", MANAGER))
        if request.method != "GET":
            return self._written(write, request, query)
        if target.name:
            return _answer(self._writes.found(target))
        only = "PartialObjectMetadata" in request.accept
        return _answer(lists.page(self._store, kind, target, query, metadata_only=only, stale_by=self.stale_by))

    def _written(self, write: Write, request: Request, query: Mapping[str, str]) -> Answer:
        to = self._writes
        match request.method, bool(write.target.name):
            case "POST", False:
                return _answer(to.create(write, _body(request)), 201)
            case "PUT", True:
                return _answer(to.update(write, "update", _body(request)))
            case "PATCH", True if request.content_type == api.APPLY_PATCH:
                obj, new = to.apply(write, _body(request), force=query.get("force") == "true")
                return _answer(obj, 201 if new else 200)
            case "PATCH", True if ephemeral.patches(write.target, request.content_type):
                return _answer(to.update(write, "patch", ephemeral.patched(to.found(write.target), _body(request))))
            case "PATCH", True if request.content_type == api.MERGE_PATCH:
                merged = apply.merged(to.found(write.target), _body(request))
                return _answer(to.update(write, "patch", merged))
            case "PATCH", True:
                raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            case "DELETE", True if not write.target.subresource:
                return _answer(to.delete(write, _body(request) if request.body else {}))
            case _:
                text = "the server does not allow this method on the requested resource"
                raise Refusal(405, "MethodNotAllowed", text)

    # Watches

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        since: str = "",
        bookmarks: bool = True,
    ) -> Subscription:
        """Events from now on, each with `type` and `object`. `since` "" or "0": what exists comes first, as ADDED.

        A version that is forgotten: an ERROR event with code 410, or a `Refusal` (see `gone_at_handshake`).
        """
        kind = self._kinds[resource]
        selected = selectors.parsed(kind, labels, fields)
        found = Subscription(resource, namespace, selected, kind.name, kind.api_version, bookmarks)
        version = lists.existing(self._store, since)
        if version == 0:
            for place, obj in self._store.now(resource).items():
                if namespace in (None, place[0]) and selected(obj):
                    found.tell("ADDED", obj)
            if since == "0":
                found.bookmark(self._store.head, initial=True)
        else:
            try:
                missed = self._store.since(version)
            except Refusal as refusal:
                if self.gone_at_handshake:
                    raise
                found.expire(refusal)
                return found
            for change in missed:
                found.see(change)
        self._store.watches.append(found)
        return found

    @property
    def watches(self) -> list[Subscription]:
        """The open watches: to drop, to silence, to let expire."""
        return [watch for watch in self._store.watches if not watch.closed]

    def bookmark(self) -> None:
        """Tell all watches that want to know how far they are."""
        for watch in self.watches:
            watch.bookmark(self._store.head)

    def expire_watches(self) -> None:
        """End all watches with 410, as a server does that has forgotten what they would have to be told."""
        for watch in self.watches:
            watch.expire(refusals.expired_watch(0, self._store.head))

    def compact(self) -> None:
        """Forget the past: continue tokens and versions from before are 410 from now on."""
        self._store.compact()

    # Trusted access: nodes, controllers, tests

    def read(self, resource: Resource, namespace: str | None, name: str) -> Json | None:
        """A copy, None if there is none."""
        return clone(self._store.get(resource, (namespace or "", name)))

    def all(self, resource: Resource, namespace: str | None = None) -> list[Json]:
        """Copies of all objects of a type, by namespace and name."""
        objects = self._store.now(resource)
        return [clone(obj) for place, obj in objects.items() if namespace in (None, place[0])]

    def everything(self) -> list[tuple[Resource, Json]]:
        """Copies of all objects of all types."""
        return [(resource, clone(obj)) for resource, _, obj in self._store.every()]

    def ensure_namespace(self, name: str) -> None:
        """Make the namespace if it is not there."""
        if self._store.get(api.NAMESPACES, ("", name)) is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            kind = self._kinds[api.NAMESPACES]
            self._store.write(
                api.NAMESPACES, ("", name), lifecycle.created(kind, body, "", self._writes.uid(), self.now())
            )

    def put(self, resource: Resource, body: Mapping[str, Any]) -> Json:
        """Create or replace an object as it is given, status included: no admission, but the schema holds. A namespace
        that is not there is made.
        """
        kind = self._kinds[resource]
        metadata = body["metadata"]
        namespace = metadata.get("namespace", "default") if kind.namespaced else ""
        place = (namespace, metadata["name"])
        if namespace:
            self.ensure_namespace(namespace)
        old = self._store.get(resource, place)
        if old is None:
            new = lifecycle.created(
                kind, clone(dict(body)), namespace, metadata.get("uid") or self._writes.uid(), self.now()
            )
            new["metadata"] |= {key: metadata[key] for key in ("creationTimestamp", "generation") if key in metadata}
        else:
            new = lifecycle.changed(kind, old, clone(dict(body)), "")
        if kind.status and "status" in body:
            new["status"] = clone(body["status"])
        return clone(self._writes.stored(kind, place, self._writes.valid(kind, new, old)))

    def change(self, resource: Resource, namespace: str | None, name: str, change: Callable[[Json], None]) -> Json:
        """Change any part of an object in place, on a copy. `Refusal` 404 if there is none."""
        kind, place = self._kinds[resource], (namespace or "", name)
        old = self._writes.found(Target(resource, namespace, name))
        new = clone(old)
        change(new)
        return clone(
            old if writes.equal(old, new) else self._writes.stored(kind, place, self._writes.valid(kind, new, old))
        )

    def write_status(
        self, resource: Resource, namespace: str | None, name: str, change: Callable[[Json], None]
    ) -> Json:
        """Let `change` work on a copy of the status. `Refusal` 404 if there is no object."""

        def within(obj: Json) -> None:
            change(obj.setdefault("status", {}))

        return self.change(resource, namespace, name, within)

    def delete(
        self, resource: Resource, namespace: str | None, name: str, options: Mapping[str, Any] | None = None
    ) -> Json:
        """What a DELETE does, without admission: with grace, finalizers and propagation."""
        old = self._writes.found(Target(resource, namespace, name))
        return clone(self._writes.removed(self._kinds[resource], (namespace or "", name), old, dict(options or {})))

    def remove(self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        """Remove at once, whatever holds it (a kubelet's last word about a pod). False: not there, or another uid."""
        place = (namespace or "", name)
        old = self._store.get(resource, place)
        if old is None or uid not in (None, old["metadata"]["uid"]):
            return False
        self._store.write(resource, place, None)
        self._writes.forget(old)
        return True

    def subscribe(self, callback: Callable[[str, str, Json], None]) -> None:
        """`callback(type, plural, object)` at every write, in order, within the write: ADDED, MODIFIED, DELETED."""

        def tell(change: Change) -> None:
            callback(change.type, change.resource.plural, clone(change.object))

        self._store.subscribers.append(tell)


def _body(request: Request) -> Json:
    try:
        body = json.loads(request.body or b"")
    except ValueError as error:
        raise refusals.bad_request(f"the object provided is unrecognized: json parse error: {error}") from None
    if not isinstance(body, dict):
        raise refusals.bad_request("the object provided is unrecognized: it is no JSON object")
    return body


def _answer(obj: Json, status: int = 200) -> Answer:
    body = json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode()
    return Answer(status, body, "Created" if status == 201 else "OK", {"Content-Type": "application/json"})
