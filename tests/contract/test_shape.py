import pytest

from taskfold.contract import shape
from taskfold.contract.tables import EnvironmentTable
from taskfold.contract.task_toml import CollectTable, TaskToml


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ((), ""),
        (("verifier", "collect", 0, "user"), "verifier.collect[0].user"),
        (("environment", "env", "A B"), 'environment.env."A B"'),
        (("environment", "env", ""), 'environment.env.""'),
    ],
)
def test_a_location_is_written_as_toml_would(location, path):
    assert shape.dotted(location) == path


def test_the_table_inside_an_annotation_is_found():
    fields = TaskToml.model_fields
    assert shape.table_of(fields["environment"].annotation) is EnvironmentTable
    collect = list(shape.fields_at(TaskToml, ("verifier", "collect", 3, "user")))
    assert shape.table_of(collect[1].annotation) is CollectTable
    assert shape.table_of(fields["metadata"].annotation) is None


def test_fields_are_followed_as_far_as_the_models_know_them():
    assert len(list(shape.fields_at(TaskToml, ("verifier", "env", "KEY")))) == 2
    assert list(shape.fields_at(TaskToml, ("nothing", "there"))) == []


@pytest.mark.parametrize(
    ("location", "secret"),
    [
        (("verifier", "env"), True),
        (("environment", "mcp_servers", 0, "headers"), True),
        (("agent", "user"), False),
    ],
)
def test_env_tables_and_headers_are_secret(location, secret):
    assert shape.is_secret(list(shape.fields_at(TaskToml, location))[-1]) is secret
