"""What a security profile puts into a sandbox pod: security contexts, and the volumes that a user without rights needs.

Guarantees: every container drops all capabilities and gets none back but the operator's closed list; in `restricted`
every part of a pod, the containers that wait included, is what Pod Security "restricted" admits. A pod never gets
more than its profile, whatever a task says.
"""

from __future__ import annotations

from typing import Any

from taskfold.api.settings import PodSettings
from taskfold.api.taskrun import SecurityProfile, TaskRun

NOBODY = 65532
"""A user that no image gives rights to."""

NO_RIGHTS: dict[str, Any] = {
    "runAsUser": NOBODY,
    "runAsGroup": NOBODY,
    "runAsNonRoot": True,
    "privileged": False,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Of our own containers, which need nothing but what they are given."""

AS_THE_IMAGE: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Of the container that records the image's own user: no runAsUser."""

HOUSEKEEPING = ("/tests", "/logs")
"""Folders that nobody but root could make in an image; /solution is the oracle's."""


def of_pod(profile: SecurityProfile) -> dict[str, Any]:
    """Fields of the pod's spec."""
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    match profile:
        case SecurityProfile.USERNS:
            return {"hostUsers": False, "securityContext": context}
        case SecurityProfile.RESTRICTED:
            return {"securityContext": {"runAsNonRoot": True, **context}}
        case SecurityProfile.ROOT:
            return {"securityContext": context}


def of_main(profile: SecurityProfile, uid: int | None, gid: int | None, settings: PodSettings) -> dict[str, Any]:
    """The security context of the container that holds the task.

    `uid`, `gid`: of a restricted pod. None: the image's own user; without a group that of /etc/passwd, else 0, as it is
    for a uid of task.toml.
    """
    if profile is SecurityProfile.RESTRICTED:
        user = {} if uid is None else {"runAsUser": uid} | ({} if gid is None else {"runAsGroup": gid})
        return {**user, "runAsNonRoot": True, "privileged": False, **AS_THE_IMAGE}
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"], "add": list(settings.capabilities)},
    }


def empty_folders(run: TaskRun, profile: SecurityProfile) -> tuple[str, ...]:
    """Folders of a restricted pod that are volumes of their own, because its user could not make them."""
    if profile is not SecurityProfile.RESTRICTED:
        return ()
    own = run.spec.security.empty_dirs if run.spec.security is not None else ()
    solution = ("/solution",) if run.spec.agent.oracle is not None else ()
    return (*HOUSEKEEPING, *solution, *sorted(own))


def volumes(folders: tuple[str, ...], size: str) -> list[dict[str, Any]]:
    """One emptyDir for each folder, as large as the container's own limit of storage."""
    return [{"name": _name(n), "emptyDir": {"sizeLimit": size}} for n in range(len(folders))]


def mounts(folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Where `volumes` of the same folders lie."""
    return [{"name": _name(n), "mountPath": path} for n, path in enumerate(folders)]


def _name(number: int) -> str:
    return f"folder-{number}"
