"""A status stays below 16 KiB whatever a task prints, and says what it left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfold.api.bounds import NOTE, bounded, size
from taskfold.api.common import MAX_FAILURE_MESSAGE, MAX_WARNINGS, Condition, clip
from taskfold.api.status import (
    MAX_ATTEMPTS,
    MAX_JOURNAL,
    MAX_REWARDS,
    MAX_STATUS_BYTES,
    MAX_STEP_REWARDS,
    MAX_STEPS,
    AgentOutcome,
    AgentStatus,
    Attempt,
    Failure,
    JournalEntry,
    JournalPhase,
    Mode,
    StepAgentStatus,
    StepStatus,
    StepVerifierStatus,
    VerifierStatus,
)  # fmt: skip
from taskfold.api.taskrun import TaskRunStatus
from taskfold.api.verifierrun import VerifierRunStatus

NOW = "2025-01-01T00:00:00Z"


def entry(number: int, *, attempt: int = 1, ended: bool = True) -> JournalEntry:
    return JournalEntry(
        phase=JournalPhase.VERIFY,
        attempt=attempt,
        nonce=f"{number:032x}",
        pod_name=f"{'p' * 48}-{attempt}-1",
        pod_uid="00000000-0000-0000-0000-000000000000",
        ended_at=NOW if ended else None,
    )


def test_small_status_is_unchanged():
    status = TaskRunStatus(reward="1", rewards={"reward": 1.0}, warnings=["a"], journal=[entry(1)])
    assert bounded(status) == status


def test_long_texts_are_clipped_when_built():
    failure = Failure(reason="Internal", message="é" * 5000)
    assert len(failure.message) == MAX_FAILURE_MESSAGE
    assert failure.message.endswith("[…]")


def test_lone_surrogates_become_writable():
    status = TaskRunStatus(rewards={"\ud800": 1.0}, warnings=["\udcff"], failure=Failure(reason="X", message="\ud800"))
    assert size(bounded(status)) > 0


def test_texts_set_by_model_copy_are_clipped():
    status = TaskRunStatus().model_copy(update={"warnings": ["x" * 9000], "reward": "1"})
    assert len(bounded(status).warnings[0]) == 500


def test_too_many_rewards_are_cut_and_named():
    status = bounded(TaskRunStatus(reward="1", rewards={f"k{n:05}": 1.0 for n in range(5000)} | {"reward": 1.0}))
    assert len(status.rewards) <= MAX_REWARDS
    assert "reward" in status.rewards
    assert status.warnings == [f"{NOTE}{5001 - len(status.rewards)} of 5001 rewards."]
    assert status.reward == "1"


def test_the_note_does_not_grow():
    rewards = {f"k{n:05}": 1.0 for n in range(5000)}
    once = bounded(TaskRunStatus(rewards=rewards))
    again = bounded(once.model_copy(update={"rewards": rewards}))
    assert again == once


def test_journal_keeps_what_has_not_ended():
    open_entries = [entry(n, ended=False) for n in range(1000, 1003)]
    status = bounded(TaskRunStatus(journal=[*open_entries, *(entry(n) for n in range(100))]))
    assert len(status.journal) <= MAX_JOURNAL
    assert status.journal[:3] == open_entries
    assert status.journal[-1] == entry(99)


def test_attempts_keep_the_last():
    status = bounded(TaskRunStatus(attempts=[Attempt(number=n) for n in range(1, 15)]))
    assert [attempt.number for attempt in status.attempts] == list(range(5, 15))
    assert len(status.attempts) == MAX_ATTEMPTS


def test_warnings_are_at_most_twenty_with_the_note():
    status = bounded(TaskRunStatus(warnings=[f"w{n}" for n in range(50)]))
    assert len(status.warnings) == MAX_WARNINGS
    assert status.warnings[:2] == ["w0", "w1"]
    assert status.warnings[-1].startswith(NOTE)


def full_step(number: int, text: str) -> StepStatus:
    """A step with everything that can be said about one. Its own name is of a task that was admitted: ASCII."""
    given = {
        "reward": "-1.7976931348623157e+308",
        "rewards": {f"{n}{text}": 1.7976931348623157e308 for n in range(200)},
        "components": True,
    }
    counted = {"reward": "0", "kind": "harbor:verifier_timeout", "reason": "VerifierTimedOut"}
    return StepStatus(
        **(given if number % 2 else counted),
        name=f"{number:03}{'n' * 250}",
        agent=StepAgentStatus(outcome=AgentOutcome.SUCCEEDED, return_code=-100, seconds=123456.123456),
        verifier=StepVerifierStatus(
            mode=Mode.SEPARATE, name="v" * 63, return_code=-100, seconds=123456.123456, timed_out=True
        ),
        ended_at=NOW,
    )


def hostile(text: str) -> TaskRunStatus:
    """Every list full, every text that a task can influence as long and as wide as it can be."""
    name = "n" * 63
    return TaskRunStatus(
        phase="Masked",
        conditions=[
            Condition(type=f"Type{n}", status="True", reason="R", message=text, last_transition_time=NOW)
            for n in range(8)
        ],
        reward=text,
        rewards={f"{n}{text}": 1.7976931348623157e308 for n in range(3000)},
        reward_components=[text] * 3000,
        failure=Failure(kind=name, reason="Internal", message=text),
        agent=AgentStatus(name="script", message=text),
        verifier=VerifierStatus(name=name, uid=name),
        task={"id": text, "image": text, "imageDigest": name},
        steps=[full_step(n, text) for n in range(MAX_STEPS)],
        attempts=[
            Attempt(
                number=n,
                pod_name=name,
                pod_uid=name,
                node_name=name,
                reason="R",
                message=text,
                start_time=NOW,
            )
            for n in range(1, 12)
        ],
        journal=[entry(n, attempt=n // 8 + 1, ended=n < 85) for n in range(88)],
        timings={f"{n}{text}": 1.0 for n in range(200)},
        warnings=[text] * 100,
        store=name * 8,
    )


@pytest.mark.parametrize("character", ["a", "é", "€", "😀", '"', "\n", "\x00"], ids=ascii)
def test_whole_status_fits_whatever_a_task_writes(character):
    status = bounded(hostile(character * 5000))
    assert size(status) <= MAX_STATUS_BYTES
    assert [e for e in status.journal if e.ended_at is None] == [
        entry(n, attempt=11, ended=False) for n in (85, 86, 87)
    ]
    assert status.attempts[-1].number == 11
    assert len(status.steps) == MAX_STEPS
    assert status.warnings[-1].startswith(NOTE)
    assert bounded(status) == status


def test_steps_are_shortened_and_never_dropped():
    """How many there are tells which one is next."""
    status = bounded(TaskRunStatus(steps=[full_step(n, "a" * 300) for n in range(MAX_STEPS)]))
    assert size(status) <= MAX_STATUS_BYTES
    assert [step.name[:3] for step in status.steps] == [f"{n:03}" for n in range(MAX_STEPS)]
    assert {(step.reward, step.kind, step.components) for step in status.steps} == {
        ("-1.7976931348623157e+308", None, True),
        ("0", "harbor:verifier_timeout", False),
    }
    assert status.steps[-1].ended_at == NOW
    assert "some rewards of steps" in status.warnings[-1]


def test_the_rewards_of_a_few_steps_stay():
    rewards = {f"part {n:02}": 1.0 for n in range(40)} | {"reward": 1.0}
    status = bounded(TaskRunStatus(steps=[StepStatus(name="one", rewards=rewards), StepStatus(name="two")]))
    assert len(status.steps[0].rewards) == MAX_STEP_REWARDS
    assert "reward" in status.steps[0].rewards


@given(
    text=st.text(max_size=3000),
    rewards=st.dictionaries(st.text(max_size=300), st.floats(allow_nan=False, allow_infinity=False), max_size=200),
    warnings=st.lists(st.text(max_size=800), max_size=40),
    entries=st.integers(0, 90),
)
@settings(max_examples=60, deadline=None)
def test_bounded_is_small_deterministic_and_idempotent(text, rewards, warnings, entries):
    status = VerifierRunStatus(
        rewards=rewards,
        warnings=warnings,
        failure=Failure(reason="Internal", message=text),
        journal=[entry(n) for n in range(entries)],
    )
    once = bounded(status)
    assert size(once) <= MAX_STATUS_BYTES
    assert bounded(status) == once
    assert bounded(once) == once


@given(st.text(), st.integers(10, 50))
def test_clip(text, limit):
    assert len(clip(text, limit)) <= limit
    assert clip(text, limit) == text or len(text) > limit
