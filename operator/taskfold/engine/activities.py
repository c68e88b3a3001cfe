"""Phases that this process is busy with: long exchanges with sandboxes, beside the work queue.

Guarantees: at most one exchange for a nonce; its end wakes the reconcile, which finds the outcome here by the nonce.
What is held here is never the only copy: a phase that is unknown here is asked for again, and the sandbox's journal
gives the same answer. A connection that breaks is a delay, never an outcome.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from taskfold.decide.world import PhaseActive, PhaseDone, PhaseRefused, PhaseReport, PhaseUnreached
from taskfold.effects import errors
from taskfold.effects.sandbox import Started
from taskfold.engine.watch import Key
from taskfold.protocol.phase import PhaseResult

TRANSIENT = frozenset({"Busy", "Idle"})
"""Refusals that pass: another connection holds the claim, or this one was too slow."""
RETRY_FIRST = 0.25
RETRY_LIMIT = 20.0
STARTED_DELAY = 0.5
"""A phase that ends sooner needs no status that says it runs."""

Exchange = Callable[[Callable[[Started], Awaitable[None]]], Awaitable[PhaseResult]]

log = logging.getLogger(__name__)


@dataclass
class _Phase:
    key: Key
    task: "asyncio.Task[None] | None" = None
    report: PhaseReport = field(default_factory=PhaseActive)
    failures: int = 0
    retry_at: float = 0.0
    asked_at: float = 0.0


class Activities:
    """By nonce: who is busy, what came out."""

    def __init__(self, wake: Callable[[Key, float], None]) -> None:
        """`wake(key, delay)` puts a key into the work queue."""
        self._wake = wake
        self._phases: dict[str, _Phase] = {}

    def report(self, nonce: str) -> PhaseReport | None:
        """What is known of this phase; None: nothing, ask the sandbox."""
        phase = self._phases.get(nonce)
        if phase is None:
            return None
        now = asyncio.get_running_loop().time()
        match phase.report:
            case PhaseUnreached(message=message):
                left = max(0.0, phase.retry_at - now)
                return PhaseUnreached(message, phase.failures, left, now - phase.asked_at)
            case PhaseActive(started_at=started_at):
                return PhaseActive(started_at, now - phase.asked_at)
            case done:
                return done

    def result(self, nonce: str) -> PhaseResult | None:
        """The outcome, if it is known here."""
        report = self.report(nonce)
        return report.result if isinstance(report, PhaseDone) else None

    def start(self, key: Key, nonce: str, exchange: Exchange) -> None:
        """Begin the exchange for this nonce, unless one is under way or done."""
        phase = self._phases.get(nonce)
        if phase is None:
            phase = self._phases[nonce] = _Phase(key, asked_at=asyncio.get_running_loop().time())
        if phase.task is not None or isinstance(phase.report, PhaseDone):
            return
        phase.report = PhaseActive()
        phase.task = asyncio.create_task(self._carry(key, nonce, phase, exchange), name=f"phase {nonce[:8]}")

    def forget(self, nonces: Iterable[str]) -> None:
        """These phases belong to the past; an exchange that is still under way is dropped."""
        for nonce in nonces:
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

    async def _carry(self, key: Key, nonce: str, phase: _Phase, exchange: Exchange) -> None:
        async def on_started(started: Started) -> None:
            phase.report = PhaseActive(started.at)
            self._wake(key, STARTED_DELAY)

        delay = 0.0
        try:
            phase.report = PhaseDone(await exchange(on_started))
            phase.failures = 0
        except errors.PhaseFailed as failure:
            if failure.reason in TRANSIENT:
                delay = self._unreached(phase, failure)
            else:
                phase.report = PhaseRefused(failure.reason, failure.problem)
        except (errors.EffectError, OSError, TimeoutError) as failure:
            delay = self._unreached(phase, failure)
            log.info("phase %s not reached: %s", nonce[:8], failure, extra={"key": str(key)})
        except Exception as failure:
            # An error of ours must not look like a phase that goes on: it is told, and the exchange tried again.
            delay = self._unreached(phase, failure)
            log.exception("phase %s failed", nonce[:8], extra={"key": str(key)})
        finally:
            phase.task = None
            self._wake(key, delay)

    def _unreached(self, phase: _Phase, failure: Exception) -> float:
        phase.failures += 1
        delay = min(RETRY_FIRST * 2.0 ** min(phase.failures - 1, 20), RETRY_LIMIT)
        phase.retry_at = asyncio.get_running_loop().time() + delay
        phase.report = PhaseUnreached(str(failure) or type(failure).__name__, phase.failures, delay)
        return delay
