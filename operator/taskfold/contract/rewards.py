"""From what a verifier left behind to a verdict (seed "Reward files"; decisions C3 to C9).

Guarantees: `judge` never raises, whatever the bytes are, and never returns a number that is not finite. The
exit code of test.sh is not an argument. A file that could not be copied out never becomes a reward of 0: it
masks the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from taskfold.contract import dialect
from taskfold.contract.failures import Effect, FailureKind

TXT_LIMIT = 64 * 2**10
"""C7: a longer reward.txt is invalid, never parsed cut off."""
JSON_LIMIT = 8 * 2**20
"""C8: the same for reward.json."""
TAIL_CHARACTERS = 600
"""How much of test.sh's output a failure quotes."""
SHOWN_CHARACTERS = 60
"""How much of a bad value a message quotes."""


class FileState(StrEnum):
    """What was found at a reward file's path. Nothing there is ever followed."""

    REGULAR = "regular"
    MISSING = "missing"
    NOT_REGULAR = "notRegular"
    TOO_LARGE = "tooLarge"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class RewardFile:
    """One of the two paths, as it was when test.sh ended; `content` counts only for REGULAR."""

    state: FileState
    content: bytes = b""


@dataclass(frozen=True)
class Verdict:
    """The score.

    `kind` None means the verifier's own reward; else `effect` tells how the row counts, and `reward` is 0. `reward`
    None: the file has no key `reward`, and the dialect sums nothing. `rewards` holds every number of the file
    (`{"reward": x}` for reward.txt); `components` the names that were summed, empty when the file had a `reward` key;
    `message` is one for people.
    """

    reward: float | None
    rewards: Mapping[str, float]
    components: tuple[str, ...]
    kind: FailureKind | None
    message: str
    timed_out: bool
    effect: Effect | None = None


class _InvalidRewardError(Exception):
    """The text says what is wrong with the file."""


@dataclass(frozen=True)
class _Score:
    reward: float | None
    rewards: Mapping[str, float] = field(default_factory=dict)
    components: tuple[str, ...] = ()


def judge(
    json_file: RewardFile,
    txt_file: RewardFile,
    *,
    timed_out: bool,
    tail: str | bytes = "",
    rules: dialect.Rules = dialect.GYM,
) -> Verdict:
    """The verdict for the two reward files: reward.json wins whenever something is there, malformed or not.

    `timed_out`: test.sh was stopped at its limit. `tail`: the end of its output, quoted with a failure.
    """

    def failure(kind: FailureKind, what: str) -> Verdict:
        return _failure(kind, what, timed_out, tail, rules)

    if timed_out and not rules.late_reward_stands:
        return failure(FailureKind.VERIFIER_TIMEOUT, "test.sh ran past its limit, and what it wrote does not count")
    if json_file.state is not FileState.MISSING:
        name, limit, file, parse = "reward.json", JSON_LIMIT, json_file, _parse_json
    elif txt_file.state is not FileState.MISSING:
        name, limit, file, parse = "reward.txt", TXT_LIMIT, txt_file, _parse_txt
    elif timed_out:
        return failure(FailureKind.VERIFIER_TIMEOUT, "test.sh ran past its limit and had written no reward")
    else:
        return failure(FailureKind.MISSING_REWARD, "test.sh ended and wrote neither reward.json nor reward.txt")

    if file.state is FileState.UNREADABLE:
        return failure(FailureKind.PROVIDER_UNAVAILABLE, f"{name} is there but could not be read")
    try:
        score = parse(_content(file, limit))
    except _InvalidRewardError as error:
        return failure(FailureKind.INVALID_REWARD, f"{name} {error}")
    if score.components and not rules.sums_components:
        score = _Score(None, score.rewards)
    message = (
        f"{name} gives a reward of {score.reward!r}" if score.reward is not None else f"{name} has no key `reward`"
    )
    if score.components:
        message += f", the sum of its values ({len(score.components):,})"
    if timed_out:
        message += "; test.sh ran past its limit after writing it"
    return Verdict(score.reward, score.rewards, score.components, None, message + ".", timed_out)


