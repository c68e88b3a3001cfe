"""What this API has, as the API server and kubectl ask for it. Pure."""

from typing import Any

from taskfold.api import results

ROOT = f"/apis/{results.GROUP}"

_VERSION = {"groupVersion": results.GROUP_VERSION, "version": results.VERSION}


def group() -> dict[str, Any]:
    """The APIGroup document."""
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": results.GROUP,
        "versions": [_VERSION],
        "preferredVersion": _VERSION,
    }


def resources() -> dict[str, Any]:
    """The APIResourceList document: subresources only, so that `kubectl get taskruns` keeps its one meaning."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": results.GROUP_VERSION,
        "resources": [
            {
                "name": f"{resource}/{subresource}",
                "singularName": "",
                "namespaced": True,
                "kind": kind,
                "verbs": ["get"],
            }
            for resource in results.RESOURCES
            for subresource, kind in results.KINDS.items()
        ],
    }


def openapi(version: str) -> dict[str, Any]:
    """There are no schemas; without a document the API server asks, and complains, again and again."""
    if version == "v3":
        return {"paths": {}}
    return {"swagger": "2.0", "info": {"title": results.GROUP, "version": results.VERSION}, "paths": {}}
