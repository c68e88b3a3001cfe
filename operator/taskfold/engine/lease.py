"""Which of several operators works: the one that holds a Lease of coordination.k8s.io.

Guarantees: a candidate takes a lease that somebody holds only after the record has not changed for the holder's own
duration, measured by the candidate's monotonic clock; the times in the record are for people and are never compared,
so that clocks may differ as they like. Every write is bound to the version that was read, so that of two candidates
one loses. A leader counts from the moment it *sent* its last renewal and is told `lost` before the lease can pass to
another. The meaning of the record and the times is that of client-go, so that both can share a lease.

It is an economy, not the protection of a run: what two leaders at once do is safe by the journal and by conditional
writes. A stopped process that goes on later may still hold itself for the leader for one turn of its event loop.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from taskfold.api.settings import RETRY_JITTER, LeaderElectionSettings
from taskfold.effects import client as api
from taskfold.effects import errors

RELEASE_SECONDS = 5.0
"""How long an ending waits for the API server to take the lease back."""
SOONEST_SECONDS = 0.05

log = logging.getLogger(__name__)


class Taken(Exception):  # noqa: N818 - says what happened
    """Somebody else holds the lease."""


@dataclass(frozen=True)
class Record:
    """The spec of a Lease. `version`: the object's resourceVersion, which is no part of the record."""

    holder: str
    seconds: float
    acquired: str
    renewed: str
    transitions: int

    @classmethod
    def of(cls, lease: Mapping[str, Any]) -> "Record":
        spec = lease.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            seconds=float(spec.get("leaseDurationSeconds") or 0),
            acquired=spec.get("acquireTime") or "",
            renewed=spec.get("renewTime") or "",
            transitions=int(spec.get("leaseTransitions") or 0),
        )


