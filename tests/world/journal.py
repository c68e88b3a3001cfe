"""PID 1 of a container, as its model: the journal of phases, the runs of programs, what is read at the end.

Guarantees, as `helper/journal.go`, `server.go`, `run.go` and `output.go` give them: a phase goes from claimed to
started to done, only a claim is ever taken back, a start never happens twice, the result is the same for everyone; all
of it is gone with the container.
"""

import asyncio
import base64
import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.world import clock, files, programs, requests, users
from tests.world.pipes import Pipe

if TYPE_CHECKING:
    from tests.world.sandbox import Container

MAX_PHASES = 64
MAX_KEPT = 64 << 20
MAX_PREPARED = 1 << 20
MAX_RESULT = requests.MAX_READ_BYTES + MAX_PREPARED + requests.MAX_RUNS * requests.MAX_INLINE
YIELD_SECONDS = 1.0
BEAT_SECONDS = 1.0
LATE_BYTES = 1 << 20

Event = dict[str, Any]


@dataclass(eq=False)
class Claim:
    """A connection that prepares a phase. `kill` ends its process."""

    nonce: str
    idle: float
    kill: Callable[[], Any]
    heard: float = 0.0
    lost: "asyncio.Future[Event]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def beat(self) -> None:
        """The preparation makes progress."""
        if clock.now() - self.heard >= BEAT_SECONDS:
            self.heard = clock.now()


@dataclass(eq=False)
class Phase:
    """A nonce. It has a claim until it has started."""

    claim: Claim | None
    started_at: str = ""
    prepared: list[Event] = field(default_factory=list)
    room: int = MAX_RESULT
    result: Event | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


def failed(reason: str, message: str, results: list[Event] | None = None) -> Event:
    event: Event = {"event": "failed", "reason": reason, "message": message}
    return {**event, "results": results} if results else event


class Init:
    """The journal and the supervisor."""

    def __init__(self, box: "Container") -> None:
        self._box = box
        self._phases: dict[str, Phase] = {}

    def started(self, nonce: str) -> Phase | None:
        """The phase of a nonce if it has started."""
        phase = self._phases.get(nonce)
        return phase if phase is not None and phase.claim is None else None

    @property
    def kept(self) -> int:
        """Bytes of memory that results take, or may still take."""
        return sum(phase.room for phase in self._phases.values())

    def claim(self, nonce: str, idle: float, kill: Callable[[], Any], *, attach_only: bool) -> Claim | Phase | Event:
        """To prepare it, to watch it, or the final event that says why neither."""
        phase = self._phases.get(nonce)
        if phase is not None and phase.claim is not None:
            return failed("Busy", "another connection is preparing this phase")
        if phase is not None:
            return phase
        if attach_only:
            return {"event": "unknown"}
        if len(self._phases) >= MAX_PHASES or self.kept + MAX_RESULT > MAX_KEPT:
            return failed("TooManyPhases", "this container remembers as many phases as it can")
        claim = Claim(nonce, idle, kill, clock.now())
        self._phases[nonce] = Phase(claim)
        self._box.spawn(self._watch(claim), f"claim of {nonce[:8]}")
        return claim

    def release(self, claim: Claim) -> None:
        """Its process has ended. Changes nothing once the phase has started."""
        phase = self._phases.get(claim.nonce)
        if phase is not None and phase.claim is claim:
            del self._phases[claim.nonce]

    def start(self, claim: Claim, name: str, prepared: list[Event], work: Mapping[str, Any]) -> Phase:
        """Make a claim a start, for good."""
        phase = self._phases[claim.nonce]
        phase.claim = None
        phase.started_at, phase.prepared = _timestamp(self._box.now()), prepared
        phase.room = sum((run.get("output") or {}).get("inlineBytes", 0) for run in work["runs"])
        phase.room += sum(read.get("maxBytes", 0) for read in work["read"])
        self._box.spawn(self._execute(phase, claim.nonce, name, work), f"phase {claim.nonce[:8]}")
        return phase

    async def _watch(self, claim: Claim) -> None:
        """A preparation that makes no progress loses its claim, and its process ends before the nonce is free."""
        while (due := claim.heard + claim.idle) > clock.now():
            await asyncio.sleep(due - clock.now())
        phase = self._phases.get(claim.nonce)
        if phase is None or phase.claim is not claim:
            return
        claim.lost.set_result(failed("Idle", "nothing arrived for idleSeconds; the claim is released"))
        await asyncio.sleep(YIELD_SECONDS)
        if self._phases.get(claim.nonce) is phase and phase.claim is claim:
            claim.kill()

    async def _execute(self, phase: Phase, nonce: str, name: str, work: Mapping[str, Any]) -> None:
        runs: list[Event] = []
        for run in work["runs"]:
            result = await self._run(run, nonce, name)
            runs.append(result)
            if (result["returnCode"] != 0 or result["timedOut"]) and not run.get("continueOnFailure", False):
                break
        found = [read_back(self._box.files, read["path"], read.get("maxBytes", 0)) for read in work["read"]]
        phase.result = {
            "prepared": phase.prepared,
            "startedAt": phase.started_at,
            "endedAt": _timestamp(self._box.now()),
            "runs": runs,
            "files": found,
        }
        inline = sum(len(run["output"]["inline"] or "") for run in runs)
        phase.room = inline + sum(len(file["base64"] or "") for file in found)
        phase.done.set()

    async def _run(self, run: Mapping[str, Any], nonce: str, phase: str) -> Event:
        box, recorder = self._box, Recorder(self._box.files, run.get("output"))
        result: Event = {"name": run.get("name", ""), "returnCode": None, "signal": None, "seconds": 0.0}
        result |= {"timedOut": False, "startError": None, "oomKills": 0}
        try:
            program = self._program(run)
        except (OSError, LookupError) as error:
            return {**result, "startError": str(error), "output": recorder.finish()}
        began, killed = clock.now(), box.oom_kills
        start = box.book.table.note(box, nonce, phase, program)
        box.book.table.running.add(start)
        pump = box.spawn(_pump(program.output, recorder), "output")
        leader = box.spawn(_lead(box, program), program.name)
        try:
            await asyncio.wait([leader], timeout=run.get("limitSeconds"))
            if not leader.done():
                result["timedOut"] = True
                leader.cancel()
                await asyncio.wait([leader])
        finally:
            box.book.table.running.discard(start)
        program.output.end()
        await asyncio.wait([pump])
        code = -signal.SIGKILL if leader.cancelled() else leader.result()
        result["signal" if code < 0 else "returnCode"] = abs(int(code))
        result |= {"seconds": clock.now() - began, "oomKills": box.oom_kills - killed, "output": recorder.finish()}
        return result

    def _program(self, run: Mapping[str, Any]) -> programs.Program:
        """Resolved in the container as it is now. OSError or LookupError: it cannot be started."""
        box, argv = self._box, list(run["argv"])
        user, home = (box.image.uid, box.image.gid), None
        if run.get("user") is not None:
            found = users.lookup(box.files, run["user"])
            user, home = (found.uid, found.gid), found.home
        env = {**box.env, **({"HOME": home} if home else {}), **(run.get("env") or {})}
        cwd = run.get("cwd") or box.image.cwd
        if not isinstance(box.files.find(cwd), files.Folder):
            raise NotADirectoryError(f"working directory {cwd}: not a directory that exists")
        find_program(box.files, argv[0], env.get("PATH", ""))
        return programs.Program(box, run.get("name", ""), argv, env, user, cwd, Pipe())


