"""Fields of the schema that this version does not implement yet: refused at admission, never ignored."""

from __future__ import annotations

from typing import assert_never

from .task_source import FolderSource
from .taskrun import TaskRun, TaskRunSpec
from .verifierrun import VerifierRun

_REMEDIES = {
    "spec.task.archive": "Use task.inline or task.configMap.",
    "spec.task.oci": "Use task.inline or task.configMap.",
    "spec.task.git": "Use task.inline or task.configMap.",
    "spec.agent.profile": "Use agent.script.",
    "spec.tests.archive": "Use tests.inline or tests.configMap.",
    "spec.tests.oci": "Use tests.inline or tests.configMap.",
    "spec.tests.git": "Use tests.inline or tests.configMap.",
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
        "spec.mcpGrants": spec.mcp_grants is not None,
        "spec.composeOverlay": spec.compose_overlay is not None,
    }
    return found + [path for path, is_set in checks.items() if is_set]


def _verifier_run(run: VerifierRun) -> list[str]:
    return _sources("spec.tests", run.spec.tests) if run.spec.tests is not None else []


def _sources(path: str, source: FolderSource) -> list[str]:
    later = {"archive": source.archive, "oci": source.oci, "git": source.git}
    return [f"{path}.{name}" for name, value in later.items() if value is not None]
