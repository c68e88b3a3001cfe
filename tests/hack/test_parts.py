"""Parts of a running cluster are killed and started again as they were; a node is cut off and joined again."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hack.cluster import namespaces, parts, processes, settings
from hack.cluster.parts import Part
from hack.cluster.processes import Launch, Process
from hack.cluster.settings import ClusterError, Settings
from tests.hack.second_cluster import LIMIT, Tool

pytestmark = pytest.mark.timeout(1200)
lifecycle = pytest.mark.cluster_lifecycle
LAUNCH = Launch(("/bin/kubelet", "--config=x"), "unit-node-1", {"PATH": "/bin"})


@pytest.fixture
def chosen(tmp_path: Path) -> Settings:
    found = settings.read({"name": "unit-test"}, {"HOME": "/h"})
    return settings.from_json({**found.as_json(), "state": str(tmp_path)})


def recorded(chosen: Settings, process: object) -> list[Process]:
    folder = chosen.state / "processes"
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps(process))
    return processes.recorded(chosen)


def test_what_a_daemon_was_started_with_is_on_record(chosen: Settings) -> None:
    process = Process("node-1-kubelet", 1, 2, LAUNCH)
    assert recorded(chosen, asdict(process)) == [process]


def test_a_record_without_it_is_still_a_record(chosen: Settings) -> None:
    found = recorded(chosen, {"name": "etcd", "pid": 1, "started": 2})
    assert found == [Process("etcd", 1, 2)]
    with pytest.raises(ClusterError, match="not on record"):
        processes.start_again(chosen, found[0])


def test_a_part_that_was_never_started_is_not_started(chosen: Settings) -> None:
    with pytest.raises(ClusterError, match="has no record of kube-scheduler"):
        parts.start(chosen, Part.SCHEDULER)


def test_each_bridge_has_an_address_of_its_own() -> None:
    assert namespaces.hardware_address(IPv4Address("10.244.1.1")) == "02:42:0a:f4:01:01"


@pytest.fixture(scope="module")
def pair() -> Iterator[Tool]:
    """A cluster of two nodes that the tests below hurt and leave whole."""
    with tempfile.TemporaryDirectory(prefix="tf-") as folder:
        made = Tool(Path(folder) / "s", "tf-parts", 6)
        try:
            made.run("up", "--nodes", "2")
            yield made
        finally:
            made.run("down")


def record(pair: Tool, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((pair.state / f"processes/{name}.json").read_text())
    return found


def command_line(process: dict[str, Any]) -> bytes:
    return Path(f"/proc/{process['pid']}/cmdline").read_bytes()


def reaches(pair: Tool, node: str) -> bool:
    """Whether the API server reaches the node's kubelet."""
    command = [pair.state / "bin/kubectl", f"--kubeconfig={pair.state / 'kubeconfig'}", "get", "--raw"]
    path = f"/api/v1/nodes/{node}/proxy/healthz"
    return subprocess.run([*command, path, "--request-timeout=5s"], capture_output=True, check=False).returncode == 0


def until_reached(pair: Tool, node: str) -> None:
    """A kubelet that has just been started takes a moment to listen."""
    deadline = time.monotonic() + LIMIT
    while not reaches(pair, node):
        assert time.monotonic() < deadline, f"{node} is not reached"
        time.sleep(0.2)


def bridge_address(pair: Tool, number: int) -> str:
    command = ["ip", "-netns", f"{pair.name}-node-{number}", "-json", "link", "show", namespaces.POD_BRIDGE]
    return str(json.loads(subprocess.check_output(command))[0]["address"])


@lifecycle
@pytest.mark.parametrize(
    ("part", "node"),
    [("kube-apiserver", None), ("etcd", None), ("forward", None), ("containerd", "node-2"), ("kubelet", "node-2")],
    ids=["kube-apiserver", "etcd", "forward", "containerd", "kubelet"],
)
def test_a_part_is_killed_and_started_again_as_it_was(pair: Tool, part: str, node: str | None) -> None:
    where = ["--node", node] if node else []
    name = f"{node}-{part}" if node else part
    first = record(pair, name)
    before = command_line(first)
    pair.run("kill", part, *where)
    assert name in pair.run("status", expect=3)
    pair.run("kill", part, *where)
    pair.run("start", part, *where)
    started = record(pair, name)
    assert started["pid"] != first["pid"]
    assert command_line(started) == before
    pair.run("start", part, *where)
    assert record(pair, name) == started
    pair.run("restart", part, *where)
    assert record(pair, name)["pid"] != started["pid"]
    assert command_line(record(pair, name)) == before
    assert "healthy" in pair.run("up", "--nodes", "2")


@lifecycle
def test_a_node_is_cut_off_and_joined_again(pair: Tool) -> None:
    until_reached(pair, "node-2")
    pair.run("link", "down", "--node", "node-2")
    assert not reaches(pair, "node-2")
    until_reached(pair, "node-1")
    pair.run("link", "up", "--node", "node-2")
    until_reached(pair, "node-2")


@lifecycle
def test_a_bridge_keeps_its_address_when_pods_come_and_go(pair: Tool) -> None:
    """Pods send to the address that they have learned: another one loses their packets."""
    before = bridge_address(pair, 1)
    for number in range(3):
        spec = json.dumps({"spec": {"nodeName": "node-1", "terminationGracePeriodSeconds": 0}})
        pair.kubectl("run", f"pod-{number}", "--image=taskfold.dev/pause:1", f"--overrides={spec}")
        pair.kubectl("wait", f"pod/pod-{number}", "--for=condition=Ready", "--timeout=60s")
        assert bridge_address(pair, 1) == before
        pair.kubectl("delete", "pod", f"pod-{number}", "--wait=true")
        assert bridge_address(pair, 1) == before


@lifecycle
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["kill", "kubelet"], "part of each node"),
        (["restart", "etcd", "--node", "node-1"], "not a part of a node"),
        (["link", "down", "--node", "node-9"], "no node node-9"),
    ],
    ids=["no node", "a node for the control plane's", "unknown node"],
)
def test_a_part_that_is_not_there_is_refused(pair: Tool, command: list[str], says: str) -> None:
    assert says in pair.run(*command, expect=1)


@lifecycle
def test_an_api_server_of_an_older_tree_gets_the_arguments_of_today(pair: Tool) -> None:
    """As `up` finds it after an update: started with less, and without what the new arguments need."""
    process = record(pair, "kube-apiserver")
    today = process["launch"]["argv"]
    process["launch"]["argv"] = [word for word in today if "requestheader" not in word and "proxy-client" not in word]
    (pair.state / "processes/kube-apiserver.json").write_text(json.dumps(process))
    pair.run("restart", "kube-apiserver")
    older = record(pair, "kube-apiserver")
    assert b"requestheader" not in command_line(older)
    for path in (pair.state / "certificates").glob("front-proxy-*"):
        path.unlink()
    said = pair.run("up", "--nodes", "2")
    assert "started anew, with the arguments of today: kube-apiserver" in said
    newer = record(pair, "kube-apiserver")
    assert newer["pid"] != older["pid"]
    assert newer["launch"]["argv"] == today
    published = pair.kubectl(
        "-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", "-o", "json"
    )
    authority = json.loads(published)["data"]["requestheader-client-ca-file"]
    assert (pair.state / "certificates/front-proxy-ca.crt").read_text().strip() in authority
    assert "started anew" not in pair.run("up", "--nodes", "2")
    assert record(pair, "kube-apiserver") == newer
