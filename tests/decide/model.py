"""A small model of a cluster for one run: applies plans, lets pods and phases happen, and watches what is asked of it.

The model is faithful where the promises lie: a phase starts at most once for a nonce and ends once, a pod that is gone
stays gone, what a process remembers of phases is lost with it. Everything else goes well unless a test says otherwise.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.decide import worlds

from taskfold.api import names
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Attempt, JournalPhase, Mode
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun, VerifierRunStatus
from taskfold.contract import separate
from taskfold.contract import steps as contract
from taskfold.contract.task import Task
from taskfold.decide import plan as plans
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide import step_status, steps, taskrun, verdicts, verifierrun
from taskfold.decide.world import (
    Admission,
    CopyActive,
    CopyFailed,
    CopyReport,
    OwnSandbox,
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    PhaseReport,
    PhaseUnreached,
    RunWorld,
    VerifierWorld,
)
from taskfold.engine import status as statuses
from taskfold.protocol.artifacts import Manifest
from taskfold.protocol.phase import PhaseResult, User

MANY = ", ".join(f'"r{number}": 1' for number in range(200))
"""More rewards than a status holds."""

OWN_LIMIT = 'Container main exceeded its local ephemeral storage limit "1Gi". '
ENDED = {
    pods.MAIN: pods.view(worlds.pod_object({"containerStatuses": [worlds.stopped("Error", 137)]})).containers["main"]
}
LOSSES: tuple[dict[str, Any], ...] = (
    {"reason": "Evicted"},
    {"reason": "Evicted", "message": OWN_LIMIT},
    {"reason": "DeadlineExceeded"},
    {"containers": ENDED, "phase": "Failed"},
)
"""What may become of a sandbox that works: nobody's fault, the agent's, or undecided. It may be gone too."""

FOR_VERIFIERS = (
    plans.RunPhase,
    plans.StoreRewards,
    plans.Export,
    plans.KeepLogs,
    plans.CreatePod,
    plans.DeletePod,
    plans.StoreImageUser,
    plans.ForgetPhases,
)
"""What a verification may ask for."""

Pick = Callable[[Sequence[Any]], Any]
"""Chooses one: a Hypothesis draw, or the first for a calm world."""


@dataclass
class Sandbox:
    """A pod and the helper's memory in it: by nonce, a result or None while the phase runs."""

    view: pods.PodView
    phases: dict[str, PhaseResult | None] = field(default_factory=dict)


