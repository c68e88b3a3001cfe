"""The canaries that are ready at this moment.

Guarantee: an answer was asked of the API server after the question, so that none is ready for want of a look.
"""

import asyncio
from dataclasses import dataclass

from taskfold.api.settings import CanarySettings
from taskfold.effects import client as api

MOST = 3
"""As many as one probe tries."""


@dataclass(frozen=True, order=True)
class Canary:
    """A pod that answers at its address by TCP."""

    name: str
    uid: str
    ip: str
    node: str


class Canaries:
    """Those of this operator's settings."""

    def __init__(self, client: api.Client, settings: CanarySettings) -> None:
        self._client = client
        self._settings = settings
        self._lock = asyncio.Lock()
        self._begun = self._told = 0
        """The numbers of the last look that was begun, and of that which told what is `_found`."""
        self._found: tuple[Canary, ...] = ()

    async def ready(self) -> tuple[Canary, ...]:
        """Those that are ready, by name. Raises ApiError. Whoever asks while a look goes on shares the next one."""
        before = self._begun
        async with self._lock:
            if self._told <= before:
                self._begun += 1
                self._found, self._told = await self._list(), self._begun
            return self._found

    async def _list(self) -> tuple[Canary, ...]:
        if self._settings.namespace is None:
            return ()
        listing = await self._client.list(api.PODS, self._settings.namespace, labels=self._settings.selector)
        return tuple(sorted(filter(None, map(_canary, listing.items))))


def chosen(ready: tuple[Canary, ...]) -> tuple[Canary, ...]:
    """Those that a probe tries: one of each node first."""
    firsts = {each.node: each for each in reversed(ready)}.values()
    return (*sorted(firsts), *(each for each in ready if each not in firsts))[:MOST]


def _canary(pod: api.Json) -> Canary | None:
    """The pod as a canary, if it is ready and stays."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    if conditions.get("Ready") != "True" or not status.get("podIP") or "deletionTimestamp" in metadata:
        return None
    return Canary(metadata["name"], metadata["uid"], status["podIP"], (pod.get("spec") or {}).get("nodeName", ""))
