"""Loading a task folder: everything that can be known to be wrong before a pod exists is said here.

Guarantees: `load` gives a `Task` that this release can run, or raises TaskError: what is broken or refused
before what is not supported yet. What is ignored is a warning on the task. Nothing outside the folder is
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from taskfold.contract import digest, dockerfile, folder, refusals, toml_file
from taskfold.contract.errors import TaskError, show
from taskfold.contract.instruction import without_canary
from taskfold.contract.task import Grader, ImageSource, Solution, Task
from taskfold.contract.task_toml import TaskToml

INSTRUCTION = "instruction.md"
MAX_INSTRUCTION_BYTES = 2**20
"""It is sent as one message, and stored with every transcript."""

T = TypeVar("T")


@dataclass(frozen=True)
class Findings:
    """All that is to be said about a folder; `task` is None when there are problems."""

    task: Task | None
    problems: tuple[TaskError, ...]
    warnings: tuple[str, ...]


def load(source: folder.Folder, *, task_id: str) -> Task:
    """The task in `source`.

    `task_id` is its folder's name. Raises the first problem, with the rest in `others`.
    """
    findings = check(source, task_id=task_id)
    if findings.task is None:
        first, *others = findings.problems
        first.others = tuple(others)
        raise first
    return findings.task


def check(source: folder.Folder, *, task_id: str) -> Findings:
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
    config = document.config if document is not None else None
    several = any(path.startswith("steps/") for path in paths) or (config is not None and bool(config.steps))
    text = "" if several else attempt(lambda: _instruction(source, paths))
    image = attempt(lambda: _image(config, source, paths, warnings)) if config is not None else None
    if document is not None:
        problems.extend(refusals.of_contract(document.config, document.written))
        problems.extend(refusals.not_yet(document.config))
        warnings[:0] = document.warnings
    problems.extend(_layout(paths, several=several))
    warnings.extend(_unused(paths))
    problems.sort(key=lambda problem: problem.unsupported)
    if problems or config is None or image is None or text is None:
        return Findings(None, tuple(problems), tuple(warnings))
    solution = Solution.SCRIPT if Solution.SCRIPT in paths else None
    task = Task(task_id, text, config, image, solution, tuple(warnings))
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


def _instruction(source: folder.Folder, paths: Sequence[str]) -> str:
    if INSTRUCTION not in paths:
        raise TaskError("is missing", file=INSTRUCTION, remedy="Write what the agent is to do into it.")
    content = source.read(INSTRUCTION, MAX_INSTRUCTION_BYTES)
    try:
        return without_canary(content.decode())
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (at byte {error.start})"
        raise TaskError(problem, file=INSTRUCTION, remedy="Save the file as UTF-8.") from None


def _image(config: TaskToml, source: folder.Folder, paths: Sequence[str], warnings: list[str]) -> ImageSource:
    """`docker_image`, else the base of a pull-mode Dockerfile.

    A Dockerfile FROM that image adds to `docker_image`.
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
    if parsed.pull is None:
        feature = "RUN lines at seed" if parsed.mode is dockerfile.Mode.OVERLAY else "building an image"
        raise TaskError(
            f"{parsed.because} asks for {feature}",
            file=dockerfile.FILE,
            remedy="build and push the image yourself and name it in environment.docker_image",
            unsupported=True,
        )
    return ImageSource(parsed.pull.base, parsed.pull)


def _beside(prebuilt: str, parsed: dockerfile.Dockerfile, warnings: list[str]) -> ImageSource:
    """A Dockerfile beside `docker_image`: what it would run counts as done, what it only sets is read."""
    if parsed.pull is None:
        return ImageSource(prebuilt)
    if not dockerfile.same_image(prebuilt, parsed.pull.base):
        base, image = show(parsed.pull.base), show(prebuilt)
        warnings.append(f"{dockerfile.FILE}: is FROM {base}, not FROM docker_image = {image}, and is ignored")
        return ImageSource(prebuilt)
    return ImageSource(prebuilt, parsed.pull)


def _layout(paths: Sequence[str], *, several: bool) -> Iterator[TaskError]:
    """What must be in the folder, and what must not be there yet."""
    if several:
        step = next((path for path in paths if path.startswith("steps/")), None)
        if step is not None:
            yield _unsupported("a multi-step task", step, "split the task into one folder per step")
    elif Grader.TEST_SH not in paths:
        yield _without_test(paths)
    if "environment/docker-compose.yaml" in paths:
        remedy = "remove the file and name one image"
        yield _unsupported("a task of several containers", "environment/docker-compose.yaml", remedy)
    if Solution.ANSWER in paths and Solution.SCRIPT not in paths:
        remedy = "write a solution/solve.sh that writes the answer"
        yield _unsupported("a reference answer", Solution.ANSWER, remedy)


def _without_test(paths: Sequence[str]) -> TaskError:
    if "tests/verifier.py" in paths:
        return _unsupported("a Python verifier", "tests/verifier.py", f"call it from {Grader.TEST_SH}")
    if not any(path.startswith("tests/") for path in paths):
        remedy = f"Write {Grader.TEST_SH}; it grades the task."
        return TaskError("is missing", file="tests/", remedy=remedy)
    remedy = "Write one; it grades the task and leaves its reward in /logs/verifier."
    return TaskError("is missing", file=Grader.TEST_SH, remedy=remedy)


def _unused(paths: Sequence[str]) -> Iterator[str]:
    for path in ("task_data.json", "trajectory.json"):
        if path in paths:
            yield f"{path}: is not read yet and has no effect"
    solution = [path for path in paths if path.startswith("solution/")]
    if solution and not set(Solution) & set(solution):
        yield "solution/: has no solve.sh, so the task counts as one without a reference solution"


def _unsupported(feature: str, file: str, remedy: str) -> TaskError:
    return TaskError(feature, file=file, remedy=remedy, unsupported=True)
