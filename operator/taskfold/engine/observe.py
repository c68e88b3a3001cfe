"""From a key to a world: everything that a decision may look at, read now.

Guarantees: what is absent in the watch's picture and matters is asked of the API server before a decision relies on
its absence; reading changes nothing.
"""

import json
from collections.abc import Sequence

from taskfold.api import names
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalEntry
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.contract import digest as digests
from taskfold.contract import dockerfile, environment, loader, users
from taskfold.contract import task as tasks
from taskfold.contract.errors import TaskError
from taskfold.contract.images import RecordedImage
from taskfold.decide import pod as pods
from taskfold.decide.world import Admission, PhaseReport, Refusal, RunWorld, VerifierWorld
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.engine import outcome
from taskfold.engine.parts import Parts
from taskfold.engine.watch import Key, Seen
from taskfold.protocol.phase import User

DOCUMENT_BYTES = 1024 * 1024
IMAGE = "image.json"
COLLECTED = "collected.json"
ROW = "row.json"


class Observer:
    """Reads the world of one run at a time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self, key: Key) -> RunWorld | None:
        """The world of a TaskRun; None: there is no such object."""
        seen = await self._run(key.namespace, key.name)
        if seen is None:
            return None
        run = seen.run
        status, prefix = run.status, self._prefix(run)
        if status.complete or run.metadata.deletion_timestamp is not None:
            return self._bare(run, seen)
        final = status.phase is not None and status.phase.final
        attempt = status.attempts[-1] if status.attempts else None
        task = await self._task(run)
        recorded = await self._recorded(run, task)
        name = names.pod(run.metadata.name, attempt.number, attempt.tries) if attempt else None
        must_exist = attempt is not None and (attempt.pod_uid is not None or final)
        pod = await self._pod(key.namespace, name, confirm=must_exist) if name else None
        # A further attempt has the snapshot of the first one's seed; what the source says by now is not asked (C25).
        unplaced = pod is None and not must_exist and not final and (attempt is None or attempt.number == 1)
        verifier_name = status.verifier.name if status.verifier is not None else None
        if verifier_name is None and attempt is not None:
            # Made, perhaps, and not recorded yet: the watch's picture will do, a second creation would find it.
            expected = names.verifier(run.metadata.name, attempt.number)
            verifier_name = expected if (key.namespace, expected) in self._parts.watch.verifiers else None
        collected = await self._collected(prefix) if final and status.store else None
        return RunWorld(
            run=run,
            spec_digest=seen.spec_digest,
            now=self._parts.clock(),
            nonces=(self._parts.nonce(), self._parts.nonce()),
            settings=self._parts.settings,
            admission=await self._admission(run) if unplaced else None,
            task=task,
            pod=pod,
            departed=self._departed(key.namespace, name) if pod is None else None,
            phases=self._reports(status.journal),
            recorded=recorded,
            image_user=await self._image_user(task, recorded, pod),
            verifier=await self._verifier_of(run, verifier_name) if verifier_name else None,
            store_prefix=prefix,
            collected=collected,
            row_stored=collected is not None and await self._parts.store.exists(prefix + ROW),
        )

    async def verifier(self, key: Key) -> VerifierWorld | None:
        """The world of a VerifierRun; None: there is no such object."""
        seen = self._parts.watch.verifiers.get((key.namespace, key.name))
        if seen is None and await self._verifier(key.namespace, key.name) is not None:
            seen = self._parts.watch.verifiers.get((key.namespace, key.name))
        if seen is None:
            return None
        verifier = seen.verifier
        run: TaskRun | None = None
        if not verifier.status.complete:
            found = await self._run(key.namespace, verifier.spec.source.run_ref.name)
            run = found.run if found is not None else None
        attempt = run.status.attempts[-1] if run is not None and run.status.attempts else None
        pod_name = attempt.pod_name if attempt else None
        pod = await self._pod(key.namespace, pod_name, confirm=True) if pod_name else None
        task = await self._task(run) if run is not None else None
        recorded = await self._recorded(run, task) if run is not None else None
        return VerifierWorld(
            verifier=verifier,
            spec_digest=seen.spec_digest,
            now=self._parts.clock(),
            nonces=(self._parts.nonce(), self._parts.nonce()),
            settings=self._parts.settings,
            run=run,
            task=task,
            pod=pod,
            departed=self._departed(key.namespace, pod_name) if pod is None else None,
            phases=self._reports(verifier.status.journal),
            recorded=recorded,
            image_user=await self._image_user(task, recorded, pod),
        )

    def _bare(self, run: TaskRun, seen: Seen) -> RunWorld:
        return RunWorld(
            run=run, spec_digest=seen.spec_digest, now=self._parts.clock(), nonces=(), settings=self._parts.settings
        )

    def _prefix(self, run: TaskRun, attempt: int | None = None) -> str:
        """Where this attempt keeps what it leaves; without a number the current one."""
        number = attempt or (run.status.attempts[-1].number if run.status.attempts else 1)
        return stores.run_prefix(self._parts.settings.cluster_name, run.metadata.namespace, run.metadata.uid, number)

    def _reports(self, journal: Sequence[JournalEntry]) -> dict[str, PhaseReport]:
        reports = ((entry.nonce, self._parts.activities.report(entry.nonce)) for entry in journal)
        return {nonce: report for nonce, report in reports if report is not None}

    async def _run(self, namespace: str, name: str) -> Seen | None:
        seen = self._parts.watch.runs.get((namespace, name))
        if seen is None:
            try:
                self._parts.watch.see_run(await self._parts.client.get(api.TASKRUNS, namespace, name))
            except errors.NotFound:
                return None
        return self._parts.watch.runs.get((namespace, name))

    async def _verifier(self, namespace: str, name: str) -> VerifierRun | None:
        seen = self._parts.watch.verifiers.get((namespace, name))
        if seen is None:
            try:
                self._parts.watch.see_verifier(await self._parts.client.get(api.VERIFIERRUNS, namespace, name))
            except errors.NotFound:
                return None
            seen = self._parts.watch.verifiers[namespace, name]
        return seen.verifier

    async def _verifier_of(self, run: TaskRun, name: str) -> VerifierRun | None:
        """The VerifierRun of this run. One of an older run of the same name has a verdict about other work."""
        found = await self._verifier(run.metadata.namespace, name)
        return found if found is not None and found.spec.source.run_ref.uid == run.metadata.uid else None

    def _departed(self, namespace: str, name: str | None) -> pods.PodView | None:
        seen = self._parts.watch.departed.get((namespace, name)) if name else None
        return seen.pod if seen is not None else None

    async def _pod(self, namespace: str, name: str, *, confirm: bool) -> pods.PodView | None:
        seen = self._parts.watch.pods.get((namespace, name))
        if seen is None and confirm:
            try:
                self._parts.watch.see_pod(await self._parts.client.get(api.PODS, namespace, name))
            except errors.NotFound:
                return None
            seen = self._parts.watch.pods.get((namespace, name))
        return seen.pod if seen is not None else None

    async def _task(self, run: TaskRun) -> tasks.Task | None:
        admitted, found = run.status.admitted, run.status.task
        if admitted is None or admitted.task_digest is None or found is None:
            return None
        return await self._parts.snapshots.task(run.metadata.namespace, admitted.task_digest, found.id or "")

    # -- admission -------------------------------------------------------------------------------------------------

    async def _admission(self, run: TaskRun) -> Admission | Refusal | None:
        """What the source holds now. After admission only its digest is compared; inline files cannot change."""
        admitted = run.status.admitted
        if admitted is not None and run.spec.task.config_map is None:
            return None
        try:
            return await self._load(run)
        except outcome.Waiting as waiting:
            return Refusal(waiting.reason, waiting.message, terminal=False)
        except outcome.Refused as refused:
            return Refusal(refused.reason, refused.message)
        except TaskError as error:
            wrong = outcome.of_task(error)
            return Refusal(wrong.reason, wrong.message)

    async def _load(self, run: TaskRun) -> Admission:
        namespace, spec = run.metadata.namespace, run.spec
        folder = await self._parts.sources.folder(namespace, spec.task)
        task = loader.load(folder, task_id=_task_id(run))
        digest = digests.task_digest(folder)
        host = await self._parts.sources.variables(namespace, spec.environment_from)
        secrets = await self._parts.sources.secrets(namespace, spec.secrets_from)
        # A missing required value fails the episode before any sandbox starts (seed "Environment variables").
        environment.resolve_task(task.config, host, secrets=secrets, solution=spec.agent.oracle is not None)
        recorded = await self._record(task)
        self._parts.snapshots.remember(digest, folder, task)
        return Admission(digest, task, recorded)

    async def _record(self, task: tasks.Task) -> RecordedImage | None:
        settings = task.image.dockerfile
        if settings is None:
            return None
        try:
            base = await self._parts.registry.image_config(task.image.reference)
        except errors.RegistryError as error:
            raise outcome.Waiting(Reason.IMAGE_UNREADABLE, str(error)) from error
        config = dockerfile.apply(settings, base.config)
        dockerfile.check_record(config, task.image.reference)
        return RecordedImage(task.image.reference, base.digest, config)

    async def _recorded(self, run: TaskRun, task: tasks.Task | None) -> RecordedImage | None:
        """The image on record: kept once, at admission, with the first attempt, for all of them."""
        if task is None or task.image.dockerfile is None:
            return None
        document = await self._parts.store.get(self._prefix(run, 1) + IMAGE, limit=DOCUMENT_BYTES)
        return RecordedImage.of(json.loads(document))

    async def _image_user(
        self, task: tasks.Task | None, recorded: RecordedImage | None, pod: pods.PodView | None
    ) -> User | None:
        """Who the image starts as: from its record, else by the id of the image that runs, else by its name."""
        if task is None:
            return None
        if recorded is not None:
            user = users.of_image(recorded.config.user) or users.ROOT
            return User(user.name, user.uid, user.gid, group=user.group)
        image_id = pod.main.image_id if pod is not None and pod.main is not None else ""
        return await self._parts.image_users.get(image_id or task.image.reference)

    async def _collected(self, prefix: str) -> dict[str, object] | None:
        try:
            document = json.loads(await self._parts.store.get(prefix + COLLECTED, limit=DOCUMENT_BYTES))
        except stores.NotStored:
            return None
        return dict(document)


def _task_id(run: TaskRun) -> str:
    """The task's name in results: `task.id`, else the folder's name, else the run's."""
    task = run.spec.task
    return task.id or (task.path.rstrip("/").rpartition("/")[2] if task.path else "") or run.metadata.name
