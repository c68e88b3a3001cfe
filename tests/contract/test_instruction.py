import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract.instruction import without_canary


@pytest.mark.parametrize(
    "canary",
    [
        "<!-- canary GUID 1234 -->",
        "<!-- CANARY -->",
        "# benchmark Canary string",
        "#canary",
        "  <!-- a canary -->  ",
        "<!-- canary -->\r",
        "\ufeff# canary",
    ],
    ids=ascii,
)
def test_a_leading_canary_line_and_the_blank_lines_after_it_are_dropped(canary):
    assert without_canary(f"{canary}\n\n \nDo it.\n\nWell.\n") == "Do it.\n\nWell.\n"


def test_several_canary_lines_are_dropped():
    assert without_canary("<!-- canary 1 -->\n# canary 2\nDo it.") == "Do it."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n  Do it.\n",
        "# Title\n\nabout a canary\n",
        "canary\n",
        "\n<!-- canary -->\nDo it.",
        "Do it.\n<!-- canary -->\n",
        "<!-- canary --> Do it.\n",
        "\ufeffDo it.\r\n",
    ],
    ids=ascii,
)
def test_a_text_without_a_leading_canary_is_passed_byte_for_byte(text):
    assert without_canary(text) == text


def test_a_canary_after_a_blank_line_stays():
    assert without_canary("# canary\n\n# canary\nDo it.") == "# canary\nDo it."


def test_a_text_of_canaries_alone_is_empty():
    assert without_canary("# canary\n\n") == ""


@given(st.text())
def test_the_rest_is_always_an_end_of_the_text(text):
    assert text.endswith(without_canary(text))
