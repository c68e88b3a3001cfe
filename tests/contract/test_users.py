"""The seed's "Users"."""

import pytest

from taskfold.contract import users
from taskfold.contract.task_toml import TaskToml
from taskfold.contract.users import User


def config(*, agent=None, verifier=None):
    return TaskToml.model_validate(
        {
            "agent": {} if agent is None else {"user": agent},
            "verifier": {} if verifier is None else {"user": verifier},
        }
    )


def test_test_sh_runs_as_the_verifiers_user():
    assert users.verifier(config(verifier="grader", agent="app"), "image") == User(name="grader")
    assert users.verifier(config(verifier="grader", agent="app"), None) == User(name="grader")
    assert users.verifier(config(verifier=0), "image") == User(uid=0)


def test_unset_it_runs_as_the_user_the_image_starts_with_never_the_agents():
    assert users.verifier(config(agent="app"), "image") == User(name="image")
    assert users.verifier(config(), "image") == User(name="image")
    assert users.verifier(config(), None) is None


def test_with_no_record_of_that_user_and_an_agents_user_it_runs_as_root():
    assert users.verifier(config(agent="app"), None) == users.ROOT
    assert users.verifier(config(agent=0), None) == users.ROOT


def test_a_record_without_a_user_is_the_images_own():
    assert users.verifier(config(agent="app"), "") is None


def test_a_numeric_image_user_is_that_uid():
    assert users.verifier(config(), "1000") == User(uid=1000)


def test_c30_a_verifiers_user_is_used_as_written_a_numeric_string_is_a_name():
    assert users.verifier(config(verifier="1000"), None) == User(name="1000")
    assert users.verifier(config(verifier=1000), None) == User(uid=1000)


def test_the_agent_runs_as_its_user_else_as_the_images():
    assert users.agent(config(agent="app"), "image") == User(name="app")
    assert users.agent(config(agent=0), "image") == User(uid=0)
    assert users.agent(config(), "image") == User(name="image")
    assert users.agent(config(), None) is None


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("", None),
        (":staff", None),
        ("app", User(name="app")),
        ("0", User(uid=0)),
        ("1000:1000", User(uid=1000, gid=1000)),
        ("app:staff", User(name="app", group="staff")),
        ("app:50", User(name="app", gid=50)),
        ("1000:staff", User(uid=1000, group="staff")),
        ("1000a", User(name="1000a")),
        ("-1", User(name="-1")),
        ("٣", User(name="٣")),
        ("99999999999", User(name="99999999999")),
        ("app:", User(name="app")),
    ],
)
def test_an_images_user_and_its_group_are_honoured(user, expected):
    assert users.of_image(user) == expected


@pytest.mark.parametrize(
    ("user", "group"), [("a:b", True), ("1000:1000", True), ("a", False), (5, False), (None, False)]
)
def test_a_user_with_a_group_is_told_apart(user, group):
    assert users.has_group(user) is group
