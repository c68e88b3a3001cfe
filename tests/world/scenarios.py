"""What runs go through: each scenario makes objects and programs, says what happens when, and how it has to end.

Guarantees: an end does not depend on how fast an operator is, nor on whether it dies on the way: what happens is bound
to what can be seen in the world (a phase, a program that runs), never to a moment.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from taskfold.api.phases import Phase
from taskfold.contract import dockerfile
from taskfold.effects import client as api
from taskfold.effects import errors, registry
from tests.world import faults, sandbox
from tests.world.play import GONE, End, Scenario
from tests.world.programs import REWARD, Behaviour, Script, rewarded
from tests.world.world import NAMESPACE, NOP, SCRIPT, STOPPED, Condition, Deed, Object, World

RUN = "one"
GRADED = End(Phase.SUCCEEDED, "1")
CANCELLED = End(Phase.CANCELLED, reason="Cancelled")
LONG = Script(seconds=300.0)
"""A program that still works when an operator comes back."""
LONG_TEST = rewarded(seconds=300.0)
HANGS = Script(hangs=True)

IMAGE = 'environment.docker_image = "python:3.12-slim"\n'
HOOKS = IMAGE + 'verifier.collect = [{ command = "first" }, { command = "second" }]\n'
TIMED = IMAGE + "agent.timeout_sec = 60\nverifier.timeout_sec = 60\n"
MANY = {f"part {number:03}": 1.0 for number in range(200)}


def one(
    name: str,
    *ends: End,
    programs: Mapping[str, Behaviour] | None = None,
    happens: Callable[[World], None] = lambda world: None,
    settings: Mapping[str, Any] | None = None,
    seconds: float = 4000.0,
    cgroup: int = 2,
    retained: bool = False,
    turns: int = 1,
    **spec: Any,
) -> Scenario:
    """A scenario of one run."""

    def arrange(world: World) -> None:
        world.book.runs[RUN] = dict(programs or {})
        happens(world)
        world.create(RUN, **spec)

    kept = frozenset({RUN}) if retained else frozenset[str]()
    return Scenario(name, arrange, {RUN: ends}, settings or {}, seconds, kept, cgroup, turns)


# -- moments -------------------------------------------------------------------------------------------------------


def in_phase(*phases: str) -> Condition:
    """The run's status says so."""
    return lambda world: world.status(RUN).get("phase") in phases


def runs(program: str) -> Condition:
    """This program of the run has been started, in any sandbox."""
    return lambda world: any(start.name == program for start in world.book.table.of(RUN))


def waits(reason: str) -> Condition:
    """The run's conditions give this reason."""
    return lambda world: any(each["reason"] == reason for each in world.status(RUN).get("conditions") or ())


def has_pod(world: World) -> bool:
    return bool(world.pods(RUN))


def complete(world: World) -> bool:
    return bool(world.status(RUN).get("complete"))


# -- deeds ---------------------------------------------------------------------------------------------------------


def cancel(world: World) -> None:
    world.change(RUN, cancel=True)


def delete(world: World) -> None:
    world.delete(api.TASKRUNS, RUN)


def on(condition: Condition, deed: Deed) -> Callable[[World], None]:
    """Arranges one trigger."""
    return lambda world: world.when(condition, deed)


def later(condition: Condition, seconds: float, deed: Deed) -> Callable[[World], None]:
    """Arranges a deed, so many seconds after its moment."""
    return on(condition, lambda world: world.after(seconds, deed))


# -- lives without a loss ------------------------------------------------------------------------------------------


def _writes(content: bytes, path: str = REWARD) -> Mapping[str, Behaviour]:
    return {"test": Script(files={path: content})}


def _zero(reason: str, kind: str) -> End:
    """No verdict by the verifier's own doing: counted as 0."""
    return End(Phase.SUCCEEDED, "0", reason, kind)


DOCKERFILE = {"task.toml": "", "environment/Dockerfile": "FROM python:3.12-slim\n"}


def image_on_record(world: World) -> None:
    """The registry knows the image of `DOCKERFILE`."""
    digest = "sha256:" + "2" * 64
    world.images["python:3.12-slim"] = registry.ImageRecord(digest, digest, dockerfile.ImageConfig())


