"""build/handout.py: what an agent is told, and where."""

import json
from dataclasses import replace

from tests.decide import worlds

from taskfold.build import handout
from taskfold.protocol.phase import Directory, Reset, Unpack


def files(task):
    folder = handout.files(task)
    return {entry.path: folder.read(entry.path) for entry in folder.entries()}


def test_the_instruction_is_handed_out_byte_for_byte():
    text = "\ufeffDo it.\r\n\n  ü🙂 `$(id)` {{x}}\n\n"
    assert files(replace(worlds.task(), instruction=text)) == {"instruction.md": text.encode()}


def test_an_instruction_may_be_as_long_as_it_likes():
    """It goes as an archive: a request has a megabyte."""
    text = "x" * 2**21
    assert len(files(replace(worlds.task(), instruction=text))["instruction.md"]) == 2**21


def test_skills_are_declared_in_task_json():
    found = files(worlds.task('environment.skills_dir = "/opt/skills"'))
    assert json.loads(found["task.json"]) == {"mcp_servers": [], "skills_dir": "/opt/skills"}


def test_the_folder_is_made_anew_whatever_stands_there():
    assert (
        Directory("/tmp", "1777", existing="keep"),
        Reset("/tmp/.nemo-gym"),
        Unpack("/tmp/.nemo-gym"),
    ) == handout.PREPARE


def test_a_variable_names_the_instruction():
    assert handout.VARIABLES == {"TASKFOLD_INSTRUCTION": "/tmp/.nemo-gym/instruction.md"}
