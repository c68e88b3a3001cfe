"""The seed's "Reward files", and decisions C3 to C9."""

import json
import math
import sys
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskfold.contract import rewards
from taskfold.contract.failures import Effect, FailureKind
from taskfold.contract.rewards import FileState, RewardFile, judge

MISSING = RewardFile(FileState.MISSING)


def regular(content: str | bytes) -> RewardFile:
    return RewardFile(FileState.REGULAR, content.encode() if isinstance(content, str) else content)


def txt(content, *, timed_out=False):
    return judge(MISSING, regular(content), timed_out=timed_out)


def js(content, *, timed_out=False, beside=MISSING):
    return judge(regular(content), beside, timed_out=timed_out)


def assert_invalid(verdict):
    assert verdict.kind is FailureKind.INVALID_REWARD
    assert (verdict.reward, verdict.rewards, verdict.components) == (0.0, {}, ())


# reward.txt


@pytest.mark.parametrize(
    ("content", "reward"),
    [
        ("1", 1.0),
        ("0", 0.0),
        ("0.25\n", 0.25),
        (" \t\r\n 0.5 \n\n", 0.5),
        ("-3", -3.0),
        ("1e3", 1000.0),
        ("+.5", 0.5),
        ("1_000", 1000.0),
        ("-0.0", 0.0),
        ("1e-400", 0.0),
        ("0" * 60_000 + "7", 7.0),
    ],
    ids=lambda value: str(value)[:20],
)
def test_reward_txt_holds_one_number_which_is_the_reward(content, reward):
    verdict = txt(content)
    assert (verdict.kind, verdict.reward, verdict.rewards) == (None, reward, {"reward": reward})
    assert verdict.components == ()


@pytest.mark.parametrize("verdict", [txt("-0.0"), js('{"reward": -0.0}'), js('{"a": -0.0, "b": -0}')])
def test_minus_zero_is_zero(verdict):
    assert str(verdict.reward) == "0.0"
    assert {str(value) for value in verdict.rewards.values()} == {"0.0"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        " \n",
        "one",
        "1 2",
        "1\n2",
        "0x10",
        "1,5",
        "1__0",
        "_1",
        "True",
        "null",
        "{}",
        "1;",
        "\ufeff1",
        "1\0",
    ],
    ids=ascii,
)
def test_an_empty_or_malformed_reward_txt_is_invalid(content):
    assert_invalid(txt(content))


@pytest.mark.parametrize("content", ["nan", "inf", "-inf", "Infinity", "-NaN", "1e309", "-1e309", "9" * 400])
def test_a_reward_txt_that_is_not_a_finite_number_is_invalid(content):
    assert_invalid(txt(content))


@pytest.mark.parametrize("content", [b"\xff", b"1\xff", b"\xff\xfe1\x00", b"\xc3("])
def test_c7_undecodable_bytes_in_reward_txt_are_invalid(content):
    assert_invalid(txt(content))


def test_c7_a_reward_txt_larger_than_64_kib_is_invalid_never_parsed_cut_off():
    assert txt("1" + " " * (rewards.TXT_LIMIT - 1)).reward == 1.0
    assert_invalid(txt("1" + " " * rewards.TXT_LIMIT))
    assert_invalid(judge(MISSING, RewardFile(FileState.TOO_LARGE, b"1"), timed_out=False))


@given(st.text(st.characters(codec="utf-8")).filter(lambda text: text.strip()))
@example("٣")
@example("１")
@example("\x1c1\x1f")
@example("infinity")
def test_c7_reward_txt_takes_what_pythons_float_takes(text):
    try:
        expected = float(text.strip())
    except ValueError:
        expected = math.nan
    verdict = txt(text)
    if math.isfinite(expected):
        assert (verdict.kind, verdict.reward) == (None, expected)
    else:
        assert_invalid(verdict)


# reward.json


def test_a_reward_key_is_the_score_and_the_other_keys_are_metrics():
    verdict = js('{"reward": 0.5, "speed": 12, "tests": 3}')
    assert (verdict.kind, verdict.reward, verdict.components) == (None, 0.5, ())
    assert verdict.rewards == {"reward": 0.5, "speed": 12.0, "tests": 3.0}


def test_without_a_reward_key_every_key_is_a_component_and_the_score_is_their_sum():
    verdict = js('{"a": 0.25, "b": 0.5, "c": -1}')
    assert (verdict.kind, verdict.reward, verdict.components) == (None, -0.25, ("a", "b", "c"))
    assert verdict.rewards == {"a": 0.25, "b": 0.5, "c": -1.0}


def test_one_component_alone_is_its_own_sum():
    assert (js('{"Reward": 0.75}').reward, js('{"Reward": 0.75}').components) == (0.75, ("Reward",))


def test_booleans_count_as_numbers():
    verdict = js('{"a": true, "b": false, "c": true}')
    assert (verdict.reward, verdict.rewards) == (2.0, {"a": 1.0, "b": 0.0, "c": 1.0})
    assert [type(value) for value in verdict.rewards.values()] == [float, float, float]


