"""dataset.toml as data: Harbor's tables, and [gym], what a dataset asks for on top of its tasks.

Guarantees: a key of [gym] that is not known is an error that names it, because a setting that is passed over changes
scores; in Harbor's tables it is a warning. An instance holds finite numbers and valid values only. What a dataset
says about how many times a task is to be run has no key here: none is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from taskfold.contract import errors, shape, toml_file, values
from taskfold.contract.network import NetworkMode
from taskfold.contract.tables import EnvironmentTable, Table
from taskfold.contract.task_toml import PackageTable
from taskfold.contract.values import Key, Status

FILE = "dataset.toml"
MAX_BYTES = 4 * 2**20
"""Harbor lists a dataset's tasks and files in it."""
MAX_INPUTS = 64
MAX_MULTIPLIER = 1e6
GRADER_OUTPUTS = frozenset(
    {
        "reward.txt",
        "reward.json",
        "test-stdout.txt",
        "trajectory.json",
        "entrypoint-stdout.txt",
        "verifier-entrypoint-stdout.txt",
    }
)
"""What a verification leaves in /logs/verifier, or beside it in the logs that are kept."""
_WRITE_INPUT = 'Write the name of a file that a sidecar puts straight into /logs/verifier, such as "actions.jsonl".'


def _input(name: str) -> str:
    problem = ""
    if name in GRADER_OUTPUTS:
        problem = "is what the grader writes, which nobody else may put there"
    elif "/" in name or "\\" in name:
        problem = "has a path separator"
    elif any(mark in name for mark in "*?["):
        problem = "has a pattern, and inputs are names"
    elif name in ("", ".", "..") or not name.isprintable() or len(name.encode("utf-8", "replace")) > 255:
        problem = "is not the name of a file"
    if problem:
        raise values.rule(problem, _WRITE_INPUT)
    return name


