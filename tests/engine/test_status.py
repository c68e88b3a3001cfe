"""engine/status.py: the wished status and the patch that brings it about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decide import worlds
from tests.world import apply

from taskfold.api import bounds, conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import MAX_STATUS_BYTES
from taskfold.decide.plan import Note
from taskfold.engine import status as statuses

LEAVES = st.booleans() | st.text(max_size=3) | st.lists(st.integers(0, 3), max_size=2)
TABLES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), LEAVES | inner, max_size=3),
    max_leaves=8,
)


@given(TABLES, TABLES)
def test_the_patch_makes_the_new_of_the_old(old, new):
    patch = statuses.merge_patch(old, new)
    assert apply.merged(old, patch) == new
    assert (patch == {}) is (old == new)


@given(TABLES)
def test_nothing_changed_is_an_empty_patch(table):
    assert statuses.merge_patch(table, table) == {}


def test_real_statuses_are_patched_into_each_other():
    one, other = worlds.running().wire(), worlds.complete().wire()
    assert apply.merged(one, statuses.merge_patch(one, other)) == other
    assert apply.merged(other, statuses.merge_patch(other, one)) == one


def wished(status, note=None):
    return statuses.wished(worlds.run(status), status, note, worlds.NOW)


def said(status, type_="Succeeded"):
    found = conditions.find(status.conditions, type_)
    return (found.status, found.reason, found.message)


@pytest.mark.parametrize(
    ("phase", "succeeded", "stalled", "reconciling"),
    [
        (Phase.PENDING, "Unknown", "False", "True"),
        (Phase.RUNNING, "Unknown", "False", "True"),
        (Phase.SUCCEEDED, "True", "False", "True"),
        (Phase.FAILED, "False", "True", "True"),
        (Phase.MASKED, "False", "True", "True"),
        (Phase.CANCELLED, "False", "False", "True"),
    ],
)
def test_conditions_follow_from_the_phase(phase, succeeded, stalled, reconciling):
    status = wished(worlds.TaskRunStatus(phase=phase), Note(Reason.SANDBOX_LOST, "why"))
    types = ("Succeeded", "Stalled", "Reconciling", "Complete")
    assert [said(status, each)[0] for each in types] == [succeeded, stalled, reconciling, "False"]
    assert said(status)[1:] == ("SandboxLost", "why")
    assert status.observed_generation == 1


def test_a_run_without_a_phase_is_pending():
    assert wished(worlds.TaskRunStatus()).phase is Phase.PENDING


def test_a_note_without_a_message_speaks_its_reasons_sentence():
    status = wished(worlds.queued(), Note(Reason.SEEDING))
    assert said(status)[2] == Reason.SEEDING.sentence


def test_without_a_note_the_last_words_stay():
    before = wished(worlds.queued(), Note(Reason.QUOTA_EXCEEDED, "pods=4"))
    assert said(wished(before))[1:] == ("QuotaExceeded", "pods=4")


def test_why_there_is_a_verdict_does_not_change_while_files_are_kept():
    ended = wished(worlds.ended(), Note(Reason.VERDICT_REACHED, "reward 1"))
    collecting = wished(ended, Note(Reason.CLEANUP_PENDING, "collecting files"))
    assert said(collecting)[1:] == ("VerdictReached", "reward 1")
    complete = wished(collecting.model_copy(update={"complete": True}), Note(Reason.COMPLETED))
    assert said(complete) == ("True", "VerdictReached", "reward 1")
    assert said(complete, "Complete")[0] == "True"
    assert said(complete, "Reconciling")[:2] == ("False", "Completed")


def test_what_an_ending_waits_for_is_told_beside_the_verdict():
    ended = wished(worlds.ended(), Note(Reason.VERDICT_REACHED, "reward 1"))
    waiting = wished(ended, Note(Reason.STORE_UNAVAILABLE, "503"))
    assert said(waiting) == ("True", "VerdictReached", "reward 1")
    assert said(waiting, "Complete") == ("False", "StoreUnavailable", "503")
    assert said(waiting, "Reconciling") == ("True", "StoreUnavailable", "503")
    going_on = wished(waiting, Note(Reason.CLEANUP_PENDING, "collecting files"))
    assert said(going_on, "Complete")[:2] == ("False", "CleanupPending")
    complete = wished(waiting.model_copy(update={"complete": True}), Note(Reason.COMPLETED))
    assert said(complete, "Complete")[:2] == ("True", "Completed")


def test_a_reason_of_another_version_is_told_as_internal():
    odd = conditions.Condition(type="Succeeded", status="Unknown", reason="FromTheFuture", last_transition_time="x")
    assert said(wished(worlds.queued(conditions=[odd])))[1] == "Internal"


def test_the_same_again_is_the_same():
    once = wished(worlds.queued(), Note(Reason.ADMITTED))
    assert wished(once, Note(Reason.ADMITTED)) == once


def test_a_suspended_run_is_not_reconciling():
    assert said(wished(worlds.queued(), Note(Reason.SUSPENDED)), "Reconciling")[0] == "False"


def test_a_status_fits_its_bound_whatever_stands_in_it():
    status = worlds.ended(warnings=["w" * 5000] * 20, rewards={f"r{number}": 1.0 for number in range(900)})
    found = wished(status, Note(Reason.VERDICT_REACHED, "m" * 5000))
    assert bounds.size(found) <= MAX_STATUS_BYTES
    assert found.reward == "1"
