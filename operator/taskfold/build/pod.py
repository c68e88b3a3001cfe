"""The sandbox pod of one try.

Guarantees: no service account token, no service links, seccomp RuntimeDefault, explicit capabilities, requests and
limits for CPU, memory and storage, a deadline for the case that no operator lives. No secret value and nothing that
a template could fill stands in it. The first process of `main` is the helper, never the image's own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from taskfold import protocol
from taskfold.api import names
from taskfold.api.common import API_VERSION
from taskfold.api.settings import HelperSettings, PodSettings, Settings
from taskfold.api.taskrun import PodRetention, TaskRun
from taskfold.build import environment
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Task

HELPER_FOLDER = "/.taskfold"
HELPER = f"{HELPER_FOLDER}/helper"
MAIN = "main"
RECORD = "record"
COPY = "helper"

DO_NOT_DISTURB = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
NOBODY = 65532
"""A user that no image gives rights to."""
GRACE_SECONDS = 5
"""The helper ends at once on SIGTERM; this is for a node under load."""


@dataclass(frozen=True)
class PodPlan:
    """What is decided about the pod before it is built. `image_volumes`: whether the cluster mounts images."""

    name: str
    attempt: int
    record: bool
    image_volumes: bool
    limit_seconds: float


def manifest(
    run: TaskRun, task: Task, settings: Settings, plan: PodPlan, recorded: RecordedImage | None
) -> dict[str, Any]:
    """The pod's manifest. The same arguments give the same manifest."""
    options = run.spec.pod
    image = recorded.pinned if recorded is not None else task.image.reference
    pull = settings.pod.image_pull_policy
    main = {
        "name": MAIN,
        "image": image,
        "imagePullPolicy": pull,
        "command": [HELPER, "init", "--name", MAIN],
        "env": [
            # Kubernetes expands $(NAME) in values; the contract's values are taken as they are written.
            {"name": name, "value": value.replace("$", "$$")}
            for name, value in environment.of_container(run, task, recorded).items()
        ],
        "resources": _resources(run, task, settings.pod),
        "securityContext": _as_root(settings.pod),
        "volumeMounts": [_helper_mount()],
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": _init_containers(image, pull, settings, plan),
        "containers": [main],
        "volumes": [_helper_volume(settings, plan)],
    }
    if run.spec.pod_retention is PodRetention.NEVER:
        deadline = plan.limit_seconds + settings.limits.queue_seconds + settings.limits.outage_seconds
        spec["activeDeadlineSeconds"] = math.ceil(deadline)
    if options is not None:
        wire = options.wire()
        spec |= {key: wire[key] for key in _PLACEMENT if wire.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(run, plan.name, "sandbox", plan.attempt),
        "spec": spec,
    }


def waiter(nonce: str, helper: HelperSettings) -> dict[str, Any]:
    """The ephemeral container that ends when this phase of `main` is done. It has no rights and nothing of the run.

    Such a container has no resources of its own: its few MiB count as the pod's.
    """
    return {
        "name": names.waiter(nonce),
        "image": helper.image,
        "imagePullPolicy": helper.image_pull_policy,
        "command": ["/helper", "wait", "--name", MAIN, "--nonce", nonce],
        "securityContext": {
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "runAsNonRoot": True,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


_PLACEMENT = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "imagePullSecrets",
    "serviceAccountName",
)


def metadata(run: TaskRun, name: str, role: str, attempt: int) -> dict[str, Any]:
    """Metadata of a child: owned by the run, found by its labels."""
    options = run.spec.pod
    status = run.status.admitted
    return {
        "name": name,
        "namespace": run.metadata.namespace,
        "labels": {
            **(options.labels if options else {}),
            names.MANAGED_BY: names.OPERATOR,
            names.RUN: run.metadata.name,
            names.RUN_UID: run.metadata.uid,
            names.ROLE: role,
            names.ATTEMPT: str(attempt),
            names.PROTOCOL: str(protocol.PROTOCOL),
        },
        "annotations": {
            **(options.annotations if options else {}),
            **DO_NOT_DISTURB,
            **({names.TASK_DIGEST: status.task_digest} if status and status.task_digest else {}),
        },
        "ownerReferences": [owner(run)],
    }


def owner(run: TaskRun) -> dict[str, Any]:
    """The controller reference that makes the garbage collector take a child with its run."""
    return {
        "apiVersion": API_VERSION,
        "kind": run.KIND,
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _init_containers(image: str, pull: str, settings: Settings, plan: PodPlan) -> list[dict[str, Any]]:
    small = {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "64Mi"}
    resources = {"requests": small, "limits": {"memory": "128Mi", "ephemeral-storage": "256Mi"}}
    containers = []
    if not plan.image_volumes:
        containers.append(
            {
                "name": COPY,
                "image": settings.helper.image,
                "imagePullPolicy": settings.helper.image_pull_policy,
                "command": ["/helper", "copy", HELPER_FOLDER],
                "resources": resources,
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "helper", "mountPath": HELPER_FOLDER}],
            }
        )
    if plan.record:
        containers.append(
            {
                # No runAsUser: what is recorded is the image's own user.
                "name": RECORD,
                "image": image,
                "imagePullPolicy": pull,
                "command": [HELPER, "record"],
                "resources": resources,
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [_helper_mount()],
            }
        )
    return containers


