"""Which cluster `up` takes, and the configuration that kind would get."""

import pytest
from hack.cluster import kind, settings

NO = {"HOME": "/h"}


@pytest.mark.parametrize(
    ("environ", "docker", "expected"),
    [
        pytest.param({}, False, kind.Choice.OWN, id="nothing: own cluster"),
        pytest.param({}, True, kind.Choice.KIND, id="docker answers: kind"),
        pytest.param({"TASKFOLD_KUBECONFIG": "/k"}, True, kind.Choice.GIVEN, id="given wins over docker"),
        pytest.param({"TASKFOLD_KUBECONFIG": ""}, False, kind.Choice.OWN, id="empty is not given"),
    ],
)
def test_choice(environ: dict[str, str], docker: bool, expected: kind.Choice) -> None:
    assert kind.choose(environ, lambda: docker) is expected


def test_docker_is_not_asked_when_a_kubeconfig_is_given() -> None:
    def never() -> bool:
        raise AssertionError("asked")

    assert kind.choose({"TASKFOLD_KUBECONFIG": "/k"}, never) is kind.Choice.GIVEN


@pytest.mark.parametrize(("nodes", "roles"), [("1", ["control-plane"]), ("2", ["control-plane", "worker"])])
def test_kind_config(nodes: str, roles: list[str]) -> None:
    chosen = settings.read({"nodes": nodes, "api-port": "7000", "pod-range": "10.200.0.0/16"}, NO)
    config = kind.config(chosen)
    assert [node["role"] for node in config["nodes"]] == roles
    assert config["networking"] == {
        "apiServerAddress": "127.0.0.1",
        "apiServerPort": 7000,
        "podSubnet": "10.200.0.0/16",
        "serviceSubnet": "10.96.0.0/16",
    }
