"""Pods that nobody needs any more: of runs that are gone, of earlier tries, of runs that are complete; and the own pods
of separate verifications likewise.

Guarantees: only a sandbox that this operator's software made is touched, and only by its uid; a pod that its run may
still need, or that `podRetention` keeps, is left alone as long as its run exists; that a run is gone is the API
server's word. A deletion that does not come to its end is told once and asked for again at every round.

The garbage collector removes a run's pods with the run. Left for here: a run that was deleted with `--cascade=orphan`,
which takes the owner off its pods, so that an agent would go on with nobody to read its result. A pod on a node that
does not answer stays until its Node object is deleted (then PodGC removes it), unless `janitor.forceDeleteSeconds`
says otherwise.
"""

import asyncio
import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

from taskfold.api import names
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.taskrun import PodRetention, TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import pod as pods
from taskfold.decide import status as to
from taskfold.decide.pod import PodView
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.parts import Parts
from taskfold.engine.watch import Object, Place, Seen

log = logging.getLogger(__name__)


class Fate(StrEnum):
    """What becomes of a pod."""

    NEEDED = "its run needs it"
    KEPT = "podRetention keeps it"
    RUN_GONE = "its run is gone"
    VERIFIER_GONE = "its VerifierRun is gone"
    EARLIER_TRY = "it was given up for another try"
    RUN_COMPLETE = "its run is complete"
    VERIFIER_COMPLETE = "its VerifierRun is complete"


def fate(run: TaskRun | None, name: str) -> Fate:
    """What becomes of the pod of this name. `run`: whose it is, or None if that is gone."""
    if run is None:
        return Fate.RUN_GONE
    status = run.status
    tried = _tried(run.metadata.name, name)
    if not status.attempts or tried is None:
        return Fate.NEEDED
    current = (status.attempts[-1].number, status.attempts[-1].tries)
    if tried > current:
        return Fate.NEEDED  # the picture of the run is older than that of the pod
    if tried < current and not (tried[0] < current[0] and retained(run)):
        return Fate.EARLIER_TRY
    if not status.complete:
        return Fate.NEEDED
    return Fate.KEPT if retained(run) else Fate.RUN_COMPLETE


def fate_of_own(verifier: VerifierRun | None, run: TaskRun | None, name: str) -> Fate:
    """What becomes of a separate verification's own pod of this name. `verifier`: whose it is; `run`: what it grades;
    None if they are gone.
    """
    if verifier is None:
        return Fate.VERIFIER_GONE
    status, tried = verifier.status, _own_try(name)
    if not status.attempts or tried is None or tried[1] > status.attempts[-1].tries:
        return Fate.NEEDED
    if tried[1] < status.attempts[-1].tries:
        return Fate.EARLIER_TRY
    if not status.complete:
        return Fate.NEEDED
    return Fate.KEPT if run is not None and retained(run, graded=status.reward is not None) else Fate.VERIFIER_COMPLETE


def _own_try(pod: str) -> tuple[str, int] | None:
    """VerifierRun and try, as `names.verifier_pod` writes them; None: not a name of ours."""
    verifier, _, number = pod.rpartition("-")
    ours = verifier and number.isdecimal() and names.verifier_pod(verifier, int(number)) == pod
    return (verifier, int(number)) if ours else None


def _tried(run: str, pod: str) -> tuple[int, int] | None:
    """Attempt and try, as `names.pod` writes them; None: not a name of ours."""
    numbers = pod.removeprefix(f"{run}-").split("-")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    attempt, try_ = map(int, numbers)
    return (attempt, try_) if names.pod(run, attempt, try_) == pod else None


def retained(run: TaskRun, *, graded: bool | None = None) -> bool:
    """Whether pods that were the last of their attempt stay. Until it is known how the run ends: yes, if they may.
    `graded`: of a verification's own, whether it had a verdict.
    """
    match run.spec.pod_retention:
        case PodRetention.ALWAYS:
            return True
        case PodRetention.ON_FAILURE:
            return not graded if graded is not None else run.status.phase is not Phase.SUCCEEDED
        case PodRetention.NEVER:
            return False
        case _:
            assert_never(run.spec.pod_retention)


async def run_of(parts: Parts, place: Place, uid: str) -> TaskRun | None:
    """The run of this uid. That there is none is asked of the API server."""
    held = parts.watch.runs.get(place)
    if held is not None and held.run.metadata.uid == uid:
        return held.run
    try:
        run = TaskRun.parse(await parts.client.get(api.TASKRUNS, *place))
    except errors.NotFound:
        return None
    return run if run.metadata.uid == uid else None


async def verifier_of(parts: Parts, place: Place, uid: str) -> VerifierRun | None:
    """The VerifierRun of this uid, likewise."""
    held = parts.watch.verifiers.get(place)
    if held is not None and held.verifier.metadata.uid == uid:
        return held.verifier
    try:
        verifier = VerifierRun.parse(await parts.client.get(api.VERIFIERRUNS, *place))
    except errors.NotFound:
        return None
    return verifier if verifier.metadata.uid == uid else None


