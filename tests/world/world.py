"""A whole world: API server, nodes, sandboxes, store and any number of operators, in one event loop.

Guarantees: nothing in it is random but what its seed gives; everything that happens is seen by its witness; operators
share nothing but what is outside of them. A trigger (`when`) strikes once, at the first moment at which it can.
"""

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.api import names
from taskfold.api.settings import Settings
from taskfold.effects import client as api
from taskfold.effects import registry
from taskfold.effects.transport import Answer, Request
from tests.world import (
    apiserver,
    border,
    checker,
    clock,
    effects,
    garbage,
    nodes,
    operator,
    order,
    programs,
    promises,
    sandbox,
)
from tests.world import store as stores
from tests.world.storage import Subscription

Object = dict[str, Any]

NAMESPACE = "team"
RESTART_SECONDS = 2.0
"""How soon a killed operator is there again, as from a kubelet without backoff."""
STOPPED = 143
"""The exit code of the helper, as PID 1, after SIGTERM from outside (helper/signals.go)."""
CREATED_ONCE = "a-pod-is-created-once"
"""The checker's rule that an operator breaks which was stopped right before the creation of a pod."""
CHECKED_SKEW = 3.0
"""Operators agree to about a second about the cluster's time, whatever their own clocks show."""
STARTS = 1000
"""A process that dies more often than this has no world to live in."""
COLLECT_SECONDS = 0.5
"""How soon the garbage collector has seen that an owner is gone."""
BOOKMARK_SECONDS = 60.0
FILES = {
    "task.toml": 'environment.docker_image = "python:3.12-slim"\n',
    "instruction.md": "Do it.\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "true\n",
}
ORACLE: Object = {"oracle": {}}
NOP: Object = {"nop": {}}
SCRIPT: Object = {"script": {"run": "work"}}

