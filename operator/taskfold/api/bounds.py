"""The bound of a whole status: at most 16 KiB, whatever a task prints.

`bounded` is deterministic, changes nothing that fits, and gives the same for its own result. What it leaves
out it names in one entry of `warnings`. Least needed goes first; what another operator needs to go on (phases
begun and not ended, the last attempt, digests, how many steps are over, the verdict itself) is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from . import status as shapes
from .common import MAX_WARNINGS, clip
from .status import JournalEntry, Status, StepStatus
from .taskrun import TaskRunStatus

S = TypeVar("S", bound=Status)
Step = Callable[[Status], Status]

NOTE = "Left out to keep this status below 16 KiB: "
REWARDS = " rewards"
"""What stands behind their numbers. They are all in the store, in the reward.json that the verifier wrote."""
_TEXT_LIMITS = (500, 200, 80, 40)
_COUNTS = (64, 32, 16, 8, 4, 0)


def size(status: Status) -> int:
    """Bytes of the status as compact JSON in UTF-8."""
    return len(json.dumps(status.wire(), ensure_ascii=False, separators=(",", ":")).encode())


def bounded(status: S) -> S:
    """`status`, with every field within its own bound and the whole within 16 KiB."""
    left_out: list[str] = []
    fitting: Status = type(status).model_validate(status.model_dump(by_alias=True))  # clips texts set by model_copy
    for what, shrink in _own_bounds():
        fitting = _apply(fitting, shrink, what, left_out)
    for what, shrink in _whole_bound():
        if size(_with_note(fitting, [*left_out, what], _named_rewards(status))) <= shapes.MAX_STATUS_BYTES:
            break
        fitting = _apply(fitting, shrink, what, left_out)
    result = _with_note(fitting, left_out, _named_rewards(status)) if left_out else fitting
    assert isinstance(result, type(status))  # noqa: S101  # for the type checker: every step copies
    return result


def _apply(status: Status, shrink: Step, what: str, left_out: list[str]) -> Status:
    after = shrink(status)
    if after != status and what not in left_out:
        left_out.append(what)
    return after


def _own_bounds() -> Iterator[tuple[str, Step]]:
    yield REWARDS, _rewards(shapes.MAX_REWARDS)
    yield "some timings", _timings(shapes.MAX_TIMINGS)
    yield "some rewards of steps", _step_rewards(shapes.MAX_STEP_REWARDS)
    yield "old attempts", _attempts(shapes.MAX_ATTEMPTS)
    yield "old phases of the journal", _journal(shapes.MAX_JOURNAL)
    yield "some warnings", _warnings(MAX_WARNINGS - 1)


def _whole_bound() -> Iterator[tuple[str, Step]]:
    yield "old phases of the journal", _journal_of_last_attempt
    yield "parts of texts", _texts(_TEXT_LIMITS[0])
    for count in _COUNTS[:3]:
        yield REWARDS, _rewards(count)
    yield "parts of texts", _texts(_TEXT_LIMITS[1])
    yield "some warnings", _warnings(8)
    for count in _COUNTS[3:]:
        yield REWARDS, _rewards(count)
    yield "parts of texts", _texts(_TEXT_LIMITS[2])
    for count in (8, 4, 2, 0):
        yield "some rewards of steps", _step_rewards(count)
    yield "details of steps", _steps(_without_details)
    yield "some timings", _timings(8)
    yield "old attempts", _attempts(3)
    yield "old phases of the journal", _journal(16)
    yield "parts of texts", _texts(_TEXT_LIMITS[3])
    yield "some warnings", _warnings(3)
    for limit in (80, 40):
        yield "parts of the steps' names", _steps(_named(limit))
    yield "details of steps", _of_task_run("steps", lambda steps: [*map(_bare, steps[:-1]), *steps[-1:]])
    yield "parts of the steps' names", _steps(_named(16))
    yield "old phases of the journal", _journal(4)
    yield "old attempts", _attempts(1)
    yield "some timings", _timings(0)
    yield "parts of texts", _task_words


def _rewards(count: int) -> Step:
    """The named rewards, `reward` first and then by name; the parts that make up the reward likewise."""

    def shrink(status: Status) -> Status:
        names = sorted(status.rewards, key=lambda name: (name != "reward", name))[:count]
        return status.model_copy(
            update={
                "rewards": {name: status.rewards[name] for name in sorted(names)}
                if len(status.rewards) > count
                else status.rewards,
                "reward_components": status.reward_components[:count],
            }
        )

    return shrink


def _named_rewards(status: Status) -> int:
    return max(len(status.rewards), len(status.reward_components))


def _timings(count: int) -> Step:
    return lambda status: status.model_copy(update={"timings": dict(list(status.timings.items())[:count])})


def _steps(shorten: Callable[[StepStatus], StepStatus]) -> Step:
    """The steps, each shortened: their number says which one is next, and is never changed."""
    return _of_task_run("steps", lambda steps: [shorten(step) for step in steps])


def _step_rewards(count: int) -> Step:
    def shorten(step: StepStatus) -> StepStatus:
        if len(step.rewards) <= count:
            return step
        names = sorted(step.rewards, key=lambda name: (name != "reward", name))[:count]
        return step.model_copy(update={"rewards": {name: step.rewards[name] for name in sorted(names)}})

    return _steps(shorten)


def _without_details(step: StepStatus) -> StepStatus:
    """Numbers that only people read."""
    plain = {"return_code": None, "seconds": None}
    agent = step.agent and step.agent.model_copy(update=plain)
    return step.model_copy(
        update={"agent": agent, "verifier": step.verifier and step.verifier.model_copy(update=plain)}
    )


def _bare(step: StepStatus) -> StepStatus:
    """What the run's verdict is made of; when a step ended counts of the last one only."""
    return step.model_copy(update={"agent": None, "verifier": None, "ended_at": None})


