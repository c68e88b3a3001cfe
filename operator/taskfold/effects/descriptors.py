"""File descriptors of this process: how many there may be, and who may have how many.

Guarantees: calls and streams together never need more than there are; what is asked for is granted where it fits.
"""

import resource
from dataclasses import dataclass

WANTED = 65_536
"""More than any of our settings need; a hard limit of a billion is not taken up: some programs close them all."""
RESERVED = 64
"""For files, watches, probes, the store's and the registry's connections, and for what ends in the background."""
LEAST = 4


@dataclass(frozen=True, slots=True)
class Shares:
    """Connections of each sort at a time."""

    calls: int
    execs: int
    streams: int


def raise_limit(wanted: int = WANTED) -> int:
    """Raise the soft limit to the hard one, `wanted` at most. Returns the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return most
        except (OSError, ValueError):  # a sandbox around us may forbid it
            return soft
    return wanted if soft == resource.RLIM_INFINITY else soft


def share(limit: int, wanted: Shares) -> Shares:
    """What fits into `limit` descriptors, in the proportions of what is wanted; `LEAST` of each in any case.

    An exec may hold one more descriptor beside its connection: the file that it sends or receives.
    """
    free = limit - RESERVED
    needed = wanted.calls + 2 * wanted.execs + wanted.streams
    if needed <= free:
        return wanted
    parts = (max(LEAST, part * max(free, 0) // needed) for part in (wanted.calls, wanted.execs, wanted.streams))
    return Shares(*parts)
