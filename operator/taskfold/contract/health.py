"""Health checks as data: a task's or a step's healthcheck table, an image's HEALTHCHECK, and how long they may take.

Guarantees: numbers of a task have no bounds there (C18), and get here the ones that keep a wait finite. An image's mean
what they mean to Docker, 0 and absence included; a HEALTHCHECK of a kind that Docker does not know is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.tables import HealthcheckTable
from taskfold.contract.task_toml import TaskToml

MOST_SECONDS = 21_600.0
"""All checks of a phase together: numbers that ask for more are those of a wait that is not meant to end."""
SLOW_FACTOR, SLOW_SECONDS = 1.1, 60.0
"""What a busy machine adds: a check must fail for its failures, and not for the time that they took."""
MOST_RETRIES = 2**31 - 1
LEAST_TIMEOUT = 0.001
"""A limit of 0 or less has run out when it begins."""
SETTLE_SECONDS = 1.0
"""What an ENTRYPOINT gets before the seed goes on: one that cannot work at all fails the seed, and not the rollout."""

NANOSECONDS = 1e9
DOCKER = {"Interval": 30.0, "Timeout": 30.0, "StartPeriod": 0.0, "StartInterval": 5.0}
"""What Docker takes for a duration that is absent or 0, in seconds."""
DOCKER_RETRIES = 3
DOCKER_SHELL = ("/bin/sh", "-c")


@dataclass(frozen=True)
class Healthcheck:
    """A command that is tried until it succeeds; seconds. `protocol.phase.Check` has the algorithm."""

    argv: tuple[str, ...]
    timeout_seconds: float
    interval_seconds: float
    start_interval_seconds: float
    start_period_seconds: float
    retries: int

    @property
    def longest(self) -> float:
        """Seconds that it can take, also where every start takes its time, at most MOST_SECONDS."""
        warming = self.start_period_seconds + self.timeout_seconds + self.start_interval_seconds
        counted = max(1, self.retries) * (self.timeout_seconds + self.interval_seconds)
        return min((warming + counted) * SLOW_FACTOR + SLOW_SECONDS, MOST_SECONDS)


def of_table(table: HealthcheckTable) -> Healthcheck:
    """[environment.healthcheck], or a step's; `command` is given to bash."""
    return Healthcheck(
        ("bash", "-c", table.command),
        timeout_seconds=max(LEAST_TIMEOUT, table.timeout_sec),
        interval_seconds=max(0.0, table.interval_sec),
        start_interval_seconds=max(0.0, table.start_interval_sec),
        start_period_seconds=max(0.0, table.start_period_sec),
        retries=min(max(0, table.retries), MOST_RETRIES),
    )


def of_image(config: ImageConfig) -> Healthcheck | None:
    """The image's HEALTHCHECK as OCI writes it; None for none."""
    found: Mapping[str, Any] = config.healthcheck or {}
    match found.get("Test") or ["NONE"]:
        case ["CMD", program, *arguments]:
            argv = (program, *arguments)
        case ["CMD-SHELL", command]:
            argv = (*(config.shell or DOCKER_SHELL), command)
        case _:
            return None
    seconds = {key: (found.get(key) or 0) / NANOSECONDS or default for key, default in DOCKER.items()}
    return Healthcheck(
        argv,
        timeout_seconds=seconds["Timeout"],
        interval_seconds=seconds["Interval"],
        start_interval_seconds=seconds["StartInterval"],
        start_period_seconds=seconds["StartPeriod"],
        retries=min(found.get("Retries") or DOCKER_RETRIES, MOST_RETRIES),
    )


def seed_seconds(task: TaskToml, recorded: ImageConfig | None) -> float:
    """How long the programs of a seed may take: the entrypoint's time to settle, and both checks; 0 for none.

    `recorded`: the image's configuration, if it is on record.
    """
    image = of_image(recorded) if recorded is not None else None
    own = of_table(task.environment.healthcheck) if task.environment.healthcheck is not None else None
    checks = sum(check.longest for check in (image, own) if check is not None)
    settle = SETTLE_SECONDS if recorded is not None and recorded.entrypoint else 0.0
    return min(checks, MOST_SECONDS) + settle
