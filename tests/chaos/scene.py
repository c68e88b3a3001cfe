"""One trial: a namespace with its runs, the operators that serve it, and the user who created them.

Guarantees: every wait and every number of tries has a bound; a call that the fault breaks is tried again; what is
reported of a run is what the API server says.
"""

import collections
import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import kubernetes.client as k8s
import urllib3.exceptions
from hack.cluster import settings
from hack.cluster.settings import Settings
from kubernetes.client.exceptions import ApiException

from tests.chaos.runs import Action, Case
from tests.conformance import harness
from tests.conformance.harness import GROUP, VERSION

Object = dict[str, Any]
T = TypeVar("T")

LEASE = "chaos"
CALL_SECONDS = 3.0
INSIST_SECONDS = 120.0
PASSING = frozenset({0, 408, 429, 500, 502, 503, 504})
"""Answers of an API server that has lost its etcd or is about to start."""
LOOK_SECONDS = 0.5
AT_WORK = ("Running", "Closing", "Verifying")
AT_WORK_SECONDS = 40.0
AT_A_TIME = 12
"""Runs that go on side by side: enough to be met at every point of their life, few enough for two processors."""


class Absent(Exception):  # noqa: N818 - it is the state of the world and not an error
    """The API server does not answer now."""


class Scene:
    """What a fault may hurt, and the runs that must not notice."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        operators: Sequence[harness.Operator],
        cases: Sequence[Case],
        chances: random.Random,
    ) -> None:
        self.cluster, self.namespace, self.operators = _impatient(kubeconfig), namespace, list(operators)
        self.cases = list(cases)
        self.leases = k8s.CoordinationV1Api(self.cluster.core.api_client)
        self.random = chances
        self.deletions: collections.Counter[str] = collections.Counter()
        self.met: set[Any] = set()
        """The copies that blows have met (copies.Copy), each once."""
        self.ended: list[str] = []
        """The last words of operators that ended by themselves; the platform starts them again."""
        self.down: list[harness.Operator] = []
        """Operators that a fault keeps down."""
        self._turn = 0
        self._acts: list[tuple[float, Case]] = []
        self._to_come = list(cases)

    @property
    def local_cluster(self) -> Settings:
        """The cluster under test, which this machine started."""
        found = local_cluster(self.cluster.kubeconfig)
        assert found is not None
        return found

    def next_operator(self) -> harness.Operator:
        """Each in its turn."""
        self._turn += 1
        return self.operators[self._turn % len(self.operators)]

    def leader(self) -> harness.Operator | None:
        """Who holds the lease; None: nobody does now, or nobody can tell."""
        try:
            lease = self._call(self.leases.read_namespaced_lease, LEASE, self.namespace)
        except Absent:
            return None
        holder = f" as {lease.spec.holder_identity}\n"
        return next((each for each in self.operators if each.running and holder in each.text()), None)

    def watch(self, seconds: float) -> bool:
        """Do what users do, for this long or until every run is complete. Returns whether all are."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(Absent):
                self._act()
                if self._ended():
                    return True
            self._replace_the_ended()
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(LOOK_SECONDS, max(0.0, deadline - time.monotonic())))

    def watch_until_at_work(self, node: str) -> None:
        """The same until a run on this node has begun its work, or for a bounded while."""
        deadline = time.monotonic() + AT_WORK_SECONDS
        while time.monotonic() < deadline and not self.watch(LOOK_SECONDS):
            with contextlib.suppress(Absent):
                states = [run.get("status") or {} for run in self.runs().values()]
                if any(state.get("nodeName") == node and state.get("phase") in AT_WORK for state in states):
                    return

    def _ended(self) -> bool:
        """Whether every run is complete; new ones take the place of those that are."""
        going = sum(not run.get("status", {}).get("complete") for run in self.runs().values())
        for case in self._to_come[: max(0, AT_A_TIME - going)]:
            self._create(case)
            self._to_come.remove(case)
            going += 1
            if case.action is not None:
                self._acts.append((time.monotonic() + case.after, case))
        return not going

    def _act(self) -> None:
        """Cancel and resume what is due."""
        for moment, case in [each for each in self._acts if each[0] <= time.monotonic()]:
            change = {"spec": {"cancel": True} if case.action is Action.CANCEL else {"suspend": False}}
            patcher = self.cluster.custom.patch_namespaced_custom_object
            self._call(patcher, GROUP, VERSION, self.namespace, "taskruns", case.name, change)
            self._acts.remove((moment, case))

    def _replace_the_ended(self) -> None:
        for operator in self.operators:
            if not operator.running and operator not in self.down:
                self.ended.append(operator.text()[-2000:])
                with contextlib.suppress(AssertionError):  # it may end again while the API server is away
                    operator.start()

    # -- what the API server says --------------------------------------------------------------------------------------

    def runs(self) -> dict[str, Object]:
        """The TaskRuns by name."""
        return self._listed("taskruns")

    def verifiers(self) -> dict[str, Object]:
        """The VerifierRuns by name."""
        return self._listed("verifierruns")

    def _listed(self, plural: str) -> dict[str, Object]:
        lister = self.cluster.custom.list_namespaced_custom_object
        items: list[Object] = self._call(lister, GROUP, VERSION, self.namespace, plural)["items"]
        return {item["metadata"]["name"]: item for item in items}

    def pods(self) -> list[Any]:
        """The sandboxes; none while the API server is away."""
        lister = self.cluster.core.list_namespaced_pod
        try:
            return list(self._call(lister, self.namespace, label_selector="taskfold.dev/run").items)
        except Absent:
            return []

    def delete_pod(self, name: str, grace: int | None) -> None:
        """Delete a sandbox, as a user would."""
        options = {} if grace is None else {"grace_period_seconds": grace}
        with contextlib.suppress(Absent):
            self._call(self.cluster.core.delete_namespaced_pod, name, self.namespace, **options)

    def insist(self, call: Callable[[], T], what: str) -> T:
        """Try a call again until the API server is back."""
        deadline = time.monotonic() + INSIST_SECONDS
        while True:
            try:
                return call()
            except Absent as error:
                assert time.monotonic() < deadline, f"not within {INSIST_SECONDS:g} s: {what}: {error}"
                time.sleep(LOOK_SECONDS)

    def _create(self, case: Case) -> None:
        kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "TaskRun", "metadata": {"name": case.name}}
        creator = self.cluster.custom.create_namespaced_custom_object
        body = {**kind, "spec": dict(case.spec)}
        try:
            self._call(creator, GROUP, VERSION, self.namespace, "taskruns", body)
        except ApiException as error:
            if error.status != 409:  # its first answer was lost
                raise

    def _call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        try:
            return function(*arguments, **options, _request_timeout=CALL_SECONDS)
        except ApiException as error:
            if error.status == 404:  # a sandbox that has gone meanwhile
                raise Absent(str(error)) from error
            if error.status not in PASSING:
                raise
            raise Absent(f"{error.status} {error.reason}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Absent(str(error)) from error


def _impatient(kubeconfig: Path) -> harness.Cluster:
    """A call that fails is the fault at work: no hidden repetition lengthens a blow."""
    found = harness.Cluster(kubeconfig)
    found.core.api_client.rest_client.pool_manager.connection_pool_kw["retries"] = False
    return found


def local_cluster(kubeconfig: Path) -> Settings | None:
    """The settings of the cluster of this kubeconfig, if hack/cluster has started it; its record lies beside."""
    try:
        return settings.from_json(json.loads((kubeconfig.parent / "cluster.json").read_text())["settings"])
    except (OSError, ValueError, KeyError):
        return None


@contextlib.contextmanager
def served(operators: Sequence[harness.Operator]) -> Iterator[None]:
    """Operators at work for the length of the block; none is left, not even a frozen one."""
    try:
        for operator in operators:
            operator.start()
        yield
    finally:
        for operator in operators:
            operator.kill()
