"""Health checks as runs of the sandbox helper."""

from collections.abc import Mapping

from taskfold.contract import health
from taskfold.contract.tables import HealthcheckTable
from taskfold.protocol.phase import Check, Output, Run, User


def of_task(table: HealthcheckTable, *, name: str, env: Mapping[str, str], cwd: str | None, user: User | None) -> Run:
    """The check that [environment.healthcheck], or a step's, asks for.

    `name` comes back with the result. `env`: what every command of the sandbox gets beside the container's variables
    (templates, filled). `cwd`: the working directory. `user`: the image's own (C30). The run is over when an attempt
    succeeded, or when the check has failed: `RunResult.succeeded` says which, `attempts` how many there were. Where
    it fails, no later run of its phase is started. The phase that holds it needs a limit, at least `longest(run)`.
    """
    return of(health.of_table(table), name=name, env=env, cwd=cwd, user=user)


def of(found: health.Healthcheck, *, name: str, env: Mapping[str, str], cwd: str | None, user: User | None) -> Run:
    """The same for a check from wherever."""
    check = Check(found.interval_seconds, found.start_interval_seconds, found.start_period_seconds, found.retries)
    limit = found.timeout_seconds
    return Run(name, found.argv, Output(None), env, cwd, user, limit, continue_on_failure=False, check=check)


def longest(run: Run) -> float:
    """Seconds that a check can take, at most `health.MOST_SECONDS`."""
    if run.check is None or run.limit_seconds is None:
        raise ValueError(f"{run.name} is no check with a limit")
    check = run.check
    return health.Healthcheck(
        run.argv,
        run.limit_seconds,
        check.interval_seconds,
        check.start_interval_seconds,
        check.start_period_seconds,
        check.retries,
    ).longest
