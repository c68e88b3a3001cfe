"""Conditions of a run, computed in one place.

`set_condition` changes one entry of the list, `summarize` sets the four that follow from where the run is.
Both are pure: the time comes in, a new list goes out, and a list that says the same already comes back equal,
so that no write follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from .common import MAX_CONDITION_MESSAGE, Condition, clip
from .phases import Phase
from .reasons import Reason

ConditionStatus = Literal["True", "False", "Unknown"]


class ConditionType(StrEnum):
    """What conditions speak about."""

    SUCCEEDED = "Succeeded"
    COMPLETE = "Complete"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    NETWORK_ENFORCED = "NetworkEnforced"
    ARTIFACTS_COLLECTED = "ArtifactsCollected"

    @property
    def sentence(self) -> str:
        """What True, False and Unknown mean."""
        return SENTENCES[self]


SENTENCES: dict[ConditionType, str] = {
    ConditionType.SUCCEEDED: (
        "Unknown while the run goes on. True: there is a verdict, a reward of 0 included. False: there is none."
    ),
    ConditionType.COMPLETE: (
        "True in every ending, once files are kept and pods are gone: what `kubectl wait` waits for. Else False."
    ),
    ConditionType.RECONCILING: (
        "True while the operator works towards the end. False when it is done, or when it waits for `spec.suspend`."
    ),
    ConditionType.STALLED: "True when the run ended without a verdict and nobody wanted that. Else False.",
    ConditionType.NETWORK_ENFORCED: (
        "True: the restriction was proven to be in force before anything untrusted ran. Absent: there is none."
    ),
    ConditionType.ARTIFACTS_COLLECTED: (
        "True: logs and artifacts are in the store. False: some could not be kept; the outcome stands."
    ),
}

# Phase → (Succeeded, Stalled). A masked run is stalled for kstatus: it ended without what was asked for, and
# stays so.
_BY_PHASE: dict[Phase, tuple[ConditionStatus, ConditionStatus]] = {
    Phase.PENDING: ("Unknown", "False"),
    Phase.QUEUED: ("Unknown", "False"),
    Phase.SEEDING: ("Unknown", "False"),
    Phase.RUNNING: ("Unknown", "False"),
    Phase.CLOSING: ("Unknown", "False"),
    Phase.VERIFYING: ("Unknown", "False"),
    Phase.SUCCEEDED: ("True", "False"),
    Phase.FAILED: ("False", "True"),
    Phase.MASKED: ("False", "True"),
    Phase.CANCELLED: ("False", "False"),
}


def set_condition(  # noqa: PLR0917  # the order in which a condition is read
    conditions: Sequence[Condition],
    type: str,  # noqa: A002  # the field's name in Kubernetes
    status: ConditionStatus,
    reason: Reason,
    message: str,
    generation: int,
    now: str,
) -> list[Condition]:
    """A new list in which the condition of this type says this; its place in the list is kept.

    `now` is RFC 3339 in UTC. It becomes lastTransitionTime only when `status` differs from before.
    """
    before = find(conditions, type)
    after = Condition(
        type=str(type),
        status=status,
        reason=reason.value,
        message=clip(message, MAX_CONDITION_MESSAGE),
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before and before.status == status else now,
    )
    if before is None:
        return [*conditions, after]
    return [after if condition.type == type else condition for condition in conditions]


def find(conditions: Sequence[Condition], type: str) -> Condition | None:  # noqa: A002
    """The condition of this type, or None."""
    return next((condition for condition in conditions if condition.type == type), None)


def holds(conditions: Sequence[Condition], type: str) -> bool:  # noqa: A002
    """Whether the condition of this type is there and True."""
    condition = find(conditions, type)
    return condition is not None and condition.status == "True"


def summarize(
    conditions: Sequence[Condition],
    *,
    phase: Phase,
    reason: Reason,
    message: str,
    trouble: tuple[Reason, str] | None = None,
    complete: bool,
    generation: int,
    now: str,
) -> list[Condition]:
    """Succeeded, Complete, Reconciling and Stalled as they follow from where the run is.

    `reason` and `message` say why the run is in `phase`. Between a verdict and the end of the clean-up,
    Succeeded already has its final value while Complete is False and Reconciling True with CleanupPending,
    or with the reason and message of `trouble`, which the clean-up waits for.
    """
    succeeded, stalled = _BY_PHASE[phase]
    ending = phase.final and not complete
    working = not complete and reason is not Reason.SUSPENDED
    going_on = Reason.CLEANUP_PENDING if ending else Reason.COMPLETED if complete else reason
    going_on_message = going_on.sentence if ending or complete else message
    if ending and trouble is not None:
        going_on, going_on_message = trouble
    result = list(conditions)
    for type_, status, why, text in (
        (ConditionType.SUCCEEDED, succeeded, reason, message),
        (ConditionType.COMPLETE, _as_status(complete), going_on, going_on_message),
        (ConditionType.RECONCILING, _as_status(working), going_on, going_on_message),
        (ConditionType.STALLED, stalled, reason, message if stalled == "True" else ""),
    ):
        result = set_condition(result, type_, status, why, text, generation, now)
    return result


def table_rows() -> list[tuple[str, str]]:
    """(condition type, sentence), for the reference."""
    return [(type_.value, type_.sentence) for type_ in ConditionType]


def _as_status(value: bool) -> ConditionStatus:
    return "True" if value else "False"
