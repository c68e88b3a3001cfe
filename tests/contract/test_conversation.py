"""contract/conversation.py: a response as steps of a transcript."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import atif, conversation, transcript


def message(text, role="assistant"):
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}


def call(name, arguments="{}"):
    return {"type": "function_call", "call_id": name, "name": f"f-{name}", "arguments": arguments}


def result(name, output="r"):
    return {"type": "function_call_output", "call_id": name, "output": output}


def thought(text):
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def said(message="", *, calls=(), results=(), reasoning=None):
    step = {"source": "agent", "message": message}
    if reasoning:
        step["reasoning_content"] = reasoning
    if calls:
        step["tool_calls"] = [
            {"tool_call_id": name, "function_name": f"f-{name}", "arguments": arguments} for name, arguments in calls
        ]
    if results:
        step["observation"] = {"results": list(results)}
    return step


def answer(name, content="r"):
    return {"source_call_id": name, "content": content}


CONVERSATIONS = {
    "an answer": ([message("hi")], [said("hi")]),
    "nothing": ([], [said()]),
    "a thought before the answer": ([thought("hm"), message("hi")], [said("hi", reasoning="hm")]),
    "two thoughts": ([thought("a"), thought("b"), message("hi")], [said("hi", reasoning="a\n\nb")]),
    "a thought without an answer": ([thought("hm")], [said(reasoning="hm")]),
    "an empty thought": ([{"type": "reasoning", "summary": []}, message("hi")], [said("hi")]),
    "thoughts in the open": (
        [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}, message("hi")],
        [said("hi", reasoning="x")],
    ),
    "a call, its result, the answer": (
        [call("c", '{"x": 1}'), result("c"), message("hi")],
        [said(calls=[("c", {"x": 1})], results=[answer("c")]), said("hi")],
    ),
    "words with a call": (
        [message("look"), call("c"), result("c")],
        [said("look", calls=[("c", {})], results=[answer("c")])],
    ),
    "two calls of one turn": (
        [call("c"), call("d"), result("d"), result("c"), thought("so"), message("hi")],
        [said(calls=[("c", {}), ("d", {})], results=[answer("d"), answer("c")]), said("hi", reasoning="so")],
    ),
    "a late result goes to its call": (
        [call("c"), result("c"), call("d"), message("wait"), result("c", "again"), result("d")],
        [
            said(calls=[("c", {})], results=[answer("c"), answer("c", "again")]),
            said("wait", calls=[("d", {})], results=[answer("d")]),
        ],
    ),
    "a result for no call stands alone": ([result("x", "lost")], [said(results=[{"content": "lost"}])]),
    "it thinks again after a call": (
        [call("c"), thought("hm"), call("d")],
        [said(calls=[("c", {})]), said(calls=[("d", {})], reasoning="hm")],
    ),
    "two answers": ([message("a"), message("b")], [said("a"), said("b")]),
    "a user in between": (
        [message("a"), message("go on", "user"), message("b")],
        [said("a"), {"source": "user", "message": "go on"}, said("b")],
    ),
    "a developer is the system": (
        [message("be good", "developer"), message("a")],
        [{"source": "system", "message": "be good"}, said("a")],
    ),
    "arguments that are no object": ([call("c", "[1]")], [said(calls=[("c", {"input": "[1]"})])]),
    "arguments that are no JSON": ([call("c", "rm -rf")], [said(calls=[("c", {"input": "rm -rf"})])]),
    "arguments with a number without end": (
        [call("c", '{"x": 1e999}')],
        [said(calls=[("c", {"input": '{"x": 1e999}'})])],
    ),
    "a result in parts": (
        [call("c"), result("c", [{"type": "input_text", "text": "a"}, {"type": "input_image"}])],
        [said(calls=[("c", {})], results=[answer("c", "a")])],
    ),
    "other items are left out": ([{"type": "web_search_call"}, message("hi")], [said("hi")]),
}


@pytest.mark.parametrize(("output", "steps"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_each_turn_of_the_model_is_a_step(output, steps):
    assert conversation.steps({"output": output}) == steps


USAGE = {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}, "total_tokens": 10}
METRICS = {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 2}


def test_the_model_and_the_usage_of_one_turn_are_told():
    (step,) = conversation.steps({"output": [message("hi")], "model": "m", "usage": USAGE})
    assert (step["model_name"], step["metrics"]) == ("m", METRICS)


def test_the_usage_of_several_turns_is_nobodys():
    steps = conversation.steps({"output": [message("a"), message("b")], "model": "m", "usage": USAGE})
    assert [(step["model_name"], "metrics" in step) for step in steps] == [("m", False), ("m", False)]


ODD = [None, [], {}, {"input_tokens": -1}, {"input_tokens": True}, {"output_tokens": 1.5}, {"input_tokens_details": 1}]


@pytest.mark.parametrize("usage", ODD)
def test_a_usage_that_is_none_is_not_told(usage):
    assert "metrics" not in conversation.steps({"output": [message("hi")], "usage": usage})[0]


IDS, TEXT = st.sampled_from("abc"), st.text(max_size=5)
ITEMS = st.one_of(
    st.builds(message, TEXT, st.sampled_from(["assistant", "user", "system", "developer", "critic"])),
    st.builds(call, IDS, st.text() | st.sampled_from(["{}", '{"a": [1]}', "[" * 9999])),
    st.builds(result, IDS, TEXT),
    st.builds(thought, TEXT),
    st.just({"type": "other"}),
)


@given(st.lists(ITEMS, max_size=12))
def test_whatever_was_said_makes_a_valid_transcript_with_every_call_and_result(output):
    document = atif.parse(transcript.transcript(None, "i", {"output": output}, "a", "1").content)
    steps = document["steps"]
    calls = [each["tool_call_id"] for step in steps for each in step.get("tool_calls", ())]
    assert calls == [item["call_id"] for item in output if item["type"] == "function_call"]
    results = [each for step in steps for each in step.get("observation", {"results": ()})["results"]]
    assert len(results) == sum(item["type"] == "function_call_output" for item in output)
    assert json.dumps(document)
