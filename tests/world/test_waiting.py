"""Between the moment at which a long phase is let go of and the signal of its end nothing is sent into its sandbox."""

from typing import Any

import pytest

from tests.world import waiting
from tests.world.play import Played, Scenario, Staging, alone, play, together
from tests.world.world import World


class Counted:
    """Plays a scenario and notes, at the very write that tells of it, how many execs there were and which are open."""

    def __init__(self, scenario: Scenario, staging: Staging) -> None:
        self.asked: dict[str, int] = {}
        """By container that waits: execs when it was added to its pod."""
        self.signalled: dict[str, int] = {}
        """The same when its end was told, at the first time."""
        self.connected: list[str] = []
        """Containers whose pod had a connection when their end was told."""
        self.looks = 0
        self._staging = staging
        self.played: Played = play(scenario, self._stage)

    def _stage(self, world: World) -> None:
        self._world = world
        world.server.subscribe(self._see)
        self._staging(world)

    def _see(self, kind: str, plural: str, obj: dict[str, Any]) -> None:
        if plural != "pods" or kind == "DELETED":
            return
        endpoint, pod = self._world.endpoint, obj["metadata"]["name"]
        self.looks = len(endpoint.openings)
        for each in obj["spec"].get("ephemeralContainers") or ():
            self.asked.setdefault(each["name"], self.looks)
        for each in obj["status"].get("ephemeralContainerStatuses") or ():
            if "terminated" in each["state"] and each["name"] not in self.signalled:
                self.signalled[each["name"]] = self.looks
                self.connected += [each["name"] for opening in endpoint.sockets if opening.pod == pod]


@pytest.mark.parametrize("scenario", [*waiting.SIGNALLED, *waiting.RESTARTED], ids=str)
def test_nothing_is_sent_while_a_container_waits(scenario: Scenario) -> None:
    found = Counted(scenario, alone())
    assert not found.played.problems
    assert len(found.asked) == 1
    assert found.signalled == found.asked
    assert not found.connected


@pytest.mark.parametrize("scenario", waiting.SIGNALLED, ids=str)
def test_nor_by_two_operators_at_once(scenario: Scenario) -> None:
    found = Counted(scenario, together)
    assert not found.played.problems
    assert len(found.asked) == 1
    assert found.signalled == found.asked


@pytest.mark.parametrize("scenario", waiting.UNSIGNALLED, ids=str)
def test_without_one_the_operator_looks(scenario: Scenario) -> None:
    """The same counter counts looks where there have to be some."""
    signalled = next(each for each in waiting.SIGNALLED if str(each).endswith(str(scenario).rpartition(", ")[2]))
    found, calm = Counted(scenario, alone()), Counted(signalled, alone())
    assert not found.played.problems
    assert found.looks > calm.looks + 2


@pytest.mark.parametrize("scenario", waiting.REFUSED, ids=str)
def test_a_container_that_is_refused_is_asked_for_once(scenario: Scenario) -> None:
    (calls,) = play(scenario).calls
    assert [call.name for call in calls].count("patch pods/ephemeralcontainers") == 1
