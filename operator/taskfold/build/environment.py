"""Which variables a container has by its manifest, and which travel with a command.

Guarantees: what a template could fill never stands in a manifest: it may come from a Secret. It is sent over stdin
with the command that needs it.
"""

from collections.abc import Mapping

from taskfold.api.settings import PodSettings
from taskfold.api.taskrun import TaskRun
from taskfold.build import resources
from taskfold.contract import environment as contract
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Task


def of_container(run: TaskRun, task: Task, recorded: RecordedImage | None, defaults: PodSettings) -> dict[str, str]:
    """Variables of the sandbox that are no secret: CPU hints, the Dockerfile's, the task's literal ones."""
    image = recorded.config.env if recorded is not None else {}
    hints = contract.with_cpu_hints({}, resources.cpus(run, task, defaults), image=image)
    return {**hints, **image, **contract.literals(task.config.environment.env)}


def of_commands(task: Task, sandbox: Mapping[str, str]) -> dict[str, str]:
    """The rest of the sandbox's variables, for every command: templates, filled."""
    literal = contract.literals(task.config.environment.env)
    return {name: value for name, value in sandbox.items() if name not in literal}
