"""Overrides first, then multipliers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import dataset, errors, overrides
from taskfold.contract.tables import EnvironmentTable
from taskfold.contract.task_toml import TaskToml

TASK = TaskToml.model_validate(
    {
        "environment": {"docker_image": "a", "cpus": 2, "memory_mb": 100, "gpus": 1, "env": {"A": "1", "B": "2"}},
        "agent": {"timeout_sec": 10},
        "verifier": {"timeout_sec": 20, "environment": {"cpus": 1, "storage_mb": 3}},
        "steps": [{"name": "a", "agent": {"timeout_sec": 5}}, {"name": "b", "verifier": {"timeout_sec": 7}}],
    }
)


def applied(environment=None, **defaults):
    override = EnvironmentTable.model_validate(environment) if environment is not None else None
    return overrides.apply(TASK, dataset.Settings(dataset.DefaultsTable(**defaults), override))


def test_without_settings_nothing_changes():
    assert applied() == TASK


def test_env_is_added_to_and_every_other_key_replaces():
    found = applied({"cpus": 4, "workdir": "/w", "env": {"B": "3", "C": "4"}}).environment
    assert found.env == {"A": "1", "B": "3", "C": "4"}
    assert (found.cpus, found.workdir, found.docker_image, found.memory_mb) == (4, "/w", "a", 100)


def test_a_key_that_the_override_leaves_out_keeps_the_tasks_value():
    assert applied({"workdir": "/w"}).environment.docker_image == "a"


def test_the_timeout_multiplier_scales_agent_and_verifier_and_those_of_steps():
    found = applied(timeout_multiplier=1.5)
    assert (found.agent.timeout_sec, found.verifier.timeout_sec) == (15.0, 30.0)
    steps = found.steps or ()
    assert [(step.agent.timeout_sec, step.verifier.timeout_sec) for step in steps] == [(7.5, 900.0), (None, 10.5)]


def test_the_resource_multiplier_rounds_up_and_leaves_gpus_alone():
    found = applied(resource_multiplier=1.1)
    assert (found.environment.cpus, found.environment.memory_mb, found.environment.gpus) == (3, 110, 1)
    verifier = found.verifier.environment
    assert verifier is not None
    assert (verifier.cpus, verifier.storage_mb, verifier.memory_mb) == (2, 4, None)


def test_an_override_is_multiplied_too():
    assert applied({"memory_mb": 10}, resource_multiplier=3.0).environment.memory_mb == 30


@pytest.mark.parametrize(
    ("defaults", "field"),
    [({"timeout_multiplier": 1e6}, "agent.timeout_sec"), ({"resource_multiplier": 1e6}, "environment.cpus")],
)
def test_what_leaves_its_bounds_is_refused(defaults, field):
    table = {"verifier": {"timeout_sec": 1e6}, "environment": {"cpus": 10}}
    task = TaskToml.model_validate(table)
    with pytest.raises(errors.TaskError, match=r"times the dataset's gym\.defaults") as caught:
        overrides.apply(task, dataset.Settings(dataset.DefaultsTable(**defaults)))
    assert caught.value.field == field


@given(st.integers(1, 10**6), st.floats(0.001, 1000))
def test_scaled_sizes_are_whole_and_never_too_small(memory, factor):
    task = TaskToml.model_validate({"environment": {"memory_mb": memory}})
    found = overrides.apply(task, dataset.Settings(dataset.DefaultsTable(resource_multiplier=factor)))
    assert isinstance(found.environment.memory_mb, int)
    assert memory * factor * (1 - 1e-9) <= found.environment.memory_mb <= memory * factor * (1 + 1e-9) + 1
