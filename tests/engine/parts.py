"""An operator's parts around a fake API server: a real store, watch, sources and snapshots, no cluster."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tests.decide import worlds
from tests.engine.fakes import Client

from taskfold.api.settings import Settings
from taskfold.decide.world import PhaseDone, PhaseReport, Signal
from taskfold.effects import client as api
from taskfold.effects import store as stores
from taskfold.effects.sandbox import new_nonce
from taskfold.engine import parts
from taskfold.engine.activities import Activities
from taskfold.engine.canaries import Canaries
from taskfold.engine.copying import Copies
from taskfold.engine.events import Events
from taskfold.engine.image_users import ImageUsers
from taskfold.engine.snapshots import Snapshots
from taskfold.engine.sources import Sources
from taskfold.engine.starts import Starts
from taskfold.engine.watch import Key, Kind, Watch
from taskfold.protocol.phase import PhaseResult

FILES = {
    "task.toml": 'environment.docker_image = "python:3.12-slim"\n',
    "instruction.md": "Do it.\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "true\n",
}
RUN, VERIFIER = Key(Kind.TASK_RUN, "team", "fix-bug"), Key(Kind.VERIFIER_RUN, "team", "fix-bug-1-verify")


class Phases:
    """In place of `Activities`: what is started is noted, what a test says is reported."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.rested: list[str] = []
        self.refused: list[tuple[str, bool]] = []
        self.reports: dict[str, PhaseReport] = {}
        self.forgotten: list[str] = []
        self.dropped: list[Key] = []

    def start(self, key: Key, nonce: str, exchange: object, signal: Signal = Signal.NONE) -> None:
        self.started.append(nonce)

    def rest(self, key: Key, nonce: str, started_at: str, signal: Signal) -> None:
        self.rested.append(nonce)

    def tell(self, nonce: str, progress: str) -> None:
        raise AssertionError(f"an exchange that was not begun tells {progress}")

    def unsignalled(self, nonce: str, *, for_good: bool) -> None:
        self.refused.append((nonce, for_good))

    def report(self, nonce: str) -> PhaseReport | None:
        return self.reports.get(nonce)

    def result(self, nonce: str) -> PhaseResult | None:
        report = self.reports.get(nonce)
        return report.result if isinstance(report, PhaseDone) else None

    def forget(self, nonces: Any) -> None:
        self.forgotten += nonces

    def drop(self, key: Key) -> None:
        self.dropped.append(key)


class Operator:
    """The parts, and the run as the API server has it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.client, self.watch, self.phases = Client(), Watch(), Phases()
        self.store = stores.Store(f"file://{folder}/store")
        self.settings = Settings.model_validate(settings)
        self.woken: list[Key] = []
        """By the start slots."""
        self.told: list[Key] = []
        """By what was written, and by copies."""
        self._copy_ended = asyncio.Event()
        client = cast("api.Client", self.client)
        self.starts = Starts(self.settings.concurrency.pod_starts, self.watch.starting, self.woken.append)
        self.parts = parts.Parts(
            settings=self.settings,
            client=client,
            exec=cast("Any", None),
            lines=cast("Any", None),
            registry=cast("Any", None),
            store=self.store,
            snapshots=Snapshots(self.store, "default"),
            image_users=ImageUsers(self.store, "default"),
            sources=Sources(client, self.settings.secrets),
            watch=self.watch,
            canaries=Canaries(client, self.settings.network.canary),
            activities=cast("Activities", self.phases),
            copies=Copies(self._copied),
            starts=self.starts,
            events=Events(client),
            image_volumes=True,
            wake=self.told.extend,
            clock=lambda: datetime.now(UTC),
            nonce=new_nonce,
        )

    def _copied(self, key: Key, delay: float) -> None:
        self.told.append(key)
        self._copy_ended.set()

    async def copies_end(self) -> None:
        """Wait for every copy that is under way."""
        while len(self.parts.copies):
            self._copy_ended.clear()
            await self._copy_ended.wait()

    def create(self, **spec: Any) -> None:
        """Somebody applies a run."""
        wire = {"task": {"inline": {"files": FILES}}, "agent": {"oracle": {}}, **spec}
        metadata = {"name": "fix-bug", "uid": worlds.UID, "generation": 1, "creationTimestamp": worlds.ago(0)}
        self.client.put(api.TASKRUNS, {"metadata": metadata, "spec": wire})
        self.see()

    def change(self, **spec: Any) -> None:
        found = self.client.find(api.TASKRUNS, "fix-bug")
        generation = found["metadata"].get("generation", 1) + 1  # as the API server counts
        metadata = {**found["metadata"], "generation": generation}
        self.client.put(api.TASKRUNS, {**found, "metadata": metadata, "spec": {**found["spec"], **spec}})
        self.see()

    def see(self) -> None:
        """The watch tells what there is."""
        for (plural, _, _), obj in self.client.objects.items():
            match plural:
                case "taskruns":
                    self.watch.see_run(obj)
                case "verifierruns":
                    self.watch.see_verifier(obj)
                case "pods":
                    self.watch.see_pod(obj)

    @property
    def status(self) -> dict[str, Any]:
        return self.client.find(api.TASKRUNS, "fix-bug").get("status") or {}

    @property
    def pod(self) -> dict[str, Any]:
        return self.client.find(api.PODS, "fix-bug-1-1")

    def nonce(self, phase: str) -> str:
        journals = [self.status.get("journal") or []]
        if ("verifierruns", "team", "fix-bug-1-verify") in self.client.objects:
            found = self.client.find(api.VERIFIERRUNS, "fix-bug-1-verify")
            journals.append((found.get("status") or {}).get("journal") or [])
        return next(each["nonce"] for journal in journals for each in journal if each["phase"] == phase)

    def condition(self, name: str = "Succeeded") -> tuple[str, str]:
        found = next(each for each in self.status["conditions"] if each["type"] == name)
        return found["reason"], found["message"]
