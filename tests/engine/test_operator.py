"""engine/operator.py as a process of its own, against an API server that misbehaves as a test says.

What an event has reached is seen from outside: the operator refuses the run that it was told of, in its status.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import types
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests import ports
from tests.engine.parts import FILES
from tests.world import clock
from tests.world.apply import merged

from taskfold.api.settings import Settings
from taskfold.engine import leading
from taskfold.engine import operator as operators
from taskfold.engine.health import Unhealthy

ROOT = Path(__file__).resolve().parents[2]
GROUP = "/apis/taskfold.dev/v1alpha1"
SILENT_SECONDS = 1.5
WITHIN_SECONDS = 3 * operators.ENDING_SECONDS
"""A bound for a machine that is busy; what is tested happens sooner, but for an end that kopf holds up."""

Json = dict[str, Any]
Behaviour = Callable[[web.Request, "ApiServer"], Awaitable[web.StreamResponse]]


def task_run(name: str, version: int) -> Json:
    """A run that its first look refuses: its task has no files."""
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata |= {"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"task": {"inline": {"files": {"instruction.md": "x"}}}, "agent": {"nop": {}}}
    return {"apiVersion": "taskfold.dev/v1alpha1", "kind": "TaskRun", "metadata": metadata, "spec": spec}


@dataclass
class ApiServer:
    """Lists, watches and status writes of TaskRuns; everything else is empty. `watches`: how the first watches of
    TaskRuns go, one after the other; those after them tell what is in `events` and stay open.
    """

    watches: list[Behaviour] = field(default_factory=list)
    runs: list[Json] = field(default_factory=list)
    """What a list holds."""
    events: list[Json] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The resourceVersion that each watch of TaskRuns began from."""
    lists: int = 0
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    """The operator has written a status."""
    looked: list[str] = field(default_factory=list)
    """TaskRuns that were asked for by name. None is there."""
    names_version: str = "100"
    """The resourceVersion of lists of names and versions, which hold nothing."""
    statuses: dict[str, Json] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    """What the operator has changed or deleted."""
    port: int = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["ApiServer"]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        self.port = ports.free()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, watching = request.path, request.query.get("watch") == "true"
        if request.method not in ("GET", "POST"):
            self.written.append(f"{request.method} {path}")
        if request.method == "PATCH" and path.endswith("/status"):
            self.seen.set()
            return web.json_response(self._with_status(path.split("/")[-2], await request.json()))
        if request.method != "GET":
            return web.json_response({}, status=201)
        if path == f"{GROUP}/taskruns" and watching:
            self.asked.append(request.query.get("resourceVersion", ""))
            behave = self.watches.pop(0) if self.watches else telling
            return await behave(request, self)
        if watching:
            return await open_for_good(request, self)
        if path == f"{GROUP}/taskruns" and "PartialObjectMetadata" not in request.headers["Accept"]:
            self.lists += "!=" in request.query["fieldSelector"]
            found = self.runs if "!=" in request.query["fieldSelector"] else []
            return web.json_response(listing("TaskRunList", found))
        if "/taskruns/" in path:
            self.looked.append(path.rpartition("/")[2])
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        return web.json_response(DISCOVERY.get(path) or listing("List", [], self.names_version))

    def _with_status(self, name: str, patch: Json) -> Json:
        """The run after this write, as the API server would answer."""
        run = next(each for each in self.events if each["metadata"]["name"] == name)
        metadata = {**run["metadata"], "resourceVersion": str(1000 + len(self.written))}
        self.statuses[name] = merged(self.statuses.get(name, {}), patch["status"])
        return {**run, "metadata": metadata, "status": self.statuses[name]}


def listing(kind: str, items: list[Json], version: str = "100") -> Json:
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}


