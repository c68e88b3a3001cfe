"""kopf, set up as the operator does it, on the model over HTTP: the events come, also after a fault of a watch."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import kopf

from taskfold.api.settings import Settings
from taskfold.effects import client as api
from taskfold.engine import operator
from tests.world import apiserver, http, refusals, servers, storage

NAMESPACE = "suite"
SILENT_SECONDS = 1.0
"""When a watch counts as dead; an idle one is opened again as often."""


class Seen:
    """The events of TaskRuns that kopf handed over, as (type, name)."""

    def __init__(self, server: apiserver.ApiServer) -> None:
        self.server = server
        self.events: list[tuple[str | None, str]] = []
        self._news = asyncio.Event()

    def tell(self, kind: str | None, name: str) -> None:
        self.events.append((kind, name))
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def run(self, name: str) -> None:
        """Somebody makes a TaskRun."""
        spec = {"task": {"inline": {"files": {"a": ""}}}, "agent": {"oracle": {}}}
        self.server.put(api.TASKRUNS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})

    async def told(self, *wanted: tuple[str | None, str]) -> None:
        await self.until(lambda: set(wanted) <= set(self.events))


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[Seen]:
    """kopf at work on a server of its own."""
    server = servers.Model.make().server
    seen = Seen(server)
    handlers = kopf.OperatorRegistry()
    async with http.serving(server) as url:

        @kopf.on.login(registry=handlers)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=url)

        @kopf.on.event("taskfold.dev", "v1alpha1", "taskruns", registry=handlers)
        async def on_run(event: kopf.RawEvent, **_: Any) -> None:
            seen.tell(event["type"], event["object"]["metadata"]["name"])

        stop = asyncio.Event()
        settings = operator.kopf_settings(Settings.model_validate({}))
        settings.watching.reconnect_backoff = 0.01
        settings.watching.inactivity_timeout = SILENT_SECONDS
        work = asyncio.create_task(
            kopf.operator(
                registry=handlers, settings=settings, clusterwide=True, standalone=True, identity="x", stop_flag=stop
            )
        )
        try:
            yield seen
        finally:
            stop.set()
            for watch in server.watches:
                watch.drop()
            await asyncio.wait_for(work, 60)


async def test_events_come_and_come_again_after_every_fault_of_a_watch() -> None:
    """One test, because kopf takes five seconds to end."""
    async with watching() as seen:
        seen.run("a")
        await seen.until(lambda: any(name == "a" for _, name in seen.events))
        seen.run("b")
        await seen.told(("ADDED", "b"))
        seen.server.write_status(api.TASKRUNS, NAMESPACE, "b", lambda status: status.update(complete=True))
        await seen.told(("DELETED", "b"))
        for name, fault in (("c", storage.Subscription.drop), ("d", _expired), ("e", storage.Subscription.silence)):
            await seen.until(lambda: bool(seen.server.watches))
            for watch in seen.server.watches:
                fault(watch)
            seen.run(name)
            await seen.until(lambda name=name: any(each == name for _, each in seen.events))


def _expired(watch: storage.Subscription) -> None:
    watch.expire(refusals.expired_watch(1, 2))
