"""Restricted networks of runs, on a real cluster: proven, watched, gone after, and every way to fail closed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taskfold.conformance.cases import separate
from tests.conformance import ahead, canaries, gateways, harness
from tests.conformance.harness import NOP, script, task

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NONE = {"mode": "no-network"}
TRY = """\
import json, socket, sys
found = {}
for host, port in [each.split(":") for each in sys.argv[1:]]:
    try:
        socket.create_connection((host, int(port)), 2).close()
        found[f"{host}:{port}"] = "open"
    except OSError as error:
        found[f"{host}:{port}"] = type(error).__name__
print("open" in found.values() and "open" or "closed")
print(json.dumps(found), file=sys.stderr)
"""


@dataclass(frozen=True)
class Place:
    """A namespace with canaries, which an operator serves."""

    cluster: harness.Cluster
    namespace: str
    operator: harness.Operator

    def targets(self) -> str:
        """The canaries and the API server."""
        pods = canaries.ready(self.cluster, self.namespace)
        api = self.cluster.core.read_namespaced_service("kubernetes", "default").spec.cluster_ip
        return " ".join([*(f"{pod.status.pod_ip}:{canaries.PORT}" for pod in pods), f"{api}:443"])


@pytest.fixture(scope="module")
def place(cluster: harness.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    namespace = cluster.create_namespace("network")
    try:
        canaries.make(cluster, namespace)
        folder = tmp_path_factory.mktemp("operator")
        limits = {"queueSeconds": 8, "retrySeconds": 1}
        operator = harness.Operator(
            folder, cluster.kubeconfig, [namespace], network=canaries.settings(namespace), limits=limits
        )
        operator.start()
        try:
            yield Place(cluster, namespace, operator)
        finally:
            operator.stop()
    finally:
        cluster.delete_namespace(namespace)


def tried(targets: str) -> str:
    return f"python3 - {targets} > /app/found <<'E'\n{TRY}E\n"


CLOSED = "grep -qx closed /app/found && echo 1 > /logs/verifier/reward.txt\n"


def test_an_agent_without_network_reaches_nobody(place: Place, name: str) -> None:
    spec = harness.spec(task(CLOSED), script(tried(place.targets())), network={"agent": NONE})
    place.cluster.create_run(place.namespace, name, spec)
    status = place.cluster.finished(place.namespace, name)
    assert status["reward"] == "1", status
    network = status["network"]
    assert (network["mode"], network["enforced"], network["mechanism"]) == ("no-network", True, "NetworkPolicy")
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["NetworkEnforced"] == "True"
    uid = place.cluster.run(place.namespace, name)["metadata"]["uid"]
    assert uid not in str(place.cluster.networking.list_namespaced_network_policy(place.namespace).items)


def test_without_a_restriction_the_same_agent_reaches_them(place: Place, name: str) -> None:
    place.cluster.create_run(place.namespace, name, harness.spec(task(CLOSED), script(tried(place.targets()))))
    status = place.cluster.finished(place.namespace, name)
    assert (status["reward"], status.get("network")) == ("0", None)


def test_a_separate_verifier_without_network_reaches_nobody(place: Place, name: str) -> None:
    files = task(tried(place.targets()).replace("/app/found", "/tmp/found") + CLOSED.replace("/app", "/tmp"))
    files["task.toml"] = separate.toml(f'{separate.MODE}network_mode = "no-network"\n')
    place.cluster.create_run(place.namespace, name, harness.spec(files, NOP))
    status = place.cluster.finished(place.namespace, name)
    assert (status["reward"], status["verifier"]["mode"]) == ("1", "separate"), status
    verifier = place.cluster.verifier(place.namespace, status["verifier"]["name"])["status"]
    assert (verifier["network"]["mode"], verifier["network"]["enforced"]) == ("no-network", True)
    assert status.get("network") is None


def test_the_example_of_the_page(place: Place) -> None:
    page = (harness.ROOT / "docs/network.md").read_text()
    found = re.search(r"<!-- test: restricted -->\n```yaml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    harness.kubectl(place.cluster, "apply", "--namespace", place.namespace, "--filename", "-", text=found[1])
    status = place.cluster.finished(place.namespace, "hello-offline")
    assert (status["reward"], status["network"]["enforced"]) == ("1", True)


# -- failing closed --------------------------------------------------------------------------------------------------

ALLOW_ALL = {
    "metadata": {"name": "allow-all"},
    "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]},
}


def failure(status: dict[str, Any]) -> tuple[str, str]:
    return status["phase"], status["failure"]["reason"]


def test_beside_a_policy_that_allows_all_nothing_is_started(place: Place, name: str) -> None:
    place.cluster.networking.create_namespaced_network_policy(place.namespace, ALLOW_ALL)
    try:
        spec = harness.spec(task(CLOSED), script("true"), network={"agent": NONE})
        place.cluster.create_run(place.namespace, name, spec)
        status = ahead.verdict(place.cluster, place.namespace, name)
    finally:
        place.cluster.networking.delete_namespaced_network_policy("allow-all", place.namespace)
    assert failure(status) == ("Failed", "NetworkPolicyConflict")
    assert "allow-all" in status["failure"]["message"]
    assert "podName" not in status


def test_a_policy_that_comes_while_the_agent_works_masks_the_run(place: Place, name: str) -> None:
    spec = harness.spec(task(CLOSED), script("sleep 60"), network={"agent": NONE})
    place.cluster.create_run(place.namespace, name, spec)
    place.cluster.until(lambda: place.cluster.status(place.namespace, name).get("phase") == "Running", "it works")
    place.cluster.networking.create_namespaced_network_policy(place.namespace, ALLOW_ALL)
    try:
        status = ahead.verdict(place.cluster, place.namespace, name)
    finally:
        place.cluster.networking.delete_namespaced_network_policy("allow-all", place.namespace)
    assert failure(status) == ("Masked", "NetworkWidened")
    assert (status["network"]["enforced"], status.get("reward")) == (False, None)


def test_its_own_policy_deleted_while_the_agent_works_masks_the_run(place: Place, name: str) -> None:
    spec = harness.spec(task(CLOSED), script("sleep 60"), network={"agent": NONE})
    place.cluster.create_run(place.namespace, name, spec)
    place.cluster.until(lambda: place.cluster.status(place.namespace, name).get("phase") == "Running", "it works")
    uid = place.cluster.run(place.namespace, name)["metadata"]["uid"]
    place.cluster.networking.delete_namespaced_network_policy(f"network-{uid}", place.namespace)
    status = ahead.verdict(place.cluster, place.namespace, name)
    assert failure(status) == ("Masked", "NetworkWidened")


def test_without_a_canary_nothing_is_started(cluster: harness.Cluster, own_namespace: str, tmp_path: Path) -> None:
    operator = harness.Operator(
        tmp_path,
        cluster.kubeconfig,
        [own_namespace],
        network=canaries.settings(own_namespace),
        limits={"queueSeconds": 3},
    )
    operator.start()
    try:
        cluster.create_run(own_namespace, "alone", harness.spec(task(CLOSED), script("true"), network={"agent": NONE}))
        status = ahead.verdict(cluster, own_namespace, "alone")
    finally:
        operator.stop()
    assert failure(status) == ("Failed", "CanaryUnavailable")
    assert "podName" not in status


def test_an_operator_without_canaries_refuses(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    cluster.create_run(namespace, name, harness.spec(task(CLOSED), script("true"), network={"agent": NONE}))
    status = ahead.verdict(cluster, namespace, name)
    assert failure(status) == ("Failed", "CanaryUnavailable")
    assert "network.canary.enabled" in status["failure"]["message"]


# -- an allowlist with names -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(cluster: harness.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same with a judge, which an allowlist may name, and somebody else, whom none names."""
    namespace = cluster.create_namespace("judged")
    try:
        canaries.make(cluster, namespace)
        zone = {"zone.json": "{}"}
        files = gateways.certificate(tmp_path_factory.mktemp("certificate"), (judge(namespace),)) | zone
        gateways.internet(cluster, namespace, files, ("judge", "other"))
        for name in ("judge", "other"):
            gateways.service(cluster, namespace, name, name, [{"name": f"p{port}", "port": port} for port in (80, 443)])
        dns, proxy = gateways.images()
        inside = {"inClusterRanges": [cluster_range(cluster, namespace, "judge")], "inClusterLabels": {"name": "judge"}}
        network = canaries.settings(namespace) | {"gateway": {"dnsImage": dns, "proxyImage": proxy, **inside}}
        operator = harness.Operator(
            tmp_path_factory.mktemp("operator"), cluster.kubeconfig, [namespace], network=network
        )
        operator.start()
        try:
            yield Place(cluster, namespace, operator)
        finally:
            operator.stop()
    finally:
        cluster.delete_namespace(namespace)


