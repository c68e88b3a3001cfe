"""The role grants what the operator's code calls, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from taskfold.effects import client

PACKAGE = Path(__file__).resolve().parents[2] / "operator" / "taskfold"


def imported(path: Path) -> Iterator[Path]:
    """Modules of ours that this one imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("taskfold"):
            base = PACKAGE.parent / (node.module or "").replace(".", "/")
            names = [base.with_suffix(".py"), *(base / f"{each.name}.py" for each in node.names)]
            yield from (each for each in names if each.exists())


def reached(modules: set[Path]) -> set[Path]:
    """These modules and all that they import, however far."""
    found: set[Path] = set()
    while modules:
        found |= modules
        modules = {each for path in modules for each in imported(path)} - found
    return found


OPERATOR = sorted(
    path for path in reached(set((PACKAGE / "engine").glob("*.py"))) if path.parent.name in {"effects", "engine"}
)
"""What the operator's process runs; clients have modules of their own in effects."""

VERBS = {
    "get": ["get"],
    "list": ["list"],
    "create": ["create"],
    "apply": ["create", "patch"],
    "patch": ["patch"],
    "delete": ["delete"],
}
WRAPPERS = {"_delete": "delete", "_get": "get", "_values": "get", "_create": "create", "_remove": "delete"}
"""Methods of the engine that hand a resource on to a call of the client."""
BY_VARIABLE = {
    # (file, method): the resources that reach this call; None: only by way of WRAPPERS, seen there.
    ("apply.py", "delete"): None,
    ("sources.py", "get"): None,
    ("reconcile.py", "get"): ("TASKRUNS", "VERIFIERRUNS"),
    ("reconcile.py", "patch_status"): ("TASKRUNS", "VERIFIERRUNS"),
    ("janitor.py", "list"): ("PODS", "VERIFIERRUNS", "TASKRUNS", "NETWORKPOLICIES"),
    ("janitor.py", "get"): ("PODS", "VERIFIERRUNS", "TASKRUNS", "NETWORKPOLICIES"),
    ("restricting.py", "create"): None,
    ("restricting.py", "get"): ("SERVICES", "NETWORKPOLICIES", "PODS"),
    ("restricting.py", "delete"): None,
}
WATCHED = {
    "TaskRun.PLURAL": "TASKRUNS",
    "VerifierRun.PLURAL": "VERIFIERRUNS",
    "'pods'": "PODS",
    "'networkpolicies'": "NETWORKPOLICIES",
}
CANARY = {("", "pods", "list")}
"""In the release's own namespace."""

Permission = tuple[str, str, str]


def granted(rules: list[dict]) -> set[Permission]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def permissions(method: str, constant: str, subresource: str = "") -> Iterator[Permission]:
    resource: client.Resource = getattr(client, constant)
    if method == "patch_status":
        yield resource.group, f"{resource.plural}/status", "patch"
        return
    for verb in VERBS[WRAPPERS.get(method, method)]:
        yield resource.group, f"{resource.plural}/{subresource}" if subresource else resource.plural, verb


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def constant(node: ast.expr) -> str | None:
    """`api.PODS` → PODS."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "api":
        return node.attr
    return None


def of_call(path: Path, call: ast.Call) -> Iterator[Permission]:
    if not isinstance(call.func, ast.Attribute) or not call.args:
        return
    method, on = call.func.attr, ast.unparse(call.func.value)
    name = constant(call.args[0])
    if name is None:
        by_client = on.split(".")[-1] in {"client", "_client"} and (method in VERBS or method == "patch_status")
        if by_client:
            assert (path.name, method) in BY_VARIABLE, f"{path.name}: what does {ast.unparse(call)} reach?"
            for each in BY_VARIABLE[path.name, method] or ():
                yield from permissions(method, each)
    elif method in VERBS or method in WRAPPERS or method == "patch_status":
        below = [k.value.value for k in call.keywords if k.arg == "subresource" and isinstance(k.value, ast.Constant)]
        yield from permissions(method, name, *map(str, below))
    if (on, method) == ("api.PODS", "path") and "'exec'" in ast.unparse(call):
        yield from (("", "pods/exec", verb) for verb in ("get", "create"))
    if (on, method) == ("PODS", "path") and "'log'" in ast.unparse(call):
        yield "", "pods/log", "get"
    if (on, method) == ("kopf.on", "event"):
        plural = WATCHED[ast.unparse(call.args[2])]
        resource: client.Resource = getattr(client, plural)
        yield from ((resource.group, resource.plural, verb) for verb in ("list", "watch"))


def used() -> set[Permission]:
    return {each for path in OPERATOR for call in calls(path) for each in of_call(path, call)}


def of_leases() -> set[Permission]:
    """What is granted beside the served namespaces, in the release's own."""
    return {each for each in used() if each[1] == "leases"}


