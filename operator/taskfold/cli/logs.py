"""`taskfold logs`: what agent, entrypoint and verifier printed, from the run's pod while there is one, else as kept.

Guarantees: bounded, whatever the sandbox holds: bytes, files, and what is shown of each; only regular files are read;
a terminal gets no control characters of theirs. Where there is neither, it says why, and where the files are.
"""

import asyncio
import codecs
import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from taskfold.api import results
from taskfold.api.taskrun import PodRetention, TaskRun
from taskfold.build.pod import MAIN
from taskfold.cli import cluster, ending, exits, options, subjects
from taskfold.effects import client as api
from taskfold.effects import errors, sinks
from taskfold.effects import exec as execs
from taskfold.effects import results as remote
from taskfold.effects import sandbox as sandboxes

ROOT = sandboxes.Root("/logs", "logs")
TOTAL_BYTES = 64 * 2**20
FILE_BYTES = 16 * 2**20
ENTRIES = 5_000
SHOWN_BYTES = 256 * 1024
"""Of one file: its end. Test output says what matters last."""
COPY_SECONDS = 120.0


class NoPod(Exception):  # noqa: N818 - not an error
    """There is nothing to copy from; the message says why."""


@dataclass(frozen=True)
class Wanted:
    """Whose output. `sources` empty: all that is text; of a kept run, the output of all three."""

    sources: tuple[results.Source, ...] = ()
    step: str | None = None
    attempt: int | None = None

    def __call__(self, path: Path) -> bool:
        """Whether this file of the pod is meant."""
        if not self.sources and self.step is None:
            return True
        sources = self.sources or tuple(results.Source)
        return results.printed(str(path), results.Of.SANDBOX, sources, self.step)


def _flag(source: results.Source) -> Any:
    return typer.Option(f"--{source}", help=f"Output of the {source} only. May be combined.")


def logs(  # noqa: PLR0917 - options of a command line
    run: subjects.Argument,
    agent: Annotated[bool, _flag(results.Source.AGENT)] = False,
    entrypoint: Annotated[bool, _flag(results.Source.ENTRYPOINT)] = False,
    verifier: Annotated[bool, _flag(results.Source.VERIFIER)] = False,
    step: Annotated[str | None, typer.Option(help="Only this step of a multi-step task.", show_default=False)] = None,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, help="Number of the attempt, from the store. Unset: the last one.", show_default=False),
    ] = None,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Print what agent, entrypoint and verifier of a run printed, or say where it is."""
    chosen = {results.Source.AGENT: agent, results.Source.ENTRYPOINT: entrypoint, results.Source.VERIFIER: verifier}
    wanted = Wanted(tuple(source for source, on in chosen.items() if on), step, attempt)
    target, subject = cluster.Target(kubeconfig, context, namespace), subjects.parse(run)
    with tempfile.TemporaryDirectory(prefix="taskfold-logs-") as folder:
        try:
            left_out = asyncio.run(_read(subject, wanted, target, Path(folder)))
        except NoPod as reason:
            exits.fail(str(reason), exits.NO_VERDICT)
        if left_out is None:
            return
        _show(Path(folder), wanted)
    for line in left_out:
        typer.echo(line, err=True)


async def _read(subject: subjects.Subject, wanted: Wanted, target: cluster.Target, folder: Path) -> list[str] | None:
    """The pod's files into `folder`, and what is missing there; None: they came from the store and are shown."""
    async with cluster.connect(target) as connection:
        found = await subjects.get(connection, subject)
        missing = None
        if subject.resource is api.TASKRUNS and wanted.attempt is None:
            run = TaskRun.parse(found)
            try:
                return await _copy(connection, run, folder)
            except NoPod as reason:
                if not run.status.complete:
                    raise
                missing = reason
        theirs = remote.Subject(subject.resource.plural, connection.namespace, subject.name, wanted.attempt)
        with subjects.explained():
            try:
                await _stored(connection, theirs, wanted)
            except remote.NotServed:
                if missing is None:
                    raise
                raise NoPod(f"{missing} {subjects.NOT_SERVED}") from None
            except errors.NotFound:
                if missing is None:
                    raise
                raise missing from None
    return None


