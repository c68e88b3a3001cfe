from pathlib import Path

import pytest

from taskfold.contract import fields, shape
from taskfold.contract.dataset import DatasetToml
from taskfold.contract.task_toml import TaskToml
from taskfold.contract.values import Status

PAGE = Path(__file__).parents[2] / "docs/reference/task-folder.md"


def row(path):
    return next(field for field in fields.fields() if field.path == path)


@pytest.mark.parametrize(
    ("path", "type", "default", "status"),
    [
        ("agent.timeout_sec", "number", "`28800`", "supported"),
        ("environment.gpus", "integer", "unset", "supported"),
        ("environment.healthcheck.retries", "integer", "`3`", "supported"),
        ("environment.os", "`linux`, `windows`", "`linux`", "supported: `linux`; `windows` is refused"),
        ("agent.allowed_hosts", "array of strings", "unset", "supported: in the `harbor` dialect"),
        ("verifier.env", "table of strings", "`{}`", "supported"),
        ("verifier.user", "integer or string", "unset", "supported"),
        ("verifier.collect.command", "string", "required", "supported"),
        ("task.authors.name", "string", "required", "read, without effect"),
        ("environment.memory", "", "", "deprecated"),
        ("steps.min_reward", "number or table of numbers", "unset", "supported"),
        ("artifacts.source", "string", "required", "supported"),
        ("environment.mcp_servers.name", "string", "required", "refused for now"),
    ],
)
def test_a_key_of_the_reference(path, type, default, status):  # noqa: A002
    field = row(path)
    assert (field.type, field.default, field.status) == (type, default, status)
    assert field.meaning


@pytest.mark.parametrize("model", [TaskToml, DatasetToml])
def test_no_key_is_listed_twice(model):
    paths = [field.path for field in fields.fields(model)]
    assert len(paths) == len(set(paths))


def test_the_keys_of_a_dataset_are_listed_by_their_tables():
    text = fields.markdown(DatasetToml)
    assert '### [gym.tasks."<id>".verifier]' in text
    assert "| `timeout_multiplier` | number | `1` | supported |" in text
    assert "cpus |" not in text


def test_what_the_reference_calls_refused_for_now_is_refused():
    for field in fields.fields():
        if field.status == Status.NOT_YET.value:
            keys = [shape.key_of(each) for each in shape.fields_at(TaskToml, tuple(field.path.split(".")))]
            assert any(key.status is Status.NOT_YET and key.feature and key.write for key in keys), field.path


def test_the_page_is_current():
    """After a change: write `fields.render(page)` back to the page (`make generate` does)."""
    page = PAGE.read_text()
    assert fields.render(page) == page


def test_a_page_without_the_marks_is_refused():
    with pytest.raises(ValueError, match="no place"):
        fields.render("# A page\n")