def resources(version: str, *kinds: tuple[str, str]) -> Json:
    verbs = ["get", "list", "watch", "patch", "create", "delete"]
    found = [
        {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": True, "verbs": verbs}
        for plural, kind in kinds
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": found}


OURS = {"groupVersion": "taskfold.dev/v1alpha1", "version": "v1alpha1"}
DISCOVERY: dict[str, Json] = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": [{"name": "taskfold.dev", "versions": [OURS], "preferredVersion": OURS}]},
    "/api/v1": resources("v1", ("pods", "Pod"), ("namespaces", "Namespace")),
    GROUP: resources(OURS["groupVersion"], ("taskruns", "TaskRun"), ("verifierruns", "VerifierRun")),
}


# -- how a watch may go --------------------------------------------------------------------------------------------


async def stream(request: web.Request, *events: Json) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for each in events:
        await response.write(json.dumps(each).encode() + b"\n")
    return response


async def telling(request: web.Request, server: ApiServer) -> web.StreamResponse:
    """A good watch: what is to be told, and then nothing but bookmarks."""
    response = await stream(request, *({"type": "ADDED", "object": each} for each in server.events))
    bookmark = {"type": "BOOKMARK", "object": {"kind": "TaskRun", "metadata": {"resourceVersion": "500"}}}
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(json.dumps(bookmark).encode() + b"\n")
            await asyncio.sleep(SILENT_SECONDS / 5)
    return response


async def open_for_good(request: web.Request, _: ApiServer) -> web.StreamResponse:
    """Open, and nothing comes."""
    response = await stream(request)
    await asyncio.sleep(3600)
    return response


async def silent_after_a_bookmark(request: web.Request, _: ApiServer) -> web.StreamResponse:
    bookmark = {"type": "BOOKMARK", "object": {"kind": "TaskRun", "metadata": {"resourceVersion": "321"}}}
    response = await stream(request, bookmark)
    await asyncio.sleep(3600)
    return response


async def never_answered(request: web.Request, _: ApiServer) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def dropped(request: web.Request, _: ApiServer) -> web.StreamResponse:
    response = await stream(request)
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()
    return response


async def dropped_in_a_line(request: web.Request, _: ApiServer) -> web.StreamResponse:
    response = await stream(request)
    await response.write(b'{"type": "ADDED", "object": {"meta')
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()
    return response


async def ended(request: web.Request, _: ApiServer) -> web.StreamResponse:
    return await stream(request)


def error(code: int) -> Behaviour:
    """An ERROR event in a stream that was accepted."""

    async def behave(request: web.Request, server: ApiServer) -> web.StreamResponse:
        server.runs = server.events
        status = {"kind": "Status", "status": "Failure", "code": code, "reason": "Expired", "message": "no"}
        return await stream(request, {"type": "ERROR", "object": status})

    return behave


def refused(code: int, **headers: str) -> Behaviour:
    """An HTTP status in place of a stream."""

    async def behave(request: web.Request, server: ApiServer) -> web.StreamResponse:
        status = {"kind": "Status", "status": "Failure", "code": code, "message": "no"}
        return web.json_response(status, status=code, headers=headers)

    return behave


# -- the operator --------------------------------------------------------------------------------------------------


class Operator:
    """`taskfold operator` against this server."""

    def __init__(self, folder: Path, server: ApiServer, **settings: Any) -> None:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
                    "users": [{"name": "test", "user": {"token": "none"}}],
                }
            )
        )
        self.health_port = ports.free()
        document = {
            "store": {"url": f"file://{folder}/store"},
            "watchSilentSeconds": SILENT_SECONDS,
            "resyncSeconds": 3600,  # nothing but the watch may tell
            "healthPort": self.health_port,
            "logFormat": "text",
            **settings,
        }
        config = folder / "settings.yaml"
        config.write_text(yaml.safe_dump(document))
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "taskfold", "operator", "--config", str(config)],
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "operator")},
            )

    async def ended(self) -> int:
        """Its exit code; fails if it does not end."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, f"it does not end; its log ends: {self.text()[-2000:]}"
            await asyncio.sleep(0.05)
        return code

    async def health(self) -> tuple[int, Json]:
        """What its endpoint says, as soon as it says anything."""

        def ask() -> tuple[int, Json]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=5) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as problem:
                return problem.code, json.load(problem)

        deadline = time.monotonic() + WITHIN_SECONDS
        while True:
            with contextlib.suppress(urllib.error.URLError):
                return await asyncio.to_thread(ask)
            assert time.monotonic() < deadline, self.text()[-2000:]
            await asyncio.sleep(0.05)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextlib.asynccontextmanager
async def running(folder: Path, server: ApiServer, **settings: Any) -> AsyncIterator[Operator]:
    async with server.serving():
        operator = Operator(folder, server, **settings)
        try:
            yield operator
        finally:
            operator.end()


async def is_seen(server: ApiServer, operator: Operator) -> None:
    """The run's event has come to a look at the run."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while not server.seen.is_set():
        alive = operator.process.poll() is None and time.monotonic() < deadline
        assert alive, f"never seen; watches began from {server.asked}; log: {operator.text()[-3000:]}"
        await asyncio.sleep(0.05)