def _helper_volume(settings: Settings, plan: PodPlan) -> dict[str, Any]:
    if plan.image_volumes:
        source = {"reference": settings.helper.image, "pullPolicy": settings.helper.image_pull_policy}
        return {"name": "helper", "image": source}
    return {"name": "helper", "emptyDir": {"sizeLimit": "64Mi"}}


def _helper_mount() -> dict[str, Any]:
    return {"name": "helper", "mountPath": HELPER_FOLDER, "readOnly": True}


def _as_root(pod: PodSettings) -> dict[str, Any]:
    """The `root` profile: housekeeping as root with a runtime's usual capabilities, NET_RAW left out."""
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"], "add": list(pod.capabilities)},
    }


def _resources(run: TaskRun, task: Task, defaults: PodSettings) -> dict[str, Any]:
    """Limits: the run's, else the task's times the multiplier, else the operator's. Requests likewise."""
    table, factor = task.config.environment, run.spec.multipliers.resource if run.spec.multipliers else 1.0
    requests = {
        "cpu": defaults.cpu_request,
        "memory": defaults.memory_request,
        "ephemeral-storage": defaults.storage_request,
    }
    limits = {"memory": defaults.memory_limit, "ephemeral-storage": defaults.storage_limit}
    if defaults.cpu_limit is not None:
        limits["cpu"] = defaults.cpu_limit
    if table.cpus is not None:
        millis = math.ceil(table.cpus * factor * 1000)
        limits["cpu"] = f"{millis}m"
        requests["cpu"] = f"{max(1, math.ceil(millis * defaults.cpu_request_fraction))}m"
    if table.memory_mb is not None:
        mebibytes = math.ceil(table.memory_mb * factor)
        limits["memory"] = f"{mebibytes}Mi"
        requests["memory"] = f"{max(1, math.ceil(mebibytes * defaults.memory_request_fraction))}Mi"
    if table.storage_mb is not None:
        # The contract rounds storage up to whole GiB, one at least.
        gibibytes = max(1, math.ceil(table.storage_mb * factor / 1024))
        limits["ephemeral-storage"] = f"{gibibytes}Gi"
        requests["ephemeral-storage"] = f"{max(1, math.ceil(gibibytes * 1024 * defaults.storage_request_fraction))}Mi"
    own: Mapping[str, Any] = run.spec.pod.resources.wire() if run.spec.pod and run.spec.pod.resources else {}
    limits |= {name: str(value) for name, value in (own.get("limits") or {}).items()}
    requests |= {name: str(value) for name, value in (own.get("requests") or {}).items()}
    # A default request above a limit would make a pod that is refused: the limit is what was asked for.
    for name, limit in limits.items():
        if name in requests and name not in (own.get("requests") or {}) and _amount(requests[name]) > _amount(limit):
            requests[name] = limit
    return {"requests": requests, "limits": limits}


_UNITS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_UNITS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _amount(quantity: str) -> Fraction:
    """A Kubernetes quantity as a number: `500m`, `2`, `1Gi`, `1e3`."""
    if quantity[-2:] in _BINARY_UNITS:
        return Fraction(quantity[:-2]) * Fraction(1 << _BINARY_UNITS[quantity[-2:]])
    unit = quantity[-1] if quantity[-1] in _UNITS else ""
    power = _UNITS[unit]
    scale = Fraction(10**power) if power >= 0 else Fraction(1, 10**-power)
    return Fraction(quantity.removesuffix(unit)) * scale
