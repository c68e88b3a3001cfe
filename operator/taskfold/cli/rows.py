"""The rows of the conformance table on a cluster, many at a time.

Guarantees: everything that was created is taken away again in every ending (`keep` apart), and nothing that somebody
else made is touched: runs and objects are deleted by uid, a namespace only if this session made it. The calls do not
grow with time: one list a second, whatever runs. Every wait has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.taskrun import SecurityProfile
from taskfold.cli.exits import Refused, Unavailable
from taskfold.cli.reasons import CommandReason
from taskfold.conformance import differences, manifests, report
from taskfold.conformance.case import Case
from taskfold.conformance.report import Outcome, Result
from taskfold.effects import client as api
from taskfold.effects import errors

LOOK_SECONDS = 1.0
NOTICE_SECONDS = 60.0
"""An operator that runs looks at a new run within a second; one that is being rolled out needs longer."""
CLEANING_SECONDS = 30.0
STANDING_WARNING = "profile restricted:"
RESOURCES = {"ConfigMap": api.CONFIGMAPS, "Secret": api.SECRETS}
ORDER = [phase.value for phase in Phase]

Json = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How a session works. `limit_seconds`: for one row, from its creation on. `suffix`: five letters that make the
    names of the session's runs its own.
    """

    namespace: str
    suffix: str
    place: manifests.Place = field(default_factory=manifests.Place)
    parallel: int = 6
    limit_seconds: float = 300.0
    keep: bool = False


@dataclass
class Started:
    """A row whose run exists."""

    case: Case
    uid: str
    began: float
    due: deque[tuple[str, str, Mapping[str, Any]]]
    """(phase, "patch" or "apply", what), in the order of the row."""
    missed: list[str] = field(default_factory=list)
    """What of it could not be sent."""


