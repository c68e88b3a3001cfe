"""engine/lease.py: candidates around one Lease, in time that is the test's."""

import asyncio
import copy
import itertools
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.world import clock
from tests.world.apply import merged

from taskfold.api.settings import RETRY_JITTER, LeaderElectionSettings
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.lease import Lease

SETTINGS = LeaderElectionSettings()
LEASE, RENEW, RETRY = SETTINGS.lease_seconds, SETTINGS.renew_seconds, SETTINGS.retry_seconds * RETRY_JITTER
START = datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """The API server's Leases."""

    def __init__(self) -> None:
        self.objects: dict[str, api.Json] = {}
        self.versions = itertools.count(1)
        self.leaders: set[str] = set()
        self.most = 0
        """At a time, ever."""

    @property
    def spec(self) -> api.Json:
        return self.objects["team/taskfold"]["spec"]

    def put(self, place: str, obj: Mapping[str, Any]) -> api.Json:
        found = copy.deepcopy(dict(obj))
        found["metadata"]["resourceVersion"] = str(next(self.versions))
        self.objects[place] = found
        return copy.deepcopy(found)

    def annotate(self) -> None:
        """Somebody else writes the object, and leaves the record alone."""
        self.put("team/taskfold", merged(self.objects["team/taskfold"], {"metadata": {"annotations": {"a": "b"}}}))


