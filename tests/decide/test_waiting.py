"""decide/waiting.py: who is asked, who looks and who waits while a long phase goes on."""

from dataclasses import replace
from typing import Any

import pytest
from tests.decide import worlds

from taskfold.api import names
from taskfold.api.reasons import Reason
from taskfold.api.settings import Settings
from taskfold.api.status import JournalPhase
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide import taskrun, verifierrun, waiting
from taskfold.decide.plan import AddWaiter, Plan, RestPhase, RunPhase
from taskfold.decide.world import PhaseUnreached, PhaseWaiting, Signal

AT = "2026-03-01T11:00:00Z"
STATES: dict[str, dict[str, Any] | None] = {
    "no status yet": None,
    "starting": {"waiting": {"reason": "ContainerCreating"}},
    "cannot be pulled": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    "cannot be started": {"waiting": {"reason": "CreateContainerError"}},
    "waits": {"running": {"startedAt": AT}},
    "told": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    "killed": {"terminated": {"exitCode": 137, "reason": "Error"}},
    "out of memory": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
}
NO, YES, TOLD = Signal.NONE, Signal.AWAITED, Signal.GIVEN


def pod(state: str | None, nonce: str = worlds.AGENT) -> pods.PodView:
    """The sandbox; None: without a waiter."""
    found = worlds.pod_object({"phase": "Running", "containerStatuses": [worlds.runs()]})
    if state is not None:
        name, told = names.waiter(nonce), STATES[state]
        found["spec"] |= {"ephemeralContainers": [{"name": "debugger"}, {"name": name}]}
        statuses = [{"name": "debugger", "state": {"terminated": {"exitCode": 1}}}]
        statuses += [{"name": name, "state": told}] if told is not None else []
        found["status"] |= {"ephemeralContainerStatuses": statuses}
    return pods.view(found)


@pytest.mark.parametrize(
    ("state", "signal"),
    [
        (None, NO),
        ("no status yet", NO),
        ("starting", NO),
        ("cannot be pulled", NO),
        ("cannot be started", NO),
        ("waits", YES),
        ("told", TOLD),
        ("killed", TOLD),
        ("out of memory", TOLD),
    ],
)
def test_what_the_pods_status_says(state, signal):
    found = pod(state)
    assert waiting.signal(found, worlds.AGENT) is signal
    assert waiting.signal(found, worlds.VERIFY) is NO
    assert waiting.signal(None, worlds.AGENT) is NO


@pytest.mark.parametrize("state", STATES)
def test_no_waiter_makes_or_breaks_a_sandbox(state):
    assert pods.loss(pod(state)) is None
    assert pods.standing(pod(state)) is pods.Standing.READY
    assert pods.waiting_message(pod(state)) == ""


def agent(report: PhaseWaiting | PhaseUnreached | None, state: str | None, **changes: Any) -> Plan:
    status = worlds.running()
    if changes.pop("begun", False):
        status = to.begun(status, worlds.AGENT, AT)
    phases = {worlds.AGENT: report} if report is not None else {}
    return taskrun.decide(worlds.world(status, agent=worlds.SCRIPT, phases=phases, pod=pod(state), **changes))


def verify(report: PhaseWaiting | None, state: str | None, **changes: Any) -> Plan:
    status = worlds.verifying()
    if changes.pop("begun", False):
        status = to.begun(status, worlds.VERIFY, AT)
    phases = {worlds.VERIFY: report} if report is not None else {}
    found = pod(state, worlds.VERIFY)
    return verifierrun.decide(worlds.verifier_world(status, phases=phases, pod=found, **changes))


RUN = {
    JournalPhase.AGENT: (agent, worlds.AGENT),
    JournalPhase.VERIFY: (verify, worlds.VERIFY),
}
BOTH = pytest.mark.parametrize("phase", RUN, ids=lambda phase: phase.value)
REST = PhaseWaiting(AT, 3.0)
FIRST = {
    "never started": (False, None, RunPhase, NO),
    "never started, a waiter of nobody": (False, "waits", RunPhase, YES),
    "started, no waiter": (True, None, RunPhase, NO),
    "started, its waiter waits": (True, "waits", RestPhase, YES),
    "started, its waiter has told": (True, "told", RunPhase, TOLD),
    "started, its waiter was killed": (True, "killed", RunPhase, TOLD),
    "started, its waiter cannot start": (True, "cannot be pulled", RunPhase, NO),
}


