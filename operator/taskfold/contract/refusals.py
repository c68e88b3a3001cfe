"""What a valid task folder may not ask for: ever, or for now.

Guarantee: nothing that this release leaves undone is passed over in silence. A key whose note says "refused
for now" is refused wherever it is set; the rest are the rules below. Each rule yields every problem that it
finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from taskfold.contract import dataset, dialect, restrictions, separate, shape, users
from taskfold.contract.errors import TaskError
from taskfold.contract.tables import EnvironmentTable, Os, Table
from taskfold.contract.task_toml import TaskToml, VerifierMode, VerifierTable
from taskfold.contract.toml_file import FILE
from taskfold.contract.values import Status


def of_contract(config: TaskToml, written: dict[str, Any], rules: dialect.Rules) -> Iterator[TaskError]:
    """What the contract itself, or a Kubernetes cluster, refuses. `written`: task.toml as it is."""
    environments: list[tuple[shape.Location, EnvironmentTable]] = [(("environment",), config.environment)]
    environments += _verifiers_environments(config)
    yield from restrictions.refused(config, written, rules)
    for location, environment in environments:
        if environment.os is Os.WINDOWS:
            yield TaskError(
                "is not run here: the sandboxes are Linux containers",
                file=FILE,
                field=shape.dotted((*location, "os")),
                value="windows",
                remedy='Write "linux" and use a Linux image.',
            )
    yield from _groups(config)


def _verifiers_environments(config: TaskToml) -> Iterator[tuple[shape.Location, EnvironmentTable]]:
    """Every [verifier.environment], where it is written."""
    if config.verifier.environment is not None:
        yield ("verifier", "environment"), config.verifier.environment
    for index, step in enumerate(config.steps or ()):
        if step.verifier.environment is not None:
            yield ("steps", index, "verifier", "environment"), step.verifier.environment


def of_inputs(config: TaskToml, inputs: tuple[str, ...], name: str) -> Iterator[TaskError]:
    """Sidecar inputs are read where they were written: in the agent's sandbox."""
    if inputs and any(each.verifier.mode is VerifierMode.SEPARATE for each in separate.verifications(config)):
        yield TaskError(
            "needs shared verification, and the task is verified in a separate sandbox",
            file=dataset.FILE,
            field=shape.dotted(("gym", "tasks", name, "verifier", "inputs")),
            remedy="Remove the inputs, and name what the sidecar writes in the task's artifacts.",
        )


def not_yet(config: TaskToml) -> Iterator[TaskError]:
    """What later releases do; `unsupported` is set on each."""
    yield from _noted(config, ())
    yield from _verifier_not_yet(config.verifier, ("verifier",))
    for index, step in enumerate(config.steps or ()):
        yield from _verifier_not_yet(step.verifier, ("steps", index, "verifier"))


def _verifier_not_yet(verifier: VerifierTable, location: shape.Location) -> Iterator[TaskError]:
    for index, hook in enumerate(verifier.collect):
        if hook.service != "main":
            at = (*location, "collect", index, "service")
            yield _unsupported("a hook in another service", at, hook.service, 'write "main"')


def _noted(table: Table, location: shape.Location) -> Iterator[TaskError]:
    """Keys that are set although their note says "refused for now"; empty lists and 0 ask for nothing."""
    for name, field in type(table).model_fields.items():
        if name not in table.model_fields_set:
            continue
        key, value, here = shape.key_of(field), getattr(table, name), (*location, name)
        if name in separate.OF_AGENTS and location[-2:] == ("verifier", "environment"):
            continue  # without effect there, now and later
        if key.status is Status.NOT_YET:
            if value:
                yield _unsupported(key.feature, here, value, key.write)
        elif isinstance(value, Table):
            yield from _noted(value, here)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, Table):
                    yield from _noted(item, (*here, index))


def _groups(config: TaskToml) -> Iterator[TaskError]:
    places: list[tuple[shape.Location, int | str | None]] = [
        (("agent", "user"), config.agent.user),
        (("verifier", "user"), config.verifier.user),
    ]
    for index, step in enumerate(config.steps or ()):
        places.append((("steps", index, "agent", "user"), step.agent.user))
        places.append((("steps", index, "verifier", "user"), step.verifier.user))
    tables: list[tuple[shape.Location, VerifierTable]] = [(("verifier",), config.verifier)]
    tables += [(("steps", index, "verifier"), step.verifier) for index, step in enumerate(config.steps or ())]
    for location, table in tables:
        for index, hook in enumerate(table.collect):
            places.append(((*location, "collect", index, "user"), hook.user))
    for location, user in places:
        if users.has_group(user):
            yield TaskError(
                "names a group, which works with Docker only",
                file=FILE,
                field=shape.dotted(location),
                value=user,
                remedy="Name the user alone; its groups come from the image's /etc/group.",
            )


def _unsupported(feature: str, location: shape.Location, value: object, remedy: str) -> TaskError:
    return TaskError(
        feature,
        file=FILE,
        field=shape.dotted(location),
        value=value,
        remedy=remedy[:1].lower() + remedy[1:],
        unsupported=True,
    )
