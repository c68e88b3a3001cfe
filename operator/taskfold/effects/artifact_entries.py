"""What a manifest says of an artifact, from what a look or a copy found.

Guarantees: what is refused is refused for what it is or where it is in the sandbox, whatever was declared; an entry has
an archive only if all of it was packed within the limits.
"""

import json
from collections.abc import Callable, Sequence
from typing import TypeVar, assert_never

from taskfold.contract import artifacts as contract
from taskfold.contract import task
from taskfold.effects import packed
from taskfold.protocol import artifacts

R = TypeVar("R")

LIST_BYTES = 32 * 1024
"""Of names in one list of an entry, as JSON: a manifest has up to 256 entries with two lists each, and is held in
memory whole."""
_TYPES = {
    packed.RootType.FILE: artifacts.Type.FILE,
    packed.RootType.DIRECTORY: artifacts.Type.DIRECTORY,
}


def overlapping(wanted: Sequence[task.Artifact]) -> list[tuple[int, artifacts.Entry]]:
    """Those whose place an earlier one has."""
    claims = contract.claims(wanted)
    kept, overlaps = list(claims.kept), list(claims.overlaps)
    found: list[tuple[int, artifacts.Entry]] = []
    for index, each in enumerate(wanted):
        if kept and kept[0] == each:
            kept.pop(0)
            continue
        _, winner = overlaps.pop(0)
        reason = f"{winner.source} comes first, and is kept as {winner.destination}"
        found.append((index, without(each, None, artifacts.Status.SKIPPED, reason)))
    return found


def refused(artifact: task.Artifact, root: packed.RootResult) -> artifacts.Entry | None:
    """The entry of what is not taken for what it is or where it is; None: it is taken."""
    failed = artifacts.Status.FAILED
    match root.type:
        case packed.RootType.MISSING:
            return without(artifact, root, artifacts.Status.MISSING, "there is no such file or folder")
        case packed.RootType.LINK:
            return without(artifact, root, failed, "it is a link or lies behind one, and none is followed")
        case packed.RootType.SPECIAL:
            return without(artifact, root, failed, "it is neither a file nor a folder")
        case packed.RootType.UNREADABLE:
            return without(artifact, root, failed, "it cannot be read")
        case packed.RootType.FILE | packed.RootType.DIRECTORY:
            folder = contract.protected(root.path)
            if folder is None:
                return None
            return without(artifact, root, failed, f"{root.path} takes in {folder}, which is not an artifact")
        case _:
            assert_never(root.type)


def without(
    artifact: task.Artifact, root: packed.RootResult | None, status: artifacts.Status, reason: str
) -> artifacts.Entry:
    """An entry that has no archive."""
    return artifacts.Entry(
        source=artifact.source,
        destination=artifact.destination,
        status=status,
        service=artifact.service,
        exclude=artifact.exclude,
        type=_TYPES.get(root.type) if root is not None else None,
        path=root.path if root is not None else None,
        reason=reason,
    )


def of_copy(artifact: task.Artifact, root: packed.RootResult, found: packed.PackResult, key: str) -> artifacts.Entry:
    """The entry of what was packed whole, alone in its archive. `key`: where that is."""
    folder = root.type is packed.RootType.DIRECTORY
    return artifacts.Entry(
        source=artifact.source,
        destination=artifact.destination,
        status=artifacts.Status.EMPTY if folder and root.entries == 1 else artifacts.Status.OK,
        service=artifact.service,
        exclude=artifact.exclude,
        type=_TYPES[root.type],
        path=root.path,
        size=root.size,
        sha256=found.sha256 if folder else root.sha256,
        archive=artifacts.Archive(key, found.size, found.sha256, found.entries),
        left=tuple(_fitting([artifacts.Left(each.path, each.reason) for each in found.skipped], lambda one: one.path)),
        left_count=found.skipped_count,
        changed=tuple(_fitting(found.changed, str)),
    )


def _fitting(listed: Sequence[R], name: Callable[[R], str]) -> list[R]:
    """As many of the first as there is room for: their names are the agent's to choose."""
    kept: list[R] = []
    room = LIST_BYTES
    for each in listed:
        room -= len(json.dumps(name(each)))
        if room < 0:
            break
        kept.append(each)
    return kept
