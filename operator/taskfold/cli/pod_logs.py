"""/logs of the pods that a run has now: the one of agent and verifier, or one for each of them (separate verification).

Guarantees: bounded, whatever a sandbox holds; a pod is read only if it is the very one that the status names. What is
read says whose it is: in a separate verification nothing of the agent's pod counts as the verifier's output.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taskfold.api.results import Of, Source
from taskfold.api.status import Attempt, Mode
from taskfold.api.taskrun import PodRetention, TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build.pod import MAIN
from taskfold.cli import cluster, ending, subjects
from taskfold.effects import client as api
from taskfold.effects import errors, sinks
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes

ROOT = sandboxes.Root("/logs", "logs")
TOTAL_BYTES = 64 * 2**20
FILE_BYTES = 16 * 2**20
ENTRIES = 5_000
COPY_SECONDS = 120.0
AGENTS, VERIFIERS = {Source.AGENT, Source.ENTRYPOINT}, {Source.VERIFIER, Source.ENTRYPOINT}
"""Whose output each of two pods has."""


class NoPod(Exception):  # noqa: N818 - not an error
    """There is nothing to copy from; the message says why."""


@dataclass(frozen=True)
class Copy:
    """Files of a pod. `missing`: lines about what is not among them."""

    of: Of
    folder: Path
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader:
    """`folder`: each pod's files get one of their own below it. `step`: only of this step's verification."""

    connection: cluster.Connection
    folder: Path
    step: str | None = None

    async def of(
        self, subject: subjects.Subject, found: Mapping[str, Any], sources: Collection[Source]
    ) -> list[Copy] | None:
        """What pods of this object have of these sources; none: all of them.

        None: a verification that has no pod of its own. Raises NoPod, also if the run is complete and one of the pods
        is gone: what was kept is the whole then.
        """
        if subject.resource is api.VERIFIERRUNS:
            verifier = VerifierRun.parse(dict(found))
            return [await self.verifiers(verifier)] if verifier.spec.mode is Mode.SEPARATE else None
        run = TaskRun.parse(dict(found))
        if run.status.verifier is None or run.status.verifier.mode is not Mode.SEPARATE:
            return [await self.agents(run, Of.SANDBOX)]
        wanted = set(sources) or set(Source)
        copies, reasons = list[Copy](), list[str]()
        pods = (
            (AGENTS, functools.partial(self.agents, run, Of.AGENT)),
            (VERIFIERS, functools.partial(self.verifiers_of, run)),
        )
        for copy in (copy for theirs, copy in pods if wanted & theirs):
            try:
                copies.append(await copy())
            except NoPod as reason:
                reasons.append(str(reason))
        if not copies or (reasons and run.status.complete):
            raise NoPod(" ".join(reasons))
        return [*copies[:-1], replace(copies[-1], missing=(*copies[-1].missing, *reasons))]

    async def agents(self, run: TaskRun, of: Of) -> Copy:
        """Of the run's pod. `of` AGENT: the verifier has one of its own."""
        attempt = run.status.attempts[-1] if run.status.attempts else None
        if attempt is None or attempt.pod_name is None or attempt.pod_uid is None:
            phase = run.status.phase or "not admitted yet"
            raise NoPod(f"the run has no pod and left no files: {phase}. {_failure(run)}".rstrip())
        gone = _gone(run) if of is Of.SANDBOX else f"The agent's pod is gone: its work is verified. {_files(run)}"
        return await self._copy(attempt, of, gone, _files(run))

    async def verifiers_of(self, run: TaskRun) -> Copy:
        """Of the pod of the run's separate verification."""
        graded = run.status.verifier
        name = graded.name if graded is not None else None
        if graded is None or name is None:
            raise NoPod("The verification has not begun.")
        try:
            found = await self.connection.client.get(api.VERIFIERRUNS, self.connection.namespace, name)
        except errors.NotFound:
            raise NoPod(f"The VerifierRun {name} is gone. {_files(run)}") from None
        verifier = VerifierRun.parse(found)
        if graded.uid is not None and verifier.metadata.uid != graded.uid:
            raise NoPod(f"The VerifierRun {name} is another one than the run's. {_files(run)}")
        if self.step not in (None, verifier.spec.step):
            raise NoPod(f"What is verified now is step {verifier.spec.step}. {_files(run)}")
        return await self.verifiers(verifier)

    async def verifiers(self, verifier: VerifierRun) -> Copy:
        """Of a separate verification's own pod."""
        status = verifier.status
        attempt = status.attempts[-1] if status.attempts else None
        if attempt is None or attempt.pod_name is None or attempt.pod_uid is None:
            raise NoPod(f"The verifier has no pod of its own yet: {status.phase or 'not admitted yet'}.")
        files = f"Its files: {ending.where(status.store)}." if status.complete and status.store else ""
        then = files or "What it printed can be read once the run is complete."
        return await self._copy(attempt, Of.VERIFIER, f"The verifier's pod is gone. {then}", files)

    async def _copy(self, attempt: Attempt, of: Of, gone: str, files: str) -> Copy:
        pin = await self._pin(attempt, gone, files)
        folder = self.folder / of
        folder.mkdir()
        sink = sinks.ToDirectory(folder, max_bytes=TOTAL_BYTES, max_entries=ENTRIES)
        try:
            packed = await sandboxes.Sandbox(execs.Exec(self.connection.client), pin).pack(
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
        return Copy(of, folder, (*lines, *(["there is more than is shown here"] if packed.truncated else [])))

    async def _pin(self, attempt: Attempt, gone: str, files: str) -> execs.PodPin:
        """The pod of this attempt and no other."""
        try:
            pod = await self.connection.client.get(api.PODS, self.connection.namespace, str(attempt.pod_name))
        except errors.NotFound:
            raise NoPod(gone) from None
        if pod["metadata"]["uid"] != attempt.pod_uid:
            raise NoPod(gone)
        try:
            return execs.PodPin.of(pod, MAIN)
        except errors.NotRunning as error:
            raise NoPod(f"{error}. {files}".rstrip()) from None


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
