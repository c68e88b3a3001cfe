"""The conformance table on the cluster under test, by the runner of `taskfold conformance`: one test a row.

The rows run many at a time in a thread beside; a test waits for its own. TASKFOLD_TEST_PROFILE names another security
profile for all of them.
"""

import asyncio
import concurrent.futures
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from taskfold.api.taskrun import SecurityProfile
from taskfold.cli import rows
from taskfold.conformance import manifests, table
from taskfold.conformance.case import Case, Need
from taskfold.conformance.report import Outcome, Result
from taskfold.effects import client as api
from taskfold.effects import credentials
from tests.conformance import harness

PARALLEL = 12
LIMIT_SECONDS = 300.0
PROFILE = SecurityProfile(os.environ.get("TASKFOLD_TEST_PROFILE", SecurityProfile.ROOT))
CGROUP = Need.CGROUP_V2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else Need.CGROUP_V1
"""The local cluster's nodes are this machine."""
THERE = {Need.TEST_IMAGES, CGROUP} | ({Need.ROOT} if PROFILE is not SecurityProfile.RESTRICTED else set())
CASES, LEFT = table.split(table.all_cases(), THERE)

pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 60)


class Playing:
    """The rows, played in a thread beside the tests. `results`: id → the row's result, as it comes."""

    def __init__(self, cluster: harness.Cluster, namespace: str, chosen: Sequence[Case]) -> None:
        self.results: dict[str, concurrent.futures.Future[Result]] = {
            case.id: concurrent.futures.Future() for case in chosen
        }
        self._cluster, self._namespace, self._chosen = cluster, namespace, chosen
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End what still goes on, and take it away."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(60)

    def _work(self) -> None:
        """An error that ends the whole is every test's."""
        try:
            asyncio.run(self._play())
        except Exception as error:
            for future in self.results.values():
                if not future.done():
                    future.set_exception(error)

    async def _play(self) -> None:
        self._loop = asyncio.get_running_loop()
        suffix = secrets.token_hex(3)[:5]
        plan = rows.Plan(self._namespace, suffix, manifests.Place(profile=PROFILE), PARALLEL, LIMIT_SECONDS)
        source = credentials.from_kubeconfig(str(self._cluster.kubeconfig))
        async with api.Client(source) as client, rows.Session(client, plan) as session:
            await session.play(self._chosen, self._stopped, lambda result: self.results[result.id].set_result(result))


@pytest.fixture(scope="module")
def playing(
    request: pytest.FixtureRequest, cluster: harness.Cluster, namespace: str, operator: harness.Operator
) -> Iterator[Playing]:
    """The rows of the tests that were chosen."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    playing = Playing(cluster, namespace, [getattr(item, "callspec").params["case"] for item in items])  # noqa: B009
    yield playing
    playing.stop()


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_case(case: Case, playing: Playing) -> None:
    result = playing.results[case.id].result(LIMIT_SECONDS + 30)
    if result.outcome is Outcome.REFUSED:
        pytest.skip("; ".join(result.notes))
    assert result.outcome is Outcome.PASSED, "\n".join([case.proves, result.found, *result.notes])
