"""One operator process in the world: the real engine behind a border of its own, fed by watches as kopf feeds it.

Guarantees: nothing but the border leads out; a new process begins with an empty memory; an engine that ends by itself
is a failure of the test (`Operator.failure`), never silently restarted.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, cast

from taskfold.api import names
from taskfold.api.settings import Settings
from taskfold.effects import client as api
from taskfold.effects import errors, registry
from taskfold.effects.transport import Answer, Request
from taskfold.engine import app, janitor
from tests.world import border as borders
from tests.world import storage, transport
from tests.world import store as stores
from tests.world.processes import PROCESS, Process, State

Object = dict[str, Any]

RELIST_SECONDS = 1.0
"""kopf's pause before it lists again after an error."""
REOPEN_SECONDS = 0.1
"""kopf's pause before it opens a watch again that ended."""


@dataclass(frozen=True)
class Selection:
    """What one of kopf's watches selects."""

    resource: api.Resource
    labels: str = ""
    fields: str = ""


RUNS = Selection(api.TASKRUNS, fields=janitor.UNFINISHED)
VERIFIERS = Selection(api.VERIFIERRUNS, fields=janitor.UNFINISHED)
PODS = Selection(api.PODS, labels=names.RUN)
POLICIES = Selection(api.NETWORKPOLICIES)


class Outside(Protocol):
    """What an operator process finds in the world."""

    settings: Settings
    bucket: stores.Bucket
    images: dict[str, registry.ImageRecord]
    endpoint: Any
    server: Any

    def handle(self, request: Request) -> Answer: ...

    def poke(self) -> None: ...

    def watch(self, selection: Selection, since: str) -> storage.Subscription:
        """The events from this resourceVersion on."""
        ...


class Images:
    """The registry, behind the border."""

    def __init__(self, border: borders.Border, records: dict[str, registry.ImageRecord]) -> None:
        self._border = border
        self._records = records

    async def image_config(
        self, reference: str, platform: object = None, *, logins: object = ()
    ) -> registry.ImageRecord:
        async with self._border.crossing("registry get", reference):
            found = self._records.get(reference)
        if found is None:
            raise errors.RegistryError("the registry has no such image", where=reference)
        return found


class Operator:
    """One process: `start`; then `kill`, `stop`, `resume` of its `border`."""

    def __init__(self, name: str, outside: Outside, clock: Callable[[], datetime], nonce: Callable[[], str]) -> None:
        """`clock`: this node's idea of the time."""
        self.process = Process(name)
        self.border = borders.Border(self.process, outside.poke)
        self.failure: BaseException | None = None
        self._outside = outside
        self._clock = clock
        self._nonce = nonce

    def start(self) -> None:
        """A new process with an empty memory."""
        context = borders.outer_context()
        context.run(PROCESS.set, self.process)
        main = asyncio.get_running_loop().create_task(self._run(), name=self.process.name, context=context)
        main.add_done_callback(self._ended, context=borders.outer_context())

    @property
    def alive(self) -> bool:
        return self.process.state is not State.DEAD

    @property
    def broken(self) -> bool:
        """It ended by itself, and not because the API server could not be reached at its start."""
        return self.failure is not None and not isinstance(self.failure, errors.EffectError)

    def _ended(self, main: asyncio.Task[None]) -> None:
        if self.alive:
            self.failure = asyncio.CancelledError() if main.cancelled() else main.exception()
            self.border.kill()

    async def _run(self) -> None:
        outside, border = self._outside, self.border
        server = cast("Any", borders.Server(border, outside.handle, outside.server.now))
        wire = transport.MemoryTransport(server, border, borders.Execs(border, outside.endpoint))
        limits = api.Limits(concurrent=outside.settings.concurrency.connections)
        async with api.Client(cast("Any", borders.Login()), limits=limits, over=lambda: wire) as client:
            reached = app.Outside(
                client=client,
                registry=cast("registry.Registry", Images(border, outside.images)),
                store=cast("Any", stores.Store(outside.bucket, border)),
                clock=self._clock,
                nonce=self._nonce,
            )
            async with app.at_work(outside.settings, reached) as running, asyncio.TaskGroup() as feeds:
                feeding = [(RUNS, _run_told), (VERIFIERS, _verifier_told), (PODS, _pod_told)]
                if outside.settings.network.canary.namespace is not None:
                    feeding.append((POLICIES, _policy_told))
                for selection, told in feeding:
                    feeds.create_task(self._feed(client, selection, running, told))

    async def _feed(
        self, client: api.Client, selection: Selection, running: app.App, told: Callable[[app.App, str, Object], None]
    ) -> None:
        """List, then watch from there; when the version is too old, list again: what vanished meanwhile is not told."""
        while True:
            with contextlib.suppress(errors.EffectError, OSError):
                listing = await client.list(selection.resource, labels=selection.labels, fields=selection.fields)
                for obj in listing.items:
                    told(running, "", obj)
                await self._watch(selection, listing.resource_version, lambda kind, obj: told(running, kind, obj))
            await asyncio.sleep(RELIST_SECONDS)

    async def _watch(self, selection: Selection, since: str, tell: Callable[[str, Object], None]) -> None:
        """Until the version is too old. A watch that ends otherwise, or is silent for too long, is opened again where
        it stood.
        """
        while True:
            async with self.border.crossing(f"watch {selection.resource.plural}", ""):
                found = self._outside.watch(selection, since)
            try:
                while (event := await self._next(found)) is not None:
                    if event["type"] == "ERROR":
                        return
                    since = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        tell(event["type"], event["object"])
            finally:
                found.close()
            await asyncio.sleep(REOPEN_SECONDS)

    async def _next(self, watch: storage.Subscription) -> Object | None:
        """The next event; None at the end."""
        event = watch.poll()
        if event is not None:
            return event
        with contextlib.suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(self._outside.settings.watch_silent_seconds):
                return await anext(watch)
        return None


def _run_told(running: app.App, kind: str, obj: Object) -> None:
    gone = kind == "DELETED"
    if not gone or running.watch.holds(obj):
        running.wake(running.watch.see_run(obj, gone=gone))


def _verifier_told(running: app.App, kind: str, obj: Object) -> None:
    gone = kind == "DELETED"
    if not gone or running.watch.holds(obj):
        running.wake(running.watch.see_verifier(obj, gone=gone))


def _pod_told(running: app.App, kind: str, obj: Object) -> None:
    running.wake(running.watch.see_pod(obj, gone=kind == "DELETED"))


def _policy_told(running: app.App, kind: str, obj: Object) -> None:
    running.wake(running.watch.see_policy(obj, gone=kind == "DELETED"))
