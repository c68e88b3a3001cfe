"""kopf as the source of events: watches, start and end, login, probes. Every handler only puts keys into the queue.

Guarantees: kopf writes nothing to any object; its restarts of a watch cost a list, never an event; credentials are
read anew before they expire; the probes tell whether the work goes on, not whether the process lives.
"""

import asyncio
import base64
import logging
import socket
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from taskfold.api import names
from taskfold.api.common import GROUP, VERSION
from taskfold.api.settings import Settings
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.effects import credentials
from taskfold.engine import app, janitor

LOGIN_SECONDS = 600
"""kopf reads a token once per login: renewed well before an hour-long token ends."""
STUCK_SECONDS = 120.0
"""A queue that holds work and finishes nothing for so long is stuck."""

log = logging.getLogger(__name__)


def run(settings: Settings, source: credentials.Source) -> None:
    """Run the operator until it is told to end. Leaves by exception when a watch died: the platform restarts it."""
    kopf.run(
        registry=registry(settings, source),
        settings=kopf_settings(),
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        standalone=True,
        # kopf's own asks for the user's name, which a uid without a passwd entry does not have.
        identity=kopf_identity(),
        liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
    )


def kopf_identity() -> Any:
    """Who this process is, in kopf's logs."""
    return f"{names.OPERATOR}@{socket.gethostname()}"


def kopf_settings() -> kopf.OperatorSettings:
    """Settings of kopf, each for a fault that was measured or reported."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # no rights on CRDs and namespaces needed
    settings.posting.enabled = False  # Events are our own
    settings.peering.standalone = True  # a foreign peering object must not pause us
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.connect_timeout = 10
    for plural in (TaskRun.PLURAL, VerifierRun.PLURAL):
        settings.watching.field_selectors[plural] = janitor.UNFINISHED
    settings.watching.label_selectors["pods"] = names.RUN
    return settings


def registry(settings: Settings, source: credentials.Source) -> kopf.OperatorRegistry:
    """The handlers, bound to one operator."""
    handlers = kopf.OperatorRegistry()
    stack = AsyncExitStack()
    state: dict[str, app.App] = {}

    @kopf.on.startup(registry=handlers)
    async def start(**_: Any) -> None:
        for noisy in ("kopf.objects", "kopf.activities", "aiohttp.access"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        state["app"] = await stack.enter_async_context(app.running(settings, source))

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
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

    @kopf.on.probe(registry=handlers, id="queue")
    async def queue_moves(**_: Any) -> int:
        found = state["app"].queue
        idle = asyncio.get_running_loop().time() - found.last_progress
        if found.waiting and idle > STUCK_SECONDS:
            raise kopf.PermanentError(f"{found.waiting} keys wait and nothing was done for {idle:.0f} s")
        return found.waiting

    @kopf.on.probe(registry=handlers, id="watch")
    async def lists_succeed(**_: Any) -> float:
        age = asyncio.get_running_loop().time() - state["app"].janitor.last_round
        if age > 4 * settings.resync_seconds + STUCK_SECONDS:
            raise kopf.PermanentError(f"no successful list of the cluster for {age:.0f} s")
        return round(age, 1)

    return handlers


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
