"""Scenarios of what does not come: a place, an image, a start, an answer, the API server, the store.

Guarantees: each wait ends, by what was waited for or by its limit, and the end says which.
"""

from collections.abc import Callable

from taskfold.api.phases import Phase
from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world import exec as execs
from tests.world import faults, sandbox
from tests.world.kinds import RESOURCEQUOTAS
from tests.world.misfortunes import UNAVAILABLE, first_pod
from tests.world.play import End
from tests.world.scenarios import (
    DOCKERFILE,
    GRADED,
    LONG,
    LONG_TEST,
    RUN,
    TIMED,
    image_on_record,
    in_phase,
    later,
    on,
    one,
    runs,
    waits,
)
from tests.world.surroundings import PullError
from tests.world.world import NAMESPACE, STOPPED, World

SILENT = execs.Fault(silent_after=0)
SHORT_QUEUE = {"limits": {"queueSeconds": 300}}


def _failed(reason: str) -> End:
    return End(Phase.FAILED, reason=reason)


def _no_image(reason: str = "ErrImagePull") -> Callable[[World], None]:
    def without(world: World) -> None:
        world.nodes.around.images = lambda reference: PullError(f"{reference}: not found", reason)

    return without


def _image_later(world: World) -> None:
    there: list[sandbox.Image] = []
    missing = PullError("not found")
    world.nodes.around.images = lambda reference: there[0] if there else missing
    later(waits("ImagePullFailed"), 60.0, lambda world: there.append(sandbox.Image(term_code=STOPPED)))(world)


def _quota(world: World) -> None:
    metadata = {"name": "none", "namespace": NAMESPACE}
    world.server.put(RESOURCEQUOTAS, {"metadata": metadata, "spec": {"hard": {"pods": "0"}}})


def _no_quota(world: World) -> None:
    world.server.remove(RESOURCEQUOTAS, NAMESPACE, "none")


def _both(*deeds: Callable[[World], None]) -> Callable[[World], None]:
    def do(world: World) -> None:
        for deed in deeds:
            deed(world)

    return do


def _first_sandbox_is_silent(world: World) -> None:
    world.endpoint.fault = lambda opening: SILENT if opening.pod == f"{RUN}-1-1" else execs.NONE


def _all_is_silent(world: World) -> None:
    """Nothing comes out of any sandbox any more, on no connection."""
    world.endpoint.fault = lambda opening: SILENT
    world.endpoint.cut()
    world.after(1.0, lambda world: world.endpoint.cut())  # also those that were being opened


def _kubelet_leaves(world: World) -> None:
    world.nodes.stop_kubelet(world.pods(RUN)[-1]["spec"]["nodeName"])


def _away(names: tuple[str, ...], make: Callable[[], Exception], seconds: float) -> Callable[[World], None]:
    """These calls of every operator that lives now fail, for so long."""

    def leave(world: World) -> None:
        fault = faults.Fault(faults.Point.BEFORE, lambda call: call.name.startswith(names), faults.Fail(make), 1 << 30)
        for each in world.operators:
            each.border.faults.append(fault)

        def back(world: World) -> None:
            fault.times = 0

        world.after(seconds, back)

    return leave


API = ("get ", "list ", "create ", "patch ", "delete ", "watch ", "exec open", "version")
API_AWAY = _away(API, faults.unreachable, 60.0)
STORE_AWAY = _away(("store ",), lambda: errors.StoreError("no answer"), 300.0)

LIMITS = [
    one("an image that never comes", _failed("ImagePullFailed"), happens=_no_image()),
    one("an image whose name is none", _failed("ImagePullFailed"), happens=_no_image("InvalidImageName")),
    one("an image that comes later", GRADED, happens=_image_later),
    one("a quota that stays full", _failed("QuotaExceeded"), happens=_quota, settings=SHORT_QUEUE),
    one("a quota that gets room", GRADED, happens=_both(_quota, later(waits("QuotaExceeded"), 60.0, _no_quota))),
    one("no node for it", _failed("Unschedulable"), settings=SHORT_QUEUE, pod={"nodeSelector": {"disk": "large"}}),
    one(
        "a node that takes the pod and goes silent",
        GRADED,
        happens=on(first_pod(lambda pod: bool(pod["spec"].get("nodeName"))), _kubelet_leaves),
        settings={"limits": {"podStartSeconds": 60}},
    ),
    one(
        "a sandbox that does not answer",
        GRADED,
        happens=_first_sandbox_is_silent,
        settings={"limits": {"seedSeconds": 60}},
    ),
    one(
        "no answer from an agent",
        End(Phase.MASKED, None, "DeadlineExceeded", UNAVAILABLE),
        happens=on(runs("agent"), _all_is_silent),
        files={"task.toml": TIMED},
        programs={"agent": LONG},
    ),
    one(
        "no answer from test.sh",
        End(Phase.MASKED, None, "DeadlineExceeded", UNAVAILABLE),
        happens=on(runs("test"), _all_is_silent),
        files={"task.toml": TIMED},
        programs={"test": LONG_TEST},
    ),
    one("the API server is away, at work", GRADED, happens=on(runs("agent"), API_AWAY), programs={"agent": LONG}),
    one("the API server is away, in its verification", GRADED, happens=on(runs("test"), API_AWAY)),
    one(
        "the store is away, in its verification",
        GRADED,
        happens=_both(image_on_record, on(runs("test"), STORE_AWAY)),
        files=DOCKERFILE,
        programs={"test": LONG_TEST},
    ),
    one("the store is away at the end", GRADED, happens=on(in_phase("Succeeded"), STORE_AWAY)),
    one(
        "the store is away at the beginning",
        GRADED,
        happens=on(lambda world: bool(world.server.all(api.TASKRUNS)), STORE_AWAY),
    ),
]
