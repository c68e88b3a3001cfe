"""The identity of a task (C25), and its snapshot.

Guarantees: the digest and the snapshot depend on the paths, the x bits and the bytes of the files that the
contract uses, and on nothing else (order of listing, times, owners, umask, README files beside them). Both
stream: memory does not grow with the size of a file. A file that changes while it is read is an error, never
a wrong digest.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from taskfold.contract import errors, folder

CHUNK = 2**18

DATASET_VERIFIER = "dataset/verifier.py"
DATASET_SETTINGS = "dataset/settings.json"
"""What a dataset adds to a task: `effective` puts them there, and takes away what a folder has of these names."""
USED_FILES = frozenset(
    {"task.toml", "instruction.md", "task_data.json", "trajectory.json", DATASET_VERIFIER, DATASET_SETTINGS}
)
USED_FOLDERS = ("environment/", "tests/", "solution/", "steps/")


def is_used(path: str) -> bool:
    """Whether the contract reads this file of an effective folder; a README beside task.toml is not read."""
    return path in USED_FILES or path.startswith(USED_FOLDERS)


def used(source: folder.Folder) -> folder.Folder:
    """The part of a task folder that the contract uses."""
    return folder.View(source, keep=is_used)


def task_digest(source: folder.Folder) -> str:
    """`sha256:<hex>` over the lines `path NUL mode NUL sha256 LF`, sorted by path, modes 0644 or 0755."""
    task = hashlib.sha256()
    view = used(source)
    for entry in view.entries():
        content = hashlib.sha256()
        for chunk in _chunks(view, entry):
            content.update(chunk)
        task.update(_line(entry, content.hexdigest()))
    return f"sha256:{task.hexdigest()}"


def write_snapshot(source: folder.Folder, out: BinaryIO) -> str:
    """Write the used files as an uncompressed tar; the digest of what was written."""
    return write_tar(used(source), out)


def write_tar(view: folder.Folder, out: BinaryIO) -> str:
    """Write all files as an uncompressed tar (PAX, sorted, owner 0, time 0); the digest of what was written."""
    task = hashlib.sha256()
    written = 0
    for entry in view.entries():
        header = _header(entry)
        out.write(header)
        content = hashlib.sha256()
        for chunk in _chunks(view, entry):
            content.update(chunk)
            out.write(chunk)
        padding = -entry.size % tarfile.BLOCKSIZE
        out.write(bytes(padding))
        task.update(_line(entry, content.hexdigest()))
        written += len(header) + entry.size + padding
    end = 2 * tarfile.BLOCKSIZE
    out.write(bytes(end + -(written + end) % tarfile.RECORDSIZE))
    return f"sha256:{task.hexdigest()}"


def _mode(entry: folder.Entry) -> int:
    return 0o755 if entry.executable else 0o644


def _line(entry: folder.Entry, content: str) -> bytes:
    return b"%s\0%04o\0%s\n" % (entry.path.encode(), _mode(entry), content.encode())


def _header(entry: folder.Entry) -> bytes:
    info = tarfile.TarInfo(entry.path)
    info.size, info.mode = entry.size, _mode(entry)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _chunks(source: folder.Folder, entry: folder.Entry) -> Iterator[bytes]:
    """The file's bytes, exactly `entry.size` of them."""
    left = entry.size
    with source.open(entry.path) as stream:
        while chunk := stream.read(min(CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            yield chunk
    if left:
        raise errors.TaskError(
            "changed while it was read",
            file=entry.path,
            remedy="Start again when nothing writes to the folder.",
        )
