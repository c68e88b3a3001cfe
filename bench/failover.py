"""How long the work stands still when the leader is killed: from SIGKILL until the next one creates a pod.

Two operators with the lease's default times; a run is created at the moment of the kill, so that its pod is the first
thing that the next leader does.

python -m bench.failover --times 5
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from tests.conformance import harness

from bench import figures, startup
from bench.kube import Failed, Json, Kube, kubeconfig, namespace, until

LEASE = "bench"
TARGET_SECONDS = 20.0


async def holder(kube: Kube, space: str) -> str:
    """Who leads."""
    try:
        lease = await kube.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/{LEASE}")
    except Failed:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


async def one(kube: Kube, space: str, folder: Path, number: int) -> Json:
    """Start two, kill the one that leads."""
    election = {"enabled": True, "leaseName": LEASE, "leaseNamespace": space}
    store = {"url": f"file://{folder / 'store'}"}
    operators = []
    for name in ("first", "second"):
        (folder / f"{number}-{name}").mkdir()
        made = harness.Operator(
            folder / f"{number}-{name}", kubeconfig(), [space], leaderElection=election, store=store
        )
        await asyncio.to_thread(made.start)
        await until(lambda: holder(kube, space))
        operators.append(made)
    leader, standby = operators
    before, run = await holder(kube, space), f"run-{number}"
    try:
        memory = standby.rss() / 2**20
        await asyncio.sleep(5 + number * 0.4)  # somewhere within the period of the renewals
        leader.kill()
        began = time.monotonic()
        await kube.request("POST", f"{startup.GROUP}/namespaces/{space}/taskruns", startup.taskrun(run))

        async def taken() -> bool:
            return await holder(kube, space) not in ("", before)

        async def created() -> bool:
            try:
                await kube.request("GET", f"/api/v1/namespaces/{space}/pods/{run}-1-1")
            except Failed:
                return False
            return True

        await until(taken)
        lease = time.monotonic() - began
        await until(created)
        return {"lease_s": lease, "pod_s": time.monotonic() - began, "standby_rss_mib": memory}
    finally:
        await asyncio.to_thread(standby.stop)


async def measure(options: argparse.Namespace, folder: Path) -> list[Json]:
    async with Kube(kubeconfig()) as kube, namespace(kube) as space:
        return [await one(kube, space, folder, number) for number in range(options.times)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskfold-bench-") as folder:
        found = asyncio.run(measure(options, Path(folder)))
    print(figures.machine())
    print(f"the lease is taken after      {figures.summary([each['lease_s'] for each in found])}")
    print(f"the next pod is created after {figures.summary([each['pod_s'] for each in found])}")
    print(f"target below {TARGET_SECONDS:g} s; a standby takes {found[-1]['standby_rss_mib']:.0f} MiB")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
