import re

import pytest

from taskfold.contract.failures import Effect, FailureKind, table_rows


@pytest.mark.parametrize("kind", FailureKind, ids=str)
def test_a_kind_is_a_shared_name_or_a_private_one_of_a_server(kind):
    assert re.fullmatch(r"(harbor:)?[a-z][a-z0-9_]*", kind.value)


@pytest.mark.parametrize("kind", FailureKind, ids=str)
def test_every_kind_has_an_effect_and_one_sentence(kind):
    assert kind.effect in Effect
    assert kind.sentence[0].isupper()
    assert kind.sentence.endswith(".")


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        ("harbor:missing_reward", "counted"),
        ("harbor:invalid_reward", "counted"),
        ("harbor:verifier_timeout", "counted"),
        ("harbor:entrypoint_failed", "masked"),
        ("verifier_error", "masked"),
        ("provider_unavailable", "masked"),
    ],
)
def test_the_kinds_of_the_seed_have_the_effects_of_the_seed(kind, effect):
    assert FailureKind(kind).effect == effect


def test_the_set_is_the_contracts():
    harbor = {"missing_reward", "invalid_reward", "verifier_timeout", "entrypoint_failed"}
    agent = {"agent_timeout", "agent_run_error", "agent_request_failed", "agent_command_not_allowed"}
    provider = {"provider_unavailable", "provider_quota_exhausted", "provider_oom_killed"}
    transport = {f"transport_{end}" for end in ("unreachable", "peer_drop", "timeout", "local_resource")}
    session = {"session_lost", "session_expired", "session_release_failed"}
    judge = {"verifier_error", "judge_failed", "judge_unparseable"}
    process = {"cancelled", "kill_shaped", "shutdown", "persistence_failed", "cohort_incomplete"}
    shared = agent | provider | transport | session | judge | process
    assert {kind.value for kind in FailureKind} == {f"harbor:{name}" for name in harbor} | shared


def test_the_table_has_a_row_per_kind_in_the_order_of_the_enum():
    rows = table_rows()
    assert [row[0] for row in rows] == [f"`{kind}`" for kind in FailureKind]
    first = FailureKind.MISSING_REWARD
    assert rows[0] == ("`harbor:missing_reward`", "counted", "emitted", first.sentence)
    assert {row[2] for row in rows} == {"emitted", "reserved"}


def test_what_counts_is_emitted_or_an_outcome_of_the_agent():
    counted = {kind for kind in FailureKind if kind.effect is Effect.COUNTED and not kind.emitted}
    assert counted == {FailureKind.AGENT_TIMEOUT, FailureKind.AGENT_RUN_ERROR}
