"""How long an operator takes until it works, in a namespace full of finished runs.

Makes N complete TaskRuns by hand, starts the operator, creates one run at the moment the process starts, and measures
until that run's pod is there; beside it the memory, the calls and the bytes of the first rounds.

python -m bench.startup --finished 10000
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.conformance import harness

from bench import figures
from bench.kube import Failed, Json, Kube, kubeconfig, namespace, until
from bench.run_speed import CountedOperator

GROUP = "/apis/taskfold.dev/v1alpha1"
AT_A_TIME = 16
TARGET_SECONDS = 15.0
COMPLETED = "2026-01-01T00:00:00.000Z"


def taskrun(name: str) -> Json:
    files = harness.task(solve="true\n", test="echo 1 > /logs/verifier/reward.txt\n")
    spec = harness.spec(files, harness.ORACLE)
    return {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "metadata": {"name": name}, "spec": spec}


def finished_status(name: str) -> Json:
    """About what a real run leaves in its status."""
    digest = "sha256:" + "7" * 64
    condition = {"observedGeneration": 1, "lastTransitionTime": COMPLETED, "message": "reward 1"}
    types = {"Succeeded": "True", "Reconciling": "False", "Stalled": "False", "Ready": "True"}
    conditions = [{"type": kind, "status": value, "reason": "Completed", **condition} for kind, value in types.items()]
    attempt = {
        "number": 1,
        "tries": 1,
        "podName": f"{name}-1-1",
        "podUid": "00000000-0000-0000-0000-000000000000",
        "nodeName": "node-1",
        "startTime": COMPLETED,
        "endTime": COMPLETED,
        "reason": "VerdictReached",
    }
    return {
        "phase": "Succeeded",
        "reward": "1",
        "rewards": {"reward": 1},
        "complete": True,
        "completionTime": COMPLETED,
        "startTime": COMPLETED,
        "verdictTime": COMPLETED,
        "admitted": {"specDigest": digest, "taskDigest": digest},
        "store": f"default/{name}/1/",
        "conditions": conditions,
        "attempts": [attempt],
        "observedGeneration": 1,
    }


async def fill(kube: Kube, space: str, count: int) -> None:
    """So many finished runs."""
    places, began = asyncio.Semaphore(AT_A_TIME), time.monotonic()

    async def one(name: str) -> None:
        async with places:
            await kube.request("POST", f"{GROUP}/namespaces/{space}/taskruns", taskrun(name))
            body = {"status": finished_status(name)}
            await kube.request("PATCH", f"{GROUP}/namespaces/{space}/taskruns/{name}/status", body)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(f"done-{number:06}"))
    print(f"{count} finished runs made in {time.monotonic() - began:.0f} s", flush=True)


async def empty(kube: Kube, space: str) -> None:
    """Delete every run, in parts: a request for all would last longer than the API server lets it."""

    async def none() -> bool:
        await kube.request("DELETE", f"{GROUP}/namespaces/{space}/taskruns?limit=500")
        return not (await kube.request("GET", f"{GROUP}/namespaces/{space}/taskruns?limit=1"))["items"]

    await until(none, 600)


async def one_start(kube: Kube, space: str, folder: Path, number: int, settle: float) -> Json:
    """Start an operator, and a run with it."""
    folder.mkdir()
    operator = CountedOperator(folder, kubeconfig(), [space])
    name = f"new-{number}"
    pod = f"/api/v1/namespaces/{space}/pods/{name}-1-1"

    async def created() -> bool:
        try:
            await kube.request("GET", pod)
        except Failed:
            return False
        return True

    began = time.monotonic()
    operator.start()
    healthy = asyncio.create_task(asyncio.to_thread(operator.ready))
    try:
        await kube.request("POST", f"{GROUP}/namespaces/{space}/taskruns", taskrun(name))
        await until(created)
        found: Json = {"first_pod_s": time.monotonic() - began, "rss_at_first_pod_mib": operator.rss() / 2**20}
        await healthy
        found["healthy_s"] = time.monotonic() - began
        await asyncio.sleep(settle)
        counters = operator.counters()
        found |= {"rss_mib": operator.rss() / 2**20, "calls": counters["calls"], "received": counters["received"]}
        return found
    finally:
        await asyncio.gather(healthy, return_exceptions=True)
        await asyncio.to_thread(operator.stop)


async def measure(options: argparse.Namespace, folder: Path) -> Json:
    found: dict[str, Any] = {"machine": figures.machine(), "finished": options.finished, "starts": []}
    print(found["machine"])
    async with Kube(kubeconfig()) as kube, namespace(kube) as space:
        try:
            await fill(kube, space, options.finished)
            for number in range(options.starts):
                one = await one_start(kube, space, folder / str(number), number, options.settle)
                found["starts"].append(one)
                print(
                    f"first pod after {one['first_pod_s']:.2f} s (target {TARGET_SECONDS:g}), healthy after "
                    f"{one['healthy_s']:.2f} s; RSS {one['rss_at_first_pod_mib']:.0f} MiB then, {one['rss_mib']:.0f} "
                    f"MiB after {options.settle:g} s more; calls {one['calls']}, bodies received "
                    f"{one['received'] / 2**20:.1f} MiB",
                    flush=True,
                )
        finally:
            await empty(kube, space)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", type=int, default=10_000)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--settle", type=float, default=45.0, help="seconds after the first pod, for a round or more")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskfold-bench-") as folder:
        found = asyncio.run(measure(options, Path(folder)))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
