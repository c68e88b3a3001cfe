import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import errors, toml_file


def read(text):
    return toml_file.read(text if isinstance(text, bytes) else text.encode())


def problem(text):
    with pytest.raises(errors.TaskError) as caught:
        read(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "verifier.timeout_sec = -1",
            "task.toml: verifier.timeout_sec = -1: must be greater than 0. Write seconds, for example 600.",
        ),
        (
            'environment.cpus = "2"',
            'task.toml: environment.cpus = "2": must be a number. Write a number without quotes.',
        ),
        (
            'environment.memory = "4X"',
            'task.toml: environment.memory = "4X": must be a number with G, M or K, in quotes. '
            "Write memory_mb and a number.",
        ),
        (
            "[[verifier.collect]]\ntimeout_sec = 5",
            "task.toml: verifier.collect[0].command: is required. Write a command.",
        ),
        ("schema_version = 1.4", 'task.toml: schema_version = 1.4: must be a string. Write "1.4".'),
        (
            'environment.network_mode = "private"',
            'task.toml: environment.network_mode = "private": must be one of public, no-network, allowlist. '
            "Write one of these words.",
        ),
        ("environment = 1", "task.toml: environment = 1: must be a table. Write a table: key = value lines."),
        (
            'verifier.collect = "x"',
            'task.toml: verifier.collect = "x": must be an array. Write an array: [ ... ].',
        ),
        (
            'verifier.environment_mode = "shared"\nverifier.environment.cpus = 1',
            'task.toml: verifier.environment_mode = "shared": contradicts the table [verifier.environment]. '
            "Remove the table [verifier.environment], or environment_mode.",
        ),
        (
            'environment.allowed_hosts = ["a.b"]',
            'task.toml: environment.allowed_hosts: needs network_mode = "allowlist". '
            'Set network_mode = "allowlist" beside it, or remove it.',
        ),
        (
            "agent.user = true",
            'task.toml: agent.user = true: must be a user. Write a name ("app") or a number without quotes (1000).',
        ),
        (
            "artifacts = [3]",
            'task.toml: artifacts[0] = 3: must be a string or a table. Write a path like "/app/report".',
        ),
        (
            "environment.memory_mb = 2.5",
            "task.toml: environment.memory_mb = 2.5: must be a whole number. Write whole mebibytes, for example 2048.",
        ),
    ],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_an_error_names_file_key_value_and_remedy(text, message):
    assert str(problem(text)) == message


def test_every_problem_is_found_at_once():
    error = problem("agent.timeout_sec = 0\nverifier.timeout_sec = 0\nenvironment.cpus = true")
    assert [e.field for e in (error, *error.others)] == [
        "environment.cpus",
        "agent.timeout_sec",
        "verifier.timeout_sec",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[verifier.env]\nKEY = 12345678",
        '[verifier.env]\nKEY = ["12345678"]',
        '[environment]\nenv = "12345678"',
        '[environment.env]\n"A=B" = "12345678"',
        '[environment.env]\nA = "12345678\\u0000"',
        '[solution.env]\nA = "12345678"\nB = 12345678',
        '[[environment.mcp_servers]]\nname = "a"\nurl = "u"\nheaders.Authorization = "12345678"',
        '[[steps]]\nname = "a"\nverifier.env.KEY = 12345678',
        "[verifier.environment.env]\nKEY = 12345678",
        '[verifier]\nenv.KEY = "12345678"\nenvironment_mode = "shared"\nenvironment.cpus = 1',
    ],
)
def test_no_message_holds_a_value_of_an_env_table_or_a_header(text):
    error = problem(text)
    assert error.field
    for each in (error, *error.others):
        assert "12345678" not in str(each)


def test_invalid_toml_is_refused_with_line_and_column():
    assert "(at line 2, column 5)" in str(problem("a = 1\nb = x\n"))


@pytest.mark.parametrize("text", [b"\xff", b'a = "\xff"'])
def test_bytes_that_are_not_utf_8_are_refused(text):
    assert "is not UTF-8 text" in str(problem(text))


