"""The transcript that a verifier finds at /logs/agent/trajectory.json (C24).

Guarantee: always a valid ATIF v1.7 file. The agent's own is taken when it is valid; else one is made of the
instruction and the final response, so that an agent cannot leave the verifier without a transcript.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.contract import atif, conversation

MAX_OWN_BYTES = 8 * 2**20
"""A longer transcript of the agent is not read: parsing it would cost the operator many times its size."""


@dataclass(frozen=True)
class Transcript:
    """The file's content. `problem`: why the agent's own file is not it, "" if it is or if there is none."""

    content: bytes
    problem: str = ""


def transcript(
    own: bytes | None, instruction: str, response: Mapping[str, Any] | None, agent_name: str, agent_version: str
) -> Transcript:
    """The transcript of an agent's work.

    `own`: what the agent wrote there, if anything; `response`: its final response, if any.
    """
    try:
        if own is not None:
            return Transcript(taken(own))
        problem = ""
    except atif.InvalidTrajectoryError as error:
        problem = str(error)
    return Transcript(_built(instruction, response, agent_name, agent_version), problem)


def taken(own: bytes) -> bytes:
    """The agent's file, byte for byte when it is v1.7, lifted when it is older.

    Raises atif.InvalidTrajectoryError with the path and the problem of the first field that is wrong.
    """
    if len(own) > MAX_OWN_BYTES:
        raise atif.InvalidTrajectoryError(f"has {len(own)} bytes, more than {MAX_OWN_BYTES}")
    document = atif.parse(own)
    if _is_current(document):
        return own
    try:
        lifted = _dump(_lifted(document))
    except ValueError:  # a number that JSON cannot write, such as 1e999 in `extra`
        raise atif.InvalidTrajectoryError("holds a number that JSON cannot write") from None
    atif.parse(lifted)
    return lifted


def _is_current(trajectory: Mapping[str, Any]) -> bool:
    inner = trajectory.get("subagent_trajectories") or ()
    return trajectory["schema_version"] == atif.VERSION and all(map(_is_current, inner))


def _lifted(trajectory: Mapping[str, Any]) -> dict[str, Any]:
    """Versions 1.0 to 1.6 as 1.7, which adds optional fields and one rule: a reference to another trajectory names
    its trajectory_id or its path. Before, its session_id did that.
    """
    changed = {**trajectory, "schema_version": atif.VERSION, "steps": [_lifted_step(s) for s in trajectory["steps"]]}
    if trajectory.get("subagent_trajectories"):
        changed["subagent_trajectories"] = [_lifted(inner) for inner in trajectory["subagent_trajectories"]]
    return changed


def _lifted_step(step: Mapping[str, Any]) -> dict[str, Any]:
    observation = step.get("observation")
    if not observation:
        return dict(step)
    results = [
        {**result, "subagent_trajectory_ref": [_lifted_reference(r) for r in result["subagent_trajectory_ref"]]}
        if result.get("subagent_trajectory_ref")
        else result
        for result in observation["results"]
    ]
    return {**step, "observation": {**observation, "results": results}}


def _lifted_reference(reference: Mapping[str, Any]) -> dict[str, Any]:
    if reference.get("trajectory_id") is not None or reference.get("trajectory_path") is not None:
        return dict(reference)
    return {**reference, "trajectory_id": reference.get("session_id")}


def _built(instruction: str, response: Mapping[str, Any] | None, agent_name: str, agent_version: str) -> bytes:
    said = conversation.steps(response) if response is not None else []
    steps = [{"source": "user", "message": instruction}, *said]
    return _dump(
        {
            "schema_version": atif.VERSION,
            "agent": {"name": agent_name, "version": agent_version},
            "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
            "final_metrics": {"total_steps": len(steps)},
        }
    )


def _dump(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    return (text + "\n").encode("utf-8", "replace")
