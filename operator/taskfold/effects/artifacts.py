"""Artifacts out of a sandbox into the store, and out of the store into another sandbox; and archives of logs.

Guarantees: an archive that a manifest names is whole and proven at both ends, and is never replaced: it lies under a
nonce and the number of the try. An entry is written once, when it is settled, and so is the manifest; whoever finds
them goes on from there, and what somebody else wrote first stands. Nothing is on disk, and memory is flat whatever the
size. What cannot be proven is not in a manifest: it raises.

Of a place: `artifacts.json`, the manifest; `artifacts/<i>.json`, the entry of artifact i while there is no manifest;
`artifacts/<i>-<nonce>-<try>.tar`, its archive.
"""

import asyncio
import functools
import json
import math
import posixpath
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from taskfold.contract import task
from taskfold.effects import artifact_entries, errors, frames, packed, relays, sinks, transfer
from taskfold.effects import sandbox as sandboxes
from taskfold.effects import store as stores
from taskfold.protocol import artifacts, phase

R = TypeVar("R")

MANIFEST = "artifacts.json"
FOLDER = "artifacts/"
DOCUMENT_BYTES = stores.NEW_BYTES
PAUSES = (0.5, 2.0, 5.0)
"""Between tries of one archive; whoever asked tries again later."""
CHANGED_TRIES = 3
"""How often a thing is packed that changes while it is read."""
LOOKED_AT = 64
"""Paths of one look: all that a request and its answer have room for, however long they are."""
TOLD_BYTES = 100 * 1024 * 1024
TOLD_SECONDS, TOLD_LIMIT = 2.0, 30.0
"""A copy that is larger tells how far it is: at first after so many seconds, then rarer, up to the limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of all artifacts of one verification together: bytes of their files, files and folders, seconds of copying.

    The time that a copy waits for its turn does not count.
    """

    max_bytes: int
    max_entries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """So many bytes of an artifact's archive are copied."""

    source: str
    size: int


async def export(
    sandbox: sandboxes.Sandbox,
    store: stores.Store,
    place: str,
    wanted: Sequence[task.Artifact],
    *,
    nonce: str,
    limits: Limits,
    on_progress: Callable[[Progress], None],
    checked: bool = True,
) -> artifacts.Manifest:
    """Copy the artifacts, in their order, and return the manifest that stands at `place` then.

    `nonce`: of this call and no other. `checked`: the pod has just been observed. May be called again after any error,
    and goes on with what is not settled. Raises SandboxLost, NotRunning and StoreError as they come, and TransferError
    for whatever could not be copied in a few tries or in time.
    """
    call = _Export(sandbox, store, place, nonce, limits, limits, on_progress, checked)
    return await call.all(wanted)


def restoring(manifest: artifacts.Manifest) -> tuple[phase.Restore, ...]:
    """What puts the delivered artifacts at their own paths, one operation for each archive of `payloads`."""
    return tuple(
        phase.Restore(
            path,
            "directory" if entry.type is artifacts.Type.DIRECTORY else "file",
            digest=archive.sha256,
            max_bytes=entry.size,
            max_entries=archive.entries,
        )
        for path, entry, archive in _placed(manifest)
    )


def payloads(
    store: stores.Store,
    place: str,
    manifest: artifacts.Manifest,
    on_progress: Callable[[int, int], None] = lambda sent, total: None,
) -> tuple[transfer.AnyPayload, ...]:
    """The archives of `restoring`, straight out of the store. Reading them raises StoreError, or DigestMismatch for an
    object that is not what the manifest says.

    `on_progress(sent, total)`: bytes of all of them together; nothing is told of a small delivery.
    """
    placed = [archive for _, _, archive in _placed(manifest)]
    total, before = sum(archive.size for archive in placed), 0
    relayed, pace = list[transfer.AnyPayload](), _Pace()
    for archive in placed:
        watched = _Watch(on_progress, pace, before, total)
        relayed.append(_stored(store, place + archive.key, archive, watched))
        before += archive.size
    return tuple(relayed)


async def pack_archive(
    sandbox: sandboxes.Sandbox,
    store: stores.Store,
    place: str,
    key: str,
    roots: Sequence[sandboxes.Root],
    *,
    max_bytes: int,
    max_entries: int,
    scrub: Sequence[bytes] = (),
    scrub_except: Sequence[str] = (),
    keep: bool = False,
    checked: bool = True,
) -> dict[str, Any]:
    """Kept files as one archive, in one try, and what a document says about it. `key`: below `place`, and nobody
    else's. Raises what `Sandbox.pack` and the store raise; nothing is stored then.
    """
    sink = sinks.ToConsumer(lambda chunks: store.put_stream(place + key, chunks), where=store.where(place + key))
    found = await sandbox.pack(
        roots,
        sink,
        max_bytes=max_bytes,
        max_entries=max_entries,
        scrub=scrub,
        scrub_except=scrub_except,
        keep=keep,
        checked=checked,
    )
    return {
        "key": key,
        "bytes": found.size,
        "sha256": found.sha256,
        "entries": found.entries,
        "truncated": found.truncated,
        "skipped": [{"path": each.path, "reason": each.reason} for each in found.skipped],
    }


