"""From a plan's `RunPhase` to the exchange with the sandbox: variables, the request, its archives.

Guarantees: secrets are read at the moment of use and go over stdin only; the same nonce always means the same phase,
so an exchange may be begun again after any break; archives come from the run's snapshot. A phase that has started is
attached to and nothing else: neither secrets nor files are read for it again.
"""

import contextlib
import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskfold.api.status import JournalEntry, JournalPhase
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import environment as env_builder
from taskfold.build import handout, python_verifier, seeding, separate, steps
from taskfold.build import phases as requests
from taskfold.contract import environment
from taskfold.contract import folder as folders
from taskfold.contract import steps as contract
from taskfold.contract import task as tasks
from taskfold.contract.errors import TaskError
from taskfold.decide import profile as profiles
from taskfold.decide.pod import PodView
from taskfold.decide.world import OwnSandbox, PhaseReport, PhaseWaiting, RunWorld, Signal, VerifierWorld
from taskfold.effects import artifacts as copies
from taskfold.effects import errors, transfer
from taskfold.effects import sandbox as sandboxes
from taskfold.effects.sandbox import Going, Sandbox, Started
from taskfold.engine import collecting, responses, secrecy, separation, transcripts
from taskfold.engine.activities import Exchange
from taskfold.engine.outcome import Outcome
from taskfold.engine.parts import Parts
from taskfold.protocol import artifacts
from taskfold.protocol.phase import PhaseRequest, PhaseResult

OnStarted = Callable[[Started], Awaitable[None]]
Tell = Callable[[str], None]


class NotReady(errors.EffectError):
    """What the phase needs is not there now; the exchange is begun again later."""


