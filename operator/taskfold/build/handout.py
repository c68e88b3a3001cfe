"""What an agent finds in its sandbox beside the task's image: the instruction, and what the task says about tools.

Guarantees: the files are root's and readable by everybody; whatever stood in their place gives way (C19). The
instruction is the one of the turn, byte for byte, without its canary lines.
"""

import json
from collections.abc import Mapping

from taskfold.contract import folder as folders
from taskfold.contract.task import Task
from taskfold.protocol.phase import Directory, PrepareOp, Reset, Unpack

FOLDER = "/tmp/.nemo-gym"  # noqa: S108 - the contract's own path; whatever stands there is replaced
INSTRUCTION_NAME = "instruction.md"
TASK_NAME = "task.json"
INSTRUCTION = f"{FOLDER}/{INSTRUCTION_NAME}"
INSTRUCTION_VARIABLE = "TASKFOLD_INSTRUCTION"

PREPARE: tuple[PrepareOp, ...] = (
    Directory("/tmp", "1777", existing="keep"),  # noqa: S108 - in images that have none
    Reset(FOLDER),
    Unpack(FOLDER),
)
"""Puts `files` in place: one archive of payload."""

VARIABLES: Mapping[str, str] = {INSTRUCTION_VARIABLE: INSTRUCTION}
"""Of the agent's commands; variables of the task and of the run win."""


def files(task: Task) -> folders.Folder:
    """What `PREPARE` unpacks. task.json is there only if the task declares something that belongs into it."""
    content = {INSTRUCTION_NAME: (task.instruction.encode(), False)}
    declared = _declared(task)
    if declared:
        text = json.dumps(declared, ensure_ascii=False, indent=2) + "\n"
        content[TASK_NAME] = (text.encode(), False)
    return folders.MemoryFolder(content)


def _declared(task: Task) -> dict[str, object]:
    skills = task.config.environment.skills_dir
    return {"mcp_servers": [], "skills_dir": skills} if skills is not None else {}
