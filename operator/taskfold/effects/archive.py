"""tar as bytes, blocking, for the worker threads of `transfer`: write headers, read members, unpack safely.

Guarantees of unpacking: nothing is written outside of the target directory, and no link is followed,
whether the archive brought it or it was there before; an existing file or link is replaced. Only regular
files, directories, links that stay inside; permission bits only. It never reads a member as a whole and
never sorts or seeks.
"""

import errno
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from taskfold.effects import errors

BLOCK = tarfile.BLOCKSIZE
MAX_META = 1 << 20  # a PAX header or a GNU long name
T = TypeVar("T")
_ENCODING = ("utf-8", "surrogateescape")


def header(
    name: str,
    *,
    size: int = 0,
    mode: int = 0o644,
    mtime: int = 0,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    owner: tuple[int, int] = (0, 0),
) -> bytes:
    """The header blocks of one member (PAX). `owner`: uid and gid."""
    info = tarfile.TarInfo(name)
    info.uid, info.gid = owner
    info.size, info.mode, info.mtime, info.type, info.linkname = size, mode, mtime, kind, link
    return info.tobuf(tarfile.PAX_FORMAT, *_ENCODING)


def padding(size: int) -> bytes:
    """What follows `size` bytes of content."""
    return bytes(-size % BLOCK)


END = bytes(2 * BLOCK)


