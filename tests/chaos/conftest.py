"""Fixtures of the chaos tests, and the table of their results at the end of the session."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3.exceptions
from hack.cluster import parts
from kubernetes.client.exceptions import ApiException

from tests.chaos import scene
from tests.chaos.report import RESULTS, Result, table
from tests.chaos.starts import Starts
from tests.chaos.trial import Stage
from tests.conformance import counter as counters
from tests.conformance import harness

HEALED_SECONDS = 90.0
SEED = os.environ.get("TASKFOLD_CHAOS_SEED") or secrets.token_hex(4)


@pytest.fixture(scope="session")
def seed() -> str:
    """What every chance of the session is drawn from; printed, and set by TASKFOLD_CHAOS_SEED."""
    return SEED


@pytest.fixture(scope="session")
def cluster() -> harness.Cluster:
    """The cluster under test, with today's custom resource definitions."""
    return harness.Cluster.under_test()


@pytest.fixture(scope="session")
def counter(cluster: harness.Cluster) -> Iterator[counters.Counter]:
    """The counter of starts, on a node whose link is never cut."""
    namespace = cluster.create_namespace("chaos-counter")
    counted = counters.Counter(cluster, namespace)
    local = scene.local_cluster(cluster.kubeconfig)
    counted.start(local.node_name(1) if local is not None else None)
    yield counted
    cluster.delete_namespace(namespace)


@pytest.fixture
def healthy(cluster: harness.Cluster) -> Iterator[None]:
    """The local cluster is whole before the test, and after it whatever the test has left."""
    local = scene.local_cluster(cluster.kubeconfig)
    if local is None:
        yield
        return
    parts.heal(local)
    yield
    parts.heal(local)
    _await_controllers(cluster)


def _await_controllers(cluster: harness.Cluster) -> None:
    """Writes work again a while after reads do, and controllers come back with a growing delay: whoever is next must
    find both at work.
    """
    made: list[str] = []

    def served() -> bool:
        try:
            if not made:
                made.append(cluster.create_namespace("chaos-probe"))
            return bool(cluster.core.list_namespaced_service_account(made[0]).items)
        except (ApiException, urllib3.exceptions.HTTPError):
            return False

    cluster.until(served, "a new namespace has its service account", HEALED_SECONDS)
    cluster.delete_namespace(made[0])


@pytest.fixture
def namespace(cluster: harness.Cluster, healthy: None) -> Iterator[str]:
    """A namespace of the test's own."""
    name = cluster.create_namespace("chaos")
    yield name
    cluster.delete_namespace(name)


@pytest.fixture
def starts(counter: counters.Counter, namespace: str) -> Starts:
    """The starts of scripts in that namespace."""
    return Starts(counter, namespace)


@pytest.fixture
def stage(
    cluster: harness.Cluster,
    namespace: str,
    starts: Starts,
    seed: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Stage:
    """What a trial needs."""
    results = request.config.stash.setdefault(RESULTS, [])
    return Stage(cluster, namespace, starts, seed, tmp_path, results)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    results: list[Result] = config.stash.get(RESULTS, [])
    if results:
        terminalreporter.section(f"chaos, TASKFOLD_CHAOS_SEED={SEED}")
        terminalreporter.write_line(table(results))
