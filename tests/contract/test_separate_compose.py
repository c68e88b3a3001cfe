"""What tests/docker-compose.yaml of a separate verifier may say."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.build import load, refusal, toml

from taskfold.contract import errors, separate_compose

FILE = separate_compose.FILE
SEPARATE = toml('verifier.environment_mode = "separate"', 'artifacts = ["/a"]')
STEPS = {"steps/a/instruction.md": ""}


def found(text: str | bytes, *, prebuilt: bool) -> list[errors.TaskError]:
    try:
        separate_compose.check(text.encode() if isinstance(text, str) else text, prebuilt=prebuilt)
    except errors.TaskError as error:
        return [error, *error.others]
    return []


ALLOWED = {
    "nothing": "",
    "a comment": "# none\n",
    "the four of the top": 'name: a\nversion: "3"\nservices: {}\nx-a: [1]\n',
    "no services": "services:\n",
    "no main": "services: {}\n",
    "a main without anything": "services: {main: }\n",
    "an alias": "x-p: &p missing\nservices: {main: {pull_policy: *p}}",
}


@pytest.mark.parametrize("prebuilt", [True, False])
@pytest.mark.parametrize("text", ALLOWED.values(), ids=ALLOWED)
def test_what_it_may_say(text, prebuilt):
    assert found(text, prebuilt=prebuilt) == []


@pytest.mark.parametrize("policy", ["always", "never", "missing", "if_not_present", "daily", "weekly", "every_12h"])
def test_when_a_prebuilt_image_is_pulled_is_said_in_vain(policy):
    text = f"services: {{main: {{pull_policy: {policy}}}}}".encode()
    (warning,) = separate_compose.check(text, prebuilt=True)
    assert warning.startswith(f"{FILE}: services.main.pull_policy has no effect")
    assert separate_compose.check(text, prebuilt=False) == ()


@pytest.mark.parametrize("key", ["image: x", "build: .", "build: {context: ., args: {A: b}}", "pull_policy: build"])
def test_what_only_an_image_that_is_built_may_have(key):
    text = f"services: {{main: {{{key}}}}}"
    assert found(text, prebuilt=False) == []
    (error,) = found(text, prebuilt=True)
    assert (error.file, error.field) == (FILE, f"services.main.{key.partition(':')[0]}")


REFUSED = {
    "another key at the top": ("volumes: {}", ["volumes"]),
    "include": ("include: [x.yaml]", ["include"]),
    "another service": ("services: {main: {}, db: {image: x}}", ["services.db"]),
    "another key of main": ("services: {main: {privileged: true}}", ["services.main.privileged"]),
    "an x- key of main": ("services: {main: {x-a: 1}}", ["services.main.x-a"]),
    "a merge": ("x-a: &a {privileged: true}\nservices: {main: {<<: *a}}", ["services.main.<<"]),
    "a key that stands twice": ("services: {main: {ports: [1]}}\nservices: {}", ["services.main.ports"]),
    "a policy that is none": ("services: {main: {pull_policy: often}}", ["services.main.pull_policy"]),
    "a policy to be filled": ("services: {main: {pull_policy: '${P}'}}", ["services.main.pull_policy"]),
    "a policy that is a list": ("services: {main: {pull_policy: [never]}}", ["services.main.pull_policy"]),
    "no mapping": ("[a]", [None]),
    "a text": ("a", [None]),
    "services that are none": ("services: [main]", ["services"]),
    "a main that is none": ("services: {main: x}", ["services.main"]),
    "a key that is a list": ("? [a]\n: b", [None]),
    "everything at once": (
        "networks: {}\nservices: {a: {}, main: {tty: true}}",
        ["networks", "services.a", "services.main.tty"],
    ),
}


@pytest.mark.parametrize("prebuilt", [True, False])
@pytest.mark.parametrize(("text", "fields"), REFUSED.values(), ids=REFUSED)
def test_what_it_may_not_say_is_refused_by_name(text, fields, prebuilt):
    errors_found = found(text, prebuilt=prebuilt)
    assert [error.field.replace('"', "") if error.field else None for error in errors_found] == fields
    for error in errors_found:
        assert (error.file, error.unsupported) == (FILE, False)
        assert error.remedy.endswith(".")


BROKEN = {
    "no YAML": "a: [",
    "two documents": "a: 1\n---\nb: 2\n",
    "an alias of nothing": "x-a: *b",
    "no text": b"\xff",
    "a character that is none": '"\\UFFFFFFFF"',
    "a control character": "a: \x07",
    "deep": "[" * 5000,
    "deep below": "x-a:\n" + "".join(" " * depth + "- \n" for depth in range(200)) + "{" * 3000,
    "a directive": "%YAML 99999999999999999999.1\n---\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_is_refused(text):
    (error,) = found(text, prebuilt=True)
    assert error.file == FILE
    assert error.remedy == "Correct the file, or remove it."


def test_aliases_cost_nothing():
    bomb = "x-0: &a0 [x]\n" + "".join(
        f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 20)}]\n" for n in range(1, 60)
    )  # fmt: skip
    assert found(bomb, prebuilt=True) == []


def test_it_is_not_read_beyond_its_size():
    error = refusal(SEPARATE | {FILE: "#" * (separate_compose.MAX_BYTES + 1)})
    assert error.file == FILE


def test_a_loader_refuses_it_in_separate_mode_only():
    compose = {FILE: "services: {main: {ports: ['80:80']}}"}
    assert load(compose).warnings == ()
    error = refusal(SEPARATE | compose)
    assert (error.file, error.field) == (FILE, "services.main.ports")


def test_with_an_image_that_is_built_both_are_said():
    files = {
        "task.toml": 'verifier.environment_mode = "separate"',
        "environment/Dockerfile": "FROM a",
        "tests/Dockerfile": "FROM a",
        FILE: "services: {main: {build: ., ports: []}}",
    }
    error = refusal(files)
    assert [(each.file, each.field, each.unsupported) for each in (error, *error.others)] == [
        (FILE, "services.main.ports", False),
        ("tests/Dockerfile", None, True),
    ]


def test_a_steps_own_file_lies_over_the_tasks():
    lines = toml('verifier.environment_mode = "separate"', 'artifacts = ["/a"]', 'steps = [{name = "a"}]')
    wrong, right = "volumes: {}", "services: {}"
    own = "steps/a/tests/docker-compose.yaml"
    assert load(lines | STEPS | {FILE: wrong, own: right}).warnings == ()
    assert refusal(lines | STEPS | {FILE: right, own: wrong}).file == own
    assert refusal(lines | STEPS | {FILE: wrong}).file == FILE


KEYS = st.sampled_from(
    ["services", "name", "version", "x-a", "main", "db", "image", "build", "pull_policy", "<<", "", "1"]
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["build", "never"])
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(TREES, st.booleans())
def test_a_document_that_is_let_pass_holds_nothing_else(tree, prebuilt):
    if found(yaml.safe_dump(tree), prebuilt=prebuilt):
        return
    assert tree is None or isinstance(tree, dict)
    for key, value in (tree or {}).items():
        assert key in ("services", "name", "version") or key.startswith("x-")
        if key == "services" and value is not None:
            assert set(value) <= {"main"}
            main = value.get("main") or {}
            assert set(main) <= ({"pull_policy"} if prebuilt else {"pull_policy", "image", "build"})
            assert not prebuilt or main.get("pull_policy") != "build"


@given(st.binary(max_size=200) | st.text("{}[]&*!|>%@:,?-# \n\tab'\"\\U0", max_size=60), st.booleans())
def test_any_bytes_give_warnings_or_an_error(text, prebuilt):
    for error in found(text, prebuilt=prebuilt):
        assert str(error).startswith(FILE)
