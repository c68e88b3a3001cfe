"""Losses of pods and nodes in the world: what they leave in the pod, and what becomes of what ran there."""

import asyncio
from typing import Any

import pytest

from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes
from taskfold.protocol import phase as phases
from tests.world import clock, nodes, programs, surroundings
from tests.world.test_kubelet import Cluster, manifest, world

NONCE = "b" * 32


async def gone(cluster: Cluster, name: str = "pod", seconds: float = 600) -> None:
    async with asyncio.timeout(seconds):
        while cluster.server.read(api.PODS, "ns", name) is not None:
            await asyncio.sleep(0.5)


def disruption(pod: dict[str, Any]) -> tuple[str, str]:
    found = next(each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget")
    return found["status"], found["reason"]


def condition(pod: dict[str, Any], kind: str = "Ready") -> tuple[str, str | None]:
    found = next(each for each in pod["status"]["conditions"] if each["type"] == kind)
    return found["status"], found.get("reason")


def test_pressure_leaves_the_condition_whatever_the_exit_code() -> None:
    async def main(cluster: Cluster) -> None:
        for name, image in (("quiet", "any"), ("loud", "ends with 143")):
            await cluster.create(manifest(name, image=image))
            await cluster.running(name)
            cluster.nodes.evict_for_pressure(name)
        await asyncio.sleep(10)
        quiet, loud = await cluster.pod("quiet"), await cluster.pod("loud")
        assert disruption(quiet) == disruption(loud) == ("True", "TerminationByKubelet")
        assert (quiet["status"]["phase"], quiet["status"].get("reason")) == ("Succeeded", None)
        assert (loud["status"]["phase"], loud["status"]["reason"]) == ("Failed", "Evicted")
        assert loud["status"]["message"] == nodes.PRESSURE

    world(main)


def test_a_preempted_pod_is_marked_and_then_deleted() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest())
        await cluster.running()
        cluster.nodes.preempt("ns", "pod")
        seen = await cluster.pod()
        assert disruption(seen) == ("True", "PreemptionByScheduler")
        assert "deletionTimestamp" in seen["metadata"]
        await gone(cluster, seconds=10)

    world(main)


def test_a_node_that_is_gone_takes_its_pods_along() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest())
        pin = await cluster.running()
        last: list[dict[str, Any]] = []
        cluster.server.subscribe(lambda kind, plural, obj: last.append(obj) if plural == "pods" else None)
        cluster.nodes.lose("node-1")
        with pytest.raises(errors.HandshakeRefused, match="connection refused"):
            await execs.Exec(cluster.client).run(pin, ["id"])
        await gone(cluster)
        assert disruption(last[-1]) == ("True", "DeletionByPodGC")
        assert last[-1]["status"]["phase"] == "Failed"
        await cluster.create(manifest("next"))
        await asyncio.sleep(1)
        assert condition(await cluster.pod("next"), "PodScheduled") == ("False", "Unschedulable")
        cluster.nodes.add("node-2")
        assert (await cluster.running("next")).node == "node-2"

    world(main)


def worked(cluster: Cluster) -> list[programs.Start]:
    return cluster.nodes.book.table.of("run", "agent")


@pytest.mark.parametrize("seconds", [5.0, 40.0, 200.0], ids=["a moment", "less than noticed", "noticed"])
def test_a_kubelet_that_comes_back_finds_everything_going_on(seconds: float) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.nodes.book.texts["work"] = programs.Script(seconds=60)
        await cluster.create(manifest())
        pin = await cluster.running()
        call = asyncio.create_task(cluster.agent(pin, NONCE))
        await asyncio.sleep(5)
        cluster.nodes.stop_kubelet("node-1")
        with pytest.raises(errors.ConnectionLost):
            await call
        with pytest.raises(errors.HandshakeRefused):
            await cluster.agent(pin, NONCE)
        await asyncio.sleep(seconds)
        ready = ("False", "NodeNotReady") if seconds > nodes.UNREADY_SECONDS else ("True", None)
        assert condition(await cluster.pod()) == ready
        cluster.nodes.start_kubelet("node-1")
        result = await cluster.agent(pin, NONCE)
        assert result.runs[0].return_code == 0
        assert condition(await cluster.pod()) == ("True", None)
        assert len(worked(cluster)) == 1

    world(main)


def test_a_node_that_stays_away_too_long_loses_its_pods_when_it_is_back() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest())
        await cluster.running()
        cluster.nodes.stop_kubelet("node-1")
        await asyncio.sleep(nodes.UNREADY_SECONDS + nodes.TOLERATION_SECONDS + 1)
        seen = await cluster.pod()
        assert disruption(seen) == ("True", "DeletionByTaintManager")
        assert "deletionTimestamp" in seen["metadata"]
        await asyncio.sleep(3600)
        assert (await cluster.pod())["status"]["phase"] == "Running", "nobody can say otherwise"
        cluster.nodes.start_kubelet("node-1")
        await gone(cluster, seconds=10)

    world(main)


def test_a_pod_may_tolerate_a_silent_node_for_ever() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest(tolerations=[{"key": nodes.UNREACHABLE, "operator": "Exists"}]))
        await cluster.running()
        cluster.nodes.stop_kubelet("node-1")
        await asyncio.sleep(7200)
        assert "deletionTimestamp" not in (await cluster.pod())["metadata"]

    world(main)


