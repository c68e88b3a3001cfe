"""Scenarios of long phases that were let go of: a container waits for the end of each, or cannot.

Guarantees: whatever becomes of the container, the end is that of the phase; the hint is all that it can take away.
"""

from collections.abc import Callable

from taskfold.effects import client as api
from tests.world import ephemeral, refusals, sandbox
from tests.world.misfortunes import FORCED, PRESSED
from tests.world.play import Scenario
from tests.world.programs import Behaviour
from tests.world.scenarios import GRADED, LONG, LONG_TEST, RUN, kill_operators, on, one
from tests.world.surroundings import PullError
from tests.world.waiters import Waiter
from tests.world.world import SCRIPT, STOPPED, World
from tests.world.writes import Review

STAGES: dict[str, tuple[str, Behaviour]] = {"at work": ("agent", LONG), "in its verification": ("test", LONG_TEST)}
USER = "system:serviceaccount:taskfold:taskfold"


def waits(world: World) -> bool:
    """A pod of the run says of a waiter that it runs."""
    return any(
        "running" in each["state"]
        for pod in world.pods(RUN)
        for each in (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()
    )


def _each(deed: Callable[[Waiter], None]) -> Callable[[World], None]:
    """For every waiter of the run."""

    def do(world: World) -> None:
        for pod in world.pods(RUN):
            for waiter in world.nodes.pod(pod["metadata"]["name"]).waiters.values():
                deed(waiter)

    return do


def _no_image(world: World) -> None:
    """The image of the waiters cannot be had."""
    ours, image = world.settings.helper.image, sandbox.Image(term_code=STOPPED)
    world.nodes.around.images = lambda reference: PullError(f"{reference}: not found") if reference == ours else image


def _no_right(world: World) -> None:
    """Operators may do everything but this."""

    def refuse(review: Review) -> None:
        if review.target.subresource == ephemeral.SUBRESOURCE:
            where = f'in API group "" in the namespace "{review.target.namespace}"'
            text = f'User "{USER}" cannot patch resource "pods/{ephemeral.SUBRESOURCE}" {where}'
            raise refusals.forbidden(api.PODS, review.target.name, text)

    world.server.admission.append(refuse)


def _long(name: str, stage: str, happens: Callable[[World], None]) -> Scenario:
    program, behaviour = STAGES[stage]
    return one(f"{name}, {stage}", GRADED, happens=happens, agent=SCRIPT, programs={program: behaviour})


SIGNALLED = [_long("a container waits", stage, lambda world: None) for stage in STAGES]
RESTARTED = [
    _long("an operator comes back while a container waits", stage, on(waits, kill_operators)) for stage in STAGES
]
REFUSED = [_long("no container may wait", stage, _no_right) for stage in STAGES]
UNSIGNALLED = REFUSED + [
    _long(name, stage, happens)
    for name, happens in (
        ("the container that waits never starts", _no_image),
        ("the container that waits is killed", on(waits, _each(lambda waiter: waiter.end()))),
        ("the container that waits ends too early", on(waits, _each(lambda waiter: waiter.end(0)))),
    )
    for stage in STAGES
]
LOST = [
    one(
        f"{loss.name} while a container waits, {stage}",
        *loss.ends(),
        happens=on(waits, loss),
        agent=SCRIPT,
        programs=dict([STAGES[stage]]),
    )
    for loss, stage in zip((FORCED, PRESSED), STAGES, strict=True)
]
CALM = [*SIGNALLED, *RESTARTED, *UNSIGNALLED]
