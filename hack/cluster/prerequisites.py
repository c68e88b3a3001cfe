"""What the machine must have before a cluster can start, and how to get what it lacks.

The findings are data, so that every message can be tested without changing a machine.
On Debian, root's `up` installs missing packages itself and says so.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.settings import ClusterError

GO_NEEDED = (1, 26)  # the go.mod of Kubernetes 1.36 asks for it

# What is looked for (a program on the path, or a file), and the Debian package that has it.
NEEDED: tuple[tuple[str, str], ...] = (
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("openssl", "openssl"),
    ("iptables", "iptables"),
    ("ipset", "ipset"),
    ("conntrack", "conntrack"),
    ("gcc", "gcc"),
    ("/usr/include/stdlib.h", "libc6-dev"),
    ("pkg-config", "pkg-config"),
    ("/usr/include/seccomp.h", "libseccomp-dev"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("mmdebstrap", "mmdebstrap"),
)


@dataclass(frozen=True)
class Machine:
    """The facts that the checks look at."""

    linux: bool
    root: bool
    apt: bool
    go: str | None  # output of `go env GOVERSION`, None without Go
    present: Callable[[str], bool]
    cgroups: bool = True


def this_machine() -> Machine:
    go = None
    if shutil.which("go"):
        done = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False)
        go = done.stdout.strip() or None
    return Machine(
        linux=sys.platform == "linux",
        root=sys.platform == "linux" and os.geteuid() == 0,
        apt=shutil.which("apt-get") is not None,
        go=go,
        present=lambda what: Path(what).exists() if what.startswith("/") else shutil.which(what) is not None,
        cgroups=Path("/sys/fs/cgroup").is_dir(),
    )


def missing_packages(machine: Machine) -> list[str]:
    return sorted({package for what, package in NEEDED if not machine.present(what)})


def refusal(machine: Machine) -> str | None:
    """Why no cluster can start here and no package would help; None when nothing is in the way."""
    if not machine.linux:
        return "the local cluster needs Linux. Elsewhere use a kind cluster, or name one in TASKFOLD_KUBECONFIG."
    if not machine.root:
        return (
            "the local cluster needs root, for namespaces and cgroups. Run the same command with sudo -E,"
            " or start a Docker engine (then kind is used), or name a cluster in TASKFOLD_KUBECONFIG."
        )
    if not machine.cgroups:
        return "no cgroups are mounted at /sys/fs/cgroup, so no kubelet can run here."
    wanted = ".".join(map(str, GO_NEEDED))
    if machine.go is None:
        return f"Go {wanted} or newer is needed to build Kubernetes, and no `go` is on the path."
    found = re.match(r"go(\d+)\.(\d+)", machine.go)
    if found and (int(found[1]), int(found[2])) < GO_NEEDED:
        return f"Go {wanted} or newer is needed to build Kubernetes; this one is {machine.go}."
    packages = missing_packages(machine)
    if packages and not machine.apt:
        return f"these are missing (by the names of their Debian packages): {' '.join(packages)}"
    return None


def install_command(packages: Sequence[str]) -> list[str]:
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages]


# What the kernel must have, as a file that is there when it does, and the module that brings it.
MODULES: tuple[tuple[str, str], ...] = (("/proc/sys/net/bridge", "br_netfilter"),)


def load_modules(present: Callable[[str], bool]) -> None:
    """Load missing kernel modules: the one thing of the host that is changed, and only if it must be."""
    for path, module in MODULES:
        if present(path):
            continue
        print(f"loading the kernel module {module}", flush=True)
        if shutil.which("modprobe"):
            subprocess.run(["modprobe", module], capture_output=True, check=False)
        if not present(path):
            raise ClusterError(f"the kernel has no {module}, so policies between pods of one node cannot be enforced")


def ensure(machine: Machine) -> None:
    """Raise with one message when something is in the way; install packages that are missing."""
    if reason := refusal(machine):
        raise ClusterError(reason)
    load_modules(machine.present)
    install(missing_packages(machine))
    if left := missing_packages(this_machine()):
        raise ClusterError(f"still missing after the installation: {' '.join(left)}")


def install(packages: Sequence[str]) -> None:
    """Install Debian packages and say so; ClusterError with the command to type when that fails."""
    if not packages:
        return
    command = install_command(packages)
    print(f"installing Debian packages: {' '.join(packages)}", flush=True)
    # The registry's package starts a service of its own; nothing of it is wanted.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for argv in (["apt-get", "update", "--quiet"], command):
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"`{' '.join(argv)}` failed; type it yourself:\n{done.stderr.strip()[-800:]}")
