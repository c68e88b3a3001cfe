"""One phase in a sandbox: what is asked of the helper, and what it reports.

A phase is known by its nonce. Preparation may be repeated until the phase has started; a start happens once; the
result stays in the helper's memory, so the same request sent again attaches and gets the same answer.
"""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from taskfold.protocol import PROTOCOL

HEAD_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 10 * 1024 * 1024
INLINE_BYTES = 4096
"""The end of a run's output that comes back with the result, for messages."""


class ProtocolError(ValueError):
    """The helper answered something that is not the protocol."""


@dataclass(frozen=True)
class User:
    """Who a program runs as: by name (looked up in the sandbox) or by number; `group` is a name, `gid` a number."""

    name: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None
    group: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"uid": self.uid} if self.name is None else {"name": self.name}
        if self.group is not None:
            wire["group"] = self.group
        if self.gid is not None:
            wire["gid"] = self.gid
        if self.groups is not None:
            wire["groups"] = list(self.groups)
        return wire


@dataclass(frozen=True)
class Tools:
    """The sandbox must have these programs on its PATH."""

    names: tuple[str, ...]
    required: bool = False

    def to_wire(self) -> dict[str, Any]:
        return {"op": "tools", "names": list(self.names), "required": self.required}


@dataclass(frozen=True)
class CheckUser:
    """The sandbox must know the names of this user and of its group."""

    user: User
    required: bool = True

    def to_wire(self) -> dict[str, Any]:
        return {"op": "user", **self.user.to_wire(), "required": self.required}


@dataclass(frozen=True)
class Reset:
    """Empty a folder that belongs to housekeeping; `keep` names top-level regular files that stay."""

    path: str
    keep: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        return {"op": "reset", "path": self.path, "keep": list(self.keep)}


@dataclass(frozen=True)
class Directory:
    """A folder must exist. `existing`: `keep` leaves mode and owner of one that is there, `own` sets them.

    `links`: `replace` puts folders where links or files are in the way, for housekeeping's own paths; `follow` goes
    where the image's links lead and removes nothing (a file in the way fails the phase with `Prepare`), for paths
    of the image before anything untrusted has run.
    """

    path: str
    mode: str = "0755"
    user: User | None = None
    existing: Literal["keep", "own"] = "own"
    links: Literal["replace", "follow"] = "replace"

    def to_wire(self) -> dict[str, Any]:
        return {
            "op": "directory",
            "path": self.path,
            "mode": self.mode,
            "user": self.user.to_wire() if self.user else None,
            "existing": self.existing,
            "links": self.links,
        }


@dataclass(frozen=True)
class Unpack:
    """Take the next archive of the payload and unpack it below `path`."""

    path: str
    digest: str | None = None
    max_bytes: int = 4 * 1024**3
    max_entries: int = 200_000
    file_mode: Literal["normalise", "keep"] = "normalise"

    def to_wire(self) -> dict[str, Any]:
        return {
            "op": "unpack",
            "path": self.path,
            "digest": self.digest,
            "maxBytes": self.max_bytes,
            "maxEntries": self.max_entries,
            "fileMode": self.file_mode,
        }


@dataclass(frozen=True)
class Write:
    """Write one small file."""

    path: str
    content: bytes
    mode: str = "0644"

    def to_wire(self) -> dict[str, Any]:
        encoded = base64.b64encode(self.content).decode("ascii")
        return {"op": "write", "path": self.path, "mode": self.mode, "base64": encoded}


PrepareOp = Tools | CheckUser | Reset | Directory | Unpack | Write


@dataclass(frozen=True)
class Output:
    """Where a run's output goes in the sandbox, bounded to head and tail."""

    path: str | None
    head_bytes: int = HEAD_BYTES
    tail_bytes: int = TAIL_BYTES
    inline_bytes: int = INLINE_BYTES

    def to_wire(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "headBytes": self.head_bytes,
            "tailBytes": self.tail_bytes,
            "inlineBytes": self.inline_bytes,
        }


@dataclass(frozen=True)
class Run:
    """One program: its own session, killed as a group at `limit_seconds`."""

    name: str
    argv: tuple[str, ...]
    output: Output
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    user: User | None = None
    limit_seconds: float | None = None
    continue_on_failure: bool = True

    def to_wire(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "user": self.user.to_wire() if self.user else None,
            "limitSeconds": self.limit_seconds,
            "output": self.output.to_wire(),
            "continueOnFailure": self.continue_on_failure,
        }


