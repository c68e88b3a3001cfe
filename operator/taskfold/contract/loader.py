"""Loading a task folder: everything that can be known to be wrong before a pod exists is said here.

Guarantees: `load` gives a `Task` that this release can run, or raises TaskError: what is broken or refused
before what is not supported yet. What is ignored is a warning on the task. Nothing outside the folder is
looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from taskfold.contract import (
    artifacts,
    dataset,
    dialect,
    digest,
    dockerfile,
    effective,
    folder,
    layout,
    overrides,
    refusals,
    restrictions,
    separate,
    shape,
    task_data,
    toml_file,
)
from taskfold.contract.errors import TaskError, show
from taskfold.contract.task import Grader, ImageSource, Step, Task
from taskfold.contract.task_toml import TaskToml, VerifierMode

T = TypeVar("T")


@dataclass(frozen=True)
class Terms:
    """What a run itself says about how its folder is to be read.

    `mode`: where test.sh runs, which wins over the task and is decided before anything is refused; None: as the task
    says. `rules`: of its dialect. `separate_artifacts`: the operator's option, which wins over both: what declares
    artifacts is verified separately.
    """

    mode: VerifierMode | None = None
    rules: dialect.Rules = dialect.GYM
    separate_artifacts: bool = False


GYM = Terms()


@dataclass(frozen=True)
class Findings:
    """All that is to be said about a folder; `task` is None when there are problems."""

    task: Task | None
    problems: tuple[TaskError, ...]
    warnings: tuple[str, ...]


def load(source: folder.Folder, *, task_id: str, name: str = "", terms: Terms = GYM) -> Task:
    """The task in `source`, an effective folder.

    `task_id`: how results name it; `name`: how its dataset does, unset the same. Raises the first problem, with the
    rest in `others`.
    """
    findings = check(source, task_id=task_id, name=name, terms=terms)
    if findings.task is None:
        first, *others = findings.problems
        first.others = tuple(others)
        raise first
    return findings.task


def check(source: folder.Folder, *, task_id: str, name: str = "", terms: Terms = GYM) -> Findings:
    """Every problem and every warning of the folder, in the order in which they should be read."""
    problems: list[TaskError] = []
    warnings: list[str] = []

    def attempt(step: Callable[[], T]) -> T | None:
        try:
            return step()
        except TaskError as error:
            problems.extend((error, *error.others))
            return None

    paths = attempt(lambda: _paths(source))
    if paths is None:
        return Findings(None, tuple(problems), ())
    document = attempt(lambda: _document(source, paths))
    settings = attempt(lambda: effective.settings(source, paths)) or dataset.Settings()
    config = attempt(lambda: _config(document, settings, terms)) if document is not None else None
    several = bool(config.steps) if config is not None else any(path.startswith("steps/") for path in paths)
    text = "" if several else attempt(lambda: layout.instruction(source, paths))
    grader = Grader.TEST_SH if several else attempt(lambda: layout.grader(paths, terms.rules))
    image = attempt(lambda: _image(config, source, paths, warnings)) if config is not None else None
    steps = attempt(lambda: layout.steps(config, source, paths, terms.rules)) if config is not None else None
    found = [attempt(each) for each in _verifications(config, image, source, paths)] if config is not None else []
    places = [each for each in found if each is not None]
    data = attempt(lambda: _data(source, paths)) or task_data.NONE
    if document is not None and config is not None:
        problems.extend(_refused(config, document, settings, name or task_id, terms.rules))
    problems.extend(layout.refused(paths))
    ignored = document.warnings if document is not None else ()
    warnings = [*ignored, *warnings, *data.warnings, *layout.unused(paths, config)]
    warnings += dict.fromkeys(warning for place in places for warning in place.warnings)
    warnings += (*artifacts.warnings(config), *restrictions.warnings(config)) if config is not None else ()
    problems.sort(key=lambda problem: problem.unsupported)
    if problems or config is None or image is None or text is None or grader is None or steps is None:
        return Findings(None, tuple(problems), tuple(warnings))
    task = Task(
        id=task_id,
        instruction=text,
        config=config,
        image=image,
        solution=layout.solution(paths, rules=terms.rules) if not several else None,
        warnings=tuple(warnings),
        grader=grader,
        data=data.fields,
        inputs=settings.inputs,
        steps=tuple(map(functools.partial(_complete, config), steps, places)),
        artifacts=artifacts.of_task(config),
        separate=places[0].separate if not steps else None,
        network=restrictions.of_agent(config),
    )
    return Findings(task, (), task.warnings)


def _paths(source: folder.Folder) -> Sequence[str]:
    """The files that the contract uses, within the limits of a task's size."""
    entries = digest.used(source).entries()
    if len(entries) > folder.MAX_FILES:
        raise folder.too_many_files()
    size = sum(entry.size for entry in entries)
    if size > folder.MAX_BYTES:
        raise TaskError(
            f"holds {size:,} bytes, more than {folder.MAX_BYTES:,}",
            file="task folder",
            remedy="Put bulk data into the image.",
        )
    return [entry.path for entry in entries]