def find_program(found: files.FileSystem, name: str, path: str) -> None:
    """As execvp would. FileNotFoundError."""
    places = [name] if "/" in name else [f"{folder}/{name}" for folder in path.split(":")]
    for place in places:
        node = found.find(place)
        if isinstance(node, files.File) and node.mode & 0o111:
            return
    raise FileNotFoundError(f"{name}: not found in PATH")


async def _lead(box: "Container", program: programs.Program) -> int:
    """The program; its exit code, or a signal as a negative number."""
    try:
        return await box.book.find(program)(program)
    except programs.Killed as killed:
        return -killed.number
    except OSError as error:
        with contextlib.suppress(OSError):
            await program.print(f"{error}\n".encode())
        return 1
    except Exception as error:  # a mistake of the test: told there
        box.book.failures.append(error)
        return 70


async def _pump(output: Pipe, recorder: "Recorder") -> None:
    while data := await output.read():
        recorder.write(data)


class Recorder:
    """A run's output, bounded to head and tail while it comes."""

    def __init__(self, found: files.FileSystem, spec: Mapping[str, Any] | None) -> None:
        spec = spec or {}
        self._files = found
        self._head, self._tail = spec.get("headBytes", 0), spec.get("tailBytes", 0)
        self._last = spec.get("inlineBytes", 0)
        self._seen, self._kept, self._inline = 0, bytearray(), b""
        self._taken = 0
        self._error: str | None = None
        self._file: files.File | None = None
        if spec.get("path") is not None:
            try:
                folder, name = found.parent(spec["path"], replace=True)
                self._file = files.File(0o644)
                found.place(folder, name, self._file)
            except OSError as error:
                self._file, self._error = None, error.strerror

    def write(self, data: bytes) -> None:
        self._seen += len(data)
        self._inline = (self._inline + data)[-self._last :] if self._last else b""
        if self._file is None or self._error is not None:
            return
        kept = self._kept + data
        if len(kept) > self._head + self._tail:
            kept = kept[: self._head] + kept[len(kept) - self._tail :] if self._tail else kept[: self._head]
        if self._files.used - len(self._file.content) + len(kept) > self._files.capacity:
            self._error = "no space left on device"
            return
        self._taken += len(data)
        self._kept, self._file.content = kept, bytes(kept)

    def finish(self) -> Event:
        kept = len(self._kept) if self._file is not None else 0
        if self._file is not None and self._taken > self._head + self._tail:
            mark = f"\n[taskfold: {self._seen - kept} bytes left out]\n".encode()
            self._file.content = bytes(self._kept[: self._head]) + mark + bytes(self._kept[self._head :])
        inline = base64.b64encode(self._inline).decode() if self._last and self._inline else None
        gap = self._seen > kept
        return {"bytes": self._seen, "kept": kept, "gap": gap, "error": self._error, "inline": inline}


def read_back(found: files.FileSystem, path: str, most: int) -> Event:
    """A file that must be regular itself and below no link."""
    result: Event = {"path": path, "size": 0, "base64": None}
    try:
        node = found.entry(path)
    except FileNotFoundError:
        return {**result, "state": "missing"}
    except OSError:
        return {**result, "state": "notRegular"}
    if not isinstance(node, files.File):
        return {**result, "state": "notRegular"}
    result["size"] = len(node.content)
    if len(node.content) > most:
        return {**result, "state": "tooLarge"}
    return {**result, "state": "regular", "base64": base64.b64encode(node.content).decode()}


def _timestamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
