import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import atif


def trajectory(**changes):
    document = {
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "a", "version": "1"},
        "steps": [{"step_id": 1, "source": "user", "message": "hi"}],
    }
    return {**document, **changes}


def parse(document):
    return atif.parse(json.dumps(document).encode())


def step(**fields):
    return {"step_id": 1, "source": "agent", "message": "m", **fields}


CALL = {"tool_call_id": "c", "function_name": "f", "arguments": {"x": [1]}}
FULL = step(
    timestamp="2026-01-02T03:04:05Z",
    model_name="m",
    reasoning_effort="high",
    reasoning_content="r",
    tool_calls=[CALL],
    observation={
        "results": [
            {"source_call_id": "c", "content": [{"type": "text", "text": "t"}]},
            {"content": "free", "subagent_trajectory_ref": [{"trajectory_id": "s"}], "extra": {"a": 1}},
        ]
    },
    metrics={"prompt_tokens": 1, "cost_usd": 0.5, "logprobs": [-1.5], "extra": {}},
    llm_call_count=1,
    is_copied_context=False,
    extra={"any": {"thing": None}},
)


def test_a_trajectory_with_every_field_is_valid():
    document = trajectory(
        session_id="s",
        trajectory_id="t",
        agent={"name": "a", "version": "1", "model_name": "m", "tool_definitions": [{}], "extra": {}},
        steps=[FULL, {"step_id": 2, "source": "system", "message": "s"}],
        notes="n",
        final_metrics={"total_prompt_tokens": 1, "total_cost_usd": 1, "total_steps": 2},
        continued_trajectory_ref="x",
        subagent_trajectories=[trajectory(trajectory_id="s")],
        extra={},
    )
    assert parse(document) == document


@pytest.mark.parametrize("minor", range(8))
def test_versions_1_0_to_1_7_are_read(minor):
    assert parse(trajectory(schema_version=f"ATIF-v1.{minor}"))


BROKEN = {
    "another version": trajectory(schema_version="ATIF-v1.8"),
    "no version": {k: v for k, v in trajectory().items() if k != "schema_version"},
    "no agent": {k: v for k, v in trajectory().items() if k != "agent"},
    "no agent version": trajectory(agent={"name": "a"}),
    "no steps": trajectory(steps=[]),
    "an unknown field": trajectory(other=1),
    "an unknown field of the agent": trajectory(agent={"name": "a", "version": "1", "x": 1}),
    "an unknown field of a step": trajectory(steps=[step(other=1)]),
    "an unknown field of a call": trajectory(steps=[step(tool_calls=[{**CALL, "x": 1}])]),
    "an unknown field of a result": trajectory(steps=[step(observation={"results": [{"x": 1}]})]),
    "an unknown field of metrics": trajectory(steps=[step(metrics={"x": 1})]),
    "steps from 0": trajectory(steps=[step(step_id=0)]),
    "a gap between steps": trajectory(steps=[step(), step(step_id=3)]),
    "a step_id as text": trajectory(steps=[step(step_id="1")]),
    "an unknown source": trajectory(steps=[step(source="tool")]),
    "a message that is a number": trajectory(steps=[step(message=1)]),
    "a message that is null": trajectory(steps=[step(message=None)]),
    "a user with a model": trajectory(steps=[step(source="user", model_name="m")]),
    "a user with reasoning": trajectory(steps=[step(source="user", reasoning_content="r")]),
    "a system with calls": trajectory(steps=[step(source="system", tool_calls=[CALL])]),
    "a user with metrics": trajectory(steps=[step(source="user", metrics={})]),
    "no model call but reasoning": trajectory(steps=[step(llm_call_count=0, reasoning_content="r")]),
    "no model call but metrics": trajectory(steps=[step(llm_call_count=0, metrics={})]),
    "a result for no call": trajectory(steps=[step(observation={"results": [{"source_call_id": "c"}]})]),
    "a result for a call of another step": trajectory(
        steps=[step(tool_calls=[CALL]), step(step_id=2, observation={"results": [{"source_call_id": "c"}]})]
    ),
    "a text part without text": trajectory(steps=[step(message=[{"type": "text"}])]),
    "a text part with a source": trajectory(
        steps=[step(message=[{"type": "text", "text": "t", "source": {"media_type": "image/png", "path": "p"}}])]
    ),
    "an image part without a source": trajectory(steps=[step(message=[{"type": "image"}])]),
    "an image of another kind": trajectory(
        steps=[step(message=[{"type": "image", "source": {"media_type": "image/bmp", "path": "p"}}])]
    ),
    "audio": trajectory(steps=[step(message=[{"type": "audio", "text": "t"}])]),
    "arguments as text": trajectory(steps=[step(tool_calls=[{**CALL, "arguments": "{}"}])]),
    "negative tokens": trajectory(steps=[step(metrics={"prompt_tokens": -1})]),
    "a time that is none": trajectory(steps=[step(timestamp="yesterday")]),
    "a wrong number of steps": trajectory(final_metrics={"total_steps": 2}),
    "an embedded trajectory without an id": trajectory(subagent_trajectories=[trajectory()]),
    "two embedded trajectories of one id": trajectory(
        subagent_trajectories=[trajectory(trajectory_id="s"), trajectory(trajectory_id="s")]
    ),
    "a reference by session alone": trajectory(
        steps=[step(observation={"results": [{"subagent_trajectory_ref": [{"session_id": "s"}]}]})]
    ),
    "an unknown field of a reference": trajectory(
        steps=[step(observation={"results": [{"subagent_trajectory_ref": [{"trajectory_id": "s", "x": 1}]}]})]
    ),
    "an unknown field of the totals": trajectory(final_metrics={"x": 1}),
    "an unknown field of an image": trajectory(
        steps=[step(message=[{"type": "image", "source": {"media_type": "image/png", "path": "p", "x": 1}}])]
    ),
    "tokens that are a fraction": trajectory(steps=[step(metrics={"prompt_tokens": 1.5})]),
    "tokens that are a text": trajectory(steps=[step(metrics={"prompt_tokens": "1"})]),
    "tokens that are a boolean": trajectory(steps=[step(metrics={"prompt_tokens": True})]),
    "negative totals": trajectory(final_metrics={"total_cached_tokens": -1}),
    "an image with a text": trajectory(
        steps=[step(message=[{"type": "image", "text": "t", "source": {"media_type": "image/png", "path": "p"}}])]
    ),
    "a result with a broken part": trajectory(steps=[step(observation={"results": [{"content": [{"type": "x"}]}]})]),
    "a day that is none": trajectory(steps=[step(timestamp="2026-02-30T00:00:00Z")]),
    "a broken embedded trajectory": trajectory(subagent_trajectories=[trajectory(trajectory_id="s", steps=[])]),
    "a list": [],
    "null": None,
}


