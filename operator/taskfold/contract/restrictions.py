"""Which network each sandbox of a task has, and which tables of a folder may say so.

Guarantees: a sandbox has one network from its beginning to its end, since connections that are open survive every
change; a folder that asks for another one in mid-life is refused, and never run under the wider of the two. What a
table says is never passed over in silence: it holds, or it is refused where it is written.

    gym      only the [verifier] table of a separate verifier restricts (seed "Shared and separate verification")
    harbor   an agent has the network of its step's [agent], else of [agent], else of [environment]; a verifier that of
             its step's [verifier], else of [verifier], else of what it works in. What comes before the agent, or before
             test.sh, runs under that too (C33), and so may not have been promised less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError

from taskfold.contract import dialect, layout, network, shape
from taskfold.contract.errors import TaskError
from taskfold.contract.network import Network, NetworkMode
from taskfold.contract.tables import EnvironmentTable
from taskfold.contract.task_toml import AgentTable, StepTable, TaskToml, VerifierMode, VerifierTable
from taskfold.contract.toml_file import FILE

Table = EnvironmentTable | AgentTable | VerifierTable

_ENVIRONMENT: shape.Location = ("environment",)
_FIXED = "a sandbox's network is never changed in mid-life: connections that are open would survive it"
_SEPARATE = 'environment_mode = "separate"'


@dataclass(frozen=True)
class Said:
    """A network, and the table that says it."""

    network: Network
    at: shape.Location


@dataclass(frozen=True)
class _Part:
    """A single-step task, or a step: who works, and who verifies.

    `explicit`: what a [verifier] says itself. `own`: what a separate verifier's [verifier.environment] says.
    """

    agent: Said
    mode: VerifierMode
    explicit: Said | None
    own: Said | None


def of_agent(config: TaskToml) -> Network:
    """What the agent's sandbox may reach; of a multi-step task in every step, or the task is refused."""
    return _parts(config)[0].agent.network


def of_verifier(verifier: VerifierTable, environment: EnvironmentTable) -> Network:
    """What a separate verifier's sandbox may reach.

    `verifier`: with the fallbacks of the task. `environment`: what its sandbox is made of.
    """
    table = verifier if verifier.network_mode is not None else environment
    return network.of(table.network_mode, table.allowed_hosts)


def restricted(config: TaskToml) -> tuple[Said, ...]:
    """Every restriction that a sandbox of the task is to have, once for each table that says it."""
    found = [_parts(config)[0].agent]
    for part in _parts(config):
        if part.mode is VerifierMode.SEPARATE:
            found.append(part.explicit or part.own or _said(config.environment, _ENVIRONMENT))
    return tuple({each.at: each for each in found if each.network.restricted}.values())


def refused(config: TaskToml, written: dict[str, Any], rules: dialect.Rules) -> Iterator[TaskError]:
    """What a table says that it may not say, or that no sandbox can have. `written`: task.toml as it is."""
    found = _changes(config) if rules.every_table_restricts else _wrong_tables(config)
    seen: set[tuple[shape.Location, str]] = set()
    for at, problem, remedy in found:
        if (at, problem) not in seen:
            seen.add((at, problem))
            yield _error(at, problem, remedy, written)


def warnings(config: TaskToml) -> Iterator[str]:
    """Where something runs under a stricter network than its table promises: what comes before the agent."""
    agent = _parts(config)[0].agent
    if agent.network != network.of(config.environment.network_mode, config.environment.allowed_hosts):
        field = shape.dotted((*agent.at, "network_mode"))
        yield (
            f"{FILE}: {field} holds for the agent's sandbox from its beginning: its image's entrypoint, health checks "
            f"and installation run under it too"
        )


def asked(mode: str, hosts: Sequence[str], *, file: str, field: str) -> Network:
    """The restriction that a custom resource asks for, by the rules of task.toml; with a folder's own both hold
    (`network.stricter`).

    `hosts`: as users write them. `field`: of the restriction in `file`. Raises TaskError for the first host that is
    none, with the rest in `others`.
    """
    problems, normal = [], []
    for index, host in enumerate(hosts):
        try:
            normal.append(network.allowed_host(host))
        except PydanticCustomError as error:
            at, said = f"{field}.allowedHosts[{index}]", error.context or {}
            problems.append(TaskError(said["problem"], file=file, field=at, value=host, remedy=said["remedy"]))
    if problems:
        first, *others = problems
        first.others = tuple(others)
        raise first
    return network.of(NetworkMode(mode), normal)


def key(at: shape.Location, written: dict[str, Any]) -> tuple[str, object]:
    """The key by which this table of task.toml restricts, and what it says there; None: nothing."""
    table: Any = written
    for part in at:
        table = table.get(part, {}) if isinstance(part, str) else table[part]
    name = "allow_internet" if "network_mode" not in table and "allow_internet" in table else "network_mode"
    return shape.dotted((*at, name)), table.get(name)


# -- what the tables say -----------------------------------------------------------------------------------------------


def _said(table: Table, at: shape.Location) -> Said:
    return Said(network.of(table.network_mode, table.allowed_hosts), at)


