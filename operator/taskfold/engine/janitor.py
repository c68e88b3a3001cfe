"""Against events that never came: everything unfinished is listed anew now and then, and finished runs expire.

Guarantees: what vanished in a gap of the watches is noticed within `resyncSeconds`; selection happens on the server,
so that finished runs cost nothing but their own page.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from taskfold.api import names
from taskfold.api.settings import Settings
from taskfold.decide import status as to
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.watch import Key, Kind, Watch

UNFINISHED = "status.complete!=true"
FINISHED = "status.complete=true"

log = logging.getLogger(__name__)


class Janitor:
    """The periodic list."""

    def __init__(
        self, client: api.Client, watch: Watch, wake: Callable[[Key, float], None], settings: Settings
    ) -> None:
        self._client = client
        self._watch = watch
        self._wake = wake
        self._settings = settings
        self.last_round = 0.0
        """Event loop time of the last round that succeeded."""

    async def run(self) -> None:
        """A round now and every `resyncSeconds`, until cancelled."""
        scopes: list[str | None] = [*self._settings.namespaces] or [None]
        while True:
            try:
                async with asyncio.timeout(self._settings.resync_seconds + 60):
                    for namespace in scopes:
                        await self.round(namespace)
                self.last_round = asyncio.get_running_loop().time()
            except (errors.EffectError, TimeoutError) as error:
                log.warning("the periodic list failed, tried again later: %s", error)
            await asyncio.sleep(self._settings.resync_seconds)

    async def round(self, namespace: str | None) -> None:
        """List what is unfinished, replace the picture, wake everything; then look for expired runs."""
        runs = await self._client.list(api.TASKRUNS, namespace, fields=UNFINISHED)
        verifiers = await self._client.list(api.VERIFIERRUNS, namespace, fields=UNFINISHED)
        pods = await self._client.list(api.PODS, namespace, labels=names.RUN)
        since = min(int(listing.resource_version or 0) for listing in (runs, verifiers, pods))
        keys = self._watch.replace(runs.items, verifiers.items, pods.items, since, namespace)
        for key in keys:
            self._wake(key, 0.0)
        finished = await self._client.list(api.TASKRUNS, namespace, fields=FINISHED, project=_expiring)
        for found in filter(None, finished.items):
            self._wake(*found)


def _expiring(run: api.Json) -> tuple[Key, float] | None:
    """The key of a finished run that has a time to live, and the seconds that are left of it."""
    ttl = (run.get("spec") or {}).get("ttlSecondsAfterFinished")
    completed = (run.get("status") or {}).get("completionTime")
    if ttl is None or not completed:
        return None
    age = (datetime.now(UTC) - to.parse(completed)).total_seconds()
    return Key(Kind.TASK_RUN, run["metadata"]["namespace"], run["metadata"]["name"]), max(0.0, ttl - age)