def _multiplier(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise values.rule("must be a number", "Write a number, for example 2.0.")
    return value


Multiplier = Annotated[float, BeforeValidator(_multiplier), Field(gt=0, le=MAX_MULTIPLIER)]


class DefaultsTable(Table):
    """[gym.defaults]: for every task of the dataset, after its own overrides."""

    timeout_multiplier: Annotated[
        Multiplier,
        Key("Scales the `timeout_sec` of agent and verifier, those of steps included.", "Write a number above 0."),
    ] = 1.0
    resource_multiplier: Annotated[
        Multiplier,
        Key(
            "Scales `cpus`, `memory_mb` and `storage_mb` of agent and verifier, rounded up; never GPUs.",
            "Write a number above 0.",
        ),
    ] = 1.0


class InputsTable(Table):
    """[gym.tasks."<id>".verifier]"""

    inputs: Annotated[
        tuple[Annotated[str, AfterValidator(_input)], ...],
        values.ARRAY,
        Field(max_length=MAX_INPUTS),
        Key(
            "Files that a sidecar writes into /logs/verifier for test.sh: kept when that folder is emptied. Shared "
            "verification only.",
            _WRITE_INPUT,
        ),
    ] = ()


class OverridesTable(Table):
    """[gym.tasks."<id>"]: for one task, named by its folder."""

    environment: Annotated[
        EnvironmentTable | None,
        Key("Keys of the task's [environment]: `env` is added to, every other key replaces."),
    ] = None
    verifier: Annotated[InputsTable | None, Key("What the task's verifier reads besides tests/.")] = None


class GymTable(Table):
    license: Annotated[values.Text | None, Key("License of the rows.", "Write its name.", Status.RECORDED)] = None
    type: Annotated[values.Text | None, Key("Which split the rows may enter.", "Write its name.", Status.RECORDED)] = (
        None
    )
    allowed_agents: Annotated[
        tuple[values.Text, ...] | None,
        values.ARRAY,
        Key("Harnesses that are meant to run it.", "Write their names.", Status.RECORDED),
    ] = None
    domain: Annotated[values.Text | None, Key("Catalogue entry.", "Write a word.", Status.RECORDED)] = None
    verified: Annotated[bool | None, Key("Catalogue entry.", "Write true or false.", Status.RECORDED)] = None
    source: Annotated[
        values.Text | None, Key("Where the dataset was pulled from.", "Write a reference.", Status.RECORDED)
    ] = None
    defaults: Annotated[DefaultsTable, Key("For every task.")] = DefaultsTable()
    tasks: Annotated[
        dict[str, OverridesTable], Key('For one task: [gym.tasks."<id>"], the id being the name of its folder.')
    ] = Field(default_factory=dict)


_DIGEST = Field(pattern=r"^sha256:[0-9a-f]{64}$")


class ListedTaskTable(Table):
    name: Annotated[str, Key("`org/name` of a task.", 'Write a name like "acme/hello".', Status.RECORDED)]
    digest: Annotated[
        Annotated[str, _DIGEST] | None,
        Key("Its digest in Harbor's registry.", 'Write "sha256:" and 64 digits.', Status.RECORDED),
    ] = None


class ListedFileTable(Table):
    path: Annotated[str, Key("A file of the dataset.", "Write its path.", Status.RECORDED)]
    digest: Annotated[
        Annotated[str, _DIGEST] | None,
        Key("Its digest.", 'Write "sha256:" and 64 digits.', Status.RECORDED),
    ] = None


class DatasetToml(Table):
    """The whole file."""

    schema_version: Annotated[str, Key("Version of Harbor's tables.", 'Write "1.0".', Status.RECORDED)] = "1.0"
    dataset: Annotated[PackageTable | None, Key("Harbor's catalogue entry.", status=Status.RECORDED)] = None
    tasks: Annotated[
        tuple[ListedTaskTable, ...], values.ARRAY, Key("Harbor's list of tasks.", status=Status.RECORDED)
    ] = ()
    files: Annotated[
        tuple[ListedFileTable, ...], values.ARRAY, Key("Harbor's list of files.", status=Status.RECORDED)
    ] = ()
    metadata: Annotated[dict[str, Any], Key("Free; never interpreted.", status=Status.RECORDED)] = Field(
        default_factory=dict
    )
    gym: Annotated[GymTable, Key("What the dataset asks for on top of its tasks.")] = GymTable()


@dataclass(frozen=True)
class Document:
    """dataset.toml: what its tasks need of it, and what else there is to say.

    `others`: problems of Harbor's tables, which no run depends on.
    """

    gym: GymTable
    others: tuple[errors.TaskError, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """What a dataset's [gym] says about one task."""

    defaults: DefaultsTable = field(default_factory=DefaultsTable)
    environment: EnvironmentTable | None = None
    inputs: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON data, without what changes nothing; {} when nothing is asked for."""
        found: dict[str, Any] = {}
        defaults = {name: value for name, value in self.defaults.model_dump().items() if value != 1}
        if defaults:
            found["defaults"] = defaults
        if self.environment is not None and self.environment.model_fields_set:
            found["environment"] = self.environment.model_dump(mode="json", exclude_unset=True)
        if self.inputs:
            found["inputs"] = list(self.inputs)
        return found

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Settings:
        """What `document` gave. Raises pydantic.ValidationError for anything else."""
        environment = document.get("environment")
        return cls(
            DefaultsTable.model_validate(document.get("defaults", {})),
            EnvironmentTable.model_validate(environment) if environment is not None else None,
            InputsTable.model_validate({"inputs": document.get("inputs", [])}).inputs,
        )


def settings_of(gym: GymTable, task: str) -> Settings:
    """What applies to the task in the folder of this name."""
    own = gym.tasks.get(task, OverridesTable())
    return Settings(gym.defaults, own.environment, own.verifier.inputs if own.verifier is not None else ())


def read(content: bytes, *, file: str = FILE) -> Document:
    """The document. Raises TaskError for the first problem of its [gym], with the rest in `others`."""
    written = toml_file.parse(content, file)
    problems: list[errors.TaskError] = []
    whole, found = _validated(written, file, gym=True)
    problems += found
    problems += [_unknown(location, file) for location in _unknown_keys(written, gym=True)]
    problems += [*_restrictions(whole, file)]
    if problems:
        first, *others = problems
        first.others = tuple(others)
        raise first
    _, others = _validated(written, file, gym=False)
    warnings = tuple(
        f"{file}: {shape.dotted(location)} is not a key of the format and is ignored"
        for location in _unknown_keys(written, gym=False)
    )
    return Document(whole.gym, tuple(others), warnings)


def _validated(written: dict[str, Any], file: str, *, gym: bool) -> tuple[DatasetToml, list[errors.TaskError]]:
    """One owner's half of the file, and what is wrong with it; then the model is empty."""
    half = {name: value for name, value in written.items() if (name == "gym") is gym}
    try:
        return DatasetToml.model_validate(half), []
    except pydantic.ValidationError as error:
        return DatasetToml(), toml_file.problems(error, half, model=DatasetToml, file=file)


def _unknown_keys(written: dict[str, Any], *, gym: bool) -> list[shape.Location]:
    return [location for location in shape.unknown_keys(DatasetToml, written) if (location[0] == "gym") is gym]


def _unknown(location: shape.Location, file: str) -> errors.TaskError:
    near = toml_file.near(DatasetToml, location)
    remedy = f"Write {near}, or remove the key." if near else "Remove the key."
    return errors.TaskError("is not a key of [gym]", file=file, field=shape.dotted(location), remedy=remedy)


def _restrictions(whole: DatasetToml, file: str) -> Iterator[errors.TaskError]:
    """An override may not do what the task's own table may not."""
    for name, task in whole.gym.tasks.items():
        environment = task.environment
        if environment is not None and environment.network_mode is not NetworkMode.PUBLIC:
            yield errors.TaskError(
                "restricts the network, which only the [verifier] table of a separate verifier may do",
                file=file,
                field=shape.dotted(("gym", "tasks", name, "environment", "network_mode")),
                value=environment.network_mode,
                remedy="Remove it.",
            )
