"""How many streams there may be at a time, in all and of one caller: who is slow must not keep the others out."""

import collections
import contextlib
from collections.abc import Iterator

from taskfold.reading import answers

RETRY_SECONDS = 2


class Turns:
    """A turn is there at once, or the request is refused with 429: waiting is the client's."""

    def __init__(self, streams: int) -> None:
        self._free, self._each = streams, max(1, streams // 2)
        self._of: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def turn(self, caller: str) -> Iterator[None]:
        """For the length of the block."""
        if self._free <= 0 or self._of[caller] >= self._each:
            whose = "of yours" if self._of[caller] >= self._each else "of everybody"
            text = f"too many files are being read at the moment, {whose}; ask again"
            raise answers.Refusal(429, text, retry_seconds=RETRY_SECONDS)
        self._free -= 1
        self._of[caller] += 1
        try:
            yield
        finally:
            self._free += 1
            self._of[caller] -= 1
            if not self._of[caller]:
                del self._of[caller]
