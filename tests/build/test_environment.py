"""build/environment.py: a variable is in the manifest or goes with every command, never both, never neither."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide import worlds

from taskfold.build import environment
from taskfold.contract import environment as contract

VALUES = st.sampled_from(["plain", "${HOST}", "${NONE:-default}", "a${HOST}b", ""])


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.from_regex(r"[A-Z]{1,6}", fullmatch=True), VALUES, max_size=6))
def test_both_parts_together_are_the_tasks_table(table):
    text = ", ".join(f"{name} = '{value}'" for name, value in table.items())
    task = worlds.task(f"environment.env = {{ {text} }}")
    filled = contract.resolve(table, {"HOST": "s3cret"})
    manifest, command = environment.of_container(worlds.run(), task, None), environment.of_commands(task, filled)
    assert not set(manifest) & set(command)
    assert {**manifest, **command} == filled
    assert "s3cret" not in manifest.values()
