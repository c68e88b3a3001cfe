"""What is on record of an agent's work when its verification begins: the transcript and the final response.

Guarantees: both come from what the helper read the moment the agent ended, from the task's snapshot or from the store,
so they are found again after any crash. The transcript is always valid ATIF v1.7 (C24); what was not taken of the
agent's own files is said in words, without any part of their contents.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import taskfold
from taskfold.api.taskrun import TaskRun
from taskfold.build import phases as requests
from taskfold.contract import atif, response, transcript
from taskfold.contract.task import Solution, Task
from taskfold.engine import responses, secrecy
from taskfold.engine.parts import Parts
from taskfold.protocol.phase import FileState, PhaseResult

LARGE_BYTES = 64 * 1024
"""More is read in a thread: the operator's loop has much else to do."""

_STATES = {
    FileState.NOT_REGULAR: "is no regular file",
    FileState.TOO_LARGE: "is too large",
    FileState.UNREADABLE: "could not be read",
}


@dataclass(frozen=True)
class Record:
    """`transcript`: the file's content. `response`: in the Responses API's shape; None if the agent gave none."""

    transcript: bytes
    response: dict[str, Any] | None


async def record(parts: Parts, run: TaskRun, task: Task, ended: PhaseResult | None) -> Record:
    """The record of the agent's work on this task, or on this turn of it. `ended`: its phase, if it had one."""
    said = await _response(parts, run, task, ended)
    own = _content(ended, requests.TRAJECTORY)
    size = len(own or b"") + len(task.instruction) + (LARGE_BYTES if said is not None else 0)
    arguments = (own, task.instruction, said, run.spec.agent.name, taskfold.__version__)
    if size > LARGE_BYTES:
        made = await asyncio.to_thread(transcript.transcript, *arguments)
    else:
        made = transcript.transcript(*arguments)
    return Record(made.content, said)


async def _response(parts: Parts, run: TaskRun, task: Task, ended: PhaseResult | None) -> dict[str, Any] | None:
    if run.spec.agent.external is not None:
        return await responses.kept(parts.store, run.status.store)
    if run.spec.agent.oracle is not None and task.solution is Solution.ANSWER:
        admitted = run.status.admitted
        if admitted is None or admitted.task_digest is None:
            raise RuntimeError("an answer of a run that is not admitted")
        async with parts.snapshots.open(run.metadata.namespace, admitted.task_digest) as folder:
            answer = await asyncio.to_thread(folder.read, requests.answer(task), response.MAX_BYTES)
        return response.of_text(answer, model=run.spec.agent.name)
    written = _content(ended, requests.RESPONSE_JSON)
    if written is not None:
        try:
            return response.of_json(written)
        except response.InvalidResponseError:
            pass  # `noted` says so
    text = _content(ended, requests.RESPONSE_TEXT)
    return response.of_text(text, model=run.spec.agent.name) if text is not None else None


def _content(ended: PhaseResult | None, path: str) -> bytes | None:
    file = ended.files.get(path) if ended is not None else None
    return file.content if file is not None and file.state is FileState.REGULAR else None


# -- what is said about it -----------------------------------------------------------------------------------------


async def noted(ended: PhaseResult, secrets: Sequence[bytes]) -> PhaseResult:
    """The end of an agent's phase, with notes about what of the agent's own files cannot be taken."""
    size = sum(len(file.content) for file in ended.files.values())
    problems = await asyncio.to_thread(_problems, ended) if size > LARGE_BYTES else _problems(ended)
    notes = [
        secrecy.scrubbed(f"{path} {problem}; {instead}".encode(), secrets, cut=False).decode("utf-8", "replace")
        for path, (problem, instead) in problems.items()
    ]
    return replace(ended, notes=tuple(notes)) if notes else ended


def _problems(ended: PhaseResult) -> Mapping[str, tuple[str, str]]:
    """Path → what is wrong with it, and what is taken instead."""
    instead = {
        requests.TRAJECTORY: "the transcript was made of the instruction and the final response instead",
        requests.RESPONSE_JSON: f"the response is that of {requests.RESPONSE_TEXT}, if there is one",
        requests.RESPONSE_TEXT: "it is not the agent's response",
    }
    found = {}
    for path, otherwise in instead.items():
        file = ended.files.get(path)
        if file is None or file.state is FileState.MISSING:
            continue
        problem = _STATES.get(file.state) or _problem(path, file.content)
        if problem:
            found[path] = (problem, otherwise)
    return found


def _problem(path: str, content: bytes) -> str:
    try:
        if path == requests.TRAJECTORY:
            transcript.taken(content)
        elif path == requests.RESPONSE_JSON:
            response.of_json(content)
    except atif.InvalidTrajectoryError as error:
        return f"is no valid ATIF v1.7 file: {error}"
    except response.InvalidResponseError as error:
        return f"is no Responses API object: {error}"
    return ""
