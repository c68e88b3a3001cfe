"""An API server on loopback, in a thread of its own, with an operator that plays a script.

Objects are kept as they were sent; a run's statuses come one after another, each when the one before was seen by a
watch or a GET, until it is complete. A run that is told to cancel goes on with `on_cancel`.
"""

import asyncio
import contextlib
import hashlib
import json
import re
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from tests.effects import fake_exec

from taskfold.effects import exec as execs

Json = dict[str, Any]
Answer = Callable[[], web.StreamResponse | Awaitable[web.StreamResponse]]

RUNS = "/apis/taskfold.dev/v1alpha1/namespaces/{namespace}/{resource:taskruns|verifierruns}"
MAPS = "/api/v1/namespaces/{namespace}/configmaps"
PODS = "/api/v1/namespaces/{namespace}/pods"
RESULTS = "/apis/results.taskfold.dev/v1alpha1/namespaces/{namespace}/{resource:taskruns|verifierruns}/{name}"
STORE = "default/ns/uid-1/1/"


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    moment = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}


def going(phase: str, reason: str, message: str = "") -> Json:
    return {"phase": phase, "conditions": [condition("Succeeded", "Unknown", reason, message)]}


def judged(reward: str, *, complete: bool = False, **more: Any) -> Json:
    return {
        "phase": "Succeeded",
        "reward": reward,
        "complete": complete,
        "store": STORE,
        "agent": {"name": "oracle", "outcome": "Succeeded", "returnCode": 0, "seconds": 0.5},
        "verifier": {"name": "r-1-verify", "mode": "shared", "returnCode": 0, "seconds": 0.1, "timedOut": False},
        "timings": {"agent": 0.5},
        "task": {"id": "hello"},
        **more,
    }


def unjudged(phase: str, reason: str, stage: str, *, kind: str | None = None, terminal: bool = False) -> Json:
    failure = {"reason": reason, "message": f"because of {reason}", "stage": stage, "terminal": terminal}
    masked = phase == "Masked"
    return {"phase": phase, "masked": masked, "complete": True, "failure": failure | ({"kind": kind} if kind else {})}


async def _answered(answer: Answer) -> web.StreamResponse:
    given = answer()
    return given if isinstance(given, web.StreamResponse) else await given


RUNNING = going("Running", "AgentRunning")
SUCCESS = [going("Seeding", "PodStarting"), RUNNING, judged("1"), judged("1", complete=True)]
CANCELLED = [unjudged("Cancelled", "Cancelled", "agent")]


def refusal(status: int, reason: str, message: str, **details: Any) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return web.json_response(body | {"details": details}, status=status)


