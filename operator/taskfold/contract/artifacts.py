"""What is taken out of the agent's sandbox: the `artifacts` of a task and its steps, and those that a run adds.

Guarantees: `/logs/artifacts` of `main` comes first, unless an entry declares it, whose place and excludes count then.
No artifact is, lies in or takes in a protected folder (C31), as far as its path is known here: one that is relative to
a working directory that the task leaves to its image is for whoever reads it to check, with `protected`. Of two that
would be kept at one place the first wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pydantic

from taskfold.contract import artifact_paths, separate, shape, toml_file
from taskfold.contract.errors import TaskError
from taskfold.contract.tables import ArtifactTable
from taskfold.contract.task import Artifact, Step, Task
from taskfold.contract.task_toml import StepTable, TaskToml, VerifierMode

ALWAYS = "/logs/artifacts"
"""What is taken of every sandbox."""
MAIN = "main"
WORKDIR = "workdir"
"""Where a source of "." is kept unless it says so itself (C41): the path may be the image's to tell."""
RUN, FURTHER = "TaskRun", ("spec", "artifacts")
"""Where a run's own artifacts stand, for messages."""
MOST = 256
"""Of a sandbox: each of them is an archive, an entry of the manifest and a part of a request."""
NONE_DECLARED = f"{toml_file.FILE}: artifacts: none is declared; a separate verifier gets {ALWAYS} only"
"""A warning, of separate verification only."""


