"""A row as manifests: its TaskRun, and the ConfigMap with its folder where an object cannot hold it. Pure.

Guarantee: the same row gives the same manifests. What a cluster has under other names (images) is replaced in files,
spec and expectation alike, so that a row still says what it said.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from taskfold.api import names
from taskfold.api.common import API_VERSION
from taskfold.conformance.case import Case

Json = dict[str, Any]

LABEL = "taskfold-conformance"
"""Whose value is the session: a session touches only what has its own."""
EXECUTABLE = "!"
USABLE = {names.USABLE: "true"}
"""For operators that read only Secrets and ConfigMaps that say so."""


@dataclass(frozen=True)
class Place:
    """What a cluster has otherwise. `images`: text → text, replaced wherever it stands. `profile`: the security
    profile of rows that name none; None: the operator's default.
    """

    images: tuple[tuple[str, str], ...] = ()
    profile: str | None = None


@dataclass(frozen=True)
class Order:
    """What is created for a row, in this order: objects, then the run."""

    objects: tuple[Json, ...]
    run: Json


def order(case: Case, name: str, session: str, place: Place = Place()) -> Order:
    """The manifests of a row, without a namespace."""
    case = placed(case, place)
    labels = {LABEL: session}
    objects = [_labelled(each, labels) for each in case.objects]
    if any(path.endswith(EXECUTABLE) for path in case.files):
        files = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-task", "labels": labels | USABLE},
            "binaryData": {"task.tar.gz": base64.b64encode(_archive(case.files)).decode()},
        }
        objects.append(files)
        source: Json = {"configMap": {"name": f"{name}-task"}}
    else:
        source = {"inline": _inline(case.files)}
    spec = dict(case.spec)
    task = {"id": case.id, **source, **spec.pop("task", {})}
    security = {"security": {"profile": place.profile}} if place.profile else {}
    run = {
        "apiVersion": API_VERSION,
        "kind": "TaskRun",
        "metadata": {"name": name, "labels": labels},
        "spec": {"task": task, "agent": dict(case.agent), **security, **spec},
    }
    return Order(tuple(objects), run)


def applied(manifest: Mapping[str, Any], session: str) -> Json:
    """One of the row's `applies`, as it is sent."""
    return _labelled(manifest, {LABEL: session})


def placed(case: Case, place: Place) -> Case:
    """The row with this place's names for images."""
    if not place.images:
        return case

    def named(value: Any) -> Any:
        if isinstance(value, str):
            for here, there in place.images:
                value = value.replace(here, there)
            return value
        if isinstance(value, bytes):
            return value
        if isinstance(value, Mapping):
            return {key: named(each) for key, each in value.items()}
        return type(value)(map(named, value)) if isinstance(value, tuple | list) else value

    expect = replace(case.expect, says=named(case.expect.says), status=named(case.expect.status))
    return replace(
        case,
        files=named(case.files),
        agent=named(case.agent),
        spec=named(case.spec),
        objects=named(case.objects),
        expect=expect,
    )


def _labelled(manifest: Mapping[str, Any], labels: Mapping[str, str]) -> Json:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "labels": {**USABLE, **metadata.get("labels", {}), **labels}}}


def _inline(files: Mapping[str, str | bytes]) -> Json:
    texts = {path: content or "" for path, content in files.items() if isinstance(content, str) or not content}
    binaries = {
        path: base64.b64encode(each).decode() for path, each in files.items() if isinstance(each, bytes) and each
    }
    return {"files": texts} | ({"binaryFiles": binaries} if binaries else {})


def _archive(files: Mapping[str, str | bytes]) -> bytes:
    """A folder with its modes: no times, no owners."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=0) as stream,
        tarfile.open(mode="w", fileobj=stream) as tar,
    ):
        for path, content in sorted(files.items()):
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(path.removesuffix(EXECUTABLE))
            member.size, member.mode = len(data), 0o755 if path.endswith(EXECUTABLE) else 0o644
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def key(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name: one object of a namespace."""
    return manifest["kind"], manifest["metadata"]["name"]


def text(manifest: Mapping[str, Any]) -> str:
    """The manifest in one spelling."""
    return json.dumps(manifest, sort_keys=True)
