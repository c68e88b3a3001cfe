"""Checks of the agent's final response, for Python verifiers. Files of the workspace: `nemo_gym.verifiers.files`.

Guarantees: Python 3.8 and its standard library; a response of whatever shape raises nothing, it has just no text.
"""

import decimal
import math
import numbers
import re
from decimal import Decimal
from typing import Any, Dict, Optional, Tuple, Union

__all__ = ["exact_match", "final_text", "numeric_match"]

RELATIVE_TOLERANCE = Decimal("1e-6")
"""What a number that is not whole may be off by."""

# Differences as they are on paper, not those of binary fractions; nothing a text may hold overflows.
_EXACTLY = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])

_NUMBER = re.compile(
    r"""
    (?<![A-Za-z0-9_])(?<!\d\.)           # neither part of a word (x2) nor of a version (1.2.3)
    [-+\u2212]?
    (?: (?:\d{1,3}(?:,\d{3})+(?!\d)|\d+) (?:\.\d+)?
      | (?<!\.)\.\d+ )
    (?:[eE][-+]?\d+)?
    """,
    re.VERBOSE | re.ASCII,
)


def final_text(response: Optional[Dict[str, Any]]) -> str:
    """The text of the last assistant message of a Responses API response; "" when there is none.

    The message's `output_text` parts are joined without anything between them.
    """
    output = response.get("output") if isinstance(response, dict) else None
    for item in reversed(output if isinstance(output, list) else []):
        if isinstance(item, dict) and item.get("type") == "message" and item.get("role") == "assistant":
            parts = item.get("content")
            return "".join(map(_text, parts if isinstance(parts, list) else []))
    return ""


def exact_match(
    response: Union[Dict[str, Any], str, None], expected: str, *, strip: bool = True, ignore_case: bool = False
) -> float:
    """1.0 if the response's final text is `expected`, else 0.0.

    `response`: a response, or the text itself. `strip`: white space around either does not count. `ignore_case`: by
    full case folding. Raises TypeError if `expected` is not a string.
    """
    if not isinstance(expected, str):
        raise TypeError(f"expected must be a string, not {type(expected).__name__}: {expected!r}")
    pair = [_answer(response), expected]
    if strip:
        pair = [text.strip() for text in pair]
    if ignore_case:
        pair = [text.casefold() for text in pair]
    return float(pair[0] == pair[1])


def numeric_match(
    response: Union[Dict[str, Any], str, None], expected: Union[float, str], *, tolerance: Optional[float] = None
) -> float:
    """1.0 if the last number in the response's final text is `expected`, else 0.0.

    Thousands separators are read (1,234.5); a percent sign changes nothing (50% is 50). A whole `expected` (an int,
    or a string such as "42") must be equal. Any other may be off by one millionth of itself, and by one millionth when
    it is 0. `tolerance` replaces both: the largest difference that still counts. Raises ValueError if `expected` is
    not a finite number or `tolerance` is negative or not a number.
    """
    wanted, whole = _wanted(expected)
    if tolerance is not None and not tolerance >= 0:
        raise ValueError(f"tolerance must be a number that is not negative, not {tolerance!r}")
    found = None
    for match in _NUMBER.finditer(_answer(response)):
        found = match.group()
    number = None if found is None else _read(found)
    if number is None:
        return 0.0
    if tolerance is not None:
        allowed = _decimal(float(tolerance))
    elif whole:
        return float(number == wanted)
    else:
        allowed = RELATIVE_TOLERANCE * (abs(wanted) if wanted else 1)
    return float(_EXACTLY.abs(_EXACTLY.subtract(number, wanted)) <= allowed)


def _text(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "output_text" else None
    return text if isinstance(text, str) else ""


def _answer(response: Union[Dict[str, Any], str, None]) -> str:
    return response if isinstance(response, str) else final_text(response)


def _read(text: str) -> Optional[Decimal]:
    """A number as `_NUMBER` finds it; None for an exponent beyond everything."""
    try:
        return Decimal(text.replace(",", "").replace("\u2212", "-"))
    except ArithmeticError:
        return None


def _wanted(expected: Union[float, str]) -> Tuple[Decimal, bool]:
    """The number, and whether it is a whole one as it is written."""
    if isinstance(expected, str):
        text = expected.strip()
        number = _read(text) if _NUMBER.fullmatch(text) else None
        if number is None:
            raise ValueError(f"expected is not a number: {expected!r}")
        return number, not set(text) & set(".eE")
    if isinstance(expected, numbers.Integral):
        return Decimal(int(expected)), True
    if not math.isfinite(expected):
        raise ValueError(f"expected is not a finite number: {expected!r}")
    return _decimal(float(expected)), False


def _decimal(number: float) -> Decimal:
    """The number as it would be written: 0.1 is one tenth."""
    return Decimal(repr(number))
