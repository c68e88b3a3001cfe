"""contract/response.py: what counts as a response, what its final text is, and that no bytes break it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import response
from taskfold.contract.response import InvalidResponseError, final_text, of_json, of_text, parse


def message(*texts, role="assistant"):
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text} for text in texts]}


def made(*items, **fields):
    return {"object": "response", "output": list(items), **fields}


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "r"}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}


# -- what is taken -------------------------------------------------------------------------------------------------

TAKEN = {
    "a message": made(message("hi")),
    "items of every kind": made(THOUGHT, CALL, RESULT, message("a", "b")),
    "an item of a kind that is not known": made({"type": "web_search_call", "what": [1, {"ever": None}]}),
    "nothing said": made(),
    "without its object": {"output": [message("hi")]},
    "other fields": made(message("hi"), id="r", usage={"total_tokens": 3}, model="m"),
    "a refusal": made({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
    "content as text": made({"type": "message", "role": "assistant", "content": "hi"}),
    "reasoning that is encrypted": made({"type": "reasoning", "summary": [], "encrypted_content": "x"}),
    "a result in parts": made(CALL, RESULT | {"output": [{"type": "input_text", "text": "r"}]}),
}


@pytest.mark.parametrize("document", TAKEN.values(), ids=TAKEN)
def test_a_response_object_is_taken_as_it_is(document):
    text = json.dumps(document)
    assert of_json(text) == parse(text) == parse(text.encode()) == document


TEXTS = {
    "words": "The answer is 42.",
    "nothing": "",
    "a number": "42",
    "a JSON list": "[1, 2]",
    "an object without output": '{"answer": 42}',
    "an object whose output is something else": '{"output": 42}',
    "an object whose output is a list of numbers": '{"output": [4, 2]}',
    "NaN": '{"object": "response", "output": NaN}',
    "a number without end": '{"output": [{"type": "message", "x": 1e999}]}',
    "half an object": '{"object": "response", "output": [',
    "very deep": "[" * 100_000,
    "deeper than allowed": '{"object": "response", "output": ' + "[" * 70 + "]" * 70 + "}",
    "a lone surrogate": '"\ud800"',
    "a NUL": "a\0b",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_everything_else_is_the_text_of_an_answer(text):
    found = parse(text)
    assert final_text(found) == text.encode("utf-8", "replace").decode()
    assert found["object"] == "response"
    assert found["status"] == "completed"


def test_bytes_that_are_not_utf_8_are_replaced():
    assert final_text(parse(b"a\xffb")) == "a\ufffdb"


def test_a_text_makes_a_response_that_is_one_itself_and_the_same_each_time():
    found = of_text("42", model="oracle")
    assert of_json(json.dumps(found)) == found == of_text(b"42", model="oracle")
    assert found["id"] != of_text("43")["id"]
    assert found["model"] == "oracle"
    wanted = {"id", "object", "created_at", "status", "model", "output", "parallel_tool_calls", "tool_choice", "tools"}
    assert set(found) == wanted


BROKEN = {
    "output that is no list": (made() | {"output": {}}, "output: is not a list"),
    "no output": ({"object": "response"}, "output: is not a list"),
    "another object": ({"object": "list", "output": []}, 'object: is not "response"'),
    "an item without a type": (made({"role": "assistant"}), "output.0.type"),
    "an item that is no object": (made(message("a"), "b"), "output.1.type"),
    "a type that is no text": (made({"type": 1}), "output.0.type"),
    "a message without a role": (made({"type": "message", "content": []}), "output.0.role"),
    "a message without content": (made({"type": "message", "role": "assistant"}), "output.0.content"),
    "a part without a type": (made(message("a") | {"content": [{}]}), "output.0.content.0.type"),
    "a part without its text": (made(message("a") | {"content": [{"type": "output_text"}]}), "output.0.content.0.text"),
    "arguments as an object": (made(CALL | {"arguments": {}}), "output.0.arguments"),
    "a call without a name": (made({"type": "function_call", "call_id": "c", "arguments": ""}), "output.0.name"),
    "a result without a call": (made({"type": "function_call_output", "output": ""}), "output.0.call_id"),
    "a result without output": (made({"type": "function_call_output", "call_id": "c"}), "output.0.output"),
    "reasoning that is text": (made({"type": "reasoning", "summary": "hm"}), "output.0.summary"),
    "reasoning without text": (made({"type": "reasoning", "content": [{"type": "reasoning_text"}]}), "content.0.text"),
}


@pytest.mark.parametrize(("document", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_response_object_is_refused_naming_the_field(document, says):
    with pytest.raises(InvalidResponseError, match=says):
        of_json(json.dumps(document))


@pytest.mark.parametrize("content", [b"", b"text", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"output": NaN}'])
def test_what_is_no_object_is_refused_where_an_object_is_wanted(content):
    with pytest.raises(InvalidResponseError):
        of_json(content)


def test_what_looks_like_a_response_and_is_none_is_refused_by_parse_too():
    with pytest.raises(InvalidResponseError, match=r"output\.0\.role"):
        parse(json.dumps(made({"type": "message", "content": []})))


@pytest.mark.parametrize("read", [parse, of_text, of_json])
@pytest.mark.parametrize("content", [b"x" * (response.MAX_BYTES + 1), "ü" * (response.MAX_BYTES // 2 + 1)])
def test_what_is_too_large_is_refused(read, content):
    with pytest.raises(InvalidResponseError, match="more than"):
        read(content)


def test_the_largest_text_is_taken():
    assert len(final_text(parse(b"x" * response.MAX_BYTES))) == response.MAX_BYTES


def test_an_error_quotes_nothing_of_the_content():
    with pytest.raises(InvalidResponseError) as raised:
        of_json('{"object": "s3cr3t-value", "output": []}')
    assert "s3cr3t" not in str(raised.value)


# -- the final text ------------------------------------------------------------------------------------------------

SAID = {
    "parts are joined": (made(message("a", "b")), "ab"),
    "the last message counts": (made(message("first"), CALL, RESULT, message("last")), "last"),
    "what follows is no message": (made(message("said"), THOUGHT), "said"),
    "the user's is not the answer": (made(message("said"), message("thanks", role="user")), "said"),
    "no message": (made(CALL), ""),
    "a refusal": (TAKEN["a refusal"], ""),
    "content as text": (TAKEN["content as text"], "hi"),
    "no output": ({}, ""),
    "no response": (None, ""),
    "output that is no list": ({"output": "x"}, ""),
    "items that are none": ({"output": [1, None, [], {}]}, ""),
    "a text that is none": ({"output": [message(1, "b")]}, "b"),
}


@pytest.mark.parametrize(("document", "text"), SAID.values(), ids=SAID)
def test_the_final_text_is_the_last_assistant_messages(document, text):
    assert final_text(document) == text


# -- any bytes -----------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["message", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["object", "output", "type", "role", "content", "text"]), inner)
    ),
    max_leaves=20,
)


@given(st.binary(max_size=300) | st.text(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_is_handed_in_a_response_comes_out_or_the_one_error(content):
    for read in (parse, of_json, of_text):
        try:
            found = read(content)
        except InvalidResponseError:
            continue
        assert of_json(json.dumps(found, allow_nan=False)) == found
        assert isinstance(final_text(found), str)


@given(JSON)
def test_the_final_text_of_anything_is_a_text(value):
    assert isinstance(final_text(value if isinstance(value, dict) else {"output": value}), str)
