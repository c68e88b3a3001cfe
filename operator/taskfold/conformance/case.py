"""One row of the conformance table, and what it may expect.

Guarantees: a case is data and names no cluster; what it expects is read from the API alone, so that the table means
the same against every cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PYTHON_IMAGE = "python:3.13-slim"
TOML = f'schema_version = "1.4"\n[environment]\ndocker_image = "{PYTHON_IMAGE}"\nworkdir = "/app"\n'

ORACLE: Mapping[str, Any] = {"oracle": {}}
NOP: Mapping[str, Any] = {"nop": {}}


class Need(StrEnum):
    """What not every cluster has. A case that needs it is left out, and said to be, where it is missing."""

    ROOT = "root"
    """Housekeeping as root: not in the restricted profile."""
    TEST_IMAGES = "test images"
    """Images that the project makes for itself, of names below `taskfold-test/`."""
    CGROUP_V1 = "cgroup v1"
    CGROUP_V2 = "cgroup v2"


@dataclass(frozen=True)
class Expect:
    """What the status must say at the end. A field that is None (or empty) is not looked at.

    `reward`: the decimal text, "" for none. `kind`: of the failure, "" for none; "none" where there must be no
    failure at all. `says`, `warns`: texts that the failure's message, or some warning, holds. `rewards`: the named
    rewards, all of them. `status`: further fields of the status by dotted path. `absent`: fields, by dotted path,
    that the status must not have. `facts`: every check of `facts` in test.sh holds, and there is at least one.
    """

    phase: str
    reward: str | None = None
    kind: str | None = None
    reason: str | None = None
    stage: str | None = None
    terminal: bool | None = None
    says: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    rewards: Mapping[str, float] | None = None
    components: tuple[str, ...] | None = None
    outcome: str | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    facts: bool = False


def rewarded(reward: str = "1", **more: Any) -> Expect:
    """A verdict that the verifier gave itself."""
    return Expect("Succeeded", reward, kind="none", **more)


def holds(**more: Any) -> Expect:
    """Every check of `facts` held."""
    return Expect("Succeeded", "1", kind="none", facts=True, **more)


def counted(kind: str, reason: str, **more: Any) -> Expect:
    """A reward of 0 that counts, with the contract's kind."""
    return Expect("Succeeded", "0", kind=kind, reason=reason, stage="verification", **more)


def masked(kind: str, reason: str, **more: Any) -> Expect:
    """A row that is left out of every mean."""
    return Expect("Masked", "", kind=kind, reason=reason, status={"masked": True, **more.pop("status", {})}, **more)


def refused(reason: str, *says: str, **more: Any) -> Expect:
    """No row: the task or the request is wrong, and the same again would fail again."""
    return Expect("Failed", "", reason=reason, terminal=True, says=says, **more)


@dataclass(frozen=True)
class Case:
    """A task folder, how it is run, and what must come of it.

    `id`: unique, a DNS label of at most 40 characters. `proves`: the sentence of the contract, in our words.
    `source`: where it stands, such as "seed: Reward files" or "C8". `files`: path → content; a path that ends with
    "!" is executable. `spec`: the rest of the TaskRun's spec; what it has of `task` is added to the source.
    `objects`: ConfigMaps and Secrets, as manifests without a namespace, that are made before; two cases that name
    the same object mean the same content. `patches`: merge patches of the spec, each sent once the status has the
    phase. `applies`: ConfigMaps and Secrets that are made, or changed, once the status has the phase.
    """

    id: str
    proves: str
    source: str
    files: Mapping[str, str | bytes]
    agent: Mapping[str, Any]
    expect: Expect
    spec: Mapping[str, Any] = field(default_factory=dict)
    objects: tuple[Mapping[str, Any], ...] = ()
    patches: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    applies: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    needs: frozenset[Need] = frozenset()


def task(
    test: str | None = None, *, toml: str = TOML, solve: str | None = None, **files: str | bytes
) -> dict[str, Any]:
    """The files of a task folder. `test` and `solve` are the bodies of the two bash scripts."""
    folder: dict[str, Any] = {"task.toml": toml, "instruction.md": "Do it.\n", **files}
    if test is not None:
        folder["tests/test.sh"] = "#!/bin/bash\n" + test
    if solve is not None:
        folder["solution/solve.sh"] = "#!/bin/bash\n" + solve
    return folder


def script(run: str, **more: Any) -> dict[str, Any]:
    """An agent that is a shell script."""
    return {"script": {"run": run, **more}}


def facts(**checks: str) -> str:
    """The body of a test.sh that writes each check (a shell command) as 1 or 0 beside a reward of 1."""
    lines = [
        f"if {{ {check}\n}} >&2; then printf ', \"{name}\": 1'; else printf ', \"{name}\": 0'; fi"
        for name, check in checks.items()
    ]
    return "{\nprintf '{\"reward\": 1'\n" + "\n".join(lines) + "\nprintf '}'\n} > /logs/verifier/reward.json\n"


def soon(check: str) -> str:
    """A check that holds a moment later: another process does it in its own time. A minute long."""
    return f"for _ in $(seq 600); do {{ {check}\n}} && break; sleep 0.1; done; {check}"
