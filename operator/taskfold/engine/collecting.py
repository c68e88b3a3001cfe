"""What is copied out of sandboxes into the store, and the documents that name it.

Guarantees: bulk lies under a nonce and is never replaced; a document is written once, after all that it names is whole,
so that who finds it may rely on it. What is best effort (logs) says in its document what is missing; what is not
(artifacts) raises until it is done.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taskfold.api.reasons import Reason
from taskfold.api.status import JournalPhase
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import phases, result, seeding, steps
from taskfold.build import pod as pod_builder
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide import step_status, verifierrun
from taskfold.decide.world import RunWorld, VerifierWorld
from taskfold.effects import artifacts, errors, scrubbing
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes
from taskfold.effects import store as stores
from taskfold.engine import responses, secrecy, transcripts
from taskfold.engine.copying import Tell
from taskfold.engine.parts import Parts
from taskfold.protocol.phase import PhaseRequest, PhaseResult

MANIFEST = "artifacts.json"
AGENT = "agent.json"
VERIFIER = "verifier.json"
TRANSCRIPT = "transcript.json"
COLLECTED = "collected.json"
ROW = "row.json"
DOCUMENT_BYTES = 64 * 1024 * 1024
PAUSES = (0.5, 3.0)
TOLD_BYTES = 100 * 1024 * 1024
"""A copy that is larger tells how far it is."""
LOGS = sandboxes.Root("/logs", "logs")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Logs:
    """What is packed into one archive. `of`: the first part of its name. `rewards`: files that are kept as they are.
    `of_verifier`: whose own sandbox it is. `more`: of this sandbox more is copied next.
    """

    of: str
    roots: Sequence[sandboxes.Root]
    rewards: Sequence[str] = (phases.REWARD_JSON, phases.REWARD_TXT)
    of_verifier: VerifierRun | None = None
    more: bool = False


async def document(store: stores.Store, key: str) -> dict[str, Any] | None:
    """A document of the store; None: it is not there."""
    try:
        return dict(json.loads(await store.get(key, limit=DOCUMENT_BYTES)))
    except stores.NotStored:
        return None


async def required(store: stores.Store, key: str) -> dict[str, Any]:
    """A document that must be there by now; NotStored without it."""
    return dict(json.loads(await store.get(key, limit=DOCUMENT_BYTES)))


async def put_once(store: stores.Store, key: str, content: object) -> None:
    """A document, unless there is one: the first one stands."""
    data = json.dumps(content, ensure_ascii=False, sort_keys=True, indent=1).encode()
    try:
        await store.put_new(key, data)
    except stores.AlreadyStored:
        log.debug("%s is in the store already; the first one stands", key)


class Collecting:
    """The copies of runs and verifications."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # -- a separate verification: out of the agent's sandbox ---------------------------------------------------------

    async def export(self, world: VerifierWorld, place: str, *, logs: bool, tell: Tell) -> None:
        """Transcript, response, logs, then the artifacts; their manifest is the last to be written."""
        run, task, pod = world.run, world.task, world.pod
        if run is None or task is None or pod is None:
            raise RuntimeError("artifacts of a run without task or pod")
        limits = self._parts.settings.limits
        sandbox = self._sandbox(run, pod)
        await self._record(world, place, sandbox)
        if logs:
            await self._keep(run, sandbox, place, AGENT, Logs("agent", _of_agent(world), more=True))

        def told(progress: artifacts.Progress) -> None:
            if progress.size >= TOLD_BYTES:
                tell(f"artifact {progress.source}: {progress.size // 2**20} MiB")

        await artifacts.export(
            sandbox,
            self._parts.store,
            place,
            task.artifacts,
            nonce=self._parts.nonce(),
            limits=artifacts.Limits(limits.artifact_bytes, limits.artifact_entries, limits.artifact_seconds),
            on_progress=told,
        )

    async def _record(self, world: VerifierWorld, place: str, sandbox: sandboxes.Sandbox) -> None:
        """What is on record of the agent's work, which its sandbox would take along."""
        run, task = world.run, world.task
        if run is None or task is None or await self._parts.store.exists(place + TRANSCRIPT):
            return
        found = await transcripts.record(self._parts, run, task, await worked(self._parts, run, sandbox))
        if found.response is not None:
            await put_once(self._parts.store, place + responses.RESPONSE, found.response)
        await put_once(self._parts.store, place + TRANSCRIPT, json.loads(found.transcript))

    # -- logs --------------------------------------------------------------------------------------------------------

    async def keep_logs(self, world: VerifierWorld, place: str, *, reachable: bool) -> None:
        """Of a verifier's own sandbox."""
        pod = world.own.pod if world.own is not None else None
        if reachable and pod is not None and world.run is not None:
            roots = [LOGS, *_entrypoint(world.own is not None and world.own.recorded is not None, own=True)]
            logs = Logs("verifier", roots, of_verifier=world.verifier)
            await self._keep(world.run, self._sandbox(world.run, pod), place, VERIFIER, logs)
        else:
            lost = "the verifier's sandbox was gone before its files could be kept"
            text = lost if world.verifier.status.pod_name else ""
            await put_once(self._parts.store, place + VERIFIER, {"archive": None, "error": text})
        if world.run is None or not verifierrun.made_for(world.verifier, world.run):
            await self._index(world, place)

    async def _index(self, world: VerifierWorld, place: str) -> None:
        """Of a verification that stands alone: its verdict, and what is kept of it."""
        found = await required(self._parts.store, place + VERIFIER)
        archive = {"of": "verifier", "step": None, **found["archive"]} if found["archive"] is not None else None
        index = {"error": found["error"], "archives": [archive] if archive else [], "artifacts": []}
        await put_once(self._parts.store, place + ROW, result.verification(world.verifier, world.run))
        await put_once(self._parts.store, place + COLLECTED, index)

    async def collect(self, world: RunWorld, prefix: str, *, reachable: bool) -> None:
        """The end of a run: what its sandbox still has, then the index of all that was kept."""
        began = asyncio.get_running_loop().time()
        index: dict[str, Any] = {"error": "", "archives": [], "artifacts": []}
        separate = await self._of_verifications(world, prefix, index)
        if reachable and world.pod is not None:
            await self._of_sandbox(world, prefix, index)
        elif world.run.status.attempts and world.run.status.attempts[-1].pod_uid and not separate:
            index["error"] = "the sandbox was gone before its files could be kept"
        index["seconds"] = round(asyncio.get_running_loop().time() - began, 3)
        await put_once(self._parts.store, prefix + COLLECTED, index)

    async def _of_sandbox(self, world: RunWorld, prefix: str, index: dict[str, Any]) -> None:
        """/logs of the agent's pod, and the artifacts that no verification has taken out of it."""
        run, pod, task = world.run, world.pod, world.task
        if pod is None or task is None:
            return
        sandbox = self._sandbox(run, pod)
        entrypoint = world.recorded is not None and bool(world.recorded.config.entrypoint)
        logs = Logs("files", [LOGS, *_entrypoint(entrypoint)], steps.reward_files(task))
        kept = await self._packed(run, sandbox, prefix, logs)
        index["error"] = kept["error"]
        if kept["archive"] is not None:
            index["archives"].append({"of": "sandbox", "step": None, **kept["archive"]})
        declared = [artifact for artifact in task.artifacts if artifact.source != phases.LOGS_ARTIFACTS]
        if not declared or any(each["step"] is None for each in index["artifacts"]):
            return
        limits = self._parts.settings.limits
        try:
            await artifacts.export(
                sandbox,
                self._parts.store,
                prefix,
                task.artifacts,
                nonce=self._parts.nonce(),
                limits=artifacts.Limits(limits.artifact_bytes, limits.artifact_entries, limits.artifact_seconds),
                on_progress=lambda _: None,
            )
            index["artifacts"].append({"step": None, "key": MANIFEST})
        except errors.StoreError:
            raise
        except (errors.EffectError, TimeoutError) as error:
            index["error"] = index["error"] or f"{Reason.COLLECT_FAILED.value}: artifacts: {error}"

    async def _of_verifications(self, world: RunWorld, prefix: str, index: dict[str, Any]) -> bool:
        """What separate verifications kept. Whether one took the logs of the agent's sandbox, which is gone since."""
        names = [None, *(step.name for step in (world.task.steps if world.task is not None else ()))]
        taken = False
        for name in names:
            under = step_status.place("", name) if name is not None else ""
            for document_name, of in ((AGENT, "agent"), (VERIFIER, "verifier")):
                found = await document(self._parts.store, prefix + under + document_name)
                if found is None:
                    continue
                taken = taken or of == "agent"
                index["error"] = index["error"] or found["error"]
                if found["archive"] is not None:
                    entry = {**found["archive"], "key": under + found["archive"]["key"]}
                    index["archives"].append({"of": of, "step": name, **entry})
            if await self._parts.store.exists(prefix + under + MANIFEST):
                index["artifacts"].append({"step": name, "key": under + MANIFEST})
        return taken

    async def _keep(self, run: TaskRun, sandbox: sandboxes.Sandbox, place: str, name: str, logs: "Logs") -> None:
        """An archive of logs, and the document that names it."""
        if not await self._parts.store.exists(place + name):
            await put_once(self._parts.store, place + name, await self._packed(run, sandbox, place, logs))

    async def _packed(self, run: TaskRun, sandbox: sandboxes.Sandbox, place: str, logs: "Logs") -> dict[str, Any]:
        """The copy, tried again when a connection breaks: the sandbox is still there. Secrets are scrubbed (C34)."""
        limits = self._parts.settings.limits
        secrets = await secrecy.values(run, self._parts.sources, logs.of_verifier)
        for pause in (*PAUSES, None):
            key = f"{logs.of}-{self._parts.nonce()}.tar"
            try:
                async with asyncio.timeout(limits.collect_seconds):
                    archive = await artifacts.pack_archive(
                        sandbox,
                        self._parts.store,
                        place,
                        key,
                        logs.roots,
                        max_bytes=limits.collect_bytes,
                        max_entries=limits.collect_entries,
                        scrub=scrubbing.scrubbable(secrecy.spelled(secrets)),
                        scrub_except=(*logs.rewards, phases.LOGS_ARTIFACTS),
                        keep=logs.more,
                    )
                return {"archive": archive, "error": ""}
            except errors.StoreError:
                raise
            except (errors.EffectError, TimeoutError) as error:
                if pause is None:
                    return {"archive": None, "error": f"{Reason.COLLECT_FAILED.value}: {error}"}
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def _sandbox(self, run: TaskRun, pod: pods.PodView) -> sandboxes.Sandbox:
        return sandboxes.Sandbox(self._parts.exec, pin(run.metadata.namespace, pod), lines=self._parts.lines)


