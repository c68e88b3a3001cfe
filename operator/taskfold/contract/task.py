"""A task folder that was read and can be run: what `loader` makes, and everybody else works with.

Guarantee: a `Task` is data; whoever holds one needs its folder only for the bytes that go into sandboxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taskfold.contract import dockerfile
from taskfold.contract.network import PUBLIC, Network
from taskfold.contract.tables import EnvironmentTable
from taskfold.contract.task_toml import StepTable, TaskToml


class Grader(StrEnum):
    """What grades a task, by its path in the folder (seed "Python verifiers"): the first that exists."""

    TEST_SH = "tests/test.sh"
    PYTHON = "tests/verifier.py"
    DATASET = "dataset/verifier.py"
    """The `verifier.py` of the dataset's root, for a single-step task without a tests/ folder."""

    @property
    def python(self) -> bool:
        """Whether it is a module with a `verify`, not a script."""
        return self is not Grader.TEST_SH


class Solution(StrEnum):
    """What the oracle has, by its path in the folder (seed "Reference answers"; C16: the first that exists)."""

    SCRIPT = "solution/solve.sh"
    ANSWER = "solution/answer.md"


@dataclass(frozen=True)
class ImageSource:
    """The image to pull, as written. With `dockerfile`, the image's configuration counts as on record.

    `dockerfile`: what sets, or also runs, something on top of the image; beside a `docker_image` it only sets.
    """

    reference: str
    dockerfile: dockerfile.Instructions | None = None


@dataclass(frozen=True)
class Artifact:
    """What is taken out of the agent's sandbox.

    `source`: normalised; absolute, or relative to the working directory of `main`. `destination`: relative path among
    the kept artifacts. `exclude`: patterns as tar's `--exclude` takes them, for folders.
    """

    source: str
    destination: str
    exclude: tuple[str, ...] = ()
    service: str = "main"


@dataclass(frozen=True)
class Separate:
    """The sandbox of a separate verifier (seed "Shared and separate verification").

    `environment`: whose env, workdir and resources it has. `own`: that is [verifier.environment], not [environment].
    `network`: what it may reach.
    """

    image: ImageSource
    environment: EnvironmentTable
    own: bool
    network: Network = PUBLIC


@dataclass(frozen=True)
class Step:
    """One turn of a multi-step task. The paths are those of the folder.

    `setup`: steps/<name>/workdir/setup.sh exists. `solution`: below steps/<name>/. `config`: with the fallbacks of
    the task's tables applied.
    """

    name: str
    instruction: str
    config: StepTable
    workdir: bool = False
    setup: bool = False
    tests: bool = False
    solution: Solution | None = None
    artifacts: tuple[Artifact, ...] = ()
    """The task's, with the step's own appended."""
    separate: Separate | None = None


@dataclass(frozen=True)
class Task:
    """A task folder that can be run.

    `instruction`: "" in a multi-step task, whose steps have their own. `config`: task.toml with the dataset's
    overrides and multipliers applied. `data`: task_data.json, None without one. `inputs`: sidecar inputs that the
    dataset declares. `steps`: the turns of a multi-step task, in order. `step`: this is not the whole task but one turn
    of it (`steps.turn`). `artifacts`: in order, `/logs/artifacts` first unless it is declared. `separate`: where the
    verifier works, None in shared mode; of a multi-step task that of its steps counts. `network`: what the sandbox may
    reach, in every step the same.
    """

    id: str
    instruction: str
    config: TaskToml
    image: ImageSource
    solution: Solution | None
    warnings: tuple[str, ...]
    grader: Grader = Grader.TEST_SH
    data: Mapping[str, Any] | None = None
    inputs: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    step: Step | None = None
    artifacts: tuple[Artifact, ...] = ()
    separate: Separate | None = None
    network: Network = PUBLIC

    @property
    def has_solution(self) -> bool:
        """Whether the oracle has something to do; in a multi-step task, in some step."""
        return self.solution is not None or any(step.solution is not None for step in self.steps)
