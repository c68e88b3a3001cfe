"""Scenarios of separate verifications: out of the agent's sandbox, that one stopped, a fresh one, and what can befall
either.

Guarantees: a test.sh looks itself what has crossed, and gives 1 only if all that was declared is there as the agent
left it, and nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Any

from taskfold.api.phases import Phase
from taskfold.effects import client as api
from tests.world import limits, misfortunes, stepped
from tests.world.kinds import RESOURCEQUOTAS
from tests.world.play import GONE, End, Scenario
from tests.world.programs import Behaviour, Program, Script
from tests.world.scenarios import (
    CANCELLED,
    GRADED,
    IMAGE,
    LONG,
    RUN,
    cancel,
    complete,
    delete,
    kill_operators,
    later,
    no_longer_kept,
    on,
    one,
    runs,
)
from tests.world.stepped import HALF
from tests.world.world import NAMESPACE, NOP, SCRIPT, Condition, Object, World

VERIFIER, OWN = f"{RUN}-1-verify", f"{RUN}-1-verify-1"
SEPARATE = 'verifier.environment_mode = "separate"\n'
DECLARED = 'artifacts = ["/app/out.txt", "/app/data", "/app/never"]\n'
TOML = DECLARED + IMAGE + SEPARATE
HOOKS = TOML + 'verifier.collect = [{ command = "first" }]\n'

KEPT = {
    "/app/out.txt": b"the work",
    "/app/data/a": b"a",
    "/app/data/deep/b": b"b" * 100_000,
    "/logs/artifacts/report": b"all well",
}
"""What the agent leaves at declared paths, and of its own accord where everything is kept."""
PLANTED = (
    "/app/secret",
    "/tests/conftest.py",
    "/logs/verifier/reward.json",
    "/logs/agent/planted",
    "/root/.bashrc",
    "/tmp/planted",
    "/usr/bin/planted",
    "/etc/profile.d/planted.sh",
)
"""What it leaves elsewhere: none of it may be there for its verifier."""


async def works(program: Program) -> int:
    """An agent that does its work, and plants what it can."""
    await program.sleep(1.0)
    for path, content in {**KEPT, **dict.fromkeys(PLANTED, b"planted")}.items():
        program.files.make(path.rpartition("/")[0])
        program.files.write(path, content)
    return 0


def _crossed(program: Program) -> bool:
    """All that was declared, and nothing else."""
    files = program.files
    same = all(files.exists(path) and files.read(path) == content for path, content in KEPT.items())
    return same and not any(files.exists(path) for path in PLANTED)


def grades(seconds: float = 1.0) -> Behaviour:
    """A test.sh that looks what has crossed, works for so long, and gives its reward."""

    async def behave(program: Program) -> int:
        given = program.files.exists("/logs/agent/trajectory.json") and program.files.exists("/tests/test.sh")
        reward = b"1\n" if _crossed(program) and given else b"0\n"
        await program.sleep(seconds)
        program.files.write("/logs/verifier/reward.txt", reward)
        return 0

    return behave


def apart(
    name: str, *ends: End, toml: str = TOML, programs: Mapping[str, Behaviour] | None = None, **more: Any
) -> Scenario:
    """A scenario of one run that is graded in a sandbox of its own."""
    told = {"agent": works, "test": grades(), **(programs or {})}
    files = {"task.toml": toml, **more.pop("files", {})}
    return one(name, *ends, files=files, programs=told, agent=more.pop("agent", SCRIPT), **more)


def in_steps(name: str, *ends: End, **modes: str) -> Scenario:
    """A scenario of three steps, each with its mode. What an earlier step left is in the sandbox of the next."""
    files = stepped.folder({"reward": 1.0}, {"reward": 0.5}, {"reward": 0.0})
    toml = str(files["task.toml"])
    for step, key in zip(stepped.NAMES, ("first", "second", "third"), strict=True):
        mode = modes.get(key, "shared")
        toml = toml.replace(f'name = "{step}"\n', f'name = "{step}"\nverifier.environment_mode = "{mode}"\n')
    return stepped.stepped(name, *ends, files={**files, "task.toml": DECLARED + toml}, programs={"agent": works})


# -- moments and deeds ---------------------------------------------------------------------------------------------


def verifier(world: World, name: str = VERIFIER) -> Object:
    found = world.server.read(api.VERIFIERRUNS, NAMESPACE, name)
    return (found or {}).get("status") or {}


def verifier_in(*phases: str) -> Condition:
    """The verification's status says so."""
    return lambda world: verifier(world).get("phase") in phases


def own_pod(look: Callable[[Object], bool] = lambda pod: True) -> Condition:
    """The verifier's own pod is there, and looks like this."""

    def there(world: World) -> bool:
        pod = world.server.read(api.PODS, NAMESPACE, OWN)
        return pod is not None and look(pod)

    return there


def loses_own(loss: misfortunes.Loss) -> Callable[[World], None]:
    """This befalls the verifier's own pod."""

    def strike(world: World) -> None:
        if own_pod()(world):
            loss.strike(world, OWN)

    return strike


def _full(world: World) -> None:
    """No further pod has room, from now on."""
    metadata = {"name": "none", "namespace": NAMESPACE}
    world.server.put(RESOURCEQUOTAS, {"metadata": metadata, "spec": {"hard": {"pods": "0"}}})


def _room(world: World) -> None:
    world.server.remove(RESOURCEQUOTAS, NAMESPACE, "none")


def _told(reason: str) -> Condition:
    """The verification's conditions give this reason."""
    return lambda world: any(each["reason"] == reason for each in verifier(world).get("conditions") or ())


