"""Fields of the schema that this version does not implement yet: refused at admission, never ignored."""

from __future__ import annotations

from typing import assert_never

from . import common
from .status import Mode
from .task_source import FolderSource
from .taskrun import TaskRun, TaskRunSpec
from .verifierrun import VerifierRun

_REMEDIES = {
    "spec.task.archive": "Use task.inline or task.configMap.",
    "spec.task.oci": "Use task.inline or task.configMap.",
    "spec.task.git": "Use task.inline or task.configMap.",
    "spec.agent.profile": "Use agent.script.",
    "spec.verifier.mode": "Use shared, or leave it out.",
    "spec.mode": "Use shared.",
    "spec.security": "Leave it out: a shared verification works in the run's own pod.",
    "spec.source.runRef": "Grading again comes later: the operator makes VerifierRuns for its TaskRuns.",
}


def unsupported(run: TaskRun | VerifierRun) -> list[str]:
    """Dotted paths of fields that are set and not implemented yet. Empty: all is supported."""
    match run:
        case TaskRun():
            return _task_run(run.spec)
        case VerifierRun():
            return _verifier_run(run)
        case _:
            assert_never(run)


def message(paths: list[str]) -> str:
    """What a user reads about the paths: each with what to write instead."""
    return " ".join(
        f"{path} is not supported yet by this version. {_REMEDIES.get(path, 'Leave it out.')}" for path in paths
    )


def _task_run(spec: TaskRunSpec) -> list[str]:
    found = _sources("spec.task", spec.task)
    checks = {
        "spec.agent.profile": spec.agent.profile is not None,
        "spec.verifier.mode": spec.verifier is not None and spec.verifier.mode is Mode.SEPARATE,
        "spec.network.agent": spec.network is not None and spec.network.agent is not None,
        "spec.mcpGrants": spec.mcp_grants is not None,
        "spec.composeOverlay": spec.compose_overlay is not None,
        "spec.artifacts": bool(spec.artifacts),
    }
    return found + [path for path, is_set in checks.items() if is_set]


def _verifier_run(run: VerifierRun) -> list[str]:
    spec = run.spec
    checks = {
        "spec.source.runRef": not _made_for(run),
        "spec.mode": spec.mode is Mode.SEPARATE,
        "spec.tests": spec.tests is not None,
        "spec.network": spec.network is not None,
        "spec.security": spec.security is not None,
    }
    return [path for path, is_set in checks.items() if is_set]


def _made_for(run: VerifierRun) -> bool:
    """The operator made it for the TaskRun that it grades; else it is a free-standing one, a regrade."""
    return any(
        owner.controller and owner.kind == TaskRun.KIND and owner.api_version == common.API_VERSION
        and owner.uid == run.spec.source.run_ref.uid
        for owner in run.metadata.owner_references
    )  # fmt: skip


def _sources(path: str, source: FolderSource) -> list[str]:
    later = {"archive": source.archive, "oci": source.oci, "git": source.git}
    return [f"{path}.{name}" for name, value in later.items() if value is not None]
