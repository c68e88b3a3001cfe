"""C24: the agent's own ATIF if valid, else built; always a valid v1.7 file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import atif
from taskfold.contract import transcript as transcripts
from taskfold.contract.transcript import transcript


def own(version="ATIF-v1.7", **changes):
    document = {
        "schema_version": version,
        "agent": {"name": "theirs", "version": "9"},
        "steps": [{"step_id": 1, "source": "agent", "message": "done"}],
        **changes,
    }
    return json.dumps(document).encode()


def test_without_an_own_file_it_is_the_instruction_and_the_final_response():
    document = json.loads(transcript(None, "Do it.", "Done.", "oracle", "0.1.0"))
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["agent"] == {"name": "oracle", "version": "0.1.0"}
    assert [(step["source"], step["message"]) for step in document["steps"]] == [
        ("user", "Do it."),
        ("agent", "Done."),
    ]


def test_without_a_response_it_is_the_instruction_alone():
    document = json.loads(transcript(None, "", None, "nop", "1"))
    assert [(step["source"], step["message"]) for step in document["steps"]] == [("user", "")]


def test_an_own_file_of_v1_7_is_taken_byte_for_byte():
    assert transcript(own(), "i", "r", "a", "1") == own()


@pytest.mark.parametrize("minor", range(7))
def test_an_older_own_file_is_taken_as_v1_7(minor):
    document = json.loads(transcript(own(f"ATIF-v1.{minor}"), "i", "r", "a", "1"))
    assert document == json.loads(own())


def test_embedded_trajectories_become_v1_7_too():
    inner = json.loads(own("ATIF-v1.6", trajectory_id="s"))
    document = json.loads(transcript(own(subagent_trajectories=[inner]), "i", "r", "a", "1"))
    assert document["subagent_trajectories"][0]["schema_version"] == "ATIF-v1.7"
    assert document["agent"]["name"] == "theirs"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        own("ATIF-v1.8"),
        own(steps=[]),
        own(planted="field"),
        own("ATIF-v1.6").replace(b'"done"}', b'"done", "extra": {"x": 1e999}}'),
        own(notes="x" * transcripts.MAX_OWN_BYTES),
    ],
    ids=["empty", "no JSON", "newer", "no steps", "unknown field", "a number JSON cannot write", "too large"],
)
def test_an_own_file_that_cannot_be_taken_is_replaced(content):
    document = json.loads(transcript(content, "Do it.", "Done.", "a", "1"))
    assert document["agent"]["name"] == "a"
    assert document["steps"][0]["message"] == "Do it."


@given(st.binary(max_size=100) | st.none(), st.text(), st.text() | st.none(), st.text(), st.text())
def test_it_is_always_a_valid_v1_7_file_and_the_same_each_time(content, instruction, response, name, version):
    written = transcript(content, instruction, response, name, version)
    assert atif.parse(written)["schema_version"] == "ATIF-v1.7"
    assert written == transcript(content, instruction, response, name, version)