class Sweeper:
    """Rounds over the pods of the picture."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._kept: dict[str, int] = {}
        """Pod uid → the version of its complete run that keeps it: asked again only about another version."""
        self._told: set[str] = set()

    async def sweep(self, namespace: str | None) -> None:
        """Delete what nobody needs; no more than the pace allows until the next round."""
        pace = self._settings.janitor.deletes_per_second
        budget = max(1, int(pace * self._settings.janitor.finished_seconds))
        seen_pods = {place: seen for place, seen in self._parts.watch.pods.items() if namespace in (None, place[0])}
        for place, seen in seen_pods.items():
            if not _ours(seen.object) or self._is_kept(seen):
                continue
            run = await self._run_of(seen)
            found = await self._fate(seen, run)
            match found:
                case Fate.NEEDED:
                    continue
                case Fate.KEPT if run is not None:
                    self._kept[seen.pod.uid] = Seen(run.wire()).version
                    continue
                case _:
                    pass
            if await self._remove(place[0], seen.pod, run, found):
                budget -= 1
                await asyncio.sleep(1 / pace)
            if not budget:
                break
        self._forget_gone()

    def _is_kept(self, pod: Seen) -> bool:
        version = self._parts.watch.finished.get(_run_place(pod.object))
        return version is not None and self._kept.get(pod.pod.uid) == version

    async def _run_of(self, pod: Seen) -> TaskRun | None:
        """The run that this pod was made for."""
        return await run_of(self._parts, _run_place(pod.object), _labels(pod.object)[names.RUN_UID])

    async def _fate(self, pod: Seen, run: TaskRun | None) -> Fate:
        name = pod.place[1]
        if _labels(pod.object)[names.ROLE] == pods.AGENT:
            return fate(run, name)
        return fate_of_own(await self._verifier_of(pod), run, name)

    async def _verifier_of(self, pod: Seen) -> VerifierRun | None:
        """The VerifierRun that this pod is the own sandbox of."""
        tried, owner = _own_try(pod.place[1]), pod.pod.owner_uid
        if tried is None or not owner:
            return None
        return await verifier_of(self._parts, (pod.place[0], tried[0]), owner)

    async def _remove(self, namespace: str, pod: PodView, run: TaskRun | None, why: Fate) -> bool:
        """Ask for its deletion; whether that was asked. One that is on its way is given its time."""
        now, grace = to.stamp(self._parts.clock()), pods.GRACE_SECONDS
        where = f"pod {namespace}/{pod.name}"
        if pod.deleting:
            overdue = to.seconds_between(pod.deleted_at, now) or 0.0
            if overdue <= self._settings.limits.deletion_seconds:
                return False
            self._tell_stuck(where, pod, run, now)
            force = self._settings.janitor.force_delete_seconds
            if force is not None and overdue > force:
                log.warning("%s: its object is removed without the word of node %s", where, pod.node or "none")
                grace = 0
        else:
            log.info("%s is deleted: %s", where, why.value)
        try:
            await self._parts.client.delete(api.PODS, namespace, pod.name, uid=pod.uid, grace_seconds=grace)
        except (errors.NotFound, errors.Conflict):
            self._parts.watch.pods.pop((namespace, pod.name), None)
        return True

    def _tell_stuck(self, where: str, pod: PodView, run: TaskRun | None, now: str) -> None:
        if pod.uid in self._told:
            return
        self._told.add(pod.uid)
        text = (
            f"pod {pod.name} should be gone since {pod.deleted_at} and is not: node {pod.node or '(none)'} does not "
            "answer, or a finalizer holds it. Its deletion is asked for again; the outcome of the run stands."
        )
        log.warning("%s: %s", where, text)
        if run is not None:
            self._parts.events.tell(run, Reason.CLEANUP_PENDING, text, now)

    def _forget_gone(self) -> None:
        uids = {seen.pod.uid for seen in self._parts.watch.pods.values()}
        self._told &= uids
        self._kept = {uid: version for uid, version in self._kept.items() if uid in uids}


def _ours(pod: Object) -> bool:
    """Whether our software made it: all of its labels, and a name that it would give. A label alone anybody can set."""
    labels, name = _labels(pod), pod["metadata"]["name"]
    tried = {
        pods.AGENT: _tried(labels.get(names.RUN, ""), name) is not None,
        pods.VERIFIER: _own_try(name) is not None,
    }
    return (
        labels.get(names.MANAGED_BY) == names.OPERATOR
        and bool(labels.get(names.RUN_UID))
        and tried.get(labels.get(names.ROLE, ""), False)
    )


def _labels(pod: Object) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _run_place(pod: Object) -> Place:
    return pod["metadata"]["namespace"], _labels(pod).get(names.RUN, "")
