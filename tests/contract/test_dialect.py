"""What the harbor dialect makes of reward files and users."""

import pytest
from tests.contract import build

from taskfold.contract import dialect, rewards, users
from taskfold.contract.failures import Effect, FailureKind
from taskfold.contract.rewards import FileState, RewardFile

MISSING = RewardFile(FileState.MISSING)


def judge(json=None, txt=None, *, timed_out=False, rules=dialect.HARBOR):
    def file(content):
        return MISSING if content is None else RewardFile(FileState.REGULAR, content.encode())

    return rewards.judge(file(json), file(txt), timed_out=timed_out, rules=rules)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, FailureKind.MISSING_REWARD),
        ({"json": "{}"}, FailureKind.INVALID_REWARD),
        ({"txt": ""}, FailureKind.INVALID_REWARD),
        ({"json": "1"}, FailureKind.INVALID_REWARD),
        ({"timed_out": True}, FailureKind.VERIFIER_TIMEOUT),
        ({"timed_out": True, "txt": "1"}, FailureKind.VERIFIER_TIMEOUT),
    ],
    ids=["none", "empty object", "empty", "bare number", "late", "late with a reward"],
)
def test_what_has_no_reward_is_left_out_and_not_0(given, kind):
    verdict = judge(**given)
    assert (verdict.kind, verdict.effect) == (kind, Effect.MASKED)
    assert "left out of every mean" in verdict.message


@pytest.mark.parametrize("rules", dialect.RULES.values(), ids=dialect.RULES)
def test_what_the_file_could_not_be_read_for_is_masked_in_both(rules):
    verdict = rewards.judge(RewardFile(FileState.UNREADABLE), MISSING, timed_out=False, rules=rules)
    assert (verdict.kind, verdict.effect) == (FailureKind.PROVIDER_UNAVAILABLE, Effect.MASKED)


@pytest.mark.parametrize(("given", "reward"), [({"txt": " 1e-3 "}, 0.001), ({"json": '{"reward": true, "a": 2}'}, 1.0)])
def test_a_reward_is_the_same_in_both(given, reward):
    for rules in dialect.RULES.values():
        verdict = judge(**given, rules=rules)
        assert (verdict.reward, verdict.kind, verdict.effect) == (reward, None, None)


def test_values_without_a_reward_are_summed_in_gym_only():
    text = '{"a": 0.25, "b": 0.5}'
    gym, harbor = judge(text, rules=dialect.GYM), judge(text)
    assert (gym.reward, gym.components) == (0.75, ("a", "b"))
    assert (harbor.reward, harbor.components, harbor.kind) == (None, (), None)
    assert gym.rewards == harbor.rewards == {"a": 0.25, "b": 0.5}


def test_a_late_reward_stands_in_gym_only():
    assert judge(txt="1", timed_out=True, rules=dialect.GYM).reward == 1.0
    assert judge(txt="1", timed_out=True).kind is FailureKind.VERIFIER_TIMEOUT


def test_test_sh_is_the_images_user_without_a_record():
    config = build.load({"task.toml": 'environment.docker_image = "a"\nagent.user = "app"\n'}).config
    assert users.verifier(config, None, dialect.GYM) == users.ROOT
    assert users.verifier(config, None, dialect.HARBOR) is None
