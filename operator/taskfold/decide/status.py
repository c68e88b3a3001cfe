"""Small steps on a frozen status: what changes, and nothing else.

Guarantees: a final phase is never left, a reward never changed, and every time in a status is the world's `now`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from taskfold.api import conditions
from taskfold.api.common import MAX_WARNING, MAX_WARNINGS, clip
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import MAX_JOURNAL, Failure, JournalEntry, JournalPhase, NetworkStatus, Stage, Status
from taskfold.api.taskrun import TaskRunStatus

S = TypeVar("S", bound=Status)


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def parse(text: str) -> datetime:
    """A time that the API server, the helper or `stamp` wrote."""
    head, dot, tail = text.removesuffix("Z").partition(".")
    fraction = f".{tail[:6]}" if dot else ""
    return datetime.fromisoformat(f"{head}{fraction}+00:00")


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Seconds from one time of a status to another; None when one is missing, never negative."""
    if not start or not end:
        return None
    return max(0.0, round((parse(end) - parse(start)).total_seconds(), 3))


def moved(status: S, phase: Phase, **changes: object) -> S:
    """The status in another phase. A final phase stays."""
    if status.phase is not None and status.phase.final:
        raise ValueError(f"a final phase ({status.phase}) is never left")
    return status.model_copy(update={"phase": phase, **changes})


def ended(
    status: S,
    phase: Phase,
    reason: Reason,
    message: str,
    *,
    stage: Stage,
    now: datetime,
    kind: str | None = None,
    terminal: bool = False,
) -> S:
    """The status of a run that has no verdict: failed, masked or cancelled, and why."""
    failure = Failure(kind=kind, reason=reason.value, message=message, stage=stage, terminal=terminal)
    return moved(
        status,
        phase,
        masked=phase is Phase.MASKED,
        failure=failure,
        verdict_time=stamp(now),
        duration_seconds=seconds_between(status.start_time, stamp(now)),
    )


def rewarded(status: Status) -> str:
    """`reward 0.5`; a verdict of the harbor dialect may have values, and no score."""
    return f"reward {status.reward}" if status.reward is not None else "no reward, but values of other names"


def warned(status: S, notes: Sequence[str]) -> S:
    """The status with further warnings, each once, bounded."""
    texts = [clip(note, MAX_WARNING) for note in notes]  # as the status will hold them
    warnings = list(dict.fromkeys([*status.warnings, *texts]))[:MAX_WARNINGS]
    return status if warnings == status.warnings else status.model_copy(update={"warnings": warnings})


def timed(status: S, **seconds: float | None) -> S:
    """The status with further timings."""
    known = {name: round(value, 3) for name, value in seconds.items() if value is not None}
    return status.model_copy(update={"timings": {**status.timings, **known}})


def collected(status: S, message: str, now: datetime) -> S:
    """The status says that everything of the agent's that is to be kept is in the store."""
    kind, generation = conditions.ConditionType.ARTIFACTS_COLLECTED, status.observed_generation or 0
    changed = conditions.set_condition(
        status.conditions, kind, "True", Reason.COLLECTED, message, generation, stamp(now)
    )
    return status.model_copy(update={"conditions": changed})


def restricted(status: S, network: NetworkStatus, now: datetime) -> S:
    """The status says what is known of the network restriction, and its condition whether that is in force."""
    told = status.model_copy(update={"network": network})
    kind, generation = conditions.ConditionType.NETWORK_ENFORCED, status.observed_generation or 0
    if network.enforced is None:
        return told
    if network.enforced:
        reason, text = Reason.NETWORK_ENFORCED, f"{network.mode} by {network.mechanism}"
    else:
        reason, text = Reason.NETWORK_WIDENED, Reason.NETWORK_WIDENED.sentence
    value: conditions.ConditionStatus = "True" if network.enforced else "False"
    changed = conditions.set_condition(status.conditions, kind, value, reason, text, generation, stamp(now))
    return told.model_copy(update={"conditions": changed})


def entry(status: Status, phase: JournalPhase, pod_uid: str | None) -> JournalEntry | None:
    """The journal's entry for this phase in this pod."""
    found = (e for e in reversed(status.journal) if e.phase is phase and e.pod_uid == pod_uid)
    return next(found, None)


def journalled(status: S, entries: Sequence[JournalEntry]) -> S:
    """The status with further journal entries; the oldest leave first."""
    return status.model_copy(update={"journal": [*status.journal, *entries][-MAX_JOURNAL:]})


def begun(status: S, nonce: str, started_at: str) -> S:
    """The journal's entry of this nonce has started, and goes on. The first word stands."""
    journal = [
        e.model_copy(update={"started_at": started_at}) if e.nonce == nonce and e.started_at is None else e
        for e in status.journal
    ]
    return status if journal == status.journal else status.model_copy(update={"journal": journal})


def closed(status: S, nonce: str, ended_at: str) -> S:
    """The journal's entry of this nonce has ended."""
    journal = [e.model_copy(update={"ended_at": ended_at}) if e.nonce == nonce else e for e in status.journal]
    return status.model_copy(update={"journal": journal})


def current_nonces(status: TaskRunStatus | Status) -> tuple[str, ...]:
    """Every nonce that the journal still holds."""
    return tuple(e.nonce for e in status.journal)
