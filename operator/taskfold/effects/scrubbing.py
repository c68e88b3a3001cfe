"""Which secrets the helper can blot out of the files that it packs, within its own bounds (C34).

Guarantees: no value ever stands in an error's message.
"""

import base64
from collections.abc import Sequence

MIN_BYTES = 8
MAX_BYTES = 64 * 1024
MAX_VALUES = 256
MAX_TOTAL = 512 * 1024
"""The helper's bounds: of a value, of their number, of all of them together."""


def scrubbable(values: Sequence[bytes]) -> list[bytes]:
    """Those of these values that the helper takes at once, in their order."""
    chosen: list[bytes] = []
    total = 0
    for value in values:
        if MIN_BYTES <= len(value) <= MAX_BYTES and total + len(value) <= MAX_TOTAL:
            chosen.append(value)
            total += len(value)
    return chosen[:MAX_VALUES]


def encoded(values: Sequence[bytes]) -> list[str]:
    """The values as the helper's request has them. ValueError beyond the bounds: the caller is to blame."""
    if len(values) > MAX_VALUES or sum(map(len, values)) > MAX_TOTAL:
        raise ValueError(f"more than {MAX_VALUES} values or {MAX_TOTAL} bytes to scrub")
    if any(not MIN_BYTES <= len(value) <= MAX_BYTES for value in values):
        raise ValueError(f"a value to scrub has between {MIN_BYTES} and {MAX_BYTES} bytes")
    return [base64.b64encode(value).decode("ascii") for value in values]
