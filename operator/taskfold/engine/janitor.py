"""Against events that never came, and for what runs leave behind.

Guarantees: what vanished in a gap of the watches is gone from the picture within `resyncSeconds` and the time of a
list, what changed is read; every unfinished run is looked at within `lookSeconds`, spread over that time; a finished
run costs its name and version in a page, and is read again only if its version is another. Selection happens on the
server, pages are bounded, deletions are paced; a namespace that cannot be listed does not keep others from it.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from taskfold.api import names
from taskfold.decide import status as to
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.network_sweep import NetworkSweeper
from taskfold.engine.parts import Parts
from taskfold.engine.retention import Retention
from taskfold.engine.sweep import Sweeper
from taskfold.engine.watch import Collection, Key, Kind, Place, Seen

UNFINISHED = "status.complete!=true"
FINISHED = "status.complete=true"
FEW = 100
"""Up to so many objects are read one by one; more come cheaper as whole pages."""
TROUBLE_SECONDS = 5.0
"""How soon a round that failed is tried again, unless rounds come faster anyway."""
ROUND_SECONDS = 300.0
"""How long one round over one namespace may take."""


@dataclass(frozen=True)
class Selection:
    """A part of the picture, and how it is selected on the server."""

    what: Collection
    resource: api.Resource
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True)
class Mortal:
    """A kind of which finished ones have a time to live. `known`: the versions of those that were dealt with."""

    kind: Kind
    resource: api.Resource
    labels: str
    known: dict[Place, int]


POLICIES = Selection(Collection.POLICIES, api.NETWORKPOLICIES)
"""For operators that may restrict networks."""
SELECTIONS = (
    Selection(Collection.PODS, api.PODS, labels=names.RUN),
    Selection(Collection.VERIFIER_RUNS, api.VERIFIERRUNS, fields=UNFINISHED),
    Selection(Collection.TASK_RUNS, api.TASKRUNS, fields=UNFINISHED),
)
"""The watches select the same."""

log = logging.getLogger(__name__)


class Janitor:
    """The periodic rounds of one operator process."""

    def __init__(self, parts: Parts, wake: Callable[[Key, float], None]) -> None:
        """`wake(key, seconds)`: look at this after so long."""
        self._parts = parts
        self._client = parts.client
        self._watch = parts.watch
        self._settings = parts.settings
        self._sweeper = Sweeper(parts)
        self._network_sweeper = NetworkSweeper(parts)
        self._retention = Retention(parts)
        self._wake = wake
        self._looks = itertools.count()
        restricts = self._settings.network.canary.namespace is not None
        self._selections = (*SELECTIONS, *((POLICIES,) if restricts else ()))
        self.last_round: float | None = None
        """Event loop time of the last comparison that succeeded, in every namespace."""

    async def run(self) -> None:
        """Rounds until cancelled. At the start what is unfinished comes with the watches' own lists: it is only tried
        whether it can be listed, which the process's health depends on, and compared from then on. Finished runs are
        looked at once at the start, for those whose time ended while no operator lived.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._behind_runs())
            group.create_task(self._beside_watches())
            group.create_task(self._retention.run())

    async def _behind_runs(self) -> None:
        while True:
            done = await self._over_namespaces(self.finished)
            done = await self._over_namespaces(self._sweeper.sweep) and done
            done = await self._over_namespaces(self._network_sweeper.sweep) and done
            await self._pause(self._settings.janitor.finished_seconds, done=done)

    async def _beside_watches(self) -> None:
        done = await self._over_namespaces(self.listable)
        while True:
            if done:
                self.last_round = asyncio.get_running_loop().time()
            await self._pause(self._settings.resync_seconds, done=done)
            done = await self._over_namespaces(self.unfinished)
            self.look()

    async def _pause(self, seconds: float, *, done: bool) -> None:
        await asyncio.sleep(seconds if done else min(seconds, TROUBLE_SECONDS))

    async def _over_namespaces(self, work: Callable[[str | None], Awaitable[None]]) -> bool:
        """Whether it succeeded in every served namespace."""
        scopes: list[str | None] = [*self._settings.namespaces] or [None]
        failed = 0
        for namespace in scopes:
            try:
                async with asyncio.timeout(ROUND_SECONDS):
                    await work(namespace)
            except (errors.EffectError, TimeoutError) as error:
                failed += 1
                log.warning("a round over %s failed: %s", namespace or "all namespaces", error or "it took too long")
        return not failed

    # -- what is unfinished ------------------------------------------------------------------------------------------

    async def listable(self, namespace: str | None) -> None:
        """Fails if what the picture is made of cannot be listed."""
        for selection in self._selections:
            await self._names(selection, namespace)

    async def _names(self, what: Selection, namespace: str | None) -> api.Listing[tuple[Place, int]]:
        return await self._client.list(
            what.resource,
            namespace,
            labels=what.labels,
            fields=what.fields,
            metadata_only=True,
            project=_place_and_version,
        )

    async def unfinished(self, namespace: str | None) -> None:
        """Compare the picture with the API server's names and versions; wake whom a difference concerns."""
        for selection in self._selections:
            listing = await self._names(selection, namespace)
            since = int(listing.resource_version or 0)
            found = self._watch.compare(selection.what, dict(listing.items), since, namespace)
            if found.keys or found.outdated:
                log.info("%s: %d gone, %d changed untold", selection.what, found.gone, len(found.outdated))
            keys = found.keys
            async for obj in self._read(selection, namespace, found.outdated):
                keys |= self._watch.see(selection.what, obj)
            for key in sorted(keys):
                self._wake(key, 0.0)

    async def _read(self, what: Selection, namespace: str | None, places: Sequence[Place]) -> AsyncIterator[api.Json]:
        """These objects as they are now."""
        if len(places) > FEW:
            listing = await self._client.list(what.resource, namespace, labels=what.labels, fields=what.fields)
            for obj in listing.items:
                yield obj
            return
        for place in places:
            with contextlib.suppress(errors.NotFound):
                yield await self._client.get(what.resource, *place)

    def look(self) -> None:
        """Wake the part of all unfinished runs whose turn it is, spread until the next round."""
        every = self._settings.resync_seconds
        turns = max(1, math.ceil(self._settings.look_seconds / every))
        turn = next(self._looks) % turns
        keys = [key for key in self._watch.unfinished() if zlib.crc32(str(key).encode()) % turns == turn]
        for number, key in enumerate(keys):
            self._wake(key, every * number / len(keys))

    # -- what is finished --------------------------------------------------------------------------------------------

    async def finished(self, namespace: str | None) -> None:
        """Look at every finished run, and every finished verification that stands alone, that nobody has looked at in
        its version: at its time to live, that is.
        """
        await self._finished(Mortal(Kind.TASK_RUN, api.TASKRUNS, "", self._watch.finished), namespace)
        alone = f"!{names.RUN}"  # what a run has made bears its name, and goes with it
        verifiers = self._watch.finished_verifiers
        await self._finished(Mortal(Kind.VERIFIER_RUN, api.VERIFIERRUNS, alone, verifiers), namespace)

    async def _finished(self, what: Mortal, namespace: str | None) -> None:
        known = what.known
        if not any(namespace in (None, place[0]) for place in known):
            await self._finished_in_pages(what, namespace)  # as at the start: names would only tell that all are new
            return
        listing = await self._client.list(
            what.resource,
            namespace,
            labels=what.labels,
            fields=FINISHED,
            metadata_only=True,
            project=_place_and_version,
        )
        listed = dict(listing.items)
        since = int(listing.resource_version or 0)
        for place in [p for p, v in known.items() if namespace in (None, p[0]) and p not in listed and v <= since]:
            del known[place]
        fresh = [place for place, version in listed.items() if known.get(place, 0) < version]
        if len(fresh) > FEW:
            await self._finished_in_pages(what, namespace)
            return
        for number, (namespace_of, name) in enumerate(fresh):
            self._wake(Key(what.kind, namespace_of, name), number / self._settings.janitor.deletes_per_second)

    async def _finished_in_pages(self, what: Mortal, namespace: str | None) -> None:
        """Many are new to this process, at its start most of all: those without a time to live need no look."""
        listing = await self._client.list(
            what.resource, namespace, labels=what.labels, fields=FINISHED, project=self._time_left
        )
        paced = itertools.count()
        for place, version, left in listing.items:
            if left is None:
                what.known[place] = max(version, what.known.get(place, 0))
            else:
                pace = next(paced) / self._settings.janitor.deletes_per_second
                self._wake(Key(what.kind, *place), max(left, pace))

    def _time_left(self, run: api.Json) -> tuple[Place, int, float | None]:
        """A finished run's place and version, and the seconds that it has left; None: no end is set."""
        place, version = _place_and_version(run)
        ttl = (run.get("spec") or {}).get("ttlSecondsAfterFinished")
        completed = (run.get("status") or {}).get("completionTime")
        if ttl is None or not completed:
            return place, version, None
        age = (self._parts.clock() - to.parse(completed)).total_seconds()
        return place, version, max(0.0, ttl - age)


def _place_and_version(obj: api.Json) -> tuple[Place, int]:
    seen = Seen(obj)
    return seen.place, seen.version
