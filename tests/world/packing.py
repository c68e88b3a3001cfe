"""Copies out of a modelled file system: `helper pack`, and the last word on a kept stream.

Guarantees, as `helper/tarout.go`, `pack.go` and `scrub.go` give them: no link is followed; what cannot be packed is
listed with its reason; secrets are stars and sizes stay.
"""

import fnmatch
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.world import files, requests
from tests.world.copies import LENGTH, MAX_LISTED, Skipped, frame
from tests.world.pipes import Pipe

if TYPE_CHECKING:
    from tests.world.sandbox import Container

SEND_CHUNK = 256 << 10


class _FullError(Exception):
    """No more entries are allowed."""


async def pack(box: "Container", stdin: Pipe, stdout: Pipe, stderr: Pipe) -> int:
    """`helper pack`."""
    try:
        body = await frame(stdin, requests.MAX_REQUEST)
    except (EOFError, ValueError) as error:
        await stderr.write(f"helper pack: the request: {error}\n".encode())
        return 1
    code, _ = await pack_asked(box, body, stdout, stderr)
    return code


async def pack_asked(box: "Container", body: bytes, stdout: Pipe, stderr: Pipe | None) -> tuple[int, bool]:
    """What a request asks for: the exit code, and whether another one may follow."""
    try:
        request = requests.pack(body)
    except requests.RefusedError as error:
        if stderr is not None:
            await stderr.write(f"helper pack: the request: {error}\n".encode())
        return 1, False
    packer = Packer(box.files, request, box.image.cwd)
    content, trailer = packer.all()
    for start in range(0, len(content), SEND_CHUNK):
        chunk = content[start : start + SEND_CHUNK]
        await stdout.write(LENGTH.pack(len(chunk)) + chunk)
    encoded = json.dumps(trailer).encode()
    await stdout.write(LENGTH.pack(0) + LENGTH.pack(len(encoded)) + encoded)
    return 0, request.get("keep", False)


