"""build/phases.py: what each phase asks of the helper, for every kind of user and agent."""

from dataclasses import replace

import pytest
from tests.decide import worlds

from taskfold.api.taskrun import SecurityProfile
from taskfold.build import handout, phases
from taskfold.contract import task_toml
from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Solution, Step
from taskfold.protocol.phase import CheckUser, Directory, Read, Remove, Reset, Tools, Unpack, User, UserNamespace

NONCE = "1" * 32
IMAGE_USER = User(uid=1000, gid=1000, groups=(44,))
ENV = {"TOKEN": "s3cret"}


def sandbox(task=worlds.TASK, *, recorded=None, **spec):
    return phases.Sandbox(worlds.run(worlds.running(), **spec), task, recorded, IMAGE_USER)


def on_record(user="", workdir=""):
    return RecordedImage("python:3.12-slim", "sha256:" + "9" * 64, ImageConfig({}, workdir, user))


# -- seed ----------------------------------------------------------------------------------------------------------


def test_the_seed_checks_tools_then_users_then_makes_the_folders_and_runs_nothing():
    task = worlds.task('agent.user = "app"', 'verifier.user = "judge"', 'environment.workdir = "/app"')
    request = phases.seed(sandbox(task), NONCE)
    assert request.prepare == [
        Tools(("bash", "timeout", "tar", "gzip", "find")),
        CheckUser(User("app")),
        CheckUser(User("judge")),
        Directory("/logs/agent", "0777"),
        Directory("/logs/verifier", "0777"),
        Directory("/logs/artifacts", "0777"),
        Directory("/app", "0755", User(name="app"), existing="keep", links="follow"),
    ]
    assert (request.runs, request.read, request.nonce) == ((), (), NONCE)


def test_a_user_namespace_is_proven_before_anything_else():
    found = replace(sandbox(), profile=SecurityProfile.USERNS)
    first, *others = phases.seed(found, NONCE).prepare
    assert first == UserNamespace()
    assert UserNamespace() not in others
    assert UserNamespace() not in phases.seed(sandbox(), NONCE).prepare


@pytest.mark.parametrize("profile", [SecurityProfile.USERNS, SecurityProfile.RESTRICTED])
def test_a_pod_that_may_not_become_everybody_checks_numbers_too(profile):
    task = worlds.task("agent.user = 5", "verifier.user = 6", 'verifier.collect = [{ command = "x", user = 7 }]')
    checks = [
        op for op in phases.seed(replace(sandbox(task), profile=profile), NONCE).prepare if isinstance(op, CheckUser)
    ]
    assert checks == [CheckUser(User(uid=5)), CheckUser(User(uid=6)), CheckUser(User(uid=7))]


def test_a_restricted_pod_has_its_one_user_whatever_the_image_on_record_says():
    found = replace(sandbox(recorded=on_record("root")), profile=SecurityProfile.RESTRICTED)
    assert (found.agent_user, found.verifier_user) == (IMAGE_USER, IMAGE_USER)


def test_an_external_agent_gets_its_files_with_the_seed():
    plain = phases.seed(sandbox(), NONCE).prepare
    assert phases.seed(sandbox(agent={"external": {}}), NONCE).prepare == [*plain, *handout.PREPARE]


def test_the_users_of_hooks_are_checked_too():
    task = worlds.task('verifier.collect = [{ command = "x", user = "keeper" }, { command = "y", user = 7 }]')
    assert CheckUser(User("keeper")) in phases.seed(sandbox(task), NONCE).prepare


def test_a_name_is_checked_once_and_a_number_never():
    task = worlds.task('agent.user = "app"', 'verifier.user = "app"')
    checks = [op for op in phases.seed(sandbox(task), NONCE).prepare if isinstance(op, CheckUser)]
    assert checks == [CheckUser(User("app"))]
    numbers = worlds.task("agent.user = 5", "verifier.user = 6")
    assert not [op for op in phases.seed(sandbox(numbers), NONCE).prepare if isinstance(op, CheckUser)]


@pytest.mark.parametrize(
    ("user", "check"),
    [
        ("1000:staff", User(uid=1000, group="staff")),
        ("app:staff", User("app", group="staff")),
        ("app:50", User("app", gid=50)),
        ("1000:50", None),
        ("1000", None),
    ],
    ids=str,
)
def test_a_dockerfiles_group_is_checked_with_its_user(user, check):
    checks = [op for op in phases.seed(sandbox(recorded=on_record(user)), NONCE).prepare if isinstance(op, CheckUser)]
    assert checks == ([] if check is None else [CheckUser(check)])