PLAIN = [
    one("the oracle solves it", GRADED),
    one("nobody works", GRADED, agent=NOP),
    one("a script works", GRADED, agent=SCRIPT, programs={"agent": Script(seconds=5.0)}),
    one(
        "a script is installed first",
        GRADED,
        agent={"script": {"install": "get it", "run": "work"}},
        programs={"install": Script(seconds=5.0), "agent": Script(seconds=5.0)},
    ),
    one(
        "the image is on record",
        GRADED,
        happens=image_on_record,
        files=DOCKERFILE,
    ),
    one(
        "a Python verifier grades",
        GRADED,
        files={"tests/test.sh": None, "tests/verifier.py": "verify = len\n", "task_data.json": '{"n": 1}'},
    ),
    one("the work is worth nothing", End(Phase.SUCCEEDED, "0"), programs={"test": rewarded("0")}),
    one(
        "several rewards",
        End(Phase.SUCCEEDED, "0.75"),
        programs=_writes(b'{"style": 0.25, "tests": 0.5}', "/logs/verifier/reward.json"),
    ),
    one(
        "more rewards than a status holds",
        End(Phase.SUCCEEDED, "200"),
        programs=_writes(json.dumps(MANY).encode(), "/logs/verifier/reward.json"),
    ),
    one("no reward", _zero("RewardMissing", "harbor:missing_reward"), programs={"test": Script(code=1)}),
    one("a reward that is none", _zero("RewardInvalid", "harbor:invalid_reward"), programs=_writes(b"much\n")),
    one("hooks collect", GRADED, files={"task.toml": HOOKS}, programs={"hook 1": Script(code=1), "hook 2": LONG}),
    one("the agent fails", GRADED, agent=SCRIPT, programs={"agent": Script(code=3)}),
    one("the agent is over its limit", GRADED, agent=SCRIPT, files={"task.toml": TIMED}, programs={"agent": HANGS}),
    one(
        "test.sh is over its limit",
        _zero("VerifierTimedOut", "harbor:verifier_timeout"),
        files={"task.toml": TIMED},
        programs={"test": HANGS},
    ),
    one("pods are kept", GRADED, podRetention="Always", retained=True),
    one("the run's time to live is over", GONE, ttlSecondsAfterFinished=60),
    one("the run's time to live is nothing", GONE, ttlSecondsAfterFinished=0),
]

# -- what users do -------------------------------------------------------------------------------------------------

USERS = [
    one("cancelled at its creation", CANCELLED, cancel=True),
    one("cancelled once it has a pod", CANCELLED, happens=on(has_pod, cancel), programs={"agent": LONG}),
    one("cancelled at work", CANCELLED, happens=on(runs("agent"), cancel), programs={"agent": LONG}),
    one(
        "cancelled in its hooks",
        CANCELLED,
        happens=on(runs("hook 1"), cancel),
        files={"task.toml": HOOKS},
        programs={"hook 1": LONG},
    ),
    one("cancelled in its verification", CANCELLED, happens=on(runs("test"), cancel), programs={"test": LONG_TEST}),
    one("cancelled when it is graded", GRADED, happens=on(in_phase("Succeeded"), cancel)),
    one("deleted at its creation", GONE, happens=on(lambda world: bool(world.server.all(api.TASKRUNS)), delete)),
    one("deleted once it has a pod", GONE, happens=on(has_pod, delete), programs={"agent": LONG}),
    one("deleted at work", GONE, happens=on(runs("agent"), delete), programs={"agent": LONG}),
    one("deleted in its verification", GONE, happens=on(runs("test"), delete), programs={"test": LONG_TEST}),
    one("deleted when it is graded", GONE, happens=on(in_phase("Succeeded"), delete)),
    one("deleted when it is complete", GONE, happens=on(complete, delete)),
    one(
        "suspended and resumed",
        GRADED,
        happens=later(waits("Suspended"), 100.0, lambda world: world.change(RUN, suspend=False)),
        suspend=True,
    ),
    one("suspended and cancelled", CANCELLED, happens=later(waits("Suspended"), 100.0, cancel), suspend=True),
    one(
        "the time to live comes later",
        GONE,
        happens=later(complete, 50.0, lambda w: w.change(RUN, ttlSecondsAfterFinished=60)),
    ),
]

