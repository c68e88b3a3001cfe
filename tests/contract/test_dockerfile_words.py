import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract.dockerfile_words import WordError, expand, parse_word, split

ENV = {"A": "1", "EMPTY": "", "SPACED": "x y"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("$A", "1"),
        ("${A}b", "1b"),
        ("$Ab", ""),
        ("$A$A/$A", "11/1"),
        ("$NOPE", ""),
        ('"$A b"', "1 b"),
        ("'$A b'", "$A b"),
        (r"\$A", "$A"),
        (r"a\ b", "a b"),
        (r"\\", "\\"),
        (r'"\"\$\\\a"', r'"$\\a'[:-2] + r"\a"),
        ("a\"b\"'c'", "abc"),
        ("$", "$"),
        ("$.", "$."),
        ("$1", ""),
        ("$$", ""),
        ("${A:-d}", "1"),
        ("${NOPE:-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY-d}", ""),
        ("${NOPE-d}", "d"),
        ("${A:+d}", "d"),
        ("${EMPTY:+d}", ""),
        ("${EMPTY+d}", "d"),
        ("${NOPE+d}", ""),
        ("${NOPE:-$A}", "1"),
        ("${NOPE:-${NOPE:-x$A}}", "x1"),
        ("${NOPE:-'}'}", "}"),
        ('${NOPE:-"a b"}', "a b"),
        ('"${NOPE:-a}"', "a"),
        ("$SPACED", "x y"),
    ],
)
def test_a_word_is_expanded_as_docker_build_does(text, value):
    assert expand(parse_word(text), ENV) == value


@pytest.mark.parametrize(
    "text", ["'a", '"a', "${", "${A", "${}", "${A:-b", "${:-x}", '"${A:-"', "${A:-" * 40 + "}" * 40]
)
def test_an_unclosed_or_empty_word_is_an_error(text):
    with pytest.raises(WordError) as caught:
        parse_word(text)
    assert not caught.value.build


@pytest.mark.parametrize("text", ["${A:?x}", "${A#x}", "${A%x}", "${A/x/y}", "${A:1}"])
def test_what_only_buildkit_understands_says_so(text):
    with pytest.raises(WordError) as caught:
        parse_word(text)
    assert caught.value.build


def test_another_escape_character_can_be_chosen():
    assert expand(parse_word("`$A\\b", "`"), ENV) == "$A\\b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b\tc", ["a", "b", "c"]),
        (" A=1  B=2 ", ["A=1", "B=2"]),
        ('A="x y" B=z', ['A="x y"', "B=z"]),
        ("A='x \"y' B", ["A='x \"y'", "B"]),
        (r"A=x\ y B", [r"A=x\ y", "B"]),
        (r'A="x\" y" B', [r'A="x\" y"', "B"]),
        ("''", ["''"]),
        ("", []),
    ],
)
def test_white_space_outside_quotes_parts_words(text, words):
    assert split(text) == words


def test_a_quote_that_is_not_closed_is_an_error():
    with pytest.raises(WordError, match="not closed"):
        split("A='x y")


@given(st.text(st.sampled_from("ab$ {}:-+\"'\\")))
def test_any_text_is_a_word_or_an_error(text):
    try:
        word = parse_word(text)
    except WordError:
        return
    assert isinstance(expand(word, ENV), str)


@given(st.text(st.characters(exclude_characters="'")))
def test_single_quotes_keep_everything(text):
    assert expand(parse_word(f"'{text}'"), ENV) == text


@given(st.text())
def test_an_escaped_text_is_itself(text):
    assert expand(parse_word("".join("\\" + char for char in text)), ENV) == text
