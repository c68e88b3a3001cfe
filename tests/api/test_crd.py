"""The CRDs are current, structural, bounded and described. On a real API server: test_crd_on_cluster.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from taskfold.api import crd, rules
from taskfold.api.agent import Agent
from taskfold.api.common import EnvFromSource, EnvVar, EnvVarSource
from taskfold.api.task_source import FolderSource, TaskSource
from taskfold.api.taskrun import TaskRun, TaskRunSpec
from taskfold.api.verifierrun import VerifierRun, VerifierRunSpec

ROOT = Path(__file__).resolve().parents[2]
KINDS = pytest.mark.parametrize("kind", crd.KINDS, ids=lambda kind: kind.KIND)

FORBIDDEN = {
    "$ref", "$defs", "definitions", "anyOf", "oneOf", "allOf", "not", "const", "title", "patternProperties",
    "propertyNames", "prefixItems", "uniqueItems", "nullable", "discriminator", "deprecated", "dependencies",
}  # fmt: skip


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for keyword, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if keyword in node:
            yield from nodes(node[keyword], path + suffix)


@KINDS
def test_committed_yaml_is_current(kind):
    committed = (ROOT / "crds" / f"{kind.KIND.lower()}.yaml").read_text(encoding="utf-8")
    assert committed == crd.to_yaml(crd.crd(kind)), "run hack/generate.py"
    assert yaml.safe_load(committed) == crd.crd(kind)


def test_generate_check_is_content():
    result = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "")


@KINDS
def test_schema_is_structural(kind):
    for path, node in nodes(crd.schema(kind)):
        assert not FORBIDDEN & node.keys(), path
        free = node.get("x-kubernetes-preserve-unknown-fields")
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node, path
        else:
            assert node.get("type") in {"object", "array", "string", "integer", "number", "boolean"}, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert isinstance(node.get("additionalProperties", {}), dict), path
        assert free is None or (free is True and "properties" not in node), path
        assert set(node.get("required", ())) <= node.get("properties", {}).keys(), path
        for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
            assert node.get(keyword) in (None, True), path
            assert keyword not in node or keyword.replace("exclusiveM", "m") in node, path


@KINDS
def test_lists_say_how_they_merge(kind):
    for path, node in nodes(crd.schema(kind)):
        if node.get("type") != "array":
            continue
        assert "items" in node, path
        if node.get("x-kubernetes-list-type") == "map":
            inner = node["items"]
            for key in node["x-kubernetes-list-map-keys"]:
                assert key in inner["required"] or "default" in inner["properties"][key], path
        else:
            assert node.get("x-kubernetes-list-type") in {"atomic", "set"}, path


@KINDS
def test_defaults_have_the_type_of_their_field(kind):
    types = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}
    for path, node in nodes(crd.schema(kind)):
        if "default" in node:
            assert isinstance(node["default"], types[node["type"]]), path
            assert "enum" not in node or node["default"] in node["enum"], path


@KINDS
def test_status_has_no_defaults(kind):
    assert not [path for path, node in nodes(crd.schema(kind)["properties"]["status"]) if "default" in node]


@KINDS
def test_every_field_is_described_by_a_sentence(kind):
    for path, node in nodes(crd.schema(kind)):
        for name, child in node.get("properties", {}).items():
            where = f"{path}.{name}"
            if where == ".metadata":
                continue
            assert child.get("description", "").endswith("."), where
            assert len(child["description"]) >= 12, where


@KINDS
def test_everything_in_spec_and_status_has_a_bound(kind):
    schema = crd.schema(kind)
    for part in ("spec", "status"):
        for path, node in nodes(schema["properties"][part], part):
            if node.get("x-kubernetes-preserve-unknown-fields"):
                continue
            match node.get("type"):
                case "string":
                    assert "maxLength" in node or "enum" in node or node.get("format") == "date-time", path
                case "array":
                    assert "maxItems" in node, path
                case "object" if "additionalProperties" in node:
                    assert "maxProperties" in node, path
                case None:
                    assert "maxLength" in node, path


@KINDS
def test_every_rule_has_a_message_and_a_path_that_exists(kind):
    for path, node in nodes(crd.schema(kind)):
        for rule in node.get("x-kubernetes-validations", ()):
            assert rule["message"], path
            assert "\n" not in rule["message"], path
            if "fieldPath" in rule:
                assert rule["fieldPath"].lstrip(".") in node["properties"], (path, rule)


@pytest.mark.parametrize("spec", [TaskRunSpec, VerifierRunSpec])
def test_every_field_is_immutable_or_listed_as_mutable(spec):
    ruled = {rule["fieldPath"].lstrip(".") for rule in crd.immutability("Kind", spec)}
    mutable = {spec.model_fields[name].alias for name in spec.MUTABLE}
    assert ruled.isdisjoint(mutable)
    assert ruled | mutable == {field.alias for field in spec.model_fields.values()}


def test_mutable_fields_are_those_of_the_design():
    assert {TaskRunSpec.model_fields[name].alias for name in TaskRunSpec.MUTABLE} == {
        "suspend", "cancel", "finish", "ttlSecondsAfterFinished", "podRetention",
    }  # fmt: skip
    assert set(VerifierRunSpec.MUTABLE) == {"cancel", "ttl_seconds_after_finished"}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (TaskSource, ["inline", "configMap", "archive", "oci", "git"]),
        (FolderSource, ["inline", "configMap", "archive", "oci", "git"]),
        (Agent, ["oracle", "nop", "script", "profile", "external"]),
        (EnvVarSource, ["secretKeyRef", "configMapKeyRef"]),
        (EnvFromSource, ["configMapRef", "secretRef"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_one_of_groups_name_all_their_variants(model, names):
    (rule,) = model.model_config["json_schema_extra"]["x-kubernetes-validations"]
    assert rule["message"] == f"set exactly one of {', '.join(names)}"
    optional = {field.alias for field in model.model_fields.values() if field.alias in names}
    assert optional == set(names)
    assert all(f"has(self.{name})" in rule["rule"] for name in names)


def test_value_and_value_from_exclude_each_other():
    (rule,) = EnvVar.model_config["json_schema_extra"]["x-kubernetes-validations"]
    assert rule == rules.rule("!(has(self.value) && has(self.valueFrom))", "set value or valueFrom, not both")


@KINDS
def test_names_columns_and_selection(kind):
    spec = crd.crd(kind)["spec"]
    (version,) = spec["versions"]
    assert spec["scope"] == "Namespaced"
    assert spec["names"]["categories"] == ["taskfold"]
    assert spec["names"]["shortNames"] == [{"TaskRun": "tr", "VerifierRun": "vr"}[kind.KIND]]
    assert [field["jsonPath"] for field in version["selectableFields"]] == [
        ".status.complete",
        ".status.phase",
    ]
    columns = {priority: [] for priority in (0, 1)}
    for column in version["additionalPrinterColumns"]:
        columns[column.get("priority", 0)].append(column["name"])
    fourth = {"TaskRun": "Agent", "VerifierRun": "Run"}[kind.KIND]
    assert columns == {
        0: ["Phase", "Reward", "Reason", fourth, "Age"],
        1: ["Mode", "Node", "Duration", "Pod"],
    }


@KINDS
def test_columns_and_selectable_fields_lead_to_a_scalar(kind):
    schema = crd.schema(kind)
    (version,) = crd.crd(kind)["spec"]["versions"]
    for entry in [*version["additionalPrinterColumns"], *version["selectableFields"]]:
        path = entry["jsonPath"]
        if path.startswith(".metadata"):
            continue
        node = schema
        for part in path.lstrip(".").split("."):
            node = node["properties"][part]
        assert node["type"] in {"string", "boolean", "integer", "number"}, path


@KINDS
def test_client_side_apply_has_room_for_the_crd(kind):
    assert len(crd.to_yaml(crd.crd(kind))) < 262_144 * 0.75


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "X"},
            {"type": "string"},
        ),
        ({"const": "a", "type": "string"}, {"enum": ["a"], "type": "string"}),
        (
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        ),
        ({"$ref": "#/$defs/A", "description": "here."}, {"type": "string", "description": "here."}),
        ({"type": "object", "properties": {}}, {"type": "object"}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
    ],
)
def test_rewrite(node, wanted):
    assert crd.structural(node, {"A": {"type": "string", "description": "there."}}) == wanted


@pytest.mark.parametrize(
    "node", [{"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "array", "uniqueItems": True}]
)
def test_what_cannot_be_structural_is_an_error(node):
    with pytest.raises(ValueError, match="no place in a structural schema"):
        crd.structural(node, {})


def test_kinds():
    assert (TaskRun, VerifierRun) == crd.KINDS
