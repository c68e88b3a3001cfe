"""Custom resources against their structural schema, as the API server does it: prune, default, validate.

Modelled is what the committed CRDs use; an unknown keyword of a schema is refused when the schema is read, so that a
new one is not passed over in silence. CEL rules are those of `tests.world.cel`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.world import cel, refusals
from tests.world.storage import clone

Json = dict[str, Any]
Cause = refusals.Cause
_META = ("apiVersion", "kind", "metadata")
_KNOWN = {
    *("type", "properties", "required", "additionalProperties", "items", "default", "description", "enum", "pattern"),
    *("format", "nullable", "maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"),
    *("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "anyOf", "x-kubernetes-int-or-string"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations"),
    "x-kubernetes-preserve-unknown-fields",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)")
UNCHECKED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


@dataclass(frozen=True)
class Schema:
    """The schema of one kind."""

    root: Json

    def __post_init__(self) -> None:
        for node in _nodes(self.root):
            unknown = set(node) - _KNOWN
            if unknown:
                raise ValueError(f"keywords of a schema that are not modelled: {sorted(unknown)}")

    def completed(self, obj: Json, old: Json | None) -> Json:
        """Without unknown fields, with defaults. What is taken over from the stored object is so already."""
        done = {key: obj[key] for key in obj if key in _META or (old is not None and obj[key] is old.get(key))}
        return {**_completed({key: value for key, value in obj.items() if key not in done}, self.root), **done}

    def causes(self, new: Json, old: Json | None) -> list[Cause]:
        """What is wrong. What was so before and is unchanged is let pass."""
        found = [
            cause
            for name, schema in self.root["properties"].items()
            if name not in _META and name in new
            for cause in _checked(new[name], old.get(name) if old else None, schema, name)
        ]
        missing = [name for name in self.root.get("required") or () if name not in new]
        found += [Cause(name, "FieldValueRequired", "Required value") for name in missing]
        if any(cause.reason != "FieldValueDuplicate" for cause in found):
            return [*found, UNCHECKED]
        return found + [cause for cause in _ruled(new, old, self.root, "") if cause]


def _nodes(schema: Json) -> Iterator[Json]:
    yield schema
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for each in inner:
        if isinstance(each, dict):
            yield from _nodes(each)


def _inner(schema: Json, key: str) -> Json | None:
    """The schema of a member of a map; None: unknown."""
    found = (schema.get("properties") or {}).get(key)
    if found is None and isinstance(schema.get("additionalProperties"), dict):
        found = schema["additionalProperties"]
    return found


def _completed(value: Any, schema: Json) -> Any:
    if isinstance(value, list):
        return [_completed(each, schema.get("items") or {}) for each in value]
    if not isinstance(value, dict):
        return value
    keep = schema.get("x-kubernetes-preserve-unknown-fields")
    result: Json = {}
    for key, each in value.items():
        inner = _inner(schema, key)
        if inner is None and not keep:
            continue
        if each is None and inner and not inner.get("nullable"):
            continue
        result[key] = _completed(each, inner) if inner is not None else clone(each)
    for key, inner in (schema.get("properties") or {}).items():
        if key not in result and "default" in inner:
            result[key] = _completed(clone(inner["default"]), inner)
    return result


def _checked(value: Any, old: Any, schema: Json, path: str) -> Iterator[Cause]:
    if value is old or (old is not None and value == old):
        return
    if value is None and schema.get("nullable"):
        return
    wrong = _type(value, schema)
    if wrong:
        what = "null" if value is None else f'"{_word(value)}"'
        yield _invalid(path, what, f"{path} in body must be of type {wrong}: {what}", "FieldValueTypeInvalid")
        return
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(f'"{each}"' for each in schema["enum"])
        yield Cause(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')
    if isinstance(value, str):
        yield from _text(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, path)
    elif isinstance(value, list):
        yield from _list(value, old, schema, path)
    elif isinstance(value, Mapping):
        yield from _map(value, old, schema, path)


def _type(value: Any, schema: Json) -> str:
    """The type that it should have; "": it has it."""
    if schema.get("x-kubernetes-int-or-string"):
        return "" if isinstance(value, int | str) and not isinstance(value, bool) else "integer,string"
    wanted = schema.get("type")
    if wanted is None:
        return ""
    if isinstance(value, bool):
        return "" if wanted == "boolean" else wanted
    if wanted == "integer" and isinstance(value, float):
        return "" if value.is_integer() else wanted
    return "" if isinstance(value, _TYPES[wanted]) else wanted


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    found = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return found.get(type(value), "null")


def _invalid(path: str, shown: str, text: str, reason: str = "FieldValueInvalid") -> Cause:
    return Cause(path, reason, f"Invalid value: {shown}: {text}")


def _text(value: str, schema: Json, path: str) -> Iterator[Cause]:
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")
    if (least := schema.get("minLength")) is not None and len(value) < least:
        yield _invalid(path, f'"{value}"', f"{path} in body should be at least {least} chars long")
    if (pattern := schema.get("pattern")) and not re.search(pattern, value):
        yield _invalid(path, f'"{value}"', f"{path} in body should match '{pattern}'")
    form = {"byte": _BASE64, "date-time": _TIME}.get(schema.get("format", ""))
    if form is not None and not (value and form.fullmatch(value)):
        text = f'{path} in body must be of type {schema["format"]}: "{value}"'
        yield _invalid(path, f'"{value}"', text, "FieldValueTypeInvalid")


def _number(value: float, schema: Json, path: str) -> Iterator[Cause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (value == least and schema.get("exclusiveMinimum"))):
        bound = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _invalid(path, f"{value}", f"{path} in body should be {bound} {least:g}")
    if most is not None and (value > most or (value == most and schema.get("exclusiveMaximum"))):
        bound = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _invalid(path, f"{value}", f"{path} in body should be {bound} {most:g}")


def _list(value: list[Any], old: Any, schema: Json, path: str) -> Iterator[Cause]:
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items")
    if (least := schema.get("minItems")) is not None and len(value) < least:
        yield _invalid(path, f"{len(value)}", f"{path} in body should have at least {least} items")
    keys = schema.get("x-kubernetes-list-map-keys")
    seen: dict[str, Any] = {}
    for number, each in enumerate(value):
        earlier = _twin(each, old, keys) if keys else None
        yield from _checked(each, earlier, schema.get("items") or {}, f"{path}[{number}]")
        identity = _identity(each, keys) if schema.get("x-kubernetes-list-type") in ("map", "set") else None
        if identity is not None and identity in seen:
            yield Cause(f"{path}[{number}]", "FieldValueDuplicate", f"Duplicate value: {identity}")
        elif identity is not None:
            seen[identity] = each


def _identity(item: Any, keys: list[str] | None) -> str | None:
    if not keys:
        return f'"{item}"'
    if not isinstance(item, Mapping):
        return None
    return "{" + ",".join(f'"{key}":"{item.get(key)}"' for key in sorted(keys)) + "}"


def _twin(item: Any, old: Any, keys: list[str]) -> Any:
    """The item of the same keys before the write."""
    if not isinstance(old, list) or not isinstance(item, Mapping):
        return None
    return next((each for each in old if all(each.get(key) == item.get(key) for key in keys)), None)


def _map(value: Mapping[str, Any], old: Any, schema: Json, path: str) -> Iterator[Cause]:
    for name in schema.get("required") or ():
        if name not in value:
            yield Cause(f"{path}.{name}", "FieldValueRequired", "Required value")
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items")
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        yield _invalid(path, f"{len(value)}", f"{path} in body should have at least {least} properties")
    for key, each in value.items():
        inner = _inner(schema, key)
        if inner is not None:
            earlier = old.get(key) if isinstance(old, Mapping) else None
            yield from _checked(each, earlier, inner, f"{path}.{key}")


def _ruled(value: Any, old: Any, schema: Json, path: str) -> Iterator[Cause]:
    """The CEL rules of a valid object. A rule about unchanged data was checked before."""
    if value is old or (path and old is not None and value == old):
        return
    for rule in schema.get("x-kubernetes-validations") or ():
        broken = cel.broken(rule, value, old)
        if broken is not None:
            yield _ruling(rule, broken, path)
    if isinstance(value, Mapping):
        for key, each in value.items():
            inner = None if not path and key in _META else _inner(schema, key)
            if inner is not None:
                earlier = old.get(key) if isinstance(old, Mapping) else None
                yield from _ruled(each, earlier, inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys")
        for number, each in enumerate(value):
            earlier = _twin(each, old, keys) if keys else None
            yield from _ruled(each, earlier, schema.get("items") or {}, f"{path}[{number}]")


def _ruling(rule: Json, message: str, path: str) -> Cause:
    reason = rule.get("reason", "FieldValueInvalid")
    word = "Forbidden" if reason == "FieldValueForbidden" else "Invalid value"
    return Cause(f"{path}{rule.get('fieldPath', '')}" or "<nil>", reason, f"{word}: {message}")
