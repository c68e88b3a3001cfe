"""One command in a sandbox for somebody who drives it from outside: as a user, with input, outputs apart.

Guarantees: it ends with whoever asked: when the connection goes, for whatever reason, the helper kills the command's
process group. An end is told only if the helper told it. Outputs are bounded where they come from. Never a shell, and
never a secret in the URL of an exec: arguments, variables and input go over stdin.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskfold import protocol
from taskfold.effects import errors, frames, lines
from taskfold.effects import exec as execs
from taskfold.effects.sandbox import HELPER
from taskfold.protocol.phase import User

STDOUT, STDERR, END = 1, 2, 3
MAX_OUTPUT = 64 << 20
"""What the helper passes on of one output at most."""
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `user` None: root. `cwd` None: the image's own. `env`: beside the container's variables."""

    argv: Sequence[str]
    user: User | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self, max_bytes: int) -> dict[str, Any]:
        return {
            "protocol": protocol.PROTOCOL,
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "user": self.user.to_wire() if self.user is not None else None,
            "maxBytes": max_bytes,
        }


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended. `returncode`: as `subprocess` has it, -N for the signal N. Each output: its first bytes, and how
    many there were. `uid`, `gid`: as whom it ran.
    """

    returncode: int
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int
    uid: int
    gid: int

    @property
    def truncated(self) -> bool:
        """Whether there was more than is here."""
        return self.stdout_bytes > len(self.stdout) or self.stderr_bytes > len(self.stderr)


async def run(
    exec_: execs.Exec,
    pin: execs.PodPin,
    command: Command,
    *,
    stdin: bytes = b"",
    max_bytes: int = 1 << 20,
    seconds: float | None = None,
    tell: Callable[[int, bytes], None] | None = None,
) -> Ended:
    """Run it to its end. Raises StartFailed, ExecTimeout, any other ExecError, SandboxError.

    `max_bytes`: of each output. `seconds`: None is no limit. `tell`: gets the outputs as they come, by channel, in
    place of the result. Cancelling the caller ends the command.
    """
    if not 0 <= max_bytes <= MAX_OUTPUT:
        raise ValueError(f"max_bytes is between 0 and {MAX_OUTPUT}, not {max_bytes}")
    outputs = {STDOUT: bytearray(), STDERR: bytearray()}
    limits = execs.Limits(total_seconds=seconds, idle_seconds=None)
    async with exec_.open(pin, [HELPER, "exec"], stdin=True, limits=limits) as stream:
        async with execs.alongside(_feed(stream, frames.request(command.to_wire(max_bytes)), stdin)):
            end = await _end(stream, outputs, max_bytes, pin.where, tell)
        if end is None:
            exited = await stream.wait()
            text = exited.stderr[-2000:].decode(errors="replace").strip()
            problem = f"helper exec ended with code {exited.code}: {text or 'no message'}"
            raise errors.HelperFailed(problem, code=exited.code, where=pin.where)
        await lines.leave(stream)
    return _ended(end, outputs, pin.where)


async def _feed(stream: execs.ExecStream, request: bytes, stdin: bytes) -> None:
    try:
        await stream.send(request)
        for start in range(0, len(stdin), frames.MAX_CHUNK):
            chunk = stdin[start : start + frames.MAX_CHUNK]
            await stream.send(frames.header(len(chunk)) + chunk)
        await stream.send(frames.END)
    except errors.InputRefused:
        pass  # the reading side tells how it ended


async def _end(
    stream: execs.ExecStream,
    outputs: Mapping[int, bytearray],
    most: int,
    where: str,
    tell: Callable[[int, bytes], None] | None,
) -> Mapping[str, Any] | None:
    decoder, counts = _Decoder(), dict.fromkeys(outputs, 0)
    async for data in stream.stdout():
        for channel, content in decoder.feed(data):
            if channel == END:
                return _object(content, where)
            if channel not in outputs or counts[channel] + len(content) > most:
                raise errors.ProtocolError("an output that was not asked for", where=where)
            counts[channel] += len(content)
            if tell is not None:
                tell(channel, content)
            else:
                outputs[channel] += content
    return None


class _Decoder:
    """Frames of a length, a channel and content, in any pieces; holds one frame at most."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: memoryview) -> Iterator[tuple[int, bytes]]:
        self._rest += data
        while len(self._rest) >= _LENGTH.size:
            size: int = _LENGTH.unpack_from(self._rest)[0]
            if not 0 < size <= frames.MAX_CHUNK + 1:
                raise errors.ProtocolError(f"a frame of {size} bytes")
            if len(self._rest) < _LENGTH.size + size:
                return
            frame = bytes(self._rest[_LENGTH.size : _LENGTH.size + size])
            del self._rest[: _LENGTH.size + size]
            yield frame[0], frame[1:]


def _object(content: bytes, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise errors.ProtocolError("the end of a command is no object", where=where)
    return found


def _ended(end: Mapping[str, Any], outputs: Mapping[int, bytearray], where: str) -> Ended:
    match end:
        case {"startError": str(text)}:
            raise errors.StartFailed(f"the command could not be started: {text}", where=where)
        case {"stdoutBytes": int(out), "stderrBytes": int(err), "uid": int(uid), "gid": int(gid)}:
            code, number = end.get("returnCode"), end.get("signal")
            if isinstance(number, int):
                code = -number
            if isinstance(code, int):
                return Ended(code, bytes(outputs[STDOUT]), bytes(outputs[STDERR]), out, err, uid, gid)
    raise errors.ProtocolError(f"the end of a command is {str(end)[:200]}", where=where)
