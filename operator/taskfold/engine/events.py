"""Events: what happened to a run, for `kubectl describe`. Best effort, never state.

Guarantees: one Event per change of reason; a run never waits for an Event; the backlog is bounded and drops the
newest when it is full.
"""

import asyncio
import hashlib
import logging
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


class Events:
    """Writes Events from a queue of its own."""

    def __init__(self, client: api.Client) -> None:
        self._client = client
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(BACKLOG)

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
        try:
            self._queue.put_nowait((metadata.namespace, event))
        except asyncio.QueueFull:
            log.warning("too many Events wait; one about %s was dropped", metadata.name)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            namespace, event = await self._queue.get()
            try:
                await self._client.create(api.EVENTS, namespace, event)
            except errors.EffectError as error:
                log.debug("an Event could not be written: %s", error)
