"""decide/seed.py: RUN lines, entrypoint and health checks before the agent, and what their failures are called."""

from dataclasses import replace

import pytest
from tests.decide import worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import JournalPhase, Stage
from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.images import RecordedImage
from taskfold.decide import plan as plans
from taskfold.decide import sandbox, seed, taskrun
from taskfold.decide.world import PhaseActive, PhaseRefused, PhaseWaiting

OVERLAY = "0" * 32
LINES = worlds.task(files={"task.toml": "", "environment/Dockerfile": "FROM base:1\nRUN first\n"})
CHECKED = worlds.task("[environment.healthcheck]", 'command = "true"', "interval_sec = 20", "timeout_sec = 10")
ENTRYPOINT = RecordedImage("base:1", "sha256:" + "9" * 64, ImageConfig(entrypoint=("/entry",)))
SEED_SECONDS = worlds.SETTINGS.limits.seed_seconds


def overlaid(*, over: bool = False, **changes):
    """A sandbox whose RUN lines come first. `over`: they have run."""
    entry = worlds.entry(JournalPhase.OVERLAY, OVERLAY, ended_at=worlds.ago(3) if over else None)
    status = worlds.placed()
    status = status.model_copy(update={"journal": [entry, *status.journal]})
    return worlds.world(status, **{"task": LINES, "recorded": ENTRYPOINT, **changes})


def test_a_pod_gets_an_entry_for_run_lines_only_where_there_are_some():
    for task, names in ((worlds.TASK, ["seed", "agent"]), (LINES, ["overlay", "seed", "agent"])):
        plan = taskrun.decide(worlds.world(worlds.queued(), task=task, pod=worlds.ready()))
        assert plan.status is not None
        assert [each.phase.value for each in plan.status.journal] == names
        nonces = [each.nonce for each in plan.status.journal]
        assert nonces == list(worlds.FRESH[: len(names)])


def test_run_lines_come_before_the_seed():
    assert taskrun.decide(overlaid()).effects == (plans.RunPhase("overlay", OVERLAY),)
    assert taskrun.decide(overlaid(over=True)).effects == (plans.RunPhase("seed", worlds.SEED),)


def test_run_lines_that_ran_close_their_entry_and_the_next_look_seeds():
    ran = worlds.done(OVERLAY, worlds.program("line 2: RUN first"), seconds_ago=2.0)
    plan = taskrun.decide(overlaid(phases=ran))
    assert plan.status is not None
    assert plan.status.phase is Phase.SEEDING
    assert plan.status.journal[0].ended_at == worlds.ago(0)
    assert (plan.status.timings["overlay"], plan.again) == (1.0, 0)


FAILURES = {
    "a RUN line": (
        overlaid,
        worlds.done(OVERLAY, worlds.program("line 2: RUN first", 4, inline=b"no such package\n")),
        Reason.RUN_LINE_FAILED,
        "environment/Dockerfile, line 2: RUN first ended with return code 4: no such package",
    ),
    "a RUN line over the limit": (
        overlaid,
        worlds.done(OVERLAY, worlds.program("line 2: RUN first", None, signal=9, timed_out=True)),
        Reason.RUN_LINE_FAILED,
        "was killed at its limit",
    ),
    "an entrypoint": (
        lambda **more: overlaid(over=True, **more),
        worlds.done(worlds.SEED, beside=[worlds.program("entrypoint", 3)]),
        Reason.ENTRYPOINT_FAILED,
        "the image's entrypoint ended with return code 3",
    ),
    "an entrypoint before its check": (
        lambda **more: overlaid(over=True, **more),
        worlds.done(
            worlds.SEED,
            worlds.program("HEALTHCHECK", 1),
            beside=[worlds.program("entrypoint", None, start_error="gone")],
        ),
        Reason.ENTRYPOINT_FAILED,
        "entrypoint: gone",
    ),
    "a check": (
        lambda **more: worlds.world(worlds.placed(), task=CHECKED, **more),
        worlds.done(worlds.SEED, worlds.program("[environment.healthcheck]", 1, attempts=3, inline=b"closed\n")),
        Reason.HEALTHCHECK_FAILED,
        "[environment.healthcheck] ended with return code 1: closed (3 attempts)",
    ),
    "a check with one attempt": (
        lambda **more: worlds.world(worlds.placed(), task=CHECKED, **more),
        worlds.done(worlds.SEED, worlds.program("HEALTHCHECK", 1)),
        Reason.HEALTHCHECK_FAILED,
        "(1 attempt)",
    ),
}


