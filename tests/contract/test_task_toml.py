"""The models of schema 1.4: defaults and rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from taskfold.contract import shape
from taskfold.contract.tables import ArtifactTable, EnvironmentTable, McpServerTable, Os, TpuTable, Transport
from taskfold.contract.task_toml import StepTable, TaskToml, VerifierMode, VerifierTable


def read(**document):
    return TaskToml.model_validate(document)


DEFAULTS = {
    "schema_version": "1.4",
    "artifacts": (),
    "multi_step_reward_strategy": None,
    "environment.docker_image": None,
    "environment.build_timeout_sec": 600,
    "environment.os": "linux",
    "environment.cpus": None,
    "environment.memory_mb": None,
    "environment.storage_mb": None,
    "environment.gpus": None,
    "environment.env": {},
    "environment.workdir": None,
    "environment.network_mode": "public",
    "environment.allowed_hosts": None,
    "environment.mcp_servers": (),
    "agent.timeout_sec": 28_800,
    "agent.user": None,
    "agent.network_mode": None,
    "verifier.timeout_sec": 600,
    "verifier.env": {},
    "verifier.user": None,
    "verifier.environment_mode": None,
    "verifier.environment": None,
    "verifier.collect": (),
    "solution.env": {},
    "metadata": {},
    "task": None,
    "steps": None,
}


@pytest.mark.parametrize(("path", "default"), DEFAULTS.items(), ids=DEFAULTS)
def test_default_of(path, default):
    value = read()
    for part in path.split("."):
        value = getattr(value, part)
    assert value == default


def test_a_health_check_has_the_defaults_of_the_format_and_no_bounds():
    check = read(environment={"healthcheck": {"command": "true"}}).environment.healthcheck
    assert check is not None
    assert (check.interval_sec, check.timeout_sec, check.start_period_sec) == (5, 30, 0)
    assert (check.start_interval_sec, check.retries) == (5, 3)
    assert read(environment={"healthcheck": {"command": "x", "retries": 0, "timeout_sec": -1}})


def test_a_hook_has_the_defaults_of_the_format():
    (hook,) = read(verifier={"collect": [{"command": "x"}]}).verifier.collect
    assert (hook.service, hook.timeout_sec, hook.user) == ("main", 60, None)


@pytest.mark.parametrize("os", ["linux", "Linux", "LINUX"])
def test_the_operating_system_is_written_in_any_case(os):
    assert read(environment={"os": os}).environment.os is Os.LINUX


@pytest.mark.parametrize(
    ("verifier", "mode"),
    [
        ({}, "shared"),
        ({"environment_mode": "shared"}, "shared"),
        ({"environment_mode": "separate"}, "separate"),
        ({"environment": {}}, "separate"),
        ({"environment": {}, "environment_mode": "separate"}, "separate"),
    ],
)
def test_the_mode_is_separate_with_a_verifier_environment_else_shared(verifier, mode):
    assert VerifierTable.model_validate(verifier).mode is VerifierMode(mode)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"verifier": {"environment_mode": "shared", "environment": {}}}, "contradicts the table"),
        ({"environment": {"allowed_hosts": ["a.b"]}}, "allowlist"),
        ({"agent": {"allowed_hosts": []}}, "allowlist"),
        ({"verifier": {"allowed_hosts": []}}, "allowlist"),
        ({"task": {}}, "Field required"),
        ({"task": {"name": "noslash"}}, "an organisation and a name"),
        ({"task": {"name": "a/.b"}}, "an organisation and a name"),
        ({"task": {"name": "a/b..c"}}, "an organisation and a name"),
        ({"task": {"name": "a/b/c"}}, "an organisation and a name"),
        ({"task": {"name": "a/b", "version": ""}}, "at least 1"),
        ({"task": {"name": "a/b", "authors": [{"email": "x"}]}}, "Field required"),
        ({"verifier": {"collect": [{"command": ""}]}}, "at least 1"),
        ({"verifier": {"collect": [{"command": "x", "service": "-x"}]}}, "not the name of a service"),
        ({"steps": [{"name": "a"}, {"name": "A"}]}, "differ in more than case"),
        ({"steps": [{"name": ".a"}]}, "not the name of a step"),
        ({"steps": [{"name": "a" * 256}]}, "not the name of a step"),
        ({"steps": [{"name": "a", "min_reward": {"x": True}}]}, "a table of numbers"),
        ({"steps": [{"name": "a", "min_reward": float("inf")}]}, "a table of numbers"),
        ({"environment": {"tpu": {"type": "v5", "topology": "2"}}}, "pattern"),
        ({"environment": {"gpus": -1}}, "greater than or equal to 0"),
        ({"multi_step_reward_strategy": "max"}, "must be one of mean, final"),
    ],
)
def test_a_broken_rule_is_refused(document, message):
    with pytest.raises(ValidationError, match=message):
        TaskToml.model_validate(document)


def test_the_environment_table_tolerates_an_empty_list_of_hosts():
    assert read(environment={"allowed_hosts": []}).environment.allowed_hosts == ()


def test_the_chips_of_a_tpu_are_the_product_of_its_axes():
    assert TpuTable(type="v5", topology="2x4x3").chips == 24


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"name": "a", "transport": "stdio"}, "is required for stdio"),
        ({"name": "a"}, "is required for sse"),
        ({"name": "a", "transport": "streamable-http"}, "is required for streamable-http"),
        (
            {"name": "a", "transport": "stdio", "command": "x", "headers": {"X-A": "1"}},
            "no meaning for stdio",
        ),
        ({"name": "a", "url": "u", "headers": {"A B": "1"}}, "not the name of a header"),
        ({"name": "a", "url": "u", "headers": {"X-A": "1\n2"}}, "line break"),
        ({"name": "a", "url": "u", "headers": {"Authorization": "Bearer ${T}"}}, "credential written out"),
        ({"name": "a", "url": "u", "headers": {"X-Api-Key": "k"}}, "credential written out"),
        ({"url": "u"}, "Field required"),
    ],
)
def test_an_mcp_server_is_complete_and_holds_no_credential(server, message):
    with pytest.raises(ValidationError, match=message):
        McpServerTable.model_validate(server)


def test_an_mcp_server_is_sse_by_default_and_http_is_streamable_http():
    assert McpServerTable.model_validate({"name": "a", "url": "u"}).transport is Transport.SSE
    http = {"name": "a", "url": "u", "transport": "http", "headers": {"Authorization": "${T}", "X-A": "1"}}
    assert McpServerTable.model_validate(http).transport is Transport.STREAMABLE_HTTP


@pytest.mark.parametrize(
    "source",
    [
        "/",
        "//",
        "/.",
        "/tests",
        "/tests/",
        "/tests/x",
        "//tests",
        "/./tests/x",
        "/logs",
        "/logs/verifier/a",
        "/proc",
        "/dev/x",
        "/sys",
    ],
)
def test_a_source_of_slash_or_of_the_verifiers_folders_is_refused(source):
    with pytest.raises(ValidationError, match="is not an artifact"):
        ArtifactTable.model_validate(source)


@pytest.mark.parametrize("source", ["/app", "relative/x", "/logs/artifacts", "/testsuite", "/logs/verifier2", "tests"])
def test_an_artifact_is_a_path_or_a_table(source):
    assert ArtifactTable.model_validate(source).source == source
    assert ArtifactTable.model_validate({"source": source, "exclude": ["*.o"]}).exclude == ("*.o",)


@pytest.mark.parametrize(
    "artifact",
    [
        {},
        {"source": "a/../b"},
        {"source": "/x", "destination": "/abs"},
        {"source": "/x", "destination": "a/../b"},
        {"source": "/x", "destination": "a\\b"},
        {"source": "/x", "destination": "manifest.json"},
        {"source": "x", "service": "db"},
        {"source": "/x", "service": "_db"},
        5,
    ],
    ids=str,
)
def test_a_broken_artifact_is_refused(artifact):
    with pytest.raises(ValidationError):
        ArtifactTable.model_validate(artifact)


def test_a_steps_limits_fall_back_for_the_agent_and_not_for_the_verifier():
    step = StepTable.model_validate({"name": "a", "min_reward": 1, "agent": {"user": 5}})
    assert (step.agent.timeout_sec, step.verifier.timeout_sec, step.min_reward) == (None, 600, 1.0)
    assert StepTable.model_validate({"name": "a", "min_reward": {"x": 1}}).min_reward == {"x": 1.0}


ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        "docker_image": st.sampled_from(["python:3", "a/b:c"]),
        "cpus": st.floats(0.001, 1e6) | st.integers(1, 512),
        "memory_mb": st.integers(1, 2**40),
        "storage_mb": st.integers(1, 2**40),
        "build_timeout_sec": st.floats(0.1, 1e9),
        "gpus": st.integers(0, 8),
        "env": st.dictionaries(st.text("ABC", min_size=1), st.text(st.characters(exclude_characters="\0"))),
        "workdir": st.sampled_from(["/", "/app"]),
        "network_mode": st.sampled_from(["public", "no-network", "allowlist"]),
        "healthcheck": st.fixed_dictionaries({"command": st.just("x"), "retries": st.integers(-5, 5)}),
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "schema_version": st.sampled_from(["1.0", "1.4"]),
        "artifacts": st.lists(st.sampled_from(["/app", {"source": "/x", "exclude": ["a"]}])),
        "metadata": st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()),
        "environment": ENVIRONMENTS,
        "agent": st.fixed_dictionaries({}, optional={"user": st.sampled_from(["app", 7, "7"])}),
        "verifier": st.fixed_dictionaries(
            {},
            optional={
                "environment": ENVIRONMENTS,
                "collect": st.lists(st.just({"command": "x", "user": "a"})),
            },
        ),
        "steps": st.lists(st.just({"name": "a", "min_reward": {"x": 0.5}}), max_size=1),
    },
)


@given(DOCUMENTS)
def test_models_round_trip(document):
    config = TaskToml.model_validate(document)
    assert TaskToml.model_validate(config.model_dump()) == config
    assert TaskToml.model_validate(config.model_dump(exclude_unset=True)) == config


def test_a_table_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        EnvironmentTable().cpus = 3  # type: ignore[misc]


def _tables(model, seen):
    if model not in seen:
        seen.add(model)
        for field in model.model_fields.values():
            inner = shape.table_of(field.annotation)
            if inner is not None:
                _tables(inner, seen)
    return seen


@pytest.mark.parametrize("model", sorted(_tables(TaskToml, set()), key=lambda m: m.__name__), ids=lambda m: m.__name__)
def test_every_key_has_a_note_with_a_meaning(model):
    for name, field in model.model_fields.items():
        assert shape.key_of(field).meaning, name
