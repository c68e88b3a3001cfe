"""Scenarios of tasks with several steps: one sandbox, turn after turn, and what can befall a run between and in them.

Guarantees: what a verification gives is written in the step's own tests/, so that a reward proves which files it saw.
"""

import json
from collections.abc import Mapping
from typing import Any

from taskfold.api.phases import Phase
from taskfold.effects import client as api
from tests.world import misfortunes
from tests.world.play import End, Scenario
from tests.world.programs import Behaviour, Program, Script
from tests.world.scenarios import CANCELLED, IMAGE, RUN, cancel, kill_operators, later, on, one
from tests.world.world import NOP, SCRIPT, Condition

NAMES = ("first", "Second_2", "third")
"""Two of them stand in the names of VerifierRuns as they are."""
VERIFIERS = {name: f"{RUN}-1-verify-{name}" for name in ("first", "third")} | {
    "Second_2": f"{RUN}-1-verify-second-2--2"
}
GRADE = "/tests/grade.json"


async def grades(program: Program) -> int:
    """A test.sh that gives what its step's tests/ say, and looks at what must not be there any more."""
    await program.sleep(1.0)
    stale = program.files.exists("/logs/verifier/stale")
    program.files.write("/logs/verifier/stale", b"of an earlier step")
    rewards = program.files.read(GRADE)
    if rewards and not stale:
        program.files.write("/logs/verifier/reward.json", rewards)
    return 0


async def works(program: Program) -> int:
    """An agent that finds what its step brought, and nothing of a verification."""
    await program.sleep(1.0)
    hidden = not program.files.exists(GRADE) and not program.files.exists("/logs/verifier/stale")
    return 0 if hidden and program.env["TASKFOLD_STEP"] in NAMES else 1


def folder(*grades_: Mapping[str, float] | None, toml: str = "", steps: str = "") -> dict[str, str | None]:
    """A task of so many steps, each with its rewards; None: its verifier writes nothing."""
    files: dict[str, str | None] = {"solution/solve.sh": None, "instruction.md": None}
    tables = []
    for name, rewards in zip(NAMES, grades_, strict=False):
        tables.append(f'[[steps]]\nname = "{name}"\n{steps}')
        below = f"steps/{name}"
        files[f"{below}/instruction.md"] = f"Do the {name}.\n"
        files[f"{below}/solution/solve.sh"] = "true\n"
        files[f"{below}/workdir/merged.txt"] = name
        files[f"{below}/workdir/setup.sh"] = "true\n"
        files[f"{below}/tests/grade.json"] = json.dumps(rewards) if rewards is not None else ""
    files["task.toml"] = toml + IMAGE + "\n".join(tables)
    return files


def stepped(
    name: str,
    *ends: End,
    files: Mapping[str, str | None] | None = None,
    programs: Mapping[str, Behaviour] | None = None,
    **more: Any,
) -> Scenario:
    files = files if files is not None else folder({"reward": 1.0}, {"reward": 0.5}, {"reward": 0.0})
    turns = sum(path.endswith("/instruction.md") for path in files)
    told = {"test": grades, **(programs or {})}
    return one(name, *ends, files=files, programs=told, turns=turns, agent=more.pop("agent", SCRIPT), **more)


# -- moments -------------------------------------------------------------------------------------------------------


def turn(number: int, program: str = "agent") -> Condition:
    """This program runs for the `number`th time, from 1, in any sandbox."""
    return lambda world: len(world.book.table.of(RUN, program)) >= number


def _turn_of(program: Program) -> int:
    """How often a program of this name was started for the run, this time included."""
    return len(program.box.book.table.of(RUN, program.name))


def busy(number: int, program: str) -> dict[str, Behaviour]:
    """This program takes long in this turn, and is quick in all others."""

    async def behave(running: Program) -> int:
        if _turn_of(running) == number:
            await running.sleep(300.0)
        return await (grades if program == "test" else works)(running)

    return {program: behave}


HALF = End(Phase.SUCCEEDED, "0.5")


def _masked(reason: str, kind: str = misfortunes.UNAVAILABLE) -> End:
    return End(Phase.MASKED, None, reason, kind)


def _fails(program: str, number: int) -> dict[str, Behaviour]:
    """This program fails from this turn on."""

    async def behave(running: Program) -> int:
        return 1 if _turn_of(running) >= number else 0

    return {program: behave}


