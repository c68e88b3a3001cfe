"""The seed's "Environment variables and secrets"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import environment, errors
from taskfold.contract.task_toml import TaskToml


def config(**tables):
    return TaskToml.model_validate({table: {"env": env} for table, env in tables.items()})


def test_a_whole_value_var_is_read_from_the_host_environment():
    assert environment.resolve({"A": "${X}"}, {"X": "1"}) == {"A": "1"}


def test_a_whole_value_with_a_default_is_the_host_value_or_the_default():
    table = {"A": "${X:-d}", "B": "${Y:-}", "C": "${Z:-a:-b}c}"}
    assert environment.resolve(table, {}) == {"A": "d", "B": "", "C": "a:-b}c"}
    assert environment.resolve(table, {"X": "1", "Y": "2", "Z": "3"}) == {"A": "1", "B": "2", "C": "3"}


def test_an_empty_host_value_counts_as_set():
    assert environment.resolve({"A": "${X}", "B": "${X:-d}"}, {"X": ""}) == {"A": "", "B": ""}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "$X",
        "a${X}",
        "${X}b",
        "${X} ",
        " ${X}",
        "${X}\n",
        "${X}${X}",
        "$${X}",
        "${}",
        "${:-d}",
        "${X:d}",
        "${X:+d}",
        "${X",
    ],
    ids=ascii,
)
def test_anything_but_a_whole_template_is_literal_text(value):
    assert environment.resolve({"A": value}, {"X": "1", "": "2"}) == {"A": value}


@pytest.mark.parametrize("name", ["X", "x y", "X-Y", "${X", "1", "X.Y", "X=Y", "ü"])
def test_a_name_is_anything_but_a_brace_and_a_colon(name):
    assert environment.resolve({"A": f"${{{name}}}"}, {name: "1"}) == {"A": "1"}


def test_a_default_may_span_lines():
    assert environment.resolve({"A": "${X:-one\ntwo}"}, {}) == {"A": "one\ntwo"}


def test_a_filled_value_is_not_a_template_again():
    assert environment.resolve({"A": "${X}"}, {"X": "${Y}", "Y": "1"}) == {"A": "${Y}"}


def test_every_missing_value_is_reported_at_once_by_name_without_values():
    task = config(
        environment={"A": "${ONE}", "LITERAL": "sekret-literal"},
        verifier={"B": "${TWO}", "C": "${THREE:-sekret-default}"},
        solution={"D": "${FOUR}"},
    )
    with pytest.raises(errors.MissingVariable) as caught:
        environment.resolve_task(task, {"OTHER": "sekret-host"}, secrets={"S": "sekret"}, solution=True)
    assert caught.value.missing == {
        "environment.env.A": "ONE",
        "verifier.env.B": "TWO",
        "solution.env.D": "FOUR",
    }
    assert "sekret" not in str(caught.value)


def test_the_solutions_variables_are_needed_by_an_oracle_only():
    task = config(solution={"D": "${FOUR}"})
    assert environment.resolve_task(task, {}).solution == {}
    assert environment.resolve_task(task, {"FOUR": "4"}, solution=True).solution == {"D": "4"}


def test_secrets_fill_templates_of_the_verifier_only():
    task = config(environment={"A": "${KEY:-none}"}, verifier={"B": "${KEY}"}, solution={"C": "${KEY:-none}"})
    resolved = environment.resolve_task(task, {}, secrets={"KEY": "s"}, solution=True)
    assert (resolved.sandbox, resolved.verifier, resolved.solution) == (
        {"A": "none"},
        {"B": "s"},
        {"C": "none"},
    )


def test_secrets_win_over_the_host_environment():
    assert environment.resolve({"A": "${X}"}, {"X": "host"}, secrets={"X": "secret"}) == {"A": "secret"}


def test_a_secret_without_a_template_is_not_in_the_environment():
    assert environment.resolve({"A": "1"}, {}, secrets={"X": "secret"}) == {"A": "1"}


def test_literals_are_what_holds_no_template():
    assert environment.literals({"A": "1", "B": "${X}", "C": "a${X}", "D": "${X:-d}"}) == {
        "A": "1",
        "C": "a${X}",
    }


@pytest.mark.parametrize(("cpus", "hint"), [(1, "1"), (2.9, "2"), (0.5, "1"), (64, "64"), (1e-9, "1")])
def test_a_cpu_limit_gives_hints_rounded_down_and_at_least_1(cpus, hint):
    hints = environment.cpu_hints(cpus)
    assert set(hints.values()) == {hint}
    assert {"OMP_NUM_THREADS", "GOMAXPROCS", "CMAKE_BUILD_PARALLEL_LEVEL"} <= set(hints)
    assert "MAKEFLAGS" not in hints
    assert len(hints) == 19


def test_without_a_cpu_limit_there_are_no_hints():
    assert environment.cpu_hints(None) == {}


def test_a_variable_the_task_sets_wins_as_does_one_the_image_on_record_sets():
    env = environment.with_cpu_hints({"GOMAXPROCS": "9", "A": "1"}, 2, image={"OMP_NUM_THREADS": "7"})
    assert (env["GOMAXPROCS"], env["A"], env["MKL_NUM_THREADS"]) == ("9", "1", "2")
    assert "OMP_NUM_THREADS" not in env


TEXTS = st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(TEXTS, TEXTS), st.dictionaries(TEXTS, TEXTS), st.dictionaries(TEXTS, TEXTS))
def test_resolving_keeps_the_names_and_changes_whole_templates_only(table, host, secrets):
    try:
        resolved = environment.resolve(table, host, secrets=secrets)
    except errors.MissingVariable as error:
        assert set(error.missing.values()).isdisjoint({**host, **secrets})
        return
    assert list(resolved) == list(table)
    for name, value in table.items():
        if not (value.startswith("${") and value.endswith("}")):
            assert resolved[name] == value


def test_the_tables_of_steps_and_of_a_separate_verifier_are_looked_at_too():
    task = TaskToml.model_validate(
        {
            "verifier": {"environment": {"env": {"A": "${JUDGE}"}}},
            "steps": [
                {"name": "one"},
                {"name": "two", "verifier": {"env": {"B": "${JUDGE}", "C": "${NOWHERE}", "D": "${HOST}"}}},
                {"name": "three", "verifier": {"environment": {"env": {"E": "${JUDGE}", "F": "${HOST}"}}}},
            ],
        }
    )
    with pytest.raises(errors.MissingVariable) as caught:
        environment.resolve_task(task, {"HOST": "h"}, secrets={"JUDGE": "s"})
    assert caught.value.missing == {
        "verifier.environment.env.A": "JUDGE",  # a secret fills the tables of verifiers, not of sandboxes
        "steps[1].verifier.env.C": "NOWHERE",
        "steps[2].verifier.environment.env.E": "JUDGE",
    }


def test_an_environment_that_no_sandbox_is_made_of_need_not_be_filled():
    steps = [{"name": "a", "verifier": {"environment_mode": "shared"}}, {"name": "b", "verifier": {"environment": {}}}]
    task = TaskToml.model_validate({"verifier": {"environment": {"env": {"A": "${NOWHERE}"}}}, "steps": steps})
    assert environment.resolve_task(task, {}).sandbox == {}


LONGEST = environment.MAX_VARIABLE - len("A=") - 1
UNUSABLE = {
    "a NUL": ({"A": "${X}"}, "a\0b", "verifier.env.A: is filled with a text that has a NUL"),
    "too long": ({"A": "${X}"}, "x" * (LONGEST + 1), "verifier.env.A: is filled with 131,073 bytes, name included"),
    "too long in bytes": ({"A": "${X}"}, "ü" * (LONGEST // 2 + 1), "verifier.env.A: is filled with"),
    "too much": (dict.fromkeys("ABCDE", "${X}"), "x" * (LONGEST - 1), "verifier.env: has 655,355 bytes"),
}


@pytest.mark.parametrize(("table", "value", "says"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_linux_takes_for_no_variable_is_refused_before_anything_starts(table, value, says):
    with pytest.raises(errors.TaskError) as raised:
        environment.resolve_task(config(verifier=table), {}, secrets={"X": value})
    assert says in str(raised.value)
    assert value[:9] not in str(raised.value)


def test_the_longest_variable_is_taken():
    found = environment.resolve_task(config(verifier={"A": "${X}"}), {"X": "x" * LONGEST})
    assert len(found.verifier["A"]) == LONGEST
