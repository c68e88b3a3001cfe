"""Where the files of a task folder come from: memory, a directory, or a snapshot.

Guarantees, the same for every source: paths are relative, in POSIX form, UTF-8, without `.`, `..` or empty
parts; only regular files exist (a directory is where its files are; an empty one is not part of a task);
entries are sorted by path; nothing is followed. What does not fit is a `TaskError` that names it.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from taskfold.contract import errors

MAX_FILES = 100_000
"""Ten times the largest folder we test with; the list of entries is the one thing kept in memory."""
MAX_BYTES = 4 * 2**30
"""A folder is copied into pods and kept as a snapshot. Bulk data belongs into the image."""
MAX_PATH_BYTES = 1024
"""Leaves room for `/tests/` and for the store's prefix below Linux's 4,096."""
MAX_NAME_BYTES = 255
"""What Linux file systems take."""


@dataclass(frozen=True, order=True)
class Entry:
    """One regular file. `executable` is the owner's x bit: all that a task keeps of a mode (C25)."""

    path: str
    executable: bool
    size: int


class Folder(Protocol):
    """Read access to the files of a folder. `open` and `read` raise FileNotFoundError for a path without a
    file.
    """

    def entries(self) -> Sequence[Entry]:
        """All files, sorted by path."""

    def open(self, path: str) -> BinaryIO:
        """The file's bytes as a stream; the caller closes it."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """The file's bytes; TaskError when it holds more than `limit`."""


class Reading:
    """`read` on top of `open`, shared by the sources."""

    def open(self, path: str) -> BinaryIO:
        raise NotImplementedError

    def read(self, path: str, limit: int | None = None) -> bytes:
        with self.open(path) as stream:
            if limit is None:
                return stream.read()
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise errors.TaskError(f"is larger than {limit:,} bytes", file=path, remedy="Make the file smaller.")
        return content


class MemoryFolder(Reading):
    """Files given as a mapping: path → (content, executable)."""

    def __init__(self, files: Mapping[str, tuple[bytes, bool]]) -> None:
        for path in files:
            check_path(path)
        for path in files:
            above = next((str(p) for p in Path(path).parents if str(p) in files), None)
            if above is not None:
                raise errors.TaskError(
                    f"lies below {above}, which is a file", file=path, remedy="Rename one of the two."
                )
        self._files = {path: (bytes(content), bool(x)) for path, (content, x) in sorted(files.items())}

    def entries(self) -> Sequence[Entry]:
        return tuple(Entry(path, x, len(content)) for path, (content, x) in self._files.items())

    def open(self, path: str) -> BinaryIO:
        if path not in self._files:
            raise FileNotFoundError(path)
        return io.BytesIO(self._files[path][0])


class DirectoryFolder(Reading):
    """A directory of this machine, listed once, at the first look. A `.git` at its top is not part of the
    task.

    Links, devices, sockets and names that are not UTF-8 raise TaskError.
    """

    def __init__(self, root: Path | str) -> None:
        self._root = Path(root)
        self._entries: tuple[Entry, ...] | None = None

    def entries(self) -> Sequence[Entry]:
        if self._entries is None:
            self._entries = tuple(sorted(self._scan()))
        return self._entries

    def open(self, path: str) -> BinaryIO:
        check_path(path)
        # Non-blocking: a FIFO that replaced the file since the listing must not hang the caller.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._root / path, flags)
        except NotADirectoryError:
            raise FileNotFoundError(path) from None
        except OSError as error:
            if (self._root / path).is_symlink():
                raise _not_a_file(path, "is a symbolic link") from error
            raise
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            if stat.S_ISDIR(mode):
                raise FileNotFoundError(path)
            raise _not_a_file(path, "is not a regular file")
        return os.fdopen(descriptor, "rb")

    def _scan(self) -> Iterator[Entry]:
        pending, found = [""], 0
        while pending:
            prefix = pending.pop()
            with os.scandir(self._root / prefix) as children:
                for child in children:
                    path = prefix + child.name
                    if path == ".git":
                        continue
                    check_path(path)
                    status = child.stat(follow_symlinks=False)
                    if stat.S_ISLNK(status.st_mode):
                        raise _not_a_file(path, "is a symbolic link")
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(path + "/")
                        continue
                    if not stat.S_ISREG(status.st_mode):
                        raise _not_a_file(path, "is not a regular file")
                    found += 1
                    if found > MAX_FILES:
                        raise too_many_files()
                    yield Entry(path, bool(status.st_mode & stat.S_IXUSR), status.st_size)


