"""Environment variables of a task: templates, secrets, CPU hints (seed "Environment variables and secrets").

Guarantees: only a whole value is a template; an embedded `${VAR}` is text. Nothing is looked up but in the
mappings that are handed in. All missing variables are reported at once, before anything starts, by name,
never by value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from taskfold.contract.errors import MissingVariable
from taskfold.contract.task_toml import TaskToml

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
"""A name is anything but `}` and `:`. The default runs to the last brace."""

_NOTHING: Mapping[str, str] = MappingProxyType({})

CPU_HINTS = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "NUMBA_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "POLARS_MAX_THREADS",
    "PYTEST_XDIST_AUTO_NUM_WORKERS",
    "DJANGO_TEST_PROCESSES",
    "GOMAXPROCS",
    "CARGO_BUILD_JOBS",
    "RAYON_NUM_THREADS",
    "RUST_TEST_THREADS",
    "UV_THREADPOOL_SIZE",
    "CMAKE_BUILD_PARALLEL_LEVEL",
)
"""Not MAKEFLAGS: it would change what a plain `make` does."""


@dataclass(frozen=True)
class Resolved:
    """The env tables of a task, filled. `verifier` is what is added to `sandbox` for test.sh."""

    sandbox: Mapping[str, str]
    verifier: Mapping[str, str]
    solution: Mapping[str, str]


def resolve(
    table: Mapping[str, str],
    host: Mapping[str, str],
    *,
    secrets: Mapping[str, str] = _NOTHING,
    field: str = "env",
) -> dict[str, str]:
    """`table` with its templates filled: from `secrets`, else from `host`, else the default.

    A variable that is set but empty counts as set. Raises MissingVariable with every variable that has no
    value; `field` names the table in its keys.
    """
    filled, missing = _fill(table, {**host, **secrets}, field)
    if missing:
        raise MissingVariable(missing)
    return filled


def resolve_task(
    config: TaskToml,
    host: Mapping[str, str],
    *,
    secrets: Mapping[str, str] = _NOTHING,
    solution: bool = False,
) -> Resolved:
    """All env tables that a run needs.

    Secrets fill [verifier].env only. [solution].env counts for an oracle only.
    """
    sandbox, missing = _fill(config.environment.env, host, "environment.env")
    verifier, more = _fill(config.verifier.env, {**host, **secrets}, "verifier.env")
    missing |= more
    oracle, more = _fill(config.solution.env if solution else {}, host, "solution.env")
    missing |= more
    if missing:
        raise MissingVariable(missing)
    return Resolved(sandbox, verifier, oracle)


def literals(table: Mapping[str, str]) -> dict[str, str]:
    """The part of an env table that is written out: what holds no template, and so no secret."""
    return {name: value for name, value in table.items() if _TEMPLATE.fullmatch(value) is None}


def cpu_hints(cpus: float | None) -> dict[str, str]:
    """Thread-count variables for a sandbox with a CPU limit: the limit rounded down, at least 1."""
    if cpus is None:
        return {}
    return dict.fromkeys(CPU_HINTS, str(max(1, math.floor(cpus))))


def with_cpu_hints(
    task: Mapping[str, str], cpus: float | None, *, image: Mapping[str, str] = _NOTHING
) -> dict[str, str]:
    """The sandbox's environment.

    A variable of the task wins over a hint, and so does one of the image on record.
    """
    hints = {name: value for name, value in cpu_hints(cpus).items() if name not in image}
    return {**hints, **task}


def _fill(table: Mapping[str, str], given: Mapping[str, str], field: str) -> tuple[dict[str, str], dict[str, str]]:
    """The filled table, and key → variable for what has no value."""
    filled: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, value in table.items():
        match = _TEMPLATE.fullmatch(value)
        if match is None:
            filled[name] = value
        elif match[1] in given:
            filled[name] = given[match[1]]
        elif match[2] is not None:
            filled[name] = match[2]
        else:
            missing[f"{field}.{name}"] = match[1]
    return filled, missing
