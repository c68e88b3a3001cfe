"""Runs go on while the operator and the cluster are hurt: no result is lost, none is invented, nothing starts twice.

The short form meets each fault with a few runs and leaves out those that last for a minute; TASKFOLD_CHAOS=full has
all of them with 40 runs each. What differs from one session to the next comes from a seed.
"""

import pytest

from tests.chaos import runs, trial
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.trial import FULL, Stage

RUNS = 40 if FULL else 8
BLOWS = 40 if FULL else 5

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if FULL or not fault.long], ids=lambda fault: fault.name)
def test_every_run_ends_as_it_must(fault: Fault, stage: Stage) -> None:
    trial.require_nodes(fault, stage.cluster)
    chances = stage.chances(fault)
    cases = runs.mix(RUNS, chances, stage.starts, fault.spec)
    trial.endure(stage, fault, cases, chances, BLOWS)
