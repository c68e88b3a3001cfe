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

from taskfold.contract import separate
from taskfold.contract.errors import MissingVariable, TaskError
from taskfold.contract.task_toml import TaskToml
from taskfold.contract.toml_file import FILE

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
"""A name is anything but `}` and `:`. The default runs to the last brace."""

_NOTHING: Mapping[str, str] = MappingProxyType({})

MAX_VARIABLE = 128 * 1024
"""Bytes of a variable: name, =, value and a NUL, as Linux counts them (MAX_ARG_STRLEN)."""
MAX_TABLE = 512 * 1024
"""Bytes of all variables of a table, counted likewise: they go with a command in one request of 1 MiB."""

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

    Secrets fill [verifier].env and [steps.verifier].env only, not the env of a [verifier.environment]. [solution].env
    counts for an oracle only. Raises MissingVariable, and TaskError for a value that Linux takes for no variable.
    """
    known = {**host, **secrets}
    tables: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
        "environment.env": (config.environment.env, host),
        "verifier.env": (config.verifier.env, known),
        "solution.env": (config.solution.env if solution else {}, host),
    }
    for index, step in enumerate(config.steps or ()):
        tables[f"steps[{index}].verifier.env"] = (step.verifier.env, known)
    tables |= {f"{name}.env": (table.env, host) for name, table in separate.environments(config)}
    found = {field: _fill(table, given, field) for field, (table, given) in tables.items()}
    missing = {key: name for _, absent in found.values() for key, name in absent.items()}
    if missing:
        raise MissingVariable(missing)
    filled = {field: values for field, (values, _) in found.items()}
    for field, values in filled.items():
        _check(values, field)
    return Resolved(filled["environment.env"], filled["verifier.env"], filled["solution.env"])


def _check(values: Mapping[str, str], field: str) -> None:
    """Each value can be a variable, and all of a table together can be sent with a command."""
    sizes = {name: len(f"{name}={value}".encode()) + 1 for name, value in values.items()}
    for name, value in values.items():
        if "\0" in value:
            raise TaskError(
                "is filled with a text that has a NUL, which no variable can hold",
                file=FILE,
                field=f"{field}.{name}",
                remedy="Put such a value into a file of the task or the image, or encode it.",
            )
        if sizes[name] > MAX_VARIABLE:
            raise TaskError(
                f"is filled with {sizes[name]:,} bytes, name included; Linux takes {MAX_VARIABLE:,} for a variable",
                file=FILE,
                field=f"{field}.{name}",
                remedy="Put a large value into a file of the task or the image.",
            )
    if sum(sizes.values()) > MAX_TABLE:
        text = f"has {sum(sizes.values()):,} bytes once it is filled, more than {MAX_TABLE:,}"
        raise TaskError(text, file=FILE, field=field, remedy="Put large values into files of the task or the image.")


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
