"""Phases that this process is busy with: exchanges with sandboxes, beside the work queue, and waits for long ones.

Guarantees: at most one exchange for a nonce; its end wakes the reconcile, which finds the outcome here by the nonce.
What is held here is never the only copy: a phase that is unknown here is asked for again, and the sandbox's journal
gives the same answer. A connection that breaks is a delay, never an outcome, and many that break at once come back
spread out. A phase that waits has no task, no connection and no timer of its own but a key in the queue.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never

from taskfold.api.settings import WaitingSettings
from taskfold.decide.world import (
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    PhaseReport,
    PhaseUnreached,
    PhaseWaiting,
    Signal,
)
from taskfold.effects import errors
from taskfold.effects.sandbox import Going, Started
from taskfold.engine.watch import Key
from taskfold.protocol.phase import PhaseResult

TRANSIENT = frozenset({"Busy", "Idle"})
"""Refusals that pass: another connection holds the claim, or this one was too slow."""
RETRY_FIRST = 0.5
RETRY_LIMIT = 20.0
RETRIES_PER_SECOND = 20.0
"""When many connections break at once, about so many come back in a second."""
LOOK_FIRST = 5.0
"""Pause before the first look at a phase that nothing signals; it doubles up to the setting's."""
KILLED = 137
"""How a helper ends that gets SIGKILL."""
KILLED_EARLY = ("procReady not received", "failed to sync with child", "write init-p: broken pipe")
"""runc's words for a process that was gone before it had become the helper, and did not say why."""
STARTED_DELAY = 0.5
"""A phase that ends sooner needs no status that says it runs."""

Exchange = Callable[[Callable[[Started], Awaitable[None]]], Awaitable[PhaseResult | Going]]

log = logging.getLogger(__name__)


@dataclass
class _Phase:
    key: Key
    task: "asyncio.Task[None] | None" = None
    report: PhaseReport = field(default_factory=PhaseActive)
    failures: int = 0
    killed: int = 0
    """Helpers that were killed in the sandbox since one came to its end."""
    looks: int = 0
    due_at: float = 0.0
    """When to try again, or to look again."""
    looked_at: float = 0.0
    asked_at: float = 0.0
    signal: Signal = Signal.NONE
    signalled: bool = True
    refused: bool = False
    """The cluster has no container for it, for good."""


