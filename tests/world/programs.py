"""What the programs of an agent or of a task do, as a test says it, and the table of every start.

Guarantees: a program sees its container's files, prints, takes time, and ends; whatever is started is in the table,
with the pod, the phase and the moment, so that "once" can be counted from outside of the engine.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.world import clock
from tests.world.files import FileSystem
from tests.world.pipes import Pipe

if TYPE_CHECKING:
    from tests.world.sandbox import Container

REWARD = "/logs/verifier/reward.txt"
RUN_LABEL = "taskfold.dev/run"


class Killed(Exception):  # noqa: N818
    """A signal ends the program."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


@dataclass
class Program:
    """A running program, seen from inside."""

    box: "Container"
    name: str
    argv: list[str]
    env: Mapping[str, str]
    user: tuple[int, int]
    cwd: str
    output: Pipe

    @property
    def files(self) -> FileSystem:
        return self.box.files

    async def print(self, data: bytes) -> None:
        await self.output.write(data)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def exhaust_memory(self) -> None:
        """Ask for more than the container may have: what the kernel then does is the cgroup's rule."""
        self.box.cgroup.exhausted(self.box)
        raise Killed(signal.SIGKILL)


Behaviour = Callable[[Program], Awaitable[int]]
"""What a program does; its exit code. `Killed` for a signal; it is cancelled to be killed."""


@dataclass(frozen=True)
class Script:
    """A program that works for a while, leaves files and ends."""

    seconds: float = 1.0
    code: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict)
    output: bytes = b""
    signal: int | None = None
    """It ends by this signal instead."""
    hangs: bool = False
    """It never ends by itself."""
    exhausts_memory: bool = False
    fills_disk: bool = False
    """It writes more than its container may; the node evicts the pod."""

    async def __call__(self, program: Program) -> int:
        if self.output:
            await program.print(self.output)
        await program.sleep(self.seconds)
        for path, content in self.files.items():
            program.files.write(path, content)
        if self.fills_disk:
            program.box.over_limit = True
        if self.exhausts_memory:
            await program.exhaust_memory()
        if self.signal is not None:
            raise Killed(self.signal)
        if self.hangs:
            await asyncio.Event().wait()
        return self.code


def rewarded(reward: str = "1", seconds: float = 1.0) -> Script:
    """A test.sh that gives this reward."""
    return Script(seconds, files={REWARD: f"{reward}\n".encode()})


@dataclass(frozen=True)
class Start:
    """One start of a program by PID 1. `restarts`: which life of the container."""

    at: float
    run: str
    pod: str
    uid: str
    restarts: int
    nonce: str
    phase: str
    name: str
    env: Mapping[str, str] = field(repr=False)
    attempt: int = 1
    """Of a check."""


@dataclass
class Table:
    """Every start in a world, in order; and how many programs of each kind run now."""

    starts: list[Start] = field(default_factory=list)
    running: set[Start] = field(default_factory=set)

    def of(self, run: str, name: str | None = None) -> list[Start]:
        """The starts for a TaskRun, of one program or of all."""
        return [start for start in self.starts if start.run == run and name in (None, start.name)]

    def note(self, box: "Container", nonce: str, phase: str, program: Program, attempt: int = 1) -> Start:
        run, env = box.labels.get(RUN_LABEL, ""), FrozenEnv(program.env)
        start = Start(clock.now(), run, box.pod, box.uid, box.restarts, nonce, phase, program.name, env, attempt)
        self.starts.append(start)
        return start


class FrozenEnv(dict[str, str]):
    """Variables as they were; hashable by identity, as a start is."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@dataclass
class Book:
    """Which program does what: by run and name, by its text, else the usual.

    `runs`: TaskRun name → name of the program ("install", "agent", "hook 1", "test") → what it does.
    `texts`: the last word of argv, as in `bash -c TEXT` → what it does.
    """

    runs: dict[str, dict[str, Behaviour]] = field(default_factory=dict)
    texts: dict[str, Behaviour] = field(default_factory=dict)
    usual: dict[str, Behaviour] = field(default_factory=lambda: {"test": rewarded()})
    table: Table = field(default_factory=Table)
    failures: list[Exception] = field(default_factory=list)
    """Mistakes of the behaviours themselves; a test looks that there are none."""

    def find(self, program: Program) -> Behaviour:
        own: Mapping[str, Any] = self.runs.get(program.box.labels.get(RUN_LABEL, ""), {})
        text = program.argv[-1]
        for found in (own.get(program.name), self.texts.get(text), self.usual.get(program.name)):
            if found is not None:
                return found
        return Script()
