import pytest
from pydantic import TypeAdapter, ValidationError

from taskfold.contract import values


def accepts(kind, value):
    return TypeAdapter(kind).validate_python(value, strict=True)


@pytest.mark.parametrize(
    "reference",
    [
        "python",
        "python:3.12-slim",
        "library/python",
        "docker.io/library/python:3",
        "localhost:5000/a/b_c/d-e:V1.0",
        "registry.example.com/x/y@sha256:" + "a" * 64,
        "a/b:t@sha256:" + "0" * 64,
        "[::1]:5000/a",
        "a__b/c--d",
    ],
)
def test_an_image_reference_is_accepted(reference):
    assert accepts(values.Image, reference) == reference


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "Python",
        "python:",
        "a b",
        "a\n",
        "http://a/b",
        "a//b",
        "a@sha256:12",
        "-a",
        "a:" + "t" * 129,
        "${X}",
        "a/" * 600 + "a",
    ],
)
def test_what_is_no_image_reference_is_refused(reference):
    with pytest.raises(ValidationError, match="not an image reference"):
        accepts(values.Image, reference)


@pytest.mark.parametrize("kind", [values.Seconds, values.Cpus, values.Megabytes])
@pytest.mark.parametrize("value", ["1", True, None, [1], float("nan"), float("inf"), 0, -1, 0.0, 10**400, 1e300])
def test_limits_and_sizes_are_positive_finite_numbers_without_quotes(kind, value):
    with pytest.raises(ValidationError):
        accepts(kind, value)


def test_whole_floats_are_integers():
    assert type(accepts(values.Cpus, 2.0)) is int
    assert accepts(values.Cpus, 0.5) == 0.5
    assert accepts(values.Megabytes, 2048.0) == 2048
    with pytest.raises(ValidationError):
        accepts(values.Megabytes, 2048.5)


@pytest.mark.parametrize("value", [0, -1, 2.5, 1e300, -5])
def test_the_numbers_of_a_health_check_have_no_bounds(value):
    assert accepts(values.Unbounded, value) == value


@pytest.mark.parametrize("value", ["app", "1000", "a:b", "Ünal", 0, 1000, values.MAX_UID])
def test_a_user_is_a_name_or_a_number(value):
    assert accepts(values.UserValue, value) == value


@pytest.mark.parametrize("value", ["", " app", "a\n", "a\0b", True, 1.0, -1, values.MAX_UID + 1, []])
def test_what_is_no_user_is_refused(value):
    with pytest.raises(ValidationError):
        accepts(values.UserValue, value)


@pytest.mark.parametrize("path", ["app", "", "/a/../b", "/..", "/a\0", "~"])
def test_a_directory_is_an_absolute_path_without_dots(path):
    with pytest.raises(ValidationError, match="absolute path"):
        accepts(values.Directory, path)
    assert accepts(values.Directory, "/a/b..c") == "/a/b..c"


@pytest.mark.parametrize("table", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "\0"}, {"A": 1}, {"A": None}])
def test_an_env_table_holds_what_a_process_can_be_given(table):
    with pytest.raises(ValidationError):
        accepts(values.EnvTable, table)
    assert accepts(values.EnvTable, {"a b": "", "ü": "=\n"}) == {"a b": "", "ü": "=\n"}