@dataclass
class _Export:
    """One call of `export`. `left` of the limits. `made`: keys of archives below the place, also of broken tries.
    `spent`: seconds of copying.
    """

    sandbox: sandboxes.Sandbox
    store: stores.Store
    place: str
    nonce: str
    limits: Limits
    left: Limits
    told: Callable[[Progress], None]
    checked: bool
    made: list[str] = field(default_factory=list)
    spent: float = 0.0

    async def all(self, wanted: Sequence[task.Artifact]) -> artifacts.Manifest:
        """The manifest, whoever writes it; then nothing of ours is there that it does not name."""
        there = [each.key.removeprefix(self.place) async for each in self.store.list(self.place + FOLDER)]
        manifest = await self._document(MANIFEST)
        if manifest is None:
            entries = await self._entries(wanted, there)
            manifest = await self._put(MANIFEST, artifacts.Manifest(tuple(entries)))
        named = {archive.key for _, _, archive in _archives(manifest)}
        archives = {key for key in (*there, *self.made) if key.endswith(".tar")}
        await self.store.remove([self.place + key for key in sorted(archives - named)])
        return manifest

    async def _entries(self, wanted: Sequence[task.Artifact], there: Sequence[str]) -> list[artifacts.Entry]:
        """One for each artifact: those that somebody has settled already, and those that are settled now."""
        settled: dict[int, artifacts.Entry] = dict(artifact_entries.overlapping(wanted))
        for index in range(len(wanted)):
            if _document_key(index) in there and (found := await self._document(_document_key(index))) is not None:
                settled[index] = self._counted_in(found.entries[0])
        open_ = [index for index in range(len(wanted)) if index not in settled]
        roots = await self._look([wanted[index] for index in open_])
        for index, root in zip(open_, roots, strict=True):
            last = index == open_[-1]
            entry = await self._settle(index, wanted[index], root, last=last)
            if not last:  # the manifest follows at once
                entry = (await self._put(_document_key(index), artifacts.Manifest((entry,)))).entries[0]
            settled[index] = self._counted_in(entry)
        return [settled[index] for index in range(len(wanted))]

    async def _look(self, wanted: Sequence[task.Artifact]) -> list[packed.RootResult]:
        """What stands at the artifacts' paths, without its content."""
        found: list[packed.RootResult] = []
        for start in range(0, len(wanted), LOOKED_AT):
            roots = [sandboxes.Root(each.source, "x") for each in wanted[start : start + LOOKED_AT]]
            found += (await self._patiently(functools.partial(self._seen, roots), "the artifacts")).roots
        return found

    async def _seen(self, roots: Sequence[sandboxes.Root]) -> packed.PackResult:
        nothing, pack = sinks.Nowhere(), self.sandbox.pack
        return await pack(roots, nothing, max_bytes=0, max_entries=0, keep=True, checked=self.checked)

    async def _settle(
        self, index: int, artifact: task.Artifact, root: packed.RootResult, *, last: bool
    ) -> artifacts.Entry:
        """What becomes of one artifact. It is packed again when it changed meanwhile, a few times."""
        for tries in range(CHANGED_TRIES):
            refused = artifact_entries.refused(artifact, root)
            if refused is not None:
                return refused
            kind = root.type
            name = "." if kind is packed.RootType.DIRECTORY else posixpath.basename(root.path)
            asked = sandboxes.Root(artifact.source, name, exclude=artifact.exclude)
            pack = functools.partial(self._pack, index, asked, keep=not last)
            found = await self._patiently(pack, artifact.source)
            root = found.roots[0]
            settled = found.truncated or not root.changed_count or tries + 1 == CHANGED_TRIES
            if root.type is kind and settled:
                return self._packed(artifact, root, found)
        return artifact_entries.refused(artifact, root) or artifact_entries.without(
            artifact, root, artifacts.Status.FAILED, "it was replaced again and again while it was read"
        )

    async def _pack(self, index: int, root: sandboxes.Root, *, keep: bool) -> packed.PackResult:
        """One try, under a key of its own: what a try before it has sent may arrive later."""
        key = f"{FOLDER}{index}-{self.nonce}-{len(self.made)}.tar"
        self.made.append(key)

        async def stored(chunks: AsyncIterable[bytes]) -> stores.Written:
            began = asyncio.get_running_loop().time()
            try:
                return await self.store.put_stream(self.place + key, self._watched(root.path, chunks))
            finally:
                self.spent += asyncio.get_running_loop().time() - began

        return await self.sandbox.pack(
            [root],
            sinks.ToConsumer(stored, where=self.store.where(self.place + key)),
            max_bytes=self.left.max_bytes,
            max_entries=self.left.max_entries,
            total_seconds=self.limits.seconds - self.spent,
            keep=keep,
            checked=self.checked,
        )

    def _packed(self, artifact: task.Artifact, root: packed.RootResult, found: packed.PackResult) -> artifacts.Entry:
        """The entry of what was just packed."""
        if found.truncated:
            return artifact_entries.without(artifact, root, artifacts.Status.SKIPPED, self._over(found))
        if not root.entries:
            return artifact_entries.without(
                artifact, root, artifacts.Status.FAILED, "its name or time fits into no archive"
            )
        return artifact_entries.of_copy(artifact, root, found, self.made[-1])

    def _over(self, found: packed.PackResult) -> str:
        """Which limit it is over."""
        what, limit, left = "bytes", self.limits.max_bytes, self.left.max_bytes
        if found.entries >= self.left.max_entries:
            what, limit, left = "files and folders", self.limits.max_entries, self.left.max_entries
        return f"over the limit of {limit:,} {what} for all artifacts: it has more than the {left:,} that are left"

    def _counted_in(self, entry: artifacts.Entry) -> artifacts.Entry:
        """The entry takes its share of the limits."""
        if entry.archive is not None:
            size, entries = self.left.max_bytes - entry.size, self.left.max_entries - entry.archive.entries
            self.left = Limits(max(0, size), max(0, entries), self.limits.seconds)
        return entry

    async def _watched(self, source: str, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The same chunks; a large copy tells how far it is."""
        size, pace = 0, _Pace()
        async for chunk in chunks:
            yield chunk
            size += len(chunk)
            if pace.due(large=size > TOLD_BYTES):
                self.told(Progress(source, size))

    async def _patiently(self, copy: Callable[[], Awaitable[R]], what: str) -> R:
        """`copy()`, from scratch after whatever may pass by."""
        for pause in (*PAUSES, None):
            if self.spent >= self.limits.seconds:
                text = f"{what}: not copied in {self.limits.seconds:g} s, which is the limit for all artifacts"
                raise errors.TransferError(text, where=self.sandbox.pin.where)
            try:
                return await copy()
            except (errors.SandboxLost, errors.NotRunning, errors.StoreError):
                raise
            except errors.EffectError as error:
                self.checked = False  # what we knew of the pod is old
                if pause is None:
                    text = f"{what}: not copied in {len(PAUSES) + 1} tries: {error}"
                    raise errors.TransferError(text, where=self.sandbox.pin.where) from error
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _document(self, key: str) -> artifacts.Manifest | None:
        try:
            return artifacts.Manifest.of(json.loads(await self.store.get(self.place + key, limit=DOCUMENT_BYTES)))
        except stores.NotStored:
            return None

    async def _put(self, key: str, manifest: artifacts.Manifest) -> artifacts.Manifest:
        """Write it; what somebody else wrote first stands, and is returned."""
        content = json.dumps(manifest.document(), ensure_ascii=False, sort_keys=True, indent=1).encode()
        try:
            await self.store.put_new(self.place + key, content)
        except stores.AlreadyStored:
            return await self._document(key) or manifest
        return manifest


class _Pace:
    """When something that lasts is told of. It begins with the first question."""

    def __init__(self) -> None:
        self._pause, self._due = TOLD_SECONDS, math.inf

    def due(self, *, large: bool) -> bool:
        """Whether to tell now; then not again for a while. `large`: there is something worth telling."""
        now = asyncio.get_running_loop().time()
        if self._due == math.inf:
            self._due = now + self._pause
        if not large or now < self._due:
            return False
        self._pause = min(2 * self._pause, TOLD_LIMIT)
        self._due = now + self._pause
        return True


@dataclass(frozen=True, slots=True)
class _Watch:
    """How far a delivery of several archives is. Bytes; `before`: of the archives before this one."""

    told: Callable[[int, int], None]
    pace: _Pace
    before: int
    total: int

    def seen(self, size: int) -> None:
        """So much of this archive was taken."""
        if self.pace.due(large=self.total > TOLD_BYTES):
            self.told(self.before + size, self.total)


def _document_key(index: int) -> str:
    return f"{FOLDER}{index}.json"


def _archives(manifest: artifacts.Manifest) -> list[tuple[str, artifacts.Entry, artifacts.Archive]]:
    return [
        (entry.path, entry, entry.archive)
        for entry in manifest.entries
        if entry.archive is not None and entry.path is not None
    ]


def _placed(manifest: artifacts.Manifest) -> list[tuple[str, artifacts.Entry, artifacts.Archive]]:
    """What is put in place: a folder before what lies in it, which would be lost else; of one path the first."""
    found: dict[str, tuple[str, artifacts.Entry, artifacts.Archive]] = {}
    for each in _archives(manifest):
        found.setdefault(each[0], each)
    return sorted(found.values(), key=lambda each: each[0].count("/"))


def _stored(store: stores.Store, key: str, archive: artifacts.Archive, watch: _Watch) -> relays.Relay:
    async def chunks() -> AsyncIterator[bytes]:
        reader = await store.open(key)
        if reader.size != archive.size:
            text = f"the archive is damaged: {reader.size} bytes, not {archive.size}"
            raise errors.DigestMismatch(text, where=reader.where)
        size = 0
        async for chunk in reader:
            yield chunk
            size += len(chunk)
            watch.seen(size)

    return relays.Relay(
        chunks, lambda: frames.Trailer(archive.entries, archive.size, archive.sha256), where=store.where(key)
    )
