"""How a patch changes an object: merge patches (RFC 7386), and as much of server-side apply as is needed.

Of server-side apply: create or update, conflicts between managers, fields that a manager no longer applies. Lists are
owned whole, except those whose schema names keys. Owners are recorded only for objects that were applied at least once:
before that, all fields count as those of the object's creator.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from tests.world import refusals
from tests.world.storage import clone

Json = dict[str, Any]
Path = tuple[str, ...]
"""Steps to a field, each as in `fieldsV1`: `f:name`, `k:{...}`."""
_OWN = {"f:apiVersion", "f:kind"}
_OWN_METADATA = {"f:name", "f:namespace", "f:uid", "f:resourceVersion", "f:creationTimestamp", "f:generation"}
_OWN_METADATA |= {"f:managedFields", "f:deletionTimestamp", "f:deletionGracePeriodSeconds"}


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386, word for word."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def applied(
    old: Json | None,
    wanted: Json,
    manager: str,
    *,
    force: bool,
    sub: str,
    schema: Json | None,
    creator: str,
    now: datetime,
) -> Json:
    """The object after `manager` applied `wanted`. `Refusal` 409 if others own what it would change."""
    wanted = clone(wanted)
    mine = set(_leaves(wanted, schema))
    if old is None:
        return _with_owners(wanted, [_entry(manager, "Apply", sub, mine, wanted["apiVersion"], now)])
    entries = old["metadata"].get("managedFields")
    if entries is None:
        rest = {path for path in _leaves(old, schema) if path[0] != "f:status"}
        entries = [_entry(creator, "Update", "", rest, wanted["apiVersion"], now)]
    mine_before = next((_paths(each["fieldsV1"]) for each in entries if _is(each, manager, "Apply", sub)), set())
    result = clone(old)
    changing = {path for path in mine if _at(old, path) != _at(wanted, path)}
    entries = [each for each in entries if not _is(each, manager, "Apply", sub)]
    entries = _taken(entries, changing, force=force)
    others = set().union(*(_paths(each["fieldsV1"]) for each in entries)) if entries else set()
    for path in sorted(mine_before - mine - others, key=len, reverse=True):
        if not any(each[: len(path)] == path for each in mine):
            _remove(result, path)
    for path in sorted(mine):
        _set(result, path, _at(wanted, path))
    return _with_owners(result, [*entries, _entry(manager, "Apply", sub, mine, wanted["apiVersion"], now)])


def updated(old: Json, new: Json, manager: str, sub: str, schema: Json | None, now: datetime) -> Json:
    """`new` with its owners, after a write of `manager` that was no apply."""
    entries = old["metadata"].get("managedFields")
    if entries is None:
        return new
    before, after = set(_leaves(old, schema)), set(_leaves(new, schema))
    changed = {path for path in after if path not in before or _at(old, path) != _at(new, path)}
    entries = _taken([dict(each) for each in entries], changed | (before - after), force=True)
    own = next((each for each in entries if _is(each, manager, "Update", sub)), None)
    mine = (_paths(own["fieldsV1"]) if own else set()) | changed
    entries = [each for each in entries if each is not own]
    if mine:
        entries.append(_entry(manager, "Update", sub, mine, new["apiVersion"], now))
    return _with_owners(new, entries)


def _taken(entries: list[Json], paths: set[Path], *, force: bool) -> list[Json]:
    """The entries without these fields; `Refusal` if somebody owns one and it is not forced."""
    conflicts = [(each["manager"], path) for each in entries for path in sorted(paths & _paths(each["fieldsV1"]))]
    if conflicts and not force:
        causes = [
            refusals.Cause(_dotted(path), "FieldManagerConflict", f'conflict with "{owner}"')
            for owner, path in conflicts
        ]
        listed = "; ".join(f"{cause.message}: {cause.field}" for cause in causes)
        text = f"Apply failed with {len(causes)} conflict{'s' if len(causes) > 1 else ''}: {listed}"
        raise refusals.Refusal(409, "Conflict", text, {"causes": [cause.wire() for cause in causes]})
    left = []
    for each in entries:
        rest = _paths(each["fieldsV1"]) - paths
        if rest:
            left.append({**each, "fieldsV1": _fields(rest)})
    return left


def _entry(manager: str, operation: str, sub: str, paths: set[Path], api_version: str, now: datetime) -> Json:
    entry: Json = {"manager": manager, "operation": operation, "apiVersion": api_version}
    entry |= {"time": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "fieldsType": "FieldsV1", "fieldsV1": _fields(paths)}
    return entry | ({"subresource": sub} if sub else {})


def _is(entry: Json, manager: str, operation: str, sub: str) -> bool:
    return (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, operation, sub)


def _with_owners(obj: Json, entries: list[Json]) -> Json:
    """An entry that says the same as before keeps its time: nothing changed."""
    before = {
        (e["manager"], e["operation"], e.get("subresource")): e for e in obj["metadata"].get("managedFields") or ()
    }
    kept = []
    for each in entries:
        known = before.get((each["manager"], each["operation"], each.get("subresource")))
        kept.append(known if known is not None and known["fieldsV1"] == each["fieldsV1"] else each)
    kept.sort(key=lambda each: (each["operation"], each["manager"], each.get("subresource", "")))
    return {**obj, "metadata": {**obj["metadata"], "managedFields": kept}}


def _leaves(obj: Json, schema: Json | None) -> Iterator[Path]:
    for path in _walk(obj, schema or {}, ()):
        if path[0] in _OWN or (path[0] == "f:metadata" and (len(path) < 2 or path[1] in _OWN_METADATA)):
            continue
        yield path


def _walk(value: Any, schema: Json, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping) and schema.get("x-kubernetes-map-type") != "atomic":
        if not value and path:
            yield path
        for key, each in value.items():
            inner = (schema.get("properties") or {}).get(key) or schema.get("additionalProperties") or {}
            yield from _walk(each, inner if isinstance(inner, dict) else {}, (*path, f"f:{key}"))
    elif isinstance(value, list) and (keys := schema.get("x-kubernetes-list-map-keys")):
        for each in value:
            step = "k:" + json.dumps({key: each.get(key) for key in keys}, separators=(",", ":"), sort_keys=True)
            yield from _walk(each, schema.get("items") or {}, (*path, step))
    else:
        yield path


def _fields(paths: set[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree


def _paths(tree: Json, path: Path = ()) -> set[Path]:
    if not tree:
        return {path} if path else set()
    return set().union(*(_paths(inner, (*path, step)) for step, inner in tree.items()))


def _dotted(path: Path) -> str:
    return "".join(f".{step[2:]}" if step[0] == "f" else f"[{step[2:]}]" for step in path)


def _child(value: Any, step: str) -> Any:
    if step[0] == "f":
        return value.get(step[2:]) if isinstance(value, Mapping) else None
    keys = json.loads(step[2:])
    items = value if isinstance(value, list) else []
    return next((each for each in items if all(each.get(key) == keys[key] for key in keys)), None)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = _child(value, step)
    return value


def _set(obj: Any, path: Path, value: Any) -> None:
    for step, following in itertools.pairwise(path):
        inner = _child(obj, step)
        if not isinstance(inner, Mapping | list):
            inner = {} if following[0] == "f" else []
            _put(obj, step, inner)
        obj = _child(obj, step)
    # An empty map that is applied leaves what others have put into it.
    if value != {} or not isinstance(_child(obj, path[-1]), Mapping):
        _put(obj, path[-1], clone(value))


def _put(obj: Any, step: str, value: Any) -> None:
    if step[0] == "f":
        obj[step[2:]] = value
        return
    found = _child(obj, step)
    item = {**json.loads(step[2:]), **value}
    if found is None:
        obj.append(item)
    else:
        obj[obj.index(found)] = item


def _remove(obj: Any, path: Path) -> None:
    for step in path[:-1]:
        obj = _child(obj, step)
        if obj is None:
            return
    if path[-1][0] == "f":
        obj.pop(path[-1][2:], None)
    elif (found := _child(obj, path[-1])) is not None:
        obj.remove(found)