def judge(namespace: str, name: str = "judge") -> str:
    return f"{name}.{namespace}.svc.cluster.local"


def cluster_range(cluster: harness.Cluster, namespace: str, service: str) -> str:
    return f"{cluster.core.read_namespaced_service(service, namespace).spec.cluster_ip}/32"


ASK = """\
import sys, time, urllib.request
host, times, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
for number in range(times):
    try:
        began = time.monotonic()
        print(number, urllib.request.urlopen(f"http://{host}/", timeout=5).status, flush=True)
    except OSError as error:
        print(number, type(error).__name__, round(time.monotonic() - began, 2), flush=True)
    time.sleep(pause)
"""


def asking(host: str, file: str, times: int = 1, pause: float = 0) -> str:
    return f"python3 - {host} {times} {pause} > {file} <<'E'\n{ASK}E\n"


def allowlist(namespace: str) -> dict[str, Any]:
    return {"mode": "allowlist", "allowedHosts": [judge(namespace)]}


def test_an_agent_with_an_allowlist_reaches_who_is_on_it_and_nobody_else(judged: Place, name: str) -> None:
    namespace = judged.namespace
    work = asking(judge(namespace), "/app/judge") + asking(judge(namespace, "other"), "/app/other")
    test = 'cat /app/judge /app/other; grep -qx "0 200" /app/judge && grep -q "0 URLError 0" /app/other && '
    files = task(f"{test}{tried(judged.targets())}{CLOSED}")
    judged.cluster.create_run(
        namespace, name, harness.spec(files, script(work), network={"agent": allowlist(namespace)})
    )
    status = judged.cluster.finished(namespace, name)
    assert status["reward"] == "1", status
    network = status["network"]
    assert (network["mode"], network["mechanism"], network["enforced"]) == ("allowlist", "NetworkPolicy+Gateway", True)
    assert network["refused"] >= 1
    uid = judged.cluster.run(namespace, name)["metadata"]["uid"]
    assert left(judged, uid) == []