def _document(source: folder.Folder, paths: Sequence[str]) -> toml_file.Document:
    if toml_file.FILE not in paths:
        raise TaskError(
            "is missing", file=toml_file.FILE, remedy="Write one; a folder without it is not a task folder."
        )
    return toml_file.read(source.read(toml_file.FILE, toml_file.MAX_BYTES))


def _data(source: folder.Folder, paths: Sequence[str]) -> task_data.Document:
    if task_data.FILE not in paths:
        return task_data.NONE
    return task_data.read(source.read(task_data.FILE, task_data.MAX_BYTES))


def _config(document: toml_file.Document, settings: dataset.Settings, terms: Terms) -> TaskToml:
    config = overrides.apply(document.config, settings)
    return overrides.in_mode(config, terms.mode, separate_artifacts=terms.separate_artifacts)


def _refused(
    config: TaskToml, document: toml_file.Document, settings: dataset.Settings, name: str, rules: dialect.Rules
) -> Iterator[TaskError]:
    found = (
        *refusals.of_contract(config, document.written, rules),
        *artifacts.refused(config),
        *refusals.not_yet(config),
    )
    yield from (_placed(problem, settings, name) for problem in found)
    yield from refusals.of_inputs(config, settings.inputs, name)


def _verifications(
    config: TaskToml, image: ImageSource | None, source: folder.Folder, paths: Sequence[str]
) -> Iterator[Callable[[], separate.Found]]:
    """Looks at each of the task's verifications: at that of every step, or at its only one."""
    if not config.steps:
        yield lambda: separate.of_task(config, image, source, paths)
    for index in range(len(config.steps or ())):
        yield functools.partial(separate.of_step, config, index, image, source, paths)


def _complete(config: TaskToml, step: Step, place: separate.Found) -> Step:
    return replace(step, artifacts=artifacts.of_step(config, step.config), separate=place.separate)


def _placed(problem: TaskError, settings: dataset.Settings, name: str) -> TaskError:
    """The same problem; of the dataset's file, where it is the dataset that set the key."""
    table, _, key = (problem.field or "").partition(".")
    if settings.environment is None or table != "environment":
        return problem
    if key.partition(".")[0].partition("[")[0] not in settings.environment.model_fields_set:
        return problem
    return TaskError(
        problem.problem,
        file=dataset.FILE,
        field=shape.dotted(("gym", "tasks", name)) + f".{problem.field}",
        value=problem.value,
        remedy=problem.remedy,
        unsupported=problem.unsupported,
    )


def _image(config: TaskToml, source: folder.Folder, paths: Sequence[str], warnings: list[str]) -> ImageSource:
    """`docker_image`, else the base of a Dockerfile that needs no build.

    A Dockerfile FROM that image that runs nothing adds to `docker_image`.
    """
    prebuilt = config.environment.docker_image
    if dockerfile.FILE not in paths:
        if prebuilt is None:
            raise TaskError(
                "no image is named",
                file=toml_file.FILE,
                field="environment.docker_image",
                remedy=f"Name one, or write {dockerfile.FILE}.",
            )
        return ImageSource(prebuilt)
    try:
        parsed = dockerfile.parse(source.read(dockerfile.FILE, dockerfile.MAX_BYTES))
    except TaskError as error:
        if prebuilt is None:
            raise
        warnings.append(f"{error} docker_image is used without it")
        return ImageSource(prebuilt)
    if prebuilt is not None:
        return _beside(prebuilt, parsed, warnings)
    if parsed.instructions is None:
        raise TaskError(
            f"{parsed.because} asks for building an image",
            file=dockerfile.FILE,
            remedy="build and push the image yourself and name it in environment.docker_image",
            unsupported=True,
        )
    return ImageSource(parsed.instructions.base, parsed.instructions)


def _beside(prebuilt: str, parsed: dockerfile.Dockerfile, warnings: list[str]) -> ImageSource:
    """A Dockerfile beside `docker_image`: what it would run counts as done, what it only sets is read."""
    found = parsed.instructions
    if found is None or found.overlay:
        return ImageSource(prebuilt)
    if not dockerfile.same_image(prebuilt, found.base):
        base, image = show(found.base), show(prebuilt)
        warnings.append(f"{dockerfile.FILE}: is FROM {base}, not FROM docker_image = {image}, and is ignored")
        return ImageSource(prebuilt)
    return ImageSource(prebuilt, found)
