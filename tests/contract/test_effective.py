"""The effective folder: what is in it, what changes its identity, and how it is read again."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import build

from taskfold.contract import dataset, digest, effective, errors, folder, loader

TOML = '[gym.defaults]\ntimeout_multiplier = 2.0\n[gym.tasks.hello.environment]\nworkdir = "/w"\n'
VERIFIER = "def verify(): return 1"
WITHOUT_TESTS = {"tests/test.sh": None}


def memory(files):
    return folder.MemoryFolder({path: (text.encode(), False) for path, text in files.items()})


def paths(source):
    return [entry.path for entry in source.entries()]


def within(toml="", verifier=None):
    return effective.Dataset(dataset.read(toml.encode()).gym, verifier.encode() if verifier else None)


def composed(files=None, *, name="hello", row=None, **around):
    return effective.compose(build.folder(files), name=name, within=within(**around), row=row)


def test_a_task_to_which_nothing_is_added_is_its_used_files():
    plain = build.folder({"README.md": "x"})
    assert paths(effective.compose(plain)) == ["instruction.md", "task.toml", "tests/test.sh"]
    assert digest.task_digest(effective.compose(plain)) == digest.task_digest(plain)


def test_what_a_task_itself_has_under_dataset_is_not_in_it():
    own = {"dataset/verifier.py": VERIFIER, "dataset/settings.json": "{}", **WITHOUT_TESTS}
    found = effective.compose(build.folder(own))
    assert paths(found) == ["instruction.md", "task.toml"]
    with pytest.raises(errors.TaskError, match="tests/: is missing"):
        loader.load(found, task_id="hello")


def test_the_datasets_verifier_grades_a_single_step_task_without_tests():
    found = loader.load(composed(WITHOUT_TESTS, verifier=VERIFIER), task_id="hello")
    assert found.grader == "dataset/verifier.py"


@pytest.mark.parametrize(
    "files",
    [
        {},
        {**WITHOUT_TESTS, "tests/data.txt": "x"},
        {**WITHOUT_TESTS, "tests/verifier.py": ""},
        {**WITHOUT_TESTS, **build.toml('steps = [{name = "a"}]'), "steps/a/instruction.md": ""},
    ],
    ids=["test.sh", "a tests folder", "a verifier of its own", "several steps"],
)
def test_it_is_no_part_of_any_other_task(files):
    assert "dataset/verifier.py" not in paths(composed(files, verifier=VERIFIER))


def test_the_settings_are_applied_when_the_folder_is_loaded_again():
    found = composed(toml=TOML)
    out = io.BytesIO()
    assert digest.write_snapshot(found, out) == digest.task_digest(found)
    task = loader.load(found, task_id="renamed")
    assert (task.config.environment.workdir, task.config.verifier.timeout_sec) == ("/w", 1200.0)


def test_only_the_settings_of_this_task_change_its_digest():
    base = digest.task_digest(composed(toml=TOML))
    assert digest.task_digest(composed(toml=TOML + '[gym.tasks.other.environment]\nworkdir = "/x"\n')) == base
    assert digest.task_digest(composed(toml=TOML.replace("[gym", "# a comment\n[gym", 1))) == base
    assert digest.task_digest(composed(toml=TOML.replace("2.0", "3.0"))) != base
    assert digest.task_digest(composed(toml=TOML, name="other")) != base


def test_a_change_of_the_datasets_verifier_changes_the_digest_of_the_tasks_that_it_grades_only():
    def both(files):
        return {digest.task_digest(composed(files, verifier=text)) for text in ("def verify(): return 1", "pass")}

    assert len(both(WITHOUT_TESTS)) == 2
    assert len(both({})) == 1


# the row


def test_a_row_is_the_data_of_a_folder_without_task_data():
    task = loader.load(composed(row={"b": 1, "a": [2]}), task_id="hello")
    assert task.data == {"a": [2], "b": 1}
    assert digest.task_digest(composed(row={"a": 1})) != digest.task_digest(composed(row={"a": 2}))


def test_a_row_that_equals_task_data_changes_nothing():
    files = {"task_data.json": '{"a": 1, "b": 2.0}'}
    found = composed(files, row={"b": 2, "a": 1})
    assert digest.task_digest(found) == digest.task_digest(composed(files))


@pytest.mark.parametrize("row", [{"a": 2, "b": 1}, {"a": 1}, {"a": 1, "b": 1, "c": 1}, {}])
def test_a_row_that_differs_is_refused_with_the_names_of_its_fields(row):
    with pytest.raises(errors.TaskError, match=r'is not what task_data.json holds: "[abc]"') as caught:
        composed({"task_data.json": '{"a": 1, "b": 1}'}, row=row)
    assert caught.value.file == "spec.task.data"


def test_a_row_with_a_reserved_field_is_refused():
    with pytest.raises(errors.TaskError, match=r"spec\.task\.data: _ng_x"):
        composed(row={"_ng_x": 1})


def test_no_row_and_an_empty_row_are_no_data():
    assert loader.load(composed(row=None), task_id="x").data is None
    assert loader.load(composed(row={}), task_id="x").data is None


# where a dataset begins


@pytest.mark.parametrize(
    ("files", "path", "root"),
    [
        (["dataset.toml"], "a", ""),
        (["dataset.toml", "d/dataset.toml"], "d/e/a", "d"),
        (["dataset.toml", "d/verifier.py"], "d/a", ""),
        (["verifier.py"], "d/a", ""),
        (["d/verifier.py"], "d/a", None),
        (["a/dataset.toml"], "a", None),
        ([], "a", None),
        (["dataset.toml", "verifier.py"], "", None),
    ],
)
def test_a_dataset_begins_at_the_nearest_dataset_toml_above_the_task(files, path, root):
    assert effective.root_of(memory(dict.fromkeys(files, "")), path) == root


# a source made of it


@given(
    st.sampled_from(["", TOML, TOML + '[gym.tasks.hello.verifier]\ninputs = ["a", "b c"]\n', "[gym.tasks.hello]\n"]),
    st.sampled_from([None, VERIFIER]),
    st.booleans(),
    st.sampled_from(["hello", 'a "b".c']),
)
def test_a_source_made_of_an_effective_folder_gives_the_same_folder_again(toml, verifier, tests, name):
    toml = toml.replace("tasks.hello", f"tasks.{json.dumps(name)}")
    found = composed({} if tests else WITHOUT_TESTS, name=name, toml=toml, verifier=verifier)
    source, path = effective.source_of(found, name)
    if path is None:
        again = effective.compose(source)
    else:
        root = effective.root_of(source, path)
        assert root == ""
        around = effective.read_root(source, root)
        again = effective.compose(folder.subtree(source, path), name=path, within=around)
    assert digest.task_digest(again) == digest.task_digest(found)


def test_a_source_holds_nothing_of_other_tasks():
    toml = TOML + '[gym]\nlicense = "MIT"\n[gym.tasks.other.environment]\nworkdir = "/x"\n'
    source, path = effective.source_of(composed(toml=toml), "hello")
    assert path == "hello"
    assert b"other" not in source.read("dataset.toml")
    assert b"MIT" not in source.read("dataset.toml")


def test_a_snapshot_with_settings_of_another_kind_is_refused():
    for text in ("[", "[]", '{"defaults": {"timeout_multiplier": "2"}}'):
        with pytest.raises(errors.TaskError, match=r"dataset/settings\.json: cannot be read"):
            loader.load(build.folder({"dataset/settings.json": text}), task_id="x")


# what it means to the loader


def test_inputs_are_refused_with_separate_verification():
    toml = '[gym.tasks.hello.verifier]\ninputs = ["a"]\n'
    with pytest.raises(errors.TaskError) as caught:
        loader.load(composed(build.toml('verifier.environment_mode = "separate"'), toml=toml), task_id="hello")
    assert caught.value.field == "gym.tasks.hello.verifier.inputs"
    assert loader.load(composed(toml=toml), task_id="hello").inputs == ("a",)


def test_a_problem_that_an_override_brings_is_one_of_the_dataset():
    with pytest.raises(errors.TaskError) as caught:
        loader.load(composed(toml='[gym.tasks.hello.environment]\nos = "windows"\n'), task_id="hello")
    assert (caught.value.file, caught.value.field) == ("dataset.toml", "gym.tasks.hello.environment.os")


TASK = {
    "task.toml": b"",
    "tests/test.sh": b"old",
    "tests/data": b"1",
    "dataset/verifier.py": b"v",
    "steps/one/tests/x": b"",
}


def _folder(files):
    return folder.MemoryFolder({path: (content, False) for path, content in files.items()})


def _files(found):
    return {entry.path: found.read(entry.path) for entry in found.entries()}


def test_other_tests_take_the_place_of_all_that_would_grade():
    joined = _files(effective.with_tests(_folder(TASK), _folder({"test.sh": b"new", "deep/data": b"2"})))
    assert joined == {"task.toml": b"", "tests/test.sh": b"new", "tests/deep/data": b"2", "steps/one/tests/x": b""}


def test_other_tests_for_a_step_take_the_place_of_its_own_too():
    joined = _files(effective.with_tests(_folder(TASK), _folder({"test.sh": b"new"}), step="one"))
    assert joined == {"task.toml": b"", "tests/test.sh": b"new"}


@pytest.mark.parametrize(
    ("files", "remedy"),
    [({"tests/test.sh": b""}, "spec.tests.path: tests"), ({"run.sh": b""}, "Name the folder")],
    ids=["the folder above", "another folder"],
)
def test_a_folder_without_a_verifier_is_no_tests_folder(files, remedy):
    with pytest.raises(errors.TaskError, match=remedy):
        effective.with_tests(_folder(TASK), _folder(files))
