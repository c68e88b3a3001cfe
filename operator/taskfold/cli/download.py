"""What a run left, into a folder of this machine.

    DIR/row.json …              the documents, under their names in the store
    DIR/logs/                   /logs of the sandbox; of two sandboxes the agent's, with the verifier's logs/verifier
    DIR/artifacts/              each artifact at its destination, and manifest.json
    DIR/steps/NAME/             the same of a step of a multi-step task, where it was kept for itself

Guarantees: every file is proven by size and sha256 before anything of it is put in place; nothing that is there is
replaced by something else, and nothing of an archive is put in place then; links lead nowhere outside, and nothing is
written through one. Called again it goes on where it was left.
"""

from __future__ import annotations

import asyncio
import filecmp
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from taskfold.api import results as api
from taskfold.cli.exits import Refused
from taskfold.effects import archive, errors
from taskfold.effects import results as remote
from taskfold.protocol import artifacts

UNFINISHED = ".taskfold-download"
"""Folder in DIR for what is under way; what is in it is named by its digest."""
ENTRIES = 5_000_000
SHOWN = 10
Map = Callable[[PurePosixPath], PurePosixPath | None]
"""A path in an archive to one below DIR; None: it stands for nothing there."""


@dataclass
class Done:
    """What a download did. `fetched`: bytes that were read now."""

    files: int = 0
    fetched: int = 0
    left_out: list[str] = field(default_factory=list)


class Download:
    """One folder, one attempt."""

    def __init__(self, results: remote.Results, index: Mapping[str, Any], folder: Path, step: str | None) -> None:
        self._results, self._index, self._folder, self._step = results, index, folder, step
        self._holder = folder / UNFINISHED
        self.done = Done()

    async def all(self, told: Callable[[str, int], None]) -> Done:
        """Everything; `told(key, bytes)` before each file. Refused, EffectError, OSError."""
        await asyncio.to_thread(self._holder.mkdir, parents=True, exist_ok=True)
        for each in self._index["documents"]:
            if self._wanted(each):
                told(each["key"], each["bytes"])
                await self._document(each)
        for each in self._index["archives"]:
            if self._wanted(each):
                await self._archive(each, each["key"], _of_logs(each), told)
        for each in self._index["artifacts"]:
            if each["archive"] is not None and self._wanted(each):
                await self._archive(each["archive"], each["destination"], _of_artifact(each), told)
        await asyncio.to_thread(shutil.rmtree, self._holder / "unpacked", ignore_errors=True)
        return self.done

    def _wanted(self, each: Mapping[str, Any]) -> bool:
        return self._step is None or each["step"] in (None, self._step)

    async def _document(self, each: Mapping[str, Any]) -> None:
        key = _plain(each["key"])
        kept = self._holder / "document"
        await asyncio.to_thread(kept.unlink, missing_ok=True)
        await self._results.fetch(remote.Stored(each["key"], each["bytes"]), kept)
        self.done.fetched += each["bytes"]
        if key.name == "artifacts.json":
            key = key.with_name("artifacts") / "manifest.json"
        await asyncio.to_thread(self._put, [(kept, key)])

    async def _archive(self, each: Mapping[str, Any], name: str, place: Map, told: Callable[[str, int], None]) -> None:
        if not each["stored"]:
            self.done.left_out.append(f"{name}: it is on record, and not in the store any more")
            return
        record = self._holder / f"{each['sha256']}-{_plain(each['key']).name}.json"
        if await asyncio.to_thread(self._is_there, record):
            return
        told(each["key"], each["bytes"])
        kept = self._holder / f"{each['sha256']}.tar"
        await self._results.fetch(remote.Stored(each["key"], each["bytes"], each["sha256"]), kept)
        self.done.fetched += each["bytes"]
        await asyncio.to_thread(self._unpack, kept, name, place, record)

    def _unpack(self, kept: Path, name: str, place: Map, record: Path) -> None:
        fresh = self._holder / "unpacked"
        shutil.rmtree(fresh, ignore_errors=True)
        with kept.open("rb") as file:
            size = kept.stat().st_size
            unpacked = archive.unpack(_File(file), fresh, max_bytes=size, max_entries=ENTRIES)
        self.done.left_out += [f"{name}: {path}: {reason}" for path, reason in unpacked.skipped]
        everything = (fresh, *_everything(fresh))
        found = [(path, place(PurePosixPath(path.relative_to(fresh)))) for path in everything]
        placed = self._put([(path, target) for path, target in found if target is not None])
        record.write_text(json.dumps(placed))
        kept.unlink()

    def _put(self, files: list[tuple[Path, PurePosixPath]]) -> list[tuple[str, int]]:
        """Put these in place, all or none; their places and sizes."""
        conflicts = [str(target) for source, target in files if not self._fits(source, target)]
        if conflicts:
            more = f" and {len(conflicts) - SHOWN} more" if len(conflicts) > SHOWN else ""
            shown = ", ".join(conflicts[:SHOWN])
            raise Refused(
                "Exists",
                f"{self._folder} has other files of these names, and they are left alone: {shown}{more}. "
                "Take another folder, or move them away.",
            )
        placed = []
        for source, target in files:
            path, found = self._folder / target, source.lstat()
            if stat.S_ISDIR(found.st_mode):
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            placed.append((str(target), found.st_size))
            if not path.is_symlink() and not path.exists():
                source.rename(path)
                self.done.files += 1
        return placed

    def _fits(self, source: Path, target: PurePosixPath) -> bool:
        """Whether nothing is in its way, or the very same is there."""
        for above in reversed(target.parents):
            path = self._folder / above
            if above.parts and (path.is_symlink() or (path.exists() and not path.is_dir())):
                return False
        path, mode = self._folder / target, source.lstat().st_mode
        if path.is_symlink():
            return stat.S_ISLNK(mode) and path.readlink() == source.readlink()
        if not path.exists():
            return True
        if stat.S_ISDIR(mode):
            return path.is_dir()
        return stat.S_ISREG(mode) and path.is_file() and filecmp.cmp(source, path, shallow=False)

    def _is_there(self, record: Path) -> bool:
        """Whether an earlier call has put all of this archive in place."""
        try:
            placed = json.loads(record.read_text())
            return all((self._folder / path).lstat().st_size == size for path, size in placed)
        except (OSError, ValueError):
            return False


