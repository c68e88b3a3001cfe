"""One run: its sandbox, its end, its result.

Guarantees: what is asked of a sandbox is asked of the one that was ready, never of another under its name; every call
ends what it began, also when it is cancelled.
"""

import asyncio
import contextlib
import json
import secrets
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Literal, Self

from taskfold.api import names
from taskfold.api.agent import MAX_RESPONSE, FinishOutcome
from taskfold.api.phases import Phase
from taskfold.api.status import Failure
from taskfold.api.taskrun import TaskRun, TaskRunStatus
from taskfold.build import handout, pod
from taskfold.client import undoing
from taskfold.effects import client as api
from taskfold.effects import commands, credentials, errors, sinks, taskruns, transfer
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes
from taskfold.protocol.phase import User

COPY_BYTES = 4 * 1024**3
COPY_ENTRIES = 200_000
OUTPUT_BYTES = 1 << 20

Ended = commands.Ended


class RunEnded(Exception):  # noqa: N818 - a run may end
    """The run is over before what was asked for. `run` is its last state."""

    def __init__(self, run: TaskRun) -> None:
        failure = run.status.failure
        why = f": {failure.reason}: {failure.message}" if failure is not None else ""
        super().__init__(f"TaskRun {run.metadata.name} is {run.status.phase or 'gone'}{why}")
        self.run = run


@dataclass(frozen=True)
class Result:
    """What came of a run. `reward` None: there is no verdict, and `failure` says why. `failure` with a reward: nobody
    graded the work, and it counts as 0.
    """

    phase: Phase
    reward: float | None
    rewards: Mapping[str, float]
    masked: bool
    failure: Failure | None
    warnings: tuple[str, ...] = ()
    status: TaskRunStatus = field(default_factory=TaskRunStatus, repr=False)


@dataclass(frozen=True)
class Sandbox:
    """Where to work. `user`: whom the task wants its agent to be. `workdir` None: the image's own. `instruction`: the
    path of the file that says what to do.
    """

    pod: str
    container: str
    user: str | None
    workdir: str | None
    instruction: str = handout.INSTRUCTION