WHERE = {
    "of the document": (trajectory(planted=1), "planted: Extra inputs are not permitted"),
    "of a step": (trajectory(steps=[step(), step(step_id=2, other=1)]), "steps.1.other: Extra inputs"),
    "of the whole": (trajectory(steps=[step(step_id=2)]), "^the steps are not numbered"),
    "of the version": (trajectory(schema_version="ATIF-v1.8"), "schema_version: Input should be 'ATIF-v1.0'"),
    "of an inner step": (
        trajectory(steps=[step(observation={"results": [{"source_call_id": "c"}]})]),
        "^steps.0: a result answers a call of another step",
    ),
}


@pytest.mark.parametrize(("document", "says"), WHERE.values(), ids=WHERE)
def test_the_error_names_the_first_field_that_is_wrong(document, says):
    with pytest.raises(atif.InvalidTrajectoryError, match=says):
        parse(document)


def test_an_error_is_short_and_printable_and_quotes_no_value():
    document = trajectory(steps=[step(message=["s3cr3t"])], **{"x\n" * 4000: "s3cr3t"})
    with pytest.raises(atif.InvalidTrajectoryError) as raised:
        parse(document)
    assert "s3cr3t" not in str(raised.value)
    assert str(raised.value).isprintable()
    with pytest.raises(atif.InvalidTrajectoryError) as raised:
        parse(trajectory(**{"x\n" * 4000: 1}))
    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("minor", range(7))
def test_a_reference_by_session_is_enough_before_1_7(minor):
    result = {"subagent_trajectory_ref": [{"session_id": "s"}]}
    assert parse(trajectory(schema_version=f"ATIF-v1.{minor}", steps=[step(observation={"results": [result]})]))


@pytest.mark.parametrize("document", BROKEN.values(), ids=BROKEN)
def test_a_broken_trajectory_is_refused(document):
    with pytest.raises(atif.InvalidTrajectoryError):
        parse(document)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": NaN}', b'{"a": ' + b"9" * 5000 + b"}"],
    ids=["empty", "cut", "not UTF-8", "deep", "NaN", "a huge integer"],
)
def test_what_is_not_json_is_refused(content):
    with pytest.raises(atif.InvalidTrajectoryError, match="is not JSON"):
        atif.parse(content)


def test_trajectories_embedded_without_end_are_refused():
    document = trajectory(trajectory_id="x")
    for _ in range(300):
        document = trajectory(trajectory_id="x", subagent_trajectories=[document])
    content = json.dumps(document).encode()
    with pytest.raises(atif.InvalidTrajectoryError):
        atif.parse(content)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_bytes_are_refused_without_a_crash(content):
    with pytest.raises(atif.InvalidTrajectoryError):
        atif.parse(content)
