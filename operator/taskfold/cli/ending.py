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
    failure, found = document["failure"], []
    if document["outcome"] != "verdict":
        found.append(f"{document['outcome']}: no reward")
    if failure is not None:
        kind = f" ({failure['kind']})" if failure["kind"] else ""
        found.append(f"{failure['reason']}{kind}: {_lines(document['message'])}")
    found += [_step(step) for step in document["steps"]]
    found += [f"warning: {clean(warning)}" for warning in document["warnings"]]
    if document["store"]:
        found.append(f"files: `taskfold results {document['name']}`; they are {where(document['store'])}")
    return found


def _step(step: Mapping[str, Any]) -> str:
    reward = f"{step['reward']:g}" if step["reward"] is not None else "no reward"
    return f"step {clean(step['name'])}: {reward}" + (f" ({step['reason']})" if step["reason"] else "")


def where(store: str) -> str:
    """The place of a run's files."""
    return f"below {store} in the operator's store"


def _lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.splitlines())
