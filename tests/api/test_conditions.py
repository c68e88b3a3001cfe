"""Conditions follow from where a run is, and change their time only with their status."""

from __future__ import annotations

import pytest

from taskfold.api import conditions, phases, reasons
from taskfold.api.common import MAX_CONDITION_MESSAGE
from taskfold.api.conditions import ConditionType, find, holds, set_condition, summarize
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason

T0, T1 = "2025-01-01T00:00:00Z", "2025-01-01T00:00:09Z"


def state(**facts):
    given = {
        "phase": Phase.RUNNING,
        "reason": Reason.AGENT_RUNNING,
        "message": "m",
        "complete": False,
    } | facts
    result = summarize([], generation=1, now=T0, **given)
    return {condition.type: condition.status for condition in result}


def test_time_changes_only_with_the_status():
    first = set_condition([], "Succeeded", "Unknown", Reason.ADMITTED, "a", 1, T0)
    second = set_condition(first, "Succeeded", "Unknown", Reason.VERIFYING, "b", 2, T1)
    third = set_condition(second, "Succeeded", "True", Reason.VERDICT_REACHED, "c", 2, T1)
    assert [c[0].last_transition_time for c in (first, second, third)] == [T0, T0, T1]
    assert (second[0].reason, second[0].message, second[0].observed_generation) == ("Verifying", "b", 2)


def test_setting_the_same_again_changes_nothing():
    first = set_condition([], "Succeeded", "Unknown", Reason.ADMITTED, "a", 1, T0)
    assert set_condition(first, "Succeeded", "Unknown", Reason.ADMITTED, "a", 1, T1) == first


def test_order_and_others_are_kept():
    both = set_condition([], "A", "True", Reason.ADMITTED, "", 1, T0)
    both = set_condition(both, "B", "True", Reason.ADMITTED, "", 1, T0)
    changed = set_condition(both, "A", "False", Reason.ADMITTED, "", 1, T1)
    assert [c.type for c in changed] == ["A", "B"]
    assert changed[1] == both[1]
    assert [c.status for c in both] == ["True", "True"]


def test_long_message_is_clipped():
    (condition,) = set_condition([], "A", "True", Reason.INTERNAL, "x" * 5000, 1, T0)
    assert len(condition.message) == MAX_CONDITION_MESSAGE


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
def test_while_it_goes_on(phase):
    assert state(phase=phase) == {
        "Succeeded": "Unknown", "Complete": "False", "Reconciling": "True", "Stalled": "False",
    }  # fmt: skip


def test_suspended_is_not_reconciling():
    assert state(phase=Phase.PENDING, reason=Reason.SUSPENDED)["Reconciling"] == "False"


@pytest.mark.parametrize("complete", [False, True], ids=["cleaning up", "complete"])
@pytest.mark.parametrize(
    ("phase", "succeeded", "stalled"),
    [
        (Phase.SUCCEEDED, "True", "False"),
        (Phase.FAILED, "False", "True"),
        (Phase.MASKED, "False", "True"),
        (Phase.CANCELLED, "False", "False"),
    ],
)
def test_endings(phase, succeeded, stalled, complete):
    assert state(phase=phase, reason=Reason.VERDICT_REACHED, complete=complete) == {
        "Succeeded": succeeded,
        "Stalled": stalled,
        "Complete": "True" if complete else "False",
        "Reconciling": "False" if complete else "True",
    }


def test_reasons_between_verdict_and_end():
    result = summarize(
        [],
        phase=Phase.SUCCEEDED,
        reason=Reason.VERDICT_REACHED,
        message="1",
        complete=False,
        generation=1,
        now=T0,
    )
    assert {c.type: c.reason for c in result} == {
        "Succeeded": "VerdictReached",
        "Complete": "CleanupPending",
        "Reconciling": "CleanupPending",
        "Stalled": "VerdictReached",
    }


def test_summary_keeps_other_conditions_and_is_idempotent():
    facts = {
        "phase": Phase.FAILED,
        "reason": Reason.INVALID_TASK,
        "message": "m",
        "complete": True,
        "generation": 1,
    }
    before = set_condition([], "NetworkEnforced", "True", Reason.ADMITTED, "", 1, T0)
    once = summarize(before, now=T0, **facts)
    assert once[0] == before[0]
    assert summarize(once, now=T1, **facts) == once
    assert holds(once, "Complete")
    assert find(once, "Stalled").message == "m"


@pytest.mark.parametrize("enum", [Reason, Phase, ConditionType])
def test_every_member_has_one_sentence_of_its_own(enum):
    sentences = [member.sentence for member in enum]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_reasons_are_valid_for_conditions_and_events():
    for reason in Reason:
        assert reason.value.isascii()
        assert reason.value.isalpha()
        assert reason.value[0].isupper()
        assert reason.event_type in {"Normal", "Warning"}
    assert set(reasons.MEANINGS) == set(Reason)


def test_tables_for_the_docs():
    assert len(reasons.table_rows()) == len(Reason)
    assert len(phases.table_rows()) == len(Phase)
    assert len(conditions.table_rows()) == len(ConditionType)
