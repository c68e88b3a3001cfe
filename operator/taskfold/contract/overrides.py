"""What a dataset and a run change about a task: overrides first, then the multipliers, then the run's own mode.

Guarantees: the result is a task.toml like any other, valid values only; nothing is changed that neither of them names.
GPUs are never multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeVar

from taskfold.contract import dataset, values
from taskfold.contract.errors import TaskError
from taskfold.contract.tables import ArtifactTable, EnvironmentTable
from taskfold.contract.task_toml import AgentTable, StepTable, TaskToml, VerifierMode, VerifierTable

A = TypeVar("A", AgentTable, VerifierTable)


def apply(config: TaskToml, settings: dataset.Settings) -> TaskToml:
    """The task.toml that counts. Raises TaskError when a multiplied value is out of its bounds."""
    config = _overridden(config, settings.environment)
    times, size = settings.defaults.timeout_multiplier, settings.defaults.resource_multiplier
    update: dict[str, Any] = {
        "agent": _timed(config.agent, times, "agent"),
        "verifier": _verifier(config.verifier, times, size, "verifier"),
        "environment": _sized(config.environment, size, "environment"),
    }
    if config.steps:
        update["steps"] = tuple(_step(step, times, size, f"steps[{index}]") for index, step in enumerate(config.steps))
    return config.model_copy(update=update)


def in_mode(config: TaskToml, mode: VerifierMode | None, *, separate_artifacts: bool = False) -> TaskToml:
    """The task.toml of a run that says itself where its tests run, in every step; None: it does not.

    With shared verification a table [verifier.environment] means nothing and is gone. `separate_artifacts`: the
    operator's word, which wins: what declares artifacts, in itself or for the whole task, is verified separately.
    """

    def of(artifacts: Sequence[ArtifactTable]) -> VerifierMode | None:
        return VerifierMode.SEPARATE if separate_artifacts and artifacts else mode

    modes = [of((*config.artifacts, *step.artifacts)) for step in config.steps or ()]
    verifier = _in_mode(config.verifier, of(config.artifacts))
    if VerifierMode.SEPARATE in modes:  # a step without an environment of its own falls back to the task's
        verifier = verifier.model_copy(update={"environment": config.verifier.environment})
    steps = tuple(
        step.model_copy(update={"verifier": _in_mode(step.verifier, its)})
        for step, its in zip(config.steps or (), modes, strict=True)
    )
    return config.model_copy(update={"verifier": verifier, "steps": steps or config.steps})


def _in_mode(verifier: VerifierTable, mode: VerifierMode | None) -> VerifierTable:
    if mode is None:
        return verifier
    gone = {"environment": None} if mode is VerifierMode.SHARED else {}
    return verifier.model_copy(update={"environment_mode": mode, **gone})


def _overridden(config: TaskToml, override: EnvironmentTable | None) -> TaskToml:
    if override is None:
        return config
    update = {name: getattr(override, name) for name in override.model_fields_set}
    if "env" in update:
        update["env"] = {**config.environment.env, **override.env}
    return config.model_copy(update={"environment": config.environment.model_copy(update=update)})


def _step(step: StepTable, times: float, size: float, where: str) -> StepTable:
    return step.model_copy(
        update={
            "agent": _timed(step.agent, times, f"{where}.agent"),
            "verifier": _verifier(step.verifier, times, size, f"{where}.verifier"),
        }
    )


def _verifier(verifier: VerifierTable, times: float, size: float, where: str) -> VerifierTable:
    verifier = _timed(verifier, times, where)
    if verifier.environment is None:
        return verifier
    return verifier.model_copy(update={"environment": _sized(verifier.environment, size, f"{where}.environment")})


def _timed(table: A, times: float, where: str) -> A:
    if times == 1 or table.timeout_sec is None:  # a step's agent, which falls back to [agent]
        return table
    seconds = table.timeout_sec * times
    if not 0 < seconds <= values.MAX_SECONDS:
        raise _out_of_bounds(f"{where}.timeout_sec", table.timeout_sec, "timeout_multiplier", values.MAX_SECONDS)
    return table.model_copy(update={"timeout_sec": seconds})


_LIMITS = {"cpus": values.MAX_CPUS, "memory_mb": values.MAX_MEGABYTES, "storage_mb": values.MAX_MEGABYTES}


def _sized(environment: EnvironmentTable, size: float, where: str) -> EnvironmentTable:
    update: dict[str, int] = {}
    for name, limit in _LIMITS.items():
        value = getattr(environment, name)
        if value is None or size == 1:
            continue
        # As decimals: 10 times 1.1 is 11, where floats make it a little more, which would be rounded up to 12.
        scaled = math.ceil(Decimal(str(value)) * Decimal(str(size)))
        if scaled > limit:
            raise _out_of_bounds(f"{where}.{name}", value, "resource_multiplier", limit)
        update[name] = scaled
    return environment.model_copy(update=update)


def _out_of_bounds(field: str, value: float, multiplier: str, limit: float) -> TaskError:
    return TaskError(
        f"times the dataset's gym.defaults.{multiplier} is not between 0 and {limit:g}",
        file="task.toml",
        field=field,
        value=value,
        remedy="Write a smaller number in one of the two files.",
    )