def test_the_scripts_own_user_is_checked_at_seed():
    request = phases.seed(sandbox(agent={"script": {"run": "x", "user": "worker"}}), NONCE)
    assert CheckUser(User("worker")) in request.prepare


# -- who runs what -------------------------------------------------------------------------------------------------

USERS = {
    "the image's": ((), None, IMAGE_USER, IMAGE_USER),
    "the agent's by name, no record": (('agent.user = "app"',), None, User(name="app"), User(uid=0)),
    "the agent's by number, no record": (("agent.user = 5",), None, User(uid=5), User(uid=0)),
    "digits in quotes are a name": (('agent.user = "5"',), None, User(name="5"), User(uid=0)),
    "both": (('agent.user = "app"', "verifier.user = 0"), None, User(name="app"), User(uid=0)),
    "the verifier's only": (('verifier.user = "judge"',), None, IMAGE_USER, User(name="judge")),
    "a Dockerfile's USER": ((), on_record("1000:50"), User(uid=1000, gid=50), User(uid=1000, gid=50)),
    "a Dockerfile's USER, the agent's own": (
        ('agent.user = "app"',),
        on_record("judge"),
        User(name="app"),
        User(name="judge"),
    ),
}


@pytest.mark.parametrize(("lines", "recorded", "agent", "verifier"), USERS.values(), ids=USERS)
def test_agent_and_verifier_have_their_users(lines, recorded, agent, verifier):
    found = sandbox(worlds.task(*lines), recorded=recorded)
    assert (found.agent_user, found.verifier_user) == (agent, verifier)
    assert phases.agent(found, NONCE, {}, 9).runs[-1].user == agent
    assert phases.verify(found, worlds.verifier(), NONCE, {}).runs[0].user == verifier


@pytest.mark.parametrize(
    ("lines", "recorded", "workdir"),
    [
        ((), None, None),
        ((), on_record(workdir="/image"), "/image"),
        (('environment.workdir = "/task"',), on_record(workdir="/image"), "/task"),
    ],
    ids=["the image's own", "on record", "the task's wins"],
)
def test_everything_runs_in_the_working_directory(lines, recorded, workdir):
    found = sandbox(worlds.task(*lines), recorded=recorded)
    assert phases.agent(found, NONCE, {}, 9).runs[0].cwd == workdir
    assert phases.verify(found, worlds.verifier(), NONCE, {}).runs[0].cwd == workdir


# -- the agent -----------------------------------------------------------------------------------------------------


def test_the_oracle_gets_its_solution_and_runs_it():
    request = phases.agent(sandbox(worlds.task("agent.timeout_sec = 7.5")), NONCE, ENV, 9)
    assert request.prepare == (Reset("/solution"), Unpack("/solution"), *handout.PREPARE)
    (run,) = request.runs
    assert (run.argv, run.limit_seconds, run.env) == (("bash", "/solution/solve.sh"), 7.5, ENV)
    assert run.output.path == "/logs/agent/oracle.txt"
    assert request.read == phases.AGENT_FILES


def test_an_oracle_with_an_answer_has_the_helper_copy_it_as_the_tasks_user():
    """So the image needs no tool for it (C29)."""
    task = replace(worlds.task('agent.user = "worker"', 'environment.workdir = "/w"'), solution=Solution.ANSWER)
    request = phases.agent(sandbox(task), NONCE, ENV, 9)
    (run,) = request.runs
    assert run.argv == ("/.taskfold/helper", "put", "/solution/answer.md", "answer.md")
    assert (run.name, run.cwd, run.user, run.env) == ("agent", "/w", User(name="worker"), ENV)
    assert request.prepare == (Reset("/solution"), Unpack("/solution"), *handout.PREPARE)


def test_the_answer_of_a_turn_is_in_its_own_folder():
    task = worlds.task()
    assert phases.answer(task) == "solution/answer.md"
    step = Step("two", "", task_toml.StepTable(name="two"))
    assert phases.answer(replace(task, step=step)) == "steps/two/solution/answer.md"


