"""Settings: precedence, names derived from the cluster's name, and what is refused."""

from pathlib import Path

import pytest
from hack.cluster import namespaces, settings
from hack.cluster.settings import ClusterError

ENVIRON = {"HOME": "/h"}


def test_defaults_are_those_of_the_documentation() -> None:
    chosen = settings.read({}, ENVIRON)
    assert chosen.state == Path("/h/.local/state/taskfold/cluster")
    assert chosen.cache == Path("/h/.cache/taskfold")
    assert (str(chosen.control_address), str(chosen.node_address(2))) == ("10.89.0.1", "10.89.0.12")
    assert (str(chosen.node_pods(1)), str(chosen.dns_address)) == ("10.244.1.0/24", "10.96.0.10")
    assert chosen.namespaces() == ["taskfold-control", "taskfold-node-1"]


def test_an_option_wins_over_the_environment_and_that_over_the_default() -> None:
    environ = {**ENVIRON, "TASKFOLD_CLUSTER_API_PORT": "7001", "XDG_STATE_HOME": "/s"}
    assert settings.read({}, environ).api_port == 7001
    assert settings.read({"api-port": "7002"}, environ).api_port == 7002
    assert settings.read({}, environ).state == Path("/s/taskfold/cluster")


def test_another_name_shares_nothing_with_the_default_cluster() -> None:
    ours, other = settings.read({}, ENVIRON), settings.read({"name": "other"}, ENVIRON)
    assert not set(ours.namespaces()) & set(other.namespaces())
    assert ours.state != other.state
    assert ours.runtime != other.runtime


def test_the_record_gives_the_same_settings_back() -> None:
    chosen = settings.read({"nodes": "2", "service-range": "10.97.0.0/16"}, ENVIRON)
    assert settings.from_json(chosen.as_json()) == chosen


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("name", "Upper", "lower-case"),
        ("nodes", "0", "from 1 to"),
        ("nodes", "many", "from 1 to"),
        ("api-port", "70000", "--api-port"),
        ("bridge-range", "10.89.0.0/30", "too small"),
        ("pod-range", "10.244.0.1/16", "no IPv4 range"),
        ("state", "/" + "x" * 61, "too long for the sockets"),
    ],
)
def test_refused(option: str, value: str, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        settings.read({option: value}, ENVIRON)


def test_a_range_that_the_host_routes_is_refused_with_the_route_and_the_option() -> None:
    with pytest.raises(ClusterError) as error:
        namespaces.refuse_overlap(settings.read({}, ENVIRON), ["192.0.2.0/24", "10.89.0.0/16"])
    assert "10.89.0.0/16" in str(error.value)
    assert "--bridge-range" in str(error.value)
    assert "TASKFOLD_CLUSTER_BRIDGE_RANGE" in str(error.value)


def test_a_host_route_to_a_single_address_counts() -> None:
    with pytest.raises(ClusterError, match="--pod-range"):
        namespaces.refuse_overlap(settings.read({}, ENVIRON), ["10.244.3.7"])


def test_own_ranges_must_not_overlap_each_other() -> None:
    with pytest.raises(ClusterError, match="overlap"):
        namespaces.refuse_overlap(settings.read({"pod-range": "10.96.0.0/12"}, ENVIRON), [])


def test_free_ranges_pass() -> None:
    namespaces.refuse_overlap(settings.read({}, ENVIRON), ["192.0.2.0/24", "172.17.0.0/16"])
