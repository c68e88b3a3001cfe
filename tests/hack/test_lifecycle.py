"""The whole life of a cluster, beside the one that may be running: other name, state, ranges and ports.

Needs root and what `python3 hack/cluster up` needs; builds programs when the cache lacks them.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hack.cluster import cgroups, teardown
from tests.hack.second_cluster import LIMIT, Tool

NAME = "tf-life"

pytestmark = [pytest.mark.cluster_lifecycle, pytest.mark.timeout(1200)]


@pytest.fixture
def tool() -> Iterator[Tool]:
    # Not tmp_path: sockets lie below the state folder, and their paths must stay short.
    with tempfile.TemporaryDirectory(prefix="tf-") as folder:
        made = Tool(Path(folder) / "s", NAME, 8)
        try:
            yield made
        finally:
            made.run("down")


def machine() -> dict[str, object]:
    """Everything on the machine that a cluster could leave something in."""

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    folders = {str(h.path / p.name) for h in cgroups.hierarchies() for p in h.path.iterdir() if p.is_dir()}
    return {
        "mounts": sorted(m for m in mounts if ours(m)),
        "namespaces": sorted(p.name for p in Path("/run/netns").glob("*") if ours(p.name)),
        "links": sorted(link["ifname"] for link in json.loads("".join(lines("ip", "-json", "link")))),
        "addresses": lines("ip", "-oneline", "-4", "address"),
        "routes": lines("ip", "-4", "route", "show", "table", "all"),
        "rules": [line.split(" [")[0] for line in lines("iptables-save") if not line.startswith("#")],
        "cgroups": sorted(folder for folder in folders if ours(folder)),
        "outside": [str(path) for path in teardown.OUTSIDE if path.exists()],
        "runtime": sorted(str(path) for path in Path("/run").glob(f"{NAME}*")),
        "processes": processes_of(NAME),
    }


def ours(text: str) -> bool:
    return NAME in text or "/tf-" in text


def processes_of(name: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(word.startswith((f"/run/{name}".encode(), f"--net=/run/netns/{name}".encode())) for word in words):
            found.append(b" ".join(words).decode(errors="replace"))
    return found


def wait_until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_two_nodes_with_pods_leave_nothing(tool: Tool) -> None:
    before = machine()
    tool.run("up", "--nodes", "2")
    during = machine()
    for untouched in ("links", "addresses", "routes", "rules"):
        assert during[untouched] == before[untouched], untouched
    assert tool.kubectl("get", "nodes", "--output=name").split() == ["node/node-1", "node/node-2"]
    for number in (1, 2):
        spec = json.dumps({"spec": {"nodeName": f"node-{number}"}})
        tool.kubectl("run", f"pod-{number}", "--image=taskfold.dev/pause:1", f"--overrides={spec}")
    tool.kubectl("wait", "pod", "--all", "--for=condition=Ready", "--timeout=200s")
    assert "healthy" in tool.run("status", "--nodes", "2")
    tool.run("down")
    assert machine() == before
    assert not tool.state.exists()


def test_up_twice_is_harmless_and_other_settings_are_refused(tool: Tool) -> None:
    tool.run("up")
    records = {path.name: path.read_text() for path in (tool.state / "processes").iterdir()}
    assert "runs already" in tool.run("up")
    assert {path.name: path.read_text() for path in (tool.state / "processes").iterdir()} == records
    assert "nodes" in tool.run("up", "--nodes", "2", expect=1)


def test_two_at_once_make_one_cluster(tool: Tool) -> None:
    with tool.start("up") as first, tool.start("up") as second:
        outputs = [child.communicate(timeout=LIMIT)[0] for child in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert sum("runs already" in output for output in outputs) == 1, outputs


@pytest.mark.parametrize(
    "reached", ["certificates/ca.crt", "processes/kube-apiserver.json", "processes/node-1-kubelet.json"]
)
def test_killed_in_the_middle_the_next_up_recovers(tool: Tool, reached: str) -> None:
    before = machine()
    with tool.start("up") as child:
        wait_until((tool.state / reached).exists, f"{reached} was never made")
        child.send_signal(signal.SIGKILL)
    assert "not running" in (text := tool.run("status", expect=3)) or "unfinished" in text
    output = tool.run("up")
    assert "removing what an earlier start left" in output
    assert "healthy" in output
    tool.run("down")
    assert machine() == before


def test_killed_in_the_middle_down_leaves_nothing(tool: Tool) -> None:
    before = machine()
    with tool.start("up") as child:
        wait_until((tool.state / "processes/node-1-kube-router.json").exists, "kube-router was never started")
        child.send_signal(signal.SIGKILL)
    tool.run("down")
    assert machine() == before


def test_a_lost_daemon_is_seen_and_repaired_and_nothing_else_is_lost(tool: Tool) -> None:
    tool.run("up")
    tool.kubectl("create", "namespace", "survivor")
    record = json.loads((tool.state / "processes/kube-scheduler.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    assert "kube-scheduler" in tool.run("status", expect=3)
    assert "started again: kube-scheduler\n" in tool.run("up")
    tool.run("status")
    tool.kubectl("get", "namespace", "survivor")
