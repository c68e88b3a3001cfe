"""The gateway's files and objects: whole against goldens, and what must hold of every one."""

import ipaddress
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taskfold.api import names as objects
from taskfold.api.gateway_settings import GatewaySettings
from taskfold.build.gateway import corefile, haproxy, manifests, names, ports, reach

GOLDENS = Path(__file__).parent / "goldens"
UID = "0d2ae9ac-6e0c-4c0c-9a4e-3d8c6c1d7b11"
DEFAULTS = GatewaySettings()
WANTED = manifests.Wanted(
    namespace="tasks",
    owner={"apiVersion": "taskfold.dev/v1alpha1", "kind": "VerifierRun", "name": "fix-bug-1-verify", "uid": UID},
    run="fix-bug",
    run_uid="11111111-2222-4333-8444-555555555555",
    attempt=1,
    hosts=("judge.example.com", "*.example.test"),
    placement={"nodeSelector": {"pool": "runs"}},
    deadline_seconds=30_000,
)
FULL = GatewaySettings(
    tls_ports=[443],
    cpu_limit="1",
    cluster_ranges=["51.0.0.0/16", "fd00:1::/48"],
    in_cluster_ranges=["10.96.7.7/32"],
    in_cluster_labels={"app": "judge"},
)
TOTAL_OF_ANNOTATIONS = 256 * 1024
"""What the API server takes."""


@pytest.mark.parametrize(("name", "settings"), [("allowlist", DEFAULTS), ("allowlist-full", FULL)])
def test_goldens(name: str, settings: GatewaySettings) -> None:
    found = [
        manifests.service(WANTED, settings),
        manifests.policy(WANTED, settings),
        manifests.pod(WANTED, settings, "10.96.3.4", 1),
    ]
    file = GOLDENS / f"{name}.yaml"
    text = yaml.safe_dump_all(found, sort_keys=True, width=110)
    if os.environ.get("TASKFOLD_GOLDENS") == "write":
        file.write_text(text)
    assert list(yaml.safe_load_all(file.read_text())) == found


@given(st.text(), st.text())
def test_no_name_changes_the_configuration(one: str, other: str) -> None:
    """A Corefile with any text for a name has as many lines, words in quotes and braces as one with another."""

    def shape(name: str) -> list[str]:
        text = corefile.text(names.Names((name,), (name,)), "10.0.0.1")
        return [line.split('"')[0] + f" {line.count(chr(34))} {line.count('{')}" for line in text.split("\n")]

    assert shape(one) == shape(other)


def test_nothing_is_forwarded() -> None:
    text = corefile.text(names.of(WANTED.hosts), "10.96.3.4")
    plugins = {
        line.split()[0] for line in text.splitlines() if line.startswith("    ") and not line.startswith("     ")
    }
    assert plugins == {"errors", "health", "ready", "bufsize", "log", "template", "}"}


def test_names_stand_in_lists_only() -> None:
    assert "example" not in haproxy.text(DEFAULTS)
    lists = haproxy.lists(names.of(WANTED.hosts), DEFAULTS)
    assert lists[haproxy.EXACT] == "judge.example.com\n"
    assert lists[haproxy.SUFFIX] == ".example.test\n"


def test_every_rule_that_refuses_says_why() -> None:
    """A reason that a rule sets has the condition of the rule that refuses, which stands right behind it."""
    lines = [line.strip() for line in haproxy.text(DEFAULTS).splitlines()]
    reasons = [n for n, line in enumerate(lines) if "set-var-fmt(txn.why)" in line]
    refusals = [
        n for n, line in enumerate(lines) if " reject if " in line or " return status 4" in line or " 502 " in line
    ]
    assert [n + 1 for n in reasons] == refusals
    for n in reasons:
        assert lines[n].split(" if ", 1)[1] == lines[n + 1].rsplit(" if ", 1)[1].removeprefix(" ")


