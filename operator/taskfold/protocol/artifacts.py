"""The manifest of what a verification takes out of the agent's sandbox: one entry for each declared artifact.

It stands in the store as `artifacts.json`, written once, before the agent's sandbox is stopped, and everything later
(the verifier's sandbox, a regrade, a download) goes by it. Guarantees: an entry says what became of it; what has an
`archive` is whole, and proven by that archive's digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

VERSION = 1
MAX_LISTED = 100
"""Left out files that an entry names; the rest is a number."""


class Status(StrEnum):
    """What became of a declared artifact."""

    OK = "ok"
    EMPTY = "empty"
    """A folder in which there is nothing, or nothing that is kept; it is put in place all the same."""
    MISSING = "missing"
    """There is no such path, which is no loss: the agent need not make it."""
    SKIPPED = "skipped"
    """Not taken, by a rule: it overlaps with an earlier one, it is over a limit."""
    FAILED = "failed"
    """It is there, and cannot be taken: no file or folder, a link, unreadable."""


class Type(StrEnum):
    """What an artifact is."""

    FILE = "file"
    DIRECTORY = "directory"


@dataclass(frozen=True)
class Archive:
    """The stored tar of one artifact. `key`: below the manifest's own place. `size` in bytes. `sha256`: hex."""

    key: str
    size: int
    sha256: str
    entries: int


@dataclass(frozen=True)
class Left:
    """A file that is not in the archive, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """One declared artifact.

    `source` as declared; `path`: the absolute one in the sandbox. `size`: bytes of file contents. `sha256`: hex, of a
    file its content's, of a folder its archive's. `reason`: why it is not ok. `left`: what of a folder was left out
    although it was not excluded, the first hundred of `left_count`. `changed`: files that became longer or shorter
    while they were read, so that their content is of no one moment.
    """

    source: str
    destination: str
    status: Status
    service: str = "main"
    exclude: tuple[str, ...] = ()
    type: Type | None = None
    path: str | None = None
    size: int = 0
    sha256: str | None = None
    archive: Archive | None = None
    reason: str = ""
    left: tuple[Left, ...] = ()
    left_count: int = 0
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """All entries, in the order in which they were declared; `/logs/artifacts` first unless it was declared."""

    entries: tuple[Entry, ...] = ()

    @property
    def delivered(self) -> tuple[Entry, ...]:
        """What the verifier's sandbox receives."""
        return tuple(entry for entry in self.entries if entry.archive is not None)

    @property
    def refused(self) -> tuple[Entry, ...]:
        """What was not taken, by a rule or because it cannot be."""
        return tuple(entry for entry in self.entries if entry.status in (Status.SKIPPED, Status.FAILED))

    @property
    def lost(self) -> tuple[Entry, ...]:
        """What is there and was not taken: over a limit, or not to be read (C36). What only overlaps with an earlier
        one was not even looked at.
        """
        return tuple(entry for entry in self.refused if entry.path is not None or entry.status is Status.FAILED)

    def document(self) -> dict[str, Any]:
        """The manifest as JSON data."""
        return {"version": VERSION, "artifacts": [asdict(entry) for entry in self.entries]}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Manifest:
        """The manifest of a document that this module made. ValueError for another version."""
        if document.get("version") != VERSION:
            raise ValueError(f"a manifest of version {document.get('version')!r}, and this one reads {VERSION}")
        return cls(tuple(map(_entry, document["artifacts"])))


def _entry(data: Mapping[str, Any]) -> Entry:
    archive, kind = data["archive"], data["type"]
    left: Sequence[Mapping[str, str]] = data["left"]
    return Entry(
        source=data["source"],
        destination=data["destination"],
        status=Status(data["status"]),
        service=data["service"],
        exclude=tuple(data["exclude"]),
        type=Type(kind) if kind is not None else None,
        path=data["path"],
        size=data["size"],
        sha256=data["sha256"],
        archive=Archive(**archive) if archive is not None else None,
        reason=data["reason"],
        left=tuple(Left(**each) for each in left),
        left_count=data["left_count"],
        changed=tuple(data["changed"]),
    )
