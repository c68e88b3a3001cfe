"""task.toml, schema 1.4, as data.

Guarantees: an instance holds valid values in today's spelling; a key that this schema does not know is left
out (the reader reports it). Nothing here decides what this release can run: that is `refusals`. The `Key`
notes are what the reference page is made of.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from taskfold.contract import network, spellings, values
from taskfold.contract.tables import (
    HOSTS,
    ONLY_HOSTS,
    ONLY_NETWORK,
    WRITE_HOSTS,
    WRITE_NETWORK,
    AllowedHosts,
    ArtifactTable,
    EnvironmentTable,
    HealthcheckTable,
    Mode,
    Table,
    service_name,
)
from taskfold.contract.values import Key, Status

SCHEMA_VERSION = "1.4"
DEFAULT_AGENT_SECONDS = 28_800.0
"""C2."""
DEFAULT_VERIFIER_SECONDS = 600.0
DEFAULT_HOOK_SECONDS = 60.0
MAX_STEPS = 64
"""A run's status tells about each of them, and has a bound."""

_WRITE_SECONDS = "Write seconds, for example 600."
_WRITE_USER = 'Write a name ("app") or a number without quotes (1000).'


class VerifierMode(StrEnum):
    """Where test.sh runs: in the agent's sandbox, or in a fresh one."""

    SHARED = "shared"
    SEPARATE = "separate"


class RewardStrategy(StrEnum):
    MEAN = "mean"
    FINAL = "final"


_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def _package_name(value: str) -> str:
    parts = value.split("/")
    if len(parts) != 2 or ".." in value or not all(_NAME.fullmatch(part) for part in parts):
        raise values.rule("must be an organisation and a name", 'Write a name like "acme/hello".')
    return value


class AuthorTable(Table):
    name: Annotated[str, Key("Name of the author.", "Give the author a name.")]
    email: Annotated[str | None, Key("Address of the author.")] = None


class PackageTable(Table):
    """[task]: what a dataset's catalogue shows. The task's id is its folder's name, never this one."""

    name: Annotated[
        str,
        AfterValidator(_package_name),
        Key("`org/name`.", 'Write a name like "acme/hello".', Status.RECORDED),
    ]
    version: Annotated[values.Text | None, Key("Version of the task.", 'Write one like "1.0".', Status.RECORDED)] = None
    description: Annotated[str, Key("What the task is about.", status=Status.RECORDED)] = ""
    authors: Annotated[tuple[AuthorTable, ...], values.ARRAY, Key("Who wrote it.", status=Status.RECORDED)] = ()
    keywords: Annotated[tuple[str, ...], values.ARRAY, Key("Search words.", status=Status.RECORDED)] = ()


class AgentTable(Table):
    timeout_sec: Annotated[values.Seconds, Key("Limit of the agent.", _WRITE_SECONDS)] = DEFAULT_AGENT_SECONDS
    user: Annotated[
        values.UserValue | None,
        Key("Who the agent runs as; unset, the image's user. A number in quotes is a name.", _WRITE_USER),
    ] = None
    network_mode: Annotated[
        Mode | None,
        Key(
            "Network of the agent's sandbox; unset, as [environment] says.",
            WRITE_NETWORK,
            only=ONLY_NETWORK,
        ),
    ] = None
    allowed_hosts: Annotated[AllowedHosts | None, Key(HOSTS, WRITE_HOSTS, only=ONLY_HOSTS)] = None

    @model_validator(mode="after")
    def _policy(self) -> Self:
        network.check_policy(self.network_mode, self.allowed_hosts, tolerate_empty=False)
        return self


class CollectTable(Table):
    """A hook in the agent's sandbox before verification. Its failure is a warning, never a verdict."""

    command: Annotated[values.Text, Key("Shell command.", "Write a command.")]
    service: Annotated[
        str,
        AfterValidator(service_name),
        Key(
            "Compose service to run it in.",
            'Write "main".',
            only="`main`; other services are refused for now",
        ),
    ] = "main"
    timeout_sec: Annotated[values.Seconds, Key("Limit of the hook.", _WRITE_SECONDS)] = DEFAULT_HOOK_SECONDS
    user: Annotated[values.UserValue | None, Key("Who it runs as; unset, the image's user.", _WRITE_USER)] = None


