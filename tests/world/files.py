"""A container's file system in memory: files, folders, links and what is none of these.

Guarantees: housekeeping (`walk`, `enter`, `place`) never follows a link and replaces what is in the way, as the
helper's descriptors do; programs (`read`, `write`, …) follow links as the kernel does. What is written beyond
`capacity` is ENOSPC, and nothing of it stays.
"""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

MAX_PATH = 4096
MAX_DEPTH = 256
MAX_LINKS = 40


@dataclass
class Node:
    """What every kind of entry has. `mode`: permission bits and the sticky bit."""

    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 0


@dataclass
class File(Node):
    content: bytes = b""


@dataclass
class Folder(Node):
    mode: int = 0o755
    children: dict[str, Node] = field(default_factory=dict)
    mounted: bool = False
    """A mount point: its name cannot be removed."""


@dataclass
class Link(Node):
    mode: int = 0o777
    target: str = ""


@dataclass
class Special(Node):
    """A device, a FIFO or a socket."""


def split(path: str) -> list[str]:
    """The components of an absolute path. ValueError for what housekeeping refuses."""
    if not path.startswith("/"):
        raise ValueError(f'"{path[:100]}" is not an absolute path')
    return split_relative(path.lstrip("/"))


def split_relative(path: str) -> list[str]:
    """The components of a path that must stay below its folder."""
    if len(path.encode(errors="surrogateescape")) >= MAX_PATH:
        raise ValueError(f'"{path[:100]}"… is longer than {MAX_PATH - 1} bytes')
    if path.startswith("/"):
        raise ValueError(f'"{path[:100]}" is absolute')
    if "\0" in path:
        raise ValueError(f'"{path[:100]}" has a NUL byte')
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f'"{path[:100]}" has a ".."')
    if len(parts) > MAX_DEPTH:
        raise ValueError(f'"{path[:100]}"… is deeper than {MAX_DEPTH} folders')
    return parts


