"""The framing on the helper's stdin and stdout, without I/O.

Three forms: a *request* is a 4-byte big-endian length and that much JSON; an *archive* is chunks (4-byte
length and bytes), a length of 0, and one more length-prefixed JSON object, the trailer; *events* are JSON
objects, one a line. The decoders take bytes in any pieces, copy payload bytes never, and hold at most one
length, trailer or line. They raise `errors.ProtocolError` on anything else than the format,
`errors.Truncated` when asked to end too early.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from taskfold.effects import errors

MAX_REQUEST = 1 << 20
MAX_CHUNK = 1 << 20
MAX_TRAILER = 1 << 20
MAX_LINE = 64 << 20  # the done event carries files: 8 MiB of reward.json and more, in base64
_LENGTH = struct.Struct(">I")
HEADER = _LENGTH.size
HEADROOM = 1 + HEADER
"""Free bytes in front of a block: the exec channel and the chunk's length, so that a block is sent uncopied."""
BLOCK_BYTES = 128 * 1024
"""A block that is sent, `HEADROOM` included."""
END = _LENGTH.pack(0)


def header(size: int) -> bytes:
    """The length in front of a chunk of `size` bytes (1 to MAX_CHUNK)."""
    if not 0 < size <= MAX_CHUNK:
        raise ValueError(f"a chunk has 1 to {MAX_CHUNK} bytes, not {size}")
    return _LENGTH.pack(size)


def request(value: Mapping[str, Any]) -> bytes:
    """A length-prefixed JSON object. `LimitExceeded` beyond 1 MiB."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > MAX_REQUEST:
        raise errors.LimitExceeded(
            f"the request to the sandbox is {len(body)} bytes, more than {MAX_REQUEST}",
            remedy="Move large values from the environment into files of the task.",
        )
    return _LENGTH.pack(len(body)) + body


@dataclass(frozen=True, slots=True)
class Trailer:
    """What the sender of an archive counted. `extra`: further keys of the object, as they came."""

    entries: int
    size: int
    """Bytes of the tar stream (`bytes` on the wire)."""
    sha256: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """END and the trailer: what follows the last chunk."""
        body = json.dumps({"entries": self.entries, "bytes": self.size, "sha256": self.sha256}).encode()
        return END + _LENGTH.pack(len(body)) + body

    @classmethod
    def decode(cls, body: bytes) -> "Trailer":
        """`ProtocolError` unless it holds the three values."""
        match _object(body, "archive trailer"):
            case {"entries": int(entries), "bytes": int(size), "sha256": str(sha256), **extra}:
                return cls(entries, size, sha256, extra)
        raise errors.ProtocolError("an archive trailer without entries, bytes and sha256")


class ArchiveDecoder:
    """Feed what arrives, get the tar's bytes as views of it; afterwards `trailer` is set."""

    def __init__(self) -> None:
        self.trailer: Trailer | None = None
        self._pending = bytearray()  # a length or a trailer that has not arrived completely
        self._left = 0  # bytes of the current chunk
        self._trailer_size: int | None = None
        self._ending = False

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
        """Yield the payload in `data`. The views live as long as `data` does. Must be read to its end."""
        view = memoryview(data)
        while view:
            if self.trailer is not None:
                raise errors.ProtocolError("bytes after the archive's trailer")
            if self._left:
                part, view = view[: self._left], view[self._left :]
                self._left -= len(part)
                yield part
                continue
            wanted = HEADER if self._trailer_size is None else self._trailer_size
            missing = wanted - len(self._pending)
            self._pending += view[:missing]
            view = view[missing:]
            if len(self._pending) == wanted:
                self._complete()

    def finish(self) -> Trailer:
        """The trailer; `Truncated` if the stream ended before it."""
        if self.trailer is None:
            raise errors.Truncated("the archive ended before its trailer")
        return self.trailer

    def _complete(self) -> None:
        body = bytes(self._pending)
        self._pending.clear()
        if self._trailer_size is not None:
            self.trailer = Trailer.decode(body)
            return
        (size,) = _LENGTH.unpack(body)
        if self._ending:
            if not 0 < size <= MAX_TRAILER:
                raise errors.ProtocolError(f"an archive trailer of {size} bytes")
            self._trailer_size = size
        elif size == 0:
            self._ending = True
        elif size > MAX_CHUNK:
            raise errors.ProtocolError(f"an archive chunk of {size} bytes, more than {MAX_CHUNK}")
        else:
            self._left = size


class LineDecoder:
    """Feed what arrives, get complete JSON objects."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[dict[str, Any]]:
        """Yield each object whose line is complete now. Must be read to its end."""
        *complete, rest = bytes(data).split(b"\n")
        for line in complete:
            self._keep(line)
            whole = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            if whole.strip():
                yield _object(whole, "event")
        self._keep(rest)

    @property
    def pending(self) -> bool:
        """Whether a line has begun and not ended."""
        return self._size > 0

    def finish(self) -> None:
        """`Truncated` if the stream ended inside a line."""
        if self.pending:
            raise errors.Truncated("the helper's answer ended in the middle of a line")

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise errors.ProtocolError(f"a line of more than {self._limit} bytes from the helper")
        if part:
            self._parts.append(part)


def _object(body: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise errors.ProtocolError(f"{what} is not JSON: {body[:200]!r}") from error
    if not isinstance(value, dict):
        raise errors.ProtocolError(f"{what} is not a JSON object: {body[:200]!r}")
    return value