class Further(Protocol):
    """An artifact that a run asks for on top of the task's, as spec.artifacts has them."""

    @property
    def source(self) -> str: ...
    @property
    def destination(self) -> str | None: ...
    @property
    def exclude(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class Claims:
    """Which artifacts are kept, in their order, and which are not: each with the earlier one that has its place."""

    kept: tuple[Artifact, ...]
    overlaps: tuple[tuple[Artifact, Artifact], ...]


def claims(artifacts: Sequence[Artifact]) -> Claims:
    """The first-claim rule: an artifact whose destination is, lies in or takes in an earlier one's is not kept."""
    kept: list[Artifact] = []
    overlaps: list[tuple[Artifact, Artifact]] = []
    for each in artifacts:
        winner = next((one for one in kept if artifact_paths.nested(one.destination, each.destination)), None)
        if winner is None:
            kept.append(each)
        else:
            overlaps.append((each, winner))
    return Claims(tuple(kept), tuple(overlaps))


def protected(path: str) -> str | None:
    """The protected folder that this absolute path of a sandbox is, lies in or takes in; None: it may be taken."""
    return artifact_paths.protected(path)


def of_task(config: TaskToml) -> tuple[Artifact, ...]:
    """What is taken of the agent's sandbox; of a multi-step task what is taken after each step."""
    return _all(config, config.artifacts)


def of_step(config: TaskToml, step: StepTable) -> tuple[Artifact, ...]:
    """What is taken after this step: the task's, then its own."""
    return _all(config, (*config.artifacts, *step.artifacts))


def with_further(task: Task, further: Sequence[Further]) -> Task:
    """The task with what a run adds to its artifacts, last, after every step too.

    Raises TaskError for the first that may not be taken, with the rest in `others`.
    """
    if not further:
        return task
    tables = _tables(further)

    def of(step: Step | None) -> tuple[Artifact, ...]:
        own = step.config.artifacts if step is not None else ()
        declared = (*task.config.artifacts, *own, *tables)
        if len(declared) > MOST:
            raise _too_many(len(declared), RUN, shape.dotted(FURTHER))
        return _all(task.config, declared)

    steps = tuple(replace(step, artifacts=of(step)) for step in task.steps)
    turn = replace(task.step, artifacts=of(task.step)) if task.step is not None else None
    said = tuple(warning for warning in task.warnings if warning != NONE_DECLARED)
    return replace(task, artifacts=of(task.step), steps=steps, step=turn, warnings=said)


def warnings(config: TaskToml) -> Iterator[str]:
    """What is to be said where something is verified separately, and nothing is declared for it."""
    separately = (each for each in separate.verifications(config) if each.verifier.mode is VerifierMode.SEPARATE)
    if not all(config.artifacts or each.artifacts for each in separately):
        yield NONE_DECLARED


def refused(config: TaskToml) -> Iterator[TaskError]:
    """What no single entry shows: another service, the working directory, their number."""
    places: list[tuple[shape.Location, tuple[ArtifactTable, ...]]] = [((), config.artifacts)]
    places += [(("steps", index), step.artifacts) for index, step in enumerate(config.steps or ())]
    for location, tables in places:
        for index, table in enumerate(tables):
            yield from _refused(table, (*location, "artifacts", index), config.environment.workdir)
    most = len(config.artifacts) + max((len(step.artifacts) for step in config.steps or ()), default=0)
    if most > MOST:
        yield _too_many(most, toml_file.FILE, "artifacts")


def _refused(table: ArtifactTable, location: shape.Location, workdir: str | None) -> Iterator[TaskError]:
    if table.service not in (None, MAIN):
        yield TaskError(
            "an artifact of another service",
            file=toml_file.FILE,
            field=shape.dotted((*location, "service")),
            value=table.service,
            remedy='write "main", or leave it out',
            unsupported=True,
        )
    if workdir is None or table.source.startswith("/"):
        return
    folder = protected(f"{workdir}/{table.source}")
    if folder is not None or artifact_paths.normalised(f"{workdir}/{table.source}") is None:
        what = f"takes in {folder}, which is not an artifact" if folder is not None else "is too long a path"
        yield TaskError(
            f"{what}, from the working directory {workdir}",
            file=toml_file.FILE,
            field=shape.dotted((*location, "source")),
            value=table.source,
            remedy="Name the folder that you need.",
        )


def _too_many(number: int, file: str, field: str) -> TaskError:
    return TaskError(
        f"has {number} entries with those of the task and its step, more than {MOST}",
        file=file,
        field=field,
        remedy="Name the folder that holds them.",
    )


def _all(config: TaskToml, tables: Sequence[ArtifactTable]) -> tuple[Artifact, ...]:
    found = tuple(_artifact(table, config.environment.workdir) for table in tables)
    if any(each.source == ALWAYS and each.service == MAIN for each in found):
        return found
    return (Artifact(ALWAYS, ALWAYS.lstrip("/")), *found)


def _artifact(table: ArtifactTable, workdir: str | None) -> Artifact:
    declared = artifact_paths.normalised(table.source) or table.source
    own = artifact_paths.normalised(table.destination) if table.destination is not None else None
    kept = own or (WORKDIR if declared == "." else declared.lstrip("/"))
    return Artifact(_source(table, workdir), kept, table.exclude, table.service or MAIN)


def _source(table: ArtifactTable, workdir: str | None) -> str:
    """Normalised; absolute where the task says where a relative one begins."""
    path = table.source if workdir is None or table.source.startswith("/") else f"{workdir}/{table.source}"
    return artifact_paths.normalised(path) or path


def _tables(further: Sequence[Further]) -> tuple[ArtifactTable, ...]:
    found: list[ArtifactTable] = []
    problems: list[TaskError] = []
    for index, each in enumerate(further):
        values = {"source": each.source, "destination": each.destination, "exclude": tuple(each.exclude)}
        try:
            found.append(ArtifactTable.model_validate(values))
        except pydantic.ValidationError as error:
            found_here = toml_file.problems(error, values, model=ArtifactTable, file=RUN)
            problems += [_of_run(problem, index) for problem in found_here]
    if problems:
        first, *others = problems
        first.others = tuple(others)
        raise first
    return tuple(found)


def _of_run(problem: TaskError, index: int) -> TaskError:
    field = shape.dotted((*FURTHER, index)) + (f".{problem.field}" if problem.field else "")
    return TaskError(problem.problem, file=RUN, field=field, value=problem.value, remedy=problem.remedy)