@BOTH
@pytest.mark.parametrize(("begun", "state", "kind", "signal"), FIRST.values(), ids=FIRST)
def test_a_new_operator_attaches_unless_somebody_waits(phase, begun, state, kind, signal):
    decide, nonce = RUN[phase]
    (effect,) = decide(None, state, begun=begun).effects
    assert isinstance(effect, kind)
    assert (effect.nonce, effect.signal) == (nonce, signal)


NEXT: dict[str, tuple[PhaseWaiting, str | None, Any]] = {
    "just let go of": (REST, None, AddWaiter),
    "refused": (replace(REST, signalled=False), None, None),
    "asked for": (REST, "no status yet", None),
    "starting": (REST, "starting", None),
    "never starts, a look is due": (replace(REST, look_in=0.0), "cannot be pulled", RunPhase),
    "waits now": (REST, "waits", RestPhase),
    "waits on": (replace(REST, signal=YES), "waits", None),
    "waits, a look is due": (replace(REST, signal=YES, look_in=0.0), "waits", RunPhase),
    "told": (replace(REST, signal=YES), "told", RunPhase),
    "told before it was seen to wait": (REST, "told", RunPhase),
    "killed": (replace(REST, signal=YES), "killed", RunPhase),
    "told, looked, goes on": (replace(REST, signal=TOLD), "told", None),
    "told, looked, a look is due": (replace(REST, signal=TOLD, look_in=0.0), "told", RunPhase),
}


@BOTH
@pytest.mark.parametrize(("report", "state", "kind"), NEXT.values(), ids=NEXT)
def test_a_phase_that_goes_on(phase, report, state, kind):
    decide, nonce = RUN[phase]
    plan = decide(report, state)
    assert [type(effect) for effect in plan.effects] == ([kind] if kind is not None else [])
    for effect in plan.effects:
        assert effect.nonce == nonce
        if isinstance(effect, RunPhase | RestPhase):
            assert effect.signal is waiting.signal(pod(state, nonce), nonce)
    assert plan.again is not None
    assert plan.again <= max(0.05, report.look_in)
    assert plan.status is not None
    assert [each.started_at for each in plan.status.journal if each.nonce == nonce] == [AT]
    assert plan.note is not None
    assert plan.note.reason is (Reason.AGENT_RUNNING if phase is JournalPhase.AGENT else Reason.VERIFYING)


@BOTH
def test_the_setting_says_whether_a_container_waits(phase):
    decide, _ = RUN[phase]
    assert decide(REST, None, settings=Settings.model_validate({"waiting": {"signal": False}})).effects == ()


LATE = {
    "looked a moment ago": (5.0, ()),
    "looked half a minute ago": (waiting.LATE_LOOK_SECONDS, (RunPhase,)),
}


@BOTH
@pytest.mark.parametrize(("since", "kinds"), LATE.values(), ids=LATE)
def test_past_its_limit_a_phase_is_looked_at_soon_whoever_waits(phase, since, kinds):
    decide, _ = RUN[phase]
    report = PhaseWaiting(AT, 5000.0, YES, since=since, asked=10.0)
    # The limit has gone by; the operator's own deadline has not.
    more = {"task": worlds.task("agent.timeout_sec = 1", "verifier.timeout_sec = 1")}
    plan = decide(report, "waits", **more)
    assert tuple(type(effect) for effect in plan.effects) == kinds
    assert plan.again is not None
    assert plan.again <= waiting.LATE_LOOK_SECONDS


def test_what_could_not_be_reached_rests_while_somebody_waits():
    report = PhaseUnreached("no route", 3, 0.0)
    assert agent(report, "waits", begun=True).effects == (RestPhase(worlds.AGENT, AT, YES),)
    assert agent(report, None, begun=True).effects == (RunPhase("agent", worlds.AGENT, NO),)


def test_the_first_start_that_was_told_stands():
    status = to.begun(worlds.running(), worlds.AGENT, AT)
    assert to.begun(status, worlds.AGENT, "2026-03-01T11:30:00Z") is status
    assert to.begun(status, "f" * 32, AT) is status