class Session:
    """`async with Session(client, plan) as session: results = await session.play(cases, stop, told)`."""

    def __init__(self, client: api.Client, plan: Plan) -> None:
        self._client, self._plan = client, plan
        self._active: dict[str, Started] = {}
        self._made: dict[tuple[str, str], str] = {}
        """Kind and name → uid of the objects beside runs."""

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._plan.keep:
            with contextlib.suppress(errors.EffectError, TimeoutError):
                await asyncio.wait_for(self._clean(), CLEANING_SECONDS)

    async def play(
        self, cases: Sequence[Case], stop: asyncio.Event, told: Callable[[Result], None]
    ) -> tuple[Result, ...]:
        """A result for each row, in the order of the rows. `told` hears of each as it ends. When `stop` is set, what
        has not ended is reported as stopped.

        Raises Unavailable when no operator looks at the first runs.
        """
        waiting, results = deque(cases), dict[str, Result]()
        began, noticed = self._now(), False

        def ended(result: Result) -> None:
            results[result.id] = result
            told(result)

        while (waiting or self._active) and not stop.is_set():
            while waiting and len(self._active) < self._plan.parallel:
                case = waiting.popleft()
                if problem := await self._start(case):
                    ended(Result(case.id, Outcome.FAILED, (problem,)))
            runs = await self._runs()
            noticed = noticed or any(run.get("status") for run in runs.values())
            if not noticed and self._active and self._now() - began > NOTICE_SECONDS:
                raise Unavailable(CommandReason.OPERATOR_ABSENT, _absent(self._plan.namespace))
            for name, started in list(self._active.items()):
                if (result := await self._look(name, started, runs.get(name))) is not None:
                    ended(result)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_SECONDS if self._active else 0.01)
        stopped = {case.id: Result(case.id, Outcome.STOPPED, ("the command was stopped",)) for case in cases}
        return tuple({**stopped, **results}[case.id] for case in cases)

    def name_of(self, case: Case) -> str:
        """The name of the row's run."""
        return f"{case.id}-{self._plan.suffix}"

    async def _start(self, case: Case) -> str:
        """Create what the row needs, and its run. What the API server has against it; "" for nothing."""
        order = manifests.order(case, self.name_of(case), self._plan.suffix, self._plan.place)
        try:
            for body in order.objects:
                await self._ensure(body)
            run = await self._client.create(api.TASKRUNS, self._plan.namespace, order.run)
        except errors.Unavailable:
            raise
        except errors.ApiError as error:
            return f"the run cannot be created: {error}"
        due = [(phase, "patch", what) for phase, what in case.patches]
        due += [(phase, "apply", what) for phase, what in case.applies]
        due.sort(key=lambda each: ORDER.index(each[0]))
        self._active[order.run["metadata"]["name"]] = Started(case, run["metadata"]["uid"], self._now(), deque(due))
        return ""

    async def _ensure(self, body: Json) -> None:
        """An object of the table; two rows may name the same. One that somebody else made is not used."""
        key = manifests.key(body)
        if key in self._made:
            return
        made = await self._client.create(RESOURCES[key[0]], self._plan.namespace, body)
        self._made[key] = made["metadata"]["uid"]

    async def _runs(self) -> dict[str, Json]:
        """The session's runs by name."""
        labels = f"{manifests.LABEL}={self._plan.suffix}"
        found = await self._client.list(api.TASKRUNS, self._plan.namespace, labels=labels, project=_without_spec)
        return {run["metadata"]["name"]: run for run in found.items}

    async def _look(self, name: str, started: Started, run: Json | None) -> Result | None:
        """The row's result when it has ended."""
        case, seconds = started.case, round(self._now() - started.began, 1)
        if run is None or run["metadata"]["uid"] != started.uid:
            del self._active[name]
            return Result(case.id, Outcome.FAILED, ("its run was deleted by somebody",), seconds=seconds)
        status = run.get("status") or {}
        await self._send(name, started, status.get("phase"))
        if not status.get("complete"):
            if seconds <= self._plan.limit_seconds:
                return None
            problem = f"not complete within {self._plan.limit_seconds:g} s"
            await self._take_away(name, started)
            return Result(case.id, Outcome.FAILED, (problem, *_why(status)), report.found(status), seconds)
        expect = manifests.placed(case, self._plan.place).expect
        wrong = tuple(started.missed) + differences.differences(expect, self._own(status))
        await self._take_away(name, started)
        if wrong and self._refused(status):
            return Result(case.id, Outcome.REFUSED, _why(status), report.found(status), seconds)
        if wrong:
            return Result(case.id, Outcome.FAILED, (*wrong, *_why(status)), report.found(status), seconds)
        return Result(case.id, Outcome.PASSED, (), report.found(status), seconds)

    def _own(self, status: Json) -> Json:
        """The status without the warning that every run of the restricted profile carries."""
        if self._plan.place.profile != SecurityProfile.RESTRICTED:
            return status
        warnings = [each for each in status.get("warnings", []) if not each.startswith(STANDING_WARNING)]
        return {**status, "warnings": warnings} if warnings else {k: v for k, v in status.items() if k != "warnings"}

    def _refused(self, status: Json) -> bool:
        """The profile that all rows have here cannot give what this one needs; the others give everything."""
        restricted = self._plan.place.profile == SecurityProfile.RESTRICTED
        return restricted and differences.at(status, "failure.reason", "") == Reason.FORBIDDEN_BY_PROFILE

    async def _send(self, name: str, started: Started, phase: str | None) -> None:
        """What the row sends in this phase, or should have sent in one that the run has passed by."""
        while started.due and phase is not None and ORDER.index(phase) >= ORDER.index(started.due[0][0]):
            due, how, what = started.due.popleft()
            if Phase(phase).final:
                started.missed.append(f"the {how} for phase {due} was never sent: the run had passed it by")
                continue
            try:
                if how == "patch":
                    await self._client.patch(api.TASKRUNS, self._plan.namespace, name, {"spec": dict(what)})
                else:
                    await self._apply(manifests.applied(what, self._plan.suffix))
            except errors.Unavailable:
                raise
            except errors.ApiError as error:
                started.missed.append(f"the {how} for phase {due} was refused: {error}")

    async def _apply(self, body: Json) -> None:
        """Change an object of this session, or create it."""
        kind, _ = key = manifests.key(body)
        if key in self._made:
            await self._client.apply(RESOURCES[kind], self._plan.namespace, body, manager=manifests.LABEL)
        else:
            await self._ensure(body)

    async def _take_away(self, name: str, started: Started) -> None:
        del self._active[name]
        if not self._plan.keep:
            await self._delete(api.TASKRUNS, name, started.uid)

    async def _clean(self) -> None:
        for name, started in list(self._active.items()):
            await self._delete(api.TASKRUNS, name, started.uid)
        for (kind, name), uid in self._made.items():
            await self._delete(RESOURCES[kind], name, uid)

    async def _delete(self, resource: api.Resource, name: str, uid: str) -> None:
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(resource, self._plan.namespace, name, uid=uid)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def namespace(client: api.Client, given: str | None, suffix: str, *, keep: bool) -> AsyncIterator[str]:
    """The namespace to work in: the given one, else one that is made and, unless it is to be kept, deleted."""
    if given is not None:
        yield given
        return
    name = f"taskfold-conformance-{suffix}"
    try:
        made = await client.create(api.NAMESPACES, None, {"metadata": {"name": name}})
    except errors.Forbidden as error:
        text = f"{error}. Name a namespace that exists with --namespace."
        raise Refused(CommandReason.NOT_ALLOWED, text) from error
    try:
        yield name
    finally:
        if not keep:
            with contextlib.suppress(errors.EffectError):
                await client.delete(api.NAMESPACES, None, name, uid=made["metadata"]["uid"])


def _without_spec(run: Json) -> Json:
    return {"metadata": run["metadata"], "status": run.get("status")}


def _why(status: Mapping[str, Any]) -> tuple[str, ...]:
    """What the cluster says about it, for who reads the report."""
    message = differences.at(status, "failure.message", "")
    if not message and not status.get("complete"):
        shown = [each.get("message", "") for each in status.get("conditions", ()) if each.get("type") == "Succeeded"]
        message = "".join(shown)
    return (f"the status says: {message}",) if message else ()


def _absent(namespace: str) -> str:
    return (
        f"no operator looked at a run in namespace {namespace} for {NOTICE_SECONDS:g} s. Is one running, and is the "
        "namespace one of those that it serves? kubectl get pods --all-namespaces --selector app.kubernetes.io/name="
        "taskfold shows it; --namespace names a namespace that it serves."
    )
