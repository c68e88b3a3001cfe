"""effects/cluster_time.py: processes with clocks of their own agree about the API server's."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from taskfold.effects.cluster_time import STEP_SECONDS, ClusterTime

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WRONG = datetime(1999, 1, 1, tzinfo=UTC)


def date(at: datetime) -> str:
    return format_datetime(at, usegmt=True)


def now(time: ClusterTime) -> float:
    """Seconds after noon."""
    return (time.now(lambda: WRONG) - NOON).total_seconds()


async def test_before_anything_was_heard_the_machines_own_clock_counts():
    time = ClusterTime()
    time.heard(None)
    assert time.now(lambda: WRONG) == WRONG


async def test_the_servers_date_counts_whatever_the_machine_shows():
    time = ClusterTime()
    time.heard(date(NOON))
    assert 0 <= now(time) < 1


async def test_a_date_that_was_cut_or_late_does_not_set_the_time_back():
    time = ClusterTime()
    time.heard(date(NOON + timedelta(seconds=2)))
    time.heard(date(NOON))
    assert 2 <= now(time) < 3


@pytest.mark.parametrize("step", [-600.0, 600.0, -(STEP_SECONDS + 1)])
async def test_a_clock_that_was_set_is_followed(step):
    time = ClusterTime()
    time.heard(date(NOON))
    time.heard(date(NOON + timedelta(seconds=step)))
    assert 0 <= now(time) - step < 1


@pytest.mark.parametrize("text", ["", "yesterday", "12:00"])
async def test_what_is_no_date_is_not_heard(text):
    time = ClusterTime()
    time.heard(text)
    assert time.now(lambda: WRONG) == WRONG


async def test_it_goes_on_between_two_answers():
    time = ClusterTime()
    time.heard(date(NOON))
    before = now(time)
    await asyncio.sleep(0)
    assert now(time) >= before
