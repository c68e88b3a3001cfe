"""engine/transcripts.py: what is on record of an agent's work, for each kind of agent, and what is said about it."""

import json
from dataclasses import replace

import pytest
from tests.decide import worlds
from tests.engine.parts import FILES, Operator

from taskfold.contract import atif, response
from taskfold.contract import folder as folders
from taskfold.contract.task import Solution
from taskfold.engine import transcripts
from taskfold.protocol.phase import FileState

SCRIPT = {"script": {"run": "x"}}
TRAJECTORY, JSON, TEXT = (f"/logs/agent/{name}" for name in ("trajectory.json", "response.json", "response.txt"))
OWN = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "theirs", "version": "1"},
    "steps": [{"step_id": 1, "source": "agent", "message": "worked"}],
}
RESPONSE = {"object": "response", "output": [], "id": "r"}
DIGEST = "sha256:" + "d" * 64


def ended(**files):
    paths = {"trajectory": TRAJECTORY, "json": JSON, "text": TEXT}
    read = {
        paths[name]: json.dumps(found).encode() if isinstance(found, dict) else found for name, found in files.items()
    }
    return worlds.result(worlds.AGENT, worlds.program("agent"), files=read)


@pytest.fixture
def operator(tmp_path):
    return Operator(tmp_path)


async def record(operator, *, agent=SCRIPT, task=worlds.TASK, end=None):
    run = worlds.run(worlds.running(), agent=agent)
    found = await transcripts.record(operator.parts, run, task, end)
    steps = atif.parse(found.transcript)["steps"]
    return found, [(step["source"], step["message"]) for step in steps]


TOLD = ("user", worlds.TASK.instruction)


async def test_of_an_agent_without_a_phase_the_instruction_is_all(operator):
    found, steps = await record(operator, agent=worlds.NOP)
    assert (found.response, steps) == (None, [TOLD])


async def test_a_script_may_leave_a_trajectory_and_a_response(operator):
    found, steps = await record(operator, end=ended(trajectory=OWN, json=RESPONSE, text=b"ignored"))
    assert (found.response, steps) == (RESPONSE, [("agent", "worked")])
    assert json.loads(found.transcript) == OWN


async def test_a_text_is_a_response_too_and_stands_in_the_transcript(operator):
    found, steps = await record(operator, end=ended(text=b"42\n"))
    assert (found.response, steps) == (response.of_text("42\n", model="script"), [TOLD, ("agent", "42\n")])


NONE = {
    "nothing": {},
    "missing": {"trajectory": FileState.MISSING, "json": FileState.MISSING, "text": FileState.MISSING},
    "links": {"trajectory": FileState.NOT_REGULAR, "json": FileState.NOT_REGULAR, "text": FileState.NOT_REGULAR},
    "broken": {"trajectory": b"{", "json": b"[]"},
}


@pytest.mark.parametrize("files", NONE.values(), ids=NONE)
async def test_without_a_file_that_can_be_taken_there_is_no_response(operator, files):
    found, steps = await record(operator, end=ended(**files))
    assert (found.response, steps) == (None, [TOLD])


async def test_a_broken_object_gives_way_to_the_text(operator):
    found, _ = await record(operator, end=ended(json={"object": "response"}, text=b"42"))
    assert response.final_text(found.response) == "42"


async def test_the_oracles_answer_is_read_from_the_snapshot(operator):
    """After a restart too: the snapshot is in the store."""
    files = {**FILES, "solution/answer.md": b"forty \xff two\n"}
    folder = folders.MemoryFolder({p: (c if isinstance(c, bytes) else c.encode(), False) for p, c in files.items()})
    run = worlds.run(worlds.running(), agent=worlds.ORACLE)
    digest = run.status.admitted.task_digest
    task = replace(worlds.TASK, solution=Solution.ANSWER)
    operator.parts.snapshots.remember(digest, folder, task)
    found = await transcripts.record(operator.parts, run, task, ended())
    assert response.final_text(found.response) == "forty \ufffd two\n"
    assert found.response["model"] == "oracle"
    assert json.loads(found.transcript)["steps"][1]["message"] == "forty \ufffd two\n"


async def test_an_external_agents_response_is_read_from_the_store(operator):
    run = worlds.run(worlds.running().model_copy(update={"store": "p/"}), agent={"external": {}})
    assert (await transcripts.record(operator.parts, run, worlds.TASK, None)).response is None
    await operator.store.put_new("p/response.json", json.dumps(RESPONSE).encode())
    found = await transcripts.record(operator.parts, run, worlds.TASK, None)
    assert found.response == RESPONSE


async def test_a_large_record_is_the_same(operator):
    """It is made in a thread."""
    task = replace(worlds.TASK, instruction="x" * 2 * transcripts.LARGE_BYTES)
    _, steps = await record(operator, task=task)
    assert steps == [("user", task.instruction)]


# -- what is said --------------------------------------------------------------------------------------------------

FINE = {
    "nothing": {},
    "all": {"trajectory": OWN, "json": RESPONSE, "text": b"\xff"},
    "missing": NONE["missing"],
}


@pytest.mark.parametrize("files", FINE.values(), ids=FINE)
async def test_nothing_is_said_about_files_that_are_taken(files):
    end = ended(**files)
    assert await transcripts.noted(end, ()) is end


SAID = {
    "no ATIF": ({"trajectory": OWN | {"x": 1}}, f"{TRAJECTORY} is no valid ATIF v1.7 file: x: Extra inputs"),
    "a link": ({"trajectory": FileState.NOT_REGULAR}, f"{TRAJECTORY} is no regular file; the transcript was made of"),
    "too large": ({"text": FileState.TOO_LARGE}, f"{TEXT} is too large; it is not the agent's response"),
    "unreadable": ({"json": FileState.UNREADABLE}, f"{JSON} could not be read; the response is that of {TEXT}"),
    "no response": ({"json": {"output": 1}}, f"{JSON} is no Responses API object: output: is not a list"),
    "large": ({"trajectory": b"[" * 2 * transcripts.LARGE_BYTES}, f"{TRAJECTORY} is no valid ATIF v1.7 file"),
}


@pytest.mark.parametrize(("files", "says"), SAID.values(), ids=SAID)
async def test_what_is_not_taken_is_told(files, says):
    (note,) = (await transcripts.noted(ended(**files), ())).notes
    assert says in note


async def test_a_note_holds_no_secret():
    """The name of a field is the agent's to choose."""
    found = await transcripts.noted(ended(trajectory=OWN | {"s3cr3t-token": 1}), (b"s3cr3t-token",))
    assert "[secret]" in found.notes[0]
    assert "s3cr3t" not in found.notes[0]