class Activities:
    """By nonce: who is busy, what came out."""

    def __init__(
        self,
        wake: Callable[[Key, float], None],
        settings: WaitingSettings | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`wake(key, delay)` puts a key into the work queue. `chance()`: a number from 0 to 1."""
        self._wake = wake
        self._settings = settings or WaitingSettings()
        self._chance = chance
        self._phases: dict[str, _Phase] = {}
        self._broken: set[str] = set()

    def report(self, nonce: str) -> PhaseReport | None:
        """What is known of this phase; None: nothing, ask the sandbox."""
        phase = self._phases.get(nonce)
        if phase is None:
            return None
        now = asyncio.get_running_loop().time()
        left, asked = max(0.0, phase.due_at - now), now - phase.asked_at
        match phase.report:
            case PhaseUnreached(message=message):
                return PhaseUnreached(message, phase.failures, left, asked, phase.killed)
            case PhaseWaiting(started_at=started_at):
                return PhaseWaiting(started_at, left, phase.signal, phase.signalled, now - phase.looked_at, asked)
            case PhaseActive(started_at=started_at, progress=progress):
                return PhaseActive(started_at, asked, progress)
            case PhaseDone() | PhaseRefused():
                return phase.report
            case _:
                assert_never(phase.report)

    def result(self, nonce: str) -> PhaseResult | None:
        """The outcome, if it is known here."""
        report = self.report(nonce)
        return report.result if isinstance(report, PhaseDone) else None

    def start(self, key: Key, nonce: str, exchange: Exchange, signal: Signal = Signal.NONE) -> None:
        """Begin the exchange for this nonce, unless one is under way or done. `signal`: what is known by now."""
        phase = self._phase(key, nonce)
        if phase.task is not None or isinstance(phase.report, PhaseDone):
            return
        phase.report, phase.signal = PhaseActive(), signal
        phase.task = asyncio.create_task(self._carry(key, nonce, phase, exchange), name=f"phase {nonce[:8]}")

    def tell(self, nonce: str, progress: str) -> None:
        """How far the delivery is that comes before the phase's start, if that is still under way."""
        phase = self._phases.get(nonce)
        match phase.report if phase is not None else None:
            case PhaseActive(started_at=None, progress=before) if phase is not None and before != progress:
                phase.report = PhaseActive(progress=progress)
                self._wake(phase.key, 0.0)

    def rest(self, key: Key, nonce: str, started_at: str, signal: Signal) -> None:
        """The phase goes on by itself: wait for its signal, and look at the pace that this leaves. Nothing is sent."""
        phase = self._phase(key, nonce)
        if phase.task is not None or isinstance(phase.report, PhaseDone):
            return
        phase.signal = signal
        self._rest(nonce, phase, started_at)

    def unsignalled(self, nonce: str, *, for_good: bool) -> None:
        """No container can wait for this phase: until the next look, or for good."""
        phase = self._phases.get(nonce)
        if phase is not None:
            phase.signalled = False
            phase.refused = phase.refused or for_good

    def forget(self, nonces: Iterable[str]) -> None:
        """These phases belong to the past; an exchange that is still under way is dropped."""
        for nonce in nonces:
            self._broken.discard(nonce)
            phase = self._phases.pop(nonce, None)
            if phase is not None and phase.task is not None:
                phase.task.cancel()

    def drop(self, key: Key) -> None:
        """The object is gone: so is everything that was under way for it."""
        self.forget([nonce for nonce, phase in self._phases.items() if phase.key == key])

    async def close(self) -> None:
        """Drop every exchange: the sandboxes go on, the next operator attaches."""
        tasks = [phase.task for phase in self._phases.values() if phase.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return sum(phase.task is not None for phase in self._phases.values())

    def _phase(self, key: Key, nonce: str) -> _Phase:
        phase = self._phases.get(nonce)
        if phase is None:
            phase = self._phases[nonce] = _Phase(key, asked_at=asyncio.get_running_loop().time())
        return phase

    async def _carry(self, key: Key, nonce: str, phase: _Phase, exchange: Exchange) -> None:
        async def on_started(started: Started) -> None:
            self._reached(nonce, phase)
            phase.report = PhaseActive(started.at)
            self._wake(key, STARTED_DELAY)

        delay = 0.0
        try:
            found = await exchange(on_started)
            self._reached(nonce, phase)
            phase.killed = 0  # not before: a helper may be killed whenever it has said that the phase goes on
            if isinstance(found, Going):
                self._rest(nonce, phase, found.started_at)
            else:
                phase.report = PhaseDone(found)
        except errors.PhaseFailed as failure:
            if failure.reason in TRANSIENT:
                delay = self._unreached(nonce, phase, failure)
            else:
                phase.report = PhaseRefused(failure.reason, failure.problem)
        except (errors.EffectError, OSError, TimeoutError) as failure:
            delay = self._unreached(nonce, phase, failure)
            log.info("phase %s not reached: %s", nonce[:8], failure, extra={"key": str(key)})
        except Exception as failure:
            # An error of ours must not look like a phase that goes on: it is told, and the exchange tried again.
            delay = self._unreached(nonce, phase, failure)
            log.exception("phase %s failed", nonce[:8], extra={"key": str(key)})
        finally:
            phase.task = None
            self._wake(key, delay)

    def _reached(self, nonce: str, phase: _Phase) -> None:
        phase.failures = 0
        self._broken.discard(nonce)

    def _rest(self, nonce: str, phase: _Phase, started_at: str) -> None:
        """From now on nobody is connected; a decision is made about it at `due_at`."""
        now, settings = asyncio.get_running_loop().time(), self._settings
        if not isinstance(phase.report, PhaseWaiting):
            log.info("phase %s goes on by itself", nonce[:8], extra={"key": str(phase.key)})
        if phase.signal is Signal.AWAITED:
            pause, phase.looks = settings.signalled_look_seconds, 0
        else:
            pause = min(LOOK_FIRST * 2.0 ** min(phase.looks, 20), settings.look_seconds)
            phase.looks += 1
        pause *= 0.5 + self._chance()
        phase.looked_at, phase.due_at = now, now + pause
        phase.signalled = not phase.refused
        phase.report = PhaseWaiting(started_at, pause)

    def _unreached(self, nonce: str, phase: _Phase, failure: Exception) -> float:
        """Full jitter: any moment until a limit that grows with every failure, and with how many are cut off."""
        phase.failures += 1
        phase.killed += _killed(failure)
        self._broken.add(nonce)
        alone = RETRY_FIRST * 2.0 ** min(phase.failures - 1, 20)
        window = max(min(alone, RETRY_LIMIT), len(self._broken) / RETRIES_PER_SECOND)
        delay = window * self._chance()
        phase.due_at = asyncio.get_running_loop().time() + delay
        phase.report = PhaseUnreached(str(failure) or type(failure).__name__, phase.failures, delay)
        return delay


def _killed(failure: Exception) -> bool:
    """Whether the helper was killed in the sandbox, which goes on."""
    match failure:
        case errors.HelperFailed(code=code):
            return code == KILLED
        case errors.StartFailed(problem=problem):
            return any(words in problem for words in KILLED_EARLY)
        case _:
            return False