@pytest.mark.parametrize("cluster_wide", [False, True])
def test_granted_is_used(helm, cluster_wide):
    objects = helm.objects("ns", {"clusterWide": cluster_wide}, only="rbac")
    roles = {o["metadata"]["name"]: granted(o["rules"]) for o in objects if o["kind"] in ("Role", "ClusterRole")}
    served = "taskfold.ns.operator" if cluster_wide else "taskfold"
    assert roles == {served: used() - of_leases(), "taskfold-leader": of_leases(), "taskfold-canary": CANARY}


def test_without_canaries_nothing_about_networks_is_granted(helm):
    objects = helm.objects("ns", {"network": {"canary": {"enabled": False}}}, only="rbac")
    roles = {o["metadata"]["name"]: granted(o["rules"]) for o in objects if o["kind"] == "Role"}
    restricts = {each for each in used() if each[1] in ("networkpolicies", "services", "pods/log")}
    assert roles == {"taskfold": used() - of_leases() - restricts, "taskfold-leader": of_leases()}


def test_only_the_operators_own_lease_is_granted_and_only_in_its_own_namespace(helm):
    objects = helm.objects("system", {"namespaces": ["a"], "fullnameOverride": "mine"}, only="rbac")
    (role,) = [o for o in objects if o["metadata"]["name"] == "mine-leader" and o["kind"] == "Role"]
    assert role["metadata"]["namespace"] == "system"
    named = {verb: rule.get("resourceNames") for rule in role["rules"] for verb in rule["verbs"]}
    assert named == {"create": None, "get": ["mine"], "patch": ["mine"]}, "a creation cannot be granted by name"
    settings = one_settings(helm, {"fullnameOverride": "mine"})
    assert settings["leaderElection"]["leaseName"] == "mine"


def one_settings(helm, values: dict) -> dict:
    (found,) = helm.objects("system", values, only="configmap")
    return yaml.safe_load(found["data"]["settings.yaml"])


def test_without_election_no_lease_is_granted(helm):
    objects = helm.objects("system", {"leaderElection": {"enabled": False}}, only="rbac")
    assert not [o for o in objects if "leader" in o["metadata"]["name"]]


def test_secrets_and_configmaps_are_only_read_by_name():
    assert {verb for _, resource, verb in used() if resource in ("secrets", "configmaps")} == {"get"}


def test_a_role_and_a_binding_in_every_served_namespace(helm):
    given = {"namespaces": ["a", "b"], "leaderElection": {"enabled": False}, "network": {"canary": {"enabled": False}}}
    objects = helm.objects("system", given, only="rbac")
    assert sorted((o["kind"], o["metadata"]["namespace"]) for o in objects) == [
        (kind, namespace) for kind in ("Role", "RoleBinding") for namespace in "ab"
    ]
    for binding in (o for o in objects if o["kind"] == "RoleBinding"):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "taskfold", "namespace": "system"}]


def test_the_table_in_the_docs_is_what_is_used():
    lines = (PACKAGE.parents[1] / "docs" / "security.md").read_text().splitlines()
    start = lines.index("| group | resource | verbs | for |") + 2
    found: set[Permission] = set()
    for line in lines[start : lines.index("", start)]:
        group, resources, verbs = (cell.strip() for cell in line.strip("|").split("|")[:3])
        found |= granted([{"apiGroups": [group], "resources": resources.split(", "), "verbs": verbs.split(", ")}])
    assert found == used()
