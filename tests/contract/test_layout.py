"""Who grades, who solves, and what the steps of a task are."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import build, trees
from tests.contract.build import load, refusal, toml

from taskfold.contract import errors, layout, loader, toml_file, toml_text
from taskfold.contract.task import Grader, Solution
from taskfold.contract.task_toml import TaskToml, VerifierMode

STEPS = toml('steps = [{name = "one"}, {name = "two"}]') | {
    "steps/one/instruction.md": "<!-- canary -->\nFirst.\n",
    "steps/two/instruction.md": "Second.\n",
}


@pytest.mark.parametrize(
    ("files", "grader"),
    [
        ({}, Grader.TEST_SH),
        ({"tests/verifier.py": ""}, Grader.TEST_SH),
        ({"tests/test.sh": None, "tests/verifier.py": ""}, Grader.PYTHON),
        ({"tests/test.sh": None, "dataset/verifier.py": ""}, Grader.DATASET),
        ({"tests/test.sh": None, "tests/verifier.py": "", "dataset/verifier.py": ""}, Grader.PYTHON),
    ],
)
def test_the_first_grader_that_exists_grades(files, grader):
    assert load(files).grader is grader


def test_a_tests_folder_that_grades_nothing_is_not_saved_by_the_datasets_verifier():
    error = refusal({"tests/test.sh": None, "tests/data": "", "dataset/verifier.py": ""})
    assert error.file == "tests/test.sh"


@pytest.mark.parametrize(
    ("files", "solution"),
    [
        ({}, None),
        ({"solution/solve.sh": ""}, Solution.SCRIPT),
        ({"solution/answer.md": ""}, Solution.ANSWER),
        ({"solution/answer.md": "", "solution/solve.sh": ""}, Solution.SCRIPT),
    ],
)
def test_c16_solve_sh_wins_over_answer_md(files, solution):
    task = load(files)
    assert task.solution is solution
    assert task.has_solution is (solution is not None)


# steps


def test_the_turns_of_a_task_in_their_order():
    task = load(
        STEPS
        | {
            "instruction.md": None,
            "steps/two/workdir/setup.sh": "",
            "steps/two/tests/test.sh": "",
            "steps/two/solution/answer.md": "",
        }
    )
    assert (task.instruction, task.solution, task.has_solution) == ("", None, True)
    assert [(step.name, step.instruction, step.workdir, step.setup, step.tests) for step in task.steps] == [
        ("one", "First.\n", False, False, False),
        ("two", "Second.\n", True, True, True),
    ]
    assert [step.solution for step in task.steps] == [None, Solution.ANSWER]


@pytest.mark.parametrize(
    ("files", "file", "problem"),
    [
        ({"steps/two/instruction.md": None}, "steps/two/instruction.md", "is missing"),
        ({"steps/two/instruction.md": b"\xff"}, "steps/two/instruction.md", "is not UTF-8"),
        ({"tests/test.sh": None, "steps/one/tests/test.sh": ""}, "steps/two/tests/test.sh", "is missing"),
        (
            {"tests/test.sh": None, "tests/verifier.py": "", "steps/one/tests/test.sh": ""},
            "tests/verifier.py",
            "Python verifiers grade single-step tasks only",
        ),
        (
            {"tests/test.sh": None, "steps/one/tests/test.sh": "", "steps/two/tests/verifier.py": ""},
            "steps/two/tests/verifier.py",
            "Python verifiers grade single-step tasks only",
        ),
    ],
)
def test_what_a_step_needs(files, file, problem):
    error = refusal(STEPS | files)
    assert (error.file, error.unsupported, error.others) == (file, False, ())
    assert problem in str(error)


def test_a_verifier_beside_test_sh_is_a_helper_in_a_step_too():
    assert load(STEPS | {"tests/verifier.py": "", "steps/one/tests/verifier.py": ""}).warnings == ()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", ".a", "_a", "a b", "é", "a" * 256])
def test_a_step_has_the_name_of_a_folder(name):
    assert refusal(toml(f'steps = [{{name = "{name}"}}]')).field == "steps[0].name"


@pytest.mark.parametrize("pair", [("a", "a"), ("a", "A")])
def test_steps_have_names_that_differ_in_more_than_case(pair):
    names = ", ".join(f'{{name = "{name}"}}' for name in pair)
    assert "differ in more than case" in str(refusal(toml(f"steps = [{names}]")))


def test_a_folder_that_no_step_names_is_a_warning():
    (warning,) = load(STEPS | {"steps/three/instruction.md": ""}).warnings
    assert warning.startswith("steps/three/: no [[steps]] of task.toml names it")


@pytest.mark.parametrize(
    ("files", "warning"),
    [
        ({"solution/solve.sh": ""}, "solution/: a multi-step task has its solutions in steps/<name>/solution/"),
        (
            toml('steps = [{name = "one"}, {name = "two"}]', "verifier.timeout_sec = 5"),
            "task.toml: verifier.timeout_sec has no effect with [[steps]]",
        ),
        (
            toml('steps = [{name = "one"}, {name = "two"}]', 'verifier.collect = [{command = "x"}]'),
            "task.toml: verifier.collect has no effect with [[steps]]",
        ),
    ],
)
def test_what_has_no_effect_in_a_multi_step_task_is_a_warning(files, warning):
    task = load(STEPS | files)
    (found,) = task.warnings
    assert found.startswith(warning)
    assert not task.has_solution


def test_a_roll_up_without_steps_is_a_warning():
    (found,) = load(toml('multi_step_reward_strategy = "final"')).warnings
    assert found == "task.toml: multi_step_reward_strategy has no effect without [[steps]]"


TABLES = """
agent = {timeout_sec = 50, user = "app"}
verifier = {timeout_sec = 60, user = "grader", env = {A = "1", B = "2"}}
"""


def test_unset_keys_of_a_step_fall_back_to_the_tasks():
    steps = 'steps = [{name = "one"}, {name = "two", agent = {user = 0}, verifier = {user = 0, env = {B = "3"}}}]'
    one, two = load(STEPS | toml(steps, TABLES)).steps
    assert (one.config.agent.timeout_sec, one.config.agent.user) == (50, "app")
    assert (one.config.verifier.user, one.config.verifier.env) == ("grader", {"A": "1", "B": "2"})
    assert (two.config.agent.timeout_sec, two.config.agent.user) == (50, 0)
    assert (two.config.verifier.user, two.config.verifier.env) == (0, {"A": "1", "B": "3"})


def test_a_steps_limit_does_not_fall_back_to_the_verifiers():
    for step in load(STEPS | toml('steps = [{name = "one"}, {name = "two"}]', TABLES)).steps:
        assert step.config.verifier.timeout_sec == 600


@pytest.mark.parametrize(
    ("task", "step", "mode"),
    [
        ({}, {}, VerifierMode.SHARED),
        ({"environment_mode": "separate"}, {}, VerifierMode.SEPARATE),
        ({"environment": {}}, {}, VerifierMode.SEPARATE),
        ({"environment_mode": "separate"}, {"environment_mode": "shared"}, VerifierMode.SHARED),
        ({"environment": {}}, {"environment_mode": "shared"}, VerifierMode.SHARED),
        ({"environment_mode": "shared"}, {"environment": {}}, VerifierMode.SEPARATE),
    ],
)
def test_a_steps_mode_wins_over_the_tasks(task, step, mode):
    config = TaskToml.model_validate({"verifier": task, "steps": [{"name": "a", "verifier": step}]})
    assert layout.with_fallbacks((config.steps or ())[0], config).verifier.mode is mode


@pytest.mark.parametrize(
    ("step", "image"),
    [
        ({}, "task"),
        ({"environment_mode": "separate"}, "task"),
        ({"environment_mode": "shared"}, None),
        ({"environment": {"docker_image": "step"}}, "step"),
        ({"environment": {}}, "none named"),
    ],
)
def test_a_separate_step_has_the_tasks_environment_unless_it_has_its_own(step, image):
    document = {"verifier": {"environment": {"docker_image": "task"}}, "steps": [{"name": "a", "verifier": step}]}
    config = TaskToml.model_validate(document)
    table = layout.with_fallbacks((config.steps or ())[0], config).verifier.environment
    assert (table.docker_image or "none named" if table is not None else None) == image


@given(trees.documents(TaskToml))
def test_any_task_toml_of_known_keys_is_a_task_or_a_task_error(text):
    findings = loader.check(build.folder({"task.toml": text, "steps/a/instruction.md": ""}), task_id="x")
    assert (findings.task is None) == bool(findings.problems)
    for problem in findings.problems:
        assert str(problem).encode()


def _values(model):
    return {name: getattr(model, name) for name in type(model).model_fields}


@given(st.data())
def test_a_model_that_is_written_out_reads_as_the_same_model(data):
    try:
        config = toml_file.read(data.draw(trees.documents(TaskToml)).encode()).config
    except errors.TaskError:
        return
    written = config.model_dump(mode="json", exclude_unset=True, exclude={"metadata"})
    text = "".join(f"{name} = {toml_text.value(value)}\n" for name, value in written.items())
    again = TaskToml.model_validate(tomllib.loads(text))
    assert _values(again) | {"metadata": None} == _values(config) | {"metadata": None}