class Run:
    """One TaskRun. As a context manager it cancels the run when its block is left by an error, and when an external
    agent's work was not finished in it; `async with run.left_alone():` does not.
    """

    def __init__(self, connection: api.Client, login: credentials.Source, exec_: execs.Exec, run: TaskRun) -> None:
        self.last = run
        """The run as it was last seen."""
        self._connection, self._login, self._exec = connection, login, exec_
        self._pin: execs.PodPin | None = None
        self._owner: tuple[int, int] | None = None
        self._left_alone = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unfinished = self.last.spec.agent.external is not None and self.last.spec.finish is None
        over = self.last.status.phase is not None and self.last.status.phase.final
        if not self._left_alone and not over and (error is not None or unfinished):
            await undoing.in_any_case(self._give_up())

    @property
    def name(self) -> str:
        return self.last.metadata.name

    @property
    def namespace(self) -> str:
        return self.last.metadata.namespace

    def left_alone(self) -> Self:
        """The run goes on whatever becomes of the block."""
        self._left_alone = True
        return self

    async def ready(self, timeout: float | None = None) -> Sandbox:  # noqa: ASYNC109 - of the whole wait
        """Wait until the sandbox may be worked in. Raises RunEnded, TimeoutError."""
        async with asyncio.timeout(timeout):
            run = await self._until(lambda found: found.status.phase is Phase.RUNNING and _announced(found))
        attempt = run.status.attempts[-1]
        found = await self._connection.get(api.PODS, self.namespace, attempt.pod_name or "")
        pin = execs.PodPin.of(found, pod.MAIN)
        if pin.uid != attempt.pod_uid:
            raise errors.PodReplaced("another pod has its name", where=pin.where)
        self._pin = pin
        agent = run.status.agent
        return Sandbox(
            pin.name, pin.container, agent.user if agent is not None else None, agent.workdir if agent else None
        )

    async def exec(
        self,
        argv: Sequence[str],
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,  # noqa: ASYNC109 - of the command, which ends with it
        output_bytes: int = OUTPUT_BYTES,
        tell: Callable[[int, bytes], None] | None = None,
    ) -> Ended:
        """Run a command to its end. Its process group is killed at `timeout` (TimeoutError) and when this call is
        cancelled; at its normal end nothing is, so what goes on should have its outputs elsewhere.

        `user`: by name, by number, or `user:group`; None is the task's agent user. `cwd` None: the task's working
        directory. `env`: beside the container's own variables. Of each output the first `output_bytes` are kept, or
        given to `tell(channel, bytes)` as they come; channel 1 is stdout, 2 stderr. A program that cannot be started is
        `errors.StartFailed`.
        """
        pin = await self._pinned()
        agent = self.last.status.agent
        wanted = user if user is not None else agent.user if agent is not None else None
        place = cwd if cwd is not None else agent.workdir if agent is not None else None
        command = commands.Command(argv, _user(wanted), place, env or {})
        try:
            return await commands.run(
                self._exec, pin, command, stdin=stdin, max_bytes=output_bytes, seconds=timeout, tell=tell
            )
        except errors.ExecTimeout as error:
            raise TimeoutError(f"{argv[0]} took longer than {timeout:g} s") from error

    @contextlib.asynccontextmanager
    async def terminal(self, argv: Sequence[str]) -> AsyncIterator[execs.ExecStream]:
        """A program at a terminal, as the agent's user in the working directory. It is hung up with the block."""
        pin, agent = await self._pinned(), self.last.status.agent
        words = ["--user", agent.user] if agent is not None and agent.user else []
        words += ["--cwd", agent.workdir] if agent is not None and agent.workdir else []
        limits = execs.Limits(total_seconds=None, idle_seconds=None)
        shell = [sandboxes.HELPER, "shell", *words, *argv]
        async with self._exec.open(pin, shell, stdin=True, tty=True, limits=limits) as stream:
            yield stream

    async def instruction(self) -> str:
        """What is to be done, as the sandbox has it."""
        with tempfile.TemporaryDirectory(prefix="taskfold-") as folder:
            await self.download(handout.INSTRUCTION, Path(folder, handout.INSTRUCTION_NAME))
            content = await asyncio.to_thread(Path(folder, handout.INSTRUCTION_NAME).read_bytes)
        return content.decode(errors="replace")

    async def upload(self, source: str | Path, target: str) -> None:
        """Copy a file or a folder of this machine to this path of the sandbox, where it belongs to the agent's user.

        A folder's content is put into `target`, which is made if it is missing; files that are there are replaced.
        """
        local, place = Path(source), _absolute(target)
        is_folder = await asyncio.to_thread(local.is_dir)
        payload = transfer.from_directory(local) if is_folder else transfer.from_file(local, place.name)
        uid, gid = await self._agent_owner()
        await self._sandbox(await self._pinned()).unpack(
            str(place if is_folder else place.parent),
            transfer.owned(payload, uid, gid),
            max_bytes=COPY_BYTES,
            max_entries=COPY_ENTRIES,
        )

    async def download(self, source: str, target: str | Path) -> None:
        """Copy a file or a folder of the sandbox to this path of this machine, where nothing may be.

        Raises FileExistsError, FileNotFoundError, TransferError for what is not a file or folder, or too much.
        """
        place, local = _absolute(source), Path(target)
        if await asyncio.to_thread(local.exists):
            raise FileExistsError(f"{local} exists")
        holder = local.with_name(f".{local.name}.{secrets.token_hex(4)}.partial")
        try:
            sink = sinks.ToDirectory(holder, max_bytes=COPY_BYTES, max_entries=COPY_ENTRIES)
            packed = await self._sandbox(await self._pinned()).pack(
                [sandboxes.Root(str(place), "it")], sink, max_bytes=COPY_BYTES, max_entries=COPY_ENTRIES
            )
            if packed.truncated:
                raise errors.LimitExceeded(f"{source} is too large", where=self.name)
            if not await asyncio.to_thread((holder / "it").exists):
                skipped = next((each.reason for each in packed.skipped), "there is no such file")
                raise FileNotFoundError(f"{source}: {skipped}")
            await asyncio.to_thread((holder / "it").rename, local)
        finally:
            await asyncio.shield(asyncio.to_thread(_remove, holder))

    async def finish(
        self, outcome: FinishOutcome | Literal["Succeeded", "Failed"], response: str | Mapping[str, Any] | None = None
    ) -> None:
        """Say that the work is done, once. `response`: the final answer as text, or a Responses API response."""
        finish: dict[str, Any] = {"outcome": FinishOutcome(outcome).value}
        if response is not None:
            text = response if isinstance(response, str) else json.dumps(response, allow_nan=False)
            if len(text) <= MAX_RESPONSE:
                finish["response"] = text
            else:
                finish["responseFrom"] = {"configMapKeyRef": {"name": await self._kept(text), "key": "response"}}
        await self._patch({"finish": finish})

    async def result(self, timeout: float | None = None) -> Result:  # noqa: ASYNC109 - of the whole wait
        """Wait for the verdict, or for whatever ends the run without one. Raises TimeoutError; it changes nothing."""
        async with asyncio.timeout(timeout):
            run = await self._until(lambda found: found.status.phase is not None and found.status.phase.final)
        status = run.status
        return Result(
            status.phase or Phase.FAILED,
            float(status.reward) if status.reward is not None else None,
            dict(status.rewards),
            status.masked,
            status.failure,
            tuple(status.warnings),
            status,
        )

    async def cancel(self) -> None:
        """End the run and keep its record."""
        await self._patch({"cancel": True})

    async def delete(self) -> None:
        """Take the run away, with its pod and its record."""
        with contextlib.suppress(errors.NotFound):
            await self._connection.delete(api.TASKRUNS, self.namespace, self.name, uid=self.last.metadata.uid)

    async def _give_up(self) -> None:
        with contextlib.suppress(errors.EffectError):
            await self.cancel()

    async def _patch(self, spec: Mapping[str, Any]) -> None:
        uid = self.last.metadata.uid
        found = await self._connection.patch(api.TASKRUNS, self.namespace, self.name, {"spec": spec}, uid=uid)
        self.last = TaskRun.parse(found)

    async def _kept(self, text: str) -> str:
        """The name of a ConfigMap with this response, which goes with the run."""
        body = {
            "metadata": {
                "name": f"{self.name}-response",
                "labels": {names.USABLE: "true"},
                "ownerReferences": [pod.owner(self.last)],
            },
            "immutable": True,
            "data": {"response": text},
        }
        try:
            await self._connection.create(api.CONFIGMAPS, self.namespace, body)
        except errors.AlreadyExists:
            found = await self._connection.get(api.CONFIGMAPS, self.namespace, f"{self.name}-response")
            if (found.get("data") or {}).get("response") != text:
                raise
        return f"{self.name}-response"

    async def _until(self, condition: Callable[[TaskRun], bool]) -> TaskRun:
        """The run once the condition holds. RunEnded if it never will."""
        async with contextlib.aclosing(self._changes()) as changes:
            async for run in changes:
                self.last = run
                if condition(run):
                    return run
                if run.status.phase is not None and run.status.phase.final:
                    raise RunEnded(run)
        raise AssertionError("following a run has no end")

    def _changes(self) -> AsyncGenerator[TaskRun, None]:
        return taskruns.changes(self._connection, self._login, self.last)

    async def _pinned(self) -> execs.PodPin:
        if self._pin is None:
            await self.ready()
        if self._pin is None:
            raise RunEnded(self.last)
        return self._pin

    def _sandbox(self, pin: execs.PodPin) -> sandboxes.Sandbox:
        return sandboxes.Sandbox(self._exec, pin)

    async def _agent_owner(self) -> tuple[int, int]:
        """The agent's user by number, as only the sandbox knows it."""
        if self._owner is None:
            told = await self.exec([sandboxes.HELPER, "version"])
            self._owner = (told.uid, told.gid)
        return self._owner


def _announced(run: TaskRun) -> bool:
    """An external agent's place stands in the status a moment after the phase; of other agents nothing does."""
    return run.spec.agent.external is None or (run.status.agent is not None and run.status.agent.user is not None)


def _user(text: str | int | None) -> User | None:
    """`user` or `user:group`, each a name or a number; None is root."""
    if text is None:
        return None
    who, _, group = str(text).partition(":")
    user = User(uid=int(who)) if _is_number(who) else User(name=who)
    if not group:
        return user
    if _is_number(group):
        return User(user.name, user.uid, gid=int(group))
    return User(user.name, user.uid, group=group)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _absolute(path: str) -> PurePosixPath:
    place = PurePosixPath(path)
    if not place.is_absolute() or ".." in place.parts or place.name == "":
        raise ValueError(f"{path!r} is no absolute path of a file or folder in the sandbox")
    return place


def _remove(folder: Path) -> None:
    """The folder with all that is in it, whatever its modes."""
    if not folder.exists():
        return
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            child.chmod(0o700)
            _remove(child)
        else:
            child.unlink()
    folder.rmdir()
