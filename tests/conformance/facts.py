"""What a test.sh finds out, as a reward.json whose keys are its findings; and what a run leaves in the store."""

import json
import tarfile
from collections.abc import Mapping
from typing import Any

from tests.conformance import harness


def facts(**checks: str) -> str:
    """The body of a test.sh that writes each check (a shell command) as 1 or 0 beside a reward of 1."""
    lines = [f"if {{ {check}\n}} >&2; then printf ', \"{name}\": 1'; else printf ', \"{name}\": 0'; fi" for name, check in checks.items()]  # fmt: skip # noqa: E501
    return "{\nprintf '{\"reward\": 1'\n" + "\n".join(lines) + "\nprintf '}'\n} > /logs/verifier/reward.json\n"


def soon(check: str) -> str:
    """A check that holds a moment later: another process does it in its own time. A minute long."""
    return f"for _ in $(seq 600); do {{ {check}\n}} && break; sleep 0.1; done; {check}"


def broken(status: Mapping[str, Any]) -> list[str] | str:
    """The checks that do not hold; the whole status when there is no verdict of test.sh at all."""
    if status.get("reward") != "1" or "failure" in status:
        return str(status)
    return [name for name, value in status["rewards"].items() if value != 1]


def document(operator: harness.Operator, status: Mapping[str, Any], name: str) -> Any:
    """A JSON document of a complete run in the operator's store."""
    return json.loads((operator.store / status["store"] / name).read_text())


def kept(operator: harness.Operator, status: Mapping[str, Any]) -> dict[str, bytes]:
    """The regular files of a complete run's files.tar: path to content."""
    with tarfile.open(operator.store / status["store"] / "files.tar") as tar:
        members = [member for member in tar if member.isreg()]
        return {member.name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]
