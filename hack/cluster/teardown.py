"""Leaving nothing: processes, mounts, namespaces, cgroups, folders, and traces outside of them.

It works from what the machine has, not only from what was recorded, so that it also cleans
up after an `up` that was killed at any point. Running it twice is harmless.
"""

import contextlib
import ctypes
import json
import os
import shutil
from pathlib import Path

from hack.cluster import cgroups, namespaces, processes
from hack.cluster.settings import ClusterError, Settings

RECORD = "cluster.json"
_OUTSIDE_RECORD = "outside.json"
_MNT_DETACH = 2
# Programs write to these whatever their settings say. What was absent before is removed afterwards.
OUTSIDE: tuple[Path, ...] = (
    Path("/run/netns"),
    Path("/run/xtables.lock"),
    Path("/run/containerd"),
    Path("/var/lib/cni"),
    Path("/var/lib/cni/results"),
    Path("/var/lib/kubelet"),
    Path("/var/lib/kubelet/device-plugins"),
    Path("/var/log/containers"),
)


def remember_outside(settings: Settings) -> None:
    """Record which of the paths outside do not exist yet, or exist only because of another local cluster."""
    absent = {str(path) for path in OUTSIDE if not path.exists()}
    for record in settings.runtime.parent.glob(f"*-cluster/{_OUTSIDE_RECORD}"):
        with contextlib.suppress(OSError, ValueError):
            absent.update(json.loads(record.read_text()))
    settings.runtime.mkdir(parents=True, exist_ok=True)
    (settings.runtime / _OUTSIDE_RECORD).write_text(json.dumps(sorted(absent)))


def leftovers(settings: Settings) -> bool:
    """Whether anything of a cluster with this name or state folder is on the machine."""
    return (
        (settings.state / RECORD).exists()
        or settings.runtime.exists()
        or bool(processes.own_namespaces(settings.name))
        or bool(processes.of_cluster(settings))
    )


def refuse_foreign_folder(settings: Settings) -> None:
    """The state folder is removed whole: it must be ours, or empty, or absent."""
    if settings.state.is_dir() and any(settings.state.iterdir()) and not (settings.state / RECORD).exists():
        raise ClusterError(
            f"{settings.state} holds files that are not a cluster's: set --state (or TASKFOLD_CLUSTER_STATE)"
            " to a folder that is empty or does not exist"
        )


def remove(settings: Settings) -> None:
    """End and remove everything of the cluster; raises when something resists, and names it."""
    refuse_foreign_folder(settings)
    end_processes(settings)
    unmount_below(settings.state, settings.runtime)
    namespaces.remove(settings.name)
    if left := cgroups.remove(settings.name):
        raise ClusterError(f"cgroup folders cannot be removed: {', '.join(map(str, left))}")
    _clean_outside(settings)
    for folder in (settings.runtime, settings.state):
        if folder.exists():
            shutil.rmtree(folder)


def end_processes(settings: Settings) -> None:
    """Killed, not asked: the data goes as well, and what is asked starts new processes in the meantime."""
    for _ in range(20):
        pids = processes.of_cluster(settings)
        if not pids:
            return
        processes.end(pids, grace=0)
    raise ClusterError(f"new processes keep appearing: {sorted(processes.of_cluster(settings))}")


def mounts_below(folders: tuple[Path, ...], mountinfo: str) -> list[Path]:
    """Mount points at or below the folders, the last mounted first."""
    found = []
    for line in mountinfo.splitlines():
        # Blanks and backslashes are octal escapes in this file.
        point = Path(line.split()[4].encode().decode("unicode_escape").encode("latin-1").decode())
        if any(point == folder or folder in point.parents for folder in folders):
            found.append(point)
    return found[::-1]


def unmount_below(*folders: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(5):
        points = mounts_below(folders, Path("/proc/self/mountinfo").read_text())
        if not points:
            return
        for point in points:
            if libc.umount2(os.fsencode(point), 0):
                libc.umount2(os.fsencode(point), _MNT_DETACH)
    if left := mounts_below(folders, Path("/proc/self/mountinfo").read_text()):
        raise ClusterError(f"still mounted: {', '.join(map(str, left))}")


def _clean_outside(settings: Settings) -> None:
    for path in Path("/var/lib/cni/results").glob(f"{settings.name}-pods-*"):
        path.unlink(missing_ok=True)
    for path in Path("/var/log/containers").glob("*.log"):
        if path.is_symlink() and settings.state in path.readlink().parents:
            path.unlink(missing_ok=True)
    try:
        absent = [Path(path) for path in json.loads((settings.runtime / _OUTSIDE_RECORD).read_text())]
    except (FileNotFoundError, ValueError):
        return
    if any(other != settings.runtime for other in settings.runtime.parent.glob("*-cluster")):
        return  # another local cluster still uses them, and removes them when it goes
    Path("/var/lib/kubelet/device-plugins/kubelet.sock").unlink(missing_ok=True)
    for path in sorted(absent, key=lambda p: len(p.parts), reverse=True):
        if path == processes.NETNS and path.is_dir() and not any(path.iterdir()):
            unmount_below(path)
        with contextlib.suppress(OSError):  # not empty: somebody else's by now
            if path.is_dir():
                path.rmdir()
            elif path.exists() and path.stat().st_size == 0:
                path.unlink()
