import datetime

import pytest

from taskfold.contract import errors


def test_a_message_names_file_key_value_problem_and_remedy():
    error = errors.TaskError(
        "must be greater than 0",
        file="task.toml",
        field="verifier.timeout_sec",
        value=-1,
        remedy="Write seconds, for example 600.",
    )
    assert str(error) == (
        "task.toml: verifier.timeout_sec = -1: must be greater than 0. Write seconds, for example 600."
    )
    assert not error.unsupported


def test_what_is_not_supported_yet_says_so_at_the_end():
    error = errors.TaskError(
        "a task with GPUs",
        file="task.toml",
        field="environment.gpus",
        value=1,
        remedy="remove the key.",
        unsupported=True,
    )
    assert str(error) == "task.toml: environment.gpus = 1: a task with GPUs (remove the key): not supported yet"


def test_a_missing_variable_names_every_variable_and_its_key():
    error = errors.MissingVariable({"verifier.env.KEY": "TOKEN", "environment.env.B": "OTHER"})
    assert "TOKEN (for verifier.env.KEY), OTHER (for environment.env.B)" in str(error)
    assert isinstance(error, errors.TaskError)
    assert error.missing == {"verifier.env.KEY": "TOKEN", "environment.env.B": "OTHER"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (2.5, "2.5"),
        ('a"b', '"a\\"b"'),
        ("ü", '"ü"'),
        (datetime.date(2024, 5, 1), "2024-05-01"),
        (2**5000, "an integer of more than 256 bits"),
        (None, ""),
        ({"KEY": "secret"}, ""),
        (["secret"], ""),
    ],
    ids=str,
)
def test_values_are_shown_as_toml_spells_them_and_containers_never(value, shown):
    assert errors.show(value) == shown


def test_a_long_value_is_cut():
    shown = errors.show("x" * 1000)
    assert len(shown) == errors.SHOWN_CHARACTERS
    assert shown.endswith("…")


def test_a_lone_surrogate_cannot_break_a_message():
    assert errors.show("\ud800").encode()
