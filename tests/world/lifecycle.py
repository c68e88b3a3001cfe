"""What the API server makes of an object that is created, changed or deleted, beside storing it.

Guarantees: uid, creation time, generation and deletion time are the server's; a status changes only through its
subresource and everything else only without it; an object under deletion stays until its grace and its finalizers are
over.
"""

import base64
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from taskfold.effects import client as api
from tests.world import ephemeral, pod_objects
from tests.world.kinds import Kind
from tests.world.refusals import Cause
from tests.world.storage import clone

Json = dict[str, Any]
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAMESPACE = re.compile(_LABEL)
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_FIXED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_OMITTED = ("managedFields", "finalizers", "labels", "annotations", "ownerReferences")
DATA_BYTES = 1 << 20
"""What a ConfigMap or a Secret may hold."""
STORED_BYTES = 1_572_864
"""etcd's `--max-request-bytes`."""
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
POLICIES = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


@dataclass(frozen=True)
class Deletion:
    """What a DELETE comes to. `obj` None: removed at once."""

    obj: Json | None
    last: Json
    """What the answer shows where an answer shows the object."""


def stamp(moment: datetime) -> str:
    """A time as metadata has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text)


def created(kind: Kind, body: Json, namespace: str, uid: str, now: datetime) -> Json:
    """The object that a POST makes, before schemas and admission."""
    given = body.get("metadata") or {}
    # A kind whose specs are not counted keeps a generation that somebody wrote.
    own = {*_FIXED, "resourceVersion", "managedFields"} - (set() if kind.counted else {"generation"})
    metadata = {key: value for key, value in given.items() if key not in own}
    if namespace:
        metadata["namespace"] = namespace
    metadata |= {"uid": uid, "creationTimestamp": stamp(now)}
    if kind.counted:
        metadata["generation"] = 1
    obj = {"apiVersion": kind.api_version, "kind": kind.name, **clone(body), "metadata": clone(metadata)}
    if kind.status:
        obj.pop("status", None)
    match kind.resource:
        case api.PODS:
            return pod_objects.completed(obj, stamp(now))
        case api.NAMESPACES:
            obj["metadata"]["labels"] = {
                "kubernetes.io/metadata.name": metadata["name"],
                **(metadata.get("labels") or {}),
            }
            return {**obj, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        case api.SECRETS:
            return _secret(obj)
        case api.SERVICES:
            number = zlib.crc32(uid.encode())
            return {
                **obj,
                "spec": {"clusterIP": f"10.96.{number % 256}.{number // 256 % 256}", **(obj.get("spec") or {})},
            }
        case _:
            return obj


def changed(kind: Kind, old: Json, new: Json, sub: str) -> Json:
    """What is stored of an update: the half that the path is about, on top of the other half as it was."""
    was, will = old["metadata"], dict(new.get("metadata") or {})
    if sub == "status":
        # A custom resource's status may not touch metadata at all; a built-in kind's may not touch what owns it.
        kept = was if kind.schema is not None else {**will, "ownerReferences": was.get("ownerReferences")}
        obj = {**old, "status": new.get("status"), "metadata": {**kept, "managedFields": will.get("managedFields")}}
    elif sub == ephemeral.SUBRESOURCE:
        owners = {"uid": will.get("uid"), "managedFields": will.get("managedFields")}
        obj = {**old, "spec": pod_objects.with_ephemeral(old["spec"], new), "metadata": {**was, **owners}}
    else:
        obj = {**new, "status": old.get("status")} if kind.status else dict(new)
        obj["metadata"] = will
    metadata = {**obj["metadata"], **{key: was.get(key) for key in _FIXED if key != "uid"}}
    metadata["uid"] = metadata.get("uid") or was["uid"]
    obj["metadata"] = metadata
    if kind.counted and sub != "status" and _without(obj) != _without(old):
        metadata["generation"] = was.get("generation", 0) + 1
    obj["metadata"] = {key: value for key, value in metadata.items() if value is not None}
    return _secret({key: value for key, value in obj.items() if value is not None})


def tidy(kind: Kind, obj: Json) -> Json:
    """Without what is empty and not stored then."""
    metadata = {key: value for key, value in obj["metadata"].items() if value or key not in _OMITTED}
    optional = ("data", "binaryData") if kind.resource in (api.CONFIGMAPS, api.SECRETS) else ()
    return {key: value for key, value in obj.items() if value or key not in optional} | {"metadata": metadata}


def _without(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def deleted(kind: Kind, obj: Json, options: Json, now: datetime) -> Deletion:
    """Under deletion, or gone."""
    metadata = clone(obj["metadata"])
    grace = pod_objects.grace(obj, options) if kind.resource == api.PODS else 0
    finalizers = list(metadata.get("finalizers") or ())
    policy = POLICIES.get(options.get("propagationPolicy") or "")
    if policy and policy not in finalizers:
        finalizers.append(policy)
    ending = metadata.get("deletionTimestamp")
    # A later request may only shorten what is left.
    before = metadata.get("deletionGracePeriodSeconds", 0)
    if ending is None or grace < before:
        begun = parse(ending) - timedelta(seconds=before) if ending else now
        metadata["deletionTimestamp"] = stamp(
            max(begun + timedelta(seconds=grace), now) if ending else now + timedelta(seconds=grace)
        )
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    else:
        grace = before
    if finalizers:
        metadata["finalizers"] = finalizers
    last = {**obj, "metadata": metadata}
    if kind.resource == api.NAMESPACES:
        del metadata["deletionGracePeriodSeconds"]
        return Deletion({**last, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}, last)
    stays = bool(finalizers) or (kind.resource == api.PODS and grace > 0)
    return Deletion(last if stays else None, last)


def over(kind: Kind, obj: Json) -> bool:
    """Whether an object under deletion has nothing left that holds it."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers") or kind.resource == api.NAMESPACES:
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def causes(kind: Kind, new: Json, old: Json | None, sub: str = "") -> list[Cause]:
    """What is wrong with an object, apart from its schema. `sub`: the subresource that it is changed by."""
    metadata = new["metadata"]
    found = list(_named(kind, metadata)) if old is None else list(_kept(kind, old, new))
    for value in (metadata.get("labels") or {}).values():
        if len(value) > 63 or not _VALUE.fullmatch(value):
            text = f'Invalid value: "{value}": a valid label must be an empty string or consist of alphanumeric '
            text += "characters, '-', '_' or '.', and must start and end with an alphanumeric character"
            found.append(Cause("metadata.labels", "FieldValueInvalid", text))
    if kind.resource in (api.CONFIGMAPS, api.SECRETS):
        found += _data(new)
    if kind.resource == api.PODS:
        found += pod_objects.causes(new, old, sub)
    if kind.resource == api.EVENTS and old is None:
        named = (new.get("involvedObject") or {}).get("namespace", "default")
        if named != metadata["namespace"]:
            text = f'Invalid value: "{named}": does not match event.namespace'
            found.append(Cause("involvedObject.namespace", "FieldValueInvalid", text))
    for owner in metadata.get("ownerReferences") or ():
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                text = "must not be empty" if key != "apiVersion" else "version must not be empty"
                found.append(
                    Cause(f"metadata.ownerReferences.{key}", "FieldValueInvalid", f'Invalid value: "": {text}')
                )
    return found


