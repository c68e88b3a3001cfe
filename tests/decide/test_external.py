"""decide/external.py: an agent that somebody drives from outside."""

from typing import Any

import pytest
from tests.decide import worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import AgentOutcome, AgentStatus, JournalPhase, Stage
from taskfold.api.taskrun import TaskRunStatus
from taskfold.contract import dockerfile
from taskfold.contract import response as responses
from taskfold.contract import task as tasks
from taskfold.contract.images import RecordedImage
from taskfold.decide import external, taskrun
from taskfold.decide import plan as plans
from taskfold.decide.world import Admission, Refusal, RunWorld
from taskfold.protocol.phase import User

EXTERNAL = {"external": {}}
LIMIT = "agent.timeout_sec = 100"
FROM_MAP = {"outcome": "Succeeded", "responseFrom": {"configMapKeyRef": {"name": "answer", "key": "text"}}}
MISSING = Refusal("SourceNotFound", "there is no ConfigMap answer", terminal=False)


def working(started: float | None = None, ended: float | None = None, **changes: Any) -> TaskRunStatus:
    """The sandbox is ready since `started` seconds; the work has ended `ended` seconds ago."""
    seed = worlds.entry(JournalPhase.SEED, worlds.SEED, ended_at=worlds.ago((started or 0) + 1))
    agent = worlds.entry(JournalPhase.AGENT, worlds.AGENT, ended_at=worlds.ago(ended) if ended is not None else None)
    agent = agent.model_copy(update={"started_at": worlds.ago(started) if started is not None else None})
    return worlds.running(**({"journal": [seed, agent], "agent": AgentStatus(name="external")} | changes))


def world(status: TaskRunStatus, **changes: Any) -> RunWorld:
    return worlds.world(status, **{"agent": EXTERNAL, "task": worlds.task(LIMIT), **changes})


def made(**spec: Any) -> Any:
    """The VerifierRun that was made for the run."""
    return worlds.verifier(**spec)


# -- admission -----------------------------------------------------------------------------------------------------


def test_it_is_admitted():
    plan = taskrun.decide(
        worlds.world(agent=EXTERNAL, admission=Admission("sha256:x", worlds.TASK), finish={"outcome": "Failed"})
    )
    assert worlds.phase_of(plan) is Phase.QUEUED


STEPS = tasks.Task(
    "t",
    "",
    worlds.TASK.config,
    worlds.TASK.image,
    None,
    (),
    steps=(tasks.Step("one", "do", None),),  # type: ignore[arg-type]  # its table is not looked at
)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a task with steps": ({"admission": Admission("sha256:x", STEPS)}, "[[steps]]"),
    "new attempts": (
        {"admission": Admission("sha256:x", worlds.TASK), "retries": {"infrastructure": 1}},
        "spec.retries.infrastructure",
    ),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_nobody_outside_can_be_told_is_refused(changes, words):
    plan = taskrun.decide(worlds.world(agent=EXTERNAL, **changes))
    failure = worlds.failure_of(plan)
    assert (failure.reason, failure.stage, failure.terminal) == ("InvalidSpec", Stage.ADMISSION, True)
    assert words in failure.message


@pytest.mark.parametrize("agent", [worlds.NOP, worlds.SCRIPT], ids=["nop", "script"])
def test_other_agents_may_have_both(agent):
    run = worlds.run(agent=agent, retries={"infrastructure": 1})
    assert external.refusal(run, STEPS) is None


# -- at work -------------------------------------------------------------------------------------------------------


def test_a_ready_sandbox_is_announced_and_nothing_is_sent():
    plan = taskrun.decide(world(working()))
    assert plan.effects == ()
    assert worlds.reason_of(plan) is Reason.AWAITING_FINISH
    assert plan.note is not None
    assert worlds.POD in plan.note.message
    assert plan.status is not None
    assert plan.status.journal[-1].started_at == worlds.ago(0)
    assert plan.again == 100.0


def test_the_announcement_stays_as_it_is():
    first = taskrun.decide(world(working()))
    assert first.status is not None
    later = taskrun.decide(world(first.status.model_copy(update={"phase": Phase.RUNNING})))
    assert (later.status, later.note) == (first.status, first.note)


RECORDED = RecordedImage("base:1", "sha256:" + "9" * 64, dockerfile.ImageConfig(user="app:staff", workdir="/home/app"))
PLACES: dict[str, tuple[dict[str, Any], tuple[str | None, str | None]]] = {
    "the image's": ({"image_user": User(uid=1000, gid=100)}, ("1000:100", None)),
    "root": ({}, ("0:0", None)),
    "the task's": (
        {"task": worlds.task(LIMIT, 'agent.user = "dev"', 'environment.workdir = "/app"')},
        ("dev", "/app"),
    ),
    "a number of the task's": ({"task": worlds.task("agent.user = 1001")}, ("1001", None)),
    "on record": ({"recorded": RECORDED}, ("app:staff", "/home/app")),
}


@pytest.mark.parametrize(("changes", "expected"), PLACES.values(), ids=PLACES)
def test_the_status_says_as_whom_and_where(changes, expected):
    plan = taskrun.decide(world(working(), **changes))
    assert plan.status is not None
    assert plan.status.agent is not None
    assert (plan.status.agent.user, plan.status.agent.workdir) == expected


@pytest.mark.parametrize(("factor", "left"), [(1, 60.0), (2, 160.0)])
def test_the_limit_counts_from_the_ready_sandbox(factor, left):
    plan = taskrun.decide(world(working(started=40.0), multipliers={"timeout": factor}))
    assert plan.again == left
    assert plan.effects == ()


def test_cancellation_wins_over_finish():
    plan = taskrun.decide(world(working(started=5.0), cancel=True, finish={"outcome": "Succeeded"}))
    assert worlds.phase_of(plan) is Phase.CANCELLED