def test_a_script_installs_as_root_and_stops_there_if_that_fails():
    script = {"script": {"run": "work", "install": "apt-get", "user": "worker", "timeoutSeconds": 4}}
    request = phases.agent(sandbox(agent=script, multipliers={"timeout": 2}), NONCE, ENV, 30)
    install, agent = request.runs
    assert (install.name, install.argv, install.user) == ("install", ("bash", "-c", "apt-get"), User(uid=0))
    assert (install.limit_seconds, install.continue_on_failure) == (30, False)
    assert (agent.name, agent.argv, agent.user) == ("agent", ("bash", "-c", "work"), User(name="worker"))
    assert (agent.limit_seconds, agent.env) == (8, ENV)
    assert request.prepare == handout.PREPARE
    assert request.read == (
        Read("/logs/agent/trajectory.json", 4 * 2**20),
        Read("/logs/agent/response.json", 2 * 2**20),
        Read("/logs/agent/response.txt", 2 * 2**20),
    )


@pytest.mark.parametrize(
    ("user", "expected"), [(0, User(uid=0)), (12, User(uid=12)), ("12", User(name="12")), (None, IMAGE_USER)], ids=str
)
def test_a_scripts_user_is_a_number_or_a_name(user, expected):
    script = {"run": "x"} | ({} if user is None else {"user": user})
    assert phases.agent(sandbox(agent={"script": script}), NONCE, {}, 9).runs[0].user == expected


def test_nop_has_no_phase():
    with pytest.raises(ValueError, match="no phase"):
        phases.agent(sandbox(agent=worlds.NOP), NONCE, {}, 9)


# -- hooks and verification ----------------------------------------------------------------------------------------


def test_hooks_run_one_after_the_other_with_limits_of_their_own():
    hooks = '[{ command = "one", timeout_sec = 3 }, { command = "two", user = 7 }, { command = "three", user = "k" }]'
    task = worlds.task(f"verifier.collect = {hooks}")
    request = phases.hooks(sandbox(task, multipliers={"timeout": 9}), NONCE, ENV)
    assert [(run.name, run.argv[-1], run.limit_seconds, run.user) for run in request.runs] == [
        ("hook 1", "one", 3, IMAGE_USER),
        ("hook 2", "two", 60, User(uid=7)),
        ("hook 3", "three", 60, User(name="k")),
    ]
    assert all(run.continue_on_failure for run in request.runs)
    assert request.prepare == ()


def test_declared_inputs_outlive_the_reset():
    task = replace(worlds.task(), inputs=("actions.jsonl", "calls.log"))
    request = phases.verify(sandbox(task), worlds.verifier(), NONCE, {})
    assert request.prepare[:2] == (Reset("/tests"), Reset("/logs/verifier", keep=("actions.jsonl", "calls.log")))


def test_verification_follows_the_contracts_order():
    task = worlds.task('verifier.user = "judge"')
    request = phases.verify(sandbox(task), worlds.verifier(), NONCE, ENV)
    assert request.prepare == (
        Reset("/tests"),
        Reset("/logs/verifier"),
        Unpack("/tests"),
        Directory("/logs/verifier", "0755", User(name="judge")),
        Unpack("/logs/agent"),
    )
    (run,) = request.runs
    assert (run.argv, run.env) == (("bash", "/tests/test.sh"), ENV)
    assert run.output.path == "/logs/verifier/test-stdout.txt"
    assert request.read == (
        Read("/logs/verifier/reward.json", 8 * 2**20),
        Read("/logs/verifier/reward.txt", 64 * 2**10),
    )


def test_harbor_removes_the_reward_files_only_and_executes_test_sh_itself():
    request = phases.verify(sandbox(dialect="harbor"), worlds.verifier(), NONCE, {})
    assert request.prepare[:2] == (Remove("/logs/verifier/reward.json"), Remove("/logs/verifier/reward.txt"))
    assert not [op for op in request.prepare if isinstance(op, Reset)]
    assert request.runs[0].argv == ("bash", "-c", "/tests/test.sh")


@pytest.mark.parametrize(
    ("own", "seconds"), [({}, 1200.0), ({"timeoutSeconds": 5}, 5.0)], ids=["scaled", "the run's own, never scaled"]
)
def test_the_verifiers_limit(own, seconds):
    found = phases.verify(sandbox(multipliers={"timeout": 2}), worlds.verifier(**own), NONCE, {})
    assert found.runs[0].limit_seconds == seconds


def test_no_request_shows_its_secrets():
    found = sandbox(agent={"script": {"run": "x", "install": "y"}})
    for request in (phases.agent(found, NONCE, ENV, 9), phases.verify(found, worlds.verifier(), NONCE, ENV)):
        assert "s3cret" not in repr(request)
