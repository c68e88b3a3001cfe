"""What in the store nobody needs any more: files of runs that are gone, snapshots that no run names, bulk and parts of
files that nothing refers to.

Guarantees: nothing goes that belongs to a run or a verification which is an object, which the API server is asked for
after the files were found; nothing younger than `store.retentionSeconds`, by the time of its last write; nothing at all
of a run without that setting, but what nobody can see. Documents go before the bulk that they name, so that none is
ever read that names what has gone; whoever comes after a crash goes on. Memory does not grow with the store, deletions
are paced, and a round that fails is followed by the next.

A run's folder is `<cluster>/<namespace>/<uid>/<attempt>/`, a snapshot `<cluster>/<namespace>/tasks/<digest>.tar`.
Records of images (`<cluster>/images/`) are few and stay. Half-written uploads to a bucket are invisible from here: the
bucket has a rule for them (docs/store.md).
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.engine.parts import Parts

TASKS = "tasks"
COLLECTED = "collected.json"
DOCUMENTS = {COLLECTED, "artifacts.json", "agent.json", "verifier.json"}
"""Those that name bulk, and the entries of artifacts, `artifacts/<i>.json`."""
DAY = 24 * 3600.0
"""What nothing refers to stays so long after its attempt has ended, and so does a half-written file: whoever writes
it may still be at it."""
LOOK_BACK = 7 * DAY
"""A process that starts looks for bulk without a reference in attempts that ended since; older ones have been seen."""
BATCH = 500
"""Found together, and then asked for together."""
PAGE = 1000
SEARCHED = 50_000
"""An attempt with more archives and documents is not searched for what nothing refers to."""
FIRST_SECONDS = 60.0
ROUND_SECONDS = 6 * 3600.0
DELETE_ROUNDS = 1000
"""Of ten thousand objects each: more has no run."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SNAPSHOT = re.compile(r"([0-9a-f]{64})\.(?:tar|json)")

log = logging.getLogger(__name__)


@dataclass
class _Attempt:
    newest: float = 0.0
    archives: int = 0
    ended: bool = False


@dataclass
class _Folder:
    """What a listing said of a run's folder, or of one snapshot (`snapshot`: its digest)."""

    namespace: str
    uid: str
    newest: float = 0.0
    attempts: dict[str, _Attempt] = field(default_factory=dict)
    snapshot: str | None = None

    def add(self, rest: str, stored: stores.Stored) -> None:
        """An object of it. `rest`: its key below the folder."""
        self.newest = max(self.newest, stored.modified)
        number, _, name = rest.partition("/")
        attempt = self.attempts.setdefault(number, _Attempt())
        attempt.newest = max(attempt.newest, stored.modified)
        attempt.archives += name.endswith(".tar")
        attempt.ended = attempt.ended or name == COLLECTED


