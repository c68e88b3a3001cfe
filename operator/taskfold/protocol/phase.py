"""One phase in a sandbox: what is asked of the helper, and what it reports.

A phase is known by its nonce. Preparation may be repeated until the phase has started; a start happens once; the
result stays in the helper's memory, so the same request sent again attaches and gets the same answer.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from taskfold.protocol import PROTOCOL, values
from taskfold.protocol.prepare import (
    CheckUser,
    Directory,
    Move,
    PrepareOp,
    Remove,
    Reset,
    Restore,
    Tools,
    Unpack,
    User,
    UserNamespace,
    Write,
)

__all__ = [
    "BackgroundEnd",
    "Check",
    "CheckUser",
    "Directory",
    "FileState",
    "Move",
    "Output",
    "PhaseRequest",
    "PhaseResult",
    "PrepareOp",
    "ProtocolError",
    "Read",
    "ReadFile",
    "Remove",
    "Reset",
    "Restore",
    "Run",
    "RunResult",
    "Tools",
    "Unpack",
    "User",
    "UserNamespace",
    "Write",
    "parse_result",
]

HEAD_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 10 * 1024 * 1024
INLINE_BYTES = 4096
"""The end of a run's output that comes back with the result, for messages."""


class ProtocolError(ValueError):
    """The helper answered something that is not the protocol."""


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
class Check:
    """A program that is started again until it succeeds, as a health check is (the contract's healthcheck).

    The first attempt begins at once. Failures of attempts that began within `start_period_seconds` do not count and
    are followed by `start_interval_seconds`; any other counts, ends the check when there are `retries` of them (0:
    one, C18), and is followed by `interval_seconds`. Each attempt has the run's `limit_seconds`.
    """

    interval_seconds: float
    start_interval_seconds: float
    start_period_seconds: float
    retries: int

    def to_wire(self) -> dict[str, Any]:
        return {
            "intervalSeconds": self.interval_seconds,
            "startIntervalSeconds": self.start_interval_seconds,
            "startPeriodSeconds": self.start_period_seconds,
            "retries": self.retries,
        }


