"""What load refuses: by the contract, and for now."""

import pytest
from tests.contract.build import load, refusal, toml

STEPS = {"steps/a/instruction.md": "", "steps/b/instruction.md": ""}
BY_THE_CONTRACT = {
    "a restriction on [environment]": (
        'environment.network_mode = "no-network"',
        "environment.network_mode",
        "restricts the network",
    ),
    "an allowlist on [environment]": (
        'environment.network_mode = "allowlist"\nenvironment.allowed_hosts = ["a.b"]',
        "environment.network_mode",
        "restricts the network",
    ),
    "allow_internet = false": (
        "environment.allow_internet = false",
        "environment.allow_internet",
        "restricts the network",
    ),
    "a restriction on [agent]": (
        'agent.network_mode = "no-network"',
        "agent.network_mode",
        "restricts the network",
    ),
    "a restriction on [verifier.environment]": (
        'verifier.environment = {docker_image = "a", network_mode = "no-network"}',
        "verifier.environment.network_mode",
        "restricts the network",
    ),
    "allow_internet = false in [verifier.environment]": (
        'verifier.environment = {docker_image = "a", allow_internet = false}',
        "verifier.environment.allow_internet",
        "restricts the network",
    ),
    "a [verifier]'s restriction, and a step that is verified in the agent's sandbox": (
        'verifier = {environment_mode = "separate", network_mode = "no-network"}\n'
        'steps = [{name = "a"}, {name = "b", verifier = {environment_mode = "shared"}}]',
        "verifier.network_mode",
        "shares the agent's sandbox",
    ),
    "a restriction on a step's agent": (
        'steps = [{name = "a"}, {name = "b", agent = {network_mode = "no-network"}}]',
        "steps[1].agent.network_mode",
        "restricts the network",
    ),
    "a restriction on a step's verifier environment": (
        'steps = [{name = "a", verifier = {environment = {docker_image = "a", network_mode = "no-network"}}}]',
        "steps[0].verifier.environment.network_mode",
        "restricts the network",
    ),
    "a group in a step": (
        'steps = [{name = "a", agent = {user = "a:b"}}]',
        "steps[0].agent.user",
        "works with Docker only",
    ),
    "a group for a step's hook": (
        'steps = [{name = "a", verifier = {collect = [{command = "x", user = "a:b"}]}}]',
        "steps[0].verifier.collect[0].user",
        "works with Docker only",
    ),
    "a restriction on a shared [verifier]": (
        'verifier.network_mode = "no-network"',
        "verifier.network_mode",
        "shares the agent's sandbox",
    ),
    "a restriction on a step's shared verifier": (
        'steps = [{name = "a", verifier = {network_mode = "no-network"}}]',
        "steps[0].verifier.network_mode",
        "shares the agent's sandbox",
    ),
    "windows for a step's verifier": (
        'steps = [{name = "a", verifier = {environment = {docker_image = "a", os = "windows"}}}]',
        "steps[0].verifier.environment.os",
        "Linux containers",
    ),
    "windows": ('environment.os = "Windows"', "environment.os", "Linux containers"),
    "a group for the agent": ('agent.user = "app:staff"', "agent.user", "works with Docker only"),
    "a group for the verifier": ('verifier.user = "1000:1000"', "verifier.user", "works with Docker only"),
    "a group for a hook": (
        'verifier.collect = [{command = "x"}, {command = "y", user = "a:b"}]',
        "verifier.collect[1].user",
        "works with Docker only",
    ),
}

FOR_NOW = {
    "an artifact of a sidecar": ('artifacts = [{source = "/a", service = "db"}]', "artifacts[0].service"),
    "an artifact of a sidecar after a step": (
        'steps = [{name = "a", artifacts = ["/b", {source = "/a", service = "db"}]}]',
        "steps[0].artifacts[1].service",
    ),
    "mcp servers": ('environment.mcp_servers = [{name = "a", url = "u"}]', "environment.mcp_servers"),
    "a hook in a sidecar": (
        'verifier.collect = [{command = "x", service = "db"}]',
        "verifier.collect[0].service",
    ),
}

HARMLESS = (
    "environment.gpus = 0",
    "environment.gpu_types = []",
    "environment.mcp_servers = []",
    'environment.skills_dir = ""',
    "artifacts = []",
    'artifacts = ["/app", {source = "x", service = "main"}]',
    "steps = []",
    'verifier.environment_mode = "shared"',
    'verifier.network_mode = "public"',
    "environment.allowed_hosts = []",
    'agent.network_mode = "public"',
    'environment.network_mode = "public"',
    "environment.allow_internet = true",
    'verifier.collect = [{command = "x", service = "main", user = 0}]',
    'environment.os = "LINUX"',
    'environment.skills_dir = "/skills"',
    'environment.healthcheck = {command = "true"}',
)


@pytest.mark.parametrize(("lines", "field", "reason"), BY_THE_CONTRACT.values(), ids=BY_THE_CONTRACT)
def test_the_contract_refuses(lines, field, reason):
    error = refusal(toml(lines) | STEPS)
    assert (error.field, error.file, error.unsupported) == (field, "task.toml", False)
    assert reason in str(error)
    assert error.remedy.endswith(".")


@pytest.mark.parametrize(("lines", "field"), FOR_NOW.values(), ids=FOR_NOW)
def test_not_supported_yet(lines, field):
    error = refusal(toml(lines) | STEPS)
    assert (error.field, error.file, error.unsupported) == (field, "task.toml", True)
    assert str(error).startswith(f"task.toml: {field}")
    assert str(error).endswith("not supported yet")
    assert error.others == ()


@pytest.mark.parametrize("line", HARMLESS)
def test_a_key_that_asks_for_nothing_is_let_pass(line):
    assert load(toml(line)).warnings == ()


def test_everything_that_is_refused_is_said_at_once_the_contracts_refusals_first():
    error = refusal(
        toml(
            'environment.mcp_servers = [{name = "a", url = "u"}]',
            'artifacts = [{source = "/a", service = "db"}]',
            'agent.user = "a:b"',
            'agent.network_mode = "no-network"',
        )
    )
    found = [(each.field, each.unsupported) for each in (error, *error.others)]
    assert found == [
        ("agent.network_mode", False),
        ("agent.user", False),
        ("artifacts[0].service", True),
        ("environment.mcp_servers", True),
    ]
