"""What a finished run leaves, written by hand: the object's status, and documents and archives in a store folder."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taskfold.protocol import artifacts

LOGS = {
    "logs/agent/stdout.txt": b"worked\n",
    "logs/agent/trajectory.json": b"{}",
    "logs/verifier/entrypoint-stdout.txt": b"started\n",
    "logs/verifier/reward.txt": b"1\n",
    "logs/verifier/test-stdout.txt": b"tested, and well\n",
}


def tar(files: Mapping[str, bytes]) -> bytes:
    """An archive with these files; with logs among them also a folder and a link that nobody may follow."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        if any(name.startswith("logs/") for name in files):
            folder = tarfile.TarInfo("logs/agent/folder.txt")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            link = tarfile.TarInfo("logs/agent/link.txt")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Kept:
    """An attempt's files below a store folder."""

    def __init__(self, store: Path, prefix: str) -> None:
        self.prefix, self.folder = prefix, store / prefix
        self._archives: list[dict[str, Any]] = []
        self._manifests: list[dict[str, Any]] = []

    def put(self, key: str, content: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def document(self, key: str, content: Any) -> None:
        self.put(key, json.dumps(content).encode())

    def archive(self, key: str, of: str, content: bytes, step: str | None = None) -> None:
        self.put(key, content)
        self.named(key, of, len(content), sha256(content), step)

    def named(self, key: str, of: str, size: int, digest: str, step: str | None = None) -> None:
        entry = {"of": of, "step": step, "key": key, "bytes": size, "sha256": digest, "entries": 1}
        self._archives.append({**entry, "truncated": False, "skipped": []})

    def manifest(self, entries: Mapping[str, bytes | None], step: str | None = None) -> None:
        """Declared artifacts by path: a tar, or None for what is missing. With a dot in its name it is a file."""
        folder = f"steps/{step}/" if step else ""
        made = []
        for number, (path, content) in enumerate(entries.items()):
            name = path.strip("/").replace("/", "-")
            entry = artifacts.Entry(path, name, artifacts.Status.MISSING, path=path, reason="there is no such path")
            if content is not None:
                archive = artifacts.Archive(f"artifacts/{number}-abc.tar", len(content), sha256(content), 1)
                self.put(folder + archive.key, content)
                kind = artifacts.Type.FILE if "." in name else artifacts.Type.DIRECTORY
                entry = artifacts.Entry(path, name, artifacts.Status.OK, type=kind, path=path, archive=archive)
            made.append(entry)
        self.document(f"{folder}artifacts.json", artifacts.Manifest(tuple(made)).document())
        self._manifests.append({"step": step, "key": f"{folder}artifacts.json"})

    def end(self, error: str = "") -> None:
        """The index, last."""
        index = {"error": error, "archives": self._archives, "artifacts": self._manifests, "seconds": 0.1}
        self.document("collected.json", index)


def plain(store: Path, prefix: str, name: str) -> Kept:
    """A shared run with its logs, its row, two artifacts, and bulk that nothing refers to."""
    kept = Kept(store, prefix)
    kept.archive("files-0123.tar", "sandbox", tar(LOGS))
    kept.put("files-4567.tar", b"unreferenced")
    kept.document("row.json", {"schema": "taskfold.dev/result/v1", "name": name, "reward": 1.0})
    kept.document("rewards.json", {"reward": 1.0})
    kept.put("image.json", b"{}")
    folder, file = tar({"./a.txt": b"a", "./deep/b": b"b"}), tar({"out.json": b"{}"})
    kept.manifest({"/app/report": folder, "/app/out.json": file, "/app/none": None})
    kept.end()
    return kept