@pytest.mark.parametrize(
    "content",
    [
        "",
        " \n",
        "{}",
        "[]",
        "[1]",
        "1",
        "true",
        "null",
        '"1"',
        "{",
        '{"a": 1',
        '{"a": 1,}',
        "{'a': 1}",
        '{"a": 1} x',
        '{"a": 1}{"a": 1}',
        '{"a": "1"}',
        '{"a": null}',
        '{"a": [1]}',
        '{"a": {"b": 1}}',
        '{"reward": 1, "note": "good"}',
        '{"reward": 1, "nested": {}}',
        '{"a": 01}',
        '{"a": 1_0}',
        '{"a": +1}',
        '{"a": .5}',
        '{"a": 0x1}',
        '{"\\ud800": 1}',
        "\ufeff\ufeff{}",
    ],
    ids=ascii,
)
def test_a_reward_json_that_is_not_a_non_empty_object_of_numbers_is_invalid(content):
    assert_invalid(js(content))


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e309",
        "-1e309",
        "1" + "0" * 309,
        "-1" + "0" * 309,
        "9" * 4300,
        "9" * 9000,
    ],
    ids=lambda value: value[:12] + str(len(value)),
)
@pytest.mark.parametrize("key", ["reward", "metric"])
def test_a_value_that_is_not_a_finite_number_is_invalid_also_beside_a_reward(key, value):
    assert_invalid(js(f'{{"reward": 1, "{key}": {value}}}'))


def test_the_largest_integer_that_a_float_holds_is_a_number():
    assert js(f'{{"a": {int(sys.float_info.max)}}}').reward == sys.float_info.max


@pytest.mark.parametrize("content", ['{"a": 1e308, "b": 1e308}', '{"a": -1e308, "b": -1e308, "c": -1e308}'])
def test_components_with_no_finite_sum_are_invalid(content):
    verdict = js(content)
    assert_invalid(verdict)
    assert "finite sum" in verdict.message


def test_a_reward_key_beside_metrics_that_would_overflow_stands():
    assert js('{"reward": 1, "a": 1e308, "b": 1e308}').reward == 1.0


def test_c8_a_byte_order_mark_is_tolerated():
    assert js(b'\xef\xbb\xbf{"reward": 1}').reward == 1.0


@pytest.mark.parametrize(
    "content", [b'{"a": 1}\xff', '{"a": 1}'.encode("utf-16"), b"\xff\xfe", '{"ä": 1}'.encode("latin-1")]
)
def test_c8_bytes_that_are_not_utf_8_are_invalid(content):
    assert_invalid(js(content))


def test_c8_of_duplicate_keys_the_last_counts():
    assert js('{"reward": 0, "reward": 1}').reward == 1.0
    assert js('{"reward": "x", "reward": 1}').reward == 1.0
    assert js(f'{{"reward": {"9" * 9000}, "reward": 1}}').reward == 1.0
    assert_invalid(js('{"reward": 1, "reward": "x"}'))


def test_c8_a_reward_json_larger_than_8_mib_is_invalid():
    content = b'{"reward": 1}'
    assert js(content.ljust(rewards.JSON_LIMIT)).reward == 1.0
    assert_invalid(js(content.ljust(rewards.JSON_LIMIT + 1)))
    assert_invalid(judge(RewardFile(FileState.TOO_LARGE), regular("1"), timed_out=False))


def test_c8_there_is_no_limit_on_the_number_of_keys():
    verdict = js(json.dumps({f"key {number}": 1 for number in range(100_000)}))
    assert (verdict.reward, len(verdict.components)) == (100_000.0, 100_000)


@pytest.mark.parametrize("opening", ["[", '{"a":'], ids=["arrays", "objects"])
def test_nesting_beyond_the_interpreters_stack_is_invalid(opening):
    verdict = js(opening * 1_000_000)
    assert_invalid(verdict)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8")).filter(lambda k: k != "reward"),
        st.floats(allow_nan=False, allow_infinity=False),
        min_size=1,
    )
)
@example({"a": 1e308, "b": 1e308, "c": -1e308})
@example({"a": 1e308, "b": 1e308, "c": -1e308, "d": -1e308, "e": 5e-324})
@example({str(number): 0.1 for number in range(10)})
def test_the_sum_is_exact_and_rounded_once_whatever_the_order(components):
    try:
        expected = float(sum(map(Fraction, components.values()), Fraction()))
    except OverflowError:
        expected = None
    for items in (components.items(), reversed(components.items())):
        verdict = js(json.dumps(dict(items)))
        if expected is None:
            assert_invalid(verdict)
        else:
            assert (verdict.kind, verdict.reward) == (None, expected)


# which file


def test_reward_json_wins_whenever_it_exists():
    assert js('{"reward": 0.25}', beside=regular("1")).reward == 0.25


@pytest.mark.parametrize("content", ["", "{", "{}", "nonsense"], ids=["empty", "cut", "no key", "no JSON"])
def test_reward_json_wins_even_when_it_is_malformed(content):
    assert_invalid(js(content, beside=regular("1")))


@pytest.mark.parametrize("state", [FileState.NOT_REGULAR, FileState.TOO_LARGE])
def test_reward_json_wins_even_when_it_is_no_file_to_read(state):
    assert_invalid(judge(RewardFile(state), regular("1"), timed_out=False))


