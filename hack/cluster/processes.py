"""Starting, recording and ending the cluster's processes.

A process is known by its pid AND its start time, so that a pid which the kernel gave to
somebody else is never signalled. Besides the records, every process of the cluster is
found through the cgroup it was started in, and through its network namespace.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.cluster import cgroups
from hack.cluster.settings import ClusterError, Settings

NETNS = Path("/run/netns")


@dataclass(frozen=True)
class Launch:
    """How a daemon was started, so that it can be started again in the same way."""

    argv: tuple[str, ...]
    namespace: str
    environment: Mapping[str, str]  # what it has beyond the environment of `up`


@dataclass(frozen=True)
class Process:
    name: str
    pid: int
    started: int  # clock ticks since boot, field 22 of /proc/PID/stat
    launch: Launch | None = None  # None: it was given open sockets, which no record holds


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which `pid` started; None when it is gone or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def alive(process: Process) -> bool:
    return start_time(process.pid) == process.started


def start(
    settings: Settings,
    name: str,
    argv: Sequence[str | Path],
    *,
    namespace: str,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
) -> Process:
    """Start a daemon inside a network namespace, its output in the logs, its identity recorded.

    `nsenter` and not `ip netns exec`: the latter remounts /sys and hides the cgroups.
    """
    settings.logs.mkdir(parents=True, exist_ok=True)
    joins = cgroups.tracking(settings.name) / "cgroup.procs"

    def join() -> None:
        # In the child before it runs anything: from its first instruction on it can be found again.
        joins.write_text(str(os.getpid()))

    with (settings.logs / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            ["nsenter", f"--net={NETNS / namespace}", "--", *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(descriptors),
            preexec_fn=join,  # noqa: PLW1509 - there are no threads here
        )
    launch = None if descriptors else Launch(tuple(map(str, argv)), namespace, dict(environment or {}))
    process = Process(name, child.pid, start_time(child.pid) or 0, launch)
    folder = settings.state / "processes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(asdict(process)))
    child.returncode = 0  # a daemon outlives this program: nobody waits for it here
    return process


def recorded(settings: Settings) -> list[Process]:
    found = []
    for path in sorted((settings.state / "processes").glob("*.json")):
        try:
            found.append(_from_record(json.loads(path.read_text())))
        except (ValueError, TypeError, KeyError):
            continue  # half written by an `up` that was killed; the cgroup still knows the process
    return found


def _from_record(record: Mapping[str, Any]) -> Process:
    told = record.get("launch")
    launch = Launch(tuple(told["argv"]), told["namespace"], told["environment"]) if told else None
    return Process(record["name"], record["pid"], record["started"], launch)


def start_again(settings: Settings, process: Process) -> Process:
    """Start a daemon with what it was started with before; it must have ended."""
    if process.launch is None:
        raise ClusterError(f"how {process.name} was started is not on record: take `down` and `up`")
    launch = process.launch
    return start(settings, process.name, launch.argv, namespace=launch.namespace, environment=launch.environment)


def require_all_alive(settings: Settings) -> None:
    for process in recorded(settings):
        require_alive(settings, process)


def require_alive(settings: Settings, process: Process) -> None:
    if not alive(process):
        raise ClusterError(f"{process.name} ended. Its last words:\n{tail(settings, process.name)}")


def tail(settings: Settings, name: str, lines: int = 15) -> str:
    try:
        text = (settings.logs / f"{name}.log").read_text(errors="replace")
    except FileNotFoundError:
        return f"(no log {name}.log)"
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


def own_namespaces(name: str) -> list[Path]:
    """The named network namespaces of the cluster `name`, by what the machine has."""
    pattern = re.compile(rf"{re.escape(name)}-(control|node-\d+)")
    return sorted(path for path in NETNS.glob(f"{name}-*") if pattern.fullmatch(path.name))


def of_cluster(settings: Settings) -> set[int]:
    """Every living pid of the cluster: recorded, in its cgroups, or in its network namespaces."""
    found = {process.pid for process in recorded(settings) if alive(process)}
    found |= cgroups.members(settings.name)
    inodes = {(path.stat().st_dev, path.stat().st_ino) for path in own_namespaces(settings.name)}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                namespace = (entry / "ns/net").stat()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if (namespace.st_dev, namespace.st_ino) in inodes:
                found.add(int(entry.name))
    return {pid for pid in found if pid != os.getpid() and start_time(pid) is not None}


def end(pids: Iterable[int], *, grace: float) -> None:
    """SIGTERM, `grace` seconds to leave, then SIGKILL; returns when all of them are gone."""
    waiting = {pid: started for pid in pids if (started := start_time(pid)) is not None}
    gone = tuple(waiting)
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if number == signal.SIGTERM and not grace:
            continue
        for pid, started in waiting.items():
            if start_time(pid) == started:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
        deadline = time.monotonic() + seconds
        while waiting and time.monotonic() < deadline:
            waiting = {pid: started for pid, started in waiting.items() if start_time(pid) == started}
            time.sleep(0.02)
    if waiting:
        raise ClusterError(f"these processes do not end, even when killed: {sorted(waiting)}")
    for pid in gone:
        with contextlib.suppress(ChildProcessError):  # nearly always somebody else's child
            os.waitpid(pid, os.WNOHANG)


def resident_bytes(pids: Iterable[int]) -> int:
    """Sum of the resident set sizes; shared pages count once for each process."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE")
