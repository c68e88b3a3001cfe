"""build/result.py: one document, one shape, in every ending."""

import json

import pytest
from tests.decide import worlds

from taskfold.api.phases import Phase
from taskfold.api.status import Failure, Stage, VerifierStatus
from taskfold.api.taskrun import TaskRunStatus
from taskfold.build import result

REFUSED = TaskRunStatus(
    phase=Phase.FAILED,
    failure=Failure(reason="InvalidTask", message="broken", stage=Stage.ADMISSION, terminal=True),
)
ENDINGS = {
    "new": (result.document(worlds.run()), "running", None),
    "running": (result.document(worlds.run(worlds.running())), "running", None),
    "verdict": (result.document(worlds.run(worlds.ended())), "verdict", 1.0),
    "verdict of 0": (result.document(worlds.run(worlds.ended(reward="0"))), "verdict", 0.0),
    "failed": (result.document(worlds.run(worlds.ended(Phase.FAILED))), "failed", None),
    "masked": (result.document(worlds.run(worlds.ended(Phase.MASKED))), "masked", None),
    "cancelled": (result.document(worlds.run(worlds.ended(Phase.CANCELLED))), "cancelled", None),
    "refused at admission": (result.document(worlds.run(REFUSED)), "refused", None),
    "refused before": (result.refusal("x", "team", "InvalidSpec", "bad"), "refused", None),
    "unknown": (result.unknown("x", "team", "Internal", "no answer"), "error", None),
    "left behind": (result.left(worlds.run(worlds.running()), "Interrupted", "left"), "running", None),
    "left, but it had ended": (result.left(worlds.run(worlds.ended()), "Interrupted", "left"), "verdict", 1.0),
}
SHAPE = set(ENDINGS["verdict"][0])


@pytest.mark.parametrize(("document", "outcome", "reward"), ENDINGS.values(), ids=ENDINGS)
def test_every_ending_has_the_same_keys(document, outcome, reward):
    assert set(document) == SHAPE
    assert (document["schema"], document["outcome"], document["reward"]) == (result.SCHEMA, outcome, reward)
    for name, keys in {
        "failure": {"kind", "reason", "stage", "terminal"},
        "agent": {"name", "outcome", "return_code", "seconds"},
        "verifier": {"name", "mode", "return_code", "seconds", "timed_out"},
    }.items():
        assert document[name] is None or set(document[name]) == keys
    assert isinstance(document["message"], str)
    assert json.loads(json.dumps(document)) == document


def test_the_document_names_what_the_issue_asks_for():
    wanted = (
        "name outcome phase reward rewards reward_components masked failure message warnings verifier agent timings"
    )
    assert {*wanted.split(), "store"} <= SHAPE


def test_the_values_are_the_statuss():
    status = worlds.ended(
        rewards={"a": 1.0},
        reward_components=["a"],
        warnings=["w"],
        timings={"total": 2.0},
        verifier=VerifierStatus(name="v", mode="shared", return_code=0, seconds=1.0),
    )
    document = result.document(worlds.run(status))
    assert (document["rewards"], document["reward_components"], document["warnings"]) == ({"a": 1.0}, ["a"], ["w"])
    assert (document["timings"], document["store"], document["task"]) == ({"total": 2.0}, worlds.PREFIX, "fix-bug")
    assert document["verifier"]["mode"] == "shared"