def test_annotations_have_room_for_the_longest_list() -> None:
    label = "a" * 61
    hosts = tuple(f"*.{n:02d}{'.a' * 30}.{label}.{label}.{label}" for n in range(64))
    assert {len(host) for host in hosts} == {2 + 2 + 60 + 3 * 62}
    pod = manifests.pod(
        manifests.Wanted(**{**vars(WANTED), "hosts": hosts}),
        GatewaySettings(never_ranges=["10.0.0.0/8"] * 64),
        "10.96.3.4",
        1,
    )
    size = sum(len(key) + len(value) for key, value in pod["metadata"]["annotations"].items())
    assert size < TOTAL_OF_ANNOTATIONS / 2


def _pod(settings: GatewaySettings = DEFAULTS) -> dict[str, Any]:
    return manifests.pod(WANTED, settings, "10.96.3.4", 1)


def test_its_pod_is_restricted() -> None:
    """What Pod Security "restricted" asks of a pod."""
    spec = _pod()["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"]
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} == {"downwardAPI"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert not context["allowPrivilegeEscalation"]
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert set(context["capabilities"].get("add", ())) <= {"NET_BIND_SERVICE"}
        assert {"requests", "limits"} == set(container["resources"])


def test_its_configuration_is_all_mounted() -> None:
    pod = _pod()
    items = {item["path"]: item["fieldRef"]["fieldPath"] for item in pod["spec"]["volumes"][0]["downwardAPI"]["items"]}
    for path, field in items.items():
        assert field.removeprefix("metadata.annotations['").removesuffix("']") in pod["metadata"]["annotations"]
        assert path in {"Corefile", "haproxy.cfg"} or f"-f {haproxy.FOLDER}/{path}" in haproxy.text(DEFAULTS)


@pytest.mark.parametrize("settings", [DEFAULTS, FULL])
def test_only_what_is_served_is_let_in(settings: GatewaySettings) -> None:
    served = {(port["protocol"], port["targetPort"]) for port in manifests.service(WANTED, settings)["spec"]["ports"]}
    (rule,) = manifests.policy(WANTED, settings)["spec"]["ingress"]
    own = reach.egress(WANTED.owner["uid"], settings)
    assert {(port["protocol"], port["port"]) for port in rule["ports"]} == served
    assert own["ports"] == rule["ports"]
    assert not {ports.DNS_ALIVE, ports.DNS_READY, ports.PROXY_READY} & {port for _, port in served}
    assert rule["from"] == [{"podSelector": {"matchLabels": {objects.NETWORK_OF: UID, objects.NETWORK: "allowlist"}}}]


def test_the_selector_is_the_pods_and_of_one_gateway() -> None:
    pod, selector = _pod(), reach.selector(WANTED.owner["uid"])
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert manifests.service(WANTED, DEFAULTS)["spec"]["selector"] == selector
    assert own_of(WANTED) == {"podSelector": {"matchLabels": selector}}
    another = manifests.Wanted(**{**vars(WANTED), "owner": {**WANTED.owner, "uid": "another"}})
    assert reach.selector(another.owner["uid"]) != selector


def own_of(wanted: manifests.Wanted) -> dict[str, Any]:
    (peer,) = reach.egress(wanted.owner["uid"], DEFAULTS)["to"]
    return peer


def test_exceptions_lie_inside_of_what_they_are_taken_from() -> None:
    """The API server refuses others."""
    (world,) = (
        peer["ipBlock"]
        for rule in manifests.policy(WANTED, FULL)["spec"]["egress"]
        for peer in rule["to"]
        if "except" in peer.get("ipBlock", {})
    )
    whole = ipaddress.ip_network(world["cidr"])
    assert "51.0.0.0/16" in world["except"]
    for each in world["except"]:
        assert ipaddress.ip_network(each).subnet_of(whole)  # type: ignore[arg-type]


@pytest.mark.parametrize("ports_", [[443, 443], [53], [80], [], [55_536], [0]])
def test_ports_that_do_not_fit_are_refused(ports_: list[int]) -> None:
    with pytest.raises(ValueError, match="tls"):
        GatewaySettings(tls_ports=ports_)


def test_names_are_labels_for_a_service() -> None:
    assert len(objects.gateway(UID)) <= objects.MAX_LABEL
    assert objects.gateway_pod(UID, 2) == f"gateway-{UID}-2"