Condition = Callable[["World"], bool]
Deed = Callable[["World"], None]
Prepare = Callable[[border.Border], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trigger:
    """A deed that waits for its moment."""

    condition: Condition
    deed: Deed


class _Table(programs.Table):
    """Tells the world of every start."""

    def __init__(self, poke: Callable[[], None]) -> None:
        super().__init__()
        self._poke = poke

    def note(self, *args: Any) -> programs.Start:
        start = super().note(*args)
        self._poke()
        return start


class World:
    """`operators`: all processes that were ever started, the newest last."""

    def __init__(
        self, *, seed: int = 0, settings: Mapping[str, Any] | None = None, cgroup: int = 2, node_skew: float = 0.0
    ) -> None:
        """`node_skew`: how far the clocks of all nodes are ahead, in seconds."""

        self.settings = Settings.model_validate({"helper": {"mount": "imageVolume"}, **(settings or {})})
        self.random = random.Random(seed)
        self._seed = seed
        self.time = clock.WorldClock()
        self.server = apiserver.ApiServer(self.time.now, seed=seed)
        self.server.ensure_namespace(NAMESPACE)
        self.book = programs.Book(table=_Table(self.poke))
        self.witness = promises.Witness()
        self.bucket = stores.Bucket()
        self.nodes = nodes.Nodes(
            self.server,
            self.time.now,
            names=("node-1", "node-2"),
            cgroup=cgroup,
            seed=seed,
            book=self.book,
            images=lambda reference: sandbox.Image(term_code=STOPPED),
        )
        self.nodes.around.now = self.time.skewed(node_skew)  # of kubelets and sandboxes; the scheduler is elsewhere
        self.endpoint = self.nodes.endpoint
        self.order = order.Order(self.server)
        self.endpoint.opened = self.order.opened
        self.images: dict[str, registry.ImageRecord] = {}
        self.operators: list[operator.Operator] = []
        self.watches: list[Subscription] = []
        self._triggers: list[Trigger] = []
        self._due = 0
        self._looking = False
        self._changed = asyncio.Event()
        self._outer = border.outer_context()
        self._keepers: set[asyncio.Task[None]] = set()
        self._collector = garbage.Controllers(self.server)
        self._collecting = False
        self.checker = checker.Checker(self.server, skew_seconds=CHECKED_SKEW)
        self.server.subscribe(self._see)

    # -- what a user does ------------------------------------------------------------------------------------------

    def create(self, name: str, *, agent: Object = ORACLE, files: Mapping[str, str] | None = None, **spec: Any) -> None:
        """Somebody applies a TaskRun. What its programs do is in `book.runs[name]`."""
        folder = {path: text for path, text in {**FILES, **(files or {})}.items() if text is not None}
        task = spec.pop("task", {"inline": {"files": folder}})
        body = {"metadata": {"name": name}, "spec": {"task": task, "agent": agent, **spec}}
        self._asked("POST", api.TASKRUNS, "", body)

    def apply(self, resource: api.Resource, name: str, spec: Object) -> None:
        """Somebody applies another object."""
        self._asked("POST", resource, "", {"metadata": {"name": name}, "spec": spec})

    def change(self, name: str, **spec: Any) -> None:
        """Somebody patches a TaskRun's spec; one that is gone is left alone."""
        self._asked("PATCH", api.TASKRUNS, name, {"spec": spec})

    def delete(self, resource: api.Resource, name: str, **options: Any) -> None:
        """Somebody deletes an object; one that is gone is left alone."""
        self._asked("DELETE", resource, name, options)

    def _asked(self, method: str, resource: api.Resource, name: str, body: Object) -> None:
        path, where = resource.path(NAMESPACE, name), f"user {method} {resource.plural}/{name}"
        kind = api.MERGE_PATCH if method == "PATCH" else api.JSON
        answer = self.server.handle(Request("user", method, path, where, (), json.dumps(body).encode(), kind))
        if answer.status >= 400 and not (name and answer.status == 404):
            raise answer.error()

    # -- what there is ---------------------------------------------------------------------------------------------

    def status(self, name: str) -> Object:
        found = self.server.read(api.TASKRUNS, NAMESPACE, name)
        return (found or {}).get("status") or {}

    def pods(self, name: str) -> list[Object]:
        """The pods of this run that exist now, the newest last."""
        found = [pod for pod in self.server.all(api.PODS, NAMESPACE) if run_of(pod) == name]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def gone(self, name: str) -> bool:
        return self.server.read(api.TASKRUNS, NAMESPACE, name) is None

    # -- time and triggers -----------------------------------------------------------------------------------------

    def when(self, condition: Condition, deed: Deed) -> None:
        """`deed` once, at the first change of anything at which `condition` holds."""
        self._triggers.append(Trigger(condition, deed))

    def after(self, seconds: float, deed: Deed) -> None:
        """`deed` in so many seconds."""

        def do() -> None:
            self._due -= 1
            deed(self)
            self.poke()

        self._due += 1
        asyncio.get_running_loop().call_later(seconds, do, context=self._outer)

    @property
    def expects(self) -> bool:
        """A deed has still to come."""
        return bool(self._triggers) or self._due > 0

    async def until(self, condition: Condition, seconds: float) -> None:
        """Wait for a condition. TimeoutError after so many seconds of the world's time."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    def poke(self) -> None:
        """Something has changed."""
        self._changed.set()
        if self._triggers and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look, context=self._outer)

    def _look(self) -> None:
        self._looking = False
        for trigger in list(self._triggers):
            if trigger.condition(self):
                self._triggers.remove(trigger)
                trigger.deed(self)
                self.poke()

    def _see(self, kind: str, plural: str, obj: Object) -> None:
        self.witness.see(kind, plural, obj)
        if kind == "DELETED" and not self._collecting:
            self._collecting = True
            asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._collect, context=self._outer)
        self.poke()

    def _collect(self) -> None:
        self._collecting = False
        self._collector.settle()

    # -- operators -------------------------------------------------------------------------------------------------

    def start_operator(self, *, skew: float = 0.0, prepare: Prepare | None = None) -> operator.Operator:
        """A new process, on a node whose clock is `skew` seconds ahead. `prepare` plans what befalls its calls."""
        found = operator.Operator(f"operator-{len(self.operators) + 1}", self, self.time.skewed(skew), self._nonce)
        self.operators.append(found)
        if prepare is not None:
            prepare(found.border)
        found.start()
        return found

    def keep_operator(
        self, *, skew: float = 0.0, first: tuple[Prepare, ...] = (), prepare: Prepare | None = None
    ) -> None:
        """An operator that is started again whenever it was killed. `first`: what its first, second, … process has to
        expect; `prepare`: each later one.
        """

        found = self.start_operator(skew=skew, prepare=first[0] if first else prepare)

        async def keep(found: operator.Operator) -> None:
            for count in range(1, STARTS):
                await found.border.died.wait()
                self.poke()
                if found.broken:
                    return
                await asyncio.sleep(RESTART_SECONDS)
                found = self.start_operator(skew=skew, prepare=first[count] if count < len(first) else prepare)

        task = asyncio.get_running_loop().create_task(keep(found), context=self._outer.copy())
        self._keepers.add(task)

    def _nonce(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def handle(self, request: Request) -> Answer:
        return self.server.handle(request)

    def watch(self, selection: operator.Selection, since: str) -> Subscription:
        labels, fields = selection.labels, selection.fields
        found = self.server.watch(selection.resource, None, labels=labels, fields=fields, since=since)
        self.watches = [each for each in self.watches if not each.closed]
        self.watches.append(found)
        return found

    # -- beginning and end -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Effects are told and watches get their bookmarks for the length of the block; no operator outlives it."""
        bookmarks = asyncio.get_running_loop().create_task(self._bookmarks(), context=self._outer.copy())
        self._keepers.add(bookmarks)
        with effects.told(), _seeded(self._seed):
            try:
                yield
            finally:
                for keeper in self._keepers:
                    keeper.cancel()
                for each in self.operators:
                    each.border.kill()
                for _ in range(1000):
                    if all(each.process.unwound for each in self.operators):
                        break
                    await asyncio.sleep(1)

    async def _bookmarks(self) -> None:
        while True:
            await asyncio.sleep(BOOKMARK_SECONDS)
            self.server.bookmark()

    def broken(self, *, late: bool = False) -> list[str]:
        """Every promise that was broken, and every operator that ended by itself. `late`: some operator knew nothing of
        what others did meanwhile. It may have created a pod too late, which then has to go and in which nothing starts.
        """
        failed = [f"{each.process.name} ended by itself: {each.failure!r}" for each in self.operators if each.broken]
        impossible = [str(each) for each in self.checker.violations if not late or each.rule != CREATED_ONCE]
        second = () if late else self.witness.second_pods
        delivered = self.order.problems if not late else self.order.unproven
        return [*failed, *self.witness.broken(self.bucket), *second, *impossible, *delivered]


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The engine's own jitter is the same in every life of a seed."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


def run_of(pod: Object) -> str:
    """The TaskRun that a pod says it belongs to; "" for somebody else's."""
    return str((pod["metadata"].get("labels") or {}).get(names.RUN, ""))
