"""The operator's settings for readers: the reference page, and the part of the chart's schema that checks them.

Guarantees: both are made from `settings.Settings` alone, so that a new setting is documented and admitted by the
chart without another line anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .settings import Settings

Schema = dict[str, Any]

DERIVED = ("clusterName", "namespaces", "store", "leaderElection", "healthPort", "reading")
"""Settings that the chart writes itself, from values of its own (it opens no port for metrics yet)."""

_HEADER = "<!-- Generated from operator/taskfold/api by hack/generate.py. Do not edit. -->\n"
_INTRODUCTION = """\
# Settings

The operator reads them from one YAML file, `taskfold operator --config settings.yaml`. Every setting has a default,
and an unknown one is an error at start. With the Helm chart they stand below `settings` in the values, for example
`--set settings.pod.memoryLimit=8Gi`, except those that the chart derives from values of its own: {derived}."""


def files() -> dict[str, str]:
    """File name → content of the page, as committed under docs/reference/."""
    derived = ", ".join(f"`{name}`" for name in DERIVED)
    return {"settings.md": f"{_HEADER}{_INTRODUCTION.format(derived=derived)}\n\n{table()}\n"}


def table() -> str:
    """Every setting as a row of a Markdown table: dotted path, type, default, meaning."""
    defaults = Settings().model_dump(mode="json", by_alias=True)
    rows = [("setting", "type", "default", "meaning"), ("---",) * 4, *_rows(schema(), "", defaults)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def schema() -> Schema:
    """JSON schema of the settings, self-contained: references put in place, titles dropped."""
    whole = Settings.model_json_schema(by_alias=True)
    return _inlined(whole, whole["$defs"])


def chart_schema() -> Schema:
    """`properties.settings` of the chart's values.schema.json: what the chart derives may not stand there."""
    found = schema()
    properties = {name: child for name, child in found["properties"].items() if name not in DERIVED}
    text = "Settings of the operator, see docs/reference/settings.md. Set by values of their own: "
    return {**found, "description": text + ", ".join(DERIVED) + ".", "properties": properties}


def with_chart_schema(values_schema: str) -> str:
    """The text of values.schema.json with its `settings` part made anew."""
    whole = json.loads(values_schema)
    whole["properties"]["settings"] = chart_schema()
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    beside = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "title", "$defs")}
    if "$ref" in node:
        beside = {**_inlined(definitions[node["$ref"].rsplit("/", 1)[-1]], definitions), **beside}
    if "anyOf" in node:
        beside |= _nullable(node["anyOf"])
    if "description" in beside:
        beside["description"] = " ".join(beside["description"].split())
    if "properties" in beside:
        beside["properties"] = {name: _inlined(child, definitions) for name, child in beside["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(beside.get(keyword), dict):
            beside[keyword] = _inlined(beside[keyword], definitions)
    if beside.get("type") == "object" and "properties" in beside:
        beside.pop("default", None)  # a section's default is that of its settings
    return beside


def _nullable(choices: list[Schema]) -> Schema:
    """A value or null; no setting has a union of any other form."""
    values = [choice for choice in choices if choice != {"type": "null"}]
    if len(values) != 1 or not isinstance(values[0].get("type"), str):
        raise ValueError(f"a union that is not a value or null: {choices}")
    return {**values[0], "type": [values[0]["type"], "null"]}


def _rows(node: Schema, prefix: str, defaults: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for name, child in node["properties"].items():
        path, text = f"{prefix}{name}", child.get("description", "")
        if "properties" in child:
            yield f"**`{path}`**", "", "", text
            yield from _rows(child, f"{path}.", defaults[name])
        else:
            yield f"`{path}`", _type(child), _default(defaults[name]), text


def _default(value: object) -> str:
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return f"`{json.dumps(whole, ensure_ascii=False)}`"


def _type(node: Schema) -> str:
    if "enum" in node or "const" in node:
        return " or ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if node["type"] == "array":
        return f"list of {_type(node['items'])}"
    if node["type"] == "object":
        return f"table of {_type(node['additionalProperties'])}"
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    bounds = [
        f"{words} {node[keyword]}"
        for keyword, words in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if keyword in node
    ]
    return " or ".join(kinds) + (f", {', '.join(bounds)}" if bounds else "")
