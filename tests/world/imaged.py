"""Scenarios of an image on record: RUN lines, an entrypoint beside the phases, health checks.

Guarantees: what an entrypoint does is bound to what its sandbox holds, never to a moment, so that it dies in the same
stage however long an operator was away.
"""

from dataclasses import dataclass, replace

from taskfold.api.phases import Phase
from taskfold.contract import dockerfile
from taskfold.effects import registry
from tests.world.play import End, Scenario
from tests.world.programs import REWARD, Behaviour, Program, Script
from tests.world.scenarios import GRADED, HANGS, LONG, cancel, kill_operators, later, on, one, runs
from tests.world.world import NOP, SCRIPT, World

DIE = "/tmp/die"
ORDER = "/order"
BASE = "python:3.12-slim"
HEALTHCHECK = '[environment.healthcheck]\ncommand = "is it up"\ninterval_sec = 10\nretries = 3\n'
FROM = {"task.toml": "", "environment/Dockerfile": f"FROM {BASE}\n"}
CHECKED = {**FROM, "task.toml": HEALTHCHECK}
OVERLAID = {**FROM, "environment/Dockerfile": f"FROM {BASE}\nRUN first\nWORKDIR /made/here\nRUN second\n"}
PLAIN = dockerfile.ImageConfig(shell=("bash", "-c"))
ENTRYPOINT = replace(PLAIN, entrypoint=("bash", "/entry.sh"))
WHOLE = replace(ENTRYPOINT, healthcheck={"Test": ["CMD", "bash", "/up.sh"]})
AT_ONCE = Script(0.0)


def recorded(config: dockerfile.ImageConfig, *more: object) -> "Arranged":
    """The registry knows the image of `FROM`. `more`: what else happens."""
    return Arranged(config, more)


@dataclass(frozen=True)
class Arranged:
    config: dockerfile.ImageConfig
    more: tuple[object, ...]

    def __call__(self, world: World) -> None:
        digest = "sha256:" + "4" * 64
        world.images[BASE] = registry.ImageRecord(digest, digest, self.config)
        for happens in self.more:
            happens(world)  # type: ignore[operator]


@dataclass(frozen=True)
class Notes:
    """A program that adds its name to a file, and then does something."""

    then: Behaviour

    async def __call__(self, program: Program) -> int:
        found = program.files.read(ORDER) if program.files.find(ORDER) is not None else b""
        program.files.write(ORDER, found + program.name.encode() + b"\n")
        return await self.then(program)


@dataclass(frozen=True)
class Until:
    """An entrypoint that ends when somebody wishes it, with this code."""

    code: int

    async def __call__(self, program: Program) -> int:
        while program.files.find(DIE) is None:
            await program.sleep(0.5)
        return self.code


@dataclass(frozen=True)
class Wishes:
    """A program that has the entrypoint end, and goes on for a while."""

    seconds: float = 60.0
    reward: str | None = None

    async def __call__(self, program: Program) -> int:
        program.files.write(DIE, b"")
        await program.sleep(self.seconds)
        if self.reward is not None:
            program.files.write(REWARD, f"{self.reward}\n".encode())
        return 0


@dataclass(frozen=True)
class Third:
    """A check whose third attempt succeeds."""

    async def __call__(self, program: Program) -> int:
        mark = "/attempts"
        found = program.files.read(mark) if program.files.find(mark) is not None else b""
        program.files.write(mark, found + b"x")
        return 0 if len(found) >= 2 else 1


@dataclass(frozen=True)
class InOrder:
    """A test.sh that gives 1 if the programs before it ran in this order."""

    names: tuple[str, ...]

    async def __call__(self, program: Program) -> int:
        found = program.files.read(ORDER).decode().split("\n")[:-1]
        program.files.write(REWARD, b"1\n" if tuple(found) == self.names else b"0\n")
        return 0


def dies(stage: str, **programs: Behaviour) -> Scenario:
    """An entrypoint that dies beside something."""
    end = End(Phase.MASKED, None, "EntrypointFailed", "harbor:entrypoint_failed")
    more = {"entrypoint": Until(7), **{name.replace("_", " "): what for name, what in programs.items()}}
    hooks = {"task.toml": 'verifier.collect = [{ command = "first" }]\n'} if "hook_1" in programs else {}
    agent = SCRIPT if "agent" in programs else NOP
    files = {**FROM, **hooks}
    return one(
        f"the entrypoint dies beside {stage}",
        end,
        happens=recorded(ENTRYPOINT),
        files=files,
        agent=agent,
        programs=more,
    )


