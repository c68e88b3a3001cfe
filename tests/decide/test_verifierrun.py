"""decide/verifierrun.py: hooks, test.sh, the verdict; and every way to have none."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decide import worlds

from taskfold.api import status as api_status
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.status import Stage
from taskfold.decide import plan as plans
from taskfold.decide import verdicts, verifierrun, verifying
from taskfold.decide.world import PhaseActive, PhaseDone, PhaseRefused, PhaseUnreached
from taskfold.protocol.phase import FileState

HOOKED = worlds.task('[[verifier.collect]]\ncommand = "make report"\ntimeout_sec = 30')
TEST = worlds.program("test")
ASK = plans.RunPhase("verify", worlds.VERIFY)


def judged(*runs, **files):
    """The plan for a verification that ended with these programs and files (`json`, `txt`)."""
    paths = {"json": verdicts.REWARD_JSON, "txt": verdicts.REWARD_TXT}
    read = {paths[name]: found for name, found in files.items()}
    phases = worlds.done(worlds.VERIFY, *runs, files=read)
    return verifierrun.decide(worlds.verifier_world(worlds.verifying(), phases=phases))


# -- the ladder ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "deleted"),
    [(None, True), (worlds.verifying(), True), (worlds.verdict(), False), (worlds.verdict(Phase.MASKED), False)],
    ids=["new, deleted", "verifying, deleted", "complete", "complete, masked"],
)
def test_nothing_is_left_to_do(status, deleted):
    world = worlds.verifier_world(status, deleted=deleted, cancel=True, spec_digest="sha256:other", pod=None)
    assert verifierrun.decide(world) is plans.NOTHING


def test_admission_writes_the_journal_and_sends_nothing():
    plan = verifierrun.decide(worlds.verifier_world())
    assert plan.effects == ()
    status = plan.status
    assert status is not None
    assert status.phase is Phase.VERIFYING
    assert [(each.phase, each.nonce, each.pod_uid) for each in status.journal] == [
        ("verify", worlds.FRESH[0], worlds.POD_UID)
    ]


def test_hooks_have_a_phase_of_their_own_before_the_verification():
    plan = verifierrun.decide(worlds.verifier_world(task=HOOKED))
    assert plan.status is not None
    assert [(each.phase, each.nonce) for each in plan.status.journal] == [
        ("hooks", worlds.FRESH[0]),
        ("verify", worlds.FRESH[1]),
    ]


@pytest.mark.parametrize(
    "changes",
    [{"run": worlds.run(worlds.TaskRunStatus())}, {"task": None}],
    ids=["the run has no attempt", "its task is not there"],
)
def test_admission_waits_for_what_it_needs(changes):
    plan = verifierrun.decide(worlds.verifier_world(**changes))
    assert plan == plans.Plan(again=verifierrun.HANDOVER_SECONDS)


ENDS = {
    "spec changed": (worlds.verifying(), {"spec_digest": "sha256:other"}, Phase.FAILED, "SpecChanged"),
    "cancelled": (worlds.verifying(), {"cancel": True}, Phase.CANCELLED, "Cancelled"),
    "cancelled before admission": (None, {"cancel": True}, Phase.CANCELLED, "Cancelled"),
    "unsupported field": (
        None,
        {"tests": {"git": {"url": "https://a/b", "ref": "main"}}},
        Phase.FAILED,
        "UnsupportedField",
    ),
    "no such run": (None, {"run": None}, Phase.FAILED, "SourceNotFound"),
    "the run of an older object": (
        None,
        {"source": {"runRef": {"name": worlds.NAME, "uid": "older"}}},
        Phase.FAILED,
        "SourceNotFound",
    ),
    "the run was made anew": (
        worlds.verifying(),
        {
            "run": worlds.run(worlds.handed_over()).model_copy(
                update={"metadata": worlds.run().metadata.model_copy(update={"uid": "newer"})}
            )
        },
        Phase.FAILED,
        "SourceNotFound",
    ),
    "the run ended without it": (
        worlds.verifying(),
        {"run": worlds.run(worlds.ended(Phase.CANCELLED))},
        Phase.FAILED,
        "NameConflict",
    ),
    "another verification has the pod": (
        worlds.verifying(),
        {"run": worlds.run(worlds.handed_over("another", phase=Phase.MASKED))},
        Phase.FAILED,
        "NameConflict",
    ),
}


@pytest.mark.parametrize(("status", "changes", "phase", "reason"), ENDS.values(), ids=ENDS)
def test_an_end_without_a_verdict(status, changes, phase, reason):
    plan = verifierrun.decide(worlds.verifier_world(status, **changes))
    assert plan.status is not None
    failure = worlds.failure_of(plan)
    assert (plan.status.phase, failure.reason, failure.stage) == (phase, reason, Stage.VERIFICATION)
    assert (plan.status.complete, plan.status.reward, plan.effects) == (True, None, ())


@pytest.mark.parametrize("status", [worlds.running(), worlds.handed_over(None)], ids=["running", "closing"])
def test_the_pod_is_not_touched_before_it_is_handed_over(status):
    plan = verifierrun.decide(worlds.verifier_world(worlds.verifying(), run=worlds.run(status), pod=None))
    assert plan == plans.Plan(again=verifierrun.HANDOVER_SECONDS)


def test_a_verdict_wins_over_cancel():
    phases = worlds.done(worlds.VERIFY, TEST, files={verdicts.REWARD_TXT: b"1"})
    plan = verifierrun.decide(worlds.verifier_world(worlds.verifying(), cancel=True, phases=phases))
    assert worlds.phase_of(plan) is Phase.SUCCEEDED


# -- phases --------------------------------------------------------------------------------------------------------

WAITS = {
    "not asked for yet": (None, (ASK,), None),
    "active": (PhaseActive(), (), None),
    "unreached, not yet due": (PhaseUnreached("no route", 1, 3.0), (), Reason.VERIFYING),
    "unreached, due": (PhaseUnreached("no route", 1, 0.0), (ASK,), None),
}


@pytest.mark.parametrize(("report", "effects", "reason"), WAITS.values(), ids=WAITS)
def test_test_sh_is_asked_for_until_it_has_ended(report, effects, reason):
    phases = {} if report is None else {worlds.VERIFY: report}
    plan = verifierrun.decide(worlds.verifier_world(worlds.verifying(), phases=phases))
    assert (plan.status, plan.effects, worlds.reason_of(plan)) == (None, effects, reason)
    assert plan.again is not None
    assert plan.again > 0


@pytest.mark.parametrize("report", [PhaseActive("x"), PhaseUnreached("no route", 9, 0.0)], ids=["active", "unreached"])
def test_a_verifier_without_an_end_masks_well_after_its_limit(report):
    def plan(since, asked):
        phases = {worlds.VERIFY: replace(report, asked=asked)}
        return verifierrun.decide(worlds.verifier_world(worlds.verifying(since=since), phases=phases))

    assert plan(600 + 119.0, 600.0).status is None, "within its limit"
    assert plan(600 + 121.0, 120.0).status is None, "this process has only begun to ask"
    late = plan(600 + 121.0, 121.0)
    assert (worlds.phase_of(late), worlds.failure_of(late).reason) == (Phase.MASKED, "DeadlineExceeded")


LIMITS = {
    "the task's": ({}, worlds.TASK, {}, 600.0),
    "the run's own, never scaled": ({"timeoutSeconds": 7}, worlds.TASK, {"multipliers": {"timeout": 2}}, 7.0),
    "scaled": ({}, worlds.TASK, {"multipliers": {"timeout": 2}}, 1200.0),
    "with hooks": ({}, HOOKED, {}, 630.0),
    "unknown": ({}, None, {}, 600.0),
}


@pytest.mark.parametrize(("own", "task", "spec", "seconds"), LIMITS.values(), ids=LIMITS)
def test_the_limit(own, task, spec, seconds):
    world = worlds.verifier_world(worlds.verifying(), task=task, run=worlds.run(worlds.handed_over(), **spec), **own)
    assert verifying.limit(world) == seconds


# -- hooks ---------------------------------------------------------------------------------------------------------


def hooked(report=None, **changes):
    phases = {} if report is None else {worlds.HOOKS: report}
    world = worlds.verifier_world(worlds.verifying(hooks=True), task=HOOKED, phases=phases, **changes)
    return verifierrun.decide(world)


def test_hooks_come_first():
    assert hooked().effects == (plans.RunPhase("hooks", worlds.HOOKS),)


HOOK_RESULTS = {
    "all well": (worlds.program("hook 1"), []),
    "failed": (worlds.program("hook 1", 2), ["[[verifier.collect]] hook 1 ended with return code 2"]),
    "failed with words": (
        worlds.program("hook 1", 2, inline=b"no rule to make target\n"),
        ["[[verifier.collect]] hook 1 ended with return code 2: no rule to make target"],
    ),
    "killed by a signal": (
        worlds.program("hook 1", None, signal=11),
        ["[[verifier.collect]] hook 1 was ended by signal 11"],
    ),
    "over its limit": (
        worlds.program("hook 1", None, signal=9, timed_out=True),
        ["[[verifier.collect]] hook 1 was killed at its limit"],
    ),
    "not started": (worlds.program("hook 1", None, start_error="no bash"), ["[[verifier.collect]] hook 1: no bash"]),
}


@pytest.mark.parametrize(("run", "warnings"), HOOK_RESULTS.values(), ids=HOOK_RESULTS)
def test_a_hook_that_fails_is_a_warning(run, warnings):
    plan = hooked(worlds.done(worlds.HOOKS, run)[worlds.HOOKS])
    assert plan.status is not None
    assert (plan.status.phase, plan.status.warnings) == (Phase.VERIFYING, warnings)
    assert [bool(each.ended_at) for each in plan.status.journal] == [True, False]
    then = verifierrun.decide(worlds.verifier_world(plan.status, task=HOOKED))
    assert then.effects == (ASK,)


def test_hooks_that_cannot_be_started_are_a_warning():
    plan = hooked(PhaseRefused("Prepare", "no room"))
    assert plan.status is not None
    assert plan.status.phase is Phase.VERIFYING
    assert "no room" in plan.status.warnings[0]


# -- verdicts ------------------------------------------------------------------------------------------------------

VERDICTS = {
    "reward.txt": ({"txt": b"0.25\n"}, TEST, "0.25", None, "VerdictReached"),
    "reward.json": ({"json": b'{"a": 0.5, "b": 0.5}'}, TEST, "1", None, "VerdictReached"),
    "reward.json wins": ({"json": b'{"reward": 0}', "txt": b"1"}, TEST, "0", None, "VerdictReached"),
    "a return code is no verdict": ({"txt": b"1"}, worlds.program("test", 1), "1", None, "VerdictReached"),
    "negative": ({"txt": b"-2"}, TEST, "-2", None, "VerdictReached"),
    "minus zero": ({"txt": b"-0.0"}, TEST, "0", None, "VerdictReached"),
    "nothing": ({}, TEST, "0", "harbor:missing_reward", "RewardMissing"),
    "malformed": ({"txt": b"much"}, TEST, "0", "harbor:invalid_reward", "RewardInvalid"),
    "a link": ({"txt": FileState.NOT_REGULAR}, TEST, "0", "harbor:invalid_reward", "RewardInvalid"),
    "too large": ({"json": FileState.TOO_LARGE}, TEST, "0", "harbor:invalid_reward", "RewardInvalid"),
    "over the limit": (
        {},
        worlds.program("test", None, timed_out=True),
        "0",
        "harbor:verifier_timeout",
        "VerifierTimedOut",
    ),
    "over the limit, written before": (
        {"txt": b"1"},
        worlds.program("test", None, timed_out=True),
        "1",
        None,
        "VerdictReached",
    ),
}


@pytest.mark.parametrize(("files", "test", "reward", "kind", "reason"), VERDICTS.values(), ids=VERDICTS)
def test_a_verdict_counts(files, test, reward, kind, reason):
    plan = judged(test, **files)
    status = plan.status
    assert status is not None
    assert (status.phase, status.reward, status.masked, status.complete) == (Phase.SUCCEEDED, reward, False, True)
    assert worlds.reason_of(plan) == reason
    assert (status.failure.kind if status.failure else None) == kind
    assert (status.verifier.return_code, status.verifier.timed_out) == (test.return_code, test.timed_out)
    assert plan.effects == ()


def test_output_that_was_not_kept_is_a_warning():
    plan = judged(worlds.program("test", output_error="no space left"), txt=b"1")
    assert plan.status is not None
    assert plan.status.warnings == ["test.sh's output: no space left"]


def test_an_input_that_was_no_regular_file_is_a_warning():
    """C20. What the reset of /tests dropped is nobody's input: it keeps nothing."""
    reset = {"op": "reset", "dropped": ["actions.jsonl"]}
    ended = worlds.result(worlds.VERIFY, TEST, files={verdicts.REWARD_TXT: b"1"})
    ended = replace(ended, prepared=({"op": "reset", "dropped": []}, reset))
    world = worlds.verifier_world(worlds.verifying(), phases={worlds.VERIFY: PhaseDone(ended)})
    plan = verifierrun.decide(world)
    assert plan.status is not None
    assert plan.status.reward == "1"
    (note,) = plan.status.warnings
    assert note == "the input actions.jsonl was no regular file after the agent's end, and was removed"


