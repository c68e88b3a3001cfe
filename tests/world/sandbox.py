"""A container with the helper as PID 1: its image, its files, its processes, its end.

Guarantees: when the container ends, every process in it ends with it and the journal of PID 1 is gone; a process that
was put in from outside (an exec) gets its streams and its end like one of a runtime.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.world import cgroups, clock, helper, packing, programs, unpacking
from tests.world.files import File, FileSystem
from tests.world.journal import Init
from tests.world.pipes import Pipe

TERMINATED = 0
"""The helper's exit code after SIGTERM."""
KILLED = 137
HELPER = "/.taskfold/helper"
TOOLS = ("bash", "sh", "timeout", "tar", "gzip", "find", "cat", "id")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSWD = """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
worker:x:1000:1000::/home/worker:/bin/sh
"""
GROUP = "root:x:0:\nstaff:x:50:worker\nworker:x:1000:\n"


@dataclass(frozen=True)
class Image:
    """What of an image matters: who it starts as, where, with which tools."""

    tools: tuple[str, ...] = TOOLS
    uid: int = 0
    gid: int = 0
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    passwd: str = PASSWD
    group: str = GROUP
    id: str = "docker.io/library/image@sha256:" + "1" * 64
    record_code: int = 0
    """What the helper exits with when it records this image."""
    term_code: int = TERMINATED
    """What the first process exits with after SIGTERM."""

    def files(self) -> FileSystem:
        files = FileSystem()
        for folder in ("/usr/bin", "/tmp", "/etc", "/logs", self.cwd.rstrip("/") or "/root"):
            files.make(folder)
        for tool in self.tools:
            files.make(f"/usr/bin/{tool}", File(0o755, content=b"#!"))
        files.write("/etc/passwd", self.passwd.encode())
        files.write("/etc/group", self.group.encode())
        return files

    def record(self) -> str:
        """What `helper record` finds in this image."""
        found = {"protocol": 1, "uid": self.uid, "gid": self.gid, "groups": [], "cwd": self.cwd}
        return json.dumps({**found, "os": "linux", "arch": "amd64"})


@dataclass
class Streams:
    """The streams of a process that was put in from outside."""

    stdin: Pipe = field(default_factory=Pipe)
    stdout: Pipe = field(default_factory=Pipe)
    stderr: Pipe = field(default_factory=Pipe)

    def cut(self) -> None:
        """Nobody is at the other ends any more."""
        self.stdin.end()
        self.stdout.break_off()
        self.stderr.break_off()


class Container:
    """One life of one container."""

    def __init__(
        self,
        *,
        pod: str = "pod",
        namespace: str = "ns",
        uid: str = "uid-1",
        name: str = "main",
        restarts: int = 0,
        image: Image | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        book: programs.Book | None = None,
        cgroup: cgroups.Cgroup | None = None,
        now: Callable[[], datetime] | None = None,
        ended: Callable[["Container"], None] | None = None,
    ) -> None:
        """`ended`: told when the container has ended."""
        self.pod, self.namespace, self.uid, self.name, self.restarts = pod, namespace, uid, name, restarts
        self.image = image or Image()
        self.env = {**self.image.env, **(env or {})}
        self.labels = dict(labels or {})
        self.book = book or programs.Book()
        self.cgroup = cgroup or cgroups.V2()
        self.now = now or clock.WorldClock().now
        self.files = self.image.files()
        self.files.write(HELPER, b"", 0o755)  # mounted into every container
        self.oom_kills = 0
        self.over_limit = False
        """It has written more than its limit of local storage; its node will notice."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.exit_code: int | None = None
        self._ended = ended
        self.init = Init(self)

    @property
    def running(self) -> bool:
        return self.exit_code is None

    @property
    def reason(self) -> str:
        """What the runtime says about its end."""
        if self.oom_kills:
            return "OOMKilled"
        return "Completed" if self.exit_code == 0 else "Error"

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A process: it ends at the latest with the container."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self.pod}/{self.name}: {name}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def terminate(self) -> None:
        """SIGTERM for PID 1 from outside of the container."""
        self.end(self.image.term_code)

    def end(self, code: int) -> None:
        """PID 1 has ended: so has everything else here."""
        if self.exit_code is not None:
            return
        self.exit_code = code
        for task in list(self.tasks):
            task.cancel()
        if self._ended is not None:
            self._ended(self)

    def execute(self, argv: list[str], streams: Streams) -> asyncio.Task[int]:
        """Start a process from outside, as an exec does. FileNotFoundError: there is no such program."""
        command = self._command(argv)

        async def process() -> int:
            try:
                return await command(self, argv, streams)
            except BrokenPipeError:
                return 1
            finally:
                streams.stdin.break_off()
                streams.stdout.end()
                streams.stderr.end()

        async def watched() -> int:
            try:
                return await process()
            except asyncio.CancelledError:
                return KILLED

        return self.spawn(watched(), f"exec {' '.join(argv)[:60]}")

    def _command(self, argv: list[str]) -> Callable[["Container", list[str], Streams], Coroutine[Any, Any, int]]:
        if argv[0].endswith("/helper"):
            return _helper
        if argv[-1] not in self.book.texts and not self.files.exists(f"/usr/bin/{argv[0]}"):
            raise FileNotFoundError(argv[0])
        return _program


async def _helper(box: Container, argv: list[str], streams: Streams) -> int:
    match argv[1:]:
        case ["phase", *_]:
            return await helper.phase(box, streams.stdin, streams.stdout)
        case ["pack"]:
            return await packing.pack(box, streams.stdin, streams.stdout, streams.stderr)
        case ["unpack"]:
            return await unpacking.unpack(box, streams.stdin, streams.stdout)
        case ["version"]:
            await streams.stdout.write(b"taskfold helper world protocol 1 linux/amd64\n")
            return 0
    await streams.stderr.write(b"usage: helper COMMAND\n")
    return 2


async def _program(box: Container, argv: list[str], streams: Streams) -> int:
    program = programs.Program(box, "exec", argv, box.env, (0, 0), box.image.cwd, streams.stdout)
    with contextlib.suppress(asyncio.IncompleteReadError):
        return await box.book.find(program)(program)
    return 1
