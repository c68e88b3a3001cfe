"""Whether a NetworkPolicy of somebody else allows a restricted pod more than its own one does.

Guarantee: policies add up, so that one which selects the pod and has any rule at all for a direction that it speaks of
counts as wider: what its rules come to is not weighed.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def widens(policy: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether this policy, none of the pod's own, allows a pod of these labels anything."""
    spec = policy.get("spec") or {}
    if "deletionTimestamp" in policy["metadata"] or not selects(spec.get("podSelector") or {}, labels):
        return False
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    return any(spec.get(direction.lower()) for direction in types)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector of the API selects these labels; the empty one selects all."""
    exact = selector.get("matchLabels") or {}
    wanted = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _holds(each["key"], each["operator"], each.get("values") or (), labels) for each in wanted
    )


def _holds(key: str, operator: str, values: Sequence[str], labels: Mapping[str, str]) -> bool:
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return True  # an operator of a later Kubernetes: rather too careful
