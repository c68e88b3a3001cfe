"""What is kept of an attempt: the index that users see, and the only keys that may be read.

Guarantees: a key that is not in the index does not exist for anybody; the index names what is whole in the store, so
bulk that nothing refers to is not in it; every archive is named with its size and its sha256.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.api import results
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.protocol import artifacts
from taskfold.reading import answers
from taskfold.reading.kept import Place

COLLECTED, MANIFEST, AGENT, VERIFIER = "collected.json", "artifacts.json", "agent.json", "verifier.json"
DOCUMENTS = (
    "row.json",
    "rewards.json",
    "transcript.json",
    "response.json",
    MANIFEST,
    AGENT,
    VERIFIER,
    COLLECTED,
)
"""Small objects that are written once."""
LISTED = 20_000
DOCUMENT_BYTES = 32 * 1024 * 1024
"""The store writes no larger ones."""
REMEMBERED = 16
REMEMBERED_SECONDS = 10.0
"""A download asks for one file after the other, and for each piece by piece."""

_DOCUMENT = re.compile(rf"(?:steps/(?P<step>[^/]+)/)?(?:{'|'.join(map(re.escape, DOCUMENTS))})")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class File:
    """An object that may be read. `of`: document, sandbox, agent, verifier, artifact. `sha256` empty: not on record."""

    key: str
    of: str
    step: str | None
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Index:
    """`document`: what users see. `files`: by key, below the attempt's prefix."""

    files: Mapping[str, File]
    document: Mapping[str, Any]

    def archives(self, step: str | None) -> list[File]:
        """Those with logs: of the whole run, and of `step` where one is asked for."""
        found = [file for file in self.files.values() if file.of in set(results.Of)]
        return [file for file in found if step is None or file.step in (None, step)]


class Indexes:
    """Made from the store, and remembered for a moment."""

    def __init__(self, store: stores.Store) -> None:
        self._store = store
        self._made: collections.OrderedDict[Place, tuple[float, Index]] = collections.OrderedDict()

    async def of(self, place: Place) -> Index:
        """The index of this attempt. Refusal 404 if nothing is there, 503 if the store does not answer."""
        now = asyncio.get_running_loop().time()
        until, index = self._made.get(place, (0.0, None))
        if index is None or until <= now:
            try:
                index = await self._make(place)
            except errors.StoreError as error:
                raise answers.Refusal(503, f"the store does not answer: {error}", retry_seconds=5) from error
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise answers.Refusal(500, f"what is kept of {place.name} cannot be read: {error!r}") from error
            self._made[place] = now + REMEMBERED_SECONDS, index
            self._made.move_to_end(place)
            while len(self._made) > REMEMBERED:
                self._made.popitem(last=False)
        return index

    async def _make(self, place: Place) -> Index:
        sizes = await self._sizes(place)
        if not sizes:
            what = f"attempt {place.attempt} of {place.kind} {place.name}"
            raise answers.Refusal(404, f"nothing is kept of {what}: its time in the store is over")
        files: dict[str, File] = {}
        for key in sorted(sizes):
            if match := _DOCUMENT.fullmatch(key):
                files[key] = File(key, "document", match["step"], sizes[key])
        collected = await self._json(place, COLLECTED) if COLLECTED in sizes else await self._noted(place, files)
        archives = [each for each in collected.get("archives") or () if _of_step(place, each.get("step"))]
        for each in archives:
            _add(files, sizes, File(each["key"], each["of"], each.get("step"), each["bytes"], _hex(each["sha256"])))
        entries = []
        for key, file in list(files.items()):
            if key.rpartition("/")[2] == MANIFEST:
                manifest = artifacts.Manifest.of(await self._json(place, key))
                folder = key.removesuffix(MANIFEST)
                entries += [_entry(files, sizes, folder, file.step, entry) for entry in manifest.entries]
        if place.step is not None:
            files = {key: file for key, file in files.items() if _of_step(place, file.step)}
        return Index(files, _document(place, collected, files, archives, entries))

    async def _noted(self, place: Place, files: Mapping[str, File]) -> dict[str, Any]:
        """What each sandbox's own document says, where no run has an index of them: of a verification that stands
        free, and of an attempt that was lost on the way.
        """
        found: dict[str, Any] = {"error": "", "archives": []}
        for key, file in files.items():
            name = key.rpartition("/")[2]
            if name not in (AGENT, VERIFIER):
                continue
            noted = await self._json(place, key)
            found["error"] = found["error"] or noted.get("error") or ""
            if noted.get("archive") is not None:
                archive = {**noted["archive"], "of": name.removesuffix(".json"), "step": file.step}
                found["archives"].append({**archive, "key": key.removesuffix(name) + archive["key"]})
        return found

    async def _sizes(self, place: Place) -> dict[str, int]:
        sizes: dict[str, int] = {}
        async with contextlib.aclosing(self._store.list(place.prefix)) as found:
            async for stored in found:
                sizes[stored.key.removeprefix(place.prefix)] = stored.size
                if len(sizes) > LISTED:
                    raise answers.Refusal(500, f"more than {LISTED:,} objects are kept of {place.name}")
        return sizes

    async def _json(self, place: Place, key: str) -> dict[str, Any]:
        found = json.loads(await self._store.get(place.prefix + key, limit=DOCUMENT_BYTES))
        if not isinstance(found, dict):
            raise ValueError(f"{key} is no JSON object")
        return found


