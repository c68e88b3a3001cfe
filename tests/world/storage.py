"""Objects with one version counter for all, their recent past, and the watches that are told of every change.

Guarantees: an object in the store is never changed in place; every write has a version of its own; any state within
the kept past can be read again (pages of a list, watches from a version); what is older is `Refusal` 410.
"""

import asyncio
import collections
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from taskfold.effects.client import Resource
from tests.world import refusals

Json = dict[str, Any]
T = TypeVar("T")
Place = tuple[str, str]
"""Namespace ("" without one) and name."""
KEPT = 20_000
"""Changes that are remembered."""
BUFFER = 10_000
"""Events that may wait in one watch; the real server ends a watch that does not keep up."""


_NESTED = (dict, list)


def clone(value: T) -> T:
    """A deep copy of JSON data."""
    return cast("T", _copied(value) if isinstance(value, _NESTED) else value)


def _copied(value: Any) -> Any:
    """Most values are leaves: no call for those."""
    if isinstance(value, dict):
        return {key: _copied(each) if isinstance(each, _NESTED) else each for key, each in value.items()}
    return [_copied(each) if isinstance(each, _NESTED) else each for each in value]


@dataclass(frozen=True)
class Change:
    """One write. `old` None: created. `new` None: removed."""

    version: int
    resource: Resource
    place: Place
    old: Json | None
    new: Json | None

    @property
    def type(self) -> str:
        """As an unselective watch is told."""
        return "ADDED" if self.old is None else "DELETED" if self.new is None else "MODIFIED"

    @property
    def object(self) -> Json:
        """The object; a removed one as it was, with the version of its removal."""
        if self.new is not None:
            return self.new
        assert self.old is not None
        return versioned(self.old, self.version)


def versioned(obj: Json, version: int) -> Json:
    """The same with another resourceVersion; shares everything else."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


@dataclass(eq=False)
class Subscription:
    """One watch: `async for event in subscription`. Ends when it is dropped or closed, and after an ERROR event."""

    resource: Resource
    namespace: str | None
    selected: Callable[[Json], bool]
    kind: str
    api_version: str
    bookmarks: bool
    silent: bool = False
    closed: bool = False
    _events: collections.deque[Json] = field(default_factory=collections.deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Json:
        while True:
            event = self.poll()
            if event is not None:
                return event
            if self.closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    def poll(self) -> Json | None:
        """The next event that is here, without waiting. A silent watch has none."""
        return self._events.popleft() if self._events and not self.silent else None

    def see(self, change: Change) -> None:
        """Tell of a change if it concerns the selection."""
        if change.resource != self.resource or self.namespace not in (None, change.place[0]):
            return
        before = change.old is not None and self.selected(change.old)
        after = change.new is not None and self.selected(change.new)
        if after:
            assert change.new is not None
            self.tell("MODIFIED" if before else "ADDED", change.new)
        elif before:
            assert change.old is not None
            # What left the selection is told as it was when it belonged to it, with the version of the leaving.
            self.tell("DELETED", versioned(change.old, change.version))

    def tell(self, kind: str, obj: Json) -> None:
        """Put an event in line, whether it is selected or not."""
        if self.closed:
            return
        if len(self._events) >= BUFFER:
            self.drop()
            return
        self._events.append({"type": kind, "object": clone(obj)})
        self._news.set()

    def bookmark(self, version: int, *, initial: bool = False) -> None:
        """Tell how far the watch is, if its reader wants to know."""
        if not self.bookmarks:
            return
        metadata: Json = {"resourceVersion": str(version)}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        self.tell("BOOKMARK", {"kind": self.kind, "apiVersion": self.api_version, "metadata": metadata})

    def drop(self) -> None:
        """The connection ends; what was not read yet is lost."""
        self._events.clear()
        self.silent = False
        self.close()

    def silence(self) -> None:
        """The connection stays and nothing arrives any more, nor its end."""
        self.silent = True

    def expire(self, refusal: refusals.Refusal) -> None:
        """An ERROR event (410), and the end."""
        self.tell("ERROR", refusal.status())
        self.close()

    def close(self) -> None:
        """No more events after those that are here."""
        self.closed = True
        self._news.set()


class Storage:
    """`subscribers` are called with every change, in order, also when one of them writes."""

    def __init__(self) -> None:
        self.head = 100
        self.watches: list[Subscription] = []
        self.subscribers: list[Callable[[Change], None]] = []
        self._objects: dict[Resource, dict[Place, Json]] = collections.defaultdict(dict)
        self._past: collections.deque[Change] = collections.deque()
        self._oldest = self.head
        self._untold: collections.deque[Change] = collections.deque()
        self._telling = False

    def get(self, resource: Resource, place: Place) -> Json | None:
        return self._objects[resource].get(place)

    def now(self, resource: Resource) -> dict[Place, Json]:
        """All objects of a type, in the order of their keys."""
        return dict(sorted(self._objects[resource].items()))

    def every(self) -> Iterator[tuple[Resource, Place, Json]]:
        """All objects of all kinds, as of now."""
        for resource, objects in list(self._objects.items()):
            for place, obj in list(objects.items()):
                yield resource, place, obj

    def write(self, resource: Resource, place: Place, obj: Json | None) -> Json:
        """Create, replace or (None) remove. Returns what watches are told: with its version."""
        self.head += 1
        old = self._objects[resource].get(place)
        new = versioned(obj, self.head) if obj is not None else None
        if new is None:
            del self._objects[resource][place]
        else:
            self._objects[resource][place] = new
        change = Change(self.head, resource, place, old, new)
        self._past.append(change)
        while len(self._past) > KEPT:
            self._oldest = self._past.popleft().version
        self._untold.append(change)
        self._tell()
        return change.object

    def _tell(self) -> None:
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                change = self._untold.popleft()
                self.watches = [watch for watch in self.watches if not watch.closed]
                for watch in self.watches:
                    watch.see(change)
                for call in list(self.subscribers):
                    call(change)
        finally:
            self._telling = False

    def compact(self) -> None:
        """Forget the past: continue tokens and versions from before are 410 from now on."""
        self._past.clear()
        self._oldest = self.head

    @property
    def oldest(self) -> int:
        """The oldest version from which a watch can start."""
        return self._oldest

    def since(self, version: int) -> list[Change]:
        """Changes after this version. `Refusal` 410 if they are not all known."""
        if version < self._oldest:
            raise refusals.expired_watch(version, self._oldest)
        return [change for change in self._past if change.version > version]

    def at(self, resource: Resource, version: int) -> dict[Place, Json]:
        """All objects of a type as they were at a version, in the order of their keys. `Refusal` 410 if forgotten."""
        if version < self._oldest:
            raise refusals.expired_list()
        objects = dict(self._objects[resource])
        for change in reversed(self._past):
            if change.version <= version:
                break
            if change.resource == resource:
                objects.pop(change.place, None)
                if change.old is not None:
                    objects[change.place] = change.old
        return dict(sorted(objects.items()))