@dataclass(frozen=True)
class Run:
    """One program: its own session, killed as a group at `limit_seconds`.

    `check`: attempts until one succeeds; the result is that of the last. `settle_seconds`: the program goes on beside
    what follows, for as long as the sandbox lives; the next run begins when it has ended, or so many seconds later. Its
    end is in the results of all phases that end later (`PhaseResult.background`). If it does not end well while its own
    phase goes on, no further run of that is started and a check gives up, unless `continue_on_failure`.
    `make_cwd`: folders that `cwd` lacks are made, root's, along the image's links. `own_env`: `env` (and HOME) is all
    that it gets, not what the container has beside it.
    """

    name: str
    argv: tuple[str, ...]
    output: Output
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    user: User | None = None
    limit_seconds: float | None = None
    continue_on_failure: bool = True
    check: Check | None = None
    settle_seconds: float | None = None
    make_cwd: bool = False
    own_env: bool = False

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
            "check": self.check.to_wire() if self.check else None,
            "background": {"settleSeconds": self.settle_seconds} if self.settle_seconds is not None else None,
            "makeCwd": self.make_cwd,
            "ownEnv": self.own_env,
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
    """Everything one phase asks for; one archive of payload follows for each `Unpack` and `Restore`."""

    nonce: str
    phase: str
    prepare: Sequence[PrepareOp] = ()
    runs: Sequence[Run] = ()
    read: Sequence[Read] = ()
    attach_only: bool = False
    idle_seconds: int = 30
    keep: bool = False
    """After the end the helper waits for another request on the same stream."""
    limit_seconds: float | None = None
    """All runs together: the one that goes on then is killed, and none is started after."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "nonce": self.nonce,
            "phase": self.phase,
            "attachOnly": self.attach_only,
            "idleSeconds": self.idle_seconds,
            "keep": self.keep,
            "prepare": [op.to_wire() for op in self.prepare],
            "limitSeconds": self.limit_seconds,
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

    `oom_kills`: processes that the container's memory limit killed meanwhile, whoever had started them. `attempts`: how
    often it was started; more than once only for a check, whose `seconds` are those of all attempts and pauses.
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
    attempts: int = 1

    @property
    def succeeded(self) -> bool:
        return self.return_code == 0 and not self.timed_out and self.start_error is None


@dataclass(frozen=True)
class BackgroundEnd:
    """How a run ended that went on beside others; `nonce` is that of the phase that began it."""

    nonce: str
    run: RunResult


@dataclass(frozen=True)
class PhaseResult:
    """The end of a phase. The same for everyone who asks, however often.

    `background`: which runs of this sandbox that went on beside others had ended by then.
    """

    nonce: str
    started_at: str
    ended_at: str
    prepared: tuple[Mapping[str, Any], ...]
    runs: tuple[RunResult, ...]
    files: Mapping[str, ReadFile]
    background: tuple[BackgroundEnd, ...] = ()
    notes: tuple[str, ...] = ()
    """What the operator has to say about it, for people; nothing of this comes from the helper."""

    def run(self, name: str) -> RunResult | None:
        return next((run for run in self.runs if run.name == name), None)

    def missing_tools(self) -> tuple[str, ...]:
        return tuple(tool for op in self.prepared if op.get("op") == "tools" for tool in op.get("missing") or ())

    @property
    def upload_seconds(self) -> float | None:
        """How long its archives took, from the request for each to its last file; None: it had none."""
        took = [op["seconds"] for op in self.prepared if op.get("op") in ("unpack", "restore") and "seconds" in op]
        return sum(values.finite(each) for each in took) if took else None

    def dropped(self) -> tuple[str, ...]:
        """Names that a reset was to keep, of what was no regular file."""
        return tuple(name for op in self.prepared if op.get("op") == "reset" for name in op.get("dropped") or ())


def parse_result(nonce: str, wire: Mapping[str, Any]) -> PhaseResult:
    """The `result` of a `done` event. Raises ProtocolError when a field is missing or of another shape."""
    try:
        return PhaseResult(
            nonce=nonce,
            started_at=values.parse_time(wire["startedAt"]),
            ended_at=values.parse_time(wire["endedAt"]),
            prepared=tuple(dict(op) for op in wire.get("prepared") or ()),
            runs=tuple(_run_result(run) for run in wire.get("runs") or ()),
            files={file["path"]: _read_file(file) for file in wire.get("files") or ()},
            background=tuple(_background(end) for end in wire.get("background") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the helper's result has an unexpected shape: {error!r}") from error


def _run_result(wire: Mapping[str, Any]) -> RunResult:
    output = wire.get("output") or {}
    return RunResult(
        name=wire["name"],
        return_code=values.whole(wire.get("returnCode")),
        signal=values.whole(wire.get("signal")),
        seconds=values.finite(wire["seconds"]),
        timed_out=bool(wire.get("timedOut")),
        start_error=wire.get("startError"),
        output_bytes=int(output.get("bytes") or 0),
        output_gap=bool(output.get("gap")),
        output_error=output.get("error"),
        inline=base64.b64decode(output.get("inline") or "", validate=True),
        oom_kills=values.whole(wire.get("oomKills")) or 0,
        attempts=values.whole(wire.get("attempts")) or 0,
    )


def _background(wire: Mapping[str, Any]) -> BackgroundEnd:
    if not isinstance(wire["nonce"], str):
        raise ValueError(f"{wire['nonce']!r} is not a nonce")
    return BackgroundEnd(wire["nonce"], _run_result(wire["run"]))


def _read_file(wire: Mapping[str, Any]) -> ReadFile:
    return ReadFile(
        path=wire["path"],
        state=FileState(wire["state"]),
        size=int(wire.get("size") or 0),
        content=base64.b64decode(wire.get("base64") or "", validate=True),
    )