def test_what_the_memory_limit_killed_is_a_warning():
    plan = judged(worlds.program("test", oom_kills=1), txt=b"1")
    assert plan.status is not None
    assert plan.status.reward == "1"
    assert plan.status.warnings == ["the memory limit of the sandbox killed 1 process(es) while test ran"]


@pytest.mark.parametrize(("count", "kept"), [(1, False), (128, False), (129, True), (1000, True)])
def test_more_rewards_than_a_status_holds_are_kept_in_the_store(count, kept):
    values = {f"r{number}": 0.5 for number in range(count)}
    plan = judged(TEST, json=json.dumps(values).encode())
    assert plan.effects == ((plans.StoreRewards(worlds.PREFIX, values),) if kept else ())
    assert plan.status is not None
    assert (plan.status.complete, plan.status.reward) == (True, api_status.reward_text(count * 0.5))


def test_a_run_without_a_place_in_the_store_keeps_its_verdict_all_the_same():
    values = {f"r{number}": 1 for number in range(200)}
    phases = worlds.done(worlds.VERIFY, TEST, files={verdicts.REWARD_JSON: json.dumps(values).encode()})
    run = worlds.run(worlds.handed_over(store=None))
    plan = verifierrun.decide(worlds.verifier_world(worlds.verifying(), phases=phases, run=run))
    assert (worlds.phase_of(plan), plan.effects) == (Phase.SUCCEEDED, ())