def test_a_pod_that_is_deleted_while_its_kubelet_is_away() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest())
        pin = await cluster.running()
        cluster.nodes.stop_kubelet("node-1")
        await cluster.client.delete(api.PODS, "ns", "pod")
        await asyncio.sleep(30)
        assert "deletionTimestamp" in (await cluster.pod())["metadata"]
        await cluster.client.delete(api.PODS, "ns", "pod", grace_seconds=0)
        await gone(cluster, seconds=1)
        await cluster.create(manifest())
        cluster.nodes.start_kubelet("node-1")
        assert (await cluster.running()).uid != pin.uid
        with pytest.raises(errors.PodReplaced):
            await cluster.agent(pin)
        assert [pod.uid for pod in cluster.nodes.kubelets["node-1"].pods.values()] != [pin.uid]

    world(main)


def test_a_runtime_that_starts_anew_breaks_streams_only() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.nodes.book.texts["work"] = programs.Script(seconds=60)
        await cluster.create(manifest())
        pin = await cluster.running()
        call = asyncio.create_task(cluster.agent(pin, NONCE))
        await asyncio.sleep(5)
        cluster.nodes.restart_runtime("node-1")
        with pytest.raises(errors.ConnectionLost):
            await call
        assert (await cluster.agent(pin, NONCE)).runs[0].seconds == pytest.approx(60)
        assert len(worked(cluster)) == 1

    world(main)


def test_a_container_that_was_started_anew_is_another_sandbox() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest())
        pin = await cluster.running()
        await cluster.agent(pin, NONCE)
        cluster.nodes.restart_container("pod")
        await asyncio.sleep(5)
        with pytest.raises(errors.ContainerRestarted):
            await cluster.agent(pin, NONCE)
        new = execs.PodPin.of(await cluster.pod())
        assert (new.uid, new.restart_count) == (pin.uid, 1)
        status = (await cluster.pod())["status"]["containerStatuses"][0]
        assert status["lastState"]["terminated"]["exitCode"] == 137
        box = sandboxes.Sandbox(execs.Exec(cluster.client), new)
        with pytest.raises(errors.UnknownPhase):
            await box.run_phase(phases.PhaseRequest(NONCE, "agent", attach_only=True))

    world(main)


def test_memory_under_cgroup_v1_costs_one_process() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.nodes.book.texts["work"] = programs.Script(exhausts_memory=True)
        await cluster.create(manifest())
        run = (await cluster.agent(await cluster.running())).runs[0]
        assert (run.signal, run.oom_kills) == (9, 1)
        await asyncio.sleep(10)
        assert (await cluster.pod())["status"]["phase"] == "Running"

    world(main, cgroup=1)


def test_memory_under_cgroup_v2_costs_the_container() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.nodes.book.texts["work"] = programs.Script(exhausts_memory=True)
        await cluster.create(manifest())
        pin = await cluster.running()
        with pytest.raises((errors.HelperFailed, errors.ExecError)):
            await cluster.agent(pin)
        await asyncio.sleep(10)
        pod = await cluster.pod()
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (pod["status"]["phase"], ended["reason"], ended["exitCode"]) == ("Failed", "OOMKilled", 137)
        with pytest.raises(errors.NotRunning):
            await cluster.agent(pin)

    world(main, cgroup=2)


def test_a_status_stands_still_while_the_kubelet_is_away() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest())
        await asyncio.sleep(0.3)
        cluster.nodes.stop_kubelet("node-1")
        before = (await cluster.pod())["status"]
        await asyncio.sleep(30)
        assert (await cluster.pod())["status"] == before
        cluster.nodes.start_kubelet("node-1")
        await cluster.running()

    world(main)


def test_a_full_node_takes_the_next_pod_when_there_is_room() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest("first"))
        await cluster.running("first")
        await cluster.create(manifest("second"))
        await asyncio.sleep(5)
        assert "Too many pods" in (await cluster.pod("second"))["status"]["conditions"][0]["message"]
        await cluster.client.delete(api.PODS, "ns", "first")
        await cluster.running("second")

    world(main, pods_per_node=1)


def test_a_gated_pod_waits_for_its_gate() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest(schedulingGates=[{"name": "quota"}]))
        await asyncio.sleep(5)
        assert condition(await cluster.pod(), "PodScheduled") == ("False", "SchedulingGated")
        cluster.server.change(api.PODS, "ns", "pod", lambda pod: pod["spec"].pop("schedulingGates"))
        await cluster.running()

    world(main)


@pytest.mark.parametrize(
    ("name", "container", "kind", "text"),
    [
        ("none", "main", errors.NotRunning, 'pods "none" not found'),
        ("pod", "nope", errors.NotRunning, "container nope: the container is not running: Running"),
        ("gated", "main", errors.NotRunning, "container is not running"),
        ("ended", "main", errors.NotRunning, "terminated"),
    ],
    ids=["no pod", "no such container", "not placed", "ended"],
)
def test_an_exec_that_cannot_be(name: str, container: str, kind: type[Exception], text: str) -> None:
    async def main(cluster: Cluster) -> None:
        for each in ("pod", "ended"):
            await cluster.create(manifest(each))
            await cluster.running(each)
        await cluster.create(manifest("gated", schedulingGates=[{"name": "quota"}]))
        cluster.nodes.pod("ended").boxes["main"].end(0)
        await asyncio.sleep(5)
        found = cluster.server.read(api.PODS, "ns", name)
        pin = execs.PodPin("ns", name, found["metadata"]["uid"] if found else "x", container)
        with pytest.raises(kind, match=text):
            await execs.Exec(cluster.client).run(pin, ["id"], checked=True)

    world(main)


def test_the_pace_can_be_chosen() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.create(manifest())
        await cluster.running()
        assert clock.now() > 20 * 0.75

    world(main, pace=surroundings.Pace(sandbox=20))
