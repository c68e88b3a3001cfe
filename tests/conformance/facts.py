"""What a test.sh finds out, as a reward.json whose keys are its findings; and what a run leaves in the store."""

import json
import tarfile
from collections.abc import Mapping
from typing import Any

from taskfold.conformance.case import facts, soon
from tests.conformance import harness

__all__ = ["broken", "document", "facts", "kept", "soon"]


def broken(status: Mapping[str, Any]) -> list[str] | str:
    """The checks that do not hold; the whole status when there is no verdict of test.sh at all."""
    if status.get("reward") != "1" or "failure" in status:
        return str(status)
    return [name for name, value in status["rewards"].items() if value != 1]


def document(operator: harness.Operator, status: Mapping[str, Any], name: str) -> Any:
    """A JSON document of a complete run in the operator's store."""
    return json.loads((operator.store / status["store"] / name).read_text())


def kept(operator: harness.Operator, status: Mapping[str, Any]) -> dict[str, bytes]:
    """The regular files of what a complete run's one sandbox left: path to content."""
    (archive,) = document(operator, status, "collected.json")["archives"]
    with tarfile.open(operator.store / status["store"] / archive["key"]) as tar:
        members = [member for member in tar if member.isreg()]
        return {member.name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]