ONE = {"reward": 1.0}
FINAL = 'multi_step_reward_strategy = "final"\n'
MIN = "min_reward = 0.75\n"
HEALTH = 'healthcheck = { command = "probe", retries = 2, interval_sec = 1 }\n'

CALM = [
    stepped("three steps, their mean", HALF, programs={"agent": works}),
    stepped(
        "three steps, the last one", End(Phase.SUCCEEDED, "0"), files=folder(ONE, ONE, {"reward": 0.0}, toml=FINAL)
    ),
    stepped("steps of an oracle", HALF, agent={"oracle": {}}),
    stepped("steps that nobody works on", HALF, agent=NOP),
    stepped(
        "a step below its least reward",
        End(Phase.SUCCEEDED, "0.75"),
        files=folder(ONE, {"reward": 0.5}, ONE, steps=MIN),
    ),
    stepped("a step without a reward", HALF, files=folder(ONE, None)),
    stepped(
        "steps without any reward",
        End(Phase.SUCCEEDED, "0", "RewardMissing", "harbor:missing_reward"),
        files=folder(None, None),
    ),
    stepped("steps with parts", End(Phase.SUCCEEDED, "1.25"), files=folder({"a": 1.0, "b": 0.5}, {"b": 1.0})),
    stepped(
        "steps with more rewards than a status holds",
        End(Phase.SUCCEEDED, "150"),
        files=folder({f"part {n:03}": 1.0 for n in range(200)}, {f"part {n:03}": 1.0 for n in range(100, 200)}),
    ),
    stepped("steps with health checks", HALF, files=folder(ONE, {"reward": 0.0}, steps=HEALTH)),
    stepped("an agent fails in a step", HALF, programs={"agent": Script(code=1)}),
    stepped(
        "the setup of the first step fails",
        End(Phase.FAILED, reason="StepSetupFailed"),
        programs=_fails("setup", 1),
    ),
    stepped("the setup of a later step fails", _masked("StepSetupFailed"), programs=_fails("setup", 2)),
    stepped(
        "a later step is not healthy",
        _masked("StepUnhealthy"),
        files=folder(ONE, ONE, steps=HEALTH),
        programs=_fails("healthcheck", 2),
    ),
    stepped("cancelled in the second step", CANCELLED, happens=on(turn(2), cancel), programs=busy(2, "agent")),
    stepped(
        "cancelled in the second verification", CANCELLED, happens=on(turn(2, "test"), cancel), programs=busy(2, "test")
    ),
    stepped(
        "an operator comes back in the second step",
        HALF,
        happens=later(turn(2), 100.0, kill_operators),
        programs=busy(2, "agent"),
    ),
    stepped(
        "an operator comes back in the second verification",
        HALF,
        happens=later(turn(2, "test"), 100.0, kill_operators),
        programs=busy(2, "test"),
    ),
    stepped(
        "the VerifierRun of a step is deleted",
        _masked("VerifierRunDeleted", misfortunes.ERROR),
        happens=on(turn(2, "test"), lambda world: world.delete(api.VERIFIERRUNS, VERIFIERS["Second_2"])),
        programs=busy(2, "test"),
    ),
    stepped(
        "the VerifierRuns of steps that are over are deleted",
        HALF,
        happens=on(turn(2), lambda world: world.delete(api.VERIFIERRUNS, VERIFIERS["first"])),
        programs=busy(2, "agent"),
    ),
]

LOST = [
    stepped(
        f"{loss.name}, in the second {where}",
        *loss.ends(),
        happens=on(turn(2, program), loss),
        programs=busy(2, program),
    )
    for loss in (misfortunes.FORCED, misfortunes.PRESSED, misfortunes.LIMIT)
    for where, program in (("step", "agent"), ("verification", "test"))
] + [
    stepped(
        "a loss by the agent in a later step counts as 0",
        *misfortunes.LIMIT.ends(Phase.SUCCEEDED, "0"),
        happens=on(turn(2), misfortunes.LIMIT),
        programs=busy(2, "agent"),
        onAgentCausedLoss="zero",
    ),
    stepped(
        "all steps again after a loss in the second one",
        HALF,
        happens=on(turn(2), misfortunes.FORCED),
        programs=busy(2, "agent"),
        retries={"infrastructure": 1},
    ),
]
