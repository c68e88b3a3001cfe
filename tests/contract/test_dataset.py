"""dataset.toml: what is read, what is refused, what is passed over with a warning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import trees

from taskfold.contract import dataset, errors
from taskfold.contract.tables import EnvironmentTable

WHOLE = """
schema_version = "1.0"
[dataset]
name = "acme/tasks"
version = "1.0"
authors = [{name = "A"}]
[[tasks]]
name = "acme/hello"
digest = "sha256:%s"
[[files]]
path = "verifier.py"
[metadata]
anything = [1, {b = 2}]
[gym]
license = "MIT"
type = "train"
allowed_agents = ["a", "b"]
domain = "coding"
verified = true
source = "harbor:acme/tasks"
[gym.defaults]
timeout_multiplier = 2
resource_multiplier = 1.5
[gym.tasks."a.b".environment]
cpus = 2
env = {A = "1"}
[gym.tasks."a.b".verifier]
inputs = ["actions.jsonl", ".hidden", "naïve name"]
""" % ("0" * 64)


def problems(text: str) -> list[str]:
    try:
        dataset.read(text.encode())
    except errors.TaskError as error:
        return [str(each) for each in (error, *error.others)]
    return []


def test_everything_that_a_dataset_may_say():
    found = dataset.read(WHOLE.encode())
    assert (found.others, found.warnings) == ((), ())
    assert (found.gym.license, found.gym.type, found.gym.verified) == ("MIT", "train", True)
    assert found.gym.allowed_agents == ("a", "b")
    assert dataset.settings_of(found.gym, "a.b") == dataset.Settings(
        dataset.DefaultsTable(timeout_multiplier=2.0, resource_multiplier=1.5),
        EnvironmentTable(cpus=2, env={"A": "1"}),
        ("actions.jsonl", ".hidden", "naïve name"),
    )


def test_a_task_that_is_not_named_has_the_defaults_alone():
    found = dataset.settings_of(dataset.read(WHOLE.encode()).gym, "hello")
    assert found.document() == {"defaults": {"timeout_multiplier": 2.0, "resource_multiplier": 1.5}}


def test_what_changes_nothing_is_no_setting():
    text = "[gym.defaults]\ntimeout_multiplier = 1\n[gym.tasks.a.environment]\n[gym.tasks.a.verifier]\ninputs = []\n"
    assert dataset.settings_of(dataset.read(text.encode()).gym, "a").document() == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gym]\nlicence = 1", "dataset.toml: gym.licence: is not a key of [gym]. Write license, or remove the key."),
        ("[gym]\nxyz = 1", "dataset.toml: gym.xyz: is not a key of [gym]. Remove the key."),
        ("[gym.defaults]\ntimeout = 2", "gym.defaults.timeout: is not a key of [gym]"),
        ("[gym.tasks.a]\nenvironmen = {}", "gym.tasks.a.environmen: is not a key of [gym]. Write environment"),
        ("[gym.tasks.a.environment]\ncpu = 1", "gym.tasks.a.environment.cpu: is not a key of [gym]. Write cpus"),
        (
            '[gym.tasks."a b".environment.healthcheck]\ncommand="x"\nretry = 1',
            'gym.tasks."a b".environment.healthcheck.retry: is not a key',
        ),
        ("[gym.tasks.a.verifier]\nenv = {}", "gym.tasks.a.verifier.env: is not a key of [gym]"),
        ("[gym.defaults]\nresource_multiplier = 0", "gym.defaults.resource_multiplier = 0: must be greater than 0"),
        ("[gym.defaults]\ntimeout_multiplier = -1.5", "timeout_multiplier = -1.5: must be greater than 0"),
        ("[gym.defaults]\ntimeout_multiplier = inf", "timeout_multiplier = inf: must be a finite number"),
        ("[gym.defaults]\ntimeout_multiplier = nan", "timeout_multiplier = nan: must be a finite number"),
        ("[gym.defaults]\ntimeout_multiplier = true", "timeout_multiplier = true: must be a number"),
        ('[gym.defaults]\ntimeout_multiplier = "2"', 'timeout_multiplier = "2": must be a number'),
        ("[gym.tasks.a.environment]\ncpus = inf", "gym.tasks.a.environment.cpus = inf: must be a finite number"),
        ("[gym]\ntasks = []", "gym.tasks: must be a table"),
        ("[gym.tasks]\na = 1", "gym.tasks.a = 1: must be a table"),
        ("gym = 1", "gym = 1: must be a table"),
        (
            '[gym.tasks.a.environment]\nnetwork_mode = "no-network"',
            'gym.tasks.a.environment.network_mode = "no-network": restricts the network',
        ),
        ("[gym", "dataset.toml: is not valid TOML"),
        ("x = " + "[" * 40 + "]" * 40, "nests tables and arrays more than 32 deep"),
    ],
)
def test_a_wrong_setting_names_file_key_value_and_remedy(text, message):
    found = problems(text)
    assert len(found) == 1
    assert message in found[0]
    assert found[0].startswith("dataset.toml: ")
    assert found[0].endswith(".")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a/b", "has a path separator"),
        ("a\\b", "has a path separator"),
        ("/a", "has a path separator"),
        ("*.jsonl", "has a pattern"),
        ("a?", "has a pattern"),
        ("[a]", "has a pattern"),
        ("", "is not the name of a file"),
        (".", "is not the name of a file"),
        ("..", "is not the name of a file"),
        ("a\nb", "is not the name of a file"),
        ("x" * 256, "is not the name of a file"),
        *((name, "is what the grader writes") for name in sorted(dataset.GRADER_OUTPUTS)),
    ],
)
def test_an_input_is_the_plain_name_of_a_file_that_no_grader_writes(name, problem):
    quoted = name.replace("\\", "\\\\").replace("\n", "\\n")
    (found,) = problems(f'[gym.tasks.a.verifier]\ninputs = ["fine", "{quoted}"]')
    assert "gym.tasks.a.verifier.inputs[1]" in found
    assert problem in found


def test_every_problem_of_gym_is_found_at_once():
    text = "[gym]\nlicence = 1\nverified = 1\n[gym.tasks.a.environment]\ncpus = 0\n"
    assert [each.partition(": ")[2].partition(" ")[0].rstrip(":") for each in problems(text)] == [
        "gym.verified",
        "gym.tasks.a.environment.cpus",
        "gym.licence",
    ]


def test_harbors_tables_are_advice_never_an_error_of_a_run():
    found = dataset.read(b'[dataset]\nname = "nobody"\ncolour = 1\n[[tasks]]\ndigest = "x"\n[other]\n')
    assert [each.field for each in found.others] == ["dataset.name", "tasks[0].name", "tasks[0].digest"]
    assert found.warnings == (
        "dataset.toml: dataset.colour is not a key of the format and is ignored",
        "dataset.toml: other is not a key of the format and is ignored",
    )


def test_no_message_holds_a_value_of_an_env_table():
    (found,) = problems("[gym.tasks.a.environment]\nenv = {KEY = 4711}")
    assert "4711" not in found


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_a_task_error(content):
    trees.document_or_error(lambda: dataset.read(content))


@given(trees.documents(dataset.DatasetToml))
def test_any_tree_of_known_keys_is_a_document_or_a_task_error(text):
    trees.document_or_error(lambda: dataset.read(text.encode()))