def pin(namespace: str, pod: pods.PodView) -> execs.PodPin:
    """The container that this pod has now, and no later one."""
    return execs.PodPin(namespace, pod.name, pod.uid, pod_builder.MAIN, pod.restarts, pod.node)


async def worked(parts: Parts, run: TaskRun, sandbox: sandboxes.Sandbox) -> PhaseResult | None:
    """The end of the agent's phase, with its own files as they were at that moment; None: it had no phase."""
    if run.spec.agent.script is None and run.spec.agent.oracle is None:
        return None
    entry = to.entry(run.status, JournalPhase.AGENT, sandbox.pin.uid)
    if entry is None:
        return None
    result = parts.activities.result(entry.nonce)
    if result is None:
        request = PhaseRequest(entry.nonce, JournalPhase.AGENT.value, attach_only=True, keep=True)
        result = await sandbox.run_phase(request, (), checked=True)
    return result


def _of_agent(world: VerifierWorld) -> list[sandboxes.Root]:
    """The logs of an agent's sandbox that is verified elsewhere: not what would be the verifier's."""
    recorded = world.recorded is not None and bool(world.recorded.config.entrypoint)
    roots = [
        sandboxes.Root(phases.LOGS_AGENT, "logs/agent"),
        sandboxes.Root(steps.LOGS, "logs/steps"),
        sandboxes.Root(seeding.OVERLAY_OUTPUT, "logs/dockerfile"),
    ]
    return [*roots, *_entrypoint(recorded)]


def _entrypoint(recorded: bool, *, own: bool = False) -> list[sandboxes.Root]:
    """The entrypoint's output lies where verification does not empty it, and goes to the verifier's logs."""
    name = seeding.VERIFIER_ENTRYPOINT_KEPT if own else seeding.ENTRYPOINT_KEPT
    return [sandboxes.Root(seeding.ENTRYPOINT_OUTPUT, f"logs/verifier/{name}", only=True)] if recorded else []