def left(place: Place, uid: str) -> list[str]:
    """What there still is of the restriction of this run."""
    core, networking = place.cluster.core, place.cluster.networking
    listings = (core.list_namespaced_pod, core.list_namespaced_service, networking.list_namespaced_network_policy)
    names = [each.metadata.name for listing in listings for each in listing(place.namespace).items]
    return [each for each in names if uid in each]


def test_a_separate_verifier_with_an_allowlist_reaches_its_judge_alone(judged: Place, name: str) -> None:
    """With the judge's key, which nothing but test.sh has."""
    namespace = judged.namespace
    key = "key-of-the-judge-1f3a"
    judged.cluster.core.create_namespaced_secret(namespace, {"metadata": {"name": name}, "stringData": {"KEY": key}})
    listed = f'network_mode = "allowlist"\nallowed_hosts = ["{judge(namespace)}"]\nenv = {{ KEY = "${{KEY}}" }}\n'
    ask = asking(judge(namespace), "/tmp/judge") + asking(judge(namespace, "other"), "/tmp/other")
    test = ask + tried(judged.targets()).replace("/app/found", "/tmp/found")
    test += f'[ "$KEY" = {key} ] && grep -qx "0 200" /tmp/judge && grep -q "0 URLError 0" /tmp/other && '
    files = task(test + CLOSED.replace("/app", "/tmp"))
    files["task.toml"] = separate.toml(separate.MODE + listed)
    spec = harness.spec(files, NOP, secretsFrom=[{"name": name}])
    judged.cluster.create_run(namespace, name, spec)
    status = judged.cluster.finished(namespace, name)
    assert (status["reward"], status["verifier"]["mode"]) == ("1", "separate"), status
    verifier = judged.cluster.verifier(namespace, status["verifier"]["name"])
    network = verifier["status"]["network"]
    assert (network["mode"], network["mechanism"], network["enforced"]) == ("allowlist", "NetworkPolicy+Gateway", True)
    assert left(judged, verifier["metadata"]["uid"]) == []


def test_a_gateway_that_is_lost_is_followed_by_another(judged: Place, name: str) -> None:
    namespace = judged.namespace
    work = asking(judge(namespace), "/app/judge", 60, 0.5)
    test = 'cat /app/judge; tail -n 5 /app/judge | grep -c " 200" | grep -qx 5 && echo 1 > /logs/verifier/reward.txt\n'
    spec = harness.spec(task(test), script(work), network={"agent": allowlist(namespace)})
    judged.cluster.create_run(namespace, name, spec)
    judged.cluster.until(lambda: judged.cluster.status(namespace, name).get("phase") == "Running", "it works")
    uid = judged.cluster.run(namespace, name)["metadata"]["uid"]
    judged.cluster.core.delete_namespaced_pod(f"gateway-{uid}-1", namespace, grace_period_seconds=0)
    status = judged.cluster.finished(namespace, name, 120)
    assert (status["reward"], status["network"]["enforced"]) == ("1", True), status
    assert left(judged, uid) == []


def test_a_gateway_that_never_starts_fails_the_run_and_nothing_of_it_is_started(
    cluster: harness.Cluster, own_namespace: str, judged: Place, tmp_path: Path
) -> None:
    network = canaries.settings(judged.namespace) | {
        "gateway": {"dnsImage": "docker.io/taskfold-test/missing:1"},
        "probeSeconds": 4,
    }
    limits = {"seedTries": 1}
    operator = harness.Operator(tmp_path, cluster.kubeconfig, [own_namespace], network=network, limits=limits)
    operator.start()
    try:
        spec = harness.spec(task(CLOSED), script("true"), network={"agent": allowlist(own_namespace)})
        cluster.create_run(own_namespace, "shut", spec)
        status = ahead.verdict(cluster, own_namespace, "shut")
    finally:
        operator.stop()
    assert failure(status) == ("Failed", "GatewayUnavailable")
