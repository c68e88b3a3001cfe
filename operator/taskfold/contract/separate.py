"""Separate verification: which image the verifier's own sandbox runs, and that sandbox as a task of its own
(seed "Shared and separate verification", its image table).

Guarantees: the rows of the table are looked at in its order, and what fits none of them is refused; the image that the
agent works in is never used because nothing else is named. Only a mode that is separate once a run's and the operator's
own words are in is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from taskfold.contract import dockerfile, folder, layout, restrictions, separate_compose, shape
from taskfold.contract.errors import TaskError
from taskfold.contract.tables import EnvironmentTable
from taskfold.contract.task import ImageSource, Separate, Task
from taskfold.contract.task_toml import StepTable, TaskToml, VerifierMode, VerifierTable
from taskfold.contract.toml_file import FILE

DOCKERFILE = "tests/Dockerfile"
OF_AGENTS = ("mcp_servers", "skills_dir")
"""Keys of [environment] that tell an agent something, and mean nothing in [verifier.environment]."""


@dataclass(frozen=True)
class Place:
    """One verification of a task: the whole of a single-step task, or that of a step.

    `verifier`: with the fallbacks of the task's tables. `location`: of the table that `verifier.environment` stands in.
    `below`: the step's own folder, whose files are laid over those of the task's tests/; "" without one.
    """

    verifier: VerifierTable
    location: shape.Location
    below: str = ""

    def file(self, name: str, paths: Sequence[str]) -> str | None:
        """Where this file of tests/ lies for this verification."""
        candidates = (f"{self.below}{name}", name)
        return next((path for path in candidates if path in paths), None)


@dataclass(frozen=True)
class Found:
    """Where a verification is to take place, None in shared mode, and what else is to be said about it."""

    separate: Separate | None
    warnings: tuple[str, ...] = ()


def of_task(config: TaskToml, image: ImageSource | None, source: folder.Folder, paths: Sequence[str]) -> Found:
    """Where a single-step task is verified.

    `image`: the agent's, as the loader found it. Raises TaskError for the first problem, with the rest in `others`.
    """
    return _resolve(Place(config.verifier, ("verifier",)), config, image, source, paths)


def of_step(
    config: TaskToml, index: int, image: ImageSource | None, source: folder.Folder, paths: Sequence[str]
) -> Found:
    """Where this step of a multi-step task is verified. Raises TaskError likewise."""
    step = (config.steps or ())[index]
    own = step.verifier.environment is not None or config.verifier.environment is None
    location: shape.Location = ("steps", index, "verifier") if own else ("verifier",)
    verifier = layout.with_fallbacks(step, config).verifier
    return _resolve(Place(verifier, location, f"steps/{step.name}/"), config, image, source, paths)


def verifications(config: TaskToml) -> tuple[StepTable | TaskToml, ...]:
    """What has a mode of its own: the steps with their fallbacks, or the task without any."""
    return tuple(layout.with_fallbacks(step, config) for step in config.steps or ()) or (config,)


def environments(config: TaskToml) -> Iterator[tuple[str, EnvironmentTable]]:
    """Every [verifier.environment] that a sandbox is made of, once, under the name of its table."""
    if not config.steps and config.verifier.environment is not None:
        yield "verifier.environment", config.verifier.environment
    found: dict[str, EnvironmentTable] = {}
    for index, step in enumerate(config.steps or ()):
        table = layout.with_fallbacks(step, config).verifier.environment
        if table is not None:
            name = (
                "verifier.environment" if step.verifier.environment is None else f"steps[{index}].verifier.environment"
            )
            found.setdefault(name, table)
    yield from found.items()


def sandbox(task: Task) -> Task:
    """The task as the verifier's own sandbox has it. ValueError in shared mode.

    Its [environment] is that of the verifier. The task's own one, where it stands in, comes without its healthcheck
    (C40). Tool servers and skills are an agent's, and inputs lie in the agent's sandbox only.
    """
    if task.separate is None:
        raise ValueError("a sandbox of its own for a verifier that shares the agent's")
    unset = EnvironmentTable()
    update: dict[str, object] = {key: getattr(unset, key) for key in OF_AGENTS}
    if not task.separate.own:
        update["healthcheck"] = None
    environment = task.separate.environment.model_copy(update=update)
    config = task.config.model_copy(update={"environment": environment})
    return replace(task, config=config, image=task.separate.image, inputs=(), network=task.separate.network)


def _resolve(
    place: Place, config: TaskToml, image: ImageSource | None, source: folder.Folder, paths: Sequence[str]
) -> Found:
    if place.verifier.mode is VerifierMode.SHARED:
        return Found(None)
    own = place.verifier.environment
    chosen = _image(place, config, image)
    problems: list[TaskError] = []
    warnings: list[str] = []
    if chosen is None:
        problems.append(_without_image(place, config, paths))
    else:
        warnings += _unused(place, paths)
    compose = place.file(separate_compose.FILE, paths)
    if compose is not None:
        try:
            content = source.read(compose, separate_compose.MAX_BYTES)
            warnings += separate_compose.check(content, file=compose, prebuilt=chosen is not None)
        except TaskError as error:
            problems += (error, *error.others)
    if problems or chosen is None:
        first, *others = problems
        first.others = tuple(others)
        raise first
    environment = own if own is not None else config.environment
    reach = restrictions.of_verifier(place.verifier, environment)
    return Found(Separate(chosen, environment, own is not None, reach), tuple(warnings))


def _image(place: Place, config: TaskToml, image: ImageSource | None) -> ImageSource | None:
    """The first two rows of the table; None: neither fits."""
    own = place.verifier.environment
    if own is not None:
        return ImageSource(own.docker_image) if own.docker_image is not None else None
    if config.environment.docker_image is None:
        return None
    return image if image is not None else ImageSource(config.environment.docker_image)


def _without_image(place: Place, config: TaskToml, paths: Sequence[str]) -> TaskError:
    """The third row, and what fits none."""
    field = shape.dotted((*place.location, "environment", "docker_image"))
    dockerfile_of_tests = place.file(DOCKERFILE, paths)
    if dockerfile_of_tests is not None:
        return TaskError(
            "asks for building the separate verifier's image",
            file=dockerfile_of_tests,
            remedy=f"build and push the image yourself and name it in {field} of {FILE}",
            unsupported=True,
        )
    if place.verifier.environment is not None:
        problem = "names no image for the separate verifier, and beside a table of its own the task's is not used"
    elif dockerfile.FILE in paths:
        problem = f"names no image for the separate verifier, and that of {dockerfile.FILE} is the agent's alone"
    else:
        problem = "names no image for the separate verifier"
    return TaskError(problem, file=FILE, field=field, remedy='Name one, or write environment_mode = "shared".')


def _unused(place: Place, paths: Sequence[str]) -> Iterator[str]:
    found = place.file(DOCKERFILE, paths)
    if found is not None:
        yield f"{found}: has no effect, since {FILE} names the separate verifier's image"
    own = place.verifier.environment
    for key in OF_AGENTS:
        if own is not None and getattr(own, key):
            yield f"{FILE}: {shape.dotted((*place.location, 'environment', key))} has no effect: it is for an agent"
