"""Reading what the agent left in its workspace, for Python verifiers.

Guarantees: only regular files inside the workspace are read. A path that leaves it, by `..`, by being absolute, or
through a link, reads as absent; so does what cannot be opened. Nothing blocks on a FIFO or a device. Python 3.8 and
its standard library.
"""

import os
import stat
from typing import Optional, Union

__all__ = ["file_exists", "read_text", "text_file_equals"]

_Path = Union[str, "os.PathLike[str]"]


def read_text(
    workspace: _Path, path: _Path, encoding: str = "utf-8", strip_trailing_newline: bool = True
) -> Optional[str]:
    """The file's text, its line ends as `\\n`; None if there is no such file or it is not text in this encoding.

    One newline at the end is dropped, unless `strip_trailing_newline` is false.
    """
    descriptor = _open(workspace, path)
    if descriptor is None:
        return None
    with open(descriptor, encoding=encoding) as file:
        try:
            text = file.read()
        except (UnicodeError, OSError):
            return None
    return _stripped(text) if strip_trailing_newline else text


def file_exists(workspace: _Path, path: _Path) -> bool:
    """Whether there is a regular file that can be read."""
    descriptor = _open(workspace, path)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def text_file_equals(workspace: _Path, path: _Path, content: str) -> float:
    """1.0 if the file holds this text, else 0.0. One newline more at the file's end does not count."""
    text = read_text(workspace, path, strip_trailing_newline=False)
    return float(text is not None and content in (text, _stripped(text)))


def _stripped(text: str) -> str:
    return text[:-1] if text.endswith("\n") else text


def _open(workspace: _Path, path: _Path) -> Optional[int]:
    """A descriptor of the regular file; None if there is none inside the workspace."""
    try:
        root = os.path.realpath(workspace)
        real = os.path.realpath(os.path.join(root, path))
        if os.path.commonpath([root, real]) != root:
            return None
        # Non-blocking, for a FIFO; no link at the end: that one was resolved a moment ago.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a NUL character in the path
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
