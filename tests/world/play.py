"""Plays a scenario to its end, with or without misfortunes, and says what is wrong with it.

Guarantees: the same scenario with the same misfortunes and the same seed gives the same calls in the same order; a run
that does not end within the scenario's time is a problem like any other.
"""

import asyncio
import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskfold.api.phases import Phase
from taskfold.effects import client as api
from tests.world import border, processes
from tests.world.world import Prepare, World, run_of

Object = dict[str, Any]

SETTLE_SECONDS = 30.0
"""After the last run has completed: Events are written, connections end, late writers come back."""
SWEEP_SECONDS = 900.0
"""In this time the janitor has found what a late writer left."""


@dataclass(frozen=True)
class End:
    """How a run ends. `phase` None: it is gone."""

    phase: Phase | None
    reward: str | None = None
    reason: str | None = None
    kind: str | None = None

    @property
    def masked(self) -> bool:
        return self.phase is Phase.MASKED


GONE = End(None)


@dataclass(frozen=True, eq=False)
class Scenario:
    """`arrange` makes the objects and says what their programs do and what happens when. `ends`: by name of the run,
    how it may end. `seconds`: of the world's time, for all of it.
    """

    name: str
    arrange: Callable[[World], None]
    ends: Mapping[str, tuple[End, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 4000.0
    retained: frozenset[str] = frozenset()
    """Runs whose pods stay."""
    cgroup: int = 2
    turns: int = 1
    """How often an agent and a test.sh are started in one attempt: more than once only in a multi-step task."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Played:
    """What came of it. `calls`: of each operator, in the order of their starts."""

    problems: tuple[str, ...]
    calls: tuple[tuple[border.Call, ...], ...]
    ends: Mapping[str, End]
    starts: Mapping[tuple[str, str], int]
    seconds: float


Staging = Callable[[World], None]
"""Starts operators, and whatever goes wrong."""


def alone(*first: Prepare) -> Staging:
    """One operator at a time, started again when it was killed. `first`: what its first, … process has to expect."""
    return lambda world: world.keep_operator(first=first)


def together(world: World) -> None:
    """Two operators at once; nobody leads."""
    for _ in range(2):
        world.keep_operator()


def fenced(scenario: "Scenario", stops: Prepare) -> Staging:
    """The first operator is stopped where `stops` says. A second one does the rest; then the first goes on."""

    def stage(world: World) -> None:
        first = world.start_operator(prepare=stops)
        world.when(lambda _: first.border.stopped.is_set(), lambda _: world.after(1.0, replaced))

        def replaced(world: World) -> None:
            world.keep_operator()
            world.when(lambda _: ended(world, scenario), lambda _: world.after(1.0, lambda _: first.border.resume()))

    return stage


def play(scenario: Scenario, staging: Staging | None = None, *, seed: int = 0, late: bool = False) -> Played:
    """The scenario from its beginning to its end. `late`: an operator comes back that knows nothing of it."""
    return processes.run(lambda: _play(scenario, staging or alone(), seed, late=late), limit=scenario.seconds * 10)


@functools.cache
def undisturbed(scenario: Scenario) -> Played:
    """How it goes when nothing happens to its one operator: always the same, so it is played once in a process."""
    return play(scenario)


async def _play(scenario: Scenario, staging: Staging, seed: int, *, late: bool) -> Played:
    world, problems = World(seed=seed, settings=scenario.settings, cgroup=scenario.cgroup), list[str]()
    async with world.at_work():
        staging(world)
        scenario.arrange(world)
        try:
            await world.until(lambda now: not now.expects and ended(now, scenario), scenario.seconds)
        except TimeoutError:
            problems.append(f"not finished after {scenario.seconds:g} s: {standings(world)}")
        seconds = asyncio.get_running_loop().time()
        await asyncio.sleep(SETTLE_SECONDS)
        if late and left_over(world, scenario.retained):
            await asyncio.sleep(SWEEP_SECONDS)
        problems += left_over(world, scenario.retained)
    ends = {name: end_of(world, name) for name in scenario.ends}
    for name, end in ends.items():
        if end not in scenario.ends[name]:
            problems.append(f"{name} ended as {end}, not as {' or '.join(map(str, scenario.ends[name]))}")
    problems += [*world.broken(late=late), *started_twice(world, scenario.turns)]
    calls = tuple(tuple(each.border.calls) for each in world.operators)
    return Played(tuple(problems), calls, ends, starts(world), seconds)  # type: ignore[arg-type]


def ended(world: World, scenario: Scenario) -> bool:
    """Every run is where it can end."""
    return all(
        world.gone(name) or (ends[0] != GONE and world.status(name).get("complete", False))
        for name, ends in scenario.ends.items()
    )


def end_of(world: World, name: str) -> End:
    """How this run ended, as its status says."""
    status = world.status(name)
    failure: Object = status.get("failure") or {}
    phase = Phase(status["phase"]) if status.get("phase") else None
    return End(phase, status.get("reward"), failure.get("reason"), failure.get("kind"))


def starts(world: World) -> Mapping[tuple[str, str], int]:
    """By run and program, how often it was started."""
    return collections.Counter((start.run, start.name) for start in world.book.table.starts)


def started_twice(world: World, turns: int = 1) -> list[str]:
    """Programs that started more than once in a turn: in a sandbox, or the agent and test.sh in an attempt."""
    table = world.book.table.starts
    boxes = collections.Counter((each.pod, each.uid, each.phase, each.name) for each in table if each.attempt == 1)
    attempts = collections.Counter(
        (start.pod.rpartition("-")[0], start.name) for start in table if start.name in ("agent", "test")
    )
    often = [(pod, name, count) for (pod, _, _, name), count in boxes.items() if count > turns]
    often += [(attempt, name, count) for (attempt, name), count in attempts.items() if count > turns]
    return [f"{name} started {count} times in {where}" for where, name, count in often]


def left_over(world: World, retained: frozenset[str]) -> list[str]:
    """Pods of runs that are complete or gone. One on a node that does not answer was asked to go and cannot."""
    runs = world.server.all(api.TASKRUNS)
    at_work = {run["metadata"]["name"] for run in runs if not (run.get("status") or {}).get("complete")}
    found = []
    for pod in world.server.all(api.PODS):
        metadata, name = pod["metadata"], run_of(pod)
        node = world.nodes.kubelets.get(pod["spec"].get("nodeName", ""))
        stuck = node is not None and (node.dead or node.away) and "deletionTimestamp" in metadata
        if name and name not in at_work | retained and not stuck:
            found.append(f"pod {metadata['name']} is left over")
    return found + _restrictions(world, at_work | retained)


def _restrictions(world: World, wanted: set[str]) -> list[str]:
    """Policies and Services of ours whose runs are over."""
    listed = [each for resource in (api.NETWORKPOLICIES, api.SERVICES) for each in world.server.all(resource)]
    return [
        f"{each['kind']} {each['metadata']['name']} is left over"
        for each in listed
        if run_of(each) and run_of(each) not in wanted
    ]


def standings(world: World) -> Sequence[str]:
    """Where the runs stand that are not complete, in their own words."""
    return [
        f"{run['metadata']['name']}: {(run.get('status') or {}).get('phase')}, {_words(run)}"
        for run in world.server.all(api.TASKRUNS)
        if not (run.get("status") or {}).get("complete")
    ]


def _words(run: Object) -> str:
    conditions = (run.get("status") or {}).get("conditions") or ()
    return "; ".join(f"{each['type']} {each['reason']} {each.get('message', '')}" for each in conditions)
