"""Finding what is ours: mounts, cgroup hierarchies, processes."""

import os
from pathlib import Path

import pytest
from hack.cluster import cgroups, processes, settings, teardown
from hack.cluster.processes import Process
from hack.cluster.settings import ClusterError

MOUNTINFO = r"""24 1 0:22 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
25 1 0:23 / /sys/fs/cgroup/pids rw shared:10 - cgroup cgroup rw,pids
26 1 0:24 /some/part /elsewhere rw - cgroup cgroup rw,cpu
30 1 8:1 /s /state/node-1/rootfs rw - overlay overlay rw
31 30 8:1 /s /state/node-1/rootfs/in\040side rw - tmpfs tmpfs rw
32 1 8:1 /s /state-of-others/x rw - tmpfs tmpfs rw
33 1 8:1 /s /state rw - tmpfs tmpfs rw
"""


def test_mounts_below_are_found_the_last_one_first() -> None:
    assert teardown.mounts_below((Path("/state"),), MOUNTINFO) == [
        Path("/state"),
        Path("/state/node-1/rootfs/in side"),
        Path("/state/node-1/rootfs"),
    ]


def test_hierarchies_are_those_whose_root_is_visible() -> None:
    assert cgroups.hierarchies(MOUNTINFO) == [
        cgroups.Hierarchy(Path("/sys/fs/cgroup/unified"), True),
        cgroups.Hierarchy(Path("/sys/fs/cgroup/pids"), False),
    ]


def test_a_process_is_its_pid_and_its_start_time() -> None:
    started = processes.start_time(os.getpid())
    assert started is not None
    assert processes.alive(Process("me", os.getpid(), started))
    assert not processes.alive(Process("me", os.getpid(), started + 1))


def test_a_folder_with_other_files_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    chosen = settings.read({"name": "unit-test"}, {"HOME": "/h"})
    foreign = settings.from_json({**chosen.as_json(), "state": str(tmp_path)})
    with pytest.raises(ClusterError, match="not a cluster's"):
        teardown.remove(foreign)
    assert (tmp_path / "thesis.txt").exists()