class Phases:
    """Makes the exchanges."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def of(
        self, phase: JournalPhase, nonce: str, world: RunWorld | VerifierWorld, signal: Signal, tell: Tell
    ) -> Exchange:
        """The exchange for a phase of this world. `signal`: what is known about its end. `tell`: hears how far a large
        delivery is.
        """
        if isinstance(world, RunWorld):
            return self.of_run(phase, nonce, world, signal)
        return self.of_verifier(phase, nonce, world, signal, tell)

    def of_run(self, phase: JournalPhase, nonce: str, world: RunWorld, signal: Signal) -> Exchange:
        """A phase of a TaskRun: RUN lines, seed, or agent."""
        run, task, pod = world.run, world.turn if phase is JournalPhase.AGENT else world.task, world.pod
        if task is None or pod is None or world.image_user is None:
            raise RuntimeError(f"phase {phase} without task, pod or image user")
        confined = profiles.of(run, task, self._parts.settings, world.recorded)
        sandbox = requests.Sandbox(run, task, world.recorded, world.image_user, confined.profile)
        attached = self._attached(phase, nonce, world.phases.get(nonce), run.status.journal, signal)
        if attached is not None:
            return functools.partial(self._attach, run, pod, attached)

        async def exchange(on_started: OnStarted) -> PhaseResult | Going:
            if phase is JournalPhase.OVERLAY:
                return await self._send(sandbox, pod, self._overlay(sandbox, nonce), (), on_started)
            if phase is JournalPhase.SEED:
                env = await self._sandbox_env(sandbox) if seeding.starts(sandbox) else {}
                handed = (transfer.from_folder(handout.files(task)),) if run.spec.agent.external is not None else ()
                return await self._send(sandbox, pod, seeding.seed(sandbox, nonce, env), (), on_started, *handed)
            return await self._work(sandbox, pod, nonce, on_started)

        return exchange

    async def _work(
        self, sandbox: requests.Sandbox, pod: PodView, nonce: str, on_started: OnStarted
    ) -> PhaseResult | Going:
        """The agent's phase; of a multi-step task, of the turn at work."""
        run, task, install = sandbox.run, sandbox.task, self._parts.settings.limits.install_seconds
        request, parts, handed = PhaseRequest(nonce, JournalPhase.AGENT.value), list[python_verifier.Part](), []
        oracle = run.spec.agent.oracle is not None
        if run.spec.agent.nop is None and not (oracle and task.solution is None):
            env = {**steps.variables(task), **await self._agent_env(sandbox)}
            request = requests.agent(sandbox, nonce, env, install)
            parts = [_solution(task)] if oracle else []
            handed = [transfer.from_folder(handout.files(task))]
        if task.step is not None:
            request = steps.opened(
                sandbox, request, {**steps.variables(task), **await self._sandbox_env(sandbox)}, install
            )
        own = (functools.partial(_subtree, name) for name in steps.folders(task))
        return await self._send(sandbox, pod, request, (*own, *parts), on_started, *handed)

    def _overlay(self, sandbox: requests.Sandbox, nonce: str) -> PhaseRequest:
        recorded, instructions = sandbox.recorded, sandbox.task.image.dockerfile
        if recorded is None or instructions is None:
            raise RuntimeError("RUN lines without an image on record")
        limit = sandbox.task.config.environment.build_timeout_sec
        return seeding.overlay(recorded, instructions, nonce, limit)

    def of_verifier(
        self, phase: JournalPhase, nonce: str, world: VerifierWorld, signal: Signal, tell: Tell
    ) -> Exchange:
        """A phase of a VerifierRun, in the agent's sandbox or in its own."""
        if world.own is not None and phase is not JournalPhase.HOOKS:
            return self._of_own_sandbox(phase, nonce, world, world.own, signal, tell=tell)
        run, task, pod = world.run, world.task, world.pod
        if run is None or task is None or pod is None or world.image_user is None:
            raise RuntimeError(f"phase {phase} without run, task, pod or image user")
        confined = profiles.of(run, task, self._parts.settings, world.recorded)
        sandbox = requests.Sandbox(run, task, world.recorded, world.image_user, confined.profile)
        attached = self._attached(phase, nonce, world.phases.get(nonce), world.verifier.status.journal, signal)
        if attached is not None:
            return functools.partial(self._attach, run, pod, attached)

        async def exchange(on_started: OnStarted) -> PhaseResult | Going:
            if phase is JournalPhase.HOOKS:
                env = await self._sandbox_env(sandbox)
                return await self._send(sandbox, pod, requests.hooks(sandbox, nonce, env), (), on_started)
            env = await self._verifier_env(sandbox, world.verifier)
            exchange = Sandbox(self._parts.exec, collecting.pin(run.metadata.namespace, pod), lines=self._parts.lines)
            ended = await collecting.worked(self._parts, run, exchange)
            found = await transcripts.record(self._parts, run, task, ended)
            record = folders.MemoryFolder({requests.TRAJECTORY_NAME: (found.transcript, False)})
            request = requests.verify(sandbox, world.verifier, nonce, env)
            tests = python_verifier.parts(task, found.response)
            return await self._send(sandbox, pod, request, tests, on_started, transfer.from_folder(record))

        return exchange

    def _of_own_sandbox(
        self, phase: JournalPhase, nonce: str, world: VerifierWorld, own: OwnSandbox, signal: Signal, *, tell: Tell
    ) -> Exchange:
        """What a separate verifier is given, and test.sh."""
        run, task, pod = world.run, own.task, own.pod
        if run is None or pod is None or own.image_user is None:
            raise RuntimeError(f"phase {phase} without run, pod or image user")
        seen = separate.run_of(run, world.verifier)
        confined = profiles.of(seen, task, self._parts.settings, own.recorded)
        sandbox = requests.Sandbox(seen, task, own.recorded, own.image_user, confined.profile)
        attached = self._attached(phase, nonce, world.phases.get(nonce), world.verifier.status.journal, signal)
        if attached is not None:
            return functools.partial(self._attach, run, pod, attached, verifier=world.verifier)

        async def exchange(on_started: OnStarted) -> PhaseResult | Going:
            if phase is JournalPhase.SEED:
                return await self._give(sandbox, pod, nonce, world, on_started, tell=tell)
            env = await self._verifier_env(sandbox, world.verifier)
            request = separate.verify(sandbox, world.verifier, nonce, env)
            return await self._send(sandbox, pod, request, (), on_started, graded=(run, world.verifier))

        return exchange

    async def _give(
        self,
        sandbox: requests.Sandbox,
        pod: PodView,
        nonce: str,
        world: VerifierWorld,
        on_started: OnStarted,
        *,
        tell: Tell,
    ) -> PhaseResult | Going:
        """Artifacts, tests and transcript, from the store into a verifier's own sandbox."""
        store, run = self._parts.store, world.run
        place = separation.source(run, world.verifier) if run is not None else None
        if run is None or place is None:
            raise RuntimeError("a separate verification of a run that has left nothing")
        manifest = artifacts.Manifest.of(await collecting.required(store, place + collecting.MANIFEST))
        said = await collecting.document(store, place + responses.RESPONSE)
        written = await self._transcript(world, place)
        transcript = folders.MemoryFolder({requests.TRAJECTORY_NAME: (json.dumps(written).encode(), False)})
        env = await self._sandbox_env(sandbox) if seeding.starts(sandbox) else {}
        request = separate.seed(
            sandbox, nonce, env, copies.restoring(manifest), own_tests=world.verifier.spec.tests is not None
        )
        tests = python_verifier.parts(sandbox.task, said)
        archives = copies.payloads(store, place, manifest, functools.partial(_delivered, tell))
        return await self._send(
            sandbox,
            pod,
            request,
            tests,
            on_started,
            transfer.from_folder(transcript),
            before=archives,
            graded=(run, world.verifier),
        )

    async def _transcript(self, world: VerifierWorld, place: str) -> dict[str, Any]:
        """What is on record of the agent's work; of a run that was graded in its agent's sandbox the least."""
        kept = await collecting.document(self._parts.store, place + collecting.TRANSCRIPT)
        if kept is not None or world.run is None or world.task is None:
            return kept or {}
        made = await transcripts.record(self._parts, world.run, world.task, None)
        return dict(json.loads(made.transcript))

    def _attached(
        self,
        phase: JournalPhase,
        nonce: str,
        report: PhaseReport | None,
        journal: Sequence[JournalEntry],
        signal: Signal,
    ) -> "_Attach | None":
        """The request for a phase that is known to have started, and how long to stay for its end."""
        looks = isinstance(report, PhaseWaiting)
        if not looks and not any(entry.nonce == nonce and entry.started_at is not None for entry in journal):
            return None
        # A look only asks whether the phase is done. One that follows a signal, or a break, expects the end.
        expected = not looks or signal is Signal.GIVEN
        stay = max(self._stay, sandboxes.MOMENT_SECONDS) if expected else sandboxes.MOMENT_SECONDS
        return _Attach(PhaseRequest(nonce, phase.value, attach_only=True, keep=True), stay)

    @property
    def _stay(self) -> float:
        return self._parts.settings.waiting.stream_seconds

    async def _attach(
        self,
        run: TaskRun,
        pod: PodView,
        attach: "_Attach",
        on_started: OnStarted,
        *,
        verifier: VerifierRun | None = None,
    ) -> PhaseResult | Going:
        exchange = Sandbox(self._parts.exec, collecting.pin(run.metadata.namespace, pod), lines=self._parts.lines)
        found = await exchange.begin_phase(
            attach.request, (), on_started=on_started, stay_seconds=attach.stay_seconds, checked=True
        )
        if isinstance(found, Going):
            return found
        return await _told(attach.request, found, await secrecy.values(run, self._parts.sources, verifier))

    async def _send(
        self,
        sandbox: requests.Sandbox,
        pod: PodView,
        request: PhaseRequest,
        parts: Sequence[python_verifier.Part],
        on_started: OnStarted,
        *more: transfer.AnyPayload,
        before: Sequence[transfer.AnyPayload] = (),
        graded: tuple[TaskRun, VerifierRun] | None = None,
    ) -> PhaseResult | Going:
        """The exchange itself; `parts` are made from the snapshot and go along, in order, then `more`. `graded`: whose
        secrets are hidden in a sandbox that is a verifier's own.
        """
        admitted = sandbox.run.status.admitted
        namespace = sandbox.run.metadata.namespace
        exchange = Sandbox(self._parts.exec, collecting.pin(namespace, pod), lines=self._parts.lines)
        run, verifier = graded or (sandbox.run, None)
        secrets = await secrecy.values(run, self._parts.sources, verifier)
        begin = functools.partial(exchange.begin_phase, replace(request, keep=True), checked=True)
        if not parts:
            found = await begin((*before, *more), on_started=on_started, stay_seconds=self._stay)
        elif admitted is None or admitted.task_digest is None:
            raise RuntimeError("a phase with files of a run that is not admitted")
        else:
            async with contextlib.AsyncExitStack() as files:
                folder = await files.enter_async_context(self._parts.snapshots.open(namespace, admitted.task_digest))
                payloads = [*before, *(transfer.from_folder(part(folder)) for part in parts), *more]

                async def sent(started: Started) -> None:
                    await files.aclose()  # what waits for an end holds no file
                    await on_started(started)

                found = await begin(payloads, on_started=sent, stay_seconds=self._stay)
        return found if isinstance(found, Going) else await _told(request, found, secrets)

    # -- variables ------------------------------------------------------------------------------------------------

    async def _sandbox_env(self, sandbox: requests.Sandbox) -> dict[str, str]:
        """What every command of the sandbox gets beside the container's own variables."""
        config = sandbox.task.config
        filled = await self._filled(sandbox.run, config.environment.env, "environment.env", {})
        return env_builder.of_commands(sandbox.task, filled)

    async def _agent_env(self, sandbox: requests.Sandbox) -> dict[str, str]:
        run, env = sandbox.run, {**handout.VARIABLES, **await self._sandbox_env(sandbox)}
        if run.spec.agent.oracle is not None:
            env |= await self._filled(run, sandbox.task.config.solution.env, "solution.env", {})
        script = run.spec.agent.script
        if script is not None:
            namespace = run.metadata.namespace
            env |= await self._ready(self._parts.sources.variables(namespace, script.env_from))
            env |= await self._ready(self._parts.sources.env(namespace, script.env))
        return env

    async def _verifier_env(self, sandbox: requests.Sandbox, verifier: VerifierRun) -> dict[str, str]:
        spec, namespace = verifier.spec, verifier.metadata.namespace
        secrets = await self._ready(self._parts.sources.secrets(namespace, spec.secrets_from))
        env = await self._sandbox_env(sandbox)
        env |= await self._filled(sandbox.run, sandbox.task.config.verifier.env, "verifier.env", secrets)
        return env | await self._ready(self._parts.sources.env(namespace, spec.env))

    async def _filled(
        self, run: TaskRun, table: Mapping[str, str], field: str, secrets: Mapping[str, str]
    ) -> dict[str, str]:
        host = await self._ready(self._parts.sources.variables(run.metadata.namespace, run.spec.environment_from))
        try:
            return environment.resolve(table, host, secrets=secrets, field=field)
        except TaskError as error:
            raise NotReady(str(error)) from error

    async def _ready(self, reading: Awaitable[dict[str, str]]) -> dict[str, str]:
        try:
            return await reading
        except Outcome as missing:
            raise NotReady(missing.message) from missing


@dataclass(frozen=True)
class _Attach:
    request: PhaseRequest
    stay_seconds: float


def _delivered(tell: Tell, sent: int, total: int) -> None:
    tell(f"artifacts: {sent // 2**20} of {total // 2**20} MiB")


def _solution(task: tasks.Task) -> python_verifier.Part:
    return functools.partial(_subtree, contract.folder(task.step, "solution") if task.step is not None else "solution")


def _subtree(name: str, snapshot: folders.Folder) -> folders.Folder:
    return folders.subtree(snapshot, name)


async def _told(request: PhaseRequest, ended: PhaseResult, secrets: Sequence[bytes]) -> PhaseResult:
    """The result without secrets in its words, and with what is to be said about the files that an agent left."""
    told = secrecy.hidden(ended, secrets)
    return await transcripts.noted(told, secrets) if request.phase == JournalPhase.AGENT else told
