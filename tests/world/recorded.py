"""Scenarios of what an agent is told and leaves: instruction, response, transcript, reference answer.

Guarantees: a reward of 1 means that test.sh found, and the agent was told, exactly this, however often an operator died
on the way.
"""

import json
from dataclasses import dataclass

from tests.world.programs import REWARD, Program, Script
from tests.world.scenarios import GRADED, kill_operators, later, on, one, runs
from tests.world.world import SCRIPT

TRAJECTORY, RESPONSE = "/logs/agent/trajectory.json", "/logs/agent/response.txt"
INSTRUCTION = "/tmp/.nemo-gym/instruction.md"


@dataclass(frozen=True)
class Finds:
    """A test.sh that gives 1 if the transcript's steps say exactly this, and 0 if not."""

    messages: tuple[str, ...]

    async def __call__(self, program: Program) -> int:
        await program.sleep(1.0)
        steps = json.loads(program.files.read(TRAJECTORY))["steps"]
        found = tuple(step["message"] for step in steps) == self.messages
        program.files.write(REWARD, b"1\n" if found else b"0\n")
        return 0


@dataclass(frozen=True)
class Reads:
    """An agent that repeats its instruction as its response."""

    seconds: float = 5.0

    async def __call__(self, program: Program) -> int:
        await program.sleep(self.seconds)
        assert program.env["TASKFOLD_INSTRUCTION"] == INSTRUCTION
        program.files.write(RESPONSE, program.files.read(INSTRUCTION))
        return 0


OWN = {
    "schema_version": "ATIF-v1.6",
    "agent": {"name": "own", "version": "1"},
    "steps": [{"step_id": 1, "source": "agent", "message": "worked"}],
}

CALM = [
    one(
        "an agent repeats its instruction",
        GRADED,
        agent={"script": {"install": "get it", "run": "work"}},
        programs={"agent": Reads(), "test": Finds(("Do it.\n", "Do it.\n"))},
    ),
    one(
        "an agent leaves a trajectory of its own",
        GRADED,
        happens=later(runs("agent"), 100.0, kill_operators),
        agent=SCRIPT,
        programs={
            "agent": Script(seconds=300.0, files={TRAJECTORY: json.dumps(OWN).encode()}),
            "test": Finds(("worked",)),
        },
    ),
    one(
        "an agent leaves a trajectory that is none",
        GRADED,
        happens=on(runs("test"), kill_operators),
        agent=SCRIPT,
        programs={"agent": Script(files={TRAJECTORY: b"{", RESPONSE: b"42"}), "test": Finds(("Do it.\n", "42"))},
    ),
    one(
        "the oracle has an answer",
        GRADED,
        files={"solution/solve.sh": None, "solution/answer.md": "forty-two\n"},
        programs={"test": Finds(("Do it.\n", "forty-two\n"))},
    ),
]
