"""A Dockerfile as instructions, one a line, and which of them need a build.

Guarantees: lines are joined, and comments left out, as `docker build` does it; what is not known to work without a
build needs one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_HEREDOC = re.compile(r"""(?<!<)<<-?["']?[A-Za-z_]""")
"""What docker would take for one, and a little more: `$((1 << 2))` and `<<< word` are none."""
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")


def logical(text: str) -> tuple[Sequence[tuple[int, str]], str]:
    """Instructions with the number of their first line: comments gone, continued lines joined; the escape."""
    raw = text.replace("\r\n", "\n").split("\n")
    escape = "\\"
    for line in raw:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        if match[1].lower() == "escape" and match[2] in ("\\", "`"):
            escape = match[2]
    return tuple(_joined_lines(raw, escape)), escape


def _joined_lines(raw: Sequence[str], escape: str) -> Iterator[tuple[int, str]]:
    continues = re.compile(rf"{re.escape(escape)}[ \t]*$")
    started, pieces = 0, list[str]()
    for number, line in enumerate(raw, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        started = started or number
        piece = continues.sub("", line)
        pieces.append(piece)
        if piece != line:
            continue
        yield started, "".join(pieces).strip()
        started, pieces = 0, []
    if pieces and "".join(pieces).strip():
        yield started, "".join(pieces).strip()


def build_reason(name: str, rest: str, *, first: bool) -> str:
    """Why an instruction needs a build, or ""."""
    match name:
        case "FROM":
            if not first:
                return "a second FROM"
            return "FROM with a variable" if "$" in rest else "FROM with a flag" if rest.startswith("--") else ""
        case "WORKDIR" | "ENV" | "USER" | "LABEL":
            return ""
        case "RUN":
            if rest.startswith("--"):
                return "RUN with a flag"
            return "RUN with a heredoc" if _HEREDOC.search(rest) else ""
        case "ENTRYPOINT" | "CMD":
            return "" if re.fullmatch(r"\[\s*\]", rest) else name
        case _:
            return name
