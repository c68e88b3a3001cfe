"""build/environment.py: a variable is in the manifest or goes with every command, never both, never neither."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide import worlds

from taskfold.api.settings import PodSettings
from taskfold.build import environment
from taskfold.contract import environment as contract

DEFAULTS = PodSettings()
VALUES = st.sampled_from(["plain", "${HOST}", "${NONE:-default}", "a${HOST}b", ""])


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.from_regex(r"[A-Z]{1,6}", fullmatch=True), VALUES, max_size=6))
def test_both_parts_together_are_the_tasks_table(table):
    text = ", ".join(f"{name} = '{value}'" for name, value in table.items())
    task = worlds.task(f"environment.env = {{ {text} }}")
    filled = contract.resolve(table, {"HOST": "s3cret"})
    manifest = environment.of_container(worlds.run(), task, None, DEFAULTS)
    command = environment.of_commands(task, filled)
    assert not set(manifest) & set(command)
    assert {**manifest, **command} == filled
    assert "s3cret" not in manifest.values()


LIMITS = {
    "of the task": ("environment.cpus = 2.9", {}, DEFAULTS, "2"),
    "scaled": ("environment.cpus = 2", {"multipliers": {"resource": 1.5}}, DEFAULTS, "3"),
    "of the run": ("", {"pod": {"resources": {"limits": {"cpu": "3500m"}}}}, DEFAULTS, "3"),
    "the run's wins": ("environment.cpus = 8", {"pod": {"resources": {"limits": {"cpu": 4}}}}, DEFAULTS, "4"),
    "of the operator": ("", {}, PodSettings(cpu_limit="6"), "6"),
    "less than one": ("environment.cpus = 0.5", {}, DEFAULTS, "1"),
    "none": ("", {}, DEFAULTS, None),
}


@pytest.mark.parametrize(("line", "spec", "defaults", "hint"), LIMITS.values(), ids=LIMITS)
def test_hints_tell_the_cpu_limit_that_the_sandbox_really_has(line, spec, defaults, hint):
    found = environment.of_container(worlds.run(**spec), worlds.task(*filter(None, [line])), None, defaults)
    assert found.get("OMP_NUM_THREADS") == hint
