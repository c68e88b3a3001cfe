"""The controllers that end things: the garbage collector and the end of namespaces, one round at a time.

Guarantees: nothing happens but when a test (or a world's clock) asks for a round; a round never removes an object that
an existing owner holds; pods end with their grace.
"""

from typing import Any

from taskfold.effects import client as api
from taskfold.effects.client import Resource
from tests.world import apiserver, lifecycle, refusals

Json = dict[str, Any]
ROUNDS = 100


class Controllers:
    """`round()` as often as wanted; each is one look at everything."""

    def __init__(self, server: "apiserver.ApiServer") -> None:
        self._server = server

    def settle(self) -> None:
        """Rounds until one has nothing to do. Grace that a kubelet has to end stays as it is."""
        for _ in range(ROUNDS):
            if not self.round():
                return
        raise RuntimeError(f"something comes back after {ROUNDS} rounds")

    def round(self) -> int:
        """How many objects were touched."""
        objects = self._server.everything()
        uids = {obj["metadata"]["uid"] for _, obj in objects}
        touched = sum(self._collected(resource, obj, uids) for resource, obj in objects)
        touched += sum(self._finalized(resource, obj, objects) for resource, obj in objects)
        return touched + sum(self._ended(obj) for obj in self._server.all(api.NAMESPACES))

    def _collected(self, resource: Resource, obj: Json, uids: set[str]) -> bool:
        """A dependant whose owners are all gone goes; one that has others left loses the dangling references."""
        owners = obj["metadata"].get("ownerReferences") or []
        there = [owner for owner in owners if owner["uid"] in uids]
        if len(there) == len(owners):
            return False
        if not there:
            return self._go(resource, obj)
        return self._own(resource, obj, there)

    def _finalized(self, resource: Resource, obj: Json, objects: list[tuple[Resource, Json]]) -> bool:
        """The finalizers `orphan` and `foregroundDeletion` of an object under deletion."""
        metadata = obj["metadata"]
        if "deletionTimestamp" not in metadata:
            return False
        mine = [(kind, each) for kind, each in objects if _owned_by(each, metadata["uid"])]
        finalizers = metadata.get("finalizers") or ()
        if lifecycle.ORPHAN in finalizers:
            for kind, each in mine:
                self._own(kind, each, [o for o in each["metadata"]["ownerReferences"] if o["uid"] != metadata["uid"]])
            return self._let_go(resource, obj, lifecycle.ORPHAN)
        if lifecycle.FOREGROUND in finalizers:
            went = sum(self._go(kind, each) for kind, each in mine)
            blocking = [each for _, each in mine if _owned_by(each, metadata["uid"], blocking=True)]
            return bool(went) if blocking else self._let_go(resource, obj, lifecycle.FOREGROUND)
        return False

    def _ended(self, namespace: Json) -> bool:
        """A namespace under deletion: its content goes, then itself."""
        if "deletionTimestamp" not in namespace["metadata"]:
            return False
        name = namespace["metadata"]["name"]
        inside = [(kind, obj) for kind, obj in self._server.everything() if obj["metadata"].get("namespace") == name]
        if inside:
            return bool(sum(self._go(kind, obj) for kind, obj in inside))
        return self._server.remove(api.NAMESPACES, None, name)

    def _go(self, resource: Resource, obj: Json) -> bool:
        """Ask for the deletion, once."""
        metadata = obj["metadata"]
        if "deletionTimestamp" in metadata or self._server.read(resource, _namespace(obj), metadata["name"]) is None:
            return False
        self._server.delete(resource, _namespace(obj), metadata["name"], {"propagationPolicy": "Background"})
        return True

    def _own(self, resource: Resource, obj: Json, owners: list[Json]) -> bool:
        def change(found: Json) -> None:
            found["metadata"]["ownerReferences"] = owners

        return self._change(resource, obj, change)

    def _let_go(self, resource: Resource, obj: Json, finalizer: str) -> bool:
        def change(found: Json) -> None:
            left = [each for each in found["metadata"].get("finalizers") or () if each != finalizer]
            found["metadata"]["finalizers"] = left

        return self._change(resource, obj, change)

    def _change(self, resource: Resource, obj: Json, change: Any) -> bool:
        try:
            self._server.change(resource, _namespace(obj), obj["metadata"]["name"], change)
        except refusals.Refusal:
            return False  # gone meanwhile, within this round
        return True


def _namespace(obj: Json) -> str | None:
    found: str | None = obj["metadata"].get("namespace")
    return found


def _owned_by(obj: Json, uid: str, *, blocking: bool = False) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and (owner.get("blockOwnerDeletion") or not blocking) for owner in owners)
