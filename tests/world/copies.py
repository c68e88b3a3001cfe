"""What copies in both directions of a modelled file system share: frames, refusals, the list of what was left out.

`unpacking` has the way in, `packing` the way out.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

from tests.world.pipes import Pipe

MAX_LISTED = 100
LENGTH = struct.Struct(">I")


class CopyError(Exception):
    """An archive, or a request for one, that is refused. `reason`: of the protocol's closed set."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def frame(stdin: Pipe, most: int) -> bytes:
    """A length and that many bytes. EOFError, empty only before the first byte."""
    header = await stdin.exactly(LENGTH.size)
    (size,) = LENGTH.unpack(header)
    if size > most:
        raise ValueError(f"a frame of {size} bytes, more than {most}")
    try:
        return await stdin.exactly(size)
    except EOFError as error:
        raise EOFError(header + error.args[0]) from error


@dataclass
class Skipped:
    """What an archive left out: the first hundred, and how many in all."""

    skipped: list[dict[str, str]] = field(default_factory=list)
    count: int = 0

    def add(self, path: str, reason: str) -> None:
        self.count += 1
        if self.count <= MAX_LISTED:
            self.skipped.append({"path": path, "reason": reason})

    def wire(self) -> dict[str, Any]:
        return {"skipped": self.skipped, "skippedCount": self.count}
