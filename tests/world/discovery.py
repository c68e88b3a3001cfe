"""What an API server tells of its resource types: enough for kopf and for readers that ask first."""

from collections.abc import Iterable
from typing import Any

from tests.world.kinds import Kind

Json = dict[str, Any]
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_STATUS_VERBS = ["get", "patch", "update"]


def answer(path: str, kinds: Iterable[Kind]) -> Json | None:
    """The answer to a path of discovery; None: the path is none, or names nothing."""
    known = list(kinds)
    match path.strip("/").split("/"):
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = {kind.resource.group: kind.resource.version for kind in known if kind.resource.group}
            listed = [{**_group(name, version), "name": name} for name, version in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["apis", name]:
            versions = [kind.resource.version for kind in known if kind.resource.group == name]
            head = {"kind": "APIGroup", "apiVersion": "v1", "name": name}
            return {**head, **_group(name, versions[0])} if versions else None
        case ["api", version]:
            return _resources(version, [kind for kind in known if kind.api_version == version])
        case ["apis", group, version]:
            return _resources(
                f"{group}/{version}", [kind for kind in known if kind.api_version == f"{group}/{version}"]
            )
        case _:
            return None


def _group(name: str, version: str) -> Json:
    one = {"groupVersion": f"{name}/{version}", "version": version}
    return {"versions": [one], "preferredVersion": one}


def _resources(group_version: str, kinds: list[Kind]) -> Json | None:
    if not kinds:
        return None
    found: list[Json] = []
    for kind in kinds:
        same = {"namespaced": kind.namespaced, "kind": kind.name}
        found.append({"name": kind.resource.plural, "singularName": kind.name.lower(), **same, "verbs": _VERBS})
        if kind.status:
            found.append({"name": f"{kind.resource.plural}/status", "singularName": "", **same, "verbs": _STATUS_VERBS})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": found}