def _named(limit: int) -> Callable[[StepStatus], StepStatus]:
    return lambda step: step.model_copy(update={"name": clip(step.name, limit)})


def _attempts(count: int) -> Step:
    return _of_task_run("attempts", lambda attempts: attempts[-count:])


def _of_task_run(field: str, shrink: Callable[[Sequence[Any]], Sequence[Any]]) -> Step:
    def apply(status: Status) -> Status:
        if not isinstance(status, TaskRunStatus):
            return status
        return status.model_copy(update={field: shrink(getattr(status, field))})

    return apply


def _journal(count: int) -> Step:
    """At most `count` entries: old ended ones go first, entries that are not ended stay."""

    def shrink(status: Status) -> Status:
        surplus = len(status.journal) - count
        if surplus <= 0:
            return status
        dropped = {id(entry) for entry in [entry for entry in status.journal if entry.ended_at][:surplus]}
        return status.model_copy(update={"journal": [e for e in status.journal if id(e) not in dropped]})

    return shrink


def _journal_of_last_attempt(status: Status) -> Status:
    last = max((entry.attempt for entry in status.journal), default=1)

    def needed(entry: JournalEntry) -> bool:
        return entry.attempt == last or entry.ended_at is None

    return status.model_copy(update={"journal": [entry for entry in status.journal if needed(entry)]})


def _warnings(count: int) -> Step:
    """The first `count` warnings; the note of an earlier cut is not counted and stays."""

    def shrink(status: Status) -> Status:
        notes = [text for text in status.warnings if text.startswith(NOTE)]
        others = [text for text in status.warnings if not text.startswith(NOTE)]
        return status.model_copy(update={"warnings": others[:count] + notes}) if len(others) > count else status

    return shrink


def _texts(limit: int) -> Step:
    """Every message at most `limit` characters long."""

    def cut(entry: Any) -> Any:
        return entry.model_copy(update={"message": clip(entry.message, limit)}) if entry and entry.message else entry

    def shrink(status: Status) -> Status:
        update: dict[str, Any] = {
            "conditions": [cut(condition) for condition in status.conditions],
            "failure": cut(status.failure),
            "warnings": [text if text.startswith(NOTE) else clip(text, limit) for text in status.warnings],
        }
        if isinstance(status, TaskRunStatus):
            update |= {"agent": cut(status.agent), "attempts": [cut(attempt) for attempt in status.attempts]}
        return status.model_copy(update=update)

    return shrink


def _task_words(status: Status) -> Status:
    """The names that the task gives itself and its image."""
    if not isinstance(status, TaskRunStatus) or status.task is None:
        return status
    task = status.task
    words = {"id": task.id and clip(task.id, 100), "image": task.image and clip(task.image, 100)}
    return status.model_copy(update={"task": task.model_copy(update=words)})


def _with_note(status: Status, left_out: Sequence[str], named: int) -> Status:
    """One entry of `warnings` that names all that was ever left out of this status, and how many of the rewards.

    `named`: rewards before this cut; what an earlier note says of more counts.
    """
    before = [text for text in status.warnings if text.startswith(NOTE)]
    known = [what for text in before for what in text.removeprefix(NOTE).removesuffix(".").split(", ")]
    every = dict.fromkeys([*known, *left_out])
    if counted := [what for what in every if what.endswith(REWARDS)]:
        total = max([named, *(int(what.split()[2]) for what in counted if what != REWARDS)])
        every = {what: None for what in every if what not in counted}
        every[f"{total - _named_rewards(status)} of {total}{REWARDS}"] = None
    others = [text for text in status.warnings if not text.startswith(NOTE)]
    return status.model_copy(update={"warnings": [*others, f"{NOTE}{', '.join(sorted(every))}."]})
