"""The image table of separate verification, its refusals, and the verifier's sandbox as a task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import build
from tests.contract.build import IMAGE, load, refusal, toml

from taskfold.contract import errors, loader, separate, steps
from taskfold.contract.task import ImageSource
from taskfold.contract.task_toml import VerifierMode

MODE = 'verifier.environment_mode = "separate"'
OWN = "docker.io/team/verifier:1"
NO_IMAGE = {"task.toml": f"{MODE}\n"}
STEPS = {"steps/a/instruction.md": "", "steps/b/instruction.md": ""}
DOCKERFILE = "environment/Dockerfile"
OF_TESTS = "tests/Dockerfile"
ENVIRONMENT = "environment = {workdir = '/agent', cpus = 3, env = {A = 'agent'}, healthcheck = {command = 'agent'}"
TABLE = "verifier.environment"


def declared(*lines: str, **files: str | bytes) -> dict[str, str | bytes | None]:
    """A task of separate verification in which the lines are all that stands in task.toml."""
    return {"task.toml": "\n".join(lines), "artifacts": None, **files}


ROWS = {
    "an image of the verifier's own": (
        {"task.toml": f'environment.docker_image = "{IMAGE}"\n{TABLE}.docker_image = "{OWN}"'},
        ImageSource(OWN),
        True,
    ),
    "an image of the verifier's own, with the mode written out": (
        {"task.toml": f'environment.docker_image = "{IMAGE}"\n{MODE}\n{TABLE}.docker_image = "{OWN}"'},
        ImageSource(OWN),
        True,
    ),
    "an image of the verifier's own beside tests/Dockerfile": (
        {"task.toml": f'environment.docker_image = "{IMAGE}"\n{TABLE}.docker_image = "{OWN}"', OF_TESTS: "FROM x"},
        ImageSource(OWN),
        True,
    ),
    "an image of the verifier's own, and the agent's from a Dockerfile": (
        {"task.toml": f'{TABLE}.docker_image = "{OWN}"', DOCKERFILE: f"FROM {IMAGE}"},
        ImageSource(OWN),
        True,
    ),
    "the same image for both has no record by its own name": (
        {
            "task.toml": f'environment.docker_image = "{IMAGE}"\n{TABLE}.docker_image = "{IMAGE}"',
            DOCKERFILE: f"FROM {IMAGE}",
        },
        ImageSource(IMAGE),
        True,
    ),
    "the task's image": (toml(MODE), ImageSource(IMAGE), False),
    "the task's image beside tests/Dockerfile": (toml(MODE) | {OF_TESTS: "FROM x"}, ImageSource(IMAGE), False),
    "the task's image beside a Dockerfile that runs something": (
        toml(MODE) | {DOCKERFILE: f"FROM {IMAGE}\nRUN true"},
        ImageSource(IMAGE),
        False,
    ),
}
"""Files, image, and whether the sandbox is that of [verifier.environment]."""


@pytest.mark.parametrize(("files", "image", "own"), ROWS.values(), ids=ROWS)
def test_the_image_table(files, image, own):
    found = load(files).separate
    assert found is not None
    assert (found.image, found.own) == (image, own)


def test_a_pull_mode_dockerfile_beside_the_tasks_image_keeps_it_on_record():
    task = load(toml(MODE) | {DOCKERFILE: f"FROM {IMAGE}\nENV A=1"})
    assert task.separate is not None
    assert task.separate.image == task.image
    assert task.separate.image.dockerfile is not None


@pytest.mark.parametrize("lines", [[], ['verifier.environment_mode = "shared"']])
def test_in_shared_mode_there_is_no_sandbox_of_its_own(lines):
    task = load(toml(*lines) | {OF_TESTS: "FROM x", "tests/docker-compose.yaml": "never: [looked, at]"})
    assert (task.separate, task.warnings) == (None, ())
    with pytest.raises(ValueError, match="shares the agent's"):
        separate.sandbox(task)


BUILT = {
    "no image, tests/Dockerfile": (NO_IMAGE | {DOCKERFILE: f"FROM {IMAGE}", OF_TESTS: "FROM x"}, OF_TESTS, TABLE),
    "a table without an image, tests/Dockerfile": (toml(f"{TABLE} = {{cpus = 1}}") | {OF_TESTS: ""}, OF_TESTS, TABLE),
    "a step of its own": (
        toml(f'steps = [{{name = "a", verifier = {{{TABLE.partition(".")[2]} = {{}}}}}}]')
        | STEPS
        | {"steps/a/tests/Dockerfile": "FROM x", OF_TESTS: "FROM y"},
        "steps/a/tests/Dockerfile",
        f"steps[0].{TABLE}",
    ),
    "a step that has the task's tests/": (
        toml(f"{TABLE} = {{}}", 'steps = [{name = "a"}]') | STEPS | {OF_TESTS: "FROM y"},
        OF_TESTS,
        TABLE,
    ),
}


@pytest.mark.parametrize(("files", "file", "table"), BUILT.values(), ids=BUILT)
def test_an_image_that_has_to_be_built_is_not_supported_yet(files, file, table):
    error = refusal(files)
    assert (error.file, error.unsupported, error.others) == (file, True, ())
    assert str(error).endswith("not supported yet")
    assert f"push the image yourself and name it in {table}.docker_image" in str(error)


REFUSED = {
    "no image but the agent's Dockerfile": (
        NO_IMAGE | {DOCKERFILE: f"FROM {IMAGE}"},
        f"{TABLE}.docker_image",
        "environment/Dockerfile is the agent's alone",
    ),
    "a table without an image": (toml(f"{TABLE} = {{cpus = 1}}"), f"{TABLE}.docker_image", "the task's is not used"),
    "a table of a step without an image": (
        toml('steps = [{name = "a"}, {name = "b", verifier = {environment = {}}}]') | STEPS,
        f"steps[1].{TABLE}.docker_image",
        "the task's is not used",
    ),
    "a table of a step does not take the image of the task's": (
        toml(f'{TABLE}.docker_image = "{OWN}"', 'steps = [{name = "a", verifier = {environment = {cpus = 1}}}]')
        | STEPS,
        f"steps[0].{TABLE}.docker_image",
        "the task's is not used",
    ),
    "only a compose file": (
        NO_IMAGE | {DOCKERFILE: f"FROM {IMAGE}", "tests/docker-compose.yaml": "services: {main: {image: x}}"},
        f"{TABLE}.docker_image",
        "the agent's alone",
    ),
}


@pytest.mark.parametrize(("files", "field", "says"), REFUSED.values(), ids=REFUSED)
def test_none_of_the_rows_is_refused(files, field, says):
    error = refusal(files)
    assert (error.file, error.field, error.unsupported, error.others) == ("task.toml", field, False, ())
    assert says in str(error)
    assert "Name one" in error.remedy


def test_no_image_at_all_is_said_of_both_sandboxes():
    error = refusal(NO_IMAGE)
    fields = [each.field for each in (error, *error.others)]
    assert fields == ["environment.docker_image", f"{TABLE}.docker_image"]


@pytest.mark.parametrize("mode", [None, *VerifierMode])
def test_a_run_says_itself_where_its_tests_run(mode):
    terms = loader.Terms(mode)
    for lines, otherwise in (([], None), ([MODE], VerifierMode.SEPARATE), ([f'{TABLE}.docker_image = "x"'], "own")):
        task = loader.load(build.folder(toml(*lines)), task_id="t", terms=terms)
        expected = otherwise if mode is None else otherwise or mode
        if mode is VerifierMode.SHARED:
            expected = None
        assert (task.separate is not None) == (expected is not None)
        assert task.separate is None or task.separate.own == (otherwise == "own")


def test_a_mode_that_is_overridden_is_not_looked_at():
    files = build.folder(NO_IMAGE | {DOCKERFILE: f"FROM {IMAGE}"})
    assert loader.load(files, task_id="t", terms=loader.Terms(VerifierMode.SHARED)).separate is None
    shared = build.folder({"task.toml": "", DOCKERFILE: f"FROM {IMAGE}"})
    assert loader.load(shared, task_id="t").separate is None
    with pytest.raises(errors.TaskError, match="the agent's alone"):
        loader.load(shared, task_id="t", terms=loader.Terms(VerifierMode.SEPARATE))


OPTION = {
    "no artifacts": ([], None, [False]),
    "artifacts": (['artifacts = ["/a"]'], None, [True]),
    "artifacts, and the task is shared": (['artifacts = ["/a"]', 'verifier.environment_mode = "shared"'], None, [True]),
    "artifacts, and the run is shared": (['artifacts = ["/a"]'], VerifierMode.SHARED, [True]),
    "no artifacts, and the run is separate": ([], VerifierMode.SEPARATE, [True]),
    "of one step": (['steps = [{name = "a", artifacts = ["/a"]}, {name = "b"}]'], None, [True, False]),
    "of the task, for all steps": (
        ['artifacts = ["/a"]', 'steps = [{name = "a", verifier = {environment_mode = "shared"}}, {name = "b"}]'],
        VerifierMode.SHARED,
        [True, True],
    ),
}


@pytest.mark.parametrize(("lines", "mode", "separately"), OPTION.values(), ids=OPTION)
def test_the_operator_may_have_everything_with_artifacts_verified_separately(lines, mode, separately):
    terms = loader.Terms(mode, separate_artifacts=True)
    task = loader.load(build.folder(toml(*lines) | STEPS), task_id="t", terms=terms)
    assert [each.separate is not None for each in steps.turns(task)] == separately


def test_a_step_that_the_operator_makes_separate_has_the_tasks_environment():
    lines = (f'{TABLE} = {{docker_image = "{OWN}"}}', 'steps = [{name = "a", artifacts = ["/a"]}, {name = "b"}]')
    terms = loader.Terms(VerifierMode.SHARED, separate_artifacts=True)
    one, other = steps.turns(loader.load(build.folder(toml(*lines) | STEPS), task_id="t", terms=terms))
    assert one.separate is not None
    assert (one.separate.image.reference, one.separate.own) == (OWN, True)
    assert other.separate is None


def test_a_restriction_that_a_run_brings_to_bear_is_found_where_it_is_written():
    lines = (f'{TABLE} = {{docker_image = "{OWN}", network_mode = "no-network"}}', 'steps = [{name = "a"}]')
    with pytest.raises(errors.TaskError) as caught:
        terms = loader.Terms(VerifierMode.SEPARATE, separate_artifacts=True)
        loader.load(build.folder(toml(*lines) | STEPS), task_id="t", terms=terms)
    assert caught.value.field == f"{TABLE}.network_mode"


# its steps

STEP_MODES = {
    "the task's mode": ([MODE], "{}", IMAGE),
    "a step's mode wins": ([MODE], '{environment_mode = "shared"}', None),
    "a step's environment wins over the task's mode": ([], f'{{environment = {{docker_image = "{OWN}"}}}}', OWN),
    "a step's mode wins over the task's environment": (
        [f'{TABLE}.docker_image = "{OWN}"'],
        '{environment_mode = "shared"}',
        None,
    ),
    "a separate step has the task's environment": (
        [f'{TABLE}.docker_image = "{OWN}"'],
        '{environment_mode = "separate"}',
        OWN,
    ),
    "a separate step of a shared task": ([], '{environment_mode = "separate"}', IMAGE),
}


@pytest.mark.parametrize(("lines", "step", "image"), STEP_MODES.values(), ids=STEP_MODES)
def test_a_step_is_verified_where_it_says_else_where_the_task_does(lines, step, image):
    task = load(toml(*lines, f'steps = [{{name = "a", verifier = {step}}}]') | STEPS)
    found = task.steps[0].separate
    assert (found.image.reference if found is not None else None) == image
    assert task.separate is None
    assert steps.turn(task, 0).separate == found


def test_the_tasks_own_mode_needs_no_image_when_no_step_has_it():
    files = NO_IMAGE | {
        "task.toml": f'{MODE}\nsteps = [{{name = "a", verifier = {{environment_mode = "shared"}}}}]',
        DOCKERFILE: f"FROM {IMAGE}",
    }
    assert load(files | STEPS).steps[0].separate is None


# the sandbox

BOTH = (
    "environment.workdir = '/agent'",
    "environment.cpus = 3",
    "environment.env = {A = 'agent'}",
    "environment.skills_dir = '/skills'",
    "environment.healthcheck = {command = 'agent'}",
    "verifier.user = 'grader'",
)


def test_without_a_table_of_its_own_the_sandbox_is_like_the_tasks_but_for_what_is_the_agents():
    task = load(toml(MODE, *BOTH, "artifacts = ['/a']"))
    found = separate.sandbox(task)
    environment = found.config.environment
    assert (environment.workdir, environment.cpus, environment.env) == ("/agent", 3, {"A": "agent"})
    assert (environment.healthcheck, environment.skills_dir) == (None, None)
    assert found.config.verifier.user == "grader"
    assert replace(found, config=task.config) == task


def test_with_a_table_of_its_own_nothing_of_the_tasks_is_in_it():
    own = (
        f"{{docker_image = '{OWN}', workdir = '/v', memory_mb = 5, healthcheck = {{command = 'v'}}, skills_dir = '/s'}}"
    )
    task = load(toml(f"{TABLE} = {own}", *BOTH, "artifacts = ['/a']"))
    found = separate.sandbox(task)
    environment = found.config.environment
    assert (environment.workdir, environment.cpus, environment.memory_mb, environment.env) == ("/v", None, 5, {})
    assert environment.healthcheck is not None
    assert (environment.healthcheck.command, environment.skills_dir) == ("v", None)
    assert (found.image, found.inputs, found.artifacts) == (ImageSource(OWN), (), task.artifacts)
    assert task.warnings == (f"task.toml: {TABLE}.skills_dir has no effect: it is for an agent",)


def test_a_turns_sandbox_is_that_of_its_step():
    task = load(
        toml(*BOTH, f'steps = [{{name = "a", verifier = {{environment = {{docker_image = "{OWN}"}}}}}}]') | STEPS
    )
    found = separate.sandbox(steps.turn(task, 0))
    assert (found.image.reference, found.config.environment.workdir) == (OWN, None)
    assert found.step is not None


def test_tool_servers_of_a_verifier_have_no_effect_and_those_of_an_agent_are_for_later():
    servers = 'mcp_servers = [{name = "a", url = "u"}]'
    task = load(toml(f'{TABLE} = {{docker_image = "{OWN}", {servers}}}', 'artifacts = ["/a"]'))
    assert [warning.partition(" has")[0] for warning in task.warnings] == [f"task.toml: {TABLE}.mcp_servers"]
    assert separate.sandbox(task).config.environment.mcp_servers == ()


def test_a_dockerfile_of_tests_that_nobody_builds_is_a_warning():
    task = load(toml(MODE, 'artifacts = ["/a"]') | {OF_TESTS: "FROM x"})
    (warning,) = task.warnings
    assert warning.startswith(f"{OF_TESTS}: has no effect")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "task": st.sampled_from(["", MODE, 'verifier.environment_mode = "shared"', f"{TABLE} = {{}}",
                                     f'{TABLE}.docker_image = "{OWN}"']),
            "image": st.booleans(),
            "dockerfile": st.sampled_from(["FROM a", "FROM a\nRUN b", "FROM a\nCOPY b c", ""]),
            "of tests": st.booleans(),
            "step": st.sampled_from(["{}", '{environment_mode = "separate"}', "{environment = {}}"]),
            "mode": st.sampled_from(VerifierMode),
            "artifacts": st.booleans(),
            "option": st.booleans(),
        },
    )
)  # fmt: skip
def test_a_task_is_loaded_or_refused_and_a_separate_one_has_an_image_that_is_named(drawn):
    lines = [drawn.get("task", "")]
    lines += [f'environment.docker_image = "{IMAGE}"'] if drawn.get("image") else []
    lines += ['artifacts = ["/a"]'] if drawn.get("artifacts") else []
    lines += [f'steps = [{{name = "a", verifier = {drawn["step"]}}}]'] if "step" in drawn else []
    files: dict[str, str | bytes | None] = {"task.toml": "\n".join(lines), "steps/a/instruction.md": "x"}
    files |= {DOCKERFILE: drawn["dockerfile"]} if "dockerfile" in drawn else {}
    files |= {OF_TESTS: "FROM z"} if drawn.get("of tests") else {}
    terms = loader.Terms(drawn.get("mode"), separate_artifacts=drawn.get("option", False))
    try:
        task = loader.load(build.folder(files), task_id="t", terms=terms)
    except errors.TaskError:
        return
    for each in steps.turns(task):
        mode = each.config.verifier.mode
        assert (each.separate is not None) == (mode is VerifierMode.SEPARATE)
        if terms.separate_artifacts and drawn.get("artifacts"):
            assert mode is VerifierMode.SEPARATE
        elif terms.mode is not None:
            assert mode is terms.mode
        if each.separate is not None:
            assert each.separate.image.reference == (OWN if each.separate.own else IMAGE)
            assert separate.sandbox(each).config.verifier == each.config.verifier