def _kubelet_away(world: World) -> None:
    """The node of the agent's pod goes silent, and comes back a little later: its pod ends so much later."""
    node = world.pods(RUN)[0]["spec"]["nodeName"]
    world.nodes.stop_kubelet(node)
    world.after(40.0, lambda world: world.nodes.start_kubelet(node))


def _both(*deeds: Callable[[World], None]) -> Callable[[World], None]:
    def do(world: World) -> None:
        for deed in deeds:
            deed(world)

    return do


def regrade(name: str = "again", *, by_name: bool = False, **spec: Any) -> Callable[[World], None]:
    """Somebody grades the complete run again, and waits for the verdict."""

    def ask(world: World) -> None:
        run = world.server.read(api.TASKRUNS, NAMESPACE, RUN)
        if run is None:
            return
        reference = {"name": RUN} if by_name else {"name": RUN, "uid": run["metadata"]["uid"]}
        world.apply(api.VERIFIERRUNS, name, {"source": {"runRef": reference}, "mode": "separate", **spec})

    def graded(world: World) -> bool:
        found = verifier(world, name)
        return bool(found.get("complete")) and found.get("reward") == world.status(RUN).get("reward")

    return _both(on(complete, ask), on(graded, lambda world: None))


def _short_lived(world: World) -> None:
    """It goes when its time is over; the run that it graded stays."""
    regrade("again", ttlSecondsAfterFinished=30)(world)
    graded = lambda world: bool(verifier(world, "again").get("complete"))  # noqa: E731
    gone = lambda world: world.server.read(api.VERIFIERRUNS, NAMESPACE, "again") is None  # noqa: E731
    world.when(graded, lambda world: world.when(gone, lambda world: None))


MASKED = End(Phase.MASKED, None, "PodDeleted", misfortunes.UNAVAILABLE)
LONG_TEST = grades(300.0)

CALM = [
    apart("separate: what is declared crosses, and nothing else", GRADED),
    apart("separate: of an oracle", End(Phase.SUCCEEDED, "0"), agent={"oracle": {}}, programs={"agent": Script()}),
    apart("separate: nobody works", End(Phase.SUCCEEDED, "0"), agent=NOP),
    apart("separate: hooks", GRADED, toml=HOOKS, programs={"hook 1": LONG}),
    apart(
        "separate: no artifacts at all", End(Phase.SUCCEEDED, "0"), toml=IMAGE + SEPARATE, programs={"agent": Script()}
    ),
    apart("separate: pods are kept", GRADED, podRetention="Always", retained=True),
    apart("separate: pods that are no longer kept", GRADED, happens=no_longer_kept, podRetention="Always"),
    apart(
        "separate: a quota that gets room",
        GRADED,
        happens=_both(on(runs("agent"), _full), later(_told("QuotaExceeded"), 60.0, _room)),
    ),
    apart(
        "separate: a quota that stays full",
        End(Phase.MASKED, None, "QuotaExceeded", misfortunes.UNAVAILABLE),
        happens=on(runs("agent"), _full),
        settings=limits.SHORT_QUEUE,
    ),
    apart("separate: cancelled at its export", CANCELLED, happens=on(verifier_in("Closing"), cancel)),
    apart("separate: cancelled while the agent's pod stops", CANCELLED, happens=on(verifier_in("Queued"), cancel)),
    apart("separate: cancelled once it has its pod", CANCELLED, happens=on(own_pod(), cancel)),
    apart("separate: cancelled at test.sh", CANCELLED, happens=on(runs("test"), cancel), programs={"test": LONG_TEST}),
    apart("separate: deleted at test.sh", GONE, happens=on(runs("test"), delete), programs={"test": LONG_TEST}),
    apart(
        "separate: an operator comes back at test.sh",
        GRADED,
        happens=later(runs("test"), 100.0, kill_operators),
        programs={"test": LONG_TEST},
    ),
    apart("separate: graded again", GRADED, happens=regrade()),
    apart("separate: graded again, by the name of the run", GRADED, happens=regrade(by_name=True)),
    apart("separate: graded again, for a while", GRADED, happens=_short_lived),
    apart("separate: graded again, twice at once", GRADED, happens=_both(regrade("again"), regrade("and-again"))),
    in_steps("separate: steps, the second one", HALF, second="separate"),
    in_steps("separate: steps, the last one", HALF, third="separate"),
    in_steps("separate: all steps", HALF, first="separate", second="separate", third="separate"),
]

LOST = [
    apart(
        f"separate: its pod is {loss.name}, {stage}",
        GRADED if program is None else End(Phase.MASKED, None, loss.reasons[0], loss.kind),
        happens=on(own_pod() if program is None else runs(program), loses_own(loss)),
        programs={"test": LONG_TEST if program else grades()},
    )
    for loss in (misfortunes.FORCED, misfortunes.PRESSED)
    for stage, program in (("before test.sh", None), ("at test.sh", "test"))
] + [
    apart(
        "separate: the agent's pod ends late",
        GRADED,
        happens=on(verifier_in("Queued"), _kubelet_away),
    ),
    apart(
        "separate: the agent's pod is lost at its export",
        MASKED,
        happens=on(runs("hook 1"), misfortunes.FORCED),
        toml=HOOKS,
        programs={"hook 1": LONG},
    ),
    apart(
        "separate: its VerifierRun is deleted",
        End(Phase.MASKED, None, "VerifierRunDeleted", misfortunes.ERROR),
        happens=on(runs("test"), lambda world: world.delete(api.VERIFIERRUNS, VERIFIER)),
        programs={"test": LONG_TEST},
    ),
    apart(
        "separate: the store is away at its export",
        GRADED,
        happens=on(verifier_in("Closing"), limits.STORE_AWAY),
    ),
]
