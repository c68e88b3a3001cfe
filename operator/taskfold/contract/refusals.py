"""What a valid task folder may not ask for: ever, or for now.

Guarantee: nothing that this release leaves undone is passed over in silence. A key whose note says "refused
for now" is refused wherever it is set; the rest are the rules below. Each rule yields every problem that it
finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from taskfold.contract import dataset, layout, shape, users
from taskfold.contract.errors import TaskError
from taskfold.contract.network import NetworkMode
from taskfold.contract.tables import EnvironmentTable, Os, Table
from taskfold.contract.task_toml import AgentTable, TaskToml, VerifierMode, VerifierTable
from taskfold.contract.toml_file import FILE
from taskfold.contract.values import Status


def of_contract(config: TaskToml, written: dict[str, Any]) -> Iterator[TaskError]:
    """What the contract itself, or a Kubernetes cluster, refuses."""
    environments: list[tuple[shape.Location, EnvironmentTable]] = [(("environment",), config.environment)]
    if config.verifier.environment is not None:
        environments.append((("verifier", "environment"), config.verifier.environment))
    restricted: list[tuple[shape.Location, EnvironmentTable | AgentTable]] = [*environments]
    restricted.append((("agent",), config.agent))
    for index, step in enumerate(config.steps or ()):
        restricted.append((("steps", index, "agent"), step.agent))
        if step.verifier.environment is not None:
            restricted.append((("steps", index, "verifier", "environment"), step.verifier.environment))
    for location, table in restricted:
        if table.network_mode not in (None, NetworkMode.PUBLIC):
            yield _restriction(location, table.network_mode, written)
    yield from _shared_restrictions(config)
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


def _shared_restrictions(config: TaskToml) -> Iterator[TaskError]:
    """A shared verifier has the agent's network."""
    verifiers: list[tuple[shape.Location, VerifierTable]] = [(("verifier",), config.verifier)]
    for index, step in enumerate(config.steps or ()):
        verifiers.append((("steps", index, "verifier"), layout.with_fallbacks(step, config).verifier))
    for location, verifier in verifiers:
        restricted = verifier.network_mode not in (None, NetworkMode.PUBLIC)
        if restricted and verifier.mode is VerifierMode.SHARED:
            yield TaskError(
                "restricts the network of a verifier that shares the agent's sandbox",
                file=FILE,
                field=shape.dotted((*location, "network_mode")),
                value=verifier.network_mode,
                remedy="Remove the key; only a separate verifier may be restricted.",
            )


def of_inputs(config: TaskToml, inputs: tuple[str, ...], name: str) -> Iterator[TaskError]:
    """Sidecar inputs are read where they were written: in the agent's sandbox."""
    modes = (
        [config.verifier.mode]
        if not config.steps
        else [layout.with_fallbacks(step, config).verifier.mode for step in config.steps]
    )
    if inputs and VerifierMode.SEPARATE in modes:
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
    if verifier.environment_mode is VerifierMode.SEPARATE:
        yield _unsupported(
            "verification in a separate sandbox",
            (*location, "environment_mode"),
            "separate",
            'write "shared"',
        )
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


def _restriction(location: shape.Location, mode: NetworkMode | None, written: dict[str, Any]) -> TaskError:
    table: Any = written
    for part in location:
        table = table[part]
    old = "network_mode" not in table and "allow_internet" in table
    return TaskError(
        "restricts the network, which only the [verifier] table of a separate verifier may do",
        file=FILE,
        field=shape.dotted((*location, "allow_internet" if old else "network_mode")),
        value=table["allow_internet"] if old else mode,
        remedy='Remove it, or write "public".' if not old else "Remove it.",
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
