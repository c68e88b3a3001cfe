"""Scenarios of runs whose agent is somebody outside: `finish` ends its phase, or the limit, a loss, a cancellation.

Guarantees: no program of an agent's is started in any of these worlds; the deeds are a user's, bound to what the status
says, so that an operator may die at any moment of theirs.
"""

from taskfold.api.phases import Phase
from taskfold.effects import client as api
from tests.world.misfortunes import FORCED, PRESSED
from tests.world.play import End
from tests.world.programs import rewarded
from tests.world.scenarios import (
    CANCELLED,
    GRADED,
    LONG_TEST,
    RUN,
    TIMED,
    cancel,
    has_pod,
    in_phase,
    kill_operators,
    later,
    on,
    one,
    waits,
)
from tests.world.world import NAMESPACE, Deed, Object, World

EXTERNAL: Object = {"external": {}}
READY = waits("AwaitingFinish")
ANSWER = {"responseFrom": {"configMapKeyRef": {"name": "answer", "key": "text"}}}


def finish(outcome: str = "Succeeded", **response: object) -> Deed:
    """Whoever drives the pod says that the work is done; once, as the rules of the API have it."""
    return lambda world: world.change(RUN, finish={"outcome": outcome, **response})


def _answer(world: World) -> None:
    body = {"metadata": {"name": "answer", "namespace": NAMESPACE}, "data": {"text": "forty-two"}}
    world.server.put(api.CONFIGMAPS, body)


CALM = [
    one("somebody outside succeeds", GRADED, happens=on(READY, finish(response="forty-two")), agent=EXTERNAL),
    one(
        "somebody outside fails",
        End(Phase.SUCCEEDED, "0"),
        happens=later(READY, 300.0, finish("Failed")),
        agent=EXTERNAL,
        programs={"test": rewarded("0")},
    ),
    one("finished at its creation", GRADED, agent=EXTERNAL, finish={"outcome": "Succeeded", "response": "at once"}),
    one("finished before the sandbox is ready", GRADED, happens=on(has_pod, finish()), agent=EXTERNAL),
    one("somebody outside is over the limit", GRADED, agent=EXTERNAL, files={"task.toml": TIMED}),
    one(
        "the response comes from a ConfigMap",
        GRADED,
        happens=lambda world: (_answer(world), on(READY, finish(**ANSWER))(world))[1],
        agent=EXTERNAL,
    ),
    one(
        "the response's ConfigMap comes later",
        GRADED,
        happens=lambda world: (
            on(READY, finish(**ANSWER))(world),
            later(waits("SourceNotFound"), 20.0, _answer)(world),
        )[1],
        agent=EXTERNAL,
    ),
    one("the response's ConfigMap never comes", GRADED, happens=on(READY, finish(**ANSWER)), agent=EXTERNAL),
    one("somebody outside is cancelled", CANCELLED, happens=later(READY, 100.0, cancel), agent=EXTERNAL),
    one(
        "an operator comes back, somebody outside at work",
        GRADED,
        happens=lambda world: (
            later(READY, 10.0, kill_operators)(world),
            later(READY, 100.0, finish(response="later"))(world),
        )[1],
        agent=EXTERNAL,
        programs={"test": LONG_TEST},
    ),
    one(
        "finished in the moment of the hand-over",
        GRADED,
        happens=on(in_phase("Running"), finish()),
        agent=EXTERNAL,
        podRetention="Always",
        retained=True,
    ),
]
LOST = [
    one(f"{loss.name}, somebody outside at work", *loss.ends(), happens=later(READY, 30.0, loss), agent=EXTERNAL)
    for loss in (FORCED, PRESSED)
]
