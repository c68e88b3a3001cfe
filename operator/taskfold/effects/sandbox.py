"""The client side of the sandbox helper's protocol, version 1 (docs/design: the journal in PID 1).

`run_phase` may be called again with the same request after any error that leaves the outcome open: the helper runs a
nonce once; a later call attaches and gets the same result. Secrets travel by stdin only.
Never trusts a copy without a trailer that agrees at both ends.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taskfold.effects import exec as execs, transfer

PROTOCOL = 1
HELPER = "/.taskfold/helper"


def new_nonce() -> str:
    """32 random hex digits."""


@dataclass(frozen=True, slots=True)
class User:
    """Who runs a command or owns a directory: a name of the image, or numbers."""

    name: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """Look programs up in the image's PATH. `required`: a missing one fails the phase (MissingTools)."""

    names: tuple[str, ...]
    required: bool = False


@dataclass(frozen=True, slots=True)
class FindUser:
    """Resolve a user of the image. `required`: an unknown one fails the phase (UnknownUser)."""

    user: User
    required: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """Empty a directory (created if missing); `keep`: top-level regular files that stay."""

    path: str
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Directory:
    """Make sure a directory exists. `own`: mode and owner are set on an existing one too."""

    path: str
    mode: int = 0o755
    user: User | None = None
    own: bool = False


@dataclass(frozen=True, slots=True)
class Unpack:
    """Unpack the next payload below path. `digest`: sha256 of the tar stream where it is known before."""

    path: str
    max_bytes: int
    max_entries: int
    digest: str | None = None
    normalise: bool = True


@dataclass(frozen=True, slots=True)
class Write:
    """Write a small file (the whole request is at most 1 MiB)."""

    path: str
    content: bytes
    mode: int = 0o644


PrepareOp = Tools | FindUser | Reset | Directory | Unpack | Write


@dataclass(frozen=True, slots=True)
class Output:
    """Where stdout and stderr of a run go, and how much of it stays."""

    path: str
    head_bytes: int = 10 << 20
    tail_bytes: int = 10 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """One command of a phase. `cwd`, `user` None: the image's. `limit_seconds` None: no limit."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    output: Output
    cwd: str | None = None
    user: User | None = None
    limit_seconds: float | None = None
    continue_on_failure: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """A file to hand back, read by PID 1 at the moment the last run ended."""

    path: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PhaseRequest:
    """Everything about one phase; equal requests with one nonce are one phase."""

    nonce: str
    phase: str
    prepare: tuple[PrepareOp, ...] = ()
    runs: tuple[Run, ...] = ()
    read: tuple[Read, ...] = ()
    attach_only: bool = False
    idle_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one prepare operation said. Fields that do not belong to its op keep their defaults."""

    op: str
    missing: tuple[str, ...] = ()
    error: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    home: str | None = None
    entries: int | None = None
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """An output file: bytes printed, bytes kept, whether the middle is missing, and why it is incomplete."""

    bytes: int
    kept: int
    gap: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of one run: exactly one of return_code, signal, start_error is set."""

    name: str
    return_code: int | None
    signal: int | None
    seconds: float
    timed_out: bool
    start_error: str | None
    output: Kept


class FileState(enum.StrEnum):
    """As in contract.rewards."""

    REGULAR = "regular"
    MISSING = "missing"
    NOT_REGULAR = "notRegular"
    TOO_LARGE = "tooLarge"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class FileResult:
    path: str
    state: FileState
    size: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Started:
    """The phase is running. `attached`: it was before this call."""

    at: datetime
    attached: bool
    prepared: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """The phase is done."""

    prepared: tuple[Prepared, ...]  # one per prepare op, in order
    started_at: datetime
    ended_at: datetime
    runs: tuple[RunResult, ...]  # the runs that were started, in order
    files: tuple[FileResult, ...]  # one per Read, in order
    attached: bool

    def run(self, name: str) -> RunResult: ...  # KeyError
    def file(self, path: str) -> FileResult: ...  # KeyError


@dataclass(frozen=True, slots=True)
class Root:
    """A path of the sandbox and the name it has inside the archive."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Skipped:
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class PackResult:
    entries: int
    bytes: int
    sha256: str
    skipped: tuple[Skipped, ...]
    skipped_count: int
    changed: tuple[str, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class UnpackResult:
    entries: int
    bytes: int
    sha256: str
    skipped: tuple[Skipped, ...]


class Sandbox:
    """One pinned container with the helper in it."""

    def __init__(self, exec_: execs.Exec, pin: execs.PodPin, *, helper: str = HELPER) -> None: ...

    async def run_phase(
        self,
        request: PhaseRequest,
        payloads: Sequence[
            transfer.Payload
        ] = (),  # one per Unpack op, in order; may be built anew for every call
        *,
        on_started: Callable[[Started], Awaitable[None]] | None = None,
        total_seconds: float | None = None,  # default: the runs' limits + 600
        checked: bool = False,
    ) -> PhaseResult:
        """Claim, prepare, start, wait; or attach. PhaseFailed (nothing started), UnknownPhase (attach_only),
        ExecError as in effects.exec (ConnectionLost, ExecTimeout: call again), TransferError (the payload's source)."""

    async def pack(
        self,
        roots: Sequence[Root],
        sink: transfer.Sink,
        *,
        max_bytes: int,
        max_entries: int,
        max_file_bytes: int | None = None,
        total_seconds: float | None = None,
        checked: bool = False,
    ) -> PackResult:
        """Copy out of the sandbox. Missing or unreadable things are listed, not errors."""

    async def unpack(
        self,
        path: str,
        payload: transfer.Payload,
        *,
        max_bytes: int,
        max_entries: int,
        normalise: bool = False,
        total_seconds: float | None = None,
        checked: bool = False,
    ) -> UnpackResult:
        """Copy into the sandbox, below path."""