class _File:
    """A tar file as the input of `archive.unpack`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise errors.Truncated("the archive ends early")
        return data

    def some(self, limit: int) -> memoryview:
        return memoryview(self.exactly(min(limit, 1 << 20)))


def _everything(folder: Path) -> Iterator[Path]:
    """All below it, folders before what is in them; no link is followed."""
    for above, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(above, name) for name in (*folders, *sorted(files)))


def _plain(key: str) -> PurePosixPath:
    path = PurePosixPath(key)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in key or path.parts[0] == UNFINISHED:
        raise errors.UnsafeArchive(f"{key!r} is no name below a folder")
    return path


def _of_logs(each: Mapping[str, Any]) -> Map:
    """Of two sandboxes each is believed about its own: what else it has lies beside, under `logs/<pod>-pod`."""
    root = PurePosixPath("steps", _plain(each["step"])) if each["step"] is not None else PurePosixPath()

    def place(path: PurePosixPath) -> PurePosixPath | None:
        if not path.parts:
            return None
        if path.parts[0] != "logs":
            return root / "logs" / "other" / path
        below = PurePosixPath(*path.parts[1:])
        verifiers = below.parts[:1] == ("verifier",)
        if (each["of"] == api.Of.AGENT and verifiers) or (each["of"] == api.Of.VERIFIER and not verifiers):
            return root / "logs" / f"{each['of']}-pod" / below if below.parts else None
        return root / "logs" / below

    return place


def _of_artifact(each: Mapping[str, Any]) -> Map:
    """A folder's archive holds what is in it, a file's the file under its own name; the destination replaces that."""
    root = PurePosixPath("steps", _plain(each["step"])) if each["step"] is not None else PurePosixPath()
    destination = root / "artifacts" / _plain(each["destination"])

    def place(path: PurePosixPath) -> PurePosixPath | None:
        if each["type"] == artifacts.Type.DIRECTORY:
            return destination / path
        return destination.joinpath(*path.parts[1:]) if path.parts else None

    return place