def _explicit(*places: tuple[AgentTable | VerifierTable, shape.Location]) -> Said | None:
    """The first of these that says something."""
    return next((_said(table, at) for table, at in places if table.network_mode is not None), None)


def _parts(config: TaskToml) -> tuple[_Part, ...]:
    environment = _said(config.environment, _ENVIRONMENT)
    if not config.steps:
        own = config.verifier.environment
        return (
            _Part(
                _explicit((config.agent, ("agent",))) or environment,
                config.verifier.mode,
                _explicit((config.verifier, ("verifier",))),
                _said(own, ("verifier", "environment")) if own is not None else None,
            ),
        )
    return tuple(_step(config, step, index, environment) for index, step in enumerate(config.steps))


def _step(config: TaskToml, step: StepTable, index: int, environment: Said) -> _Part:
    whole, at = layout.with_fallbacks(step, config).verifier, ("steps", index)
    below = (*at, "verifier", "environment") if step.verifier.environment is not None else ("verifier", "environment")
    return _Part(
        _explicit((step.agent, (*at, "agent")), (config.agent, ("agent",))) or environment,
        whole.mode,
        _explicit((step.verifier, (*at, "verifier")), (config.verifier, ("verifier",))),
        _said(whole.environment, below) if whole.environment is not None else None,
    )


# -- what they may not say ---------------------------------------------------------------------------------------------

_Refusal = tuple[shape.Location, str, str]
"""The table, what is wrong with what it says, and what to write instead."""


def _wrong_tables(config: TaskToml) -> Iterator[_Refusal]:
    """The contract's rule: all but a separate verifier's [verifier] is refused."""
    for said in _of_sandboxes(config):
        if said.network.restricted:
            problem = "restricts the network, which only the [verifier] table of a separate verifier may do"
            instead = "A run restricts its agent with spec.network.agent."
            yield said.at, problem, f"Remove it. {instead}" if "verifier" not in said.at else "Write it in [verifier]."
    for part in _parts(config):
        if part.mode is VerifierMode.SHARED and part.explicit is not None and part.explicit.network.restricted:
            problem = "restricts the network of a verifier that shares the agent's sandbox"
            yield part.explicit.at, problem, "Remove the key; only a separate verifier may be restricted."


def _of_sandboxes(config: TaskToml) -> Iterator[Said]:
    """What [environment], [agent] and [verifier.environment] say, wherever they stand, in that order."""
    steps = tuple(enumerate(config.steps or ()))
    yield _said(config.environment, _ENVIRONMENT)
    verifiers: list[tuple[VerifierTable, shape.Location]] = [(config.verifier, ("verifier",))]
    verifiers += [(step.verifier, ("steps", index, "verifier")) for index, step in steps]
    for verifier, at in verifiers:
        if verifier.environment is not None:
            yield _said(verifier.environment, (*at, "environment"))
    yield _said(config.agent, ("agent",))
    for index, step in steps:
        yield _said(step.agent, ("steps", index, "agent"))


def _changes(config: TaskToml) -> Iterator[_Refusal]:
    """Where a sandbox would have to change its network: from one phase to the next, from one step to the next."""
    environment, parts = _said(config.environment, _ENVIRONMENT), _parts(config)
    for part in parts:
        agent = part.agent
        if agent.network != parts[0].agent.network:
            problem = "gives one step another network than the first, and the agent's sandbox lives through all steps"
            yield agent.at, f"{problem}; {_FIXED}", "Write the same in every step."
        elif network.stricter(environment.network, agent.network) != agent.network:
            problem = "allows the agent what [environment] does not allow what comes before it in its sandbox"
            yield agent.at, f"{problem}; {_FIXED}", "Write the same in [environment]."
        if part.mode is VerifierMode.SHARED:
            yield from _of_shared(part, environment)
        elif part.explicit is not None and part.own is not None:
            explicit, own = part.explicit, part.own
            if network.stricter(own.network, explicit.network) != explicit.network:
                problem = "allows test.sh what [verifier.environment] does not allow what comes before it"
                yield explicit.at, f"{problem}; {_FIXED}", "Write the same in both tables."


def _of_shared(part: _Part, environment: Said) -> Iterator[_Refusal]:
    """A verifier in the agent's sandbox, that is to have another network than the agent had."""
    wanted = part.explicit or environment
    if wanted.network == part.agent.network:
        return
    if part.explicit is not None:
        problem = "gives a verifier that shares the agent's sandbox another network than the agent"
        yield part.explicit.at, f"{problem}; {_FIXED}", f"Write the same for both, or {_SEPARATE}."
    else:
        problem = "holds for the agent alone, and the verifier that shares its sandbox is to have [environment]'s"
        yield part.agent.at, f"{problem}; {_FIXED}", f"Write it in [environment] instead, or {_SEPARATE}."


def _error(at: shape.Location, problem: str, remedy: str, written: dict[str, Any]) -> TaskError:
    field, value = key(at, written)
    return TaskError(problem, file=FILE, field=field, value=value, remedy=remedy)
