"""Specs with as little and as much as can be, and what a change to each field looks like."""

from __future__ import annotations

from typing import Any

from taskfold.api import crd
from taskfold.api.common import Resource, Spec

INLINE = {"inline": {"files": {"task.toml": "", "tests/test.sh": "exit 0\n"}}}
BARE = {"task": INLINE, "agent": {"oracle": {}}, "suspend": True}
FULL: dict[str, Any] = {
    "task": INLINE | {"path": "a", "id": "b"},
    "agent": {"external": {}},
    "finish": {"outcome": "Succeeded", "response": "done"},
    "verifier": {"mode": "shared", "timeoutSeconds": 2.5, "env": [{"name": "A", "value": "1"}]},
    "environmentFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}],
    "secretsFrom": [{"name": "s"}],
    "network": {"agent": {"mode": "allowlist", "allowedHosts": ["*.example.org"]}},
    "dialect": "harbor",
    "mcpGrants": "required",
    "composeOverlay": {"name": "c", "keys": ["k"]},
    "multipliers": {"timeout": 2, "resource": 1.5},
    "pod": {
        "labels": {"team": "a"},
        "annotations": {"note": "x"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["a"]}]}]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "podAffinityTerm": {"topologyKey": "h", "labelSelector": {"matchLabels": {"a": "b"}}},
                    }
                ]
            },
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}],
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
        "imagePullSecrets": [{"name": "pull"}],
        "resources": {"requests": {"cpu": 1, "memory": "512Mi"}, "limits": {"ephemeral-storage": "1Gi"}},
        "serviceAccountName": "runner",
    },
    "security": {"profile": "root"},
    "onAgentCausedLoss": "zero",
    "retries": {"infrastructure": 2},
    "artifacts": [{"source": "/app", "destination": "app", "exclude": ["*.o"]}],
    "ttlSecondsAfterFinished": 60,
    "podRetention": "OnFailure",
    "suspend": True,
    "cancel": False,
}
OTHER: dict[str, Any] = {
    "task": {"id": "other"},
    "agent": {"external": None, "oracle": {}},
    "verifier": {"timeoutSeconds": 3},
    "environmentFrom": [{"configMapRef": {"name": "d"}}],
    "secretsFrom": [{"name": "t"}],
    "network": {"agent": {"allowedHosts": ["b.example.org"]}},
    "dialect": "gym",
    "mcpGrants": "none",
    "composeOverlay": {"keys": ["k", "l"]},
    "multipliers": {"timeout": 3},
    "pod": {"affinity": {"nodeAffinity": None}},
    "security": {"profile": "userns"},
    "onAgentCausedLoss": "mask",
    "retries": {"infrastructure": 3},
    "artifacts": [{"source": "/app2"}],
}
SOURCE = {"runRef": {"name": "a", "uid": "u"}}
VERIFIER_BARE = {"source": SOURCE, "mode": "shared"}
VERIFIER_FULL = {
    "source": SOURCE,
    "mode": "separate",
    "tests": INLINE,
    "step": "one",
    "force": True,
    "timeoutSeconds": 5,
    **{name: FULL[name] for name in ("environmentFrom", "secretsFrom", "pod", "security")},
    "env": [{"name": "A", "value": "1"}],
    "network": {"mode": "no-network"},
}
VERIFIER_OTHER: dict[str, Any] = {
    "source": {"runRef": {"uid": "v"}},
    "mode": "shared",
    "tests": {"inline": {"files": {"more": ""}}},
    "step": "two",
    "force": False,
    "timeoutSeconds": 6,
    **{name: OTHER[name] for name in ("environmentFrom", "secretsFrom", "pod", "security")},
    "env": [{"name": "A", "value": "2"}],
    "network": {"mode": "public"},
}


def fixed(spec: type[Spec]) -> list[str]:
    """Names on the wire of the fields that may not change."""
    return [str(field.alias) for name, field in spec.model_fields.items() if name not in spec.MUTABLE]


def appearing(kind: type[Resource]) -> list[str]:
    """Fixed fields that can be absent: neither required nor filled in by the API server."""
    schema = crd.schema(kind)["properties"]["spec"]
    spec = kind.model_fields["spec"].annotation
    assert isinstance(spec, type)
    return [
        name for name in fixed(spec) if name not in schema["required"] and "default" not in schema["properties"][name]
    ]