def test_a_lost_sandbox_masks_the_run():
    plan = taskrun.decide(world(working(started=5.0), pod=worlds.evicted(), finish={"outcome": "Succeeded"}))
    assert worlds.phase_of(plan) is Phase.MASKED
    assert worlds.failure_of(plan).stage is Stage.AGENT


# -- the end -------------------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[TaskRunStatus, dict[str, Any], AgentOutcome, float]] = {
    "succeeded": (working(started=5.0), {"finish": {"outcome": "Succeeded"}}, AgentOutcome.SUCCEEDED, 5.0),
    "failed": (working(started=5.0), {"finish": {"outcome": "Failed"}}, AgentOutcome.FAILED, 5.0),
    "before it was ready": (working(), {"finish": {"outcome": "Succeeded"}}, AgentOutcome.SUCCEEDED, 0.0),
    "at the limit": (working(started=100.0), {}, AgentOutcome.TIMED_OUT, 100.0),
    "finished after the limit, before anybody saw it": (
        working(started=200.0),
        {"finish": {"outcome": "Succeeded"}},
        AgentOutcome.SUCCEEDED,
        200.0,
    ),
}


@pytest.mark.parametrize(("status", "spec", "outcome", "seconds"), ENDS.values(), ids=ENDS)
def test_every_end_is_verified(status, spec, outcome, seconds):
    first = taskrun.decide(world(status, **spec))
    assert (worlds.deeds(first), first.status) == (("CreateVerifierRun",), None)
    plan = taskrun.decide(world(status, verifier=made(), **spec))
    assert worlds.phase_of(plan) is Phase.VERIFYING
    assert plan.status is not None
    assert plan.status.agent is not None
    assert (plan.status.agent.outcome, plan.status.agent.seconds) == (outcome, seconds)
    assert plan.status.agent.user == "0:0"
    assert plan.status.timings["agent"] == seconds
    assert plan.status.journal[-1].ended_at == worlds.ago(0)
    assert ("spec.finish was not set" in (plan.status.agent.message or "")) is (outcome is AgentOutcome.TIMED_OUT)


RESPONSES = {"a text": "forty-two", "an object": '{"output": []}'}


@pytest.mark.parametrize("text", RESPONSES.values(), ids=RESPONSES)
@pytest.mark.parametrize("verifier", [None, made()], ids=["before", "after the VerifierRun is made"])
def test_the_response_is_kept_before_anything_else(text, verifier):
    finish = {"outcome": "Succeeded", "response": text}
    plan = taskrun.decide(world(working(started=5.0), verifier=verifier, finish=finish))
    assert plan.effects[0] == plans.StoreResponse(worlds.PREFIX, responses.parse(text))


def test_a_response_of_a_config_map_is_the_same():
    plan = taskrun.decide(world(working(started=5.0), finish=FROM_MAP, response="forty-two"))
    assert plan.effects[0] == plans.StoreResponse(worlds.PREFIX, responses.parse("forty-two"))


def test_a_config_map_that_may_be_missing_is_not_waited_for():
    plan = taskrun.decide(world(working(started=5.0), finish=FROM_MAP, response=None))
    assert worlds.deeds(plan) == ("CreateVerifierRun",)


def test_a_missing_config_map_is_waited_for():
    plan = taskrun.decide(world(working(started=5.0), finish=FROM_MAP, response=MISSING))
    assert (worlds.phase_of(plan), worlds.reason_of(plan)) == (Phase.CLOSING, Reason.SOURCE_NOT_FOUND)
    assert (plan.effects, plan.again) == ((), external.LOOK_SECONDS)
    assert plan.status is not None
    assert plan.status.journal[-1].ended_at == worlds.ago(0)
    assert plan.status.agent is not None
    assert (plan.status.agent.outcome, plan.status.agent.seconds) == (AgentOutcome.SUCCEEDED, 5.0)


def closing(ended: float) -> TaskRunStatus:
    agent = AgentStatus(name="external", outcome=AgentOutcome.SUCCEEDED, seconds=5.0)
    return working(started=ended + 5.0, ended=ended, phase=Phase.CLOSING, agent=agent)


def test_a_config_map_that_comes_later_is_taken_and_the_end_stays():
    plan = taskrun.decide(world(closing(30.0), finish=FROM_MAP, response="late", verifier=made()))
    assert plan.effects == (plans.StoreResponse(worlds.PREFIX, responses.parse("late")),)
    assert plan.status is not None
    assert plan.status.journal[-1].ended_at == worlds.ago(30.0)
    assert plan.status.agent is not None
    assert plan.status.agent.seconds == 5.0


NO_RESPONSE: dict[str, tuple[TaskRunStatus, dict[str, Any], str]] = {
    "never there": (closing(61.0), {"finish": FROM_MAP, "response": MISSING}, "there is no ConfigMap answer"),
    "not text": (
        working(started=5.0),
        {"finish": FROM_MAP, "response": Refusal("InvalidSpec", "is not UTF-8 text")},
        "is not UTF-8 text",
    ),
    "no response": (
        working(started=5.0),
        {"finish": {"outcome": "Succeeded", "response": '{"object": "response", "output": 3}'}},
        "output: is not a list",
    ),
}


@pytest.mark.parametrize(("status", "changes", "words"), NO_RESPONSE.values(), ids=NO_RESPONSE)
def test_work_whose_response_cannot_be_had_is_verified_without_it(status, changes, words):
    plan = taskrun.decide(world(status, verifier=made(), **changes))
    assert worlds.phase_of(plan) is Phase.VERIFYING
    assert plan.effects == ()
    assert plan.status is not None
    assert any(words in warning for warning in plan.status.warnings)