async def _stored(connection: cluster.Connection, theirs: remote.Subject, wanted: Wanted) -> None:
    """Texts of a kept run, as they come."""
    async with remote.Results(connection.login, theirs) as reader:
        for source in wanted.sources or (None,):
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            async with contextlib.aclosing(reader.texts(source, wanted.step, SHOWN_BYTES)) as texts:
                async for part in texts:
                    text = decoder.decode(part)
                    typer.echo(_clean(text) if sys.stdout.isatty() else text, nl=False)


async def _copy(connection: cluster.Connection, run: TaskRun, folder: Path) -> list[str]:
    """/logs of the run's pod into `folder`; what is missing there."""
    pin = await _pin(connection, run)
    sink = sinks.ToDirectory(folder, max_bytes=TOTAL_BYTES, max_entries=ENTRIES)
    sandbox = sandboxes.Sandbox(execs.Exec(connection.client), pin)
    try:
        packed = await sandbox.pack(
            [ROOT],
            sink,
            max_bytes=TOTAL_BYTES,
            max_entries=ENTRIES,
            max_file_bytes=FILE_BYTES,
            total_seconds=COPY_SECONDS,
        )
    except errors.HandshakeRefused:
        raise
    except (errors.ExecError, errors.SandboxError, errors.TransferError) as error:
        raise NoPod(f"the pod's files cannot be read: {error}") from error
    lines = [f"left out: {skipped.path} ({skipped.reason})" for skipped in packed.skipped]
    return lines + (["there is more than is shown here"] if packed.truncated else [])


async def _pin(connection: cluster.Connection, run: TaskRun) -> execs.PodPin:
    """The run's pod, or NoPod with the reason and with the place of the files."""
    attempt = run.status.attempts[-1] if run.status.attempts else None
    if attempt is None or attempt.pod_name is None or attempt.pod_uid is None:
        phase = run.status.phase or "not admitted yet"
        raise NoPod(f"the run has no pod and left no files: {phase}. {_failure(run)}".rstrip())
    try:
        pod = await connection.client.get(api.PODS, connection.namespace, attempt.pod_name)
    except errors.NotFound:
        raise NoPod(_gone(run)) from None
    if pod["metadata"]["uid"] != attempt.pod_uid:
        raise NoPod(_gone(run))
    try:
        return execs.PodPin.of(pod, MAIN)
    except errors.NotRunning as error:
        raise NoPod(f"{error}. {_files(run)}") from None


def _gone(run: TaskRun) -> str:
    if run.status.complete and run.spec.pod_retention is not PodRetention.ALWAYS:
        retention = run.spec.pod_retention.value
        why = f"the run is complete, and spec.podRetention is {retention} (`taskfold run --keep` keeps the pod)"
    else:
        why = _failure(run) or "somebody deleted it"
    return f"The pod of the run is gone: {why.rstrip('.')}. {_files(run)}"


def _files(run: TaskRun) -> str:
    if run.status.store is None:
        return "No files of it are in the store."
    return f"Its files: {ending.where(run.status.store)}."


def _failure(run: TaskRun) -> str:
    failure = run.status.failure
    return f"{failure.reason}: {failure.message}" if failure is not None else ""


def _show(folder: Path, wanted: Callable[[Path], bool]) -> None:
    """Every regular file that is wanted, the agent's before the verifier's, with its path in the sandbox."""
    first = True
    for path in (path for path in _regular(folder) if wanted(path.relative_to(folder))):
        gap = "" if first else "\n"
        typer.echo(f"{gap}==> /{_clean(str(path.relative_to(folder)))} <==")
        typer.echo(_content(path), nl=False)
        first = False
    if first:
        typer.echo("the pod has no such files below /logs yet", err=True)


def _regular(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(above, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _content(path: Path) -> str:
    """The end of a text file with a line end; one line about anything else."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(8192)
        stream.seek(max(0, size - SHOWN_BYTES))
        end = stream.read(SHOWN_BYTES)
    if b"\0" in start:
        return f"(not text: {size:,} bytes)\n"
    text = end.decode(errors="replace")
    if size > SHOWN_BYTES:
        text = f"(the first {size - SHOWN_BYTES:,} of {size:,} bytes are left out)\n{text}"
    text = _clean(text) if sys.stdout.isatty() else text
    return text if not text or text.endswith("\n") else f"{text}\n"


def _clean(text: str) -> str:
    """Control characters would be commands to the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