class Lease:
    """One candidate: `acquire`, then `hold` as a task beside the work, then `release`."""

    def __init__(
        self,
        client: api.Client,
        settings: LeaderElectionSettings,
        namespace: str,
        identity: str,
        *,
        same_place: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`same_place`: holders that begin so were in this very pod, where one process ends before the next starts."""
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._identity = identity
        self._same_place = same_place
        self._clock = clock
        self._seen: Record | None = None
        self._since = 0.0
        self._version = ""
        self._renewed = 0.0
        self._told = ""

    async def acquire(self) -> None:
        """Wait until this candidate holds the lease. Errors of the API server are waited out."""
        while not await self._attempt():  # noqa: ASYNC110 - silence is no event
            await asyncio.sleep(self._pause())
        log.info("leads: holds lease %s/%s as %s", self._namespace, self._settings.lease_name, self._identity)

    async def hold(self, lost: Callable[[str], None]) -> None:
        """Renew until cancelled, or until the lease is lost: `lost(why)` is called, directly from the event loop.

        The deadline is a timer and not a task's step: after a stop of the process it is among the first things to run.
        """
        loop = asyncio.get_running_loop()
        late = f"the lease could not be renewed for {self._settings.renew_seconds:g} s"
        while True:
            deadline = self._renewed + self._settings.renew_seconds
            timer = loop.call_at(deadline, lost, late)
            try:
                await asyncio.sleep(self._settings.retry_seconds)
                async with asyncio.timeout_at(deadline):
                    await self._renew()
            except Taken as taken:
                timer.cancel()
                lost(str(taken))
                return
            except (errors.EffectError, TimeoutError) as error:
                log.warning("the lease was not renewed: %s", error or "no answer")
            except BaseException:
                timer.cancel()
                raise
            if loop.time() >= self._renewed + self._settings.renew_seconds:
                return  # the timer tells, or has told
            timer.cancel()

    async def release(self) -> None:
        """Give the lease back, so that the next candidate need not wait. Best effort: else it runs out."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                # Read first: a renewal that was cut off may have been written.
                await self._expect_ours()
                await self._patch({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()})
        except (errors.EffectError, TimeoutError, Taken) as error:
            log.warning("the lease was not given back and runs out by itself: %s", error)
            return
        log.info("gave lease %s/%s back", self._namespace, self._settings.lease_name)

    # -- becoming the leader -------------------------------------------------------------------------------------

    async def _attempt(self) -> bool:
        """Look at the lease, and take it if it is free."""
        try:
            return await self._take()
        except (errors.AlreadyExists, errors.Conflict):
            return False  # somebody was faster
        except errors.EffectError as error:
            self._tell(f"cannot read or write the lease {self._namespace}/{self._settings.lease_name}: {error}")
            return False

    async def _take(self) -> bool:
        loop = asyncio.get_running_loop()
        try:
            lease = await self._client.get(api.LEASES, self._namespace, self._settings.lease_name)
        except errors.NotFound:
            sent = loop.time()
            await self._create()
            self._renewed = sent
            return True
        self._version = lease["metadata"]["resourceVersion"]
        record = Record.of(lease)
        if record != self._seen:
            self._seen, self._since = record, loop.time()
        if not self._free(record):
            self._tell(f"stands by: {record.holder} holds lease {self._namespace}/{self._settings.lease_name}")
            return False
        sent = loop.time()
        await self._patch(self._spec(record.transitions + 1))
        self._renewed = sent
        return True

    def _free(self, record: Record) -> bool:
        if not record.holder or record.holder == self._identity:
            return True
        if self._same_place and record.holder.startswith(self._same_place):
            return True
        return self._left(record) <= 0

    def _left(self, record: Record) -> float:
        """Seconds until the holder's silence is its end, by this process's clock."""
        return self._since + record.seconds - asyncio.get_running_loop().time()

    def _pause(self) -> float:
        retry = self._settings.retry_seconds * random.uniform(1.0, RETRY_JITTER)  # noqa: S311 - spreads candidates
        left = self._left(self._seen) if self._seen is not None else retry
        return max(SOONEST_SECONDS, min(retry, left)) if left > 0 else retry

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """One renewal. `Taken`: somebody else holds the lease, or made it anew."""
        sent = asyncio.get_running_loop().time()
        try:
            await self._patch({"renewTime": self._now()})
        except errors.NotFound:
            await self._make_anew(sent)
        except errors.Conflict:
            # Our own write whose answer was lost, or somebody's annotation, or another leader.
            await self._look()
        else:
            self._renewed = sent

    async def _look(self) -> None:
        """Whose the lease is; renewed onto what was read, if it is ours."""
        await self._expect_ours()
        sent = asyncio.get_running_loop().time()
        await self._patch({"renewTime": self._now()})
        self._renewed = sent

    async def _expect_ours(self) -> None:
        lease = await self._client.get(api.LEASES, self._namespace, self._settings.lease_name)
        holder = Record.of(lease).holder
        if holder != self._identity:
            raise Taken(f"the lease is held by {holder or 'nobody'} now")
        self._version = lease["metadata"]["resourceVersion"]

    async def _make_anew(self, sent: float) -> None:
        """Somebody deleted the lease."""
        try:
            await self._create()
        except errors.AlreadyExists:
            await self._look()
        else:
            self._renewed = sent

    async def _create(self) -> None:
        metadata = {"name": self._settings.lease_name, "namespace": self._namespace}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": self._spec(0),
        }
        created = await self._client.create(api.LEASES, self._namespace, body)
        self._version = created["metadata"]["resourceVersion"]

    async def _patch(self, spec: Mapping[str, Any]) -> None:
        """Compare-and-swap onto the version that was read or written last."""
        name = self._settings.lease_name
        written = await self._client.patch(
            api.LEASES, self._namespace, name, {"spec": dict(spec)}, resource_version=self._version
        )
        self._version = written["metadata"]["resourceVersion"]

    def _spec(self, transitions: int) -> dict[str, Any]:
        now = self._now()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._settings.lease_seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _now(self) -> str:
        return self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _tell(self, text: str) -> None:
        """Log a state once, not at every look."""
        if text != self._told:
            log.info("%s", text)
            self._told = text
