"""One cluster, one operator that serves results, and runs that are finished without having run."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import alone
from tests.conformance import harness
from tests.reading import scene, stored

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/reading/" in str(item.path) and "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(400))  # the API is registered once: modules wait for each other


@pytest.fixture(scope="session")
def cluster() -> harness.Cluster:
    return harness.Cluster.under_test()


@pytest.fixture(scope="session")
def namespace(cluster: harness.Cluster) -> Iterator[str]:
    name = cluster.create_namespace("reading")
    yield name
    cluster.delete_namespace(name)


@pytest.fixture(scope="session")
def other_namespace(cluster: harness.Cluster) -> Iterator[str]:
    name = cluster.create_namespace("reading-other")
    yield name
    cluster.delete_namespace(name)


@pytest.fixture(scope="module")
def operator(
    cluster: harness.Cluster, namespace: str, other_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[scene.Server]:
    """A server on this machine, aggregated by the cluster's API server."""
    with aggregated(cluster, namespace, other_namespace, tmp_path_factory.mktemp("operator")) as running:
        yield running


@contextlib.contextmanager
def aggregated(
    cluster: harness.Cluster, namespace: str, other_namespace: str, folder: Path, **settings: Any
) -> Iterator[scene.Server]:
    """A server that keeps its files in `folder`; `settings`: more of an operator's."""
    inside = scene.local_cluster()
    names = ("DNS:localhost", "IP:127.0.0.1", f"DNS:*.{namespace}.svc")
    certificate, key = scene.self_signed(folder, "serving", "reading", *names)
    port = scene.free_port()
    reading = {"enabled": True, "port": port, "certificate": str(certificate), "key": str(key)}
    running = scene.Server(folder, cluster.kubeconfig, [namespace, other_namespace], reading=reading, **settings)
    running.start()
    api = scene.Aggregated(cluster, namespace)
    try:
        with alone.with_the(alone.RESULTS_API), scene.reached_from_inside(inside, port) as inner:
            api.register(certificate.read_bytes(), str(inside.control_address), inner)
            yield running
            api.remove()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{running.text()[-3000:]}") from None
    finally:
        running.stop()


@pytest.fixture(scope="session")
def people(cluster: harness.Cluster, tmp_path_factory: pytest.TempPathFactory) -> scene.People:
    return scene.People(cluster, tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="session")
def admin(people: scene.People, cluster: harness.Cluster) -> scene.Login:
    return people.login(cluster.kubeconfig)


Finished = Callable[..., tuple[str, stored.Kept]]


@pytest.fixture(scope="module")
def finished(cluster: harness.Cluster, namespace: str, operator: scene.Server) -> Finished:
    """`finished()`: the name of a run that is complete, and what is kept of it. `fill=None`: nothing yet."""

    def make(
        fill: Callable[[Path, str, str], stored.Kept] | None = stored.plain, where: str = namespace, **status: Any
    ) -> tuple[str, stored.Kept]:
        name = f"kept-{next(_numbers)}"
        spec = {**harness.spec(harness.task(), harness.NOP), "suspend": True}
        uid = cluster.create_run(where, name, spec)["metadata"]["uid"]
        prefix = f"test/{where}/{uid}/1/"
        kept = (fill or (lambda store, prefix, _: stored.Kept(store, prefix)))(operator.store, prefix, name)
        set_status(cluster, where, name, {**ENDED, "store": prefix, **status})
        return name, kept

    return make


ENDED: dict[str, Any] = {
    "phase": "Succeeded",
    "complete": True,
    "reward": "1",
    "timings": {"total": 1.5},
    "attempts": [{"number": 1, "tries": 1}],
}


def set_status(cluster: harness.Cluster, namespace: str, name: str, status: dict[str, Any]) -> None:
    """As the operator would."""
    body = {"status": status}
    cluster.custom.patch_namespaced_custom_object_status(
        harness.GROUP, harness.VERSION, namespace, "taskruns", name, body
    )


@pytest.fixture(scope="module")
def past(operator: scene.Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., scene.Login]:
    """`past(certificate)`: straight to the operator's port, past the API server."""
    import ssl  # noqa: PLC0415

    import yaml  # noqa: PLC0415

    reading = yaml.safe_load(operator.config.read_text())["reading"]

    def make(pair: tuple[Path, Path] | None = None, **headers: str) -> scene.Login:
        context = ssl.create_default_context(cafile=reading["certificate"])
        if pair is not None:
            context.load_cert_chain(*pair)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return scene.Login(f"https://127.0.0.1:{reading['port']}", context, named)

    return make