@dataclass(frozen=True)
class Read:
    """A file that the helper reads the moment the last run has ended."""

    path: str
    max_bytes: int

    def to_wire(self) -> dict[str, Any]:
        return {"path": self.path, "maxBytes": self.max_bytes}


@dataclass(frozen=True)
class PhaseRequest:
    """Everything one phase asks for; one archive of payload follows for each `Unpack`."""

    nonce: str
    phase: str
    prepare: Sequence[PrepareOp] = ()
    runs: Sequence[Run] = ()
    read: Sequence[Read] = ()
    attach_only: bool = False
    idle_seconds: int = 30
    keep: bool = False
    """After the end the helper waits for another request on the same stream."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "nonce": self.nonce,
            "phase": self.phase,
            "attachOnly": self.attach_only,
            "idleSeconds": self.idle_seconds,
            "keep": self.keep,
            "prepare": [op.to_wire() for op in self.prepare],
            "runs": [run.to_wire() for run in self.runs],
            "read": [read.to_wire() for read in self.read],
        }


class FileState(StrEnum):
    """What the helper found at a path it was asked to read."""

    REGULAR = "regular"
    MISSING = "missing"
    NOT_REGULAR = "notRegular"
    TOO_LARGE = "tooLarge"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class ReadFile:
    """A file as it was when the last run ended."""

    path: str
    state: FileState
    size: int
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class RunResult:
    """How one program ended. `return_code` is None when a signal ended it or it never started.

    `oom_kills`: processes that the container's memory limit killed meanwhile, whoever had started them.
    """

    name: str
    return_code: int | None
    signal: int | None
    seconds: float
    timed_out: bool
    start_error: str | None
    output_bytes: int
    output_gap: bool
    output_error: str | None
    inline: bytes = field(default=b"", repr=False)
    oom_kills: int = 0

    @property
    def succeeded(self) -> bool:
        return self.return_code == 0 and not self.timed_out and self.start_error is None


@dataclass(frozen=True)
class PhaseResult:
    """The end of a phase. The same for everyone who asks, however often."""

    nonce: str
    started_at: str
    ended_at: str
    prepared: tuple[Mapping[str, Any], ...]
    runs: tuple[RunResult, ...]
    files: Mapping[str, ReadFile]

    def run(self, name: str) -> RunResult | None:
        return next((run for run in self.runs if run.name == name), None)

    def missing_tools(self) -> tuple[str, ...]:
        return tuple(tool for op in self.prepared if op.get("op") == "tools" for tool in op.get("missing") or ())


def parse_result(nonce: str, wire: Mapping[str, Any]) -> PhaseResult:
    """The `result` of a `done` event. Raises ProtocolError when a field is missing or of another shape."""
    try:
        return PhaseResult(
            nonce=nonce,
            started_at=parse_time(wire["startedAt"]),
            ended_at=parse_time(wire["endedAt"]),
            prepared=tuple(dict(op) for op in wire.get("prepared") or ()),
            runs=tuple(_run_result(run) for run in wire.get("runs") or ()),
            files={file["path"]: _read_file(file) for file in wire.get("files") or ()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the helper's result has an unexpected shape: {error!r}") from error


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def parse_time(value: object) -> str:
    """A time as the helper writes it, unchanged. ValueError if it is none."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError(f"{value!r} is not a time")
    return value


def _whole(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _run_result(wire: Mapping[str, Any]) -> RunResult:
    output = wire.get("output") or {}
    return RunResult(
        name=wire["name"],
        return_code=_whole(wire.get("returnCode")),
        signal=_whole(wire.get("signal")),
        seconds=_finite(wire["seconds"]),
        timed_out=bool(wire.get("timedOut")),
        start_error=wire.get("startError"),
        output_bytes=int(output.get("bytes") or 0),
        output_gap=bool(output.get("gap")),
        output_error=output.get("error"),
        inline=base64.b64decode(output.get("inline") or "", validate=True),
        oom_kills=_whole(wire.get("oomKills")) or 0,
    )


def _read_file(wire: Mapping[str, Any]) -> ReadFile:
    return ReadFile(
        path=wire["path"],
        state=FileState(wire["state"]),
        size=int(wire.get("size") or 0),
        content=base64.b64decode(wire.get("base64") or "", validate=True),
    )
