"""What the operator costs over the floor: time to the reward, throughput, calls, bytes and memory.

    python -m bench.run_speed [--mode shared|separate] [--pairs 20] [--runs 20] [--at-a-time 4] [--rounds 2] [--soak]

A trivial run through an operator that runs beside this program, in turn with `bench.floor`: one trial
of the floor, one run, and so on, each after the other's pod is gone, so that both meet the same machine. The time of a
run is from the create call to the watch event that has `status.reward`. In mode separate /app is carried to the
verifier, and the floor is the `overlap` of `bench.floor`: the second pod is made while the first stops.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.conformance import harness

from bench import figures, floor, relay
from bench.kube import Json, Kube, kubeconfig, namespace

TARGET_RATIO, TARGET_THROUGHPUT = 1.5, 0.8
GROUP = "/apis/taskfold.dev/v1alpha1/namespaces"
COUNTED_RUNS = 10


class CountedOperator(harness.Operator):
    """The operator as a process of its own, with counters to read."""

    def start(self) -> None:
        counters, config = self.folder / "counters", str(self.config)
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        environment["PYTHONPATH"] = f"{harness.ROOT / 'operator'}:{harness.ROOT}"
        command = [sys.executable, "-m", "bench.counted_operator", str(counters), "operator", "--config", config]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def counters(self) -> dict[str, Any]:
        """What its client has done so far."""
        path = self.folder / "counters"
        path.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        while not path.exists():
            time.sleep(0.01)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


class Runs:
    """TaskRuns of one namespace, timed from outside."""

    def __init__(self, kube: Kube, namespace: str, prefix: str, mode: str, more: Json | None = None) -> None:
        """`more`: further fields of their specs."""
        self._kube = kube
        self._path = f"{GROUP}/{namespace}/taskruns"
        self._prefix = prefix
        self._mode = mode
        self._more = more or {}
        self._numbers = itertools.count(1)
        self._rewards: dict[str, asyncio.Future[float]] = {}
        self._complete: dict[str, asyncio.Event] = {}

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator["Runs"]:
        """Sees its runs for the length of the block."""
        async with self._kube.watching(self._path, self._seen):
            yield self

    async def run(self) -> tuple[float, str]:
        """Seconds until the reward was in the status, and the run's name."""
        name = f"{self._prefix}-{next(self._numbers)}"
        self._rewards[name] = asyncio.get_running_loop().create_future()
        self._complete[name] = asyncio.Event()
        began = time.monotonic()
        await self._kube.request("POST", self._path, _taskrun(name, self._mode, self._more))
        async with asyncio.timeout(180):
            seen = await self._rewards[name]
        return seen - began, name

    async def complete(self, name: str) -> None:
        """Wait until the run is complete: its files kept, its pod gone."""
        await self._complete[name].wait()

    def _seen(self, _: str, run: Json) -> None:
        name, status = run["metadata"]["name"], run.get("status") or {}
        future = self._rewards.get(name)
        if future is None:
            return
        if not future.done():
            if status.get("reward") == "1":
                future.set_result(time.monotonic())
            elif "failure" in status:
                future.set_exception(AssertionError(f"{name}: {status['failure']}"))
        if status.get("complete"):
            self._complete[name].set()


def _taskrun(name: str, mode: str, more: Json) -> Json:
    files = harness.task(solve=floor.SOLVE.split("\n", 1)[1], test=floor.TEST.split("\n", 1)[1])
    spec = harness.spec(files, harness.ORACLE) | more
    if mode == "separate":
        spec |= {"verifier": {"mode": mode}, "artifacts": [{"source": "/app"}]}
    return {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "metadata": {"name": name}, "spec": spec}


