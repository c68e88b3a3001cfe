"""instruction.md: what the agent is told."""

from __future__ import annotations


def without_canary(text: str) -> str:
    """The instruction without the canary lines at its top, and without the blank lines after them.

    A canary line is an HTML comment, or a line that begins with `#`, with the word "canary" in it, in any
    case. A text without one is returned as it is.
    """
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _is_canary(lines[start]):
        start += 1
    if start == 0:
        return text
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


def _is_canary(line: str) -> bool:
    line = line.strip("\ufeff \t\r")
    comment = line.startswith("<!--") and line.endswith("-->")
    return (comment or line.startswith("#")) and "canary" in line.lower()
