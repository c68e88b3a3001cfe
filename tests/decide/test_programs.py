"""decide/programs.py: how a program ended, in words that help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decide import worlds

from taskfold.api import agent as agents
from taskfold.decide import programs

ENDS = {
    "well": (worlds.program("agent"), "agent ended with return code 0"),
    "badly": (worlds.program("agent", 3), "agent ended with return code 3"),
    "badly, with words": (worlds.program("agent", 3, inline=b"\n boom \n\n"), "agent ended with return code 3: boom"),
    "only blanks": (worlds.program("agent", 3, inline=b" \n\n"), "agent ended with return code 3"),
    "by a signal": (worlds.program("test", None, signal=9), "test was ended by signal 9"),
    "at its limit": (worlds.program("test", None, signal=9, timed_out=True), "test was killed at its limit"),
    "at its limit, code 0": (worlds.program("test", 0, timed_out=True), "test was killed at its limit"),
    "not at all": (worlds.program("hook 1", None, start_error="no bash", inline=b"x"), "hook 1: no bash"),
    "not UTF-8": (worlds.program("agent", 1, inline=b"a\xffb"), "agent ended with return code 1: a\ufffdb"),
}


@pytest.mark.parametrize(("run", "words"), ENDS.values(), ids=ENDS)
def test_how_a_program_ended(run, words):
    assert programs.ended_how(run) == words


@given(st.binary(max_size=5000))
def test_the_end_of_the_output_is_quoted_and_no_more(output):
    words = programs.ended_how(worlds.program("agent", 1, inline=output))
    head, _, quoted = words.partition(": ")
    assert head == "agent ended with return code 1"
    assert len(quoted) <= programs.TAIL_CHARACTERS
    assert output.decode("utf-8", "replace").rstrip().endswith(quoted)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_what_the_memory_limit_killed_is_noted(count):
    notes = programs.oom_notes(worlds.program("agent", oom_kills=count))
    assert len(notes) == min(count, 1)
    assert all(f"killed {count} process(es) while agent ran" in note for note in notes)


@pytest.mark.parametrize(
    ("field", "text", "refused"),
    [
        ("run", "x" * 131_071, False),
        ("run", "x" * 131_072, True),
        ("install", "x" * 131_072, True),
        ("run", "ä" * 65_536, True),
        ("run", "ä" * 65_535, False),
    ],
    ids=["the longest", "one more", "the installation", "bytes count", "as many bytes as fit"],
)
def test_a_script_that_the_kernel_does_not_take_is_named_with_its_size(field, text, refused):
    found = programs.oversized(agents.ScriptAgent.model_validate({"run": "true", field: text}))
    assert (found is not None) is refused
    assert found is None or found.startswith(f"spec.agent.script.{field} has 131,072 bytes")


def test_other_agents_have_no_script():
    assert programs.oversized(None) is None
