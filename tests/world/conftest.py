"""The servers of the shared suite as fixtures."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import yaml

from taskfold.effects import client as api
from taskfold.effects import credentials, errors
from taskfold.effects.client import Resource
from tests import cluster as under_test
from tests.world import kinds, servers

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
ON_ALL = ("memory", "http", pytest.param("cluster", marks=pytest.mark.cluster))


async def _prepared(kubeconfig: str, namespace: str) -> None:
    """Today's CRDs, known to the server, and a namespace with its service account."""
    async with api.Client(credentials.from_kubeconfig(kubeconfig)) as client, asyncio.timeout(60):
        for path in sorted(kinds.CRDS.glob("*.yaml")):
            await client.apply(CRDS, None, yaml.safe_load(path.read_bytes()), manager="taskfold-tests")
        for resource in (api.TASKRUNS, api.VERIFIERRUNS):
            while not await _listed(client, resource):
                await asyncio.sleep(0.2)
        await client.create(api.NAMESPACES, None, {"kind": "Namespace", "metadata": {"name": namespace}})
        account = Resource("", "v1", "serviceaccounts")
        while not (await client.list(account, namespace)).items:
            await asyncio.sleep(0.1)


async def _listed(client: api.Client, resource: Resource) -> bool:
    try:
        await client.list(resource, "default", page=1)
    except errors.NotFound:
        return False
    return True


async def _ended(kubeconfig: str, namespace: str) -> None:
    async with api.Client(credentials.from_kubeconfig(kubeconfig)) as client:
        with contextlib.suppress(errors.NotFound):
            await client.delete(api.NAMESPACES, None, namespace)


@pytest.fixture(scope="session")
def suite_namespace() -> Iterator[tuple[str, str]]:
    """The kubeconfig of the cluster under test, and a namespace in it."""
    kubeconfig = under_test.existing()
    name = f"world-{uuid.uuid4().hex[:8]}"
    asyncio.run(_prepared(str(kubeconfig), name))
    yield str(kubeconfig), name
    asyncio.run(_ended(str(kubeconfig), name))


@pytest.fixture(params=ON_ALL)
def target(request: pytest.FixtureRequest) -> tuple[str, tuple[str, str]]:
    """Which server, and where the real one is."""
    real = request.getfixturevalue("suite_namespace") if request.param == "cluster" else ("", "")
    return request.param, real


@pytest.fixture
async def served(target: tuple[str, tuple[str, str]]) -> AsyncIterator[servers.Served]:
    """Each server of the shared suite in turn."""
    which, real = target
    match which:
        case "memory":
            opened = servers.in_memory()
        case "http":
            opened = servers.over_http()
        case _:
            opened = servers.real(*real)
    async with opened as found:
        yield found
