"""One trial: runs go on, blows fall until every run has ended, and then everything that is known is checked."""

import collections
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos import checks, report
from tests.chaos.faults import Fault
from tests.chaos.runs import Case
from tests.chaos.scene import LEASE, Scene, local_cluster, served
from tests.chaos.starts import Starts
from tests.conformance import harness

FULL = os.environ.get("TASKFOLD_CHAOS") == "full"
LAST_SECONDS = 150.0
"""From the last blow on: until every run must have ended."""
GONE_SECONDS = 60.0


@dataclass(frozen=True)
class Stage:
    """What every trial needs of its surroundings. `folder`: for the operators and their store."""

    cluster: harness.Cluster
    namespace: str
    starts: Starts
    seed: str
    folder: Path
    results: list[report.Result]

    def chances(self, fault: Fault) -> random.Random:
        """What the trial of this fault is drawn from."""
        return random.Random(f"{self.seed} {fault.name}")


def endure(stage: Stage, fault: Fault, cases: Sequence[Case], chances: random.Random, most_blows: int) -> report.Result:
    """Let the runs meet the fault; fails with every sentence of `checks`. The result is in the table all the same."""
    operators = _operators(stage, fault)
    scene = Scene(stage.cluster.kubeconfig, stage.namespace, operators, cases, chances)
    with served(operators):
        began = time.monotonic()
        blows = _blows(scene, fault, most_blows)
        all_ended = scene.watch(LAST_SECONDS)
        seconds = time.monotonic() - began
        left = _orphans(scene)
    evidence = _evidence(scene, stage.starts)
    wrong = {each.case.name: problems for each in evidence if (problems := checks.of_run(each, fault.losses))}
    losses = collections.Counter(each.failure["reason"] for each in evidence if each.lost(fault.losses))
    doubles = sum(count > 1 for each in evidence for count in each.starts.values())
    right = len(cases) - len(wrong)
    met = collections.Counter(copy.way.value for copy in scene.met)
    found = report.Result(
        fault.name, len(cases), right, losses, blows, doubles, len(left), len(scene.ended), seconds, met
    )
    stage.results.append(found)
    assert (wrong, left) == ({}, []), f"seed {stage.seed}; the operator's log ends:\n{operators[0].text()[-4000:]}"
    assert all_ended
    assert blows
    return found


def require_nodes(fault: Fault, cluster: harness.Cluster) -> None:
    """Skip a fault that this cluster cannot have."""
    local = local_cluster(cluster.kubeconfig)
    if fault.nodes and local is None:
        pytest.skip("the cluster was not started by hack/cluster, so its parts are left alone")
    if local is not None and local.nodes < fault.nodes:
        pytest.skip(f"needs a cluster of {fault.nodes} nodes: `python3 hack/cluster up --nodes {fault.nodes}`")


def _operators(stage: Stage, fault: Fault) -> list[harness.Operator]:
    """The operators of a trial; all of them have one store."""
    settings = {"store": {"url": f"file://{stage.folder}/store"}, **fault.settings}
    if fault.election:
        times = {"leaseSeconds": 6, "renewSeconds": 4, "retrySeconds": 1}
        settings["leaderElection"] = {"enabled": True, "leaseName": LEASE, "leaseNamespace": stage.namespace, **times}
    made = []
    for number in range(fault.operators):
        own = stage.folder / f"operator-{number}"
        own.mkdir()
        made.append(harness.Operator(own, stage.cluster.kubeconfig, [stage.namespace], **settings))
    return made


def _blows(scene: Scene, fault: Fault, most: int) -> int:
    """Blow after blow until every run has ended; returns their number. The seconds are the rhythm, not a wait."""
    chances = scene.random
    for blow in range(1, min(fault.blows, most) + 1):
        if scene.watch(chances.uniform(*fault.pause)):
            return blow - 1
        with fault.blow(scene):
            scene.watch(chances.uniform(*fault.hold))
    return min(fault.blows, most)


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
