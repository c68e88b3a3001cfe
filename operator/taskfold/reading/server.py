"""The server's life: a thread with an event loop of its own, beside whatever else the process does.

Guarantees: it serves whether the process leads or stands by; however many readers there are and however slow they are,
no lease waits for them and no reconcile; what it lacks (a certificate, the cluster's ConfigMap) is awaited, and the
process works meanwhile; connections without the API server's certificate live for seconds; at the end of the process it
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiohttp import web

from taskfold.api.settings import Settings
from taskfold.effects import client as api
from taskfold.effects import credentials, errors
from taskfold.effects import store as stores
from taskfold.reading import front_proxy, index, kept, requests, review, tls, turns

RETRY_SECONDS = 5.0
RENEW_SECONDS = 15.0
"""How often certificate files and the cluster's ConfigMap are looked at."""
STRANGER_SECONDS = 5.0
"""How long a connection without a certificate may stay: a kubelet's probe takes less."""
HANDSHAKE_SECONDS = 5.0
ENDING_SECONDS = 3.0
LOG_THREADS = 4
LIMITS = api.Limits(concurrent=32, connect_seconds=5.0, request_seconds=20.0, attempts=3, retry_seconds=5.0)

log = logging.getLogger(__name__)


@contextlib.contextmanager
def beside(settings: Settings, find: Callable[[], credentials.Source] = credentials.find) -> Iterator[None]:
    """Serve for the length of the block, if the settings say so. `find`: the operator's own login."""
    if not settings.reading.enabled:
        yield
        return
    loop = asyncio.new_event_loop()
    ready, task = threading.Event(), None

    def work() -> None:
        nonlocal task
        asyncio.set_event_loop(loop)
        task = loop.create_task(_for_ever(settings, find))
        ready.set()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=work, name="reading", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        if task is not None and thread.is_alive():
            loop.call_soon_threadsafe(task.cancel)
        thread.join(2 * ENDING_SECONDS)


async def _for_ever(settings: Settings, find: Callable[[], credentials.Source]) -> None:
    said = ""
    while True:
        try:
            async with serving(settings, find()):
                said = ""
                log.info("results are served at port %d", settings.reading.port)
                await asyncio.Event().wait()
        except (errors.EffectError, OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if said != (said := str(error)):
                log.warning("results cannot be served yet, tried again every %g s: %s", RETRY_SECONDS, error)
        await asyncio.sleep(RETRY_SECONDS)


@contextlib.asynccontextmanager
async def serving(settings: Settings, source: credentials.Source) -> AsyncIterator[None]:
    """Serve for the length of the block. EffectError, OSError, ValueError if it cannot begin."""
    ours = settings.reading
    store = stores.Store(settings.store.url, options=settings.store.options)
    async with api.Client(source, limits=LIMITS, user_agent="taskfold-reading") as client:
        trust = await _published(client)
        handshakes = tls.Handshakes(Path(ours.certificate), Path(ours.key), trust.authority)
        state = _State(client, trust, handshakes)
        with _threads() as threads:
            parts = requests.Parts(
                trusted=lambda: state.trust,
                verified=lambda request: _verified(request, handshakes),
                reviews=review.Reviews(client),
                runs=kept.Runs(client, settings.cluster_name, settings.namespaces),
                store=store,
                indexes=index.Indexes(store),
                turns=turns.Turns(ours.streams),
                threads=threads,
                presigned_seconds=ours.presigned_seconds,
            )
            runner = web.AppRunner(
                requests.application(parts),
                handle_signals=False,
                access_log=None,
                shutdown_timeout=ENDING_SECONDS,
                handler_cancellation=True,  # whoever hangs up ends what was being read for him
            )
            await runner.setup()
            renewing = asyncio.create_task(state.renew(runner))
            listening: asyncio.Server | None = None
            try:
                listening = await asyncio.get_running_loop().create_server(
                    runner.server,  # type: ignore[arg-type] # a factory of protocols after `setup`
                    port=ours.port,
                    ssl=handshakes.listening,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                )
                yield
            finally:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
                if listening is not None:
                    listening.close()
                await runner.cleanup()


@contextlib.contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    threads = ThreadPoolExecutor(LOG_THREADS, thread_name_prefix="reading-log")
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


class _State:
    """What may change while it serves."""

    def __init__(self, client: api.Client, trust: front_proxy.Trust, handshakes: tls.Handshakes) -> None:
        self._client, self.trust, self._handshakes = client, trust, handshakes
        self._strangers: set[object] = set()

    async def renew(self, runner: web.AppRunner) -> None:
        """For ever. What cannot be read anew stays as it was."""
        loop, due = asyncio.get_running_loop(), 0.0
        while True:
            await asyncio.sleep(STRANGER_SECONDS)
            self._hang_up(runner)
            if loop.time() < due:
                continue
            due = loop.time() + RENEW_SECONDS - STRANGER_SECONDS
            try:
                trust = await _published(self._client)
                if self._handshakes.renew(trust.authority):
                    log.info("the certificate or the API server's authority is a new one")
                self.trust = trust
            except (errors.EffectError, OSError, ValueError) as error:
                log.warning("certificates were not read anew: %s", error)

    def _hang_up(self, runner: web.AppRunner) -> None:
        """On those who came without a certificate and were here at the last look already."""
        connections = runner.server.connections if runner.server is not None else []
        found = {each for each in connections if each.transport and not each.transport.get_extra_info("peercert")}
        for each in found & self._strangers:
            if each.transport is not None:
                each.transport.abort()
        self._strangers = set(found)


def _verified(request: web.Request, handshakes: tls.Handshakes) -> bool:
    connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    return isinstance(connection, ssl.SSLObject) and handshakes.current(connection)


async def _published(client: api.Client) -> front_proxy.Trust:
    return front_proxy.trust(await client.get(api.CONFIGMAPS, front_proxy.NAMESPACE, front_proxy.NAME))