def test_an_active_phase_is_looked_at_again_when_it_is_to_be_given_up():
    plan = verifierrun.decide(worlds.verifier_world(worlds.verifying(), phases={worlds.VERIFY: PhaseActive()}))
    assert plan.again == 600.0 + worlds.SETTINGS.limits.agent_grace_seconds - 5 + 1
    late = verifierrun.decide(
        worlds.verifier_world(worlds.verifying(since=9000.0), phases={worlds.VERIFY: PhaseActive()})
    )
    assert late.again == 1.0


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_reward_reads_back_as_the_same_number(reward):
    assert float(api_status.reward_text(reward)) == reward
    assert not api_status.reward_text(reward).endswith(".0")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_verdict_spells_its_reward_as_the_api_does(reward):
    status = judged(TEST, txt=repr(reward).encode()).status
    assert status is not None
    assert status.reward == api_status.reward_text(reward)


# -- after a break -------------------------------------------------------------------------------------------------


def test_an_operator_that_comes_back_late_asks_the_sandbox_before_it_gives_up():
    late = worlds.verifying(since=7200.0)
    assert verifierrun.decide(worlds.verifier_world(late)).effects == (ASK,)
    plan = verifierrun.decide(worlds.verifier_world(late, phases={worlds.VERIFY: PhaseActive()}))
    assert worlds.phase_of(plan) is not Phase.MASKED