class Link:
    """One candidate's client. `delay`: seconds of each call, half of it before the server acts."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.down = False
        self.deaf = False
        """Writes arrive, and their answers are lost."""
        self.delay = 0.0
        self.calls: list[tuple[float, str]] = []

    async def get(self, resource: api.Resource, namespace: str, name: str) -> api.Json:
        await self._called("get", resource)
        found = self.server.objects.get(f"{namespace}/{name}")
        if found is None:
            raise errors.NotFound("no such lease", status=404)
        return await self._answered(copy.deepcopy(found))

    async def create(self, resource: api.Resource, namespace: str, body: Mapping[str, Any]) -> api.Json:
        await self._called("create", resource)
        place = f"{namespace}/{body['metadata']['name']}"
        if place in self.server.objects:
            raise errors.AlreadyExists("exists", status=409)
        return await self._answered(self.server.put(place, body))

    async def patch(
        self, resource: api.Resource, namespace: str, name: str, body: Mapping[str, Any], *, resource_version: str
    ) -> api.Json:
        await self._called("patch", resource)
        place = f"{namespace}/{name}"
        found = self.server.objects.get(place)
        if found is None:
            raise errors.NotFound("no such lease", status=404)
        if found["metadata"]["resourceVersion"] != resource_version:
            raise errors.Conflict("another version", status=409)
        return await self._answered(self.server.put(place, merged(found, body)))

    async def _called(self, verb: str, resource: api.Resource) -> None:
        assert resource == api.LEASES
        self.calls.append((clock.now(), verb))
        await asyncio.sleep(self.delay / 2)
        if self.down:
            raise errors.Unavailable("no answer", sent=False)

    async def _answered(self, answer: api.Json) -> api.Json:
        await asyncio.sleep(self.delay / 2)
        if self.deaf:
            raise errors.Unavailable("the connection broke", sent=True)
        return answer


class Candidate:
    """A process: it takes its turn, leads, and ends. `skew`: seconds that its wall clock is wrong by."""

    def __init__(self, server: Server, name: str, *, skew: float = 0.0, same_place: str = "") -> None:
        self.link = Link(server)
        self.server = server
        self.name = name
        self.skew = skew
        self.lost: list[tuple[float, str]] = []
        self.lease = Lease(
            self.link,  # type: ignore[arg-type]
            SETTINGS,
            "team",
            name,
            same_place=same_place,
            clock=lambda: START + timedelta(seconds=clock.now() + skew),
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def leads(self) -> bool:
        return self.name in self.server.leaders

    def start(self) -> "Candidate":
        self._task = asyncio.create_task(self._live())
        return self

    async def _live(self) -> None:
        await self.lease.acquire()
        self.server.leaders.add(self.name)
        self.server.most = max(self.server.most, len(self.server.leaders))
        await self.lease.hold(self._end)

    def _end(self, why: str) -> None:
        self.lost.append((clock.now(), why))
        self.server.leaders.discard(self.name)
        if self._task is not None:
            self._task.cancel()

    async def kill(self) -> None:
        """As SIGKILL: nothing is said to anybody."""
        self.server.leaders.discard(self.name)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        """As SIGTERM."""
        await self.kill()
        await self.lease.release()


async def leading(candidate: Candidate, within: float) -> float:
    """When it began to lead; fails if that is not within so many seconds."""
    end = clock.now() + within
    while not candidate.leads:
        assert clock.now() <= end, f"{candidate.name} does not lead within {within} s"
        await asyncio.sleep(0.01)
    return clock.now()


def test_one_leads_and_the_others_stand_by():
    async def main() -> None:
        server = Server()
        candidates = [Candidate(server, name).start() for name in "abc"]
        await asyncio.sleep(300)
        assert sum(each.leads for each in candidates) == 1
        (leader,) = [each for each in candidates if each.leads]
        assert server.spec["holderIdentity"] == leader.name
        assert server.spec["leaseTransitions"] == 0
        assert server.spec["leaseDurationSeconds"] == LEASE
        assert not any(each.lost for each in candidates)
        verbs = {verb for each in candidates if each is not leader for at, verb in each.link.calls if at > 1}
        assert verbs == {"get"}, "who stands by only looks"

    clock.run(main)


@pytest.mark.parametrize("skew", [-600.0, 0.0, 600.0])
def test_a_silent_leader_is_followed_after_its_lease_whatever_the_clocks_say(skew):
    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        await leading(first, 1)
        second = Candidate(server, "second", skew=skew).start()
        await asyncio.sleep(100)
        assert first.leads
        assert not second.leads
        killed = clock.now()
        await first.kill()
        taken = await leading(second, LEASE + RETRY + 0.1)
        assert taken - killed > LEASE - RETRY
        assert (server.spec["holderIdentity"], server.spec["leaseTransitions"]) == ("second", 1)
        acquired = datetime.strptime(server.spec["acquireTime"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        assert (acquired - START).total_seconds() == pytest.approx(taken + skew, abs=0.1)

    clock.run(main)


def test_the_holders_own_duration_counts_and_not_the_candidates():
    async def main() -> None:
        server = Server()
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 40, "leaseTransitions": 7}
        server.put("team/taskfold", {"metadata": {"name": "taskfold"}, "spec": spec})
        candidate = Candidate(server, "a").start()
        await asyncio.sleep(39)
        assert not candidate.leads
        await leading(candidate, 1.5)
        assert server.spec["leaseTransitions"] == 8

    clock.run(main)


def test_a_lease_that_was_given_back_is_taken_at_the_next_look():
    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        await leading(first, 1)
        second = Candidate(server, "second").start()
        await asyncio.sleep(20)
        await first.stop()
        assert server.spec["holderIdentity"] == ""
        await leading(second, RETRY + 0.1)

    clock.run(main)


def test_a_renewal_that_was_cut_off_does_not_keep_the_lease_from_being_given_back():
    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        await leading(first, 1)
        first.link.delay = 1.0
        before = len(first.link.calls)
        while len(first.link.calls) == before:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.6)  # written, not answered
        await first.stop()
        assert server.spec["holderIdentity"] == ""

    clock.run(main)


def test_a_leader_that_cannot_renew_ends_before_another_can_begin():
    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        await leading(first, 1)
        second = Candidate(server, "second").start()
        await asyncio.sleep(31)
        first.link.down = True
        last = datetime.strptime(server.spec["renewTime"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        taken = await leading(second, LEASE + RETRY + 0.1)
        ((ended, why),) = first.lost
        assert ended == pytest.approx((last - START).total_seconds() + RENEW)
        assert f"could not be renewed for {RENEW:g} s" in why
        assert taken - ended >= LEASE - RENEW

    clock.run(main)


def test_a_leader_whose_calls_hang_ends_in_time():
    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        began = await leading(first, 1)
        first.link.delay = 1000.0
        await asyncio.sleep(60)
        assert [at for at, _ in first.lost] == [pytest.approx(began + RENEW, abs=0.1)]

    clock.run(main)


def test_a_short_outage_costs_nothing():
    async def main() -> None:
        server = Server()
        first, second = Candidate(server, "first").start(), Candidate(server, "second")
        await leading(first, 1)
        second.start()
        for _ in range(10):
            first.link.down = second.link.down = True
            await asyncio.sleep(RENEW - 2 * SETTINGS.retry_seconds - 0.1)
            first.link.down = second.link.down = False
            await asyncio.sleep(5)
        assert first.leads
        assert not second.leads

    clock.run(main)


@pytest.mark.parametrize("disturb", ["annotated", "answer lost", "deleted"])
def test_what_does_not_end_a_leader(disturb):
    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        await leading(first, 1)
        match disturb:
            case "annotated":
                server.annotate()
            case "answer lost":
                first.link.deaf = True
                await asyncio.sleep(3)
                first.link.deaf = False
            case "deleted":
                server.objects.clear()
        await asyncio.sleep(60)
        assert first.leads
        assert server.spec["holderIdentity"] == "first"

    clock.run(main)


@pytest.mark.parametrize("gone", [False, True], ids=["overwritten", "deleted and made anew"])
def test_a_lease_in_other_hands_ends_the_leader_at_its_next_renewal(gone):
    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        await leading(first, 1)
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 15}
        if gone:
            server.objects.clear()
        server.put("team/taskfold", {"metadata": {"name": "taskfold"}, "spec": spec})
        taken = clock.now()
        await asyncio.sleep(RETRY + 0.1)
        ((ended, why),) = first.lost
        assert "held by other" in why
        assert ended - taken <= RETRY
        assert server.spec["holderIdentity"] == "other", "nothing was written over it"

    clock.run(main)


def test_a_process_of_the_same_pod_does_not_wait_for_the_one_before_it():
    async def main() -> None:
        server = Server()
        before = Candidate(server, "pod-1_aaaa", same_place="pod-1_").start()
        await leading(before, 1)
        await before.kill()
        other = Candidate(server, "pod-10_bbbb", same_place="pod-10_").start()
        await asyncio.sleep(3)
        assert not other.leads, "another pod waits"
        await leading(Candidate(server, "pod-1_cccc", same_place="pod-1_").start(), 0.1)

    clock.run(main)


def test_a_stopped_process_that_goes_on_is_told_before_it_does_anything():
    """The clock jumps under the event loop, as it does for a process that was stopped and goes on."""

    async def main() -> None:
        server = Server()
        first = Candidate(server, "first").start()
        await leading(first, 1)
        steps: list[bool] = []

        async def work() -> None:
            while True:
                await asyncio.sleep(0.5)
                steps.append(first.leads)

        worker = asyncio.create_task(work())
        await asyncio.sleep(7.2)  # not at the worker's own time: a step that is due already is done
        calls = len(first.link.calls)
        steps.clear()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, clock.Loop)
        loop.stopped_for(3600)
        await asyncio.sleep(0)
        await asyncio.sleep(2)
        assert len(first.lost) == 1
        assert steps
        assert not any(steps), "no work was done in the belief of leading"
        assert len(first.link.calls) == calls, "nothing was asked or written"
        worker.cancel()

    clock.run(main)


def test_an_api_server_that_is_away_at_the_start_is_waited_for():
    async def main() -> None:
        server = Server()
        candidate = Candidate(server, "a")
        candidate.link.down = True
        candidate.start()
        await asyncio.sleep(100)
        assert not candidate.leads
        candidate.link.down = False
        await leading(candidate, RETRY + 0.1)

    clock.run(main)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_there_are_never_two(seed):
    """Outages, hung calls, kills, graceful ends, skewed clocks, somebody who annotates; half an hour each."""
    chance = random.Random(seed)

    async def main() -> None:
        server = Server()
        candidates = [Candidate(server, str(n), skew=chance.uniform(-600, 600)).start() for n in range(3)]
        took = 0
        while clock.now() < 2000:
            await asyncio.sleep(chance.expovariate(1 / 20))
            number = chance.randrange(3)
            one = candidates[number]
            match chance.randrange(6):
                case 0:
                    one.link.down = not one.link.down
                case 1:
                    one.link.deaf = not one.link.deaf
                case 2:
                    one.link.delay = chance.choice([0.0, 0.0, 0.2, 3.0, 30.0])
                case 3:
                    await (one.kill() if chance.random() < 0.5 else one.stop())
                case 4 if server.objects:
                    server.annotate()
                case _:
                    one.link.down, one.link.deaf, one.link.delay = False, False, 0.0
            took += len(server.leaders)
            if not one.alive:
                await one.kill()
                candidates[number] = Candidate(server, f"{number}-{clock.now():.0f}", skew=one.skew).start()
        assert server.most == 1
        assert took > 10, "there was a leader most of the time"
        for each in candidates:
            await each.kill()

    clock.run(main)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"leaseSeconds": 10, "renewSeconds": 10}, "leaseSeconds > renewSeconds"),
        ({"renewSeconds": 2.2, "retrySeconds": 2}, "1.2 times retrySeconds"),
    ],
)
def test_times_that_cannot_work_are_refused(given, problem):
    with pytest.raises(ValueError, match=problem):
        LeaderElectionSettings.model_validate(given)
