import pytest
from pydantic_core import PydanticCustomError

from taskfold.contract import spellings


@pytest.mark.parametrize(
    ("size", "megabytes"),
    [("4G", 4096), ("512M", 512), ("2048K", 2), ("1.5g", 1536), (" 1 m ", 1), ("1023K", 0), ("0G", 0)],
)
@pytest.mark.parametrize("key", ["memory", "storage"])
def test_memory_and_storage_are_read_as_megabytes(key, size, megabytes):
    assert spellings.environment({key: size}) == {f"{key}_mb": megabytes}


@pytest.mark.parametrize("size", ["4", "4Gi", "4GB", "G", "-1G", "1e3M", "٣G", "9" * 400 + "G", 4, None, True, ["4G"]])
def test_a_size_without_a_unit_or_with_another_one_is_refused(size):
    with pytest.raises(PydanticCustomError) as caught:
        spellings.environment({"memory": size})
    assert caught.value.context["field"] == "memory"
    assert "memory_mb" in caught.value.context["remedy"]


def test_an_old_key_beside_its_equal_is_let_pass():
    assert spellings.environment({"memory": "4G", "memory_mb": 4096}) == {"memory_mb": 4096}
    assert spellings.root({"version": "1.4", "schema_version": "1.4"}) == {"schema_version": "1.4"}


@pytest.mark.parametrize(
    ("function", "table"),
    [
        (spellings.environment, {"memory": "4G", "memory_mb": 4000}),
        (spellings.environment, {"storage": "4G", "storage_mb": 4000}),
        (spellings.environment, {"allow_internet": True, "network_mode": "no-network"}),
        (spellings.environment, {"allow_internet": True, "allowed_hosts": ["a.b"]}),
        (spellings.environment, {"allow_internet": False, "network_mode": "public"}),
        (spellings.root, {"version": "1.0", "schema_version": "1.4"}),
    ],
)
def test_an_old_key_that_contradicts_the_new_one_is_refused(function, table):
    with pytest.raises(PydanticCustomError, match="contradicts"):
        function(table)


@pytest.mark.parametrize(("allowed", "mode"), [(True, "public"), (False, "no-network")])
def test_allow_internet_becomes_a_network_mode(allowed, mode):
    assert spellings.environment({"allow_internet": allowed}) == {"network_mode": mode}


def test_allow_internet_that_agrees_with_a_restriction_is_let_pass():
    assert spellings.environment({"allow_internet": False, "network_mode": "allowlist"}) == {
        "network_mode": "allowlist"
    }


@pytest.mark.parametrize("value", ["yes", 1, 0, []])
def test_allow_internet_is_true_or_false(value):
    with pytest.raises(PydanticCustomError, match="true or false"):
        spellings.environment({"allow_internet": value})


def test_the_root_reads_version_and_drops_multi_step_reward_mode():
    assert spellings.root({"version": "1.1", "multi_step_reward_mode": "x", "a": 1}) == {
        "a": 1,
        "schema_version": "1.1",
    }


def test_transport_http_is_streamable_http():
    assert spellings.mcp_server({"transport": "http"}) == {"transport": "streamable-http"}
    assert spellings.mcp_server({"transport": "sse"}) == {"transport": "sse"}


def test_a_table_that_is_given_is_never_changed():
    table = {"memory": "4G", "allow_internet": True}
    spellings.environment(table)
    assert table == {"memory": "4G", "allow_internet": True}
