"""A real API server refuses every change of a fixed field: another value, a removal, an addition."""

from __future__ import annotations

import copy

import pytest

from taskfold.api.taskrun import TaskRun, TaskRunSpec
from taskfold.api.verifierrun import VerifierRun, VerifierRunSpec

from .manifests import (
    BARE,
    FULL,
    INLINE,
    OTHER,
    VERIFIER_BARE,
    VERIFIER_FULL,
    VERIFIER_OTHER,
    appearing,
    fixed,
)  # fmt: skip

pytestmark = pytest.mark.cluster


def test_the_tables_cover_every_fixed_field():
    assert OTHER.keys() == set(fixed(TaskRunSpec)) <= FULL.keys()
    assert VERIFIER_OTHER.keys() == set(fixed(VerifierRunSpec)) <= VERIFIER_FULL.keys()


def frozen(kind: str, field: str) -> str:
    return f"spec.{field}: Forbidden: {field} cannot be changed, added or removed later; create a new {kind}"


@pytest.mark.parametrize(
    ("kind", "field", "other"),
    [("TaskRun", *item) for item in OTHER.items()] + [("VerifierRun", *item) for item in VERIFIER_OTHER.items()],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fixed_field_cannot_be_changed(objects, kind, field, other):
    assert frozen(kind, field) in objects.refusal("patch", kind, "full", {field: other})


@pytest.mark.parametrize(
    ("kind", "field"),
    [("TaskRun", field) for field in appearing(TaskRun)] + [("VerifierRun", field) for field in appearing(VerifierRun)],
)
def test_fixed_field_cannot_be_removed(objects, kind, field):
    assert frozen(kind, field) in objects.refusal("patch", kind, "full", {field: None})


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [("TaskRun", field, FULL[field]) for field in appearing(TaskRun)]
    + [("VerifierRun", field, VERIFIER_FULL[field]) for field in appearing(VerifierRun)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fixed_field_cannot_be_added(objects, kind, field, value):
    assert frozen(kind, field) in objects.refusal("patch", kind, "bare", {field: value})


@pytest.mark.parametrize(
    "change",
    [
        {"task": {"path": "a"}},
        {"task": {"inline": {"files": {"new": ""}}}},
        {"task": {"inline": {"files": {"task.toml": "x"}}}},
        {"task": {"inline": {"files": {"task.toml": None}}}},
        {"task": {"data": {"deep": {"er": 1}}}},
    ],
    ids=str,
)
def test_no_part_of_a_task_can_be_changed(objects, change):
    assert frozen("TaskRun", "task") in objects.refusal("patch", "TaskRun", "bare", change)


def test_a_change_inside_free_form_data_is_seen(objects):
    spec = BARE | {"task": INLINE | {"data": {"deep": {"list": [1, {"a": "b"}]}}}}
    objects.create("TaskRun", spec, name="data", dry_run=False)
    change = {"task": {"data": {"deep": {"list": [1, {"a": "c"}]}}}}
    assert frozen("TaskRun", "task") in objects.refusal("patch", "TaskRun", "data", change)


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": False},
        {"cancel": True},
        {"ttlSecondsAfterFinished": 5},
        {"ttlSecondsAfterFinished": None},
        {"podRetention": "Always"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["bare", "full"])
def test_what_may_be_changed(objects, name, change):
    objects.patch("TaskRun", name, change)


@pytest.mark.parametrize(
    "change", [{"finish": {"outcome": "Failed"}}, {"finish": None}, {"finish": {"response": "else"}}], ids=str
)
def test_finish_is_set_once(objects, change):
    assert "finish is set once" in objects.refusal("patch", "TaskRun", "full", change)


def test_finish_can_be_set_later(objects):
    objects.create("TaskRun", BARE | {"agent": {"external": {}}}, name="external", dry_run=False)
    patched = objects.patch("TaskRun", "external", {"finish": {"outcome": "Failed"}})
    assert patched["spec"]["finish"] == {"outcome": "Failed"}


@pytest.mark.parametrize(
    ("kind", "spec"), [("TaskRun", BARE), ("VerifierRun", VERIFIER_BARE)], ids=lambda v: str(v)[:11]
)
@pytest.mark.parametrize("back", [False, None], ids=["false", "removed"])
def test_cancel_cannot_be_taken_back(objects, kind, spec, back):
    name = f"cancelled-{'removed' if back is None else 'false'}"
    objects.create(kind, copy.deepcopy(spec) | {"cancel": True}, name=name, dry_run=False)
    assert "cancel cannot be taken back" in objects.refusal("patch", kind, name, {"cancel": back})
