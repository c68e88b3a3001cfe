"""What the C library does with memory that is free again: it goes back to the system, also behind many copies.

By itself glibc raises its threshold for separate mappings to the largest block that it has seen freed, and has an arena
for each thread: the parts of a few copies then stay resident for as long as the process lives (bench/copy.py: 410 MiB
after 25 copies, with this 120 MiB). On another C library nothing is changed.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # mallopt(3)
SEPARATE_BYTES = 128 * 1024
"""Blocks from this size on are mapped, and unmapped when they are free: glibc's first value, made to stay."""
ARENAS = 2


def keep_small() -> bool:
    """Set it for this process, before it has many threads; whether this C library takes it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = ((_ARENA_MAX, ARENAS), (_MMAP_THRESHOLD, SEPARATE_BYTES), (_TRIM_THRESHOLD, SEPARATE_BYTES))
    taken = [mallopt(option, value) for option, value in wanted]
    return all(taken)
