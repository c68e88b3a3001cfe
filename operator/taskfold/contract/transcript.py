"""The transcript that a verifier finds at /logs/agent/trajectory.json (C24).

Guarantee: always a valid ATIF v1.7 file. The agent's own is taken when it is valid; else one is made of the
instruction and the final response, so that an agent cannot leave the verifier without a transcript.
"""

from __future__ import annotations

import json
from typing import Any

from taskfold.contract import atif

MAX_OWN_BYTES = 8 * 2**20
"""A longer transcript of the agent is not read: parsing it would cost the operator many times its size."""


def transcript(own: bytes | None, instruction: str, response: str | None, agent_name: str, agent_version: str) -> bytes:
    """The file's content.

    `own`: what the agent wrote there, if anything; `response`: its final answer, if any.
    """
    if own is not None and len(own) <= MAX_OWN_BYTES:
        taken = _taken(own)
        if taken is not None:
            return taken
    return _built(instruction, response, agent_name, agent_version)


def _taken(own: bytes) -> bytes | None:
    """The agent's file.

    Byte for byte when it is v1.7, under that name when it is older, None when it is not valid.
    """
    try:
        document = atif.parse(own)
    except atif.InvalidTrajectoryError:
        return None
    if _is_current(document):
        return own
    try:
        return _dump(_relabelled(document))
    except ValueError:  # a number that JSON cannot write, such as 1e999 in `extra`
        return None


def _is_current(trajectory: dict[str, Any]) -> bool:
    inner = trajectory.get("subagent_trajectories") or ()
    return trajectory["schema_version"] == atif.VERSION and all(map(_is_current, inner))


def _relabelled(trajectory: dict[str, Any]) -> dict[str, Any]:
    """Older versions are subsets: only the name changes."""
    changed = trajectory | {"schema_version": atif.VERSION}
    if trajectory.get("subagent_trajectories"):
        changed["subagent_trajectories"] = [_relabelled(t) for t in trajectory["subagent_trajectories"]]
    return changed


def _built(instruction: str, response: str | None, agent_name: str, agent_version: str) -> bytes:
    steps = [{"step_id": 1, "source": "user", "message": instruction}]
    if response is not None:
        steps.append({"step_id": 2, "source": "agent", "message": response})
    return _dump(
        {
            "schema_version": atif.VERSION,
            "agent": {"name": agent_name, "version": agent_version},
            "steps": steps,
            "final_metrics": {"total_steps": len(steps)},
        }
    )


def _dump(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    return (text + "\n").encode("utf-8", "replace")
