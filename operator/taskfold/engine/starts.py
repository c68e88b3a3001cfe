"""The pace of pod starts: a bounded number between creation and their container's start.

A pod costs its node more than a core-second; many at once only make every reward later. Guarantees: first come, first
served; a slot is free again when its pod runs, is gone, or was never created. It is pacing only: losing it loses
nothing.
"""

from collections.abc import Callable

from taskfold.engine.watch import Key


class Starts:
    """Start slots of one operator process."""

    def __init__(self, slots: int, starting: Callable[[], int], wake: Callable[[Key], None]) -> None:
        """`starting()`: pods on their way as the watch sees them. `wake(key)`: a slot is there for this run."""
        self._slots = slots
        self._starting = starting
        self._wake = wake
        self._queue: dict[Key, None] = {}
        self._held: set[Key] = set()

    def take(self, key: Key) -> bool:
        """A slot for this run's pod, held until `placed`; False: it is in the queue and will be woken."""
        if key in self._held or (not self._queue and self._free() > 0):
            self._held.add(key)
            return True
        self._queue[key] = None
        self.offer()
        return False

    def ahead(self, key: Key) -> None:
        """A slot at once, whether one is free or not: work that is done waits for its verification."""
        self._queue.pop(key, None)
        self._held.add(key)

    def placed(self, key: Key) -> None:
        """The pod was created, and the watch has seen it: from now on `starting` counts it."""
        self._held.discard(key)

    def forget(self, key: Key) -> None:
        """The run wants no pod now: its place and its slot are free for others."""
        if key in self._queue or key in self._held:
            self._queue.pop(key, None)
            self._held.discard(key)
            self.offer()

    def offer(self) -> None:
        """Something started or went away: wake those whose turn it is."""
        while self._queue and self._free() > 0:
            key = next(iter(self._queue))
            del self._queue[key]
            self._held.add(key)
            self._wake(key)

    def _free(self) -> int:
        return self._slots - self._starting() - len(self._held)
