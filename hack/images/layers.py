"""Layers: gzip-compressed tar files with fixed times and order, so that equal content has equal digests."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

# Level 1: a layer is read back from the same machine, so time counts more than size.
_LEVEL = 1


@dataclass(frozen=True)
class Layer:
    digest: str  # of the compressed bytes, as a registry knows it
    diff_id: str  # of the uncompressed tar, as an image's configuration names it
    size: int  # of the compressed bytes


@dataclass(frozen=True)
class File:
    """A regular file of a layer; parents are made as needed. `capability`: of the file, as the kernel keeps it."""

    path: str
    content: bytes | Path
    mode: int = 0o644
    owner: int = 0
    group: int = 0
    capability: bytes = b""


@dataclass(frozen=True)
class Folder:
    path: str
    mode: int = 0o755
    owner: int = 0
    group: int = 0


@dataclass(frozen=True)
class Link:
    path: str
    target: str


@dataclass(frozen=True)
class Removal:
    """A whiteout: what lower layers have at `path` is gone."""

    path: str


Entry = File | Folder | Link | Removal


class _Hashing(io.RawIOBase):
    """Writes through to `target` and hashes what passes."""

    def __init__(self, target: BinaryIO | gzip.GzipFile) -> None:
        self.target, self.sha, self.count = target, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self.sha.update(view)
        self.count += len(view)
        self.target.write(view)
        return len(view)

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha.hexdigest()}"


def write(path: Path, fill: Callable[[tarfile.TarFile], None]) -> Layer:
    """Write a layer to `path`; `fill` adds the members."""
    with path.open("wb") as file:
        outer = _Hashing(file)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=outer, mtime=0) as packed:
            inner = _Hashing(packed)
            # PAX, because OCI wants it for long names and extended attributes.
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                fill(tar)
    return Layer(outer.digest, inner.digest, outer.count)


def from_entries(path: Path, entries: Iterable[Entry]) -> Layer:
    def fill(tar: tarfile.TarFile) -> None:
        made: set[str] = set()
        for entry in entries:
            for parent in reversed(PurePosixPath(entry.path.strip("/")).parents):
                name = str(parent)
                if name != "." and name not in made and not isinstance(entry, Removal):
                    made.add(name)
                    _add(tar, Folder(name))
            made.add(entry.path.strip("/"))
            _add(tar, entry)

    return write(path, fill)


def from_tree(path: Path, folder: Path, inside: str) -> Layer:
    """A layer with everything below `folder`, placed at `inside`, owned by root, without times."""

    def entries() -> Iterable[Entry]:
        for found in sorted(folder.rglob("*")):
            name = f"{inside.strip('/')}/{found.relative_to(folder)}"
            if found.is_symlink():
                yield Link(name, str(found.readlink()))
            elif found.is_dir():
                yield Folder(name)
            else:
                yield File(name, found, 0o755 if found.stat().st_mode & 0o100 else 0o644)

    return from_entries(path, entries())


def from_root_file_system(path: Path, archive: Path, wanted: Callable[[tarfile.TarInfo], bool]) -> Layer:
    """A layer from the tar of a root file system, without device nodes and what is not `wanted`."""

    def fill(tar: tarfile.TarFile) -> None:
        with tarfile.open(archive) as source:
            for member in source:
                member.name = member.name.removeprefix("./").rstrip("/")
                if member.name in {"", "."} or member.isdev() or not wanted(member):
                    continue
                member.mtime = 0
                member.uname = member.gname = ""
                member.pax_headers = {k: v for k, v in member.pax_headers.items() if k.startswith("SCHILY.xattr.")}
                if member.islnk():
                    member.linkname = member.linkname.removeprefix("./")
                tar.addfile(member, source.extractfile(member) if member.isreg() else None)

    return write(path, fill)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.path.strip("/"))
    member.mtime = 0
    match entry:
        case File(_, content, mode, owner, group, capability):
            member.mode, member.uid, member.gid = mode, owner, group
            if capability:
                value = capability.decode("utf-8", "surrogateescape")
                member.pax_headers = {"SCHILY.xattr.security.capability": value}
            if isinstance(content, Path):
                member.size = content.stat().st_size
                with content.open("rb") as file:
                    tar.addfile(member, file)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        case Folder(_, mode, owner, group):
            member.type, member.mode, member.uid, member.gid = tarfile.DIRTYPE, mode, owner, group
            tar.addfile(member)
        case Link(_, target):
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(member)
        case Removal():
            name = PurePosixPath(member.name)
            member.name = str(name.with_name(f".wh.{name.name}"))
            tar.addfile(member)