SURVIVED = {
    "silent": [open_for_good, silent_after_a_bookmark, never_answered],
    "broken": [dropped, dropped_in_a_line, ended, refused(429, **{"Retry-After": "1"}), refused(500)],
    "410 in the stream": [error(410)],
}


@pytest.mark.parametrize("watches", SURVIVED.values(), ids=SURVIVED)
async def test_a_watch_that_breaks_is_opened_anew_and_the_event_is_seen(tmp_path, watches):
    """One process meets them all, one after the other."""
    server = ApiServer(watches=list(watches), events=[task_run("late", 400)])
    async with running(tmp_path, server) as operator:
        await is_seen(server, operator)
        assert not server.watches
        assert operator.process.poll() is None


async def test_a_silent_watch_goes_on_from_its_last_bookmark(tmp_path):
    server = ApiServer(watches=[silent_after_a_bookmark], events=[task_run("late", 400)])
    async with running(tmp_path, server) as operator:
        await is_seen(server, operator)
        assert server.asked[:2] == ["100", "321"], "no event can be missed, and nothing is listed again"
        assert server.lists == 1


async def test_a_watch_that_gets_bookmarks_stays_open(tmp_path):
    server = ApiServer(events=[task_run("first", 400)])
    async with running(tmp_path, server) as operator:
        await is_seen(server, operator)
        await asyncio.sleep(3 * SILENT_SECONDS)
        assert len(server.asked) == 1


ENDED = {
    "500 in the stream": [error(500)],
    "504 in the stream": [error(504)],
    "410 as HTTP status": [refused(410)],
}


async def test_what_kopf_cannot_go_on_from_ends_the_process_with_an_error(tmp_path):
    """The platform starts it anew. What must not be is a process that lives and watches nothing. One test, because
    kopf takes five seconds to end: a process for each, beside each other.
    """

    async def meets(what: str, folder: Path) -> None:
        server = ApiServer(watches=list(ENDED[what]), events=[task_run("late", 400)])
        folder.mkdir()
        async with running(folder, server) as operator:
            assert await operator.ended() not in (0, -signal.SIGKILL), what
            assert (server.watches, server.seen.is_set()) == ([], False), f"it ended because of that watch: {what}"

    async with asyncio.TaskGroup() as group:
        for number, what in enumerate(ENDED):
            group.create_task(meets(what, tmp_path / str(number)))


HOLDS_ON = """
import asyncio, sys
from taskfold.api.settings import Settings
from taskfold.effects import credentials
from taskfold.engine import leading, operator

async def deaf():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("told to end", flush=True)

async def work(health):
    ending = asyncio.Event()
    if sys.argv[1] == "ends":
        ending.set()
    else:
        asyncio.get_running_loop().call_later(0.1, asyncio.current_task().cancel)
    await operator.ends(deaf(), ending, 0.5)

leading.run(Settings(health_port=int(sys.argv[2])), None, work)
"""