def _failed(reason: str) -> End:
    return End(Phase.FAILED, reason=reason)


LINES = ("line 2: RUN first", "line 4: RUN second")
SEEDED = (*LINES, "entrypoint", "HEALTHCHECK", "[environment.healthcheck]", "agent")

CALM = [
    one(
        "all that an image and its task want before the agent",
        GRADED,
        happens=recorded(WHOLE),
        agent=SCRIPT,
        files={**OVERLAID, "task.toml": HEALTHCHECK},
        programs={
            **{name: Notes(AT_ONCE) for name in SEEDED},
            "entrypoint": Notes(HANGS),
            "test": InOrder(SEEDED),
        },
    ),
    one(
        "an entrypoint that ends well beside the agent",
        GRADED,
        happens=recorded(ENTRYPOINT),
        files=FROM,
        agent=SCRIPT,
        programs={"entrypoint": Until(0), "agent": Wishes()},
    ),
    one(
        "a check that succeeds at last",
        GRADED,
        happens=recorded(PLAIN),
        files=CHECKED,
        programs={"[environment.healthcheck]": Third()},
    ),
    one(
        "a check that takes so long that nobody waits for it",
        GRADED,
        happens=recorded(PLAIN, later(runs("[environment.healthcheck]"), 200.0, kill_operators)),
        files={**CHECKED, "task.toml": HEALTHCHECK + "timeout_sec = 900\n"},
        programs={"[environment.healthcheck]": LONG},
    ),
    one(
        "an operator comes back, a RUN line at work",
        GRADED,
        happens=recorded(PLAIN, later(runs("line 2: RUN first"), 100.0, kill_operators)),
        files=OVERLAID,
        programs={"line 2: RUN first": LONG},
    ),
    one(
        "cancelled, a RUN line at work",
        End(Phase.CANCELLED, reason="Cancelled"),
        happens=recorded(PLAIN, on(runs("line 2: RUN first"), cancel)),
        files=OVERLAID,
        programs={"line 2: RUN first": LONG},
    ),
    one(
        "an entrypoint that fails at seed",
        _failed("EntrypointFailed"),
        happens=recorded(WHOLE),
        files=FROM,
        programs={"entrypoint": Script(0.2, code=3)},
    ),
    one(
        "an entrypoint that fails beside its health check",
        _failed("EntrypointFailed"),
        happens=recorded(WHOLE),
        files=FROM,
        programs={"entrypoint": Until(3), "HEALTHCHECK": Wishes()},
    ),
    one(
        "a check that never succeeds",
        _failed("HealthcheckFailed"),
        happens=recorded(PLAIN),
        files=CHECKED,
        programs={"[environment.healthcheck]": Script(code=1)},
    ),
    one(
        "a RUN line that fails",
        _failed("RunLineFailed"),
        happens=recorded(PLAIN),
        files=OVERLAID,
        programs={"line 2: RUN first": Script(code=4), "line 4: RUN second": Script()},
    ),
    one(
        "RUN lines over the limit of a build",
        _failed("RunLineFailed"),
        happens=recorded(PLAIN),
        files={**OVERLAID, "task.toml": "environment.build_timeout_sec = 90\n"},
        programs={"line 2: RUN first": Script(60.0), "line 4: RUN second": HANGS},
    ),
    dies("the agent", agent=Wishes()),
    dies("a hook", hook_1=Wishes()),
    dies("test.sh", test=Wishes(reward="1")),
    one(
        "an entrypoint that an agent kills counts as 0 where that is asked for",
        End(Phase.SUCCEEDED, "0", "EntrypointFailed", "harbor:entrypoint_failed"),
        happens=recorded(ENTRYPOINT),
        files=FROM,
        agent=SCRIPT,
        programs={"entrypoint": Until(7), "agent": Wishes()},
        onAgentCausedLoss="zero",
    ),
]
