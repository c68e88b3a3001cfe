"""Every message about a missing prerequisite says what to do."""

import dataclasses

import pytest
from hack.cluster import prerequisites
from hack.cluster.prerequisites import Machine
from hack.cluster.settings import ClusterError

GOOD = Machine(linux=True, root=True, apt=True, go="go1.26.8", present=lambda what: True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"linux": False}, "TASKFOLD_KUBECONFIG", id="not Linux"),
        pytest.param({"root": False}, "sudo -E", id="not root"),
        pytest.param({"go": None}, "no `go` is on the path", id="no Go"),
        pytest.param({"go": "go1.24.1"}, "this one is go1.24.1", id="old Go"),
        pytest.param({"cgroups": False}, "cgroups", id="no cgroups"),
        pytest.param({"apt": False, "present": lambda what: what != "ipset"}, "ipset", id="no apt"),
    ],
)
def test_refusal(change: dict[str, object], says: str) -> None:
    reason = prerequisites.refusal(dataclasses.replace(GOOD, **change))
    assert reason is not None
    assert says in reason


@pytest.mark.parametrize("go", ["go1.26.0", "go1.27rc1", "go2.0", "devel go1.28-abc"])
def test_new_enough(go: str) -> None:
    assert prerequisites.refusal(dataclasses.replace(GOOD, go=go)) is None


def test_a_kernel_without_the_bridge_filter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no modprobe
    with pytest.raises(ClusterError, match="br_netfilter"):
        prerequisites.load_modules(lambda what: False)


def test_missing_packages_are_named_once() -> None:
    lacks = {"skopeo", "/usr/include/seccomp.h", "docker-registry"}
    machine = dataclasses.replace(GOOD, present=lambda what: what not in lacks)
    assert prerequisites.missing_packages(machine) == ["docker-registry", "libseccomp-dev", "skopeo"]
    assert prerequisites.refusal(machine) is None  # root on Debian installs them
    assert prerequisites.install_command(["skopeo"])[-1] == "skopeo"
