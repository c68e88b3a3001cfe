"""Paths of artifacts as text: where one may lie in a sandbox, and where its copy may among those that are kept (C31).

Guarantees: what is compared is normalised, so that no spelling gets by; nothing is looked up, so links are for whoever
reads or writes them.
"""

from __future__ import annotations

PROTECTED = ("/tests", "/logs/verifier", "/proc", "/sys", "/dev", "/.taskfold")
"""Never an artifact, and nothing above them: what the verifier owns, what is not made of files, and our own helper."""
MANIFEST = "manifest.json"
"""The contract's own name among the kept artifacts."""
MAX_BYTES = 1024
"""Of a path; as many as those of a task's own files may have."""


def normalised(path: str) -> str | None:
    """`path` without empty parts and "."; None for what is none: empty, with "..", a NUL, or too long.

    A relative path that names the folder it begins at is ".".
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path or "\0" in path or ".." in parts or len(path.encode("utf-8", "replace")) > MAX_BYTES:
        return None
    if path.startswith("/"):
        return "/" + "/".join(parts)
    return "/".join(parts) or "."


def protected(path: str) -> str | None:
    """The protected folder that this absolute path is, lies in or takes in; None: it may be an artifact.

    ".." is taken out as text first, as it is where no link is on the way.
    """
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    plain = "/" + "/".join(parts)
    return next((folder for folder in PROTECTED if nested(plain, folder)), None)


def nested(one: str, other: str) -> bool:
    """Whether two normalised paths, both absolute or both relative, are equal, or one lies in the other."""
    first, second = _prefix(one), _prefix(other)
    return first.startswith(second) or second.startswith(first)


def _prefix(path: str) -> str:
    """What everything in the folder begins with."""
    return "" if path in ("/", ".") else f"{path}/"
