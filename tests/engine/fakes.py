"""An API server in memory: objects with versions, and errors on demand."""

import copy
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tests.world.apply import merged

from taskfold.effects import client as api
from taskfold.effects import errors


class Client:
    """What the engine uses of `effects.client.Client`. `calls`: what was asked, in order."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], api.Json] = {}
        self.calls: list[str] = []
        self.failures: dict[str, Exception] = {}
        """By `verb plural` or `verb plural/name`: raised instead of an answer."""
        self._versions = itertools.count(100)

    def put(self, resource: api.Resource, obj: Mapping[str, Any]) -> api.Json:
        """Somebody wrote this object."""
        found = copy.deepcopy(dict(obj))
        metadata = found["metadata"]
        metadata.setdefault("namespace", "team")
        metadata.setdefault("uid", f"uid-{resource.plural}-{metadata['name']}")
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[resource.plural, metadata["namespace"], metadata["name"]] = found
        return copy.deepcopy(found)

    def find(self, resource: api.Resource, name: str, namespace: str = "team") -> api.Json:
        return self.objects[resource.plural, namespace, name]

    async def get(self, resource: api.Resource, namespace: str | None, name: str) -> api.Json:
        self._called("get", resource, name)
        return copy.deepcopy(self._existing(resource, namespace, name))

    async def create(self, resource: api.Resource, namespace: str | None, body: Mapping[str, Any]) -> api.Json:
        name = body["metadata"]["name"]
        self._called("create", resource, name)
        if (resource.plural, namespace or "", name) in self.objects:
            raise errors.AlreadyExists("exists", status=409)
        return self.put(resource, body)

    async def patch(
        self,
        resource: api.Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        uid: str | None = None,
        content_type: str = api.MERGE_PATCH,
    ) -> api.Json:
        self._called("patch", resource, name)
        return self.put(resource, merged(self._existing(resource, namespace, name), body))

    async def patch_status(
        self,
        resource: api.Resource,
        namespace: str | None,
        name: str,
        status: Mapping[str, Any],
        *,
        resource_version: str,
        uid: str | None = None,
    ) -> api.Json:
        self._called("status", resource, name)
        found = self._existing(resource, namespace, name)
        if resource_version != found["metadata"]["resourceVersion"] or uid not in (None, found["metadata"]["uid"]):
            raise errors.Conflict("somebody was faster", status=409)
        return self.put(resource, {**found, "status": merged(found.get("status") or {}, status)})

    async def delete(
        self,
        resource: api.Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> api.Json:
        self._called("delete", resource, name)
        found = self._existing(resource, namespace, name)
        if uid not in (None, found["metadata"]["uid"]):
            raise errors.Conflict("another uid", status=409)
        return self.objects.pop((resource.plural, namespace or "", name))

    async def list(
        self,
        resource: api.Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        project: Callable[[api.Json], Any] | None = None,
    ) -> api.Listing[Any]:
        self._called("names" if metadata_only else "list", resource, f"{namespace or '*'} {labels}{fields}")
        complete = {"status.complete=true": [True], "status.complete!=true": [False]}.get(fields, [True, False])
        items = [
            copy.deepcopy(obj)
            for (plural, where, _), obj in self.objects.items()
            if plural == resource.plural
            and namespace in (None, where)
            and bool((obj.get("status") or {}).get("complete")) in complete
        ]
        if metadata_only:
            items = [{"metadata": item["metadata"]} for item in items]
        return api.Listing(tuple(map(project, items) if project else items), str(next(self._versions)))

    def _called(self, verb: str, resource: api.Resource, name: str) -> None:
        self.calls.append(f"{verb} {resource.plural}/{name}")
        for key in (f"{verb} {resource.plural}/{name}", f"{verb} {resource.plural}"):
            if key in self.failures:
                raise self.failures[key]

    def _existing(self, resource: api.Resource, namespace: str | None, name: str) -> api.Json:
        found = self.objects.get((resource.plural, namespace or "", name))
        if found is None:
            raise errors.NotFound(f'{resource.plural} "{name}" not found', status=404)
        return found