class Packer:
    """Packs what a request names, following no link."""

    def __init__(self, found: files.FileSystem, request: Mapping[str, Any], cwd: str) -> None:
        self._files = found
        self._request = request
        self._paths = [_absolute(root["path"], cwd) for root in request["roots"]]
        self._at: dict[str, Any] = {}
        self._exclude: list[str] = []
        self._under = ""
        self._most, self._most_entries = request.get("maxBytes", 0), request.get("maxEntries", 0)
        self._file = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._bytes = self._entries = self._scrubbed = 0
        self._skipped = Skipped()
        self._truncated = False

    def all(self) -> tuple[bytes, dict[str, Any]]:
        """The tar stream and its trailer."""
        roots = [self._root(root, path) for root, path in zip(self._request["roots"], self._paths, strict=True)]
        end = self._tar.offset + 2 * tarfile.BLOCKSIZE  # this library fills up to a record, the real one does not
        self._tar.close()
        content = self._file.getvalue()[:end]
        trailer = {"entries": self._entries, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        trailer |= {**self._skipped.wire(), "changed": [], "changedCount": 0}
        return content, {**trailer, "truncated": self._truncated, "scrubbed": self._scrubbed, "roots": roots}

    def _root(self, root: Mapping[str, Any], path: str) -> dict[str, Any]:
        """What the trailer says about a root."""
        self._at = {"path": path, "entries": 0, "size": 0, "sha256": None, "skippedCount": 0, "changedCount": 0}
        self._exclude, self._under = root.get("exclude") or [], path
        node, self._at["type"] = self._look(path)
        try:
            if node is None:
                self._skip(path, self._at["type"])
            elif self._truncated and self._entries >= self._most_entries:
                raise _FullError
            else:
                self._entry(node, path, "/".join(files.split_relative(root.get("as", ""))))
        except _FullError:
            self._truncated = True
        return self._at

    def _look(self, path: str) -> tuple[files.Node | None, str]:
        """What is at a root's path, if it can be packed, and its type."""
        try:
            node = self._files.entry(path)
        except FileNotFoundError:
            return None, "missing"
        except NotADirectoryError:
            return None, "link"
        except OSError:
            return None, "special"
        match node:
            case files.File():
                return node, "file"
            case files.Folder():
                return node, "directory"
        return None, "link" if isinstance(node, files.Link) else "special"

    def _left_out(self, path: str) -> bool:
        """Whether GNU tar leaves a name out: by it, or by what follows one of its slashes."""
        name = "." + path.removeprefix(self._under)
        parts = name.split("/")
        tails = ["/".join(parts[index:]) for index in range(len(parts))]
        return any(fnmatch.fnmatchcase(tail, pattern) for tail in tails for pattern in self._exclude)

    def _skip(self, path: str, reason: str) -> None:
        self._skipped.add(path, reason)
        self._at["skippedCount"] += 1
        if self._entries + self._skipped.count >= self._most_entries + MAX_LISTED:
            raise _FullError

    def _entry(self, node: files.Node, path: str, name: str) -> None:
        if self._entries >= self._most_entries:
            raise _FullError
        if isinstance(node, files.Special) or (not name and not isinstance(node, files.Folder)):
            return self._skip(path, "special")
        info = tarfile.TarInfo(name)
        info.mode, info.uid, info.gid, info.mtime = node.mode & 0o1777, node.uid, node.gid, node.mtime
        match node:
            case files.Folder():
                info.type = tarfile.DIRTYPE
                info.name = info.name or "./"
                self._add(info, None)
                if path == self._under and self._left_out(path):
                    return None
                for child, found in sorted(node.children.items()):
                    where = f"{path.rstrip('/')}/{child}"
                    if not self._is_elsewhere(where) and not self._left_out(where):
                        self._entry(found, where, f"{name}/{child}" if name else child)
            case files.Link():
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, node.target, 0o777
                self._add(info, None)
            case files.File():
                return self._content(node, path, info)
        return None

    def _is_elsewhere(self, path: str) -> bool:
        """Whether the path is a root that is to be in its own place only."""
        found = zip(self._request["roots"], self._paths, strict=True)
        return any(where == path and root.get("only") for root, where in found)

    def _content(self, node: files.File, path: str, info: tarfile.TarInfo) -> None:
        size, most = len(node.content), self._request.get("maxFileBytes")
        if most is not None and size > most:
            return self._skip(path, "tooLarge")
        if size > self._most - self._bytes:
            self._truncated = True
            return self._skip(path, "limit")
        self._bytes += size
        self._at["size"] += size
        info.size = size
        content = self._scrub(node.content, path)
        if path == self._under:
            self._at["sha256"] = hashlib.sha256(content).hexdigest()
        return self._add(info, content)

    def _add(self, info: tarfile.TarInfo, content: bytes | None) -> None:
        self._tar.addfile(info, io.BytesIO(content) if content is not None else None)
        self._entries += 1
        self._at["entries"] += 1

    def _scrub(self, content: bytes, path: str) -> bytes:
        """Every byte of an occurrence of a secret as a star."""
        if any(path == free or path.startswith(f"{free.rstrip('/')}/") for free in self._request["scrubExcept"]):
            return content
        found = {
            (at, -len(value))
            for value in self._request["scrub"]
            for at in range(len(content) - len(value) + 1)
            if content.startswith(value, at)
        }
        hidden, covered = bytearray(content), 0
        for at, length in sorted(found):
            end = at - length
            if end > covered:
                self._scrubbed += 1
                covered = end
                hidden[at:end] = b"*" * -length
        return bytes(hidden)


def _absolute(path: str, cwd: str) -> str:
    """A root's path, plain; a relative one is below the working directory."""
    return "/" + "/".join(files.split(path if path.startswith("/") else f"{cwd}/{path}"))
