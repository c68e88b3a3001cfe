"""`taskfold logs`: what agent and verifier left below /logs, from the run's pod while it exists.

Guarantees: bounded, whatever the sandbox holds: bytes, files, and what is shown of each; only regular files are read;
a terminal gets no control characters of theirs. Where there is no pod any more, it says where the files are.
"""

import asyncio
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from taskfold.api.taskrun import PodRetention, TaskRun
from taskfold.build.pod import MAIN
from taskfold.cli import cluster, ending, exits, options
from taskfold.effects import client as api
from taskfold.effects import errors, sinks
from taskfold.effects import exec as execs
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


def logs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of the TaskRun.", show_default=False)],
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Print the files below /logs of a run's pod, or say where they are."""
    with tempfile.TemporaryDirectory(prefix="taskfold-logs-") as folder:
        try:
            left_out = asyncio.run(_copy(run, cluster.Target(kubeconfig, context, namespace), Path(folder)))
        except NoPod as reason:
            exits.fail(str(reason), exits.NO_VERDICT)
        _show(Path(folder))
    for line in left_out:
        typer.echo(line, err=True)


async def _copy(name: str, target: cluster.Target, folder: Path) -> list[str]:
    """/logs of the run's pod into `folder`; what is missing there."""
    async with cluster.connect(target) as connection:
        with cluster.named(connection, name):
            run = TaskRun.parse(await connection.client.get(api.TASKRUNS, connection.namespace, name))
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


def _show(folder: Path) -> None:
    """Every regular file, the agent's before the verifier's, with its path in the sandbox."""
    first = True
    for path in _regular(folder):
        gap = "" if first else "\n"
        typer.echo(f"{gap}==> /{_clean(str(path.relative_to(folder)))} <==")
        typer.echo(_content(path), nl=False)
        first = False
    if first:
        typer.echo("the pod has no files below /logs yet", err=True)


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