class Bench:
    """The parts, each in a method that prints what it found and adds it to `found`."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.found: dict[str, Any] = {"machine": figures.machine()}

    async def run(self) -> None:
        print(self.found["machine"])
        async with Kube(kubeconfig()) as kube, namespace(kube) as space:
            operator = CountedOperator(self._fresh("timed"), kubeconfig(), [space])
            operator.start()
            await asyncio.to_thread(operator.ready)
            try:
                mode = "shared" if self.options.mode == "shared" else "overlap"
                hand = floor.Floor(kube, space, mode=mode)
                with_volume = floor.Floor(kube, space, mode=mode, volume=True)
                async with (
                    hand.watching(),
                    with_volume.watching(),
                    Runs(kube, space, "run", self.options.mode).watching() as runs,
                ):
                    self.found["rss_idle_mib"] = operator.rss() / 2**20
                    await self._pairs(hand, with_volume, runs)
                    await self._throughput(hand, runs)
                    await self._memory(operator, runs)
            finally:
                await asyncio.to_thread(operator.stop)
            await self._cost(kube, space)

    async def _pairs(self, hand: floor.Floor, with_volume: floor.Floor, runs: Runs) -> None:
        first, name = await runs.run()
        await runs.complete(name)
        pairs, other = [], []
        for _ in range(self.options.pairs):
            by_hand, pod = await hand.trial()
            await hand.gone(pod)
            ours, name = await runs.run()
            await runs.complete(name)
            pairs.append((ours, by_hand))
            slower, pod = await with_volume.trial()
            await with_volume.gone(pod)
            other.append((ours, slower))
        found = figures.ratio(pairs)
        print(f"first run, image record not cached: {first:.2f} s")
        print(f"floor, reward known:         {figures.summary([b for _, b in pairs])}")
        print(f"run, reward in status:       {figures.summary([a for a, _ in pairs])}")
        print(f"ratio of medians: {figures.told(found)}, target at most {TARGET_RATIO}")
        print(f"floor whose pod has a volume: {figures.summary([b for _, b in other])}")
        print(f"ratio to that: {figures.told(figures.ratio(other))}", flush=True)
        self.found |= {"first_s": first, "pairs_s": pairs, "ratio": found, "with_volume_s": [b for _, b in other]}

    async def _throughput(self, hand: floor.Floor, runs: Runs) -> None:
        count, at_a_time = self.options.runs, self.options.at_a_time
        rates = []
        for _ in range(self.options.rounds):
            by_hand = count / await floor.many(hand, count, at_a_time)
            await asyncio.sleep(5)  # the floor does not wait for its pods to go
            ours = count / await self._many(runs, count, at_a_time)
            rates.append((ours, by_hand))
        shares = [a / b for a, b in rates]
        text = ", ".join(f"{a:.2f}/s against {b:.2f}/s" for a, b in rates)
        print(f"{count} at {at_a_time} at a time, run against floor: {text}")
        print(f"share of the floor's throughput: {statistics.median(shares):.2f}, target at least {TARGET_THROUGHPUT}")
        self.found |= {"throughput_per_s": rates, "throughput_share": statistics.median(shares)}

    async def _many(self, runs: Runs, count: int, at_a_time: int) -> float:
        places, began, names = asyncio.Semaphore(at_a_time), time.monotonic(), []

        async def one() -> None:
            async with places:
                names.append((await runs.run())[1])

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())
        wall = time.monotonic() - began
        for name in names:
            await runs.complete(name)
        return wall

    async def _memory(self, operator: CountedOperator, runs: Runs) -> None:
        print(f"operator RSS, idle after its start: {self.found['rss_idle_mib']:.0f} MiB")
        finished = 1 + self.options.pairs + self.options.rounds * self.options.runs
        if self.options.soak:
            await self._many(runs, max(0, 200 - finished), self.options.at_a_time)
            finished = max(200, finished)
        await asyncio.sleep(2)
        self.found["rss_after_mib"], self.found["finished"] = operator.rss() / 2**20, finished
        print(f"operator RSS with {finished} finished runs: {self.found['rss_after_mib']:.0f} MiB")

    async def _cost(self, kube: Kube, space: str) -> None:
        """Calls and bytes per run, through a relay that counts; not timed."""
        through = self.folder / "kubeconfig"
        async with relay.relay(kubeconfig(), through) as moved:
            operator = CountedOperator(self._fresh("counted"), through, [space])
            operator.start()
            await asyncio.to_thread(operator.ready)
            try:
                async with Runs(kube, space, "counted", self.options.mode).watching() as runs:
                    await self._many(runs, 1, 1)  # the image's record
                    before, sent, received = operator.counters(), moved.sent, moved.received
                    await self._many(runs, COUNTED_RUNS, 1)
                    await asyncio.sleep(1)  # late events
                    after = operator.counters()
            finally:
                await asyncio.to_thread(operator.stop)
        calls = {verb: (count - before["calls"].get(verb, 0)) / COUNTED_RUNS for verb, count in after["calls"].items()}
        calls = {verb: count for verb, count in calls.items() if count}
        wire = ((moved.sent - sent) / COUNTED_RUNS, (moved.received - received) / COUNTED_RUNS)
        bodies = tuple((after[key] - before[key]) / COUNTED_RUNS for key in ("sent", "received"))
        print(f"API calls per run: {sum(calls.values()):.1f}: " + ", ".join(f"{v} {c:.1f}" for v, c in calls.items()))
        print(
            f"bytes per run: {bodies[0] / 1024:.1f} KiB sent, {bodies[1] / 1024:.1f} KiB received as bodies; on the "
            f"wire, with TLS and watches, {wire[0] / 1024:.1f} KiB and {wire[1] / 1024:.1f} KiB"
        )
        self.found |= {"calls_per_run": calls, "body_bytes_per_run": bodies, "wire_bytes_per_run": wire}

    def _fresh(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["shared", "separate"], default="shared")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of one trial of the floor and one run")
    parser.add_argument("--runs", type=int, default=20, help="runs of one round of the throughput")
    parser.add_argument("--at-a-time", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the throughput")
    parser.add_argument("--soak", action="store_true", help="also the memory with 200 finished runs")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskfold-bench-") as folder:
        bench = Bench(options, Path(folder))
        await bench.run()
    if options.json is not None:
        options.json.write_text(json.dumps(bench.found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
