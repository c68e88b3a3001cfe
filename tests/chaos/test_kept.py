"""What an agent leaves is known to the byte, and whatever the store keeps in its place is found."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import copies, kept

KNOWN = {"/app/bulk": b"bulk", "/app/tree/d0/f0": b"one", "/app/tree/d1/f1": b"two"}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def entry(source: str, kind: str, content: bytes, **changes: Any) -> dict[str, Any]:
    stored = {"key": f"{kind}.tar", "size": len(content), "sha256": digest(content)}
    own = digest(KNOWN[source]) if kind == "file" else digest(content)
    return {"source": source, "path": source, "type": kind, "sha256": own, "archive": stored, **changes}


def place(folder: Path, bulk: bytes = b"bulk", tree: dict[str, bytes] | None = None, **changes: Any) -> Path:
    """A store as a copy leaves it. `changes`: of the file's entry."""
    file = archive({"bulk": bulk})
    below = archive({"./d0/f0": b"one", "./d1/f1": b"two"} if tree is None else tree)
    (folder / "file.tar").write_bytes(file)
    (folder / "directory.tar").write_bytes(below)
    entries = [entry("/app/bulk", "file", file, **changes), entry("/app/tree", "directory", below)]
    (folder / "artifacts.json").write_text(json.dumps({"artifacts": entries}))
    return folder


def wrong(folder: Path) -> list[str]:
    return kept.wrong(folder, {path: digest(content) for path, content in KNOWN.items()})


def test_what_the_agent_left_gives_no_finding(tmp_path: Path) -> None:
    assert wrong(place(tmp_path)) == []
    assert wrong(tmp_path / "nothing was kept") == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another content": ({"bulk": b"bunk"}, "keeps /app/bulk as"),
    "another digest of the file": ({"sha256": digest(b"x")}, "another digest than its manifest says"),
    "another archive": (
        {"archive": {"key": "file.tar", "size": 1, "sha256": digest(b"x")}},
        "an archive of other bytes",
    ),
    "a file less": ({"tree": {"./d0/f0": b"one"}}, "keeps /app/tree/d1/f1 as None"),
    "a file more": ({"tree": {"./d0/f0": b"one", "./d1/f1": b"two", "./x": b""}}, "the agent left None"),
    "two that have changed places": ({"tree": {"./d0/f0": b"two", "./d1/f1": b"one"}}, "keeps /app/tree/d0/f0 as"),
    "none at all": ({"archive": None, "status": "skipped", "reason": "why"}, "keeps no /app/bulk: skipped, why"),
}


@pytest.mark.parametrize(("changes", "says"), WRONG.values(), ids=WRONG)
def test_whatever_else_is_kept_is_found(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    assert any(says in problem for problem in wrong(place(tmp_path, **changes)))


def test_what_an_agent_leaves_is_known(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    work = copies.WORK.replace("/app", f"{tmp_path}/app")
    subprocess.run([sys.executable, "-c", work, "token"], check=True)
    files = [path for path in (tmp_path / "app").rglob("*") if path.is_file()]
    left = {f"/{path.relative_to(tmp_path)}": digest(path.read_bytes()) for path in files}
    assert left == copies.known("token")
    assert copies.known("token") != copies.known("another")
