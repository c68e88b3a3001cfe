"""kopf as the source of events: watches, start and end, login. Every handler only puts keys into the queue.

Guarantees: kopf writes nothing to any object; its restarts of a watch cost a list, never an event; a watch that went
silent is opened anew; credentials are read anew before they expire; the checks of the liveness endpoint tell whether
the work goes on, not whether the process lives; an end that has begun comes to its end.
"""

import asyncio
import base64
import gc
import logging
import socket
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from taskfold.api import names
from taskfold.api.common import GROUP, VERSION
from taskfold.api.settings import Settings
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.effects import credentials, heap
from taskfold.engine import app, janitor, leading, stateless
from taskfold.engine.health import Check, Health, Unhealthy

LOGIN_SECONDS = 600
"""kopf reads a token once per login: renewed well before an hour-long token ends."""
STUCK_SECONDS = 120.0
"""A queue that holds work and finishes nothing for so long is stuck."""

ENDING_SECONDS = 20.0
"""An end takes a second or two. kopf cancels its tasks and then waits for each without a limit, and a watch that was
just asking for another session can miss its cancellation: the process would live and watch nothing.
"""

LIST_PAGE = 500
"""Objects in one answer of a list of kopf's."""
GARBAGE_THRESHOLDS = (20_000, 50, 20)
"""Python's own (700, 10, 10) have it search a picture of thousands of objects for garbage every few events, which was
half of what an event cost (bench/watch_events.py); an event alone makes hundreds of dicts.
"""


async def serve(settings: Settings, source: credentials.Source, health: Health) -> None:
    """Work until told to end by SIGTERM. Leaves by exception when a watch died: the platform starts us anew.

    StuckError: kopf holds on to a task of its own that does not end.
    """
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    heap.keep_small()
    ending = asyncio.Event()
    work = kopf.operator(
        registry=registry(settings, source, health, ending),
        settings=kopf_settings(settings),
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        standalone=True,
        # kopf's own asks for the user's name, which a uid without a passwd entry does not have.
        identity=kopf_identity(),
    )
    await ends(work, ending, ENDING_SECONDS)


async def ends(work: Coroutine[Any, Any, None], ending: asyncio.Event, seconds: float) -> None:
    """`work` to its end, at most `seconds` after that has begun. StuckError: it goes on, and cannot be waited for."""
    begun = asyncio.create_task(ending.wait(), name="the end has begun")
    task = asyncio.create_task(work, name="kopf")
    try:
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        await _within(task, seconds)
        raise
    finally:
        begun.cancel()
    await _within(task, seconds)
    task.result()


async def _within(task: asyncio.Task[None], seconds: float) -> None:
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        raise leading.StuckError(f"{seconds:g} s after the end began, kopf still waits for a task")


def kopf_identity() -> Any:
    """Who this process is, in kopf's logs."""
    return f"{names.OPERATOR}@{socket.gethostname()}"


def kopf_settings(ours: Settings) -> kopf.OperatorSettings:
    """Settings of kopf, each for a fault that was measured or reported."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # no rights on CRDs and namespaces needed
    settings.posting.enabled = False  # Events are our own
    settings.peering.standalone = True  # a foreign peering object must not pause us
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.connect_timeout = 10
    # A load balancer or a dead peer may leave a watch open that nothing comes through any more. The API server sends a
    # bookmark every minute, so silence for longer is the connection's end; its events are found again from the last
    # bookmark on. No timeout of a whole watch: a busy one may live as long as the server likes.
    settings.watching.inactivity_timeout = ours.watch_silent_seconds
    # Lists in pages: thousands of runs neither in one answer nor within one request's time.
    settings.watching.chunk_size = LIST_PAGE
    for plural in (TaskRun.PLURAL, VerifierRun.PLURAL):
        settings.watching.field_selectors[plural] = janitor.UNFINISHED
    settings.watching.label_selectors["pods"] = names.RUN
    stateless.forget(settings)
    return settings


def registry(
    settings: Settings, source: credentials.Source, health: Health, ending: asyncio.Event
) -> kopf.OperatorRegistry:
    """The handlers, bound to one operator. `ending`: set as soon as its end has begun."""
    handlers = kopf.OperatorRegistry()
    stack = AsyncExitStack()
    state: dict[str, app.App] = {}

    @kopf.on.startup(registry=handlers)
    async def start(**_: Any) -> None:
        for noisy in ("kopf.objects", "kopf.activities", "aiohttp.access"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        state["app"] = await stack.enter_async_context(app.running(settings, source))
        health.works(checks(state["app"], settings))

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
        ending.set()
        await stack.aclose()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection(source)

    @kopf.on.event(GROUP, VERSION, TaskRun.PLURAL, registry=handlers)
    async def on_run(event: kopf.RawEvent, **_: Any) -> None:
        # DELETED may only mean that the object has left the selection: whoever cares asks the API server.
        watch, obj, gone = state["app"].watch, dict(event["object"]), event["type"] == "DELETED"
        if not gone or watch.holds(obj):
            state["app"].wake(watch.see_run(obj, gone=gone))

    @kopf.on.event(GROUP, VERSION, VerifierRun.PLURAL, registry=handlers)
    async def on_verifier(event: kopf.RawEvent, **_: Any) -> None:
        watch, obj, gone = state["app"].watch, dict(event["object"]), event["type"] == "DELETED"
        if not gone or watch.holds(obj):
            state["app"].wake(watch.see_verifier(obj, gone=gone))

    @kopf.on.event("", "v1", "pods", registry=handlers)
    async def on_pod(event: kopf.RawEvent, **_: Any) -> None:
        state["app"].wake(state["app"].watch.see_pod(dict(event["object"]), gone=event["type"] == "DELETED"))

    if settings.network.canary.namespace is not None:

        @kopf.on.event("networking.k8s.io", "v1", "networkpolicies", registry=handlers)
        async def on_policy(event: kopf.RawEvent, **_: Any) -> None:
            state["app"].wake(state["app"].watch.see_policy(dict(event["object"]), gone=event["type"] == "DELETED"))

    return handlers


def checks(running: app.App, settings: Settings) -> Mapping[str, Check]:
    """What the liveness endpoint asks while the operator works."""
    loop = asyncio.get_running_loop()
    started = loop.time()

    def queue_moves() -> int:
        found = running.queue
        idle = loop.time() - max(started, found.last_progress)
        if found.waiting and idle > STUCK_SECONDS:
            raise Unhealthy(f"{found.waiting} keys wait and nothing was done for {idle:.0f} s")
        return found.waiting

    def lists_succeed() -> float:
        last = running.janitor.last_round
        age = loop.time() - (started if last is None else last)
        if last is None or age > 4 * settings.resync_seconds + STUCK_SECONDS:
            raise Unhealthy(f"no successful list of the cluster for {age:.0f} s")
        return round(age, 1)

    return {"queue": queue_moves, "lists": lists_succeed}


async def connection(source: credentials.Source) -> kopf.ConnectionInfo:
    """Our credentials in kopf's words."""
    found = await source.login()
    return kopf.ConnectionInfo(
        server=found.server,
        token=found.token,
        ca_data=_encoded(found.ca),
        certificate_data=_encoded(found.certificate),
        private_key_data=_encoded(found.key),
        insecure=not found.verify,
        proxy_url=found.proxy,
        expiration=datetime.now(UTC) + timedelta(seconds=LOGIN_SECONDS),
    )


def _encoded(material: bytes | None) -> str | None:
    return base64.b64encode(material).decode() if material is not None else None