@dataclass
class Cluster:
    """The run, its VerifierRuns by name, its pods, the store by prefix, and this operator process's memory."""

    run: TaskRun
    task: Task
    now: datetime = worlds.NOW
    verifiers: dict[str, VerifierRun] = field(default_factory=dict)
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    reports: dict[str, PhaseReport] = field(default_factory=dict)
    collected: dict[str, dict[str, object]] = field(default_factory=dict)
    rows: dict[str, plans.StoreRow] = field(default_factory=dict)
    rewards: dict[str, dict[str, float]] = field(default_factory=dict)
    refusing: bool = False
    """The API server takes no VerifierRun for now."""
    image_user: User | None = None
    copies: dict[str, CopyReport] = field(default_factory=dict)
    """By VerifierRun: what this process knows of the copy that it is busy with."""
    copying: dict[str, str] = field(default_factory=dict)
    """By VerifierRun: the place to which it copies."""
    manifests: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    agent_starts: list[tuple[int, str, str | None]] = field(default_factory=list)
    """(attempt, pod uid, step) of each start of the agent's own program."""
    test_starts: list[str] = field(default_factory=list)
    """The VerifierRun of each start of test.sh in a sandbox of its own."""
    nonces: Iterator[int] = field(default_factory=itertools.count)

    @property
    def attempt(self) -> int:
        attempts = self.run.status.attempts
        return attempts[-1].number if attempts else 1

    @property
    def verifier(self) -> VerifierRun | None:
        """The VerifierRun of the current attempt, of several steps that of the last one that has one."""
        status = self.run.status
        if status.verifier is not None and status.verifier.name is not None:
            return self.verifiers.get(status.verifier.name)
        return self.verifiers.get(steps.verifier_name(self.run, self.task)) if status.attempts else None

    @property
    def prefix(self) -> str:
        """The current attempt's place in the store."""
        return worlds.PREFIX.replace("/1/", f"/{self.attempt}/")

    # -- what the operator does ------------------------------------------------------------------------------------

    def reconcile_run(self) -> None:
        """One reconcile of the TaskRun, with everything that must hold of it."""
        world = self._run_world()
        plan = taskrun.decide(world)
        assert plan == taskrun.decide(world), "the same world gave two plans"
        old = self.run.status
        if old.complete:
            assert (plan.status, plan.effects) == (None, ()), "a complete run asked for something"
        for effect in plan.effects:
            if isinstance(effect, plans.RunPhase):
                assert effect.nonce in to.current_nonces(old), "sent under a nonce that is not in the status"
                if effect.phase == JournalPhase.AGENT:
                    assert old.phase is Phase.RUNNING, "the agent before phase Running"
                assert old.verifier is None, "a phase of the run while the pod is the VerifierRun's"
            if isinstance(effect, plans.CreateVerifierRun) and self.refusing:
                plan = plans.Plan(note=plans.Note(Reason.VERIFIER_ERROR, "no"))
                break
            self._apply(effect)
        if plan.status is not None:
            if old.phase is not None and old.phase.final:
                assert plan.status.phase is old.phase, "a final phase was left"
            if old.reward is not None:
                assert plan.status.reward == old.reward, "a reward changed"
            if len(plan.status.attempts) == len(old.attempts):
                assert plan.status.steps[: len(old.steps)] == old.steps, "what was said of a step changed"
            if plan.status.complete:
                assert set(self.rows) == {self.prefix}, "complete before its row was durable, or with another's"
        if plan.status is not None or plan.note is not None:
            status = statuses.wished(self.run, plan.status or old, plan.note, self.now)
            self.run = self.run.model_copy(update={"status": status})

    def reconcile_verifiers(self) -> None:
        """One reconcile of each VerifierRun, those of lost attempts included."""
        for name in list(self.verifiers):
            self._reconcile_verifier(name)

    def _reconcile_verifier(self, name: str) -> None:
        verifier = self.verifiers[name]
        world = self._verifier_world(verifier)
        plan = verifierrun.decide(world)
        assert plan == verifierrun.decide(world), "the same world gave two plans"
        old = verifier.status
        if old.complete:
            assert plan is plans.NOTHING
            return
        assert plan.effects or plan.status is not None or plan.again is not None, "nothing will ever happen"
        for effect in plan.effects:
            assert isinstance(effect, FOR_VERIFIERS), effect
            if isinstance(effect, plans.RunPhase):
                self._may_run(effect, world)
            if isinstance(effect, plans.DeletePod) and world.pod is not None and effect.uid == world.pod.uid:
                assert old.store in self.manifests, "the agent's pod deleted before everything of it was in the store"
                assert world.last, "a later step needs the agent's pod"
            self._apply_to(effect, verifier)
        if plan.status is not None:
            self._may_become(old, plan.status, world)
        if plan.status is not None or plan.note is not None:
            status = statuses.wished(verifier, plan.status or old, plan.note, self.now)
            self.verifiers[name] = verifier.model_copy(update={"status": status})

    def _may_run(self, effect: plans.RunPhase, world: VerifierWorld) -> None:
        """What must hold when a phase of a verification is asked for."""
        status, verifier = world.verifier.status, world.verifier
        assert effect.nonce in to.current_nonces(status), "sent under a nonce that is not in the status"
        assert self.run.status.verifier is not None
        assert self.run.status.verifier.uid == verifier.metadata.uid, "before the pod was handed over"
        if verifier.spec.mode is Mode.SHARED or effect.phase == JournalPhase.HOOKS:
            return
        assert status.agent_stopped_time is not None or not world.last, "delivered before the proof (C32)"
        assert status.store in self.manifests, "graded before the artifacts were kept"
        if effect.phase == JournalPhase.VERIFY:
            assert status.phase is Phase.VERIFYING, "test.sh before phase Verifying"

    def _may_become(self, old: VerifierRunStatus, new: VerifierRunStatus, world: VerifierWorld) -> None:
        """What must hold of a new status of a verification."""
        if old.phase is not None and old.phase.final:
            assert (new.phase, new.reward) == (old.phase, old.reward), "a final phase was left"
        if old.phase is Phase.VERIFYING and world.verifier.spec.mode is Mode.SEPARATE:
            assert new.attempts == old.attempts, "another try after test.sh may have run"
            assert new.phase is not None
            assert new.phase is Phase.VERIFYING or new.phase.final, "back to before test.sh"
        verifies = [each.pod_uid for each in new.journal if each.phase is JournalPhase.VERIFY]
        assert len(verifies) == len(set(verifies)), "two verifications of one pod"
        if new.complete and new.attempts:
            assert new.store in self.kept, "complete before its logs were kept"
            own = self.sandboxes.get(names.verifier_pod(world.verifier.metadata.name, new.attempts[-1].tries))
            assert own is None or own.view.deleting, "complete with its own pod still there"
        if old.agent_stopped_time is None and new.agent_stopped_time is not None:
            agent = self.sandboxes.get(self.run.status.attempts[-1].pod_name or "")
            assert agent is None or pods.stopped(agent.view), "proven, and it works on"

    def restart(self) -> None:
        """The operator's process is another one now."""
        self.reports.clear()
        self.copies.clear()
        self.copying.clear()

    # -- what happens by itself ------------------------------------------------------------------------------------

    def happen(self, pick: Pick) -> None:
        """Time goes on; pods and phases come along, or not."""
        self.now += timedelta(seconds=pick([1, 5, 40, 2000]))
        for nonce, report in self.reports.items():
            if isinstance(report, PhaseUnreached):
                self.reports[nonce] = replace(report, retry_in=0.0)
        for name, copy in self.copies.items():
            if isinstance(copy, CopyFailed):
                self.copies[name] = replace(copy, retry_in=0.0)
        for name, sandbox in list(self.sandboxes.items()):
            view = self._pod_moves(sandbox.view, pick)
            if view is None:
                del self.sandboxes[name]
            else:
                sandbox.view = view
        for nonce in [nonce for nonce, report in self.reports.items() if isinstance(report, PhaseActive)]:
            self._phase_moves(nonce, pick)
        for name in list(self.copying):
            self._copy_moves(name, pick)

    def _copy_moves(self, name: str, pick: Pick) -> None:
        """The end of a copy, whole or not; or it goes on."""
        place, verifier = self.copying[name], self.verifiers[name]
        agent = self.sandboxes.get(self.run.status.attempts[-1].pod_name or "")
        final = verifier.status.phase is not None and verifier.status.phase.final
        lost = not final and (agent is None or pods.loss(agent.view) is not None)
        match pick(["done", "done", "break", "away", "go on"]):
            case "done" if not lost:
                (self.kept if final else self.manifests).add(place)
                self.copies.pop(name)
                self.copying.pop(name)
            case "away":
                self.copies[name] = CopyFailed(
                    Reason.STORE_UNAVAILABLE.value, "503", pick([0.0, 3.0]), pick([1.0, 9e3])
                )
                self.copying.pop(name)
            case "go on":
                pass
            case _:
                self.copies[name] = CopyFailed(
                    Reason.TRANSFER_FAILED.value, "reset", pick([0.0, 3.0]), pick([1.0, 9e3])
                )
                self.copying.pop(name)

    def _pod_moves(self, view: pods.PodView, pick: Pick) -> pods.PodView | None:
        if view.deleting:
            ended = replace(view, containers=ENDED) if view.main is not None else view
            return pick([None, None, ended, view])
        if view.main is not None and view.main.running:
            return pick([view, view, view, view, *(replace(view, **change) for change in LOSSES), None])
        if pods.loss(view) is not None:
            return view
        record = worlds.stopped("Completed", 0, '{"uid": 0, "gid": 0, "groups": []}', name="record")
        since = {"running": {"startedAt": to.stamp(self.now)}}
        ready = worlds.seen(
            {"phase": "Running", "initContainerStatuses": [record], "containerStatuses": [worlds.container(since)]}
        )
        failing = worlds.seen({"containerStatuses": [worlds.waits(pick(["ErrImagePull", "StartError"]))]})
        lost = worlds.seen({"phase": "Failed", "reason": "OutOfcpu"})
        containers = pick([ready, ready, failing, lost])
        return replace(containers, name=view.name, uid=view.uid, created=view.created, owner_uid=view.owner_uid)

    def _phase_moves(self, nonce: str, pick: Pick) -> None:
        entry = next(each for each in self._journal() if each.nonce == nonce)
        sandbox = next((each for each in self.sandboxes.values() if each.view.uid == entry.pod_uid), None)
        if sandbox is None or pods.loss(sandbox.view) is not None:
            self.reports[nonce] = PhaseUnreached("no such pod", 1, 0.0)
            return
        if nonce in sandbox.phases:
            result = sandbox.phases[nonce]
            if result is None and pick([True, False]):
                result = sandbox.phases[nonce] = self._result(entry.phase, nonce, pick)
                if entry.phase is JournalPhase.AGENT and result.run("agent") is None:  # setup.sh kept it from starting
                    self.agent_starts.remove((entry.attempt, sandbox.view.uid, entry.step))
            unreached = PhaseUnreached("connection lost", 1, 0.0)
            self.reports[nonce] = PhaseDone(result) if result and pick([True, False]) else unreached
            return
        match pick(["start", "refuse", "lose"]):
            case "start":
                sandbox.phases[nonce] = None
                self._started(entry, sandbox)
                if entry.phase is JournalPhase.AGENT:
                    self.agent_starts.append((entry.attempt, sandbox.view.uid, entry.step))
            case "refuse":
                self.reports[nonce] = PhaseRefused(pick(["Prepare", "Digest", "UnknownUser"]), "refused")
            case "lose":
                self.reports[nonce] = PhaseUnreached("no route", 1, pick([0.0, 2.0]))

    def _started(self, entry: Any, sandbox: Sandbox) -> None:
        """Whatever was asked for and whenever it arrives: nothing of the agent's works beside its verifier (C32)."""
        owner = next((each for each in self.verifiers.values() if each.metadata.uid == sandbox.view.owner_uid), None)
        if owner is None:
            return
        if entry.phase is JournalPhase.VERIFY:
            self.test_starts.append(owner.metadata.name)
        steps_left = self.task.steps and owner.spec.step != self.task.steps[-1].name
        agent = self.sandboxes.get(self.run.status.attempts[-1].pod_name or "")
        assert steps_left or agent is None or pods.stopped(agent.view), "delivered beside a living agent"

    def _result(self, phase: JournalPhase, nonce: str, pick: Pick) -> PhaseResult:
        programs: dict[JournalPhase, list[Any]] = {
            JournalPhase.SEED: [()],
            JournalPhase.AGENT: self._agents(),
            JournalPhase.HOOKS: [(worlds.program("hook 1", code),) for code in (0, 1)],
            JournalPhase.VERIFY: [(worlds.program("test", code),) for code in (0, 1)],
        }
        many = {verdicts.REWARD_JSON: f"{{{MANY}}}".encode()}
        files = pick([{verdicts.REWARD_TXT: b"1"}, {verdicts.REWARD_TXT: b"0.5"}, {}, {"x": b"y"}, many])
        missing = pick([(), ("find",)]) if phase is JournalPhase.SEED else ()
        found = worlds.result(nonce, *pick(programs[phase]), files=files, missing=missing)
        return replace(found, started_at=to.stamp(self.now), ended_at=to.stamp(self.now))

    def _agents(self) -> list[Any]:
        ends: list[Any] = [(worlds.program("agent", code),) for code in (0, 1)]
        return [*ends, (worlds.program("setup", 1),)] if self.task.steps else ends

    # -- worlds and effects ----------------------------------------------------------------------------------------

    def _fresh(self) -> tuple[str, str]:
        return f"{next(self.nonces):032x}", f"{next(self.nonces):032x}"

    def _journal(self) -> list[Any]:
        return [*self.run.status.journal, *(e for each in self.verifiers.values() for e in each.status.journal)]

    def _run_world(self) -> RunWorld:
        status = self.run.status
        final = status.phase is not None and status.phase.final
        attempt = status.attempts[-1] if status.attempts else None
        name = f"{worlds.NAME}-{attempt.number}-{attempt.tries}" if attempt else ""
        sandbox = self.sandboxes.get(name)
        return RunWorld(
            run=self.run,
            spec_digest=worlds.SPEC_DIGEST,
            now=self.now,
            nonces=self._fresh(),
            settings=worlds.SETTINGS,
            admission=Admission(worlds.TASK_DIGEST, self.task),
            task=self.task if status.admitted else None,
            pod=sandbox.view if sandbox else None,
            phases=self._reports(status.journal),
            image_user=self.image_user,
            verifier=self.verifier,
            store_prefix=self.prefix,
            collected=self.collected.get(self.prefix) if final and status.store else None,
            row_stored=self.prefix in self.rows,
            step_rewards={
                number: self.rewards[step_status.place(self.prefix, step.name)]
                for number, step in enumerate(self.task.steps)
                if step_status.place(self.prefix, step.name) in self.rewards
            },
        )

    def _verifier_world(self, verifier: VerifierRun) -> VerifierWorld:
        attempt = self.run.status.attempts[-1]
        sandbox = self.sandboxes.get(attempt.pod_name or "")
        return VerifierWorld(
            verifier=verifier,
            spec_digest=worlds.SPEC_DIGEST,
            now=self.now,
            nonces=self._fresh(),
            settings=worlds.SETTINGS,
            run=self.run,
            task=contract.named(self.task, verifier.spec.step) if verifier.spec.step else self.task,
            pod=sandbox.view if sandbox else None,
            phases=self._reports(verifier.status.journal),
            image_user=self.image_user,
            **self._apart(verifier, attempt),
        )

    def _apart(self, verifier: VerifierRun, attempt: Attempt) -> dict[str, Any]:
        """What a separate verification has beside: its own sandbox, and the store."""
        status, step = verifier.status, verifier.spec.step
        if verifier.spec.mode is Mode.SHARED:
            return {}
        turn = contract.named(self.task, step) if step else self.task
        assert turn is not None
        name = names.verifier_pod(verifier.metadata.name, status.attempts[-1].tries if status.attempts else 1)
        own = self.sandboxes.get(name)
        prefix = worlds.PREFIX.replace("/1/", f"/{attempt.number}/")
        place = status.store or (step_status.place(prefix, step) if step else prefix)
        closing, final = status.phase is Phase.CLOSING, status.phase is not None and status.phase.final
        return {
            "own": OwnSandbox(name, separate.sandbox(turn), own.view if own else None, image_user=self.image_user),
            "place": place,
            "manifest": Manifest() if closing and place in self.manifests else None,
            "kept": {"archive": None, "error": ""} if final and place in self.kept else None,
            "copy": self.copies.get(verifier.metadata.name),
        }

    def _apply_to(self, effect: plans.Effect, verifier: VerifierRun) -> None:
        """An effect of a VerifierRun's plan."""
        name = verifier.metadata.name
        match effect:
            case plans.Export(place=place) | plans.KeepLogs(place=place):
                self.copies[name], self.copying[name] = CopyActive(), place
            case plans.CreatePod():
                self._create(effect, verifier.metadata.uid)
            case _:
                self._apply(effect)

    def _create(self, effect: plans.CreatePod, owner: str) -> None:
        view = worlds.unscheduled("", created=0)
        uid = f"uid-{effect.name}-{next(self.nonces)}"
        fresh = replace(view, name=effect.name, uid=uid, owner_uid=owner, created=to.stamp(self.now))
        self.sandboxes.setdefault(effect.name, Sandbox(fresh))

    def _reports(self, journal: Sequence[Any]) -> dict[str, PhaseReport]:
        return {each.nonce: self.reports[each.nonce] for each in journal if each.nonce in self.reports}

    def _apply(self, effect: plans.Effect) -> None:
        match effect:
            case plans.CreatePod():
                self._create(effect, self.run.metadata.uid)
            case plans.DeletePod(name=name, uid=uid):
                found = self.sandboxes.get(name)
                if found is not None and found.view.uid == uid:
                    found.view = replace(found.view, deleted_at=to.stamp(self.now))
            case plans.RunPhase(nonce=nonce):
                if not isinstance(self.reports.get(nonce), PhaseDone):
                    self.reports[nonce] = PhaseActive()
            case plans.CreateVerifierRun(name=name, attempt=attempt, mode=mode, step=step):
                assert (name, attempt) == (steps.verifier_name(self.run, self.task), self.attempt)
                made = worlds.verifier(mode=mode.value, **({"step": step} if step is not None else {}))
                uid = {"name": name, "uid": f"uid-{name}"}
                made = made.model_copy(update={"metadata": made.metadata.model_copy(update=uid)})
                self.verifiers.setdefault(name, made)
            case plans.CancelVerifierRun(name=name):
                spec = self.verifiers[name].spec.model_copy(update={"cancel": True})
                self.verifiers[name] = self.verifiers[name].model_copy(update={"spec": spec})
            case plans.Collect(prefix=prefix):
                assert prefix == self.prefix, "files in another attempt's place"
                self.collected.setdefault(prefix, {"error": ""})
            case plans.ForgetPhases(nonces=nonces):
                for nonce in nonces:
                    self.reports.pop(nonce, None)
            case plans.StoreImageUser():
                self.image_user = worlds.ROOT
            case plans.StoreRow(prefix=prefix):
                assert prefix in self.collected, "a row before the files"
                self.rows.setdefault(prefix, effect)
            case plans.StoreRewards(prefix=prefix, rewards=rewards):
                assert prefix.startswith(self.prefix), "rewards in another attempt's place"
                self.rewards.setdefault(prefix, dict(rewards))
            case plans.StoreSnapshot() | plans.StoreRecordedImage():
                pass
            case plans.DeleteRun():
                raise AssertionError("the run has no time to live")
