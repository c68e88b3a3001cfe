"""build/result.py: one document, one shape, in every ending."""

import json

import pytest
from tests.decide import apart, worlds

from taskfold.api.phases import Phase
from taskfold.api.status import (
    AgentOutcome,
    Failure,
    Mode,
    Stage,
    StepAgentStatus,
    StepStatus,
    StepVerifierStatus,
    VerifierStatus,
)
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


def test_the_steps_of_a_run():
    judged = StepStatus(
        name="one",
        reward="0.5",
        rewards={"reward": 0.5},
        agent=StepAgentStatus(outcome=AgentOutcome.TIMED_OUT, seconds=3.0),
        verifier=StepVerifierStatus(mode=Mode.SEPARATE, name="v", return_code=1, seconds=2.0),
    )
    lost = StepStatus(name="two", masked=True, kind="provider_unavailable", reason="PodEvicted")
    first, second = result.document(worlds.run(worlds.ended(steps=[judged, lost])))["steps"]
    assert (first["reward"], first["rewards"], first["masked"], first["kind"]) == (0.5, {"reward": 0.5}, False, None)
    assert first["agent"] == {"outcome": "TimedOut", "return_code": None, "seconds": 3.0}
    assert first["verifier"] == {
        "name": "v",
        "mode": "separate",
        "return_code": 1,
        "seconds": 2.0,
        "timed_out": False,
    }
    assert (second["reward"], second["masked"], second["reason"]) == (None, True, "PodEvicted")
    assert (second["agent"], second["verifier"]) == (None, None)
    assert set(first) == set(second)
    assert result.document(worlds.run())["steps"] == []


FAILED = Failure(reason="NotGradable", message="no", stage=Stage.VERIFICATION, terminal=True)
RUN = apart.complete_run(reward="0.75", steps=[StepStatus(name="one", reward="0.25"), StepStatus(name="two")])
OTHER = RUN.model_copy(update={"metadata": RUN.metadata.model_copy(update={"uid": "uid-other"})})


def graded(status=None, run=RUN, **spec):
    return result.verification(apart.regrade(status, **spec), run)


OF_VERIFICATIONS = {
    "new": (graded(), "running", None, 0.75),
    "verdict": (graded(apart.over()), "verdict", 1.0, 0.75),
    "of a step": (graded(apart.over(), step="one"), "verdict", 1.0, 0.25),
    "of a step without a reward": (graded(apart.over(), step="two"), "verdict", 1.0, None),
    "of a step that there is not": (graded(step="three"), "running", None, None),
    "of a masked run": (graded(apart.over(), apart.complete_run(reward=None)), "verdict", 1.0, None),
    "its run is gone": (graded(apart.over(), None), "verdict", 1.0, None),
    "another run has its name": (graded(apart.over(), OTHER), "verdict", 1.0, None),
    "masked": (graded(apart.over(Phase.MASKED)), "masked", None, 0.75),
    "refused": (graded(apart.over(Phase.FAILED, failure=FAILED)), "refused", None, 0.75),
    "refused before": (result.ungraded(result.Asked("a"), "Rejected", "bad", outcome="refused"), "refused", None, None),
    "left": (result.unwatched(apart.regrade(), RUN, "Interrupted", "left"), "running", None, 0.75),
    "left, but over": (result.unwatched(apart.regrade(apart.over()), RUN, "Interrupted", "x"), "verdict", 1.0, 0.75),
}


@pytest.mark.parametrize(("document", "outcome", "reward", "before"), OF_VERIFICATIONS.values(), ids=OF_VERIFICATIONS)
def test_every_ending_of_a_verification_has_the_same_keys(document, outcome, reward, before):
    assert list(document) == list(OF_VERIFICATIONS["verdict"][0])
    assert (document["schema"], document["outcome"]) == (result.VERIFICATION_SCHEMA, outcome)
    assert (document["reward"], document["previous_reward"]) == (reward, before)
    assert json.loads(json.dumps(document)) == document
