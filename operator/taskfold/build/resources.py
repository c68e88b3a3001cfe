"""What a sandbox asks of a node: amounts with their limits, accelerators, and the nodes that have them.

Guarantees: the run's own amounts win over the task's, the task's over the operator's; no default request is above its
limit; an accelerator is a limit of an extended resource, never scaled by a multiplier; `gpu_types` and `tpu` become
rules about node labels beside those of the run, none of which is weakened.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from taskfold.api.settings import PodSettings
from taskfold.api.taskrun import TaskRun
from taskfold.contract.tables import EnvironmentTable
from taskfold.contract.task import Task

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def of_main(run: TaskRun, task: Task, defaults: PodSettings) -> dict[str, Any]:
    """Requests and limits: the run's, else the task's times the multiplier, else the operator's."""
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
    accelerators = _accelerators(table, defaults)
    limits |= accelerators
    requests |= accelerators  # Kubernetes has no share of an extended resource: both are the same
    own: Mapping[str, Any] = run.spec.pod.resources.wire() if run.spec.pod and run.spec.pod.resources else {}
    limits |= {name: str(value) for name, value in (own.get("limits") or {}).items()}
    requests |= {name: str(value) for name, value in (own.get("requests") or {}).items()}
    for name in accelerators.keys() & (own.get("limits") or {}).keys():
        requests[name] = limits[name]
    # A default request above a limit would make a pod that is refused: the limit is what was asked for.
    for name, limit in limits.items():
        if name in requests and name not in (own.get("requests") or {}) and _amount(requests[name]) > _amount(limit):
            requests[name] = limit
    return {"requests": requests, "limits": limits}


def cpus(run: TaskRun, task: Task, defaults: PodSettings) -> float | None:
    """The CPU limit that the sandbox really has, whoever set it; None without one."""
    limit = of_main(run, task, defaults)["limits"].get("cpu")
    return float(_amount(limit)) if limit is not None else None


def _accelerators(table: EnvironmentTable, settings: PodSettings) -> dict[str, str]:
    found = {settings.gpu_resource: str(table.gpus)} if table.gpus else {}
    if table.tpu is not None:
        found[settings.tpu_resource] = str(table.tpu.chips)
    return found


def placement(task: Task, settings: PodSettings, own: Mapping[str, Any]) -> dict[str, Any]:
    """`own`, the run's placement as fields of a pod's spec, with the nodes that have the task's accelerators.

    Types of a GPU are an affinity, of which one value must fit; those of a TPU a selector, as GKE wants it. What the
    run itself selects for the same label wins.
    """
    table, result = task.config.environment, dict(own)
    if table.tpu is not None:
        wanted = {settings.tpu_type_label: table.tpu.type, settings.tpu_topology_label: table.tpu.topology}
        result["nodeSelector"] = {**wanted, **(own.get("nodeSelector") or {})}
    if table.gpus and table.gpu_types:
        meant = [value for name in table.gpu_types for value in settings.gpu_types.get(name, [name])]
        types = {"key": settings.gpu_type_label, "operator": "In", "values": list(dict.fromkeys(meant))}
        result["affinity"] = _with_expression(own.get("affinity") or {}, types)
    return result


def _with_expression(affinity: Mapping[str, Any], expression: Mapping[str, Any]) -> dict[str, Any]:
    """The affinity with an expression that must hold too: in each of its terms, of which one must fit."""
    node = dict(affinity.get("nodeAffinity") or {})
    terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    node[REQUIRED] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), dict(expression)]} for term in terms
        ]
    }
    return {**affinity, "nodeAffinity": node}


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
