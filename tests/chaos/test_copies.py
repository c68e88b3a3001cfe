"""Copies that are hit at a random moment: out of the agent's pod, and into the verifier's.

Never is another byte accepted than the agent left: not by a manifest, not by a verdict. The short form meets each fault
with one blow; TASKFOLD_CHAOS=full has enough of them for more than two hundred copies.
"""

import pytest

from tests.chaos import copies, trial
from tests.chaos.copies import FAULTS
from tests.chaos.faults import Fault
from tests.chaos.trial import FULL, Stage

RUNS = 40 if FULL else 5
BLOWS = 40 if FULL else 1

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.partition(": ")[2])
def test_every_copy_is_whole_or_is_made_again(fault: Fault, stage: Stage) -> None:
    trial.require_nodes(fault, stage.cluster)
    chances = stage.chances(fault)
    cases = copies.mix(RUNS, chances, stage.starts, fault.spec)
    trial.endure(stage, fault, cases, chances, BLOWS)
