"""Label and field selectors, as the API server reads them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.world import refusals
from tests.world.kinds import Kind

Json = dict[str, Any]
Test = Callable[[Json], bool]

_SET = re.compile(r"(?P<key>\S+)\s+(?P<word>in|notin)\s+\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<word>!=|==?)\s*(?P<value>[^=!\s]*)")
_EXISTS = re.compile(r"(?P<no>!?)\s*(?P<key>[^=!\s()]+)")
_COMMA = re.compile(r",(?![^(]*\))")


def parsed(kind: Kind, labels: str, fields: str) -> Test:
    """Whether an object is selected. A `Refusal` (400) for what is no selector."""
    tests = [_label(part.strip()) for part in _COMMA.split(labels) if part.strip()]
    tests += [_field(kind, part.strip()) for part in fields.split(",") if part.strip()]
    return lambda obj: all(test(obj) for test in tests)


def _label(text: str) -> Test:
    if found := _SET.fullmatch(text):
        values = {each.strip() for each in found["values"].split(",")}
        return _compared(found["key"], values, wanted=found["word"] == "in")
    if found := _EQUAL.fullmatch(text):
        return _compared(found["key"], {found["value"]}, wanted=found["word"] != "!=")
    if found := _EXISTS.fullmatch(text):
        key, no = found["key"], bool(found["no"])
        return lambda obj: (key in _labels(obj)) != no
    raise refusals.bad_request(f"unable to parse requirement: {text!r} is no label selector")


def _compared(key: str, values: set[str], *, wanted: bool) -> Test:
    """Absent labels are unequal to everything."""
    return lambda obj: (key in _labels(obj) and _labels(obj)[key] in values) == wanted


def _field(kind: Kind, text: str) -> Test:
    found = re.fullmatch(r"(?P<key>[^=!]+)(?P<word>!=|==?)(?P<value>[^=!]*)", text)
    if found is None:
        raise refusals.bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    path, value, wanted = found["key"], found["value"], found["word"] != "!="
    if path not in kind.selectors:
        if kind.schema is None and not kind.selectable:
            only = '"metadata.name", "metadata.namespace"'
            raise refusals.bad_request(f'"{path}" is not a known field selector: only {only}')
        raise refusals.bad_request(f"field label not supported: {path}")
    return lambda obj: (_text(obj, path.split(".")) == value) == wanted


def _text(obj: Any, path: list[str]) -> str:
    """The field as text; an absent one is the empty text."""
    for part in path:
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    if obj is None:
        return ""
    return str(obj).lower() if isinstance(obj, bool) else str(obj)


def _labels(obj: Json) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}