@pytest.mark.parametrize(("made", "phases", "reason", "words"), FAILURES.values(), ids=FAILURES)
def test_what_fails_before_the_agent_costs_the_try_and_at_last_the_run(made, phases, reason, words):
    plan = taskrun.decide(made(phases=phases))
    assert (worlds.phase_of(plan), worlds.reason_of(plan)) == (Phase.QUEUED, Reason.RETRYING)
    assert plan.effects == (plans.DeletePod(worlds.POD, worlds.POD_UID),)
    world = made(phases=phases)
    status = world.run.status
    last = status.model_copy(update={"attempts": [status.attempts[-1].model_copy(update={"tries": 3})]})
    plan = taskrun.decide(replace(world, run=world.run.model_copy(update={"status": last})))
    failure = worlds.failure_of(plan)
    assert (worlds.phase_of(plan), failure.reason, failure.stage) == (Phase.FAILED, reason, Stage.SEED)
    assert not failure.terminal
    assert words in failure.message
    assert "after 3 tries" in failure.message


def test_an_entrypoint_that_ended_with_0_is_no_failure():
    plan = taskrun.decide(overlaid(over=True, phases=worlds.done(worlds.SEED, beside=[worlds.program("entrypoint")])))
    assert worlds.phase_of(plan) is Phase.RUNNING


def test_missing_tools_are_told_before_a_check_that_needed_them():
    phases = worlds.done(worlds.SEED, worlds.program("HEALTHCHECK", None, start_error="bash"), missing=["bash"])
    plan = taskrun.decide(worlds.world(worlds.placed(), task=CHECKED, phases=phases))
    assert (worlds.phase_of(plan), worlds.failure_of(plan).reason) == (Phase.MASKED, Reason.MISSING_TOOLS)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (PhaseRefused("ForbiddenUser", "user 0"), Reason.FORBIDDEN_BY_PROFILE),
        (PhaseRefused("Protocol", "x"), Reason.RETRYING),
    ],
)
def test_refused_run_lines(refused, reason):
    assert worlds.reason_of(taskrun.decide(overlaid(phases={OVERLAY: refused}))) is reason


def test_a_seed_has_the_time_that_its_checks_may_take():
    plain = worlds.world(worlds.placed())
    assert seed.seed_limit(plain) == SEED_SECONDS
    checked = worlds.world(worlds.placed(), task=CHECKED, recorded=ENTRYPOINT)
    assert seed.seed_limit(checked) == pytest.approx(SEED_SECONDS + (10 + 5 + 3 * 30) * 1.1 + 60 + 1)
    assert sandbox.pod_limit(checked) == sandbox.pod_limit(replace(checked, recorded=None)) + 1
    assert sandbox.pod_limit(overlaid()) == sandbox.pod_limit(plain) + 600 + 1


@pytest.mark.parametrize("nonce", [OVERLAY, worlds.SEED])
def test_a_long_seed_is_let_go_of_and_watched(nonce):
    """Only then has the journal to say when it started."""
    report = PhaseWaiting(worlds.ago(100), 0.0, signalled=False, since=90.0)
    plan = taskrun.decide(overlaid(over=nonce == worlds.SEED, phases={nonce: report}))
    assert [type(effect) for effect in plan.effects] == [plans.RunPhase]
    assert plan.status is not None
    assert next(each for each in plan.status.journal if each.nonce == nonce).started_at == worlds.ago(100)
    assert worlds.phase_of(plan) is Phase.SEEDING


def test_a_seed_that_just_runs_is_only_waited_for():
    plan = taskrun.decide(worlds.world(worlds.placed(), phases={worlds.SEED: PhaseActive(worlds.ago(1))}))
    assert (plan.effects, worlds.phase_of(plan)) == ((), Phase.SEEDING)


def test_build_timeout_sec_bounds_pull_and_start_where_a_task_sets_it():
    own = worlds.task("environment.build_timeout_sec = 30")
    for task, seconds in ((own, 30), (worlds.TASK, worlds.SETTINGS.limits.pod_start_seconds)):
        for age, reason in ((seconds - 1, Reason.POD_STARTING), (seconds + 1, Reason.RETRYING)):
            pod = worlds.seen({"phase": "Pending", "startTime": worlds.ago(age)}, created=age)
            status = worlds.placed(Phase.QUEUED, since=age)
            assert worlds.reason_of(taskrun.decide(worlds.world(status, task=task, pod=pod))) is reason
