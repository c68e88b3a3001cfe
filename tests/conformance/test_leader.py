"""Two operators, one lease: who leads, what a failing leader costs a run, and that a stopped one harms nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes.client as k8s
import pytest
from kubernetes.client.exceptions import ApiException

from tests.conformance import harness
from tests.conformance.counter import Counter
from tests.conformance.harness import script, spec, task

LEASE = "leader-test"
TIMES = {"leaseSeconds": 6, "renewSeconds": 4, "retrySeconds": 1}
ONE = "echo 1 > /logs/verifier/reward.txt\n"
LOST = 75


class Pair:
    """Two operator processes for one namespace and one store."""

    def __init__(self, cluster: harness.Cluster, namespace: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._leases = k8s.CoordinationV1Api(cluster.core.api_client)
        election = {"enabled": True, "leaseName": LEASE, "leaseNamespace": namespace, **TIMES}
        store = {"url": f"file://{folder / 'store'}"}
        self.operators = [self._operator(folder / name, election, store) for name in ("first", "second")]

    def _operator(self, folder: Path, election: dict[str, Any], store: dict[str, Any]) -> harness.Operator:
        folder.mkdir()
        return harness.Operator(folder, self.cluster.kubeconfig, [self.namespace], leaderElection=election, store=store)

    def start(self) -> tuple[harness.Operator, harness.Operator]:
        """Leader and standby."""
        first, second = self.operators
        first.start()
        self.cluster.until(self.holder, "somebody holds the lease")
        second.start()
        self.cluster.until(lambda: "stands by" in second.text(), "the second stands by")
        return first, second

    def stop(self) -> None:
        for each in self.operators:
            each.stop()

    def holder(self) -> str:
        """As `kubectl get lease` shows it."""
        try:
            lease = self._leases.read_namespaced_lease(LEASE, self.namespace)
        except ApiException:
            return ""
        return lease.spec.holder_identity or ""


@pytest.fixture
def pair(cluster: harness.Cluster, own_namespace: str, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(cluster, own_namespace, tmp_path)
    yield made
    made.stop()
    leases = k8s.CoordinationV1Api(cluster.core.api_client)
    leases.delete_namespaced_lease(LEASE, own_namespace)


@pytest.fixture(scope="module")
def counter(cluster: harness.Cluster, own_namespace: str) -> Counter:
    found = Counter(cluster, own_namespace)
    found.start()
    return found


def begin(pair: Pair, counter: Counter, name: str) -> None:
    """A run whose agent is under way and waits."""
    agent = counter.report(name, "agent") + counter.wait(name, "go")
    test = counter.report(name, "test") + ONE
    pair.cluster.create_run(pair.namespace, name, spec(task(test), script(agent)))
    counter.reported(name, "agent")


def end(pair: Pair, counter: Counter, name: str) -> None:
    """Let the agent go; the run ends as if nothing had happened."""
    counter.release(name, "go")
    status = pair.cluster.finished(pair.namespace, name)
    assert (status["phase"], status["reward"]) == ("Succeeded", "1"), status
    assert counter.counts(name) == {"agent": 1, "test": 1}
    assert len(status["attempts"]) == 1


def test_a_leader_that_is_killed_is_followed_and_its_run_goes_on(pair: Pair, counter: Counter, name: str) -> None:
    leader, standby = pair.start()
    begin(pair, counter, name)
    before = pair.holder()
    leader.kill()
    pair.cluster.until(lambda: pair.holder() not in ("", before), "another one holds the lease")
    pair.cluster.until(lambda: "leads: holds lease" in standby.text(), "it knows")
    end(pair, counter, name)


def test_a_leader_that_ends_hands_over_at_once(pair: Pair, counter: Counter, name: str) -> None:
    leader, standby = pair.start()
    begin(pair, counter, name)
    leader.stop()
    assert leader.ended_with == 0
    assert "gave lease" in leader.text()
    pair.cluster.until(lambda: "leads: holds lease" in standby.text(), "the other one leads", seconds=4)
    end(pair, counter, name)


def test_a_stopped_leader_that_goes_on_ends_itself_and_harms_nothing(pair: Pair, counter: Counter, name: str) -> None:
    leader, standby = pair.start()
    begin(pair, counter, name)
    leader.freeze()
    pair.cluster.until(lambda: "leads: holds lease" in standby.text(), "the other one leads")
    standby.ready()
    holder = pair.holder()
    leader.thaw()
    pair.cluster.until(lambda: not leader.running, "the stopped one ends")
    assert leader.ended_with == LOST
    assert "this process ends, another one leads" in leader.text()
    assert pair.holder() == holder
    end(pair, counter, name)


def test_who_stands_by_is_alive_and_does_nothing(pair: Pair, counter: Counter, name: str) -> None:
    leader, standby = pair.start()
    begin(pair, counter, name)
    end(pair, counter, name)
    standby.ready()
    assert name not in standby.text()
    assert name in leader.text()
    assert standby.rss() < 0.85 * leader.rss(), "it has not imported what only the work needs"
    assert leader.running
    assert standby.running
