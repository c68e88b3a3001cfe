"""Objects on a real API server: creating, changing, and the message of a refusal."""

from __future__ import annotations

import json
from typing import Any

import kubernetes
import pytest

GROUP, VERSION = "taskfold.dev", "v1alpha1"
PLURAL = {"TaskRun": "taskruns", "VerifierRun": "verifierruns"}


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}


class Objects:
    """Creates and changes objects of one namespace, as dry runs unless told otherwise."""

    def __init__(self, api: kubernetes.client.CustomObjectsApi, namespace: str) -> None:
        self.api, self.namespace = api, namespace

    def create(self, kind: str, spec: dict[str, Any], *, name: str = "a", dry_run: bool = True) -> dict[str, Any]:
        body = manifest(kind, name, spec)
        options = {"dry_run": "All"} if dry_run else {}
        return self.api.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL[kind], body, field_validation="Strict", **options
        )

    def patch(self, kind: str, name: str, spec: dict[str, Any], *, dry_run: bool = True) -> dict[str, Any]:
        options = {"dry_run": "All"} if dry_run else {}
        return self.api.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL[kind], name, {"spec": spec}, **options
        )

    def refusal(self, call: str, *arguments: Any, **options: Any) -> str:
        """The message of a refusal with status 422; anything else fails the test."""
        with pytest.raises(kubernetes.client.ApiException) as caught:
            getattr(self, call)(*arguments, **options)
        assert caught.value.status == 422, caught.value.body
        return str(json.loads(caught.value.body)["message"])
