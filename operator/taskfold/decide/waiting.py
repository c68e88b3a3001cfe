"""A phase that may go on for hours: when to be connected to it, when to look, and who tells its end.

Guarantees: a phase that is known to have started is never attached to only because this process is new; a signal is
followed by one look, and by another only at the slow pace; past the phase's own limit a look never is far.
"""

from taskfold.api import names
from taskfold.api.settings import WaitingSettings
from taskfold.api.status import JournalEntry
from taskfold.decide.plan import AddWaiter, Effect, RestPhase, RunPhase
from taskfold.decide.pod import PodView
from taskfold.decide.world import PhaseWaiting, Signal

LATE_LOOK_SECONDS = 30.0
"""Pause between looks at a phase that is past its limit, signal or not: the operator's own deadline comes next."""


def signal(pod: PodView | None, nonce: str) -> Signal:
    """What the pod's status says about the end of this phase."""
    waiter = pod.waiters.get(names.waiter(nonce)) if pod is not None else None
    if waiter is None:
        return Signal.NONE
    if waiter.terminated:
        return Signal.GIVEN
    # One that has not started may never start: until then we look ourselves.
    return Signal.AWAITED if waiter.running else Signal.NONE


def ask(entry: JournalEntry, pod: PodView | None) -> Effect:
    """The effect for a phase that nobody in this process is busy with: be connected to it, or wait for its signal."""
    found = signal(pod, entry.nonce)
    if entry.started_at is not None and found is Signal.AWAITED:
        return RestPhase(entry.nonce, entry.started_at, found)
    return RunPhase(entry.phase, entry.nonce, found)


def watch(
    entry: JournalEntry, report: PhaseWaiting, pod: PodView | None, settings: WaitingSettings, *, late: bool
) -> tuple[Effect, ...]:
    """The effects for a phase that goes on by itself. `late`: it is past its own limit."""
    found = signal(pod, entry.nonce)
    told = found is Signal.GIVEN and report.signal is not Signal.GIVEN
    if told or report.look_in <= 0 or (late and report.since >= LATE_LOOK_SECONDS):
        return (RunPhase(entry.phase, entry.nonce, found),)
    if found is Signal.AWAITED and report.signal is Signal.NONE:
        return (RestPhase(entry.nonce, report.started_at, found),)
    missing = pod is not None and names.waiter(entry.nonce) not in pod.waiters
    if settings.signal and report.signalled and missing and pod is not None:
        return (AddWaiter(pod.name, pod.uid, entry.nonce),)
    return ()


def again(report: PhaseWaiting, left: float, *, late: bool) -> float:
    """Seconds until the phase is to be decided about. `left`: until the operator's own deadline for it."""
    look = min(report.look_in, LATE_LOOK_SECONDS) if late else report.look_in
    return max(0.05, min(look, left))
