"""The reference pages of the kinds, made from the same schemas as the CRDs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import conditions, crd, phases, reasons
from .common import API_VERSION, Resource, Spec

_HEADER = "<!-- Generated from operator/taskfold/api by hack/generate.py. Do not edit. -->\n"


def files() -> dict[str, str]:
    """File name → content of every reference page, as committed under docs/reference/."""
    return {f"{kind.KIND.lower()}.md": page(kind) for kind in crd.KINDS}


def page(kind: type[Resource]) -> str:
    """The reference page of one kind."""
    schema = crd.schema(kind)
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    spec_model = kind.model_fields["spec"].annotation
    assert isinstance(spec_model, type) and issubclass(spec_model, Spec)  # noqa: S101  # for the type checker
    mutable = sorted(spec_model.model_fields[name].alias or name for name in spec_model.MUTABLE)
    columns = crd.crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
    parts = [
        f"{_HEADER}# {kind.KIND}\n\n{schema['description']}",
        f"`apiVersion: {API_VERSION}`, `kind: {kind.KIND}`, short name `{kind.SHORT_NAME}`, "
        "category `taskfold`, namespaced.",
        f"May be changed after creation: {', '.join(f'`{name}`' for name in mutable)}. All else is fixed.",
        "## spec\n\n" + _table(("field", "type", "default", "meaning"), _fields(spec, "")),
        "## Rules\n\nChecked by the API server when an object is created or changed.\n\n"
        + _table(("where", "rule"), _rules(schema, "")),
        "## status\n\n" + _table(("field", "type", "meaning"), [(a, b, d) for a, b, _, d in _fields(status, "")]),
        "## Phases\n\n" + _table(("phase", "meaning"), phases.table_rows()),
        "## Conditions\n\n" + _table(("condition", "meaning"), conditions.table_rows()),
        "## Reasons\n\nThe same words in conditions, in `status.failure.reason` and in Events.\n\n"
        + _table(("reason", "event", "meaning"), reasons.table_rows()),
        "## Columns and selection\n\n"
        + _table(
            ("column", "from", "shown"),
            [(c["name"], f"`{c['jsonPath']}`", "with -o wide" if c.get("priority") else "always") for c in columns],
        )
        + f"\n\n`kubectl get {kind.SHORT_NAME} --field-selector status.complete!=true` lists what "
        "is not done yet; `status.phase` can be selected too.",
    ]
    return "\n\n".join(parts) + "\n"


def _fields(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """(path, type, default, meaning) of all below a node. Lists and tables are written `name[]`, `name{}`."""
    required = set(node.get("required", ()))
    for name, child in node.get("properties", {}).items():
        path, inner, suffix = f"{prefix}{name}", child, ""
        if child.get("type") == "array":
            inner, suffix = child["items"], "[]"
        elif isinstance(child.get("additionalProperties"), dict):
            inner, suffix = child["additionalProperties"], "{}"
        default = "required" if name in required else _default(child)
        yield f"`{path}`", _type(inner) + suffix, default, child.get("description", "")
        yield from _fields(inner, f"{path}{suffix}.")


def _default(node: dict[str, Any]) -> str:
    if "default" not in node:
        return ""
    value = node["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    return str(node.get("type", "any"))


def _rules(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for rule in node.get("x-kubernetes-validations", ()):
        yield f"`{path or '.'}{rule.get('fieldPath', '')}`", rule["message"]
    for name, child in node.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}".lstrip("."))
    for keyword, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(node.get(keyword), dict):
            yield from _rules(node[keyword], path + suffix)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
