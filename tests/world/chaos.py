"""Makes the misfortunes of a plan happen in a world, each at its time, and ends them all before the calm.

Guarantees: nothing random but what the plan's seed gives; when `calm` is called the world works as it should.
"""

import asyncio
import random
from collections.abc import Callable
from typing import assert_never

from taskfold.effects import client as api
from taskfold.effects import errors
from tests.world import border, faults, misfortunes
from tests.world import exec as execs
from tests.world import random_world as plans
from tests.world.play import (
    GONE,
    SETTLE_SECONDS,
    SWEEP_SECONDS,
    end_of,
    left_over,
    standings,
    started_twice,
)
from tests.world.random_world import Kind, Misfortune, Plan
from tests.world.storage import Subscription
from tests.world.world import NAMESPACE, World

SETTINGS = {
    "limits": {"queueSeconds": 900, "podStartSeconds": 300, "seedSeconds": 120, "collectSeconds": 120},
    "waiting": {"streamSeconds": 3},
}
"""Shorter than by default, so that what has to end by a limit ends in a world's time, and phases are let go of."""
LOSSES = tuple(loss for loss in misfortunes.LOSSES if loss not in (misfortunes.NODE_LOST, misfortunes.NODE_GONE))

ANY_TIME = (misfortunes.DELETED, misfortunes.FORCED, misfortunes.PREEMPTED, misfortunes.DRAINED)
"""Losses that need no kubelet."""


