"""From a plan's `RunPhase` to the exchange with the sandbox: variables, the request, its archives.

Guarantees: secrets are read at the moment of use and go over stdin only; the same nonce always means the same phase,
so an exchange may be begun again after any break; archives come from the run's snapshot. A phase that has started is
attached to and nothing else: neither secrets nor files are read for it again.
"""

import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import taskfold
from taskfold.api.status import JournalEntry, JournalPhase
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import environment as env_builder
from taskfold.build import phases as requests
from taskfold.build import pod as pod_builder
from taskfold.contract import environment, transcript
from taskfold.contract import folder as folders
from taskfold.contract.errors import TaskError
from taskfold.decide import status as to
from taskfold.decide.pod import PodView
from taskfold.decide.world import PhaseReport, PhaseWaiting, RunWorld, Signal, VerifierWorld
from taskfold.effects import errors, transfer
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes
from taskfold.effects.sandbox import Going, Sandbox, Started
from taskfold.engine import secrecy
from taskfold.engine.activities import Exchange
from taskfold.engine.outcome import Outcome
from taskfold.engine.parts import Parts
from taskfold.protocol.phase import FileState, PhaseRequest, PhaseResult

OnStarted = Callable[[Started], Awaitable[None]]


class NotReady(errors.EffectError):
    """What the phase needs is not there now; the exchange is begun again later."""


