"""A copy out of a sandbox as data: what is asked for, and what the helper says that it found.

Guarantees: there is one result for each root, in their order; texts are encodable and lists have bounds, whatever the
sandbox says. It proves nothing beyond that: a helper that was tampered with says what it likes. What is proven of an
archive is its own digest.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taskfold.effects import errors, frames

MAX_LISTED = 100
"""Names that a list of left out or changed files has; the rest is a number."""
MAX_TEXT = 4 * 1024
_SHA256 = re.compile("[0-9a-f]{64}")


class RootType(StrEnum):
    """What stood at a root's path."""

    FILE = "file"
    DIRECTORY = "directory"
    MISSING = "missing"
    LINK = "link"
    """It is a link, or one of the folders above it is: no link is followed in a source's path (C31)."""
    SPECIAL = "special"
    """A device, a FIFO, a socket, or the root folder itself."""
    UNREADABLE = "unreadable"


_TYPES = frozenset(RootType)


@dataclass(frozen=True, slots=True)
class Root:
    """A path in the sandbox, and the name it has inside the archive.

    A relative path is below the container's working directory. `only`: it is left out where another root would have it
    too. `exclude`: patterns of names below the root that are left out, as those of GNU tar's `--exclude`.
    """

    path: str
    name: str
    only: bool = False
    exclude: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        more = {"exclude": list(self.exclude)} if self.exclude else {}
        return {"path": self.path, "as": self.name, "only": self.only, **more}


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that is not in the archive, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class RootResult:
    """What became of one root. `path`: the absolute one. `entries`: members of the archive that came from it.

    `size`: bytes of file contents. `sha256`: of the content of a root that is a file, hex. Left out files (what is
    excluded is none) and those that changed while they were read are counted; `PackResult` names the first of all.
    """

    path: str
    type: RootType
    entries: int
    size: int
    sha256: str | None
    skipped_count: int
    changed_count: int


@dataclass(frozen=True, slots=True)
class PackResult:
    """What came out. `truncated`: a limit ended it early. `skipped`: the first hundred of `skipped_count`.
    `scrubbed`: how often a value was replaced. `roots`: one for each that was asked for, in their order.
    """

    entries: int
    size: int
    sha256: str
    skipped: tuple[Skipped, ...] = ()
    skipped_count: int = 0
    changed: tuple[str, ...] = ()
    truncated: bool = False
    scrubbed: int = 0
    roots: tuple[RootResult, ...] = ()


def result(trailer: frames.Trailer, roots: Sequence[Root]) -> PackResult:
    """The trailer of an archive of these roots. `ProtocolError` unless it tells of each of them."""
    extra = trailer.extra
    found = extra.get("roots")
    if not isinstance(found, list) or len(found) != len(roots):
        raise errors.ProtocolError(f"the archive's trailer does not tell of its {len(roots)} roots")
    return PackResult(
        trailer.entries,
        trailer.size,
        trailer.sha256,
        skipped=skipped(extra),
        skipped_count=_count(extra, "skippedCount"),
        changed=tuple(_text(path) for path in _list(extra, "changed")),
        truncated=extra.get("truncated") is True,
        scrubbed=_count(extra, "scrubbed"),
        roots=tuple(map(_root, found)),
    )


def skipped(answer: Mapping[str, Any]) -> tuple[Skipped, ...]:
    """What an answer lists as left out."""
    found = [each for each in _list(answer, "skipped") if isinstance(each, dict)]
    return tuple(Skipped(_text(each.get("path")), _text(each.get("reason"))) for each in found)


def _root(found: Any) -> RootResult:
    match found:
        case {"path": str(path), "type": str(kind), "sha256": None | str() as sha256} if kind in _TYPES:
            if sha256 is None or _SHA256.fullmatch(sha256):
                return RootResult(
                    path=_text(path),
                    type=RootType(kind),
                    entries=_count(found, "entries"),
                    size=_count(found, "size"),
                    sha256=sha256,
                    skipped_count=_count(found, "skippedCount"),
                    changed_count=_count(found, "changedCount"),
                )
    raise errors.ProtocolError(f"an archive's trailer with a root of another shape: {str(found)[:200]!r}")


def _list(answer: Mapping[str, Any], key: str) -> list[Any]:
    value = answer.get(key)
    return value[:MAX_LISTED] if isinstance(value, list) else []


def _text(value: object) -> str:
    """Text that can be written down: JSON can hold halves of characters."""
    return str(value)[:MAX_TEXT].encode(errors="backslashreplace").decode()


def _count(extra: Mapping[str, Any], key: str) -> int:
    """The sandbox may say anything; what is no number counts for nothing."""
    value = extra.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value < 1 << 63 else 0
