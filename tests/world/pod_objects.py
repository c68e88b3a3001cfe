"""What the API server makes of a pod: its defaults, its first status, its grace, what may not change, and quota."""

from typing import Any

from taskfold.effects.client import Resource
from tests.world import ephemeral, refusals
from tests.world.refusals import Cause

Json = dict[str, Any]
_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def completed(obj: Json, now: str) -> Json:
    """The defaults of a pod that anything of ours reads, and its first status."""
    spec = obj.setdefault("spec", {})
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "securityContext": {},
    }
    obj["spec"] = {**defaults, **spec}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            obj["spec"][part] = [container(each) for each in spec[part]]
    status: Json = {"phase": "Pending", "qosClass": _quality(obj["spec"])}
    if spec.get("schedulingGates"):
        condition = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": now}
        condition |= {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
        status["conditions"] = [condition]
    return {**obj, "status": status}


def container(given: Json) -> Json:
    """A container with its defaults."""
    image = given.get("image", "")
    tagged = ":" in image.rsplit("/", 1)[-1] and not image.endswith(":latest")
    defaults = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent" if tagged else "Always",
    }
    return {**given, **{key: value for key, value in defaults.items() if key not in given}}


def with_ephemeral(spec: Json, asked: Json) -> Json:
    """A pod's spec with the ephemeral containers of another one, and nothing else of it."""
    wanted = (asked.get("spec") or {}).get("ephemeralContainers")
    kept = {key: value for key, value in spec.items() if key != "ephemeralContainers"}
    return {**kept, **({"ephemeralContainers": [container(each) for each in wanted]} if wanted else {})}


def _quality(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort."""
    containers = [each for part in ("containers", "initContainers") for each in spec.get(part) or ()]
    resources = [each.get("resources") or {} for each in containers]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    return "Guaranteed" if all(map(_guaranteed, resources)) else "Burstable"


def _guaranteed(resources: Json) -> bool:
    """Limits of both kinds, and requests that are equal or left to them."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return all(name in limits and requests.get(name, limits[name]) == limits[name] for name in ("cpu", "memory"))


def kept_quota(resource: Resource, quotas: list[Json], count: int, name: str) -> None:
    """`Refusal` 403 if one more object is too many for a ResourceQuota."""
    for quota in quotas:
        limit = ((quota.get("spec") or {}).get("hard") or {}).get(resource.plural)
        if limit is not None and count + 1 > int(limit):
            raise refusals.quota(resource, name, quota["metadata"]["name"], count, int(limit))


def counted_by_quota(pod: Json) -> bool:
    """An ended pod takes no place."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def grace(obj: Json, options: Json) -> int:
    """Seconds that are left to a pod under deletion: some only while it is on a node and has not ended."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked)


def causes(new: Json, old: Json | None, sub: str = "") -> list[Cause]:
    """What is wrong with a pod's spec, or with a change of it. `sub`: the subresource that it is changed by."""
    spec = new.get("spec") or {}
    if not spec.get("containers"):
        return [Cause("spec.containers", "FieldValueRequired", "Required value")]
    if old is None:
        forbidden = Cause(ephemeral.FIELD, "FieldValueForbidden", "Forbidden: cannot be set on create")
        return [forbidden] if spec.get("ephemeralContainers") else []
    if sub == ephemeral.SUBRESOURCE:
        return ephemeral.causes(spec, old["spec"])
    if new["spec"] is old["spec"]:
        return []
    # The scheduler binds a pod once.
    node = old["spec"].get("nodeName") or spec.get("nodeName")
    before = {**old["spec"], **({"nodeName": node} if node else {})}
    if _frozen(spec) == _frozen(before):
        return []
    text = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    text += "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
    return [Cause("spec", "FieldValueForbidden", text + " tolerations)")]


def _frozen(spec: Json) -> Json:
    """What of a pod's spec may not change."""
    kept = {key: value for key, value in spec.items() if key not in _MUTABLE}
    for part in ("containers", "initContainers"):
        kept[part] = [{key: each[key] for key in each if key != "image"} for each in kept.get(part) or ()]
    return kept