class Chaos:
    """The misfortunes of one plan in one world."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._harm: dict[Kind, float] = {}
        """Until when calls of the operators suffer."""

    def begin(self) -> None:
        """Plan everything."""
        self._world.endpoint.fault = self._exec_fault
        for number, run in enumerate(self._plan.runs):
            self._world.after(float(run.at), lambda world, number=number: self._create(number))  # type: ignore[misc]
        for each in self._plan.misfortunes:
            self._world.after(self._plan.begins(each), lambda world, each=each: self._strike(each))  # type: ignore[misc]

    def prepare(self, gate: border.Border) -> None:
        """Each operator process passes here when it starts."""
        for kind, point, make in (
            (Kind.REFUSED, faults.Point.BEFORE, faults.unreachable),
            (Kind.ERRORS, faults.Point.BEFORE, self._error),
            (Kind.LOST_ANSWERS, faults.Point.AFTER, faults.lost_answer),
            (Kind.THROTTLED, faults.Point.BEFORE, self._throttled),
            (Kind.STORE_AWAY, faults.Point.BEFORE, self._store_error),
            (Kind.STORE_AWAY, faults.Point.AFTER, self._store_error),
        ):
            gate.add(point, self._suffers(kind), faults.Fail(make), times=1 << 30)

    def calm(self) -> None:
        """From now on all goes well: whoever was stopped goes on, whatever was suspended is resumed."""
        self._harm.clear()
        for number, run in enumerate(self._plan.runs):
            if run.suspended:
                self._world.change(plans.name_of(number), suspend=False)
        for each in self._world.operators:
            each.border.faults = [fault for fault in each.border.faults if isinstance(fault.action, faults.Fail)]
            each.border.resume()

    # -- calls of operators ----------------------------------------------------------------------------------------

    def _suffers(self, kind: Kind) -> Callable[[faults.Call], bool]:
        """Whether a call is hit. Some calls get through, but for a server that is really away."""

        def hit(call: faults.Call) -> bool:
            if self._harm.get(kind, -1.0) <= self._now or not _concerned(kind, call.name):
                return False
            return kind in (Kind.REFUSED, Kind.STORE_AWAY) or self._random.random() < 0.3

        return hit

    @property
    def _now(self) -> float:
        return (self._world.time.now() - self._world.time.begin).total_seconds()

    def _error(self) -> Exception:
        return errors.Unavailable("etcdserver: request timed out", sent=True, status=500, reason="InternalError")

    def _throttled(self) -> Exception:
        wait = self._random.choice([0.0, 1.0, 5.0])
        return errors.TooManyRequests("too many requests", status=429, reason="TooManyRequests", retry_after=wait)

    def _store_error(self) -> Exception:
        return errors.StoreError("no answer")

    def _exec_fault(self, opening: execs.Opening) -> execs.Fault:
        if self._harm.get(Kind.EXECS_BROKEN, -1.0) <= self._now:
            return execs.NONE
        number = self._random.randrange(2000)
        return self._random.choice(
            [
                execs.Fault(cut_out=number),
                execs.Fault(cut_in=number),
                execs.Fault(drop_last=True),
                execs.Fault(silent_after=number % 8),
                execs.Fault(status=execs.status_of(0)),
                execs.Fault(status=execs.failure("something")),
                execs.Fault(no_status=True),
                execs.Fault(status_first=True),
                execs.Fault(frame_bytes=1 + number % 50),
                execs.Fault(frame_seconds=0.5),
                execs.Fault(never_reads=True),
                execs.Fault(refusal=execs.refused(500, "InternalError", "error dialing backend: EOF")),
                execs.Fault(refusal=execs.refused(404, "NotFound", "pods not found")),
            ]
        )

    # -- one by one ------------------------------------------------------------------------------------------------

    def _create(self, number: int) -> None:
        run = self._plan.runs[number]
        name, world = plans.name_of(number), self._world
        works = plans.WORK[run.work]
        world.book.runs[name] = {"install": plans.WORK[plans.Work.QUICK], "agent": works, "test": plans.TESTS[run.test]}
        spec = {"retries": {"infrastructure": run.retries}} if run.retries else {}
        spec |= {"onAgentCausedLoss": "zero"} if run.zero else {}
        spec |= {"ttlSecondsAfterFinished": run.ttl} if run.ttl is not None else {}
        spec |= {"suspend": True} if run.suspended else {}
        toml = plans.TOML + (plans.HOOKS if run.hooks else "") + (plans.SEPARATE if run.separate else "")
        world.create(name, agent=plans.AGENTS[run.agent], files={"task.toml": toml}, **spec)

    def _strike(self, each: Misfortune) -> None:
        world, run = self._world, plans.name_of(each.which % len(self._plan.runs))
        match each.kind:
            case Kind.KILLED | Kind.KILLED_AT_A_CALL | Kind.STOPPED | Kind.STOPPED_AT_A_CALL:
                self._hit_operator(each)
            case Kind.REFUSED | Kind.ERRORS | Kind.LOST_ANSWERS | Kind.THROTTLED | Kind.STORE_AWAY | Kind.EXECS_BROKEN:
                self._harm[each.kind] = self._now + each.seconds
                if each.kind is Kind.REFUSED:
                    self._watches(Subscription.drop)
            case Kind.CONFLICTS:
                self._touch(each.seconds)
            case Kind.WATCHES_DROPPED:
                self._watches(Subscription.drop)
            case Kind.WATCHES_SILENT:
                self._watches(Subscription.silence)
            case Kind.WATCHES_EXPIRED:
                world.server.expire_watches()
            case Kind.FORGETFUL:
                world.server.compact()
                self._watches(Subscription.drop)
            case Kind.EXECS_CUT:
                world.endpoint.cut()
            case Kind.RUNTIME:
                world.nodes.restart_runtime("node-1")
            case Kind.LOSS:
                self._lose(run, each.seconds)
            case Kind.NODE_AWAY:
                world.nodes.stop_kubelet("node-1")
                world.after(float(each.seconds), lambda world: world.nodes.start_kubelet("node-1"))
            case Kind.CANCELLED:
                world.change(run, cancel=True)
            case Kind.DELETED:
                world.delete(api.TASKRUNS, run)
            case Kind.EXPIRES:
                world.change(run, ttlSecondsAfterFinished=each.seconds)
            case _:
                assert_never(each.kind)

    def _hit_operator(self, each: Misfortune) -> None:
        alive = [found for found in self._world.operators if found.alive]
        if not alive:
            return
        gate = alive[each.which % len(alive)].border

        def pause() -> None:
            gate.stop()
            self._world.after(float(each.seconds), lambda world: gate.resume())

        if each.kind is Kind.KILLED:
            gate.kill()
        elif each.kind is Kind.STOPPED:
            pause()
        else:
            point = faults.Point.AFTER if each.which % 2 else faults.Point.BEFORE
            at = faults.numbered(len(gate.calls) + each.which // 2)
            gate.add(point, at, faults.Do(pause) if each.kind is Kind.STOPPED_AT_A_CALL else faults.Kill())

    def _touch(self, seconds: int) -> None:
        """Somebody else writes to everything, again and again."""
        for resource in (api.TASKRUNS, api.VERIFIERRUNS, api.PODS):
            for obj in self._world.server.all(resource, NAMESPACE):
                name = obj["metadata"]["name"]
                self._world.server.change(resource, NAMESPACE, name, lambda obj: _annotate(obj, seconds))
        if seconds > 0:
            self._world.after(1.0, lambda world: self._touch(seconds - 1))

    def _watches(self, deed: Callable[[Subscription], None]) -> None:
        for watch in self._world.watches:
            deed(watch)

    def _lose(self, run: str, number: int) -> None:
        pods = [pod for pod in self._world.pods(run) if "deletionTimestamp" not in pod["metadata"]]
        loss = LOSSES[number % len(LOSSES)]
        if not pods:
            return
        statuses = (pods[-1].get("status") or {}).get("containerStatuses") or ()
        started = any("running" in each["state"] for each in statuses)
        if started or loss in ANY_TIME:
            loss.strike(self._world, pods[-1]["metadata"]["name"])


def _concerned(kind: Kind, name: str) -> bool:
    if kind is Kind.STORE_AWAY:
        return name.startswith("store ")
    verb = name.partition(" ")[0]
    return verb in ("get", "list", "create", "patch", "delete") or (
        name == "exec open" and kind is not Kind.LOST_ANSWERS
    )


def _annotate(obj: dict[str, object], number: int) -> None:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    metadata.setdefault("annotations", {})["example.com/count"] = str(number)


async def live(plan: Plan) -> list[str]:
    """Play the plan; what is wrong with what came of it."""
    world, problems = World(seed=plan.seed, cgroup=plan.cgroup, settings=SETTINGS, node_skew=plan.skews[1]), list[str]()
    async with world.at_work():
        chaos = Chaos(world, plan)
        for number in range(plan.operators):
            world.keep_operator(skew=float(plan.skews[0] * (-1) ** number), prepare=chaos.prepare)
        chaos.begin()
        await asyncio.sleep(plan.calm)
        chaos.calm()
        try:
            await world.until(lambda now: not now.expects and _ended(now, plan), plans.BOUND_SECONDS)
        except TimeoutError:
            problems.append(f"not finished {plans.BOUND_SECONDS:g} s after the calm: {standings(world)}")
        await asyncio.sleep(SETTLE_SECONDS)
        if plan.late and left_over(world, frozenset()):
            await asyncio.sleep(SWEEP_SECONDS)
        problems += left_over(world, frozenset())
    problems += [*world.broken(late=plan.late), *started_twice(world)]
    for number in range(len(plan.runs)):
        problems += _wrong_end(world, plan, number)
    return problems


def _ended(world: World, plan: Plan) -> bool:
    """Every run is complete, or gone where it has to go."""
    for number in range(len(plan.runs)):
        name, expected = plans.name_of(number), plans.ends(plan, number)
        if not world.gone(name) and (expected == (GONE,) or not world.status(name).get("complete")):
            return False
    return True


def _wrong_end(world: World, plan: Plan, number: int) -> list[str]:
    name, expected = plans.name_of(number), plans.ends(plan, number)
    end = end_of(world, name)
    if expected is not None:
        return [] if end in expected else [f"{name} ended as {end}, not as {' or '.join(map(str, expected))}"]
    wrong = plans.explained(plan, number, end)
    return [f"{name} ended as {end}: {wrong}"] if wrong is not None else []
