"""Who images start as: recorded once per image id by an init container without runAsUser, kept in the store.

Guarantees: a record is used only for the image id that it was taken from; the reference only tells whether a new pod
has to take one.
"""

import collections
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from taskfold.effects import store as stores
from taskfold.protocol.phase import User

RECORD_BYTES = 8192
HELD = 1024


class ImageUsers:
    """The records of one cluster in the store, the recent ones in memory."""

    def __init__(self, store: stores.Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._held: collections.OrderedDict[str, User] = collections.OrderedDict()

    async def get(self, name: str) -> User | None:
        """The user that this image id, or the image last seen behind this reference, starts as."""
        key = self._key(name)
        if key not in self._held:
            try:
                content = await self._store.get(key, limit=RECORD_BYTES)
            except stores.NotStored:
                return None
            self._hold(key, _of(json.loads(content)))
        return self._held[key]

    async def put(self, names: Sequence[str], user: User) -> None:
        """Keep who the image of this id, and of the reference that led to it, starts as."""
        content = json.dumps(user.to_wire()).encode()
        for name in filter(None, names):
            await self._store.put_stream(self._key(name), _once(content))
            self._hold(self._key(name), user)

    def _hold(self, key: str, user: User) -> None:
        self._held[key] = user
        while len(self._held) > HELD:
            self._held.popitem(last=False)

    def _key(self, name: str) -> str:
        return f"{self._cluster}/images/{hashlib.sha256(name.encode()).hexdigest()}.json"


def _of(wire: Mapping[str, Any]) -> User:
    groups = wire.get("groups")
    numbers = tuple(groups) if groups is not None else None
    return User(uid=wire["uid"], gid=wire.get("gid"), groups=numbers, group=wire.get("group"))


def parse(record: str) -> User:
    """What `helper record` printed. Raises ValueError for anything else."""
    try:
        found = json.loads(record)
        return User(uid=int(found["uid"]), gid=int(found["gid"]), groups=tuple(map(int, found["groups"] or ())))
    except (TypeError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"not a record of an image's user: {record[:200]!r}") from error


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