@dataclass
class FakeCluster:
    """What a test arranges, and what it can look at afterwards."""

    statuses: list[Json] = field(default_factory=lambda: list(SUCCESS))
    on_cancel: list[Json] = field(default_factory=lambda: list(CANCELLED))
    create: Answer | None = None
    read: dict[str, Answer] = field(default_factory=dict)
    """By plural: what answers a GET in place of the object."""
    watchable: bool = True
    delete_at_end: bool = False
    pods: dict[str, Json] = field(default_factory=dict)
    runs: dict[str, Json] = field(default_factory=dict)
    verifiers: dict[str, Json] = field(default_factory=dict)
    kept: dict[str, bytes] | None = None
    """Stored objects by key, and `files` and `log`, the answers of the results API. None: there is no such API."""
    maps: dict[str, Json] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    script: fake_exec.Script = fake_exec.succeed
    url: str = ""
    _version: int = 1
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def run(self) -> Json:
        (run,) = self.runs.values()
        return run

    @property
    def verifier(self) -> Json:
        (verifier,) = self.verifiers.values()
        return verifier

    def _of(self, request: web.Request) -> dict[str, Json]:
        return self.runs if request.match_info["resource"] == "taskruns" else self.verifiers

    async def create_run(self, request: web.Request) -> web.StreamResponse:
        if self.create is not None:
            return await _answered(self.create)
        body = await request.json()
        self._put(self._of(request), request, body)
        return web.json_response(body, status=201)

    async def get_run(self, request: web.Request) -> web.StreamResponse:
        name, kept = request.match_info["name"], self._of(request)
        if answer := self.read.get(request.match_info["resource"]):
            return await _answered(answer)
        if name not in kept:
            return self._made_by_the_operator(request)
        run = kept[name]
        seen = json.loads(json.dumps(run))
        self._advance(run, kept)
        return web.json_response(seen)

    def _made_by_the_operator(self, request: web.Request) -> web.Response:
        """A VerifierRun for every run, as the operator names them."""
        name, resource = request.match_info["name"], request.match_info["resource"]
        run = self.runs.get(name.removesuffix("-1-verify"))
        if resource == "taskruns" or run is None or not name.endswith("-1-verify"):
            return refusal(404, "NotFound", f'{resource}.taskfold.dev "{name}" not found', name=name)
        spec = {"mode": "shared", "source": {"runRef": {"name": run["metadata"]["name"], "uid": "uid-1"}}}
        return web.json_response({**run, "spec": spec, "metadata": {**run["metadata"], "uid": "uid-v"}})

    async def patch_run(self, request: web.Request) -> web.Response:
        run = self._of(request).get(request.match_info["name"])
        if run is None:
            return refusal(404, "NotFound", "gone", name=request.match_info["name"])
        run["spec"] |= (await request.json())["spec"]
        self.calls.append("cancel")
        self.statuses[:] = self.on_cancel
        self._advance(run, self._of(request))
        return web.json_response(run)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        self.calls.append("watch")
        if not self.watchable:
            return refusal(403, "Forbidden", "watch is not allowed")
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        response = web.StreamResponse()
        await response.prepare(request)
        sent = int(request.query["resourceVersion"])
        with contextlib.suppress(ConnectionError):
            while True:
                run = self._of(request).get(name)
                if run is None:
                    await response.write(b'{"type":"DELETED","object":{}}\n')
                    return response
                if int(run["metadata"]["resourceVersion"]) > sent:
                    sent = int(run["metadata"]["resourceVersion"])
                    await response.write(json.dumps({"type": "MODIFIED", "object": run}).encode() + b"\n")
                    self._advance(run, self._of(request))
                    continue
                self._changed.clear()
                await self._changed.wait()
        return response

    async def create_map(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._put(self.maps, request, body)
        return web.json_response(body, status=201)

    async def patch_map(self, request: web.Request) -> web.Response:
        found = self.maps[request.match_info["name"]]
        found["metadata"] |= (await request.json())["metadata"]
        return web.json_response(found)

    async def delete_map(self, request: web.Request) -> web.Response:
        return web.json_response(self.maps.pop(request.match_info["name"]))

    async def get_pod(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.pods:
            return refusal(404, "NotFound", f'pods "{name}" not found', name=name)
        return web.json_response(self.pods[name])

    async def results(self, request: web.Request) -> web.Response:
        key = request.match_info["key"]
        self.calls.append(f"{key}?{request.query_string}")
        if self.kept is None:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        content = self.kept.get(key.removeprefix("files/") if key != "files" else key)
        if content is None:
            return refusal(409, "Conflict", "not finished. Wait for it", group="results.taskfold.dev")
        headers = {"ETag": f'"sha256-{hashlib.sha256(content).hexdigest()}"'}
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", "")):
            part = content[int(match[1]) : int(match[2]) + 1]
            return web.Response(body=part, status=206, headers=headers)
        return web.Response(body=content, headers=headers)

    async def exec(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(execs.V5,), max_msg_size=0)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        await self.script(fake_exec.Remote(socket, request.query.getall("command"), request.transport))
        await socket.close()
        return socket

    def have(self, name: str, status: Json, spec: Json | None = None) -> None:
        """A run that is there already."""
        spec = spec or {"task": {"inline": {}}, "agent": {"oracle": {}}}
        metadata = {"name": name, "namespace": "ns", "uid": "uid-1", "resourceVersion": "1"}
        self.runs[name] = {"metadata": metadata, "spec": spec, "status": status}
        self.statuses.clear()

    def _put(self, kept: dict[str, Json], request: web.Request, body: Json) -> None:
        metadata = body["metadata"]
        metadata |= {"uid": str(uuid.uuid4()), "resourceVersion": "1", "namespace": request.match_info["namespace"]}
        kept[metadata["name"]] = body

    def _advance(self, run: Json, kept: dict[str, Json]) -> None:
        """The operator's next step, in a moment."""
        if run.get("status", {}).get("complete") or (not self.statuses and not self.delete_at_end):
            return

        def step() -> None:
            if self.statuses:
                self._version += 1
                run["status"] = self.statuses.pop(0)
                run["metadata"]["resourceVersion"] = str(self._version)
            elif self.delete_at_end:
                kept.pop(run["metadata"]["name"], None)
            self._changed.set()

        asyncio.get_running_loop().call_soon(step)


@contextlib.contextmanager
def serving(cluster: FakeCluster) -> Iterator[FakeCluster]:
    """The server runs in a thread: commands have event loops, or even processes, of their own."""
    app = web.Application()
    app.router.add_post(RUNS, cluster.create_run)
    app.router.add_get(RUNS, cluster.watch)
    app.router.add_get(RUNS + "/{name}", cluster.get_run)
    app.router.add_patch(RUNS + "/{name}", cluster.patch_run)
    app.router.add_post(MAPS, cluster.create_map)
    app.router.add_patch(MAPS + "/{name}", cluster.patch_map)
    app.router.add_delete(MAPS + "/{name}", cluster.delete_map)
    app.router.add_get(PODS + "/{name}", cluster.get_pod)
    app.router.add_get(PODS + "/{name}/exec", cluster.exec)
    app.router.add_get(RESULTS + "/{key:.+}", cluster.results)
    loop, ready = asyncio.new_event_loop(), threading.Event()
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        cluster.url = f"http://{host}:{port}"
        ready.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield cluster
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def kubeconfig(path: Path, url: str) -> Path:
    """A kubeconfig for this server, with `ns` as the namespace."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": {}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "ns"}}],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(config))
    return path
