"""decide/status.py: small steps on a frozen status."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decide import worlds

from taskfold.api.common import MAX_WARNINGS
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import MAX_JOURNAL, JournalPhase, Stage
from taskfold.api.taskrun import TaskRunStatus
from taskfold.decide import status as to

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(MOMENTS)
def test_a_stamp_reads_back_to_the_millisecond(moment):
    assert abs(to.parse(to.stamp(moment)) - moment) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2026-03-01T12:00:00Z", 0),
        ("2026-03-01T12:00:00.5Z", 500_000),
        ("2026-03-01T12:00:00.123456789Z", 123_456),
        ("2026-03-01T12:00:00.120Z", 120_000),
    ],
    ids=["API server", "helper, one digit", "helper, nanoseconds", "stamp"],
)
def test_every_writers_times_are_read(text, microsecond):
    assert to.parse(text) == datetime(2026, 3, 1, 12, 0, 0, microsecond, tzinfo=UTC)


@pytest.mark.parametrize(("start", "end"), [(None, "x"), ("x", None), ("", "x")])
def test_an_unknown_time_gives_no_duration(start, end):
    assert to.seconds_between(start, end) is None


@given(MOMENTS, MOMENTS)
def test_a_duration_is_never_negative(one, other):
    seconds = to.seconds_between(to.stamp(one), to.stamp(other))
    assert seconds is not None
    assert seconds >= 0


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.final])
def test_a_final_phase_is_never_left(phase):
    for other in Phase:
        with pytest.raises(ValueError, match="never left"):
            to.moved(TaskRunStatus(phase=phase), other)


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
def test_other_phases_move(phase):
    assert to.moved(TaskRunStatus(phase=phase), Phase.MASKED).phase is Phase.MASKED


def test_an_end_without_a_verdict_tells_why_and_when():
    status = TaskRunStatus(phase=Phase.RUNNING, start_time=worlds.ago(60))
    found = to.ended(status, Phase.MASKED, Reason.NODE_LOST, "gone", stage=Stage.AGENT, now=worlds.NOW, kind="k")
    assert (found.masked, found.verdict_time, found.duration_seconds) == (True, to.stamp(worlds.NOW), 60.0)
    assert found.failure is not None
    assert (found.failure.reason, found.failure.kind, found.failure.terminal) == ("NodeLost", "k", False)
    failed = to.ended(status, Phase.FAILED, Reason.NODE_LOST, "", stage=Stage.SEED, now=worlds.NOW)
    assert not failed.masked


def test_a_warning_stands_once():
    status = to.warned(to.warned(TaskRunStatus(), ["a", "b", "a"]), ["b", "c"])
    assert status.warnings == ["a", "b", "c"]
    assert to.warned(status, ["a"]) is status


def test_warnings_are_bounded():
    assert len(to.warned(TaskRunStatus(), [str(number) for number in range(50)]).warnings) == MAX_WARNINGS


def test_timings_are_added_and_rounded():
    status = to.timed(to.timed(TaskRunStatus(), pod=1.23456), agent=2.0, total=None)
    assert status.timings == {"pod": 1.235, "agent": 2.0}


def test_the_journal_drops_the_oldest():
    entries = [worlds.entry(JournalPhase.SEED, f"{number:032x}") for number in range(MAX_JOURNAL + 3)]
    status = to.journalled(to.journalled(TaskRunStatus(), entries[:5]), entries[5:])
    assert to.current_nonces(status) == tuple(each.nonce for each in entries[3:])


def test_an_entry_is_found_by_phase_and_pod_the_last_one_first():
    older, newer = worlds.entry(JournalPhase.SEED, "1" * 32), worlds.entry(JournalPhase.SEED, "2" * 32)
    status = to.journalled(TaskRunStatus(), [older, newer, worlds.entry(JournalPhase.AGENT, "3" * 32)])
    assert to.entry(status, JournalPhase.SEED, worlds.POD_UID) == newer
    assert to.entry(status, JournalPhase.SEED, "another pod") is None
    assert to.entry(status, JournalPhase.VERIFY, worlds.POD_UID) is None


def test_closing_an_entry_leaves_the_others_open():
    status = to.closed(worlds.placed(), worlds.SEED, worlds.ago(1))
    assert [each.ended_at for each in status.journal] == [worlds.ago(1), None]