class TarFolder(Reading):
    """An uncompressed tar archive on disk, as `digest.write_snapshot` writes it; read in place, by offset."""

    def __init__(self, archive: Path | str) -> None:
        self._archive = Path(archive)
        self._offsets: dict[str, int] = {}
        found: list[Entry] = []
        try:
            with tarfile.open(self._archive, "r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # else every header is kept
                    if member.isdir():
                        continue
                    check_path(member.name)
                    if not member.isreg():
                        raise _not_a_file(member.name, "is not a regular file")
                    if member.name in self._offsets:
                        raise _not_a_file(member.name, "is in the archive twice")
                    if len(found) == MAX_FILES:
                        raise too_many_files()
                    self._offsets[member.name] = member.offset_data
                    found.append(Entry(member.name, bool(member.mode & stat.S_IXUSR), member.size))
        except tarfile.TarError as error:
            raise errors.TaskError(
                f"is not a tar archive: {error}", file=self._archive.name, remedy="Write the snapshot again."
            ) from error
        self._entries = {entry.path: entry for entry in sorted(found)}

    def entries(self) -> Sequence[Entry]:
        return tuple(self._entries.values())

    def open(self, path: str) -> BinaryIO:
        if path not in self._entries:
            raise FileNotFoundError(path)
        return io.BufferedReader(_Slice(self._archive, self._offsets[path], self._entries[path].size))


class View(Reading):
    """Part of a folder: the files below `prefix` ("tests/"), named from there, for which `keep` holds."""

    def __init__(self, folder: Folder, prefix: str = "", keep: Callable[[str], bool] = lambda _: True) -> None:
        self._folder, self._prefix, self._keep = folder, prefix, keep

    def entries(self) -> Sequence[Entry]:
        start = len(self._prefix)
        return tuple(
            replace(entry, path=entry.path[start:])
            for entry in self._folder.entries()
            if entry.path.startswith(self._prefix) and self._keep(entry.path[start:])
        )

    def open(self, path: str) -> BinaryIO:
        if not self._keep(path):
            raise FileNotFoundError(path)
        return self._folder.open(self._prefix + path)


class Below(Reading):
    """A folder put below a folder of this name; the opposite of `subtree`."""

    def __init__(self, folder: Folder, name: str) -> None:
        check_path(name)
        self._folder, self._prefix = folder, f"{name}/"

    def entries(self) -> Sequence[Entry]:
        return tuple(replace(entry, path=self._prefix + entry.path) for entry in self._folder.entries())

    def open(self, path: str) -> BinaryIO:
        if not path.startswith(self._prefix):
            raise FileNotFoundError(path)
        return self._folder.open(path.removeprefix(self._prefix))


def subtree(folder: Folder, name: str) -> View:
    """The folder `name` of `folder`, as a folder of its own: `subtree(folder, "tests")` is what goes to
    /tests.
    """
    return View(folder, name.rstrip("/") + "/")


def check_path(path: str) -> None:
    """Raise TaskError unless `path` may name a file of a task."""
    problem = _path_problem(path)
    if problem:
        shown = path.encode("utf-8", "backslashreplace").decode()
        raise errors.TaskError(
            problem,
            file=shown or '""',
            remedy="Use a relative path of UTF-8 names, such as tests/test.sh.",
        )


def too_many_files() -> errors.TaskError:
    return errors.TaskError(
        f"holds more than {MAX_FILES:,} files",
        file="task folder",
        remedy="Put bulk data into the image, or into one archive.",
    )


def _path_problem(path: str) -> str:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "the name is not UTF-8"
    if size > MAX_PATH_BYTES:
        return f"the path is longer than {MAX_PATH_BYTES:,} bytes"
    if path.startswith("/"):
        return "the path is absolute"
    if "\0" in path:
        return "the path holds a NUL character"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f'the path has a part "{part}"'
        if len(part.encode()) > MAX_NAME_BYTES:
            return f"a name in the path is longer than {MAX_NAME_BYTES} bytes"
    return ""


def _not_a_file(path: str, problem: str) -> errors.TaskError:
    return errors.TaskError(problem, file=path, remedy="A task folder holds regular files only: put a copy there.")


class _Slice(io.RawIOBase):
    """A window of a file, as a stream."""

    def __init__(self, path: Path, offset: int, size: int) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        self._file.seek(offset)
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        window = memoryview(buffer)[: self._left]
        count = self._file.readinto(window) or 0
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
