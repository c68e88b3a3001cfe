"""Writes by request: creation, updates, patches, server-side apply, deletion.

Guarantees: each either happens whole or is a `Refusal`; a write that changes nothing is none; the checks come in the
real server's order (existence, version, schema, admission).
"""

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taskfold.effects import client as api
from taskfold.effects.client import Resource
from tests.world import apply, kinds, lifecycle, pod_objects, refusals, storage
from tests.world.kinds import Kind
from tests.world.paths import Target
from tests.world.refusals import Cause, Refusal
from tests.world.storage import Place, Storage

Json = dict[str, Any]
MANAGER = "taskfold"
"""Who writes, where the request does not say."""


@dataclass(frozen=True)
class Review:
    """What an admission hook sees; it raises a `Refusal`. `old` None: a creation. `new` None: a deletion."""

    verb: str
    target: Target
    old: Json | None
    new: Json | None


@dataclass(frozen=True)
class Write:
    """A request that changes one object."""

    kind: Kind
    target: Target
    place: Place
    manager: str


class Writes:
    """`admission`: hooks on every write."""

    def __init__(self, store: Storage, now: Callable[[], datetime], seed: int) -> None:
        self.admission: list[Callable[[Review], None]] = []
        self._store = store
        self._now = now
        self._random = random.Random(seed)
        self._creators: dict[str, str] = {}

    def found(self, target: Target) -> Json:
        """The object as it is stored; `Refusal` 404."""
        obj = self._store.get(target.resource, (target.namespace or "", target.name))
        if obj is None:
            raise refusals.not_found(target.resource, target.name)
        return obj

    def create(self, write: Write, body: Json, *, owned: bool = False) -> Json:
        """POST. `owned`: the body comes from an apply, with its owners."""
        kind, target = write.kind, write.target
        metadata = body.get("metadata") or {}
        name = str(metadata.get("name") or "")
        if metadata.get("namespace") not in (None, "", target.namespace):
            raise refusals.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if kind.namespaced:
            self._open_namespace(kind.resource, target.namespace or "", name)
        if metadata.get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        if body.get("kind") not in (None, kind.name):
            cause = Cause("kind", "FieldValueInvalid", f'Invalid value: "{body["kind"]}": must be {kind.name}')
            raise refusals.invalid(kind.resource, str(body["kind"]), name, [cause])
        obj = lifecycle.created(kind, body, target.namespace or "", self.uid(), self._now())
        if owned:
            obj["metadata"]["managedFields"] = storage.clone(metadata["managedFields"])
        place = (target.namespace or "", name)
        obj = self.valid(kind, obj, None)
        self._admit(Review("create", Target(kind.resource, target.namespace, name), None, obj))
        standing = self._store.get(kind.resource, place)
        if standing is not None:
            deleting = "deletionTimestamp" in standing["metadata"]
            raise refusals.already_exists(kind.resource, name, deleting=deleting)
        self._creators[obj["metadata"]["uid"]] = write.manager
        return self._store.write(kind.resource, place, obj)

    def _open_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Nothing is created in a namespace that is not there, or that ends."""
        found = self._store.get(api.NAMESPACES, ("", namespace))
        if found is None:
            raise refusals.not_found(api.NAMESPACES, namespace)
        if "deletionTimestamp" in found["metadata"]:
            raise refusals.terminating(resource, namespace, name)

    def update(self, write: Write, verb: str, body: Json) -> Json:
        """PUT, and what a patch comes to: `body` is the whole object as it shall be."""
        kind, target = write.kind, write.target
        old = self.found(target)
        asked = (body.get("metadata") or {}).get("resourceVersion")
        if not asked and verb == "update" and kind.schema is not None:
            text = "Invalid value: 0: must be specified for an update"
            cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
            raise refusals.invalid(kind.resource, kind.resource.plural, target.name, [cause])
        if asked not in (None, "", old["metadata"]["resourceVersion"]):
            raise refusals.modified(kind.resource, target.name)
        new = self.valid(kind, lifecycle.changed(kind, old, body, target.subresource), old, target.subresource)
        if equal(old, new):
            return old
        if verb != "apply":
            new = apply.updated(old, new, write.manager, target.subresource, kind.structure, self._now())
        self._admit(Review(verb, target, old, new))
        return self.stored(kind, write.place, new)

    def stored(self, kind: Kind, place: Place, new: Json) -> Json:
        """Write, or remove what was only held by its finalizers."""
        if lifecycle.over(kind, new):
            # The end is told of the object as it was; the answer shows what was asked for, with the old version.
            self._store.write(kind.resource, place, None)
            self.forget(new)
            return new
        return self._store.write(kind.resource, place, new)

    def apply(self, write: Write, wanted: Json, *, force: bool) -> tuple[Json, bool]:
        """Server-side apply. The object, and whether it is new."""
        kind, target = write.kind, write.target
        old = self._store.get(kind.resource, write.place)
        if old is None and target.subresource:
            raise refusals.not_found(kind.resource, target.name)
        metadata = {**(wanted.get("metadata") or {}), "name": target.name}
        if target.namespace:
            metadata["namespace"] = target.namespace
        wanted = {"apiVersion": kind.api_version, "kind": kind.name, **wanted, "metadata": metadata}
        asked = metadata.get("resourceVersion")
        if old is not None and asked not in (None, "", old["metadata"]["resourceVersion"]):
            raise refusals.modified(kind.resource, target.name)
        creator = self._creators.get(old["metadata"]["uid"], MANAGER) if old else ""
        full = apply.applied(
            old,
            wanted,
            write.manager,
            force=force,
            sub=target.subresource,
            schema=kind.structure,
            creator=creator,
            now=self._now(),
        )
        if old is None:
            return self.create(write, full, owned=True), True
        return self.update(write, "apply", full), False

    def delete(self, write: Write, options: Json) -> Json:
        """DELETE with DeleteOptions."""
        kind, target = write.kind, write.target
        policy = options.get("propagationPolicy")
        if policy not in (None, "Background", *lifecycle.POLICIES):
            text = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
            cause = Cause("propagationPolicy", "FieldValueNotSupported", text)
            raise refusals.invalid(Resource("meta.k8s.io", "v1", ""), "DeleteOptions", "", [cause])
        old = self.found(target)
        wanted = options.get("preconditions") or {}
        for key, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            found = old["metadata"][key]
            if wanted.get(key) not in (None, found):
                raise refusals.precondition(kind.resource, target.name, word, wanted[key], found)
        self._admit(Review("delete", target, old, None))
        return self.removed(kind, write.place, old, options)

    def removed(self, kind: Kind, place: Place, old: Json, options: Json) -> Json:
        """Mark or remove; what the answer is."""
        deletion = lifecycle.deleted(kind, old, options, self._now())
        if deletion.obj is not None:
            return old if equal(old, deletion.obj) else self._store.write(kind.resource, place, deletion.obj)
        gone = self._store.write(kind.resource, place, None)
        self.forget(old)
        if kind.resource == api.PODS:
            return storage.versioned(deletion.last, int(gone["metadata"]["resourceVersion"]))
        details = refusals.about(kind.resource, place[1], uid=old["metadata"]["uid"])
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def forget(self, obj: Json) -> None:
        """The object is gone."""
        self._creators.pop(obj["metadata"]["uid"], None)

    def valid(self, kind: Kind, new: Json, old: Json | None, sub: str = "") -> Json:
        """Pruned, with defaults, and found to be valid; `Refusal` 422 otherwise."""
        new = kind.schema.completed(new, old) if kind.schema is not None else new
        new = lifecycle.tidy(kind, new)
        causes = lifecycle.causes(kind, new, old, sub)
        causes += kind.schema.causes(new, old) if kind.schema is not None else []
        if causes:
            raise refusals.invalid(kind.resource, kind.name, str(new["metadata"].get("name") or ""), causes)
        if kind.schema is not None and len(json.dumps(new, separators=(",", ":"))) > lifecycle.STORED_BYTES:
            raise Refusal(500, "", "etcdserver: request is too large")
        return new

    def _admit(self, review: Review) -> None:
        for hook in self.admission:
            hook(review)
        if review.verb == "create" and review.target.resource == api.PODS:
            quotas = self._inside(kinds.RESOURCEQUOTAS, review.target.namespace)
            if quotas:
                counted = list(filter(pod_objects.counted_by_quota, self._inside(api.PODS, review.target.namespace)))
                pod_objects.kept_quota(api.PODS, quotas, len(counted), review.target.name)

    def _inside(self, resource: Resource, namespace: str | None) -> list[Json]:
        return [obj for place, obj in self._store.now(resource).items() if place[0] == namespace]

    def uid(self) -> str:
        """A new one, from the seed."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def equal(old: Json, new: Json) -> bool:
    """Whether a write would change nothing."""
    same = {key: value for key, value in new["metadata"].items() if key != "resourceVersion"}
    return {**new, "metadata": {**same, "resourceVersion": old["metadata"]["resourceVersion"]}} == old
