"""The cluster's cgroup folders: one for each node, and one that only keeps track of its processes.

Both versions are handled, and the hybrid of them: `/NAME` is made in every hierarchy the
machine has mounted. The machine's own folders are never changed.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Hierarchy:
    path: Path
    unified: bool  # version 2


def hierarchies(mountinfo: str | None = None) -> list[Hierarchy]:
    """The mounted hierarchies whose root is visible, from the text of /proc/self/mountinfo."""
    found: dict[Path, Hierarchy] = {}
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        root, point = fields.split()[3:5]
        if kind in {"cgroup", "cgroup2"} and root == "/":
            found[Path(point)] = Hierarchy(Path(point), kind == "cgroup2")
    return list(found.values())


def tracking(name: str) -> Path:
    """The folder every daemon of the cluster is started in.

    In the version 2 hierarchy where there is one, else in `pids`: neither limits anything,
    and what a daemon starts (shims, and through them pods) stays inside.
    """
    known = hierarchies()
    chosen = next((h for h in known if h.unified), None) or next(h for h in known if h.path.name == "pids")
    folder = chosen.path / name / "system"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_node(name: str, node: str) -> str:
    """Make the folder of a node in every hierarchy; returns the kubelet's `cgroupRoot`."""
    for hierarchy in hierarchies():
        folder = hierarchy.path / name / node
        folder.mkdir(parents=True, exist_ok=True)
        if hierarchy.unified:
            _delegate(hierarchy.path, hierarchy.path / name, folder)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # A new cpuset of version 1 is empty, and an empty one accepts no process.
            for child in (folder.parent, folder):
                if not hierarchy.unified and (child / setting).exists() and not (child / setting).read_text().strip():
                    (child / setting).write_text((child.parent / setting).read_text().strip())
    return f"/{name}/{node}"


def _delegate(*folders: Path) -> None:
    for folder in folders:
        for controller in (folder / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # a controller of version 1 on a hybrid machine
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def members(name: str) -> set[int]:
    """Every pid below `/NAME` in any hierarchy."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        for folder in _folders(hierarchy.path / name):
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0")
    return found


def _folders(top: Path) -> list[Path]:
    """`top` and every folder below it. Pods come and go meanwhile: what vanishes is left out (os.walk does that)."""
    return [Path(path) for path, _, _ in os.walk(top)]


def remove(name: str) -> list[Path]:
    """Remove `/NAME` in every hierarchy, deepest folders first; returns what could not be removed."""
    for attempt in range(50):
        left = []
        for hierarchy in hierarchies():
            for folder in sorted(_folders(hierarchy.path / name), key=lambda p: len(p.parts), reverse=True):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    left.append(folder)
        if not left or attempt == 49:
            return left
        time.sleep(0.1)  # a killed process leaves its cgroup a moment after it is gone from /proc
    return left
