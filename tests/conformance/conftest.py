"""Fixtures of the conformance tests: one cluster, one operator, and a namespace that most tests share.

A test that takes the fixture `cluster`, by whatever way, is marked so; the others need none.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.conformance import ahead, harness

_names = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/conformance/" in str(item.path) and "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
    items.sort(key=lambda item: item.path.name != "test_table.py")  # the longest first: others go on beside it


@pytest.fixture(scope="session")
def cluster() -> harness.Cluster:
    """The cluster under test, with today's custom resource definitions."""
    return harness.Cluster.under_test()


@pytest.fixture(scope="session")
def namespace(cluster: harness.Cluster) -> Iterator[str]:
    """The namespace of the tests that share one operator."""
    name = cluster.create_namespace()
    yield name
    cluster.delete_namespace(name)


@pytest.fixture(scope="session")
def operator(
    cluster: harness.Cluster, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """The operator that most tests share. Tests that kill it, or need other settings, take `own_operator`."""
    folder = tmp_path_factory.mktemp("operator")
    running = harness.Operator(folder, cluster.kubeconfig, [namespace])
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def own_namespace(cluster: harness.Cluster) -> Iterator[str]:
    """A namespace of the module's own."""
    name = cluster.create_namespace()
    yield name
    cluster.delete_namespace(name)


@pytest.fixture(scope="module")
def own_operator(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """An operator of the module's own, which it may kill and start again; it serves `own_namespace`."""
    folder = tmp_path_factory.mktemp("operator")
    running = harness.Operator(folder, cluster.kubeconfig, [own_namespace])
    running.start()
    yield running
    running.stop()


@pytest.fixture
def name() -> str:
    """A name that no other run of the session has."""
    return f"run-{next(_names)}"


Runner = Callable[..., dict[str, Any]]


@pytest.fixture
def run(cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str) -> Runner:
    """`run(files, agent, **spec)`: create a TaskRun and give its status once it is complete."""

    def go(files: Mapping[str, str], agent: Mapping[str, Any], *, seconds: float = 90.0, **more: Any) -> dict[str, Any]:
        cluster.create_run(namespace, name, harness.spec(files, agent, **more))
        return cluster.finished(namespace, name, seconds)

    return go


@pytest.fixture(scope="module")
def window(
    request: pytest.FixtureRequest, cluster: harness.Cluster, namespace: str, operator: harness.Operator
) -> ahead.Window:
    """The runs of this module's tests that stand in their decorators, created a few ahead."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    return ahead.Window(items, lambda name, spec: cluster.create_run(namespace, name, spec))


@pytest.fixture
def run_name(request: pytest.FixtureRequest, window: ahead.Window) -> str:
    """The name of the run that stands in this test's decorator."""
    return window.name_of(request.node)


@pytest.fixture
def status(cluster: harness.Cluster, namespace: str, run_name: str) -> dict[str, Any]:
    """The status of this test's run once there is a verdict, or another end."""
    return ahead.verdict(cluster, namespace, run_name)
