"""The comparison of a row with a status: each field of `Expect` can fail, and is named when it does."""

import dataclasses
from typing import Any

import pytest

from taskfold.conformance import case, differences
from taskfold.conformance.case import Expect

STATUS: dict[str, Any] = {
    "phase": "Succeeded",
    "reward": "0",
    "rewards": {"a": 1.0, "b": 0.5},
    "rewardComponents": ["a", "b"],
    "failure": {
        "kind": "harbor:missing_reward",
        "reason": "RewardMissing",
        "stage": "verification",
        "terminal": True,
        "message": "no reward file",
    },
    "agent": {"outcome": "Succeeded"},
    "warnings": ["one thing", "another"],
    "verifier": {"returnCode": 3, "timedOut": True},
    "attempts": [{"number": 1}, {"number": 2}],
}
HELD: dict[str, Any] = {
    "reward": "0",
    "kind": "harbor:missing_reward",
    "reason": "RewardMissing",
    "stage": "verification",
    "terminal": True,
    "says": ("reward file",),
    "warns": ("thing", "other"),
    "rewards": {"a": 1, "b": 0.5},
    "components": ("a", "b"),
    "outcome": "Succeeded",
    "status": {"verifier.returnCode": 3, "attempts.-1.number": 2, "attempts.0": {"number": 1}},
    "absent": ("podName", "attempts.2", "verifier.seconds"),
}
BROKEN: dict[str, list[tuple[Any, str]]] = {
    "reward": [("1", "reward: '1' expected, found '0'"), ("", "reward")],
    "kind": [("harbor:invalid_reward", "failure.kind"), ("", "failure.kind"), ("none", "failure.kind")],
    "reason": [("RewardInvalid", "failure.reason")],
    "stage": [("seed", "failure.stage")],
    "terminal": [(False, "failure.terminal")],
    "says": [(("no reward", "nowhere"), "failure.message: 'nowhere'")],
    "warns": [(("thing", "third"), "warnings: 'third'")],
    "rewards": [({"a": 1}, "rewards"), ({"a": 1, "b": 0.25}, "rewards"), ({}, "rewards")],
    "components": [(("a",), "rewardComponents"), (("b", "a"), "rewardComponents"), ((), "rewardComponents")],
    "outcome": [("TimedOut", "agent.outcome")],
    "status": [({"verifier.returnCode": 0}, "verifier.returnCode"), ({"verifier.timedOut": 1}, "verifier.timedOut")],
    "absent": [(("failure",), "failure: none expected"), (("attempts.1",), "attempts.1: none expected")],
    "facts": [(True, "check b of test.sh: does not hold")],
}


def test_what_holds_is_no_difference() -> None:
    assert differences.differences(Expect("Succeeded", **HELD), STATUS) == ()


def test_what_is_not_expected_is_not_looked_at() -> None:
    assert differences.differences(Expect("Succeeded"), STATUS) == ()


def test_the_phase_is_always_looked_at() -> None:
    (line,) = differences.differences(Expect("Masked", **HELD), STATUS)
    assert line == "phase: 'Masked' expected, found 'Succeeded'"


@pytest.mark.parametrize(
    ("field", "value", "named"), [(field, *each) for field, values in BROKEN.items() for each in values]
)
def test_a_field_that_does_not_hold_is_the_one_difference(field: str, value: Any, named: str) -> None:
    (line,) = differences.differences(Expect("Succeeded", **{**HELD, field: value}), STATUS)
    assert line.startswith(named)


def test_every_field_of_an_expectation_has_its_failing_test() -> None:
    assert {field.name for field in dataclasses.fields(Expect)} == {"phase", *BROKEN}


@pytest.mark.parametrize("field", sorted(set(HELD) - {"absent"}))
def test_an_empty_status_holds_no_expectation(field: str) -> None:
    found = differences.differences(Expect("Succeeded", **{field: HELD[field]}), {"phase": "Succeeded"})
    assert found


def test_a_failure_where_none_is_expected_is_named_by_its_reason_if_it_has_no_kind() -> None:
    status = {"phase": "Failed", "failure": {"reason": "SeedFailed"}}
    (line,) = differences.differences(Expect("Failed", kind="none"), status)
    assert line == "failure.kind: 'none' expected, found 'SeedFailed'"


def test_checks_of_test_sh_are_there_and_hold() -> None:
    expect = case.holds()
    held = {"phase": "Succeeded", "reward": "1", "rewards": {"reward": 1, "first": 1, "second": 1}}
    assert differences.differences(expect, held) == ()
    none = {**held, "rewards": {"reward": 1}}
    assert differences.differences(expect, none) == ("rewards: a check of test.sh expected, found none",)


def test_a_long_value_is_cut() -> None:
    status = {**STATUS, "failure": {"message": "x" * 2000}}
    (line,) = differences.differences(Expect("Succeeded", says=("reward file",)), status)
    assert len(line) < 300