@pytest.mark.parametrize("how", ["ends", "is told to end"])
def test_a_task_that_does_not_let_go_does_not_keep_the_process(how):
    """The loop's own end would wait for it for ever: a process that lives, and watches nothing."""
    command = [sys.executable, "-c", HOLDS_ON, how, str(ports.free())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run(
        command, check=False, env=environment, timeout=2 * WITHIN_SECONDS, capture_output=True, text=True
    )
    assert done.returncode == leading.EXIT_STUCK, done.stderr
    assert "kopf still waits for a task" in done.stderr


async def test_work_that_ends_by_itself_tells_its_own_error():
    async def fails() -> None:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        await operators.ends(fails(), asyncio.Event(), 1)


async def test_a_ghost_is_noticed_by_the_comparison_with_the_names_that_there_are(tmp_path):
    """The watch told of the run and never of its end: its key looks once the list is newer than what was told."""
    waiting = task_run("late", 400)
    waiting["spec"] |= {"suspend": True, "task": {"inline": {"files": FILES}}}
    server = ApiServer(events=[waiting])
    async with running(tmp_path, server, resyncSeconds=1) as operator:
        await is_seen(server, operator)
        server.names_version = "5000"
        deadline = time.monotonic() + WITHIN_SECONDS
        while "late" not in server.looked:
            assert time.monotonic() < deadline, operator.text()[-2000:]
            await asyncio.sleep(0.05)


@dataclass
class Moving:
    """What a check looks at."""

    waiting: int = 0
    last_progress: float = 0.0
    last_round: float | None = None


@pytest.mark.parametrize(
    ("queue", "janitor", "problem"),
    [
        (Moving(), Moving(last_round=0.0), None),
        (Moving(waiting=3, last_progress=190.0), Moving(last_round=190.0), None),
        (Moving(waiting=0, last_progress=0.0), Moving(last_round=190.0), None),
        (Moving(waiting=3, last_progress=70.0), Moving(last_round=190.0), "3 keys wait and nothing was done for 130 s"),
        (Moving(), Moving(), "no successful list of the cluster for 200 s"),
        (Moving(), Moving(last_round=-50.0), "no successful list of the cluster for 250 s"),
    ],
    ids=["at the start", "busy", "nothing to do", "stuck", "never listed", "not listed for long"],
)
def test_what_makes_it_unhealthy(queue, janitor, problem):
    async def main() -> list[str]:
        running_app: Any = types.SimpleNamespace(queue=queue, janitor=janitor)
        found = operators.checks(running_app, Settings(resync_seconds=30))
        await asyncio.sleep(200)
        problems = []
        for check in found.values():
            try:
                check()
            except Unhealthy as unhealthy:
                problems.append(str(unhealthy))
        return problems

    assert clock.run(main) == ([problem] if problem else [])


async def test_kopf_itself_writes_nothing_to_any_object(tmp_path):
    """Not even off one that has the finalizer which all operators made with kopf have in common."""
    run = task_run("late", 400)
    run["metadata"]["finalizers"] = ["kopf.zalando.org/KopfFinalizerMarker"]
    server = ApiServer(events=[run])
    async with running(tmp_path, server) as operator:
        await is_seen(server, operator)
        operator.process.terminate()
        assert await operator.ended() == 0
        assert set(server.written) == {f"PATCH {GROUP}/namespaces/team/taskruns/late/status"}


async def test_its_endpoint_tells_role_and_figures_and_its_own_end_is_no_error(tmp_path):
    server = ApiServer(events=[task_run("first", 400)])
    async with running(tmp_path, server) as operator:
        await is_seen(server, operator)
        code, found = await operator.health()
        assert (code, found["role"], found["queue"]) == (200, "atWork", 0)
        assert found["lists"] >= 0
        operator.process.terminate()
        assert await operator.ended() == 0


async def test_a_process_that_stands_by_is_alive_asks_for_nothing_and_ends_when_told(tmp_path):
    """The server here gives out no lease: whoever asks for one gets a holder that lives."""
    server = ApiServer(events=[task_run("first", 400)])
    lease: Json = {
        "metadata": {"resourceVersion": "7"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600},
    }
    DISCOVERY["/apis/coordination.k8s.io/v1/namespaces/default/leases/taskfold"] = lease
    async with running(tmp_path, server, leaderElection={"enabled": True}) as operator:
        code, found = await operator.health()
        while found["role"] == "starting":
            code, found = await operator.health()
        assert (code, found) == (200, {"role": "standingBy"})
        assert (server.asked, server.lists) == ([], 0)
        operator.process.terminate()
        assert await operator.ended() == 0
        assert "kopf" not in operator.text()