def test_a_byte_order_mark_is_tolerated():
    assert read(b'\xef\xbb\xbfschema_version = "1.3"').config.schema_version == "1.3"


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 20_000,
        "a = " + "[" * 100 + "]" * 100,
        ".".join(["a"] * 1000) + " = 1",
        "metadata" + ".a" * 40 + " = 1",
    ],
    ids=["open arrays", "arrays", "dotted", "in metadata"],
)
def test_deep_nesting_is_refused(text):
    assert "nests tables and arrays more than 32 deep" in str(problem(text))


def test_numbers_that_the_interpreter_refuses_are_problems_not_crashes():
    assert "is not valid TOML" in str(problem("agent.timeout_sec = " + "1" * 5000))
    assert "an integer of more than 256 bits: is too large" in str(problem("agent.timeout_sec = 0x" + "f" * 5000))
    assert "must be between 0" in str(problem("agent.user = 0x" + "f" * 5000))
    assert "is too large" in str(problem("environment.gpus = 0x" + "f" * 5000))


def test_an_unknown_key_is_a_warning_with_its_dotted_path():
    document = read(
        'extra = 1\n[verifier]\ntimout_sec = 5\ncollect = [{command = "x", "odd key" = 1}]\n'
        '[environment.env]\nanything = "x"\n[metadata]\nanything = 1\n[unknown.table]\nx = 1\n'
        "[verifier.inputs]\n[[steps]]\nname = 'a'\nagent.foo = 1\n"
    )
    assert sorted(document.warnings) == [
        "task.toml: extra is not a key of the format and is ignored",
        "task.toml: steps[0].agent.foo is not a key of the format and is ignored",
        "task.toml: unknown is not a key of the format and is ignored",
        'task.toml: verifier.collect[0]."odd key" is not a key of the format and is ignored',
        "task.toml: verifier.inputs is not a key of the format and is ignored; sidecar inputs stand in the dataset's "
        "dataset.toml",
        "task.toml: verifier.timout_sec is not a key of the format and is ignored (did you mean timeout_sec?)",
    ]


def test_deprecated_spellings_are_read_without_a_warning():
    document = read(
        'version = "1.0"\nmulti_step_reward_mode = "x"\n'
        '[environment]\nmemory = "2G"\nstorage = "1G"\nallow_internet = true\n'
    )
    environment = document.config.environment
    assert document.warnings == ()
    assert document.config.schema_version == "1.0"
    assert (environment.memory_mb, environment.storage_mb, environment.network_mode) == (2048, 1024, "public")


@pytest.mark.parametrize("version", ["1.5", "2.0", "v1", ""])
def test_a_version_that_is_not_known_is_a_warning(version):
    (warning,) = read(f'schema_version = "{version}"').warnings
    assert f'schema_version = "{version}" is not known here' in warning


def test_the_document_as_written_is_kept():
    assert read('[environment]\nmemory = "2G"').written == {"environment": {"memory": "2G"}}


@given(st.binary(max_size=300))
def test_any_bytes_are_a_document_or_a_task_error(content):
    try:
        toml_file.read(content)
    except errors.TaskError as error:
        assert str(error).encode()


KEYS = st.sampled_from(
    [
        "schema_version",
        "version",
        "artifacts",
        "task",
        "metadata",
        "environment",
        "agent",
        "verifier",
        "solution",
        "steps",
        "cpus",
        "memory",
        "memory_mb",
        "gpus",
        "tpu",
        "env",
        "workdir",
        "healthcheck",
        "mcp_servers",
        "network_mode",
        "allowed_hosts",
        "allow_internet",
        "timeout_sec",
        "user",
        "command",
        "name",
        "collect",
        "environment_mode",
        "os",
        "docker_image",
        "min_reward",
        "headers",
        "transport",
        "url",
        "source",
        "exclude",
        "x",
    ]
)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(codec="utf-8", exclude_characters="\x7f", exclude_categories=("Cc",)), max_size=12),
    st.sampled_from(["4G", "shared", "separate", "no-network", "python:3", "/tests", "${X}", "linux", "sse"]),
    st.datetimes(),
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.dictionaries(KEYS, TREES, max_size=6))
def test_any_well_formed_file_is_a_document_or_a_task_error(document):
    text = "\n".join(f"{key} = {_toml(value)}" for key, value in document.items())
    try:
        found = toml_file.read(text.encode())
    except errors.TaskError as error:
        assert "is not valid TOML" not in str(error)
        for each in (error, *error.others):
            assert str(each).encode()
    else:
        assert set(found.written) == set(document)
