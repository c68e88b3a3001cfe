"""Watch events per second through kopf's `on.event` and our picture to the queue, and memory per unfinished run.

A server in a process of its own answers lists with N unfinished TaskRuns and then streams their changes as fast as
they are taken; every event is news. The reconcile is one that decides nothing, so that what is measured is the way to
it: HTTP, JSON, kopf, `engine.watch`, `engine.queue`. The processor time is the operator's alone.

python -m bench.watch_events --runs 5000 --events 20000
"""

import argparse
import asyncio
import contextlib
import copy
import gc
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web
from tests import ports
from tests.engine import test_operator as scripted

from bench import figures, startup
from taskfold.api.settings import Settings
from taskfold.effects import credentials
from taskfold.engine import app as apps
from taskfold.engine import operator, queue, watch
from taskfold.engine.health import Health

TARGET = 1000.0
SECONDS = 300.0


def unfinished(number: int, version: int) -> dict[str, Any]:
    """A run whose agent works, as the API server shows it: managedFields and all."""
    name = f"run-{number:06}"
    run = startup.taskrun(name)
    fields = {f"f:field{n}": {"f:a": {}, "f:b": {}} for n in range(30)}
    managed = {"manager": "taskfold", "operation": "Update", "apiVersion": "taskfold.dev/v1alpha1", "fieldsV1": fields}
    run["metadata"] |= {
        "namespace": "bench",
        "uid": f"uid-{number:06}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [managed],
    }
    return run | {"status": startup.finished_status(name) | {"phase": "Running", "complete": False}}


# -- the server, a process of its own --------------------------------------------------------------------------------


async def serve(port: int, runs: int, events: int) -> None:
    """Lists, and one watch of TaskRuns that tells `events` changes once it is asked to at /go."""
    items = [unfinished(number, 1000 + number) for number in range(runs)]
    go = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        path, watching = request.path, request.query.get("watch") == "true"
        if path == "/go":
            go.set()
            return web.Response()
        if path.endswith("/taskruns") and not watching:
            return web.json_response(scripted.listing("TaskRunList", items))
        if not watching:
            return web.json_response(scripted.DISCOVERY.get(path) or scripted.listing("List", []))
        response = await scripted.stream(request)
        if path.endswith("/taskruns"):
            await go.wait()
            version = 1_000_000
            for number in range(events):
                run = copy.copy(items[number % runs])
                run["metadata"] = {**run["metadata"], "resourceVersion": str(version + number)}
                await response.write(json.dumps({"type": "MODIFIED", "object": run}).encode() + b"\n")
        await asyncio.sleep(SECONDS)
        return response

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.sleep(SECONDS)


# -- the operator's way to the queue ---------------------------------------------------------------------------------


class Measured:
    """Counts what reaches a worker and when."""

    def __init__(self, runs: int, events: int) -> None:
        self.runs, self.events = runs, events
        self.picture = watch.Watch()
        self.seen = 0
        self.found: dict[str, float] = {}

    async def work(self, key: watch.Key) -> None:
        """A reconcile that finds nothing to do: it parses the run, as every observation does."""
        seen = self.picture.runs.get((key.namespace, key.name))
        if seen is not None:
            assert seen.run.metadata.name == key.name

    @contextlib.asynccontextmanager
    async def running(self, *_: Any) -> AsyncIterator[apps.App]:
        """In place of `app.running`: the picture and the queue, nothing behind them."""
        keys: queue.KeyedQueue[watch.Key] = queue.KeyedQueue(self.work, workers=32)
        before, rss = self.picture.see_run, _rss()

        def counted(obj: watch.Object, *, gone: bool = False) -> set[watch.Key]:
            self.seen += 1
            return before(obj, gone=gone)

        self.picture.see_run = counted  # type: ignore[method-assign]
        task = asyncio.create_task(keys.run())
        report = asyncio.create_task(self._report(keys, rss))
        yield _Bare(self.picture, keys)  # type: ignore[misc]
        task.cancel()
        report.cancel()

    async def _report(self, keys: queue.KeyedQueue[watch.Key], rss: int) -> None:
        await self._until(self.runs, keys)
        await asyncio.sleep(8)  # kopf's worker of each object ends after five idle seconds
        gc.collect()
        self.found["rss_per_run"] = (_rss() - rss) / self.runs
        self.found["rss_mib"] = _rss() / 2**20
        await asyncio.to_thread(_go, os.environ["BENCH_PORT"])
        began, processor = time.monotonic(), _processor()
        await self._until(self.runs + self.events, keys)
        self.found |= {"seconds": time.monotonic() - began, "processor": _processor() - processor}
        os.kill(os.getpid(), 15)

    async def _until(self, count: int, keys: queue.KeyedQueue[watch.Key]) -> None:
        async with asyncio.timeout(SECONDS):
            while self.seen < count or len(keys):
                await asyncio.sleep(0.01)


class _Bare:
    """What the handlers use of an `App`."""

    def __init__(self, picture: watch.Watch, keys: queue.KeyedQueue[watch.Key]) -> None:
        self.watch, self.queue = picture, keys

    def wake(self, keys: set[watch.Key]) -> None:
        self.queue.add_all(keys)


def _rss() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _go(port: str) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/go").close()


async def measure(port: int, runs: int, events: int) -> dict[str, float]:
    measured = Measured(runs, events)
    apps.running = measured.running  # type: ignore[assignment]
    operator.checks = lambda *_: {}  # type: ignore[assignment]
    source = credentials.Source(lambda: credentials.Login(server=f"http://127.0.0.1:{port}", token="none"))
    await operator.serve(Settings(), source, Health())
    return measured.found


def _await(port: int) -> None:
    """Until the server answers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit("the server of the benchmark does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.runs, options.events))
        return
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    port = ports.free()
    os.environ["BENCH_PORT"] = str(port)
    command = [sys.executable, "-m", "bench.watch_events", "--serve", str(port)]
    server = subprocess.Popen([*command, "--runs", str(options.runs), "--events", str(options.events)])
    try:
        _await(port)
        found = asyncio.run(measure(port, options.runs, options.events))
    finally:
        server.kill()
        server.wait()
    rate = options.events / found["processor"]
    print(figures.machine())
    print(f"{options.events} events over {options.runs} runs: {rate:.0f} events per second of processor time")
    print(f"({1000 * found['processor'] / options.events:.2f} ms each; {found['seconds']:.1f} s by the clock)")
    print(
        f"target at least {TARGET:g}/s; memory {found['rss_per_run'] / 1024:.1f} KiB for each unfinished run, ", end=""
    )
    print(f"{found['rss_mib']:.0f} MiB in all with {options.runs}")
    if options.json is not None:
        options.json.write_text(json.dumps(found | {"events_per_s": rate}, indent=1))


if __name__ == "__main__":
    main()
