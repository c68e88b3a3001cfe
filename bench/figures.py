"""Medians, intervals and what to say about the machine. Few numbers, honestly."""

import os
import platform
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

RESAMPLES = 4000


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def summary(values: Sequence[float], unit: str = "s", digits: int = 2) -> str:
    """`0.96 s (p90 1.07, 0.90..1.10, n=10)`."""
    median, p90 = statistics.median(values), percentile(values, 0.9)
    low, high = min(values), max(values)
    return f"{median:.{digits}f} {unit} (p90 {p90:.{digits}f}, {low:.{digits}f}..{high:.{digits}f}, n={len(values)})"


def ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Median of the first over median of the second, with a 95 % bootstrap interval over the pairs."""
    return _interval(pairs, lambda some: statistics.median(a for a, _ in some) / statistics.median(b for _, b in some))


def ratio_within_pairs(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Median of each pair's own ratio: for pairs that were measured back to back on a machine that drifts."""
    return _interval(pairs, lambda some: statistics.median(a / b for a, b in some))


def told(found: tuple[float, float, float]) -> str:
    """`1.31 [1.22..1.44]`."""
    return f"{found[0]:.2f} [{found[1]:.2f}..{found[2]:.2f}]"


def machine() -> str:
    """What was measured on, in one line."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}; load average {os.getloadavg()[0]:.1f}"
    )


Pairs = Sequence[tuple[float, float]]


def _interval(pairs: Pairs, statistic: Callable[[Pairs], float]) -> tuple[float, float, float]:
    rng = random.Random(1)  # the same figures give the same interval
    drawn = [statistic(rng.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES)]
    return statistic(pairs), percentile(drawn, 0.025), percentile(drawn, 0.975)
