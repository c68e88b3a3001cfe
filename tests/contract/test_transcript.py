"""C24: the agent's own ATIF if valid, else built; always a valid v1.7 file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import atif, response
from taskfold.contract import transcript as transcripts
from taskfold.contract.transcript import transcript

DONE = response.of_text("Done.")


def own(version="ATIF-v1.7", **changes):
    document = {
        "schema_version": version,
        "agent": {"name": "theirs", "version": "9"},
        "steps": [{"step_id": 1, "source": "agent", "message": "done"}],
        **changes,
    }
    return json.dumps(document).encode()


def read(*args):
    return json.loads(transcript(*args).content)


def test_without_an_own_file_it_is_the_instruction_and_the_final_response():
    document = read(None, "Do it.", DONE, "oracle", "0.1.0")
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["agent"] == {"name": "oracle", "version": "0.1.0"}
    assert [(step["source"], step["message"]) for step in document["steps"]] == [
        ("user", "Do it."),
        ("agent", "Done."),
    ]


def test_without_a_response_it_is_the_instruction_alone():
    found = transcript(None, "", None, "nop", "1")
    assert [(step["source"], step["message"]) for step in json.loads(found.content)["steps"]] == [("user", "")]
    assert found.problem == ""


def test_an_own_file_of_v1_7_is_taken_byte_for_byte():
    assert transcript(own(), "i", DONE, "a", "1") == transcripts.Transcript(own())


@pytest.mark.parametrize("minor", range(7))
def test_an_older_own_file_is_taken_as_v1_7(minor):
    found = transcript(own(f"ATIF-v1.{minor}"), "i", DONE, "a", "1")
    assert json.loads(found.content) == json.loads(own())
    assert found.problem == ""


def test_embedded_trajectories_become_v1_7_too():
    inner = json.loads(own("ATIF-v1.6", trajectory_id="s"))
    document = read(own(subagent_trajectories=[inner]), "i", DONE, "a", "1")
    assert document["subagent_trajectories"][0]["schema_version"] == "ATIF-v1.7"
    assert document["agent"]["name"] == "theirs"


def test_a_reference_of_an_older_file_leads_to_its_session():
    references = [{"session_id": "s"}, {"session_id": "s", "trajectory_path": "p"}]
    results = [{"content": "c"}, {"subagent_trajectory_ref": references}]
    steps = [{"step_id": 1, "source": "agent", "message": "", "observation": {"results": results}}]
    document = read(own("ATIF-v1.5", steps=steps), "i", None, "a", "1")
    assert document["steps"][0]["observation"]["results"] == [
        {"content": "c"},
        {"subagent_trajectory_ref": [{"session_id": "s", "trajectory_id": "s"}, references[1]]},
    ]


REPLACED = {
    "empty": (b"", "is not JSON"),
    "no JSON": (b"no JSON", "is not JSON"),
    "newer": (own("ATIF-v1.8"), "schema_version: Input should be"),
    "no steps": (own(steps=[]), "steps: List should have at least 1 item"),
    "unknown field": (own(planted="field"), "planted: Extra inputs are not permitted"),
    "a number JSON cannot write": (
        own("ATIF-v1.6").replace(b'"done"}', b'"done", "extra": {"x": 1e999}}'),
        "holds a number that JSON cannot write",
    ),
    "an older reference that leads nowhere": (
        own(
            "ATIF-v1.6",
            steps=[
                {
                    "step_id": 1,
                    "source": "agent",
                    "message": "",
                    "observation": {"results": [{"subagent_trajectory_ref": [{}]}]},
                }
            ],
        ),
        "steps.0 refers to a trajectory without",
    ),
    "too large": (own(notes="x" * transcripts.MAX_OWN_BYTES), "bytes, more than"),
}


@pytest.mark.parametrize(("content", "says"), REPLACED.values(), ids=REPLACED)
def test_an_own_file_that_cannot_be_taken_is_replaced_and_it_is_said_why(content, says):
    found = transcript(content, "Do it.", DONE, "a", "1")
    document = json.loads(found.content)
    assert document["agent"]["name"] == "a"
    assert document["steps"][0]["message"] == "Do it."
    assert says in found.problem


RESPONSES = st.none() | st.text().map(response.of_text)


@given(st.binary(max_size=100) | st.none(), st.text(), RESPONSES, st.text(), st.text())
def test_it_is_always_a_valid_v1_7_file_and_the_same_each_time(content, instruction, said, name, version):
    written = transcript(content, instruction, said, name, version)
    assert atif.parse(written.content)["schema_version"] == "ATIF-v1.7"
    assert written == transcript(content, instruction, said, name, version)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def almost(draw):
    """A valid file in which one value, somewhere, is anything."""
    document = json.loads(own(draw(st.sampled_from(atif.VERSIONS)), notes="n", extra={"k": [1]}))
    document["steps"].append({"step_id": 2, "source": "user", "message": [{"type": "text", "text": "t"}]})
    at = document
    while True:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or not at[key] or draw(st.booleans()):
            break
        at = at[key]
    at[key] = draw(ANY)
    return json.dumps(document).encode()


@given(almost())
def test_whatever_stands_in_one_place_of_the_own_file_the_result_is_valid(content):
    assert atif.parse(transcript(content, "i", DONE, "a", "1").content)["schema_version"] == "ATIF-v1.7"
