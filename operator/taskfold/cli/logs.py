"""`taskfold logs`: what agent, entrypoint and verifier printed, from the run's pods while there are any, else as kept.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from taskfold.api import results
from taskfold.cli import cluster, exits, options, pod_logs, subjects
from taskfold.effects import errors
from taskfold.effects import results as remote

SHOWN_BYTES = 256 * 1024
"""Of one file: its end. Test output says what matters last."""


@dataclass(frozen=True)
class Wanted:
    """Whose output. `sources` empty: all that is text; of a kept run, and where the verifier has a pod of its own, the
    output of all three.
    """

    sources: tuple[results.Source, ...] = ()
    step: str | None = None
    attempt: int | None = None

    def __call__(self, path: Path, of: results.Of) -> bool:
        """Whether this file of a pod is meant."""
        if not self.sources and self.step is None and of is results.Of.SANDBOX:
            return True
        return results.printed(str(path), of, self.sources or tuple(results.Source), self.step)


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
            copies = asyncio.run(_read(subject, wanted, target, Path(folder)))
        except pod_logs.NoPod as reason:
            exits.fail(str(reason), exits.NO_VERDICT)
        if copies is None:
            return
        _show(copies, wanted)
    for line in (line for copy in copies for line in copy.missing):
        typer.echo(line, err=True)


async def _read(
    subject: subjects.Subject, wanted: Wanted, target: cluster.Target, folder: Path
) -> list[pod_logs.Copy] | None:
    """The pods' files, below `folder`; None: they came from the store and are shown."""
    async with cluster.connect(target) as connection:
        found = await subjects.get(connection, subject)
        missing = None
        if wanted.attempt is None:
            try:
                reader = pod_logs.Reader(connection, folder, wanted.step)
                copies = await reader.of(subject, found, wanted.sources)
            except pod_logs.NoPod as reason:
                now = await subjects.get(connection, subject)  # it may have ended between the two
                if not now.get("status", {}).get("complete"):
                    raise
                missing = reason
            else:
                if copies is not None:
                    return copies
        theirs = remote.Subject(subject.resource.plural, connection.namespace, subject.name, wanted.attempt)
        with subjects.explained():
            try:
                await _stored(connection, theirs, wanted)
            except remote.NotServed:
                if missing is None:
                    raise
                raise pod_logs.NoPod(f"{missing} {subjects.NOT_SERVED}") from None
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


def _show(copies: Sequence[pod_logs.Copy], wanted: Wanted) -> None:
    """Every regular file that is wanted, the agent's before the verifier's, with its path in the sandbox."""
    first = True
    for copy in copies:
        for path in _regular(copy.folder):
            name = path.relative_to(copy.folder)
            if wanted(name, copy.of):
                gap = "" if first else "\n"
                typer.echo(f"{gap}==> /{_clean(str(name))} <==")
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
