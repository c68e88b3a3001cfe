"""One program of a phase, as PID 1 runs it: how it starts, what is kept of its output, how it ends.

Guarantees, as `helper/run.go`, `output.go` and `read.go` give them: user, folder and program are those of the container
at the moment of the start; a group is killed at its limit; an output is bounded while it comes.
"""

import asyncio
import base64
import contextlib
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.world import clock, files, programs, users
from tests.world.pipes import Pipe

if TYPE_CHECKING:
    from tests.world.sandbox import Container

Event = dict[str, Any]


async def run(
    box: "Container", spec: Mapping[str, Any], limit: float | None, *, nonce: str, phase: str, attempt: int = 1
) -> Event:
    """The result of one start. `limit`: seconds; None for none. `attempt`: of a check."""
    recorder = Recorder(box.files, spec.get("output"))
    result: Event = {"name": spec.get("name", ""), "returnCode": None, "signal": None, "seconds": 0.0}
    result |= {"timedOut": False, "startError": None, "oomKills": 0, "attempts": attempt}
    try:
        program = _program(box, spec)
    except (OSError, LookupError) as error:
        return {**result, "startError": str(error), "output": recorder.finish()}
    began, killed = clock.now(), box.oom_kills
    start = box.book.table.note(box, nonce, phase, program, attempt)
    box.book.table.running.add(start)
    pump = box.spawn(_pump(program.output, recorder), "output")
    leader = box.spawn(_lead(box, program), program.name)
    try:
        await asyncio.wait([leader], timeout=limit)
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
    return result | {"seconds": clock.now() - began, "oomKills": box.oom_kills - killed, "output": recorder.finish()}


def late(spec: Mapping[str, Any]) -> Event:
    """The result of a run whose phase had no time left."""
    result: Event = {"name": spec.get("name", ""), "returnCode": None, "signal": None, "seconds": 0.0}
    output = {"bytes": 0, "kept": 0, "gap": False, "error": None, "inline": None}
    why = "the limit of its phase has passed"
    return {**result, "timedOut": False, "startError": why, "oomKills": 0, "attempts": 0, "output": output}


def _program(box: "Container", spec: Mapping[str, Any]) -> programs.Program:
    """Resolved in the container as it is now. OSError or LookupError: it cannot be started."""
    argv = list(spec["argv"])
    user, login = (box.image.uid, box.image.gid), dict[str, str]()
    if spec.get("user") is not None:
        found = users.lookup(box.files, spec["user"])
        user, login = (found.uid, found.gid), found.login
    own = spec.get("ownEnv")
    login = {"HOME": login["HOME"]} if own and login else login
    env = {**({} if own else box.env), **login, **(spec.get("env") or {})}
    cwd = spec.get("cwd") or box.image.cwd
    if spec.get("makeCwd"):
        box.files.follow(cwd)
    if not isinstance(box.files.find(cwd), files.Folder):
        raise NotADirectoryError(f"working directory {cwd}: not a directory that exists")
    find_program(box.files, argv[0], env.get("PATH", ""))
    return programs.Program(box, spec.get("name", ""), argv, env, user, cwd, Pipe())


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
