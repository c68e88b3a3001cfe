"""What the store keeps of a run's artifacts, beside what its agent is known to have left.

Guarantees: an artifact that stands in a manifest is read whole, byte by byte; each finding is one sentence.
"""

import hashlib
import json
import posixpath
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def wrong(place: Path, known: Mapping[str, str]) -> list[str]:
    """Whatever is not as it was left. `place`: the run's in the store; `known`: path in the sandbox → sha256; empty:
    nobody knows.
    """
    if not known:
        return []
    return [
        problem
        for manifest in sorted(place.rglob("artifacts.json"))
        for entry in json.loads(manifest.read_text())["artifacts"]
        for problem in _wrong(manifest.parent, entry, known)
    ]


def _wrong(folder: Path, entry: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[str]:
    archive, source = entry["archive"], entry["source"]
    wanted = {path: digest for path, digest in known.items() if path == source or path.startswith(f"{source}/")}
    if archive is None:
        if wanted:
            yield f"keeps no {source}: {entry['status']}, {entry['reason']}"
        return
    content = (folder / archive["key"]).read_bytes()
    if (hashlib.sha256(content).hexdigest(), len(content)) != (archive["sha256"], archive["size"]):
        yield f"keeps {source} in an archive of other bytes than its manifest says"
    found = _digests(folder / archive["key"], entry)
    if entry["type"] == "file" and list(found.values()) != [entry["sha256"]]:
        yield f"keeps {source} with another digest than its manifest says"
    for path in sorted(found.keys() | wanted.keys()):
        if found.get(path) != wanted.get(path):
            yield f"keeps {path} as {found.get(path)}; the agent left {wanted.get(path)}"


def _digests(archive: Path, entry: Mapping[str, Any]) -> dict[str, str]:
    """The sha256 of each file in an archive, by its path in the sandbox."""
    above = posixpath.dirname(entry["path"]) if entry["type"] == "file" else entry["path"]
    with tarfile.open(archive) as tar:
        return {
            posixpath.normpath(posixpath.join(above, member.name)): hashlib.sha256(
                tar.extractfile(member).read()  # type: ignore[union-attr]
            ).hexdigest()
            for member in tar
            if member.isreg()
        }
