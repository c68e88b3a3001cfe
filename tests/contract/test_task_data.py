import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import trees

from taskfold.contract import errors, task_data

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_the_fields_are_what_the_file_says():
    found = task_data.read('\ufeff{"a": [1, 2.5, null, {"b": "é"}]}'.encode())
    assert (found.fields, found.warnings) == ({"a": [1, 2.5, None, {"b": "é"}]}, ())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[1]", "is not a JSON object"),
        (b"1", "is not a JSON object"),
        (b"", "is not JSON"),
        (b'{"a": }', "is not JSON"),
        (b"\xff", "is not UTF-8 text (at byte 0)"),
        (b'{"a": NaN}', "holds a number that is not finite"),
        (b'{"a": [{"b": -Infinity}]}', "holds a number that is not finite"),
        (b'{"a": 1e999}', "holds a number that is not finite"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"a": ' + b"[" * 80 + b"]" * 80 + b"}", "nests more than 64 deep"),
        (b"[" * 200_000, "is not JSON"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"_ng_digest": 1}', "_ng_digest: begins with _ng_, which is reserved"),
    ],
)
def test_what_is_no_object_of_fields_is_refused(content, problem):
    with pytest.raises(errors.TaskError) as caught:
        task_data.read(content)
    assert str(caught.value).startswith("task_data.json: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (None, False, False),
        ("1", 1, False),
        ([1], [1.0], True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        (2**53 + 1, float(2**53), False),
        (2**63 + 1, float(2**63), True),
        (10**400, 10**401, False),
        ([1, 2], [2, 1], False),
    ],
)
def test_equal_is_what_json_and_the_api_server_call_equal(one, other, equal):
    assert task_data.same(one, other) is task_data.same(other, one) is equal


@given(JSON)
def test_every_value_equals_itself_after_a_round_trip(value):
    assert task_data.same(value, json.loads(json.dumps(value)))


def test_the_fields_that_differ_are_named():
    assert task_data.differing({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3, "d": 4}) == ["b", "c", "d"]


@given(st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=5), JSON, max_size=4))
def test_what_is_encoded_is_read_back(fields):
    try:
        task_data.check(fields, "spec.task.data")
    except errors.TaskError:
        return
    assert task_data.read(task_data.encode(fields)).fields == fields


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_fields_or_a_task_error(content):
    trees.document_or_error(lambda: task_data.read(content))