def _failure(kind: FailureKind, what: str, timed_out: bool, tail: str | bytes, rules: dialect.Rules) -> Verdict:
    if kind is FailureKind.INVALID_REWARD and timed_out:
        what += "; test.sh ran past its limit"
    text = tail.decode("utf-8", "replace") if isinstance(tail, bytes) else tail
    text = text[-TAIL_CHARACTERS:].encode("utf-8", "replace").decode().strip()
    effect = rules.unrewarded if kind.effect is Effect.COUNTED else kind.effect
    if effect is not kind.effect:
        what += ". In the harbor dialect such a row is left out of every mean"
    message = f"{what}. The output of test.sh ends:\n{text}" if text else f"{what}."
    return Verdict(0.0, {}, (), kind, message, timed_out, effect)


def _content(file: RewardFile, limit: int) -> bytes:
    if file.state is FileState.NOT_REGULAR:
        raise _InvalidRewardError("is not a regular file")
    if file.state is FileState.TOO_LARGE or len(file.content) > limit:
        raise _InvalidRewardError(f"is larger than {limit // 1024:,} KiB")
    if not file.content.strip():
        raise _InvalidRewardError("is empty")
    return file.content


def _parse_txt(content: bytes) -> _Score:
    try:
        text = content.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise _InvalidRewardError("is not UTF-8 text") from None
    try:
        number = float(text)
    except ValueError:
        raise _InvalidRewardError(f"does not hold one number: {_quote(text)}") from None
    if not math.isfinite(number):
        raise _InvalidRewardError(f"holds {_quote(text)}, which is not a finite number")
    return _Score(number + 0.0, {"reward": number + 0.0})  # + 0.0 turns -0.0 into 0.0


def _parse_json(content: bytes) -> _Score:
    try:
        document = json.loads(content.decode("utf-8-sig"), parse_int=_integer)
    except UnicodeDecodeError:
        raise _InvalidRewardError("is not UTF-8 text") from None
    except RecursionError:
        raise _InvalidRewardError("is nested too deeply") from None
    except ValueError as error:
        raise _InvalidRewardError(f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _InvalidRewardError("does not hold a JSON object")
    if not document:
        raise _InvalidRewardError("holds an empty object")
    rewards = {_name(key): _number(key, value) for key, value in document.items()}
    if "reward" in rewards:
        return _Score(rewards["reward"], rewards)
    return _Score(_sum(list(rewards.values())), rewards, tuple(rewards))


def _integer(digits: str) -> int | float:
    """An integer; infinity for one no float can hold (the interpreter refuses to convert some of them)."""
    return int(digits) if len(digits) <= 400 else math.inf


def _name(key: str) -> str:
    try:
        key.encode()
    except UnicodeEncodeError:  # a lone surrogate: no status and no row can carry it
        raise _InvalidRewardError(f"has a key that is not Unicode text: {_quote(key)}") from None
    return key


def _number(key: str, value: object) -> float:
    if not isinstance(value, int | float):
        raise _InvalidRewardError(f"holds a value that is not a number under {_quote(key)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _InvalidRewardError(f"holds a value that is not a finite number under {_quote(key)}")
    return number + 0.0


def _sum(values: list[float]) -> float:
    """The exact sum, rounded once, so that the order of the keys does not matter."""
    try:
        return math.fsum(values)
    except OverflowError:  # perhaps only on the way: add as integers, in units of the smallest float
        total = sum(_units(value) for value in values)
    try:
        return float(Fraction(total, 2**1074))
    except OverflowError:
        raise _InvalidRewardError("has components without a finite sum") from None


def _units(value: float) -> int:
    """`value` / 2**-1074, which is a whole number for every finite float."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (1075 - denominator.bit_length())


def _quote(text: str) -> str:
    shown = text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
    return ascii(shown) if not shown.isprintable() else f'"{shown}"'
