"""PID 1 of a container, as its model: the journal of phases.

Guarantees, as `helper/journal.go` and `server.go` give them: a phase goes from claimed to
started to done, only a claim is ever taken back, a start never happens twice, the result is the same for everyone; all
of it is gone with the container.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.world import clock, course, files, requests

if TYPE_CHECKING:
    from tests.world.sandbox import Container

MAX_PHASES = 64
MAX_RECENT = 4
MAX_FORGOTTEN = 4096
MAX_KEPT = 64 << 20
MAX_PREPARED = 1 << 20
MAX_RESULT = requests.MAX_READ_BYTES + MAX_PREPARED + requests.MAX_RUNS * requests.MAX_INLINE
YIELD_SECONDS = 1.0
BEAT_SECONDS = 1.0

Event = dict[str, Any]


@dataclass(eq=False)
class Claim:
    """A connection that prepares a phase. `kill` ends its process."""

    nonce: str
    idle: float
    kill: Callable[[], Any]
    heard: float = 0.0
    lost: "asyncio.Future[Event]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def beat(self) -> None:
        """The preparation makes progress."""
        if clock.now() - self.heard >= BEAT_SECONDS:
            self.heard = clock.now()


@dataclass(eq=False)
class Phase:
    """A nonce. It has a claim until it has started."""

    claim: Claim | None
    started_at: str = ""
    prepared: list[Event] = field(default_factory=list)
    room: int = MAX_RESULT
    result: Event | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


def failed(reason: str, message: str, results: list[Event] | None = None) -> Event:
    event: Event = {"event": "failed", "reason": reason, "message": message}
    return {**event, "results": results} if results else event


class Init:
    """The journal and the supervisor."""

    def __init__(self, box: "Container") -> None:
        self._box = box
        self._phases: dict[str, Phase] = {}
        self._forgotten: set[str] = set()
        self._shipped: dict[str, bool] = {}
        self.background: list[tuple[str, Event | None]] = []
        """Runs that go on beside the phases: the nonce of the phase that began it, and its end."""

    def started(self, nonce: str) -> Phase | None:
        """The phase of a nonce if it has started."""
        phase = self._phases.get(nonce)
        return phase if phase is not None and phase.claim is None else None

    def ships(self, path: str) -> bool:
        """Whether the path was a regular file when this was first asked, links of root's followed."""
        if path not in self._shipped:
            self._shipped[path] = isinstance(self._box.files.trusted(path), files.File)
        return self._shipped[path]

    @property
    def kept(self) -> int:
        """Bytes of memory that results take, or may still take."""
        return sum(phase.room for phase in self._phases.values())

    def claim(self, nonce: str, idle: float, kill: Callable[[], Any], *, attach_only: bool) -> Claim | Phase | Event:
        """To prepare it, to watch it, or the final event that says why neither."""
        phase = self._phases.get(nonce)
        if phase is not None and phase.claim is not None:
            return failed("Busy", "another connection is preparing this phase")
        if phase is not None:
            return phase
        if attach_only:
            return {"event": "unknown"}
        if nonce in self._forgotten:
            return failed("Forgotten", "the phase was done, and its result is no longer remembered")
        if not self._make_room():
            return failed("TooManyPhases", "this container remembers as many phases as it can")
        claim = Claim(nonce, idle, kill, clock.now())
        self._phases[nonce] = Phase(claim)
        self._box.spawn(self._watch(claim), f"claim of {nonce[:8]}")
        return claim

    def _make_room(self) -> bool:
        """Results of phases that were done long ago give way; their nonces stay known."""
        while len(self._phases) >= MAX_PHASES or self.kept + MAX_RESULT > MAX_KEPT:
            done = [nonce for nonce, phase in self._phases.items() if phase.result is not None]
            if len(done) <= MAX_RECENT or len(self._forgotten) >= MAX_FORGOTTEN:
                return False
            del self._phases[done[0]]
            self._forgotten.add(done[0])
        return True

    def release(self, claim: Claim) -> None:
        """Its process has ended. Changes nothing once the phase has started."""
        phase = self._phases.get(claim.nonce)
        if phase is not None and phase.claim is claim:
            del self._phases[claim.nonce]

    def start(self, claim: Claim, name: str, prepared: list[Event], work: Mapping[str, Any]) -> Phase:
        """Make a claim a start, for good."""
        phase = self._phases[claim.nonce]
        phase.claim = None
        phase.started_at, phase.prepared = _timestamp(self._box.now()), prepared
        phase.room = sum((run.get("output") or {}).get("inlineBytes", 0) for run in work["runs"])
        phase.room += sum(read.get("maxBytes", 0) for read in work["read"])
        way = course.Course(self._box, self, claim.nonce, name)
        self._box.spawn(way.execute(phase, work), f"phase {claim.nonce[:8]}")
        return phase

    async def _watch(self, claim: Claim) -> None:
        """A preparation that makes no progress loses its claim, and its process ends before the nonce is free."""
        while (due := claim.heard + claim.idle) > clock.now():
            await asyncio.sleep(due - clock.now())
        phase = self._phases.get(claim.nonce)
        if phase is None or phase.claim is not claim:
            return
        claim.lost.set_result(failed("Idle", "nothing arrived for idleSeconds; the claim is released"))
        await asyncio.sleep(YIELD_SECONDS)
        if self._phases.get(claim.nonce) is phase and phase.claim is claim:
            claim.kill()

    def finish(self, phase: Phase, runs: list[Event], found: list[Event]) -> None:
        """Keep the result of a phase for as long as the container lives."""
        ended = [{"nonce": nonce, "run": run} for nonce, run in self.background if run is not None]
        phase.result = {
            "prepared": phase.prepared,
            "startedAt": phase.started_at,
            "endedAt": _timestamp(self._box.now()),
            "runs": runs,
            "files": found,
            "background": ended,
        }
        inline = sum(len(run["output"]["inline"] or "") for run in [*runs, *(each["run"] for each in ended)])
        phase.room = inline + sum(len(file["base64"] or "") for file in found)
        phase.done.set()


def _timestamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
