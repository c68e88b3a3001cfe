"""From a key to a world: everything that a decision may look at, read now.

Guarantees: what is absent in the watch's picture and matters is asked of the API server before a decision relies on
its absence; reading changes nothing.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from taskfold.api import names
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalEntry, Mode, NetworkStatus
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import separate as separate_builder
from taskfold.contract import artifacts as artifact_rules
from taskfold.contract import dialect, dockerfile, environment, loader, separate, users
from taskfold.contract import digest as digests
from taskfold.contract import steps as turns
from taskfold.contract import task as tasks
from taskfold.contract.errors import TaskError
from taskfold.contract.images import RecordedImage
from taskfold.contract.task_toml import VerifierMode
from taskfold.decide import pod as pods
from taskfold.decide import profile as profiles
from taskfold.decide import regrade, restriction, step_status, steps
from taskfold.decide import verifierrun as verifierruns
from taskfold.decide.world import Admission, NetworkWorld, OwnSandbox, PhaseReport, Refusal, RunWorld, VerifierWorld
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.engine import collecting, outcome, separation
from taskfold.engine.copying import What
from taskfold.engine.networks import Networks
from taskfold.engine.parts import Parts
from taskfold.engine.watch import Key, Seen
from taskfold.protocol import artifacts
from taskfold.protocol.phase import User

DOCUMENT_BYTES = 1024 * 1024
IMAGE = "image.json"
NONCES = 3
"""As many phases as a decision can begin at once: RUN lines, seed and agent."""
REWARDS = "rewards.json"


class Observer:
    """Reads the world of one run at a time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._networks = Networks(parts)

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
        verifier_name = status.verifier.name if status.verifier is not None else None
        if verifier_name is None and attempt is not None:
            # Made, perhaps, and not recorded yet: the watch's picture will do, a second creation would find it.
            expected = steps.verifier_name(run, task)
            verifier_name = expected if (key.namespace, expected) in self._parts.watch.verifiers else None
        verifier = await self._verifier_of(run, verifier_name) if verifier_name else None
        stopped = verifier is not None and verifier.status.agent_stopped_time is not None  # it is known to be gone
        pod = await self._pod(key.namespace, name, confirm=must_exist and not stopped) if name else None
        # A further attempt has the snapshot of the first one's seed; what the source says by now is not asked (C25).
        unplaced = pod is None and not must_exist and not final and (attempt is None or attempt.number == 1)
        copy = self._parts.copies.report(key, What.END) if final else None  # before what it may have written by then
        collected = (
            await collecting.document(self._parts.store, prefix + collecting.COLLECTED)
            if final and status.store
            else None
        )
        return RunWorld(
            run=run,
            spec_digest=seen.spec_digest,
            now=self._parts.clock(),
            nonces=tuple(self._parts.nonce() for _ in range(NONCES)),
            settings=self._parts.settings,
            admission=await self._admission(run) if unplaced else None,
            task=task,
            pod=pod,
            departed=self._departed(key.namespace, name) if pod is None else None,
            network=await self._network(run, task, pod, status.network, place=prefix if final else None),
            phases=self._reports(status.journal),
            recorded=recorded,
            image_user=await self._image_user(run, task, recorded, pod),
            verifier=verifier,
            store_prefix=prefix,
            collected=collected,
            row_stored=collected is not None and await self._parts.store.exists(prefix + collecting.ROW),
            step_rewards=await self._step_rewards(run, task, verifier, prefix) if not final else {},
            copy=copy,
            response=await self._response(run),
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
        stopped = verifier.status.agent_stopped_time is not None or (run is not None and run.status.complete)
        pod = await self._pod(key.namespace, pod_name, confirm=not stopped) if pod_name else None
        alone = run is not None and not verifierruns.made_for(verifier, run)
        regraded = await self._regraded(verifier, run) if run is not None and alone else None
        if alone:
            task = regraded.task if isinstance(regraded, Admission) else None
        else:
            task = await self._task(run) if run is not None else None
        if task is not None and verifier.spec.step is not None:
            task = turns.named(task, verifier.spec.step)
        recorded = await self._recorded(run, task) if run is not None else None
        place = verifier.status.store or (self._place(run, verifier) if run is not None else None)
        final = verifier.status.phase is not None and verifier.status.phase.final
        copy = self._parts.copies.report(key, What.LOGS if final else What.EXPORT)  # before what it may have written
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
            network=await self._network(run, task, pod, _agents(verifier, run)) if pod is not None and run else None,
            phases=self._reports(verifier.status.journal),
            recorded=recorded,
            image_user=await self._image_user(run, task, recorded, pod),
            own=await self._own(verifier, run, task, recorded),
            place=place,
            regraded=regraded,
            manifest=await self._manifest(verifier, run, place),
            kept=await self._kept(place) if final and not verifier.status.complete else None,
            copy=copy,
        )

    def _place(self, run: TaskRun, verifier: VerifierRun) -> str | None:
        """Where a verification keeps what it leaves: with its run and step; one that stands alone by itself."""
        if not verifierruns.made_for(verifier, run):
            settings, metadata = self._parts.settings, verifier.metadata
            return stores.run_prefix(settings.cluster_name, metadata.namespace, metadata.uid, 1)
        return separation.source(run, verifier)

    async def _own(
        self, verifier: VerifierRun, run: TaskRun | None, task: tasks.Task | None, recorded: RecordedImage | None
    ) -> OwnSandbox | None:
        """The sandbox that a separate verification has for itself, as far as it has come."""
        if verifier.spec.mode is not Mode.SEPARATE or run is None or task is None or task.separate is None:
            return None
        seen, own_task = separate_builder.run_of(run, verifier), separate.sandbox(task)
        own_recorded = recorded if own_task.image.dockerfile is not None else None
        attempts, namespace = verifier.status.attempts, verifier.metadata.namespace
        name = names.verifier_pod(verifier.metadata.name, attempts[-1].tries if attempts else 1)
        final = verifier.status.phase is not None and verifier.status.phase.final
        must_exist = bool(attempts) and (final or attempts[-1].pod_uid is not None)
        pod = await self._pod(namespace, name, confirm=must_exist)
        network = None
        if verifier.status.admitted is not None:
            wanted, uid = restriction.of_verifier(verifier, own_task), verifier.metadata.uid
            place = verifier.status.store if final else None
            network = await self._networks.world(wanted, namespace, uid, verifier.status.network, pod=pod, place=place)
        return OwnSandbox(
            name=name,
            task=own_task,
            pod=pod,
            network=network,
            departed=self._departed(namespace, name) if pod is None else None,
            recorded=own_recorded,
            image_user=await self._image_user(seen, own_task, own_recorded, pod),
        )

    async def _manifest(
        self, verifier: VerifierRun, run: TaskRun | None, place: str | None
    ) -> artifacts.Manifest | None:
        """The artifacts that are kept, when that is to be decided upon: before their sandbox is stopped, and before
        they are graded again.
        """
        status = verifier.status
        if verifier.spec.mode is not Mode.SEPARATE or run is None or place is None:
            return None
        if status.phase is Phase.CLOSING:
            found = await collecting.document(self._parts.store, place + collecting.MANIFEST)
        elif status.admitted is None and run.status.complete:
            kept = separation.source(run, verifier)
            found = await collecting.document(self._parts.store, kept + collecting.MANIFEST) if kept else None
        else:
            return None
        return artifacts.Manifest.of(found) if found is not None else None

    async def _kept(self, place: str | None) -> dict[str, object] | None:
        return await collecting.document(self._parts.store, place + collecting.VERIFIER) if place is not None else None

    async def _network(
        self,
        run: TaskRun,
        task: tasks.Task | None,
        pod: pods.PodView | None,
        known: NetworkStatus | None,
        *,
        place: str | None = None,
    ) -> NetworkWorld | None:
        """Of the agent's sandbox. `place`: in the store, once it is over."""
        if task is None or run.status.admitted is None:
            return None
        wanted = restriction.of_run(run, task)
        metadata = run.metadata
        return await self._networks.world(wanted, metadata.namespace, metadata.uid, known, pod=pod, place=place)

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
        return found if found is not None and found.run_uid == run.metadata.uid else None

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
        namespace, digest = run.metadata.namespace, admitted.task_digest
        task = await self._parts.snapshots.task(namespace, digest, found.id or "", self._terms(run))
        return artifact_rules.with_further(task, run.spec.artifacts)

    async def _regraded(self, verifier: VerifierRun, run: TaskRun) -> Admission | Refusal | None:
        """The task that a VerifierRun of its own grades: the run's, for a separate verifier, with the tests that it
        names. Once it is admitted its own snapshot is read.
        """
        admitted, found, namespace = run.status.admitted, run.status.task, verifier.metadata.namespace
        if admitted is None or admitted.task_digest is None or found is None or not run.status.complete:
            return None
        terms = replace(self._terms(run), mode=VerifierMode.SEPARATE)
        mine, id_ = verifier.status.admitted, found.id or ""
        digest = mine.task_digest if mine is not None and mine.task_digest else admitted.task_digest
        try:
            if mine is None and verifier.spec.tests is not None:
                tests = await self._parts.sources.folder(namespace, verifier.spec.tests)
                digest = await self._parts.snapshots.with_tests(namespace, digest, tests, verifier.spec.step)
            task = await self._parts.snapshots.task(namespace, digest, id_, terms)
            return Admission(digest, artifact_rules.with_further(task, run.spec.artifacts))
        except outcome.Waiting as waiting:
            return Refusal(waiting.reason, waiting.message, terminal=False)
        except outcome.Refused as refused:
            return Refusal(refused.reason, refused.message)
        except stores.NotStored:
            return Refusal(Reason.NOT_GRADABLE, "the task's folder is not kept any more")
        except TaskError as error:
            return Refusal(Reason.NOT_GRADABLE, regrade.unfit(error) or outcome.of_task(error).message)

    def _terms(self, run: TaskRun) -> loader.Terms:
        """What the run and the operator say about how its folder is to be read."""
        own = run.spec.verifier
        mode = VerifierMode(own.mode.value) if own is not None and own.mode is not None else None
        rules, admitted = dialect.RULES[run.spec.dialect.value], run.status.admitted
        option = self._parts.settings.separate_verifier_for_artifacts
        return loader.Terms(
            mode, rules, separate_artifacts=admitted.separate_for_artifacts if admitted is not None else option
        )

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
        folder = await self._parts.sources.task(namespace, spec.task, extras=self._terms(run).rules.gym_extras)
        task = loader.load(folder, task_id=_task_id(run), name=_folder_name(run), terms=self._terms(run))
        artifact_rules.with_further(task, spec.artifacts)  # what may not be taken is told now
        digest = digests.task_digest(folder)
        host = await self._parts.sources.variables(namespace, spec.environment_from)
        secrets = await self._parts.sources.secrets(namespace, spec.secrets_from)
        # A missing required value fails the episode before any sandbox starts (seed "Environment variables").
        environment.resolve_task(task.config, host, secrets=secrets, solution=spec.agent.oracle is not None)
        recorded = await self._record(run, task)
        self._parts.snapshots.remember(digest, folder, task, self._terms(run))
        return Admission(digest, task, recorded)

    async def _record(self, run: TaskRun, task: tasks.Task) -> RecordedImage | None:
        """The image's configuration, if it counts as on record: read once, before the run is admitted."""
        instructions = task.image.dockerfile
        if instructions is None or run.status.admitted is not None:
            return None
        secrets = run.spec.pod.image_pull_secrets if run.spec.pod is not None else ()
        logins = await self._parts.sources.logins(run.metadata.namespace, [secret.name for secret in secrets])
        try:
            found = await self._parts.registry.image_config(task.image.reference, logins=logins)
        except errors.RegistryError as error:
            raise outcome.Waiting(Reason.IMAGE_UNREADABLE, str(error)) from error
        config = dockerfile.apply(instructions, found.config)
        return RecordedImage(task.image.reference, found.digest, config, found.config)

    async def _recorded(self, run: TaskRun, task: tasks.Task | None) -> RecordedImage | None:
        """The image on record: kept once, at admission, with the first attempt, for all of them."""
        if task is None or task.image.dockerfile is None:
            return None
        document = await self._parts.store.get(self._prefix(run, 1) + IMAGE, limit=DOCUMENT_BYTES)
        return RecordedImage.of(json.loads(document))

    async def _step_rewards(
        self, run: TaskRun, task: tasks.Task | None, verifier: VerifierRun | None, prefix: str
    ) -> dict[int, dict[str, float]]:
        """All rewards of the steps that have a verdict, when one is to be copied. A store that was lost has none."""
        graded = verifier is not None and verifier.status.phase is not None and verifier.status.phase.final
        if task is None or not task.steps or not graded:
            return {}
        found: dict[int, dict[str, float]] = {}
        for number, step in enumerate(task.steps[: len(run.status.steps) + 1]):
            key = step_status.place(prefix, step.name) + REWARDS
            try:
                found[number] = json.loads(await self._parts.store.get(key, limit=stores.NEW_BYTES))
            except stores.NotStored:
                continue
        return found

    async def _image_user(
        self,
        run: TaskRun | None,
        task: tasks.Task | None,
        recorded: RecordedImage | None,
        pod: pods.PodView | None,
    ) -> User | None:
        """Who the image starts as: by its profile, from its record, else by the id of the image that runs, else by its
        name.
        """
        if run is None or task is None:
            return None
        confined = profiles.of(run, task, self._parts.settings, recorded)
        if confined.uid is not None:
            return User(uid=confined.uid, gid=confined.gid)
        if recorded is not None:
            user = users.of_image(recorded.config.user) or users.ROOT
            return User(user.name, user.uid, user.gid, group=user.group)
        image_id = pod.main.image_id if pod is not None and pod.main is not None else ""
        return await self._parts.image_users.get(image_id or task.image.reference)

    async def _response(self, run: TaskRun) -> str | Refusal | None:
        """What `finish.responseFrom` names, from the moment at which it counts until the pod is handed over."""
        finish, status = run.spec.finish, run.status
        if finish is None or finish.response_from is None or status.phase not in (Phase.RUNNING, Phase.CLOSING):
            return None
        try:
            return await self._parts.sources.text(run.metadata.namespace, finish.response_from.config_map_key_ref)
        except outcome.Waiting as waiting:
            return Refusal(waiting.reason, waiting.message, terminal=False)
        except outcome.Refused as refused:
            return Refusal(refused.reason, refused.message)


def _agents(verifier: VerifierRun, run: TaskRun) -> NetworkStatus | None:
    """What is known of the network of the agent's sandbox, while it is this verification's."""
    shared = verifier.status.network if verifier.spec.mode is Mode.SHARED else None
    return shared or run.status.network


def _task_id(run: TaskRun) -> str:
    """The task's name in results: `task.id`, else the folder's name, else the run's."""
    return run.spec.task.id or _folder_name(run) or run.metadata.name


def _folder_name(run: TaskRun) -> str:
    """Of the task's folder inside its source; "" when the source is the folder."""
    return (run.spec.task.path or "").rstrip("/").rpartition("/")[2]