class FileSystem:
    """The tree below `/`."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.root = Folder()
        self.capacity = capacity
        """Bytes of files; what would be more is ENOSPC."""

    @property
    def used(self) -> int:
        """Bytes of files."""
        return sum(len(node.content) for _, node in self.tree() if isinstance(node, File))

    def tree(self) -> Iterator[tuple[str, Node]]:
        """Every entry with its path, in the order of names."""
        pending: list[tuple[str, Node]] = [("", self.root)]
        while pending:
            path, node = pending.pop()
            if path:
                yield path, node
            if isinstance(node, Folder):
                pending += [(f"{path}/{name}", child) for name, child in sorted(node.children.items(), reverse=True)]

    def fill(self) -> None:
        """The disk is full from now on."""
        self.capacity = self.used

    # -- housekeeping: no link is followed ------------------------------------------------------------------------

    def walk(self, parts: list[str], *, replace: bool, start: Folder | None = None) -> Folder:
        """The folder at `parts`. With `replace`, whatever else is on the way gives way to new folders."""
        at = start or self.root
        for name in parts:
            found = at.children.get(name)
            if not isinstance(found, Folder):
                if not replace:
                    raise _missing(name) if found is None else NotADirectoryError(errno.ENOTDIR, "not a directory")
                found = at.children[name] = Folder()
            at = found
        return at

    def parent(self, path: str, *, replace: bool) -> tuple[Folder, str]:
        """The folder of a path's last component, and that component."""
        parts = split(path)
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "is the root")
        return self.walk(parts[:-1], replace=replace), parts[-1]

    def entry(self, path: str) -> Node:
        """What is at a path itself. FileNotFoundError, or NotADirectoryError below a link or a file."""
        folder, name = self.parent(path, replace=False)
        if name not in folder.children:
            raise _missing(path)
        return folder.children[name]

    def place(self, folder: Folder, name: str, node: Node) -> None:
        """`node` under this name, whatever was there."""
        old = folder.children.pop(name, None)
        if isinstance(old, Folder) and old.mounted:
            folder.children[name] = old
            raise OSError(errno.EBUSY, "something is mounted there")
        if isinstance(node, File) and self.used + len(node.content) > self.capacity:
            raise OSError(errno.ENOSPC, "no space left on device")
        folder.children[name] = node

    # -- programs: links are followed -----------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        """The content of a regular file."""
        folder, name = self._follow(path)
        found = folder.children.get(name)
        if found is None:
            raise _missing(path)
        if not isinstance(found, File):
            raise OSError(errno.EINVAL, f"{path} is no regular file")
        return found.content

    def write(self, path: str, content: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0) -> None:
        """Like `cat > path`: an existing file keeps mode and owner, folders are made."""
        folder, name = self._follow(path, make=True)
        old = folder.children.get(name)
        if isinstance(old, Folder):
            raise IsADirectoryError(errno.EISDIR, f"{path} is a directory")
        new = File(mode, uid, gid, 0, content) if old is None else File(old.mode, old.uid, old.gid, 0, content)
        kept = folder.children.pop(name, None)
        try:
            self.place(folder, name, new)
        except OSError:
            folder.children[name] = File(new.mode, new.uid, new.gid) if kept is None else kept
            raise

    def find(self, path: str) -> Node | None:
        """What is at the end of a path and its links."""
        try:
            folder, name = self._follow(path)
        except IsADirectoryError:
            return self.root
        except OSError:
            return None
        return folder.children.get(name)

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def make(self, path: str, node: Node | None = None) -> Node:
        """`mkdir -p`, or any other entry; what is there already stays if it is a folder."""
        folder, name = self._follow(path, make=True)
        found = folder.children.get(name)
        if node is None and isinstance(found, Folder):
            return found
        made = node or Folder()
        self.place(folder, name, made)
        return made

    def remove(self, path: str) -> None:
        """`rm -rf`, of the entry itself."""
        parts = [part for part in path.split("/") if part]
        folder, _ = self._follow("/".join(["", *parts[:-1], "x"]))
        if folder.children.pop(parts[-1], None) is None:
            raise _missing(path)

    def whereabouts(self, path: str) -> str:
        """The path of the same thing without a link on the way, as far as there is anything."""
        pending, trail, links = split(path), list[str](), 0
        while pending:
            name = pending.pop(0)
            if name == "..":
                trail = trail[:-1]
            elif name not in ("", "."):
                found = self._without_links(trail).get(name)
                if not isinstance(found, Link) or links > MAX_LINKS:
                    trail.append(name)
                    continue
                links += 1
                trail = [] if found.target.startswith("/") else trail
                pending = [*found.target.split("/"), *pending]
        return "/" + "/".join(trail)

    def trusted(self, path: str) -> Node | None:
        """What is at the end of a path, if every link on the way is root's."""
        pending, trail, links = split(path), list[str](), 0
        found: Node | None = self.root
        while pending:
            name = pending.pop(0)
            if name == "..":
                trail = trail[:-1]
            elif name not in ("", "."):
                found = self._without_links(trail).get(name)
                trail.append(name)
            if isinstance(found, Link):
                links += 1
                if found.uid != 0 or links > MAX_LINKS:
                    return None
                trail = [] if found.target.startswith("/") else trail[:-1]
                pending, found = [*found.target.split("/"), *pending], None
        return found

    def _without_links(self, parts: list[str]) -> dict[str, Node]:
        """What is in the folder at `parts`; nothing if that is none."""
        try:
            return self.walk(parts, replace=False).children
        except OSError:
            return {}

    def follow(self, path: str, *, trusted: bool = False, check: Callable[[str, bool], None] | None = None) -> Folder:
        """The folder at a path of the image, made where it is missing, also behind a link that leads nowhere yet.

        NotADirectoryError, which names what is in the way, if that is no folder. `trusted`: a link that is not root's
        is an error. `check` hears of each step, and whether it is a link.
        """
        at, links = [self.root], 0
        pending = split(path)
        trail: list[str] = []
        while pending:
            name = pending.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                at, trail = (at[:-1] or at), trail[:-1]
                continue
            found = at[-1].children.get(name)
            if check is not None:
                check("/" + "/".join([*trail, name]), isinstance(found, Link))
            if isinstance(found, Link):
                if trusted and found.uid != 0:
                    raise OSError(errno.ELOOP, f'"{name}" is a link of user {found.uid}, which is not followed')
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, f"{path}: too many links")
                if found.target.startswith("/"):
                    at, trail = [self.root], []
                pending = [*found.target.split("/"), *pending]
                continue
            if found is None:
                found = at[-1].children[name] = Folder()
            trail.append(name)
            if not isinstance(found, Folder):
                raise NotADirectoryError(errno.ENOTDIR, f"/{'/'.join(trail)}: not a directory")
            at = [*at, found]
        return at[-1]

    def _follow(self, path: str, *, make: bool = False, depth: int = 0) -> tuple[Folder, str]:
        """The folder and name that a path ends at, the last link followed too."""
        if depth > MAX_LINKS:
            raise OSError(errno.ELOOP, f"{path}: too many links")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "is the root")
        at = self.root
        for index, name in enumerate(parts):
            found, last = at.children.get(name), index == len(parts) - 1
            if isinstance(found, Link):
                base = "" if found.target.startswith("/") else "/" + "/".join(parts[:index])
                target = os.path.normpath("/".join([base, found.target, *parts[index + 1 :]]))
                return self._follow(target, make=make, depth=depth + 1)
            if last:
                return at, name
            if found is None and make:
                found = at.children[name] = Folder()
            if found is None:
                raise _missing(path)
            if not isinstance(found, Folder):
                raise NotADirectoryError(errno.ENOTDIR, f"{path}: not a directory")
            at = found
        raise AssertionError("a path has a last component")


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, f"{path}: no such file or directory")