def test_no_reward_file_scores_0_with_missing_reward():
    verdict = judge(MISSING, MISSING, timed_out=False)
    assert (verdict.kind, verdict.reward, verdict.rewards) == (FailureKind.MISSING_REWARD, 0.0, {})


@pytest.mark.parametrize("content", [b"", b"1", b'{"reward": 1}'])
@pytest.mark.parametrize("name", ["reward.json", "reward.txt"])
def test_c9_a_reward_path_that_is_not_a_regular_file_is_invalid(name, content):
    odd = RewardFile(FileState.NOT_REGULAR, content)
    verdict = judge(odd, MISSING, timed_out=False) if name == "reward.json" else judge(MISSING, odd, timed_out=False)
    assert_invalid(verdict)
    assert name in verdict.message


@pytest.mark.parametrize("name", ["reward.json", "reward.txt"])
def test_a_reward_that_could_not_be_copied_out_masks_the_run(name):
    lost = RewardFile(FileState.UNREADABLE)
    verdict = judge(lost, MISSING, timed_out=False) if name == "reward.json" else judge(MISSING, lost, timed_out=False)
    assert verdict.kind is FailureKind.PROVIDER_UNAVAILABLE
    assert verdict.kind.effect is Effect.MASKED


# the limit


def test_past_its_limit_without_a_reward_scores_0_with_verifier_timeout():
    verdict = judge(MISSING, MISSING, timed_out=True)
    assert (verdict.kind, verdict.reward, verdict.timed_out) == (FailureKind.VERIFIER_TIMEOUT, 0.0, True)


@pytest.mark.parametrize(
    "write", [txt, lambda c, timed_out: js(f'{{"reward": {c}}}', timed_out=timed_out)], ids=["txt", "json"]
)
def test_c3_a_reward_written_before_a_timeout_still_stands(write):
    verdict = write("0.5", timed_out=True)
    assert (verdict.kind, verdict.reward, verdict.timed_out) == (None, 0.5, True)


@pytest.mark.parametrize("write", [txt, js], ids=["txt", "json"])
@pytest.mark.parametrize("content", ["", "x"])
def test_c4_a_malformed_reward_after_a_timeout_is_invalid(write, content):
    verdict = write(content, timed_out=True)
    assert_invalid(verdict)
    assert verdict.timed_out


# messages


def test_a_failure_quotes_the_last_600_characters_of_the_output():
    verdict = judge(MISSING, MISSING, timed_out=False, tail="x" * 1000 + "y" * 600)
    assert verdict.message.endswith("\n" + "y" * 600)
    assert "x" not in verdict.message.removeprefix("test.sh").split("ends:")[1]


def test_output_that_is_not_utf_8_is_quoted_with_replacements():
    assert "\ufffdboom" in judge(MISSING, MISSING, timed_out=False, tail=b"\xffboom").message


def test_a_lone_surrogate_in_the_output_cannot_break_the_message():
    assert judge(MISSING, MISSING, timed_out=False, tail="\udcff boom").message.encode()


def test_a_reward_of_the_verifier_quotes_no_output():
    assert "boom" not in judge(MISSING, regular("1"), timed_out=False, tail="boom").message


def test_the_message_names_file_and_value():
    assert 'reward.txt does not hold one number: "one"' in txt("one").message
    assert 'under "speed"' in js('{"reward": 1, "speed": "fast"}').message


@given(
    st.binary(),
    st.binary(),
    st.booleans(),
    st.binary() | st.text(),
    st.sampled_from(FileState),
    st.sampled_from(FileState),
)
@example(b'{"a": "' + b"\xf0\x9f" * 400 + b'"}', b"", False, "", FileState.REGULAR, FileState.MISSING)
def test_judge_never_raises_and_never_returns_a_number_that_is_not_finite(a, b, timed_out, tail, one, other):
    verdict = judge(RewardFile(one, a), RewardFile(other, b), timed_out=timed_out, tail=tail)
    assert math.isfinite(verdict.reward)
    assert all(type(value) is float and math.isfinite(value) for value in verdict.rewards.values())
    assert verdict.timed_out == timed_out
    assert len(verdict.message) < 2000
    assert verdict.message.encode()
    if verdict.kind is not None:
        assert (verdict.reward, verdict.rewards, verdict.components) == (0.0, {}, ())
    else:
        assert verdict.rewards


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_any_json_document_is_a_reward_exactly_when_it_is_a_non_empty_object_of_finite_numbers(document):
    verdict = js(json.dumps(document))
    good = (
        isinstance(document, dict)
        and bool(document)
        and all(isinstance(value, int | float) and abs(value) < 1e300 for value in document.values())
        and all(not any("\ud800" <= char <= "\udfff" for char in key) for key in document)
    )
    if good:
        assert verdict.kind is None
        assert verdict.rewards == {key: float(value) for key, value in document.items()}
        assert verdict.components == (() if "reward" in document else tuple(document))
    elif not (isinstance(document, dict) and all(isinstance(value, int | float) for value in document.values())):
        assert_invalid(verdict)
