"""The CRDs, made from the models. Own generator: no library that does this is both maintained and complete.

pydantic's JSON schema is rewritten to a *structural* schema: references put in place, nullable unions undone,
titles dropped, exclusive bounds in the form of OpenAPI 3.0. A keyword that is not known here is an error,
never handed on. Rules come from the models; those for immutable fields are made here, one for each field that
is not in the spec's MUTABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from .common import GROUP, MAX_RUN_NAME, VERSION, Resource, Spec
from .taskrun import TaskRun
from .verifierrun import VerifierRun

Schema = dict[str, Any]

KINDS: tuple[type[Resource], ...] = (TaskRun, VerifierRun)

_HEADER = "# Generated from operator/taskfold/api by hack/generate.py. Do not edit.\n"

# Keywords that a structural schema takes as they are. `exclusiveMinimum` and its like are rewritten, not
# listed.
_KEPT = {
    "type", "format", "description", "default", "enum", "required", "pattern",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip
_DROPPED = {"title", "propertyNames", "$defs"}

_COLUMNS: dict[str, list[tuple[str, str, str, str, int]]] = {
    "TaskRun": [
        ("Phase", "string", ".status.phase", "Where the run is.", 0),
        ("Reward", "string", ".status.reward", "The reward; empty without a verdict.", 0),
        ("Reason", "string", ".status.failure.reason", "Why there is no reward.", 0),
        ("Agent", "string", ".status.agent.name", "Which agent works.", 0),
        ("Mode", "string", ".status.verifier.mode", "Where the verifier works.", 1),
        ("Node", "string", ".status.nodeName", "Node of the pod.", 1),
        ("Duration", "number", ".status.durationSeconds", "Seconds from start to verdict.", 1),
        ("Pod", "string", ".status.podName", "The pod.", 1),
        ("Age", "date", ".metadata.creationTimestamp", "Time since creation.", 0),
    ],
    "VerifierRun": [
        ("Phase", "string", ".status.phase", "Where the verification is.", 0),
        ("Reward", "string", ".status.reward", "The reward; empty without a verdict.", 0),
        ("Reason", "string", ".status.failure.reason", "Why there is no reward.", 0),
        ("Run", "string", ".spec.source.runRef.name", "The TaskRun that is graded.", 0),
        ("Mode", "string", ".spec.mode", "Where the verifier works.", 1),
        ("Node", "string", ".status.nodeName", "Node of the pod.", 1),
        ("Duration", "number", ".status.durationSeconds", "Seconds from start to verdict.", 1),
        ("Pod", "string", ".status.podName", "The pod.", 1),
        ("Age", "date", ".metadata.creationTimestamp", "Time since creation.", 0),
    ],
}


def files() -> dict[str, str]:
    """File name → content of every CRD, as committed under crds/."""
    return {f"{kind.KIND.lower()}.yaml": to_yaml(crd(kind)) for kind in KINDS}


def to_yaml(manifest: Mapping[str, Any]) -> str:
    """The manifest as YAML with its header; the same manifest gives the same bytes."""
    text: str = yaml.safe_dump(dict(manifest), sort_keys=False, width=120, allow_unicode=True)
    return _HEADER + text


def crd(kind: type[Resource]) -> Schema:
    """The CustomResourceDefinition of one kind."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".status.complete"}, {"jsonPath": ".status.phase"}],
        "additionalPrinterColumns": [
            # The API server drops a priority of 0: written out, no later apply would ever find the list unchanged.
            {"name": name, "type": type_, "jsonPath": path, "description": text}
            | ({"priority": priority} if priority else {})
            for name, type_, path, text, priority in _COLUMNS[kind.KIND]
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.PLURAL}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "taskfold"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.KIND,
                "listKind": f"{kind.KIND}List",
                "plural": kind.PLURAL,
                "singular": kind.KIND.lower(),
                "shortNames": [kind.SHORT_NAME],
                "categories": ["taskfold"],
            },
            "versions": [version],
        },
    }


