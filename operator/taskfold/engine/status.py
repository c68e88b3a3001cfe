"""The last step of a reconcile: the wished status, written if it differs from what was read.

Guarantees: conditions are computed here and nowhere else; a write is conditional on the resourceVersion that was
observed; a status fits its bound. A conflict means that the world has moved: look again at once.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from taskfold.api import conditions
from taskfold.api.bounds import bounded
from taskfold.api.common import Resource
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Status
from taskfold.decide import status as to
from taskfold.decide.plan import Note

S = TypeVar("S", bound=Status)
TROUBLES = frozenset({Reason.STORE_UNAVAILABLE, Reason.TRANSFER_FAILED, Reason.INTERNAL})
"""What an ending may have to wait for that somebody should know of."""


def wished(run: Resource, status: S, note: Note | None, now: datetime) -> S:
    """The status with its conditions. Without a note the last one's words stay."""
    phase = status.phase or Phase.PENDING
    before = conditions.find(status.conditions, conditions.ConditionType.SUCCEEDED)
    trouble = None
    if phase.final and before is not None and before.status != "Unknown":
        # Why there is a verdict, or none, does not change while files are kept and pods removed.
        trouble = note if note is not None and note.reason in TROUBLES and not status.complete else None
        note = Note(_reason(before.reason), before.message)
    elif note is None:
        note = Note(_reason(before.reason), before.message) if before else Note(Reason.ADMITTED)
    summary = conditions.summarize(
        status.conditions,
        phase=phase,
        reason=note.reason,
        message=note.message or note.reason.sentence,
        trouble=(trouble.reason, trouble.message or trouble.reason.sentence) if trouble is not None else None,
        complete=status.complete,
        generation=run.metadata.generation,
        now=to.stamp(now),
    )
    update = {"phase": phase, "conditions": summary, "observed_generation": run.metadata.generation}
    return bounded(status.model_copy(update=update))


def _reason(text: str) -> Reason:
    try:
        return Reason(text)
    except ValueError:
        return Reason.INTERNAL  # a reason of another version


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The RFC 7386 patch that makes `new` of `old`; empty when they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
