"""A real API server takes the CRDs within its CEL cost limits, and takes what is right.

Almost everything is a server-side dry run: nothing is left to an operator that may run there.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from taskfold.api import crd

from .cluster import GROUP, PLURAL, manifest
from .manifests import BARE, FULL, INLINE, VERIFIER_BARE, VERIFIER_FULL

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]


# New CRDs have a group of their own: an update is not charged again for rules that it does not change.


@pytest.mark.parametrize(
    "how",
    [("create",), ("apply",), ("apply", "--server-side")],
    ids=["create", "client-side apply", "server-side apply"],
)
@pytest.mark.parametrize("kind", crd.KINDS, ids=lambda kind: kind.KIND)
def test_a_new_crd_is_within_the_cost_limits(kubectl, kind, how):
    group = f"t{uuid.uuid4().hex[:8]}.example.org"
    manifest = crd.to_yaml(crd.crd(kind)).replace(f"name: {kind.PLURAL}.{GROUP}", f"name: {kind.PLURAL}.{group}")
    manifest = manifest.replace(f"  group: {GROUP}\n", f"  group: {group}\n")
    result = kubectl(*how, "--dry-run=server", "-f", "-", stdin=manifest)
    assert result.returncode == 0, result.stderr
    assert f"{kind.PLURAL}.{group}" in result.stdout
    assert "Warning" not in result.stderr


@pytest.mark.parametrize("how", [("apply",), ("apply", "--server-side", "--force-conflicts")], ids=["client", "server"])
def test_installed_crds_can_be_applied_again(api, kubectl, how):
    result = kubectl(*how, "--dry-run=server", "-f", str(ROOT / "crds"))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("plural", PLURAL.values())
def test_crd_is_structural_for_the_api_server(api, kubectl, plural):
    conditions = json.loads(kubectl("get", "crd", f"{plural}.{GROUP}", "-o", "json").stdout)["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize(
    "how", [("apply",), ("apply", "--server-side"), ("create",)], ids=["client-side", "server-side", "create"]
)
@pytest.mark.parametrize(
    ("kind", "spec"), [("TaskRun", FULL), ("VerifierRun", VERIFIER_FULL)], ids=lambda v: str(v)[:11]
)
def test_objects_can_be_applied(objects, kubectl, namespace, how, kind, spec):
    body = manifest(kind, "new", spec)
    result = kubectl(*how, "-n", namespace, "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    assert result.returncode == 0, result.stderr


def test_applying_the_same_again_changes_nothing(objects, kubectl, namespace):
    body = manifest("TaskRun", "twice", FULL)
    for expected in ("created", "unchanged"):
        result = kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(body))
        assert (result.returncode, result.stdout.split()[-1:]) == (0, [expected]), result.stderr


def test_a_task_above_the_annotation_limit_needs_server_side_apply(objects, kubectl, namespace):
    spec = BARE | {"task": {"inline": {"files": {"task.toml": "", "big": "x" * 400_000}}}}
    body = json.dumps(manifest("TaskRun", "big", spec))
    client = kubectl("apply", "-n", namespace, "-f", "-", stdin=body)
    server = kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=body)
    assert "metadata.annotations: Too long" in client.stderr
    assert server.returncode == 0, server.stderr


def test_defaults_are_filled_in(objects):
    spec = objects.create("TaskRun", {"task": INLINE, "agent": {"nop": {}}})["spec"]
    assert {name: spec[name] for name in spec.keys() - {"task", "agent"}} == {
        "dialect": "gym",
        "onAgentCausedLoss": "mask",
        "podRetention": "Never",
        "suspend": False,
        "cancel": False,
    }


def test_explain_short_names_category_and_columns(objects, kubectl, namespace):
    assert "oracle, nop, script" in kubectl("explain", "tr.spec.agent").stdout
    assert "Whether pods stay" in kubectl("explain", "taskrun.spec.podRetention").stdout
    assert "seconds" in kubectl("explain", "vr.spec.timeoutSeconds").stdout
    listed = kubectl("get", "taskfold", "-n", namespace, "-o", "name").stdout
    assert "taskrun.taskfold.dev/bare" in listed
    assert "verifierrun.taskfold.dev/bare" in listed
    heads = kubectl("get", "tr", "-n", namespace).stdout.split("\n")[0].split()
    assert heads == ["NAME", "PHASE", "REWARD", "REASON", "AGENT", "AGE"]
    heads = kubectl("get", "vr", "-n", namespace, "-o", "wide").stdout.split("\n")[0].split()
    assert heads == ["NAME", "PHASE", "REWARD", "REASON", "RUN", "MODE", "NODE", "DURATION", "POD", "AGE"]


def test_unfinished_runs_can_be_selected(objects, kubectl, namespace):
    objects.create("VerifierRun", VERIFIER_BARE, name="done", dry_run=False)
    patch = json.dumps({"status": {"complete": True, "phase": "Succeeded"}})
    done = kubectl("patch", "vr", "done", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    assert done.returncode == 0, done.stderr
    open_ = kubectl("get", "vr", "-n", namespace, "-o", "name", "--field-selector", "status.complete!=true").stdout
    closed = kubectl("get", "vr", "-n", namespace, "-o", "name", "--field-selector", "status.complete=true").stdout
    phase = kubectl("get", "vr", "-n", namespace, "-o", "name", "--field-selector", "status.phase=Succeeded").stdout
    assert "bare" in open_
    assert "done" not in open_
    assert closed == phase == "verifierrun.taskfold.dev/done\n"


def test_status_is_bounded(objects, kubectl, namespace):
    for status, what in [
        ({"warnings": ["w"] * 21}, "status.warnings: Too many"),
        ({"failure": {"reason": "Internal", "message": "x" * 2001}}, "status.failure.message: Too long"),
        ({"phase": "Dreaming"}, "status.phase: Unsupported value"),
        ({"journal": [{"phase": "seed", "nonce": "../x"}]}, "status.journal[0].nonce"),
    ]:
        patch = json.dumps({"status": status})
        result = kubectl(
            "patch",
            "vr",
            "bare",
            "-n",
            namespace,
            "--subresource=status",
            "--type=merge",
            "--dry-run=server",
            "-p",
            patch,
        )
        assert result.returncode == 1
        assert what in result.stderr
