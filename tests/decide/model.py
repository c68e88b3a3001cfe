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

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalPhase
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.contract import steps as contract
from taskfold.contract.task import Task
from taskfold.decide import plan as plans
from taskfold.decide import pod as pods
from taskfold.decide import status as to
from taskfold.decide import step_status, steps, taskrun, verdicts, verifierrun
from taskfold.decide.world import (
    Admission,
    PhaseActive,
    PhaseDone,
    PhaseRefused,
    PhaseReport,
    PhaseUnreached,
    RunWorld,
    VerifierWorld,
)
from taskfold.engine import status as statuses
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
    agent_starts: list[tuple[int, str, str | None]] = field(default_factory=list)
    """(attempt, pod uid, step) of each start of the agent's own program."""
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
        for effect in plan.effects:
            if isinstance(effect, plans.StoreRewards):
                self._apply(effect)
                continue
            assert isinstance(effect, plans.RunPhase)
            assert effect.nonce in to.current_nonces(old), "sent under a nonce that is not in the status"
            assert self.run.status.verifier is not None
            assert self.run.status.verifier.uid == verifier.metadata.uid, "before the pod was handed over"
            self._apply(effect)
        if plan.status is not None:
            self.verifiers[name] = verifier.model_copy(update={"status": plan.status})

    def restart(self) -> None:
        """The operator's process is another one now."""
        self.reports.clear()

    # -- what happens by itself ------------------------------------------------------------------------------------

    def happen(self, pick: Pick) -> None:
        """Time goes on; pods and phases come along, or not."""
        self.now += timedelta(seconds=pick([1, 5, 40, 2000]))
        for nonce, report in self.reports.items():
            if isinstance(report, PhaseUnreached):
                self.reports[nonce] = replace(report, retry_in=0.0)
        for name, sandbox in list(self.sandboxes.items()):
            view = self._pod_moves(sandbox.view, pick)
            if view is None:
                del self.sandboxes[name]
            else:
                sandbox.view = view
        for nonce in [nonce for nonce, report in self.reports.items() if isinstance(report, PhaseActive)]:
            self._phase_moves(nonce, pick)

    def _pod_moves(self, view: pods.PodView, pick: Pick) -> pods.PodView | None:
        if view.deleting:
            return None
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
        return replace(containers, name=view.name, uid=view.uid, created=view.created)

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
            unreached = PhaseUnreached("connection lost", 1, 0.0)
            self.reports[nonce] = PhaseDone(result) if result and pick([True, False]) else unreached
            return
        match pick(["start", "refuse", "lose"]):
            case "start":
                sandbox.phases[nonce] = None
                if entry.phase is JournalPhase.AGENT:
                    self.agent_starts.append((entry.attempt, sandbox.view.uid, entry.step))
            case "refuse":
                self.reports[nonce] = PhaseRefused(pick(["Prepare", "Digest", "UnknownUser"]), "refused")
            case "lose":
                self.reports[nonce] = PhaseUnreached("no route", 1, pick([0.0, 2.0]))

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
        )

    def _reports(self, journal: Sequence[Any]) -> dict[str, PhaseReport]:
        return {each.nonce: self.reports[each.nonce] for each in journal if each.nonce in self.reports}

    def _apply(self, effect: plans.Effect) -> None:
        match effect:
            case plans.CreatePod(name=name):
                view = worlds.unscheduled("", created=0)
                fresh = replace(view, name=name, uid=f"uid-{name}-{next(self.nonces)}", created=to.stamp(self.now))
                self.sandboxes.setdefault(name, Sandbox(fresh))
            case plans.DeletePod(name=name, uid=uid):
                found = self.sandboxes.get(name)
                if found is not None and found.view.uid == uid:
                    found.view = replace(found.view, deleted_at=to.stamp(self.now))
            case plans.RunPhase(nonce=nonce):
                if not isinstance(self.reports.get(nonce), PhaseDone):
                    self.reports[nonce] = PhaseActive()
            case plans.CreateVerifierRun(name=name, attempt=attempt, step=step):
                assert (name, attempt) == (steps.verifier_name(self.run, self.task), self.attempt)
                made = worlds.verifier(**({"step": step} if step is not None else {}))
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
