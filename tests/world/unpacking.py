"""Copies into a modelled file system: `helper unpack`, and `unpack` in a phase.

Guarantees, as `helper/tarin.go`, `tarlinks.go` and `frames.go` give them: bytes, entries and sha256 of an archive are
all checked; nothing outside of the folder is touched; an archive that ends early leaves what had arrived.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.world import files, requests
from tests.world.copies import LENGTH, CopyError, Skipped, frame
from tests.world.pipes import Pipe

if TYPE_CHECKING:
    from tests.world.sandbox import Container

MAX_CHUNK = MAX_TRAILER = 1 << 20


async def unpack(box: "Container", stdin: Pipe, stdout: Pipe) -> int:
    """`helper unpack`."""
    try:
        try:
            request = requests.unpack(await frame(stdin, requests.MAX_REQUEST))
        except (EOFError, ValueError) as error:
            raise CopyError("Protocol", str(error) or "unexpected EOF") from error
        answer = {"ok": True, **await take(box.files, request, stdin, lambda: None)}
    except CopyError as error:
        answer = {"ok": False, "reason": error.reason, "message": str(error)}
    await stdout.write(json.dumps(answer).encode() + b"\n")
    return 0


async def take(
    found: files.FileSystem, options: Mapping[str, Any], stdin: Pipe, beat: Callable[[], None]
) -> dict[str, Any]:
    """One framed archive, unpacked below `options["path"]`; what the answer says about it."""
    content, whole = bytearray(), False
    try:
        while True:
            beat()
            (size,) = LENGTH.unpack(await stdin.exactly(LENGTH.size))
            if size > MAX_CHUNK:
                raise CopyError("Unpack", f"a chunk of {size} bytes, more than {MAX_CHUNK}")
            if size == 0:
                break
            content += await stdin.exactly(size)
        whole = True
        said = json.loads(await frame(stdin, MAX_TRAILER))
    except EOFError as error:
        extractor = Extractor(found, options)
        extractor.partly(bytes(content))
        raise CopyError("Unpack", "unexpected EOF" if not whole else "the archive's trailer: EOF") from error
    extractor = Extractor(found, options)
    extractor.all(bytes(content))
    got = {"entries": extractor.entries, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if {key: said.get(key) for key in got} != got:
        raise CopyError("Digest", f"the archive is not what was announced: trailer says {said}, arrived {got}")
    digest = (options.get("digest") or "").removeprefix("sha256:")
    if digest and digest != got["sha256"]:
        text = f"the archive is not what was announced: digest {digest} wanted, {got['sha256']} arrived"
        raise CopyError("Digest", text)
    return {**got, **extractor.skipped.wire()}


class Extractor:
    """Unpacks one archive."""

    def __init__(self, found: files.FileSystem, options: Mapping[str, Any]) -> None:
        self._files = found
        self._options = options
        self._root = options.get("root") or found.walk(files.split(options["path"]), replace=True)
        self._owner = options.get("owner", (0, 0))
        self._bytes = 0
        self._only: str | None = options.get("only")
        self._place: str | None = options.get("place")
        """Where the archive is an artifact's: whether of one file, which gets the name, and the path."""
        self._brought: set[str] = set()
        self.entries = 0
        self.skipped = Skipped()

    def partly(self, content: bytes) -> None:
        """As much as there is."""
        try:
            self.all(content)
        except CopyError:
            return

    def all(self, content: bytes) -> None:
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:", errorlevel=2) as tar:
                for member in tar:
                    self.entries += 1
                    if self.entries > self._options.get("maxEntries", 0):
                        raise CopyError("Unpack", f"more than {self._options.get('maxEntries', 0)} entries")
                    self._entry(tar, self._renamed(member) if self._only is not None else member)
                if self._only is not None and not self.entries:
                    raise CopyError("Unpack", "the archive of a file is empty")
        except (tarfile.TarError, OSError, ValueError) as error:
            raise CopyError("Unpack", str(error)) from error

    def _renamed(self, member: tarfile.TarInfo) -> tarfile.TarInfo:
        """The one member of a file's archive, under the file's name."""
        if self.entries > 1:
            raise CopyError("Unpack", "the archive of a file has more than one member")
        if not member.isfile():
            raise CopyError("Unpack", f'"{member.name}" is no regular file')
        assert self._only is not None
        member.name = self._only
        return member

    def _entry(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = files.split_relative(member.name)
        if not parts:
            return self._itself(member)
        name = "/".join(parts)
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            return self.skipped.add(name, "special")
        folder = self._parent(parts[:-1])
        keep = self._options["fileMode"] == "keep"
        owner = (member.uid, member.gid) if keep else self._owner
        if member.isdir():
            made = self._files.walk([parts[-1]], replace=True, start=folder)
            made.mode = member.mode & 0o1777 if keep else member.mode & 0o777 | 0o555
            made.uid, made.gid = owner
        elif member.issym():
            if not self._stays(parts, member.linkname):
                return self.skipped.add(name, "link")
            self._files.place(folder, parts[-1], files.Link(target=member.linkname, uid=owner[0], gid=owner[1]))
        elif member.islnk():
            return self._hard_link(member, folder, name, parts[-1])
        else:
            self._bytes += member.size
            if self._bytes > self._options.get("maxBytes", 0):
                raise CopyError("Unpack", f"more than {self._options.get('maxBytes', 0)} bytes of files")
            source = tar.extractfile(member)
            content = source.read() if source is not None else b""
            if len(content) != member.size:
                raise CopyError("Unpack", "unexpected EOF")
            made_file = files.File(self._mode(member, name), *owner, member.mtime if keep else 0, content)
            self._files.place(folder, parts[-1], made_file)
            self._brought.add(name)
        return None

    def _itself(self, member: tarfile.TarInfo) -> None:
        """The folder that is unpacked into. What it is like is the request's business, but for an artifact's."""
        if self._place is None:
            return
        if not member.isdir():
            raise CopyError("Unpack", "the artifact is no folder")
        self._root.mode, self._root.mtime = member.mode & 0o1777, member.mtime
        self._root.uid, self._root.gid = member.uid, member.gid

    def _stays(self, parts: list[str], target: str) -> bool:
        """A link of an artifact may name its own place too, as an absolute path."""
        if self._place is not None and target.startswith(f"{self._place}/"):
            return stays_inside(["link"], target.removeprefix(f"{self._place}/"))
        return stays_inside(parts, target)

    def _parent(self, parts: list[str]) -> files.Folder:
        """The folder of an entry; what is made on the way is the owner's."""
        at = self._root
        for name in parts:
            missing = not isinstance(at.children.get(name), files.Folder)
            at = self._files.walk([name], replace=True, start=at)
            if missing:
                at.uid, at.gid = self._owner
        return at

    def _mode(self, member: tarfile.TarInfo, name: str) -> int:
        if self._place is not None:
            return member.mode & 0o777
        if self._options["fileMode"] == "keep":
            return member.mode & 0o1777
        if name == "test.sh":
            return 0o755
        mode = member.mode & 0o777 | 0o444
        return mode | 0o111 if mode & 0o111 else mode

    def _hard_link(self, member: tarfile.TarInfo, folder: files.Folder, name: str, base: str) -> None:
        target = "/".join(files.split_relative(member.linkname))
        if target not in self._brought or target == name:
            return self.skipped.add(name, "link")
        *parents, last = target.split("/")
        node = self._files.walk(parents, replace=False, start=self._root).children.get(last)
        if not isinstance(node, files.File):
            return self.skipped.add(name, "link")
        folder.children[base] = node
        self._brought.add(name)
        return None


def stays_inside(parts: list[str], target: str) -> bool:
    """A relative target whose `..` come first and do not lead above the root."""
    if not target or len(target) > files.MAX_PATH or target.startswith("/") or "\0" in target:
        return False
    depth, named = len(parts) - 1, False
    for part in target.split("/"):
        if part == "..":
            depth -= 1
            if named or depth < 0:
                return False
        elif part not in ("", "."):
            named = True
    return True
