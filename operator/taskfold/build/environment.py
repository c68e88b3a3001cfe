"""Which variables a container has by its manifest, and which travel with a command.

Guarantees: what a template could fill never stands in a manifest: it may come from a Secret. It is sent over stdin
with the command that needs it.
"""

from collections.abc import Mapping

from taskfold.api.taskrun import TaskRun
from taskfold.contract import environment as contract
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Task


def of_container(run: TaskRun, task: Task, recorded: RecordedImage | None) -> dict[str, str]:
    """Variables of the sandbox that are no secret: CPU hints, the Dockerfile's, the task's literal ones."""
    image = recorded.config.env if recorded is not None else {}
    return {**_hints(run, task, recorded), **image, **contract.literals(task.config.environment.env)}


def of_commands(task: Task, sandbox: Mapping[str, str]) -> dict[str, str]:
    """The rest of the sandbox's variables, for every command: templates, filled."""
    literal = contract.literals(task.config.environment.env)
    return {name: value for name, value in sandbox.items() if name not in literal}


def _hints(run: TaskRun, task: Task, recorded: RecordedImage | None) -> dict[str, str]:
    factor = run.spec.multipliers.resource if run.spec.multipliers else 1.0
    cpus = task.config.environment.cpus
    image = recorded.config.env if recorded is not None else {}
    return contract.with_cpu_hints({}, cpus * factor if cpus is not None else None, image=image)