class Phases:
    """Makes the exchanges."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def of(self, phase: JournalPhase, nonce: str, world: RunWorld | VerifierWorld, signal: Signal) -> Exchange:
        """The exchange for a phase of this world. `signal`: what is known about its end."""
        if isinstance(world, RunWorld):
            return self.of_run(phase, nonce, world, signal)
        return self.of_verifier(phase, nonce, world, signal)

    def of_run(self, phase: JournalPhase, nonce: str, world: RunWorld, signal: Signal) -> Exchange:
        """The seed phase or the agent's phase of a TaskRun."""
        run, task, pod = world.run, world.task, world.pod
        if task is None or pod is None or world.image_user is None:
            raise RuntimeError(f"phase {phase} without task, pod or image user")
        sandbox = requests.Sandbox(run, task, world.recorded, world.image_user)
        attached = self._attached(phase, nonce, world.phases.get(nonce), run.status.journal, signal)
        if attached is not None:
            return functools.partial(self._attach, run, pod, attached)

        async def exchange(on_started: OnStarted) -> PhaseResult | Going:
            if phase is JournalPhase.SEED:
                return await self._send(sandbox, pod, requests.seed(sandbox, nonce), (), on_started)
            env = await self._agent_env(sandbox)
            request = requests.agent(sandbox, nonce, env, self._parts.settings.limits.install_seconds)
            parts = ("solution",) if run.spec.agent.oracle is not None else ()
            return await self._send(sandbox, pod, request, parts, on_started)

        return exchange

    def of_verifier(self, phase: JournalPhase, nonce: str, world: VerifierWorld, signal: Signal) -> Exchange:
        """The hooks or the verification of a VerifierRun."""
        run, task, pod = world.run, world.task, world.pod
        if run is None or task is None or pod is None or world.image_user is None:
            raise RuntimeError(f"phase {phase} without run, task, pod or image user")
        sandbox = requests.Sandbox(run, task, world.recorded, world.image_user)
        attached = self._attached(phase, nonce, world.phases.get(nonce), world.verifier.status.journal, signal)
        if attached is not None:
            return functools.partial(self._attach, run, pod, attached)

        async def exchange(on_started: OnStarted) -> PhaseResult | Going:
            if phase is JournalPhase.HOOKS:
                env = await self._sandbox_env(sandbox)
                return await self._send(sandbox, pod, requests.hooks(sandbox, nonce, env), (), on_started)
            env = await self._verifier_env(sandbox, world.verifier)
            own = await self._trajectory(sandbox, pod)
            text = transcript.transcript(own, task.instruction, None, run.spec.agent.name, taskfold.__version__)
            record = folders.MemoryFolder({requests.TRAJECTORY_NAME: (text, False)})
            request = requests.verify(sandbox, world.verifier, nonce, env)
            return await self._send(sandbox, pod, request, ("tests",), on_started, transfer.from_folder(record))

        return exchange

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
        stay = sandboxes.MOMENT_SECONDS if looks and signal is not Signal.GIVEN else self._stay
        return _Attach(PhaseRequest(nonce, phase.value, attach_only=True, keep=True), stay)

    @property
    def _stay(self) -> float:
        return self._parts.settings.waiting.stream_seconds

    async def _attach(
        self, run: TaskRun, pod: PodView, attach: "_Attach", on_started: OnStarted
    ) -> PhaseResult | Going:
        exchange = Sandbox(self._parts.exec, _pin(run.metadata.namespace, pod), lines=self._parts.lines)
        found = await exchange.begin_phase(
            attach.request, (), on_started=on_started, stay_seconds=attach.stay_seconds, checked=True
        )
        if isinstance(found, Going):
            return found
        return secrecy.hidden(found, await secrecy.values(run, self._parts.sources))

    async def _send(
        self,
        sandbox: requests.Sandbox,
        pod: PodView,
        request: PhaseRequest,
        parts: Sequence[str],
        on_started: OnStarted,
        *more: transfer.Payload,
    ) -> PhaseResult | Going:
        """The exchange itself; `parts` are the folders of the snapshot that go along, in order, then `more`."""
        admitted = sandbox.run.status.admitted
        namespace = sandbox.run.metadata.namespace
        exchange = Sandbox(self._parts.exec, _pin(namespace, pod), lines=self._parts.lines)
        secrets = await secrecy.values(sandbox.run, self._parts.sources)
        begin = functools.partial(exchange.begin_phase, replace(request, keep=True), checked=True)
        if not parts:
            found = await begin((), on_started=on_started, stay_seconds=self._stay)
        elif admitted is None or admitted.task_digest is None:
            raise RuntimeError("a phase with files of a run that is not admitted")
        else:
            async with contextlib.AsyncExitStack() as files:
                folder = await files.enter_async_context(self._parts.snapshots.open(namespace, admitted.task_digest))
                payloads = [*(transfer.from_folder(folders.subtree(folder, part)) for part in parts), *more]

                async def sent(started: Started) -> None:
                    await files.aclose()  # what waits for an end holds no file
                    await on_started(started)

                found = await begin(payloads, on_started=sent, stay_seconds=self._stay)
        return found if isinstance(found, Going) else secrecy.hidden(found, secrets)

    async def _trajectory(self, sandbox: requests.Sandbox, pod: PodView) -> bytes | None:
        """The agent's own transcript, as it was the moment the agent ended."""
        if sandbox.run.spec.agent.script is None:
            return None
        entry = to.entry(sandbox.run.status, JournalPhase.AGENT, pod.uid)
        if entry is None:
            return None
        result = self._parts.activities.result(entry.nonce)
        if result is None:
            request = PhaseRequest(entry.nonce, JournalPhase.AGENT.value, attach_only=True)
            exchange = Sandbox(self._parts.exec, _pin(sandbox.run.metadata.namespace, pod))
            result = await exchange.run_phase(request, (), checked=True)
        file = result.files.get(requests.TRAJECTORY)
        return file.content if file is not None and file.state is FileState.REGULAR else None

    # -- variables ------------------------------------------------------------------------------------------------

    async def _sandbox_env(self, sandbox: requests.Sandbox) -> dict[str, str]:
        """What every command of the sandbox gets beside the container's own variables."""
        config = sandbox.task.config
        filled = await self._filled(sandbox.run, config.environment.env, "environment.env", {})
        return env_builder.of_commands(sandbox.task, filled)

    async def _agent_env(self, sandbox: requests.Sandbox) -> dict[str, str]:
        run, env = sandbox.run, await self._sandbox_env(sandbox)
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


def _pin(namespace: str, pod: PodView) -> execs.PodPin:
    return execs.PodPin(namespace, pod.name, pod.uid, pod_builder.MAIN, pod.restarts, pod.node)
