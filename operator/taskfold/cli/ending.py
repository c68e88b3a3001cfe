"""From a result document to an exit code and to the lines that a person reads. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.cli import exits
from taskfold.cli.progress import clean


@dataclass(frozen=True)
class Ending:
    """How a command ends."""

    document: dict[str, Any]
    code: int


def of(document: dict[str, Any]) -> Ending:
    """The ending that follows from the document alone."""
    match document["outcome"]:
        case "verdict":
            rewarded = document["reward"] is not None and document["reward"] >= 1
            return Ending(document, exits.REWARDED if rewarded else exits.BELOW_ONE)
        case "refused":
            return Ending(document, exits.REFUSED)
        case _:
            return Ending(document, exits.NO_VERDICT)


def reward_line(reward: str, rewards: Mapping[str, float]) -> str:
    """What stdout gets at the verdict."""
    named = ", ".join(f"{clean(name)} {value:g}" for name, value in rewards.items() if name != "reward")
    return f"reward: {reward} ({named})" if named else f"reward: {reward}"


def lines(document: Mapping[str, Any]) -> list[str]:
    """What stderr gets at the end."""
    failure, found, outcome = document["failure"], [], document["outcome"]
    if outcome != "verdict" and failure is not None:
        found.append(f"{outcome}: no reward")
    if failure is not None:
        kind = f" ({failure['kind']})" if failure["kind"] else ""
        found.append(f"{failure['reason']}{kind}: {_lines(document['message'])}")
    found += [_step(step) for step in document.get("steps", ())]
    found += [_before(document)] if document.get("uid") and "run" in document else []
    found += [f"warning: {clean(warning)}" for warning in document["warnings"]]
    if document["store"]:
        subject = f"verifierrun/{document['name']}" if "run" in document else document["name"]
        found.append(f"files: `taskfold results {subject}`; they are {where(document['store'])}")
    return found


def _before(document: Mapping[str, Any]) -> str:
    """Of a run that was graded again: what it had before, and still has."""
    run, reward = document["run"], document["previous_reward"]
    step = f"step {clean(run['step'])} of " if run["step"] else ""
    before = f"{reward:g}" if reward is not None else "none"
    return f"reward of {step}taskrun/{run['name']}, which is not changed: {before}"


def _step(step: Mapping[str, Any]) -> str:
    reward = f"{step['reward']:g}" if step["reward"] is not None else "no reward"
    return f"step {clean(step['name'])}: {reward}" + (f" ({step['reason']})" if step["reason"] else "")


def where(store: str) -> str:
    """The place of a run's files."""
    return f"below {store} in the operator's store"


def _lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.splitlines())
