"""One operator process: its parts, made from settings, started together, ended in order.

Guarantees: nothing global; the store is proven writable before the first run is touched; at the end no exchange is
cut that another operator could not take up again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from taskfold.api.settings import HelperSettings, Settings
from taskfold.effects import client as api
from taskfold.effects import credentials, descriptors, errors, lines, places, registry
from taskfold.effects import exec as execs
from taskfold.effects import store as stores
from taskfold.effects.sandbox import new_nonce
from taskfold.engine.activities import Activities
from taskfold.engine.canaries import Canaries
from taskfold.engine.copying import Copies
from taskfold.engine.events import Events
from taskfold.engine.image_users import ImageUsers
from taskfold.engine.janitor import Janitor
from taskfold.engine.parts import Parts
from taskfold.engine.queue import KeyedQueue
from taskfold.engine.reconcile import Reconciler
from taskfold.engine.snapshots import Snapshots
from taskfold.engine.sources import Sources
from taskfold.engine.starts import Starts
from taskfold.engine.watch import Key, Watch

IMAGE_VOLUMES_SINCE = (1, 35)
"""The first Kubernetes version in which image volumes are on by default."""

log = logging.getLogger(__name__)


class App:
    """The parts of a running operator that the watches and the probes need."""

    def __init__(self, watch: Watch, queue: KeyedQueue[Key], starts: Starts, janitor: Janitor) -> None:
        self.watch = watch
        self.queue = queue
        self.starts = starts
        self.janitor = janitor

    def __copy__(self) -> "App":
        """kopf copies its memo for every object; this one is shared."""
        return self

    def wake(self, keys: set[Key]) -> None:
        """These keys have something to look at."""
        self.queue.add_all(keys)
        self.starts.offer()


@dataclass(frozen=True)
class Outside:
    """What an operator process reaches, and where its times and nonces come from."""

    client: api.Client
    registry: registry.Registry
    store: stores.Store
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    nonce: Callable[[], str] = new_nonce


@contextlib.asynccontextmanager
async def running(settings: Settings, source: credentials.Source) -> AsyncIterator[App]:
    """An operator at work for the length of the block."""
    store = stores.Store(settings.store.url, options=settings.store.client_options())
    await store.check()
    shares = _shares(settings)
    async with (
        api.Client(source, limits=api.Limits(concurrent=shares.calls)) as client,
        registry.Registry(settings.registry.mirrors, trusted_hosts=settings.registry.trusted_hosts) as images,
        at_work(settings, Outside(client, images, store), shares) as app,
    ):
        yield app


@contextlib.asynccontextmanager
async def at_work(settings: Settings, outside: Outside, shares: descriptors.Shares | None = None) -> AsyncIterator[App]:
    """The parts, made and started; ended in order. `shares`: of connections; None: as the settings say."""
    limits, client, store = settings.concurrency, outside.client, outside.store
    shares = shares or _wanted(settings)
    watch = Watch()
    version = await client.version()  # tells the cluster's time too, before anything is decided

    async def work(key: Key) -> float | None:
        return await reconciler.reconcile(key)

    queue: KeyedQueue[Key] = KeyedQueue(work, workers=limits.workers, expected=(errors.EffectError,))
    caps = places.Caps(shares.execs, limits.execs_per_node, limits.copies, limits.copies_per_node, shares.streams)
    exec_ = execs.Exec(client, caps=caps)
    parts = Parts(
        settings=settings,
        client=client,
        exec=exec_,
        lines=lines.Lines(exec_),
        registry=outside.registry,
        store=store,
        snapshots=Snapshots(store, settings.cluster_name),
        image_users=ImageUsers(store, settings.cluster_name),
        sources=Sources(client, settings.secrets),
        watch=watch,
        canaries=Canaries(client, settings.network.canary),
        activities=Activities(queue.add, settings.waiting),
        copies=Copies(queue.add),
        starts=Starts(limits.pod_starts, watch.starting, queue.add),
        events=Events(client),
        image_volumes=_image_volumes(version, settings.helper),
        wake=queue.add_all,
        clock=lambda: client.time.now(outside.clock),
        nonce=outside.nonce,
    )
    reconciler = Reconciler(parts)
    janitor = Janitor(parts, queue.add)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in (queue, parts.events, janitor)]
        try:
            yield App(watch, queue, parts.starts, janitor)
        finally:
            for task in tasks:
                task.cancel()
            await parts.copies.close()
            await parts.activities.close()
            await parts.lines.close()


def _wanted(settings: Settings) -> descriptors.Shares:
    limits = settings.concurrency
    return descriptors.Shares(limits.connections, limits.execs, settings.waiting.streams)


def _shares(settings: Settings) -> descriptors.Shares:
    """What the settings want, as far as this process may have it."""
    limit = descriptors.raise_limit()
    shares = descriptors.share(limit, _wanted(settings))
    if shares != _wanted(settings):
        log.warning(
            "%d files may be open: %d calls, %d execs and %d waiting streams at a time instead of what is set",
            limit,
            shares.calls,
            shares.execs,
            shares.streams,
        )
    return shares


def _image_volumes(version: api.Json, helper: HelperSettings) -> bool:
    """Whether the helper's image is mounted, or copied by an init container."""
    if helper.mount != "auto":
        return helper.mount == "imageVolume"
    found = tuple(int("".join(filter(str.isdigit, version.get(part, ""))) or 0) for part in ("major", "minor"))
    log.info(
        "Kubernetes %s: the helper comes by %s",
        version.get("gitVersion"),
        "image volume" if found >= IMAGE_VOLUMES_SINCE else "init container",
    )
    return found >= IMAGE_VOLUMES_SINCE
