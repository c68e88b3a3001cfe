"""The gateway of an allowlist, on a real cluster: what a client behind it reaches, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from taskfold.api import names as objects
from taskfold.build.gateway import log, manifests
from tests.conformance import gateways, harness, inside, walk

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

INSIDE = ("node", "neighbour", "loopback", "metadata", "api", "six", "mapped")
"""Allowed names whose servers say that they are where no name may lead."""
HOSTS = (
    "allowed.test",
    "other.test",
    "*.example.test",
    *(f"{name}.test" for name in INSIDE),
    "nowhere.test",
    "rotating.test",
)
ROTATING = 64
CONNECTIONS = 128


@dataclass(frozen=True)
class Scene:
    """`at`: addresses of the pods that play the internet. `found`: what each row of `walk` came to."""

    cluster: harness.Cluster
    namespace: str
    at: dict[str, str]
    gateway: gateways.Gateway
    owner: str
    found: dict[str, Any]


@pytest.fixture(scope="module")
def scene(cluster: harness.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    namespace = cluster.create_namespace("gateway")
    named = (*HOSTS, "example.test", "unlisted.test", "notexample.test")
    try:
        files = gateways.certificate(tmp_path_factory.mktemp("certificate"), named)
        yield walked(cluster, namespace, files)
    finally:
        cluster.delete_namespace(namespace)


def walked(cluster: harness.Cluster, namespace: str, files: dict[str, str]) -> Scene:
    core = cluster.core
    at = gateways.internet(cluster, namespace, files, ("a", "b", "neighbour"))
    ports = [{"name": f"tls-{port}", "port": port} for port in (443, 8443)]
    rotating = [gateways.service(cluster, namespace, f"rotating-{n}", "b", ports) for n in range(ROTATING)]
    nodes = [node.status.addresses[0].address for node in core.list_node().items]
    api = core.read_namespaced_service("kubernetes", "default").spec.cluster_ip
    zone = {
        "allowed.test": {"A": [at["a"]]},
        "unlisted.test": {"A": [at["a"]]},
        "other.test": {"A": [at["b"]]},
        "*.example.test": {"A": [at["b"]]},
        "*.b.example.test": {"A": [at["b"]]},
        "node.test": {"A": [nodes[0]]},
        "neighbour.test": {"A": [at["neighbour"]]},
        "loopback.test": {"A": ["127.0.0.1"]},
        "metadata.test": {"A": ["169.254.169.254"]},
        "api.test": {"A": [api]},
        "six.test": {"AAAA": ["fd00::1"]},
        "mapped.test": {"AAAA": [f"::ffff:{at['a']}"]},
        "rotating.test": {"A": rotating},
    }
    inside.shell(cluster, namespace, "a", f"cat > /tmp/zone.json <<'END'\n{json.dumps(zone)}\nEND")
    wanted = gateways.wanted(cluster, namespace, "owner", HOSTS)
    settings = gateways.settings(
        in_cluster_ranges=[f"{each}/32" for each in (at["a"], at["b"], *rotating)],
        dns_namespace=namespace,
        dns_labels={"name": "a"},
    )
    gateway = gateways.make(cluster, wanted, settings, name_server=at["a"])
    sandbox = gateways.restricted(cluster, wanted, settings, gateway)
    for source, target, what in (("a", "b", "open"), ("neighbour", "b", "open"), (sandbox, "a", walk.BLOCKED)):
        gateways.until_connected(cluster, namespace, source, at[target], what)
    known = {
        **at,
        "gateway": gateway.address,
        "gateway_pod": gateways.address(cluster, namespace, gateway.pod),
        "node": nodes[0],
        "other_node": nodes[-1],
        "api": api,
        "dns": core.read_namespaced_service("kube-dns", "kube-system").spec.cluster_ip,
        "rotating": str(CONNECTIONS),
    }
    output = inside.shell(cluster, namespace, sandbox, f"python3 /scene/walk.py '{json.dumps(known)}'")
    return Scene(cluster, namespace, at, gateway, wanted.owner["uid"], json.loads(output.removeprefix(walk.FOUND)))


def by(server: str, port: int, host: str, sni: str | None) -> dict[str, Any]:
    return {"by": server, "port": port, "host": host, "sni": sni}


REACHED = {
    "tls": by("a", 443, "allowed.test", "allowed.test"),
    "http": by("a", 80, "allowed.test", None),
    "tls other server": by("b", 443, "other.test", "other.test"),
    "tls 8443": by("a", 8443, "allowed.test", "allowed.test"),
    "tls below": by("b", 443, "www.example.test", "www.example.test"),
    "http below, two labels": by("b", 80, "a.b.example.test", None),
    "mixed case": by("a", 443, "AlloWed.TEST", "AlloWed.TEST"),
    "http with port": by("a", 80, "allowed.test:80", None),
    # A documented limit: inside of TLS nobody reads.
    "fronting": by("a", 443, "unlisted.test", "allowed.test"),
    "second request elsewhere": ["a", "b"],
    "rotating": {"b": CONNECTIONS},
}
REFUSED = {
    **dict.fromkeys(
        ("unlisted tls", "unlisted http", "apex", "ends alike", "ends alike, suffix"),
        walk.UNKNOWN,
    ),
    **dict.fromkeys(("forced tls", "forced tls, apex", "forced tls, suffix", "no sni"), walk.CLOSED),
    "forced http": "403",
    "forced http, comma": "400",
    "absolute form differs": "400",
    "absolute form differs, other way": "400",
    "two hosts": "400",
    "two hosts, other way": "400",
    "http/2 without asking": "400",
    "no host": "403",
    "no host, version 1.0": "403",
    "connect": "405",
    "second request refused": ["a", "403"],
    **dict.fromkeys(("http on 443", "ssh on 443", "silence on 443"), ""),
    "tls 9443": walk.BLOCKED,
    **{f"{name} tls": walk.CLOSED for name in INSIDE},
    **{f"{name} http": "403" for name in INSIDE},
    "nowhere tls": walk.CLOSED,
    "nowhere http": "502",
    **dict.fromkeys(("udp to a pod", "cluster dns", "internet's dns"), walk.BLOCKED),
}
DNS = {
    **dict.fromkeys(("dns a", "dns a, tcp", "dns a, mixed case", "dns a, below"), "0:1"),
    **dict.fromkeys(("dns aaaa", "dns https", "dns txt"), "0:0"),
    **dict.fromkeys(("dns txt, unlisted", "dns ptr", "dns any, unlisted", "dns apex", "dns cluster name"), "3:0"),
}


@pytest.mark.parametrize("row", [*REACHED, *REFUSED, *DNS])
def test_what_comes_of_it(scene: Scene, row: str) -> None:
    assert scene.found[row] == {**REACHED, **REFUSED, **DNS}[row]


def test_nothing_is_reached_past_the_gateway(scene: Scene) -> None:
    direct = {title: result for title, result in scene.found.items() if title.startswith("direct ")}
    assert len(direct) == 11
    assert set(direct.values()) == {walk.BLOCKED}


def test_no_row_is_left_out(scene: Scene) -> None:
    titles = {title for title in scene.found if not title.startswith("direct ")}
    assert titles == {*REACHED, *REFUSED, *DNS}


def test_only_allowed_names_are_asked_for_outside(scene: Scene) -> None:
    asked = inside.shell(scene.cluster, scene.namespace, "a", "cat /tmp/asked").split("\n")
    names = {line.split(" ")[1] for line in asked if line}
    assert "allowed.test" in names
    assert {name for name in names if name not in HOSTS and not name.endswith(".example.test")} == set()


def test_refusals_are_counted_by_name(scene: Scene) -> None:
    def lines(container: str) -> list[str]:
        text = scene.cluster.core.read_namespaced_pod_log(scene.gateway.pod, scene.namespace, container=container)
        return text.splitlines()

    dns, proxy = lines(manifests.DNS), lines(manifests.PROXY)
    found = log.refusals(dns, proxy)
    assert found.names["unlisted.test"] >= 6
    assert found.names["node.test"] == 2
    assert found.names["allowed.test"] == 1  # CONNECT
    assert found.total >= sum(found.names.values())
    said = {line.split(" ")[1] for line in proxy if line.startswith(("tls ", "http "))}
    assert {"why=name", "why=address", "why=no-tls", "why=method", "why=unknown"} <= said
    # The kubelet's questions are not in the log, and what was answered neither.
    assert [line for line in proxy if not line.startswith(("tls ", "http ", "["))] == []
    assert [line for line in proxy if "why=- state=--" in line] == []


def test_a_service_of_the_cluster_is_reached_where_it_is_let(scene: Scene) -> None:
    """With the cluster's own DNS, as the defaults have it: a judge that the administrator opens to verifiers."""
    cluster, namespace = scene.cluster, scene.namespace
    address = gateways.service(cluster, namespace, "judge", "b", [{"port": 80}])
    judge, other = (f"{name}.{namespace}.svc.cluster.local" for name in ("judge", "rotating-0"))
    wanted = gateways.wanted(cluster, namespace, "judges-owner", (judge, other))
    settings = gateways.settings(in_cluster_ranges=[f"{address}/32"], in_cluster_labels={"name": "b"})
    gateway = gateways.make(cluster, wanted, settings)
    sandbox = gateways.restricted(cluster, wanted, settings, gateway)
    ask = f"import walk; print(walk.http('{judge}')['by'], walk.http('{other}'), walk.http('allowed.test'))"
    assert inside.shell(cluster, namespace, sandbox, f'cd /scene && python3 -c "{ask}"').strip() == "b 403 unknown"