def _of_step(place: Place, step: str | None) -> bool:
    return place.step is None or step in (None, place.step)


def _add(files: dict[str, File], sizes: Mapping[str, int], file: File) -> bool:
    """Take an archive into the index if it is there, whole, and under a plain key."""
    with contextlib.suppress(errors.StoreError):
        if sizes.get(stores.check_key(file.key)) == file.size:
            files[file.key] = file
            return True
    return False


def _entry(
    files: dict[str, File], sizes: Mapping[str, int], folder: str, step: str | None, entry: artifacts.Entry
) -> dict[str, Any]:
    archive = None
    if entry.archive is not None:
        key, sha256 = folder + entry.archive.key, _hex(entry.archive.sha256)
        there = _add(files, sizes, File(key, "artifact", step, entry.archive.size, sha256))
        archive = {"key": key, "bytes": entry.archive.size, "sha256": sha256, "entries": entry.archive.entries}
        archive["stored"] = there
    return {
        "step": step,
        "source": entry.source,
        "destination": entry.destination,
        "service": entry.service,
        "exclude": list(entry.exclude),
        "type": entry.type,
        "status": entry.status,
        "reason": entry.reason,
        "bytes": entry.size,
        "sha256": entry.sha256,
        "archive": archive,
        "left": [{"path": each.path, "reason": each.reason} for each in entry.left],
        "leftCount": entry.left_count,
        "changed": list(entry.changed),
    }


def _document(
    place: Place,
    collected: Mapping[str, Any],
    files: Mapping[str, File],
    archives: list[Mapping[str, Any]],
    entries: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "kind": results.KINDS["files"],
        "apiVersion": results.GROUP_VERSION,
        "metadata": {"name": place.name, "namespace": place.namespace, "uid": place.uid},
        "attempt": place.attempt,
        "step": place.step,
        "error": str(collected.get("error") or ""),
        "documents": [
            {"key": file.key, "step": file.step, "bytes": file.size} for file in files.values() if file.of == "document"
        ],
        "archives": [
            {
                "key": each["key"],
                "of": each["of"],
                "step": each.get("step"),
                "bytes": each["bytes"],
                "sha256": _hex(each["sha256"]),
                "entries": each.get("entries", 0),
                "truncated": bool(each.get("truncated")),
                "skipped": list(each.get("skipped") or ()),
                "stored": each["key"] in files,
            }
            for each in archives
        ],
        "artifacts": [each for each in entries if _of_step(place, each["step"])],
    }


def _hex(digest: str) -> str:
    found = digest.removeprefix("sha256:")
    if not _SHA256.fullmatch(found):
        raise ValueError(f"{digest!r} is no sha256")
    return found
