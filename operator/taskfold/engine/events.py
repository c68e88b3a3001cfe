"""Events: what happened to a run, for `kubectl describe`. Best effort, never state.

Guarantees: a run never waits for an Event, nor does its reward for the API server's work on one; what is told within a
moment of the next step of the same run is left out unless it matters; the backlog is bounded and drops the newest when
it is full.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from typing import Any

from taskfold.api import names
from taskfold.api.common import API_VERSION, Resource
from taskfold.api.reasons import Reason
from taskfold.effects import client as api
from taskfold.effects import errors

BACKLOG = 1000
NOTE_BYTES = 1024
"""The API server's limit."""

log = logging.getLogger(__name__)


HOLD_SECONDS = 1.0
"""A step that is over sooner is no news, and the way to the reward is clear of writes that nobody waits for."""
LASTING = frozenset({Reason.VERDICT_REACHED, Reason.COMPLETED, Reason.CANCELLED, Reason.RETRYING})
"""Normal Events that are always told; so is every Warning."""


@dataclass(frozen=True)
class _Told:
    due: float
    uid: str
    number: int
    lasting: bool
    event: dict[str, Any]


class Events:
    """Writes Events from a queue of its own."""

    def __init__(self, client: api.Client) -> None:
        self._client = client
        self._queue: asyncio.Queue[_Told] = asyncio.Queue(BACKLOG)
        self._latest: dict[str, int] = {}

    def tell(self, run: Resource, reason: Reason, message: str, moment: str) -> None:
        """One Event about this run."""
        metadata = run.metadata
        digest = hashlib.sha256(f"{metadata.uid}{reason}{message}{moment}".encode()).hexdigest()[:16]
        text = message or reason.sentence
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata.name}.{digest}", "namespace": metadata.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": run.KIND,
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "type": reason.event_type,
            "reason": reason.value,
            "message": text.encode()[:NOTE_BYTES].decode("utf-8", "ignore"),
            "source": {"component": names.OPERATOR},
            "reportingComponent": names.OPERATOR,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        number = self._latest.get(metadata.uid, 0) + 1
        lasting = reason.event_type == "Warning" or reason in LASTING
        due = asyncio.get_running_loop().time() + HOLD_SECONDS
        try:
            self._queue.put_nowait(_Told(due, metadata.uid, number, lasting, event))
        except asyncio.QueueFull:
            log.warning("too many Events wait; one about %s was dropped", metadata.name)
            return
        self._latest[metadata.uid] = number

    async def run(self) -> None:
        """Write until cancelled, each a moment after it was told."""
        loop = asyncio.get_running_loop()
        while True:
            told = await self._queue.get()
            await asyncio.sleep(max(0.0, told.due - loop.time()))
            overtaken = self._latest.get(told.uid, 0) > told.number
            if not overtaken:
                self._latest.pop(told.uid, None)
            if overtaken and not told.lasting:
                continue
            try:
                await self._client.create(api.EVENTS, told.event["metadata"]["namespace"], told.event)
            except errors.EffectError as error:
                log.debug("an Event could not be written: %s", error)
