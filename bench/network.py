"""What a restricted network costs: time to the reward, without a network and with an allowlist, over a public run.

    python -m bench.network [--rounds 10]

One trivial run of each kind in turn, through one operator with two canaries, each after the other's pod is gone. The
allowlist has one name, so that there is a gateway; the run itself asks for nothing.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance import canaries, gateways, harness

from bench import figures
from bench.kube import Json, Kube, kubeconfig, namespace
from bench.run_speed import Runs

KINDS: dict[str, Json] = {
    "public": {},
    "no-network": {"network": {"agent": {"mode": "no-network"}}},
    "allowlist": {"network": {"agent": {"mode": "allowlist", "allowedHosts": ["allowed.test"]}}},
}


async def measured(kube: Kube, space: str, rounds: int) -> dict[str, list[float]]:
    """Seconds to the reward, by kind. The first round is not counted: images are pulled in it."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind, more in KINDS.items():
            async with Runs(kube, space, f"{kind}-{number}", "shared", more).watching() as runs:
                seconds, name = await runs.run()
                await runs.complete(name)
            if number:
                found[kind].append(seconds)
    return found


def told(found: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and what each kind adds to the public run of its round."""
    told: dict[str, Any] = {}
    for kind, seconds in found.items():
        added = [ours - public for ours, public in zip(seconds, found["public"], strict=True)]
        told[kind] = {"seconds": statistics.median(seconds), "added": statistics.median(added)}
        print(f"{kind}: {figures.summary(seconds)}; added {figures.summary(added)}")
    return told


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    print(figures.machine())
    dns, proxy = gateways.images()
    async with Kube(kubeconfig()) as kube, namespace(kube) as space:
        await asyncio.to_thread(canaries.make, harness.Cluster.under_test(), space)
        network = canaries.settings(space) | {"gateway": {"dnsImage": dns, "proxyImage": proxy}}
        with tempfile.TemporaryDirectory(prefix="taskfold-bench-") as folder:
            operator = harness.Operator(Path(folder), kubeconfig(), [space], network=network)
            await asyncio.to_thread(operator.start)
            try:
                found = await measured(kube, space, options.rounds)
            finally:
                operator.stop()
    figures_ = {"machine": figures.machine(), **told(found)}
    if options.json is not None:
        options.json.write_text(json.dumps(figures_, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
