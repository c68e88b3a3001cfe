"""engine/events.py: what is told, when, and what is not; on a clock of its own."""

import asyncio
import contextlib

import pytest
from tests.decide import worlds
from tests.engine.fakes import Client
from tests.world import clock

from taskfold.api.reasons import Reason
from taskfold.effects import errors
from taskfold.engine import events
from taskfold.engine.events import HOLD_SECONDS, Events

MOMENT = worlds.ago(0)
FLEETING, LASTING, WARNING = Reason.SEEDING, Reason.RETRYING, Reason.IMAGE_PULL_FAILED


class Api(Client):
    """Notes when each Event was written, and as what."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.written: list[tuple[float, str, str]] = []

    async def create(self, resource, namespace, body):
        await asyncio.sleep(self.seconds)
        self.written.append((clock.now(), body["involvedObject"]["name"], body["reason"]))
        return await super().create(resource, namespace, body)

    @property
    def reasons(self):
        return [reason for _, _, reason in self.written]

    @property
    def events(self):
        return [obj for (plural, _, _), obj in self.objects.items() if plural == "events"]


@contextlib.asynccontextmanager
async def telling(api):
    found = Events(api)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run(name="fix-bug"):
    found = worlds.run()
    return found.model_copy(update={"metadata": found.metadata.model_copy(update={"name": name, "uid": f"uid-{name}"})})


def told(*steps, seconds=60.0, api=None):
    """What is written when these (moment, reason, name of the run) were told."""
    api = api or Api()

    async def main() -> None:
        async with telling(api) as found:
            for moment, reason, *name in steps:
                await asyncio.sleep(moment - clock.now())
                found.tell(run(*name), reason, f"at {moment}", MOMENT)
            await asyncio.sleep(seconds)
            assert found._latest == {}, "what was told is forgotten"

    clock.run(main)
    return api


def test_the_fixture_is_what_it_says():
    assert (FLEETING.event_type, LASTING.event_type, WARNING.event_type) == ("Normal", "Normal", "Warning")
    assert FLEETING not in events.LASTING


@pytest.mark.parametrize("reason", [FLEETING, LASTING, WARNING])
def test_an_event_is_written_a_moment_later(reason):
    assert told((5.0, reason)).written == [(5.0 + HOLD_SECONDS, "fix-bug", reason.value)]


def test_an_event_says_about_whom_and_what():
    (event,) = told((0.0, WARNING)).events
    assert event["metadata"]["namespace"] == "team"
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "ImagePullFailed", "at 0.0")
    assert event["involvedObject"] == {
        "apiVersion": "taskfold.dev/v1alpha1",
        "kind": "TaskRun",
        "name": "fix-bug",
        "namespace": "team",
        "uid": "uid-fix-bug",
    }
    assert (event["firstTimestamp"], event["lastTimestamp"], event["count"]) == (MOMENT, MOMENT, 1)


@pytest.mark.parametrize(
    ("message", "expected"),
    [("", FLEETING.sentence), ("x" * 2000, "x" * 1024), ("é" * 2000, "é" * 512), ("a" + "é" * 2000, "a" + "é" * 511)],
    ids=["none", "long", "long, two bytes each", "long, cut within a character"],
)
def test_a_message_fits(message, expected):
    api = Api()

    async def main() -> None:
        async with telling(api) as found:
            found.tell(run(), FLEETING, message, MOMENT)
            await asyncio.sleep(2)

    clock.run(main)
    assert [each["message"] for each in api.events] == [expected]


# -- steps that follow soon ----------------------------------------------------------------------------------------


def test_a_step_that_is_over_within_the_moment_is_left_out():
    steps = [(0.0, Reason.POD_STARTING), (0.4, Reason.SEEDING), (0.8, Reason.AGENT_STARTING)]
    assert told(*steps).written == [(0.8 + HOLD_SECONDS, "fix-bug", "AgentStarting")]


def test_a_step_that_lasts_longer_is_told():
    steps = [(0.0, Reason.POD_STARTING), (1.5, Reason.SEEDING)]
    assert told(*steps).written == [(1.0, "fix-bug", "PodStarting"), (2.5, "fix-bug", "Seeding")]


@pytest.mark.parametrize("reason", sorted(Reason))
def test_what_matters_is_told_though_the_next_step_follows_at_once(reason):
    matters = reason.event_type == "Warning" or reason in events.LASTING
    found = told((0.0, reason), (0.1, Reason.AGENT_RUNNING))
    assert found.reasons == ([reason.value] if matters else []) + ["AgentRunning"]


def test_of_a_run_that_is_over_at_once_the_verdict_and_the_end_are_told():
    steps = [(0.0, Reason.ADMITTED), (0.1, FLEETING), (0.2, Reason.VERDICT_REACHED), (0.3, Reason.COMPLETED)]
    assert told(*steps).reasons == ["VerdictReached", "Completed"]


def test_one_run_does_not_overtake_another():
    assert told((0.0, FLEETING, "a"), (0.1, FLEETING, "b"), (0.2, FLEETING, "c")).written == [
        (1.0, "a", FLEETING.value),
        (1.1, "b", FLEETING.value),
        (1.2, "c", FLEETING.value),
    ]


def test_the_same_reason_again_later_is_told_again():
    assert told((0.0, FLEETING), (5.0, FLEETING), (10.0, FLEETING)).reasons == [FLEETING.value] * 3


# -- a slow or failing API server, a full backlog ------------------------------------------------------------------


def test_telling_never_waits_and_a_slow_server_only_makes_events_late():
    """What is overtaken meanwhile is left out; the order stays."""
    api = Api(seconds=10.0)
    steps = [(0.0, LASTING), (1.5, FLEETING), (3.0, WARNING), (3.1, Reason.COMPLETED)]
    assert told(*steps, api=api).written == [
        (11.0, "fix-bug", LASTING.value),
        (21.0, "fix-bug", WARNING.value),
        (31.0, "fix-bug", "Completed"),
    ]


@pytest.mark.parametrize("error", [errors.Unavailable("no answer", sent=True), errors.Forbidden("no", status=403)])
def test_an_event_that_cannot_be_written_is_let_go(error):
    api = Api()
    api.failures["create events"] = error
    found = told((0.0, LASTING), (5.0, LASTING), api=api)
    assert (found.reasons, found.events) == ([LASTING.value] * 2, [])


def test_a_full_backlog_drops_the_newest_and_forgets_nothing_of_what_it_holds(monkeypatch):
    monkeypatch.setattr(events, "BACKLOG", 2)
    api = Api()

    async def main() -> None:
        async with telling(api) as found:
            for number in range(4):
                found.tell(run(f"r{number}"), LASTING, "", MOMENT)
            found.tell(run("r0"), LASTING, "again", MOMENT)
            await asyncio.sleep(5)
            assert found._latest == {}
            found.tell(run("r3"), LASTING, "", MOMENT)
            await asyncio.sleep(5)

    clock.run(main)
    assert [name for _, name, _ in api.written] == ["r0", "r1", "r3"]


def test_a_step_that_was_dropped_does_not_silence_the_one_before(monkeypatch):
    monkeypatch.setattr(events, "BACKLOG", 1)
    api = Api()

    async def main() -> None:
        async with telling(api) as found:
            found.tell(run(), FLEETING, "", MOMENT)
            found.tell(run(), Reason.COMPLETED, "", MOMENT)  # no room
            await asyncio.sleep(5)

    clock.run(main)
    assert api.reasons == [FLEETING.value]