def test_pod_security_restricted_admits_its_pod(scene: Scene) -> None:
    core = scene.cluster.core
    name = f"{scene.namespace}-restricted"
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    core.create_namespace({"metadata": {"name": name, "labels": label}})
    try:
        wanted = manifests.Wanted(name, {"uid": gateways.RUN_UID}, "run", gateways.RUN_UID, 1, HOSTS)
        body = manifests.pod(wanted, gateways.settings(), "10.0.0.1", 1)
        del body["metadata"]["ownerReferences"]
        core.create_namespaced_pod(name, body, dry_run="All")
    finally:
        core.delete_namespace(name)


def test_all_of_it_goes_with_its_owner(scene: Scene) -> None:
    core, namespace = scene.cluster.core, scene.namespace
    core.delete_namespaced_config_map("owner", namespace)

    def left() -> list[str]:
        selector = f"{objects.NETWORK_OF}={scene.owner},{objects.NETWORK}=gateway"
        listings = (
            core.list_namespaced_pod,
            core.list_namespaced_service,
            scene.cluster.networking.list_namespaced_network_policy,
        )
        return [
            each.metadata.name for listing in listings for each in listing(namespace, label_selector=selector).items
        ]

    scene.cluster.until(lambda: not left(), "the gateway's objects gone", 60)
