"""sandbox/nemo_gym/verifiers: text and numbers in a response (C21 to C23)."""

import numbers
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.sandbox.nemo_gym.verifiers import exact_match, final_text, numeric_match


def message(*texts: str, role: str = "assistant") -> dict:
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text} for text in texts]}


def response(*output: object) -> dict:
    return {"object": "response", "output": list(output)}


CALL = {"type": "function_call", "name": "bash", "arguments": "{}"}
TEXTS = {
    "one part": (response(message("42")), "42"),
    "parts are joined": (response(message("4", "2", "\n")), "42\n"),
    "the last message": (response(message("1"), CALL, message("2"), CALL), "2"),
    "only the assistant's": (response(message("1"), message("2", role="user")), "1"),
    "a last message without text": (response(message("1"), message()), ""),
    "no message": (response(CALL), ""),
    "nothing": ({}, ""),
    "no response": (None, ""),
}


@pytest.mark.parametrize(("given", "text"), TEXTS.values(), ids=TEXTS)
def test_final_text(given, text):
    assert final_text(given) == text


def test_parts_that_are_no_output_text_do_not_count():
    refusal = {"type": "refusal", "refusal": "no", "text": "x"}
    mixed = {**message("a", "b"), "content": [*message("a")["content"], refusal, "c", None, *message("b")["content"]]}
    assert final_text(response(mixed)) == "ab"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["output", "type", "role", "content", "x"]), inner),
)


@given(JSON | st.lists(JSON).map(lambda output: response(*output)))
def test_a_response_of_any_shape_has_a_text(given):
    assert isinstance(final_text(given), str)
    assert exact_match(given, given if isinstance(given, str) else final_text(given)) == 1.0
    assert numeric_match(given, 1) in (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "expected", "more", "score"),
    [
        (" 42\n", "42", {}, 1.0),
        ("42", " 42 ", {}, 1.0),
        (" 42", "42", {"strip": False}, 0.0),
        ("Yes", "yes", {}, 0.0),
        ("STRASSE", "straße", {"ignore_case": True}, 1.0),
        ("42.", "42", {}, 0.0),
        ("", "", {}, 1.0),
    ],
    ids=str,
)
def test_exact_match(text, expected, more, score):
    assert exact_match(text, expected, **more) == score
    assert exact_match(response(message(text)), expected, **more) == score


def test_exact_match_wants_a_string():
    with pytest.raises(TypeError, match="expected must be a string, not int: 42"):
        exact_match("42", 42)


def test_a_partial_of_either_takes_a_response():
    assert partial(exact_match, expected="42")(response=response(message("42"))) == 1.0
    assert partial(numeric_match, expected=42)(response=response(message("It is 42."))) == 1.0


FOUND = {
    "42": 42,
    "It is 42.": 42,
    "1, 2 and 3": 3,
    "1,234.50 dollars": Decimal("1234.5"),
    "1,234,567": 1234567,
    "1234,567": 567,
    "50%": 50,
    "-3": -3,
    "\N{MINUS SIGN}3": -3,
    "+3": 3,
    "5-3": 3,
    "of 2026-11": 11,
    "1e3": 1000,
    "2.5E-1 m": Decimal("0.25"),
    ".5": Decimal("0.5"),
    "so...42": 42,
    "答案是42": 42,
    "**42**": 42,
    "\\boxed{42}": 42,
    "42 (H2O, x7, v1)": 42,
    "7, see 1.2.3": Decimal("1.2"),
    "007": 7,
    "Ⅻ ٣ 4 ²": 4,
}


@pytest.mark.parametrize(("text", "number"), FOUND.items(), ids=FOUND)
def test_the_last_number_is_read(text, number):
    assert numeric_match(text, number if isinstance(number, int) else float(number)) == 1.0
    assert numeric_match(text, str(number)) == 1.0
    assert numeric_match(text, 99) == 0.0


@pytest.mark.parametrize("text", ["", "none", "x2", "NaN", "inf", "1e99999999999999999999999"], ids=str)
def test_a_text_without_a_number_matches_none(text):
    assert numeric_match(text, 2) == 0.0


MATCHED = [
    ("42.0", 42, None, 1.0),
    ("42.0000001", 42, None, 0.0),
    ("42.00001", 42.0, None, 1.0),
    ("42.0001", 42.0, None, 0.0),
    ("0.333333", 1 / 3, None, 1.0),
    ("0.3333", 1 / 3, None, 0.0),
    ("0.0000001", 0.0, None, 1.0),
    ("0.0001", 0.0, None, 0.0),
    ("0", 1e-9, None, 0.0),
    ("43", 42, 1, 1.0),
    ("43.01", 42, 1, 0.0),
    ("1.1", 1.0, 0.1, 1.0),
    ("0.3", 0.3, 0, 1.0),
    ("42", 42.0000001, 0, 0.0),
    ("42", "42.0", None, 1.0),
    ("42.00001", "42", None, 0.0),
    ("42.00001", "42.0", None, 1.0),
    ("1234", "1,234", None, 1.0),
    ("1" + "0" * 400, 10**400, None, 1.0),
    ("1" + "0" * 400, 10**400 + 1, None, 0.0),
    ("1e999999999", 5, 1, 0.0),
    ("1e999999999", 5.0, None, 0.0),
    ("1", True, None, 1.0),
]


@pytest.mark.parametrize(("text", "expected", "tolerance", "score"), MATCHED, ids=lambda value: str(value)[:20])
def test_numeric_match(text, expected, tolerance, score):
    assert numeric_match(text, expected, tolerance=tolerance) == score


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_matches_itself(number):
    assert numeric_match(f"It is {number!r}.", number) == 1.0
    assert numeric_match(f"It is {number!r}.", number, tolerance=0) == 1.0


@given(st.integers())
def test_a_whole_number_matches_itself_and_no_neighbour(number):
    assert numeric_match(f"{number:,}", number) == 1.0
    assert numeric_match(f"{number}", number + 1) == 0.0
    assert numeric_match(f"{number}", number + 1, tolerance=1) == 1.0


def test_a_whole_number_of_another_kind_is_whole():
    class Whole:
        def __int__(self) -> int:
            return 42

    numbers.Integral.register(Whole)
    assert numeric_match("42.00001", Whole()) == 0.0
    assert numeric_match("42", Whole()) == 1.0


@pytest.mark.parametrize("expected", ["", "x", "4 2", "NaN", float("nan"), float("inf"), "42 kg"], ids=str)
def test_expected_must_be_a_number(expected):
    with pytest.raises(ValueError, match="expected is not a"):
        numeric_match("42", expected)


@pytest.mark.parametrize("tolerance", [-1, float("nan")], ids=str)
def test_a_tolerance_must_be_one(tolerance):
    with pytest.raises(ValueError, match="tolerance must be"):
        numeric_match("42", 42, tolerance=tolerance)