class VerifierTable(Table):
    timeout_sec: Annotated[values.Seconds, Key("Limit of test.sh.", _WRITE_SECONDS)] = DEFAULT_VERIFIER_SECONDS
    env: Annotated[
        values.EnvTable,
        Key(
            "Added to the sandbox's environment for test.sh; templates as in [environment].",
            "Put the value in quotes.",
        ),
    ] = Field(default_factory=dict)
    user: Annotated[
        values.UserValue | None,
        Key("Who test.sh runs as; unset, the image's user, never [agent].user.", _WRITE_USER),
    ] = None
    environment_mode: Annotated[
        VerifierMode | None,
        values.one_of(VerifierMode),
        Key(
            "Unset: `separate` with a [verifier.environment], else `shared`.",
            'Write "shared".',
        ),
    ] = None
    environment: Annotated[
        EnvironmentTable | None,
        Key("The separate sandbox; keys as in [environment], none of which it fills.", "Remove the table."),
    ] = None
    network_mode: Annotated[
        Mode | None,
        Key(
            "Network of a separate verifier's sandbox; unset, as its environment says.",
            WRITE_NETWORK,
        ),
    ] = None
    allowed_hosts: Annotated[AllowedHosts | None, Key(HOSTS, WRITE_HOSTS)] = None
    collect: Annotated[
        tuple[CollectTable, ...], values.ARRAY, Key("Hooks that run before verification, best effort.")
    ] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        network.check_policy(self.network_mode, self.allowed_hosts, tolerate_empty=False)
        if self.environment_mode is VerifierMode.SHARED and self.environment is not None:
            remedy = "Remove the table [verifier.environment], or environment_mode."
            raise values.rule("contradicts the table [verifier.environment]", remedy, "environment_mode")
        return self

    @property
    def mode(self) -> VerifierMode:
        """What the folder asks for; spec.verifier.mode and an operator's option may say otherwise."""
        if self.environment_mode is not None:
            return self.environment_mode
        return VerifierMode.SEPARATE if self.environment is not None else VerifierMode.SHARED


class SolutionTable(Table):
    env: Annotated[
        values.EnvTable,
        Key("Environment of the reference solution; templates as above.", "Put the value in quotes."),
    ] = Field(default_factory=dict)


class StepAgentTable(AgentTable):
    """Unset values fall back to [agent]."""

    timeout_sec: Annotated[values.Seconds | None, Key("Limit of the agent in this step.", _WRITE_SECONDS)] = None  # type: ignore[assignment]


def _min_reward(value: Any) -> Any:
    numbers = list(value.values()) if isinstance(value, dict) else [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(_float(number)):
            raise values.rule("must be a number, or a table of numbers", "Write a number, for example 0.5.")
    return {key: _float(v) for key, v in value.items()} if isinstance(value, dict) else _float(value)


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


_STEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def _step_name(value: str) -> str:
    if not _STEP.fullmatch(value):
        raise values.rule("is not the name of a step's folder", 'Write a name like "step-1".')
    return value


class StepTable(Table):
    name: Annotated[str, AfterValidator(_step_name), Key("Folder of the step below steps/.", "Name the folder.")]
    agent: Annotated[StepAgentTable, Key("As [agent]; unset keys fall back to it.")] = StepAgentTable()
    verifier: Annotated[
        VerifierTable,
        Key(
            "As [verifier]. `user`, the mode, its environment and its network fall back, `env` is added to; the limit "
            "is its own."
        ),
    ] = VerifierTable()
    min_reward: Annotated[
        float | dict[str, float] | None,
        BeforeValidator(lambda v: None if v is None else _min_reward(v)),
        Key("Below it the task ends with this step: on `reward`, or a table of numbers by name."),
    ] = None
    healthcheck: Annotated[HealthcheckTable | None, Key("Waited for before the agent of this step.")] = None
    artifacts: Annotated[
        tuple[ArtifactTable, ...],
        values.ARRAY,
        Key("Added to the task's.", "Write a list of paths."),
    ] = ()


class TaskToml(Table):
    """The whole file."""

    deprecated: ClassVar[dict[str, str]] = {
        "version": "`schema_version`.",
        "multi_step_reward_mode": "nothing; it is dropped.",
    }

    schema_version: Annotated[str, Key("Version of the format.", 'Write "1.4".')] = SCHEMA_VERSION
    source: Annotated[str | None, Key("Dataset that the task came from.", status=Status.RECORDED)] = None
    multi_step_reward_strategy: Annotated[
        RewardStrategy | None,
        values.one_of(RewardStrategy),
        Key("How the rewards of steps are put together; unset, `mean`.", 'Write "mean" or "final".'),
    ] = None
    artifacts: Annotated[
        tuple[ArtifactTable, ...],
        values.ARRAY,
        Key("Paths kept from the agent's sandbox, and given to a separate verifier.", "Write a list of paths."),
    ] = ()
    task: Annotated[PackageTable | None, Key("Catalogue entry.", status=Status.RECORDED)] = None
    metadata: Annotated[dict[str, Any], Key("Free; never interpreted.", status=Status.RECORDED)] = Field(
        default_factory=dict
    )
    environment: Annotated[EnvironmentTable, Key("The agent's sandbox.")] = EnvironmentTable()
    agent: Annotated[AgentTable, Key("The agent.")] = AgentTable()
    verifier: Annotated[VerifierTable, Key("The verifier.")] = VerifierTable()
    solution: Annotated[SolutionTable, Key("The reference solution.")] = SolutionTable()
    steps: Annotated[
        tuple[StepTable, ...] | None,
        values.ARRAY,
        Key("Turns of a multi-step task, in order.", "Write [[steps]] with a name."),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _old(cls, data: Any) -> Any:
        return spellings.root(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _distinct_steps(self) -> Self:
        if len(self.steps or ()) > MAX_STEPS:
            raise values.rule(f"has more than {MAX_STEPS} steps", "Split the task.", "steps")
        names = [step.name.casefold() for step in self.steps or ()]
        if len(set(names)) != len(names):
            raise values.rule("must have names that differ in more than case", "Rename a step.", "steps")
        return self