def _named(kind: Kind, metadata: Json) -> list[Cause]:
    name = metadata.get("name") or ""
    if not name:
        return [Cause("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    pattern, most = (_NAMESPACE, 63) if kind.resource == api.NAMESPACES else (_NAME, 253)
    if len(name) > most or not pattern.fullmatch(name):
        text = f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
        text += "characters, '-' or '.', and must start and end with an alphanumeric character"
        return [Cause("metadata.name", "FieldValueInvalid", text)]
    return []


def _kept(kind: Kind, old: Json, new: Json) -> list[Cause]:
    """What may not change, of any object."""
    was, will = old["metadata"], new["metadata"]
    found = []
    if will["uid"] != was["uid"]:
        text = f'Invalid value: "{will["uid"]}": field is immutable'
        found.append(Cause("metadata.uid", "FieldValueInvalid", text))
    added = set(will.get("finalizers") or ()) - set(was.get("finalizers") or ())
    if added and "deletionTimestamp" in was:
        words = ", ".join(f'"{each}"' for each in sorted(added))
        text = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        found.append(Cause("metadata.finalizers", "FieldValueForbidden", f"{text}[]string{{{words}}}"))
    if kind.resource in (api.CONFIGMAPS, api.SECRETS) and old.get("immutable"):
        for key in ("data", "binaryData"):
            if new.get(key) != old.get(key):
                text = "Forbidden: field is immutable when `immutable` is set"
                found.append(Cause(key, "FieldValueForbidden", text))
    return found


def _data(obj: Json) -> list[Cause]:
    """Keys and size of a ConfigMap or a Secret."""
    found, size = [], 0
    for part in ("data", "binaryData"):
        for key, value in (obj.get(part) or {}).items():
            size += len(str(value).encode())
            if not _KEY.fullmatch(key):
                text = f'Invalid value: "{key}": a valid config key must consist of alphanumeric characters, '
                found.append(Cause(f"{part}[{key}]", "FieldValueInvalid", text + "'-', '_' or '.'"))
    if size > DATA_BYTES:
        where = "[]" if obj["kind"] == "ConfigMap" else "data"
        found.append(Cause(where, "FieldValueTooLong", f"Too long: may not be more than {DATA_BYTES} bytes"))
    return found


def _secret(obj: Json) -> Json:
    """`stringData` becomes data, as the server stores it."""
    if obj.get("kind") != "Secret":
        return obj
    plain = obj.pop("stringData", None) or {}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
    if encoded:
        obj["data"] = {**(obj.get("data") or {}), **encoded}
    return {**obj, "type": obj.get("type", "Opaque")}
