"""Runs go on while the operator and the cluster are hurt: no result is lost, none is invented, nothing starts twice.

The short form meets each fault with a few runs and leaves out those that last for a minute; TASKFOLD_CHAOS=full has
all of them with 40 runs each. What differs from one session to the next comes from a seed.
"""

import collections
import os
import random
import time
from pathlib import Path

import pytest

from tests.chaos import checks, report, runs
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.scene import LEASE, Scene, local_cluster, served
from tests.chaos.starts import Starts
from tests.conformance import harness

FULL = os.environ.get("TASKFOLD_CHAOS") == "full"
RUNS = 40 if FULL else 8
BLOWS = 40 if FULL else 5
LAST_SECONDS = 150.0
"""From the last blow on: until every run must have ended."""
GONE_SECONDS = 60.0

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if FULL or not fault.long], ids=lambda fault: fault.name)
def test_every_run_ends_as_it_must(
    fault: Fault,
    cluster: harness.Cluster,
    namespace: str,
    starts: Starts,
    seed: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    _require_nodes(fault, cluster)
    chances = random.Random(f"{seed} {fault.name}")
    cases = runs.mix(RUNS, chances, starts, fault.spec)
    operators = _operators(fault, cluster, namespace, tmp_path)
    scene = Scene(cluster.kubeconfig, namespace, operators, cases, chances)
    with served(operators):
        began = time.monotonic()
        blows = _endure(scene, fault)
        all_ended = scene.watch(LAST_SECONDS)
        seconds = time.monotonic() - began
        left = _orphans(scene)
    evidence = _evidence(scene, starts)
    wrong = {each.case.name: problems for each in evidence if (problems := checks.of_run(each, fault.losses))}
    losses = collections.Counter(each.failure["reason"] for each in evidence if each.lost(fault.losses))
    doubles = sum(count > 1 for each in evidence for count in each.starts.values())
    found = report.Result(
        fault.name, len(cases), len(cases) - len(wrong), losses, blows, doubles, len(left), len(scene.ended), seconds
    )
    request.config.stash.setdefault(report.RESULTS, []).append(found)
    assert (wrong, left) == ({}, []), f"seed {seed}; the operator's log ends:\n{operators[0].text()[-4000:]}"
    assert all_ended
    assert blows


def _require_nodes(fault: Fault, cluster: harness.Cluster) -> None:
    local = local_cluster(cluster.kubeconfig)
    if fault.nodes and local is None:
        pytest.skip("the cluster was not started by hack/cluster, so its parts are left alone")
    if local is not None and local.nodes < fault.nodes:
        pytest.skip(f"needs a cluster of {fault.nodes} nodes: `python3 hack/cluster up --nodes {fault.nodes}`")


def _operators(fault: Fault, cluster: harness.Cluster, namespace: str, folder: Path) -> list[harness.Operator]:
    """The operators of a trial; all of them have one store."""
    settings = {"store": {"url": f"file://{folder}/store"}, **fault.settings}
    if fault.election:
        times = {"leaseSeconds": 6, "renewSeconds": 4, "retrySeconds": 1}
        settings["leaderElection"] = {"enabled": True, "leaseName": LEASE, "leaseNamespace": namespace, **times}
    made = []
    for number in range(fault.operators):
        own = folder / f"operator-{number}"
        own.mkdir()
        made.append(harness.Operator(own, cluster.kubeconfig, [namespace], **settings))
    return made


def _endure(scene: Scene, fault: Fault) -> int:
    """Blow after blow until every run has ended; returns their number. The seconds are the rhythm, not a wait."""
    chances = scene.random
    for blow in range(1, min(fault.blows, BLOWS) + 1):
        if scene.watch(chances.uniform(*fault.pause)):
            return blow - 1
        with fault.blow(scene):
            scene.watch(chances.uniform(*fault.hold))
    return min(fault.blows, BLOWS)


def _orphans(scene: Scene) -> list[str]:
    """What is left once nodes and garbage collector have had their time."""

    def look() -> list[str]:
        listed = scene.insist(lambda: (scene.runs(), scene.verifiers()), "the runs are listed")
        return checks.orphans(scene.cases, *listed, scene.pods())

    deadline = time.monotonic() + GONE_SECONDS
    while (left := look()) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def _evidence(scene: Scene, starts: Starts) -> list[checks.Evidence]:
    found, verifiers = scene.insist(lambda: (scene.runs(), scene.verifiers()), "the runs are listed")
    graders = {verifier["spec"]["source"]["runRef"]["uid"]: verifier for verifier in verifiers.values()}
    store = scene.operators[0].folder.parent / "store"
    return [
        checks.Evidence(
            case,
            found[case.name],
            graders.get(found[case.name]["metadata"]["uid"]),
            starts.of(case.name),
            store,
        )
        for case in scene.cases
    ]
