"""Nothing goes to a separate verifier before its agent has ended (C32), by the API server's own order of things.

A gate in the operator's way tells when an exec into a pod is about to begin; a watch tells in which version of the
cluster's state the agent's pod was reported ended. What the agent leaves behind reports to a server outside.
"""

import concurrent.futures
import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import kubernetes.watch
import pytest
import urllib3.exceptions

from taskfold.conformance.cases import separate
from tests.conformance import gate, harness
from tests.conformance.counter import Counter
from tests.conformance.harness import script, task

pytestmark = pytest.mark.timeout(300)

RUNS = 20
AT_A_TIME = 2
"""Few, so that a verifier's pod is ready about when its agent's ends: were nothing waited for, some would be early."""
TEST = "grep -qx 42 /app/answer && echo 1 > /logs/verifier/reward.txt\n"
TOML = separate.toml(artifacts='"/app/answer"')


def agents(run: str) -> str:
    """The name of the agent's pod."""
    return f"{run}-1-1"


def ended(pod: Mapping[str, Any]) -> bool:
    """Every container that the pod ever had is reported terminated."""
    status, spec = pod["status"], pod["spec"]
    told = itertools.chain(
        status.get("containerStatuses", ()),
        status.get("initContainerStatuses", ()),
        status.get("ephemeralContainerStatuses", ()),
    )
    states = {each["name"]: each.get("state", {}) for each in told}
    names = [
        each["name"] for kind in ("containers", "initContainers", "ephemeralContainers") for each in spec.get(kind, ())
    ]
    return all("terminated" in states.get(name, {}) for name in names)


class Seen:
    """The pods of a namespace as they change. By pod: the resourceVersion in which it was made, and had ended."""

    def __init__(self, cluster: harness.Cluster, namespace: str) -> None:
        self.made: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self._core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(cluster.kubeconfig)))
        self._namespace = namespace
        self._watch = kubernetes.watch.Watch()
        self._since = self._core.list_namespaced_pod(namespace).metadata.resource_version
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        listed = self._core.list_namespaced_pod
        with contextlib.suppress(urllib3.exceptions.ProtocolError):  # how `stop` ends it, in the midst of a chunk
            for event in self._watch.stream(listed, self._namespace, resource_version=self._since, timeout_seconds=280):
                pod = event["raw_object"]
                name, version = pod["metadata"]["name"], int(pod["metadata"]["resourceVersion"])
                self.made.setdefault(name, version)
                if event["type"] == "DELETED" or ended(pod):
                    self.ended.setdefault(name, version)

    def stop(self) -> None:
        self._watch.stop()


class Execs:
    """What the gate tells. By pod of a verifier: the version of the cluster's state at its first exec, and how often
    the run's agent had reported by then.
    """

    def __init__(self, cluster: harness.Cluster, namespace: str, counter: Counter) -> None:
        self.began: dict[str, int] = {}
        self.reports: dict[str, int] = {}
        self._core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(cluster.kubeconfig)))
        self._namespace, self._counter = namespace, counter
        self._lock = threading.Lock()

    def told(self, _: str, target: str) -> None:
        pod = gate.pod_of_exec(target)
        run, marked, _rest = (pod or "").partition("-1-verify-")
        if pod is None or not marked:
            return
        with self._lock:
            if pod not in self.began:
                now = self._core.list_namespaced_pod(self._namespace, limit=1)
                self.began[pod] = int(now.metadata.resource_version)
                self.reports[run] = self._counter.counts(run).get("alive", 0)


@pytest.fixture
def counter(cluster: harness.Cluster, own_namespace: str) -> Counter:
    made = Counter(cluster, own_namespace)
    made.start()
    return made


@pytest.fixture
def execs(cluster: harness.Cluster, own_namespace: str, counter: Counter, tmp_path: Path) -> Iterator[Execs]:
    """What an operator behind the gate sends to verifiers, while it runs."""
    log = Execs(cluster, own_namespace, counter)
    with gate.gate(cluster.kubeconfig, tmp_path / "kubeconfig", log.told) as through:
        operator = harness.Operator(tmp_path, through, [own_namespace])
        operator.start()
        try:
            yield log
        finally:
            operator.stop()


def test_no_exec_into_a_verifiers_pod_before_its_agents_containers_have_ended(
    cluster: harness.Cluster, own_namespace: str, counter: Counter, execs: Execs
) -> None:
    seen = Seen(cluster, own_namespace)
    names = [f"order-{number}" for number in range(RUNS)]

    def rewarded(name: str) -> str | None:
        report = counter.report(name, "alive")
        left = f"(while :; do ({report}); sleep 0.2; done) > /dev/null 2>&1 &\n"
        agent = script(f"{report}{left}echo 42 > answer\n")
        cluster.create_run(own_namespace, name, harness.spec(task(TEST) | {"task.toml": TOML}, agent))
        return cluster.finished(own_namespace, name).get("reward")

    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as threads:
        rewards = dict(zip(names, threads.map(rewarded, names), strict=True))
    assert rewards == dict.fromkeys(names, "1")
    cluster.until(lambda: {agents(name) for name in names} <= seen.ended.keys(), "the watch tells of all ends")
    seen.stop()

    run_of = {pod: pod.partition("-1-verify-")[0] for pod in execs.began}
    assert sorted(set(run_of.values())) == sorted(names)
    early = [pod for pod, version in execs.began.items() if version < seen.ended[agents(run_of[pod])]]
    assert early == []
    assert any(seen.made[pod] < seen.ended[agents(run)] for pod, run in run_of.items()), "none was there to be given"
    assert min(execs.reports.values()) >= 1
    assert {name: counter.counts(name)["alive"] for name in names} == execs.reports, (
        "an agent went on beside a verifier"
    )