USERS += [
    one(
        "its VerifierRun is deleted",
        End(Phase.MASKED, None, "VerifierRunDeleted", "verifier_error"),
        happens=on(runs("test"), lambda world: world.delete(api.VERIFIERRUNS, f"{RUN}-1-verify")),
        programs={"test": LONG_TEST},
    ),
]

# -- what is refused, and what has to be waited for ----------------------------------------------------------------


def _config_map(world: World, **metadata: Any) -> None:
    body = {"metadata": {"name": "settings", "namespace": NAMESPACE}, "data": {"KEY": "value"}}
    world.server.put(api.CONFIGMAPS, body)


def _failed(reason: str) -> End:
    return End(Phase.FAILED, reason=reason)


FROM_MAP = [{"configMapRef": {"name": "settings"}}]

REFUSED = [
    one("a task that does not load", _failed("InvalidTask"), files={"task.toml": "["}),
    one("an oracle without a solution", _failed("InvalidTask"), files={"solution/solve.sh": None}),
    one("a field that is not supported", _failed("UnsupportedField"), mcpGrants="required"),
    one("a source that never comes", _failed("SourceNotFound"), environmentFrom=FROM_MAP),
    one(
        "a source that comes later",
        GRADED,
        happens=later(waits("SourceNotFound"), 20.0, _config_map),
        environmentFrom=FROM_MAP,
    ),
]


# -- what an operator meets that had no quiet life -----------------------------------------------------------------


def kill_operators(world: World) -> None:
    """Every operator that lives dies; each comes back with an empty memory."""
    for each in world.operators:
        each.border.kill()


def _store_fails(world: World) -> None:
    """The store gives no answer, a few times."""
    for each in world.operators:
        fail = faults.Fail(lambda: errors.StoreError("no answer"))
        each.border.add(faults.Point.BEFORE, faults.named("store get", "store exists", "store put_new"), fail, times=6)


def _others_write(world: World) -> None:
    """No watch tells anything any more, and somebody writes to everything."""
    for watch in world.watches:
        watch.silence()
    for resource in (api.TASKRUNS, api.PODS):
        for obj in world.server.all(resource, NAMESPACE):
            world.server.change(resource, NAMESPACE, obj["metadata"]["name"], _labelled)


def _labelled(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["example.com/seen"] = "true"


def no_longer_kept(world: World) -> None:
    """The pods of a finished run are wanted no more; the scenario goes on until they are gone."""
    world.when(complete, lambda world: world.after(10.0, lambda world: world.change(RUN, podRetention="Never")))
    world.when(lambda world: complete(world) and not world.pods(RUN), lambda world: None)


def _own_user(world: World) -> None:
    """The image starts as a user of its own, whose group only the registry knows."""
    image = sandbox.Image(term_code=STOPPED, uid=1000, gid=0)
    world.nodes.around.images = lambda reference: image
    digest = "sha256:" + "3" * 64
    config = dockerfile.ImageConfig(user="1000:1000")
    world.images[image.id] = registry.ImageRecord(digest, digest, config)


TROUBLED = [
    one(
        f"an operator comes back, {stage}",
        GRADED,
        happens=later(runs(program), seconds, kill_operators),
        agent=SCRIPT,
        files={"task.toml": HOOKS},
        programs={program: LONG_TEST if program == "test" else LONG},
    )
    for stage, program, seconds in (
        ("at work", "agent", 5.0),
        ("long at work", "agent", 200.0),
        ("long in its verification", "test", 200.0),
    )
] + [
    one(
        "an operator comes back when the agent has ended",
        GRADED,
        happens=on(in_phase("Verifying"), kill_operators),
        agent=SCRIPT,
    ),
    one("the store fails in between", GRADED, happens=on(in_phase("Succeeded"), _store_fails)),
    one(
        "others write, and no watch tells it",
        GRADED,
        happens=on(runs("agent"), _others_write),
        programs={"agent": LONG},
    ),
    one("pods that are no longer kept", GRADED, happens=no_longer_kept, podRetention="Always"),
    one("an image with a user of its own", GRADED, happens=_own_user),
]