class Input(Protocol):
    """A stream of bytes. Both methods raise `errors.Truncated` at its end."""

    def exactly(self, size: int) -> bytes: ...
    def some(self, limit: int) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of an archive; its content (size bytes) must be read before the next one."""

    name: str
    kind: bytes
    size: int
    mode: int
    mtime: float
    link: str


def members(source: Input) -> Iterator[Member]:
    """The members up to the two zero blocks. Content and padding are skipped by the consumer of `source`."""
    long: dict[str, str] = {}
    while True:
        block = source.exactly(BLOCK)
        if not any(block):
            source.exactly(BLOCK)
            return
        try:
            info = tarfile.TarInfo.frombuf(block, *_ENCODING)
        except tarfile.TarError as error:
            raise errors.Truncated(f"not a tar header: {error}") from error
        match info.type:
            case tarfile.XHDTYPE:
                long |= _pax(_meta(source, info.size))
            case tarfile.XGLTYPE:
                _meta(source, info.size)
            case tarfile.GNUTYPE_LONGNAME:
                long["path"] = _text(_meta(source, info.size).rstrip(b"\0"))
            case tarfile.GNUTYPE_LONGLINK:
                long["linkpath"] = _text(_meta(source, info.size).rstrip(b"\0"))
            case _:
                yield _member(info, long)
                long = {}


def _member(info: tarfile.TarInfo, long: dict[str, str]) -> Member:
    if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in long):
        raise errors.UnsafeArchive(f"{info.name!r} is stored as a sparse file, which is not supported")
    try:
        size, mtime = int(long.get("size", info.size)), float(long.get("mtime", info.mtime))
    except ValueError as error:
        raise errors.UnsafeArchive(f"a PAX header of {info.name!r} holds no number: {error}") from error
    holds_content = info.type in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE}
    return Member(
        name=long.get("path", info.name),
        kind=tarfile.REGTYPE if holds_content else info.type,
        size=size if holds_content else 0,
        mode=info.mode,
        mtime=mtime,
        link=long.get("linkpath", info.linkname),
    )


def _meta(source: Input, size: int) -> bytes:
    if size > MAX_META:
        raise errors.UnsafeArchive(f"a header of {size} bytes")
    return source.exactly(size + -size % BLOCK)[:size]


def _pax(data: bytes) -> dict[str, str]:
    """Records `<length> <key>=<value>\\n`."""
    found: dict[str, str] = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not len(length) < int(length) <= len(data):
            raise errors.UnsafeArchive("a malformed PAX header")
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        found[_text(key)] = _text(value)
        data = data[int(length) :]
    return found


def _text(data: bytes) -> str:
    return data.decode(*_ENCODING)


@dataclass(slots=True)
class Unpacked:
    """What an unpacking did. `size`: bytes of content. `skipped`: (path, reason), the first hundred."""

    entries: int = 0
    size: int = 0
    skipped_count: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def skip(self, path: str, reason: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < 100:
            self.skipped.append((path, reason))


def unpack(source: Input, root: Path, *, max_bytes: int, max_entries: int) -> Unpacked:
    """Unpack below `root` (made if missing). Raises UnsafeArchive, LimitExceeded, Truncated, OSError."""
    done = Unpacked()
    root.mkdir(parents=True, exist_ok=True)
    tree = _Tree(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        for member in members(source):
            done.entries += 1
            done.size += member.size
            if done.entries > max_entries:
                raise errors.LimitExceeded(f"the archive has more than {max_entries} entries")
            if done.size > max_bytes:
                raise errors.LimitExceeded(f"the archive unpacks to more than {max_bytes} bytes")
            _place(tree, member, source, done)
    finally:
        tree.close()
    return done


def _place(tree: "_Tree", member: Member, source: Input, done: Unpacked) -> None:
    parts = _parts(member.name)
    match member.kind:
        case tarfile.REGTYPE:
            if not parts:
                raise errors.UnsafeArchive(f"{member.name!r} is no name for a file")
            tree.file(parts, member, source)
            source.exactly(-member.size % BLOCK)
        case tarfile.DIRTYPE:
            tree.directory(parts, member.mode)
        case tarfile.SYMTYPE if parts and _stays_inside(parts, member.link):
            tree.symlink(parts, member.link)
        case tarfile.SYMTYPE:
            done.skip(member.name, f"a link out of the folder: {member.link}")
        case tarfile.LNKTYPE if parts:
            tree.hard_link(parts, _parts(member.link))
        case _:
            done.skip(member.name, "not a file, directory or link")


def _parts(name: str) -> tuple[str, ...]:
    if name.startswith("/") or "\0" in name:
        raise errors.UnsafeArchive(f"the archive holds an absolute or malformed name: {name!r}")
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    if ".." in parts:
        raise errors.UnsafeArchive(f"the archive holds a name that leads out of it: {name!r}")
    return parts


def _stays_inside(parts: tuple[str, ...], target: str) -> bool:
    """Whether a link at `parts` resolves inside the root whatever other (equally checked) links exist.

    `..` counts from the link's own directory, which is real. After a name it would count from wherever that
    name leads, so it is refused there: `a/link/..` may be anywhere if `a/link` is a link.
    """
    if not target or target.startswith("/") or "\0" in target:
        return False
    steps = [step for step in target.split("/") if step not in {"", "."}]
    up = next((index for index, step in enumerate(steps) if step != ".."), len(steps))
    return up < len(parts) and ".." not in steps[up:]


class _Tree:
    """Writes below one directory, by descriptors, component by component, never through a link."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._at: tuple[str, ...] = ()  # the directory of the last member: archives list by directory
        self._descriptor = root

    def close(self) -> None:
        self._move((), self._root)
        os.close(self._root)

    def file(self, parts: tuple[str, ...], member: Member, source: Input) -> None:
        directory = self._enter(parts[:-1])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = (member.mode & 0o777) | stat.S_IRUSR | stat.S_IWUSR

        def create() -> int:
            return os.open(parts[-1], flags, 0o600, dir_fd=directory)

        descriptor = self._replacing(create, parts[-1], directory)
        try:
            left = member.size
            while left:
                data = source.some(left)
                left -= len(data)
                while data:
                    data = data[os.write(descriptor, data) :]
            os.fchmod(descriptor, mode)
            with_time = max(0.0, min(member.mtime, 2**33))
            os.utime(descriptor, (with_time, with_time))
        finally:
            os.close(descriptor)

    def directory(self, parts: tuple[str, ...], mode: int) -> None:
        if parts:
            os.fchmod(self._enter(parts), (mode & 0o777) | stat.S_IRWXU)

    def symlink(self, parts: tuple[str, ...], target: str) -> None:
        directory = self._enter(parts[:-1])
        self._replacing(lambda: os.symlink(target, parts[-1], dir_fd=directory), parts[-1], directory)

    def hard_link(self, parts: tuple[str, ...], target: tuple[str, ...]) -> None:
        if not target or target == parts:
            raise errors.UnsafeArchive(f"{'/'.join(parts)!r} is a hard link to nothing")
        source = os.dup(self._enter(target[:-1]))
        try:
            directory = self._enter(parts[:-1])
            if not stat.S_ISREG(os.stat(target[-1], dir_fd=source, follow_symlinks=False).st_mode):
                raise errors.UnsafeArchive(f"{'/'.join(parts)!r} is a hard link to something else than a file")

            def link() -> None:
                os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)

            self._replacing(link, parts[-1], directory)
        except FileNotFoundError as error:
            raise errors.UnsafeArchive(
                f"{'/'.join(parts)!r} is a hard link to a file that the archive did not bring"
            ) from error
        finally:
            os.close(source)

    def _enter(self, parts: tuple[str, ...]) -> int:
        """The descriptor of a directory below the root, made on the way; a file or link in its place is
        replaced.
        """
        if parts == self._at:
            return self._descriptor
        here = self._root
        try:
            for part in parts:
                below = self._step(part, here)
                if here != self._root:
                    os.close(here)
                here = below
        except BaseException:
            if here != self._root:
                os.close(here)
            raise
        self._move(parts, here)
        return here

    def _step(self, part: str, here: int) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(part, flags, dir_fd=here)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                os.unlink(part, dir_fd=here)
            elif error.errno != errno.ENOENT:
                raise
        os.mkdir(part, 0o755, dir_fd=here)
        return os.open(part, flags, dir_fd=here)

    def _move(self, parts: tuple[str, ...], descriptor: int) -> None:
        if self._descriptor != self._root:
            os.close(self._descriptor)
        self._at, self._descriptor = parts, descriptor

    def _replacing(self, create: Callable[[], T], name: str, directory: int) -> T:
        try:
            return create()
        except FileExistsError:
            try:
                os.unlink(name, dir_fd=directory)
            except OSError as error:
                raise errors.UnsafeArchive(f"a directory is in the way of {name!r}") from error
            return create()