def schema(kind: type[Resource]) -> Schema:
    """The structural schema of one kind."""
    whole = kind.model_json_schema(by_alias=True)
    spec_model = kind.model_fields["spec"].annotation
    assert isinstance(spec_model, type) and issubclass(spec_model, Spec)  # noqa: S101  # for the type checker
    spec = structural(whole["properties"]["spec"], whole["$defs"])
    spec["x-kubernetes-validations"] = [
        *immutability(kind.KIND, spec_model),
        *spec["x-kubernetes-validations"],
    ]
    name_rules = _name_rules(kind)
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Always {GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"Always {kind.KIND}."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _without_defaults(structural(whole["properties"]["status"], whole["$defs"])),
        },
    } | ({"x-kubernetes-validations": name_rules} if name_rules else {})


def immutability(kind: str, spec: type[Spec]) -> list[Schema]:
    """One rule for each field that may not change; adding and removing an optional field are changes too."""
    rules: list[Schema] = []
    for name, field in spec.model_fields.items():
        if name in spec.MUTABLE:
            continue
        key = field.alias or name
        same = f"self.{key} == oldSelf.{key}"
        optional = f"has(self.{key}) == has(oldSelf.{key}) && (!has(self.{key}) || {same})"
        rules.append(
            {
                "rule": same if field.is_required() else optional,
                "message": f"{key} cannot be changed, added or removed later; create a new {kind}",
                "fieldPath": f".{key}",
                "reason": "FieldValueForbidden",
            }
        )
    return rules


def _name_rules(kind: type[Resource]) -> list[Schema]:
    """A run's name starts the names of its children, which are labels and host names."""
    if kind is not TaskRun:
        return []
    return [
        {
            "rule": f"self.metadata.name.size() <= {MAX_RUN_NAME} && !self.metadata.name.contains('.')",
            "message": (
                f"the name of a TaskRun has at most {MAX_RUN_NAME} characters and no dots: it becomes "
                "the start of "
                "the names of its pods, which are host names of at most 63 characters"
            ),
        }
    ]


def structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """A node of pydantic's JSON schema as a node of a structural schema.

    Raises ValueError for a keyword or a union that a structural schema cannot hold.
    """
    node = _merged(node, definitions)
    result: Schema = {}
    for keyword, value in node.items():
        match keyword:
            case "properties":
                if value:
                    result[keyword] = {name: structural(child, definitions) for name, child in value.items()}
            case "items":  # a default inside a list makes `kubectl apply` see a change every time
                result[keyword] = _without_defaults(structural(value, definitions))
            case "additionalProperties":
                if isinstance(value, Mapping) and value:
                    result[keyword] = structural(value, definitions)
            case "const":
                result["enum"] = [value]
            case "exclusiveMinimum" | "exclusiveMaximum":
                result |= {keyword.replace("exclusiveM", "m"): value, keyword: True}
            case "default" if value is None or value in ([], {}):
                pass
            case _ if keyword in _DROPPED:
                pass
            case _ if keyword in _KEPT:
                result[keyword] = value
            case _:
                raise ValueError(f"{keyword}: {value!r} has no place in a structural schema")
    return result


def _merged(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node without $ref, allOf and nullable unions; what stands beside them wins over what they bring."""
    while True:
        beside = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "allOf")}
        if "$ref" in node:
            node = {**definitions[node["$ref"].rsplit("/", 1)[-1]], **beside}
        elif "anyOf" in node or "allOf" in node:
            choices = [c for c in node.get("anyOf", node.get("allOf")) if c.get("type") != "null"]
            if len(choices) != 1:
                raise ValueError(f"a union of {len(choices)} types has no place in a structural schema: {choices}")
            node = {**choices[0], **beside}
        else:
            return node


def _without_defaults(node: Schema) -> Schema:
    """A node to which the API server adds nothing: list items, and a status, which says what was written."""
    result = {key: value for key, value in node.items() if key != "default"}
    if "properties" in result:
        result["properties"] = {name: _without_defaults(child) for name, child in result["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(result.get(keyword), dict):
            result[keyword] = _without_defaults(result[keyword])
    return result