class Retention:
    """Rounds over the store of one operator process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._cluster = parts.settings.cluster_name
        self._seen_until: float | None = None
        """Attempts that ended before this have been looked at for bulk without a reference."""

    async def run(self) -> None:
        """Rounds until cancelled; the first one when the process has found its runs."""
        every = self._parts.settings.janitor.store_seconds
        await asyncio.sleep(min(every, FIRST_SECONDS))
        while True:
            try:
                async with asyncio.timeout(ROUND_SECONDS):
                    await self.round()
            except (errors.EffectError, TimeoutError) as error:
                log.warning("a round over the store failed: %s", error or "it took too long")
            await asyncio.sleep(every)

    async def round(self) -> None:
        """Look at everything once."""
        now = self._parts.clock().timestamp()
        since = self._seen_until if self._seen_until is not None else now - DAY - LOOK_BACK
        for namespace in self._parts.settings.namespaces or [""]:
            scope = f"{self._cluster}/{namespace}/" if namespace else f"{self._cluster}/"
            swept = await self._store.sweep_unfinished(scope, now - DAY)
            if swept:
                log.info("%s: %d half-written files of processes that are gone are deleted", scope, swept)
            await self._scope(scope, now, since)
        self._seen_until = now - DAY

    async def _scope(self, scope: str, now: float, since: float) -> None:
        retention = self._parts.settings.store.retention_seconds
        batch: list[_Folder] = []
        async with contextlib.aclosing(self._folders(scope)) as found:
            async for folder in found:
                if batch and (batch[0].namespace != folder.namespace or len(batch) == BATCH):
                    await self._expire(batch, now, since)
                    batch = []
                if retention is not None and folder.newest < now - retention:
                    batch.append(folder)
                else:
                    await self._unreferenced(folder, now, since)
        if batch:
            await self._expire(batch, now, since)

    async def _folders(self, scope: str) -> AsyncGenerator[_Folder, None]:
        """What is listed, folder by folder. A listing has a folder's objects one after the other, in every backend."""
        current: _Folder | None = None
        async with contextlib.aclosing(self._store.list(scope)) as listed:
            async for stored in listed:
                parts = stored.key.removeprefix(f"{self._cluster}/").split("/", 2)
                if len(parts) < 3:
                    continue  # the record of an image
                namespace, uid, rest = parts
                snapshot = _SNAPSHOT.fullmatch(rest) if uid == TASKS else None
                if uid == TASKS and snapshot is None:
                    continue
                digest = f"sha256:{snapshot[1]}" if snapshot is not None else None
                if current is None or (current.namespace, current.uid, current.snapshot) != (namespace, uid, digest):
                    if current is not None:
                        yield current
                    current = _Folder(namespace, uid, snapshot=digest)
                current.add(rest, stored)
        if current is not None:
            yield current

    # -- what is older than the retention -----------------------------------------------------------------------------

    async def _expire(self, batch: list[_Folder], now: float, since: float) -> None:
        """Delete of these, all of one namespace, what belongs to no object that exists now."""
        namespace = batch[0].namespace
        uids, digests = await self._named(namespace)
        for folder in batch:
            if folder.snapshot is not None:
                gone = folder.snapshot not in digests and await self._parts.snapshots.delete(namespace, folder.snapshot)
            elif folder.uid in uids:
                gone = False
                await self._unreferenced(folder, now, since)
            else:
                gone = await self._delete(folder, now)
            if gone:
                what = f"snapshot {folder.snapshot}" if folder.snapshot is not None else f"run {folder.uid}"
                log.info("%s: the files of %s are deleted: their time in the store is over", namespace, what)
                await asyncio.sleep(1 / self._parts.settings.janitor.deletes_per_second)

    async def _named(self, namespace: str) -> tuple[set[str], set[str]]:
        """The uids and the digests that the namespace's objects are, and name."""
        client = self._parts.client
        runs = await client.list(api.TASKRUNS, namespace, project=_names)
        verifiers = await client.list(api.VERIFIERRUNS, namespace, project=_names)
        uids: set[str] = set()
        digests: set[str] = set()
        for of_object, in_status in (*runs.items, *verifiers.items):
            uids |= of_object
            digests |= in_status
        return uids, digests

    async def _delete(self, folder: _Folder, now: float) -> bool:
        """Documents, then everything, unless something was written since it was listed."""
        retention = self._parts.settings.store.retention_seconds or 0.0
        prefix = f"{self._cluster}/{folder.namespace}/{folder.uid}/"
        for _ in range(DELETE_ROUNDS):
            documents: list[str] = []
            async with contextlib.aclosing(self._store.list(prefix)) as listed:
                async for stored in listed:
                    if stored.modified >= now - retention:
                        return False
                    if stored.key.endswith(".json") and len(documents) < PAGE:
                        documents.append(stored.key)
            await self._store.remove(documents)
            if len(documents) < PAGE:
                break
        for _ in range(DELETE_ROUNDS):
            if await self._store.delete(prefix, limit=PAGE) < PAGE:
                break
        return True

    # -- what nothing refers to ----------------------------------------------------------------------------------------

    async def _unreferenced(self, folder: _Folder, now: float, since: float) -> None:
        """Delete archives of ended attempts that no document names: of a copy that was given up, or done twice."""
        if folder.snapshot is not None:
            return
        for number, attempt in folder.attempts.items():
            if attempt.ended and attempt.archives and since <= attempt.newest < now - DAY:
                await self._without_reference(f"{self._cluster}/{folder.namespace}/{folder.uid}/{number}/")

    async def _without_reference(self, place: str) -> None:
        archives: list[str] = []
        documents: list[str] = []
        async with contextlib.aclosing(self._store.list(place)) as listed:
            async for stored in listed:
                if stored.key.endswith(".tar"):
                    archives.append(stored.key)
                elif _names_bulk(stored.key):
                    documents.append(stored.key)
                if len(archives) + len(documents) > SEARCHED:
                    log.warning("%s has more objects than are searched for what nothing refers to", place)
                    return
        named: set[str] = set()
        for key in documents:
            folder = key.rpartition("/")[0]
            found = set(_keys(json.loads(await self._store.get(key, limit=stores.NEW_BYTES))))
            named |= {f"{folder}/{each}" for each in found} | {f"{folder.rpartition('/')[0]}/{each}" for each in found}
        lost = [key for key in archives if key not in named]
        await self._store.remove(lost)
        if lost:
            log.info("%s: %d archives that nothing refers to are deleted", place, len(lost))
            await asyncio.sleep(len(lost) / self._parts.settings.janitor.deletes_per_second)


def _names(obj: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The uids that an object is, belongs to, grades or has its files under; the digests in its status."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    reference = ((obj.get("spec") or {}).get("source") or {}).get("runRef") or {}
    place = (status.get("store") or "").split("/")
    uids = {
        metadata["uid"],
        reference.get("uid"),
        status.get("runUID"),
        *(each["uid"] for each in metadata.get("ownerReferences") or ()),
    }
    uids |= set(place[2:3])
    return {uid for uid in uids if uid}, set(_DIGEST.findall(json.dumps(status)))


def _names_bulk(key: str) -> bool:
    folder, _, name = key.rpartition("/")
    return name in DOCUMENTS or (folder.endswith("/artifacts") and name.endswith(".json"))


def _keys(document: object) -> list[str]:
    """Every `key` in it, at any depth."""
    found: list[str] = []
    rest = [document]
    while rest:
        each = rest.pop()
        if isinstance(each, Mapping):
            found += [each["key"]] if isinstance(each.get("key"), str) else []
            rest += each.values()
        elif isinstance(each, list):
            rest += each
    return found
