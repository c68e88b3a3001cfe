"""What one operator process is made of: each part once, handed to whoever needs it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from taskfold.api.settings import Settings
from taskfold.effects import client as api
from taskfold.effects import exec as execs
from taskfold.effects import lines
from taskfold.effects import registry as registries
from taskfold.effects import store as stores
from taskfold.engine.activities import Activities
from taskfold.engine.canaries import Canaries
from taskfold.engine.copying import Copies
from taskfold.engine.events import Events
from taskfold.engine.image_users import ImageUsers
from taskfold.engine.snapshots import Snapshots
from taskfold.engine.sources import Sources
from taskfold.engine.starts import Starts
from taskfold.engine.watch import Key, Watch


@dataclass(frozen=True)
class Parts:
    """The parts. `image_volumes`: the cluster mounts the helper's image; else an init container copies it.

    `wake`: these keys have something to look at; what we wrote ourselves is told at once, not by the watch.
    `clock`: the time, with its zone. `nonce`: a new one at each call.
    """

    settings: Settings
    client: api.Client
    exec: execs.Exec
    lines: lines.Lines
    registry: registries.Registry
    store: stores.Store
    snapshots: Snapshots
    image_users: ImageUsers
    sources: Sources
    watch: Watch
    canaries: Canaries
    activities: Activities
    copies: Copies
    starts: Starts
    events: Events
    image_volumes: bool
    wake: Callable[[Iterable[Key]], None]
    clock: Callable[[], datetime]
    nonce: Callable[[], str]
