"""engine/phases.py: how long an exchange stays for the end of a phase that has started."""

from pathlib import Path

import pytest
from tests.decide import worlds
from tests.engine.parts import Operator

from taskfold.api.status import JournalPhase
from taskfold.decide.world import PhaseUnreached, PhaseWaiting, Signal
from taskfold.effects import sandbox
from taskfold.engine.phases import Phases

LOOKS = PhaseWaiting(worlds.ago(60), 5.0)
BROKEN = PhaseUnreached("the connection broke", 1, 0.0)


@pytest.mark.parametrize(
    ("stream_seconds", "report", "signal", "stays"),
    [
        (60, LOOKS, Signal.NONE, sandbox.MOMENT_SECONDS),
        (60, LOOKS, Signal.AWAITED, sandbox.MOMENT_SECONDS),
        (60, LOOKS, Signal.GIVEN, 60),
        (60, BROKEN, Signal.NONE, 60),
        (0, LOOKS, Signal.GIVEN, sandbox.MOMENT_SECONDS),
        (0, BROKEN, Signal.NONE, sandbox.MOMENT_SECONDS),
    ],
    ids=[
        "a look",
        "a look before the signal",
        "signalled",
        "after a break",
        "signalled, no streams",
        "break, no streams",
    ],
)
def test_an_end_that_is_there_is_always_heard(
    tmp_path: Path, stream_seconds: float, report: PhaseWaiting | PhaseUnreached, signal: Signal, stays: float
) -> None:
    """Without streams a look that leaves before the answer would be repeated until the operator's own deadline."""
    phases = Phases(Operator(tmp_path, waiting={"streamSeconds": stream_seconds}).parts)
    journal = worlds.running().journal
    started = [each.model_copy(update={"started_at": worlds.ago(60)}) for each in journal]
    attached = phases._attached(JournalPhase.AGENT, worlds.AGENT, report, started, signal)
    assert attached is not None
    assert attached.stay_seconds == stays
