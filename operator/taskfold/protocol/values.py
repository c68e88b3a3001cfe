"""Values of the helper's answers: of the right type, or a ValueError."""

import math
import re

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def parse_time(value: object) -> str:
    """A time as the helper writes it, unchanged. ValueError if it is none."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError(f"{value!r} is not a time")
    return value


def whole(value: object) -> int | None:
    """A whole number, or null. ValueError if it is none."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def finite(value: object) -> float:
    """A finite number. ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)
