"""build/steps.py: what a turn of a multi-step task adds to the agent's phase."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decide import worlds

from taskfold.api import names
from taskfold.api.common import MAX_RUN_NAME
from taskfold.api.status import Mode
from taskfold.build import phases, python_verifier, steps, verifierrun
from taskfold.contract import folder as folders
from taskfold.contract import health, loader
from taskfold.contract import steps as contract
from taskfold.protocol.phase import Directory, Move, Reset, Unpack, User

TOML = """
[environment]
docker_image = "python:3.12-slim"
workdir = "/app"
[[steps]]
name = "one"
[steps.agent]
user = "app"
[[steps]]
name = "two"
healthcheck = { command = "probe", timeout_sec = 2, interval_sec = 1, retries = 2, start_interval_sec = 0 }
[steps.agent]
timeout_sec = 50
user = 1000
[[steps.verifier.collect]]
command = "x"
user = "collector"
"""
FILES = {
    "task.toml": TOML,
    "tests/test.sh": "common",
    "tests/common": "common",
    "steps/one/instruction.md": "First.",
    "steps/one/workdir/setup.sh": "true",
    "steps/one/tests/test.sh": "of one",
    "steps/two/instruction.md": "Second.",
    "steps/two/workdir/deep/file": "x",
}
SNAPSHOT = folders.MemoryFolder({path: (text.encode(), False) for path, text in FILES.items()})
TASK = loader.load(SNAPSHOT, task_id="t")
SCRIPT = {"script": {"install": "get", "run": "work"}}
ENV = {"A": "b"}


def sandbox(number: int, task=TASK, agent=SCRIPT) -> phases.Sandbox:
    return phases.Sandbox(worlds.run(agent=agent), contract.turn(task, number), None, User(uid=0))


def opened(number: int, task=TASK):
    box = sandbox(number, task)
    agent = phases.agent(box, worlds.AGENT, {"OF": "agent"}, 1800.0)
    return steps.opened(box, agent, ENV, 900.0), agent


def test_the_first_turn_clears_nothing_and_installs():
    request, agent = opened(0)
    unpack = Unpack("/app", user=User(name="app"), links="follow")
    assert request.prepare == (unpack, *agent.prepare)
    assert [run.name for run in request.runs] == ["setup", "install", "agent"]
    setup = request.runs[0]
    assert (setup.argv, setup.cwd, setup.user) == (("bash", "setup.sh"), "/app", User(name="app"))
    assert (setup.env, setup.limit_seconds, setup.continue_on_failure) == (ENV, 900.0, False)
    assert request.limit_seconds is None


def test_a_later_turn_clears_first_and_keeps_the_logs():
    request, agent = opened(1)
    assert request.prepare[:7] == (
        Move("/logs/verifier", "/logs/steps/one/verifier"),
        Move("/logs/agent", "/logs/steps/one/agent"),
        Reset("/tests"),
        Reset("/logs/verifier"),
        Directory("/logs/verifier", "0777"),
        Reset("/logs/agent"),
        Directory("/logs/agent", "0777"),
    )
    assert request.prepare[7:] == (Unpack("/app", user=User(uid=1000), links="follow"), *agent.prepare)


def test_a_later_turn_is_checked_and_does_not_install_again():
    request, _ = opened(1)
    assert [run.name for run in request.runs] == ["healthcheck", "agent"]
    check = request.runs[0]
    assert (check.user, check.continue_on_failure) == (User(uid=0), False), "the image's user"
    table = TASK.steps[1].config.healthcheck
    assert table is not None
    assert request.limit_seconds == health.of_table(table).longest + 50


def test_declared_inputs_survive_the_reset():
    request, _ = opened(1, replace(TASK, inputs=("actions.jsonl",)))
    kept = [op.keep for op in request.prepare if isinstance(op, Move | Reset) and op.path == "/logs/verifier"]
    assert kept == [("actions.jsonl",), ("actions.jsonl",)]


def test_an_image_whose_working_directory_nobody_wrote_down():
    task = loader.load(
        folders.MemoryFolder({**_all(), "task.toml": (TOML.replace('workdir = "/app"\n', "").encode(), False)}),
        task_id="t",
    )
    request, _ = opened(0, task)
    assert request.prepare[0] == Unpack("", user=User(name="app"), links="follow")


def _all():
    return {path: (text.encode(), False) for path, text in FILES.items()}


def test_the_archives_of_a_turn():
    assert steps.folders(contract.turn(TASK, 1)) == ("steps/two/workdir",)
    assert steps.folders(TASK) == ()
    assert steps.variables(contract.turn(TASK, 1)) == {"TASKFOLD_STEP": "two"}
    assert steps.variables(TASK) == {}


def test_a_single_step_task_is_left_as_it_is():
    box = phases.Sandbox(worlds.run(agent=SCRIPT), worlds.TASK, None, User(uid=0))
    agent = phases.agent(box, worlds.AGENT, {}, 1800.0)
    assert steps.opened(box, agent, ENV, 900.0) is agent


def test_tests_are_layered():
    def layers(number: int) -> list[dict[str, bytes]]:
        found = [part(SNAPSHOT) for part in python_verifier.parts(contract.turn(TASK, number))]
        return [{entry.path: each.read(entry.path) for entry in each.entries()} for each in found]

    common = {"common": b"common", "test.sh": b"common"}
    assert layers(0) == [common, {"test.sh": b"of one"}]
    assert layers(1) == [common, {}]
    unpacked = [
        op for op in phases.verify(sandbox(1), worlds.verifier(), worlds.VERIFY, {}).prepare if op == Unpack("/tests")
    ]
    assert len(unpacked) == 2


def test_the_seed_knows_everybody_and_makes_the_first_ones_folder():
    prepared = phases.seed(sandbox(2), worlds.SEED).prepare  # turn 2 is the task itself
    assert [op.user for op in prepared if type(op).__name__ == "CheckUser"] == [
        User(name="app"),
        User(name="collector"),
    ]
    assert next(op for op in prepared if isinstance(op, Directory) and op.path == "/app").user == User(name="app")


def test_rewards_are_never_scrubbed_wherever_they_lie():
    assert steps.reward_files(None) == (phases.REWARD_JSON, phases.REWARD_TXT)
    assert "/logs/steps/two/verifier/reward.json" in steps.reward_files(TASK)


def test_the_manifest_of_a_steps_verification():
    made = verifierrun.manifest(worlds.run(), "fix-bug-1-verify-two", 1, Mode.SHARED, "two")
    assert made["spec"]["step"] == "two"
    assert "step" not in verifierrun.manifest(worlds.run(), "fix-bug-1-verify", 1, Mode.SHARED)["spec"]


LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("scaffold", "run-1-verify-scaffold"),
        ("01-first-step", "run-1-verify-01-first-step"),
        ("Scaffold", "run-1-verify-scaffold--7"),
        ("a.b", "run-1-verify-a-b--7"),
        ("a--b", "run-1-verify-a-b--7"),
        ("a-", "run-1-verify-a--7"),
        ("x" * 255, f"run-1-verify-{'x' * 47}--7"),
    ],
    ids=["plain", "numbered", "capital", "dot", "two dashes", "a dash at the end", "long"],
)
def test_a_steps_name_in_that_of_its_verification(step, name):
    assert names.verifier("run", 1, step, 7) == name


STEP = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", fullmatch=True)


@given(
    st.lists(STEP, min_size=1, max_size=64, unique_by=str.casefold),
    st.integers(1, MAX_RUN_NAME),
    st.integers(1, 10),
)
def test_verifications_of_a_run_have_names_of_their_own(found, length, attempt):
    made = [names.verifier("r" * length, attempt, step, number) for number, step in enumerate(found, start=1)]
    assert len(set(made)) == len(made)
    assert all(len(name) <= names.MAX_LABEL and LABEL.fullmatch(name) for name in made)
    assert names.verifier("r" * length, attempt) not in made
