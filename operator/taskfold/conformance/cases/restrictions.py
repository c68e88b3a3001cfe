"""Which table of a folder may restrict the network, and what a list of hosts may hold: all told before a pod exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskfold.conformance.case import NOP, TOML, Case, refused, task

ONE = "echo 1 > /logs/verifier/reward.txt\n"
TABLES = "seed: Shared and separate verification"
HOSTS = "task.toml: allowed_hosts"
HARBOR = {"dialect": "harbor"}
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
NO_NETWORK = 'network_mode = "no-network"\n'
OWN = '[verifier.environment]\ndocker_image = "python:3.13-slim"\n'
STEPS = {f"steps/{name}/instruction.md": "Do it.\n" for name in ("one", "two")}


def wrong(
    id: str,  # noqa: A002
    proves: str,
    toml: str,
    *says: str,
    source: str = TABLES,
    spec: Mapping[str, Any] | None = None,
    steps: bool = False,
) -> Case:
    """A folder that is refused when it is loaded, with these words. `steps`: it has two."""
    expect = refused("InvalidTask", *says, stage="admission", absent=("podName",))
    return Case(id, proves, source, task(ONE, toml=TOML + toml, **(STEPS if steps else {})), NOP, expect, spec or {})


def host(id: str, proves: str, entry: str, *says: str) -> Case:  # noqa: A002
    """An entry of a separate verifier's list that is refused."""
    toml = f'{SEPARATE}network_mode = "allowlist"\nallowed_hosts = ["api.example.com", "{entry}"]\n'
    return wrong(f"hosts-{id}", proves, toml, f'verifier.allowed_hosts[1] = "{entry}"', *says, source=HOSTS)


WRONG_TABLES = (
    wrong(
        "restricted-agent",
        "a restriction on [agent] is refused at load, with what restricts an agent",
        "[agent]\n" + NO_NETWORK,
        "agent.network_mode",
        "spec.network.agent",
    ),
    wrong(
        "restricted-verifier-environment",
        "a restriction on [verifier.environment] is refused at load: it belongs into [verifier]",
        OWN + NO_NETWORK,
        "verifier.environment.network_mode",
        "Write it in [verifier]",
    ),
    wrong(
        "restricted-by-the-old-spelling",
        "allow_internet = false is such a restriction",
        "allow_internet = false\n",
        "environment.allow_internet = false",
    ),
    wrong(
        "restricted-agent-of-a-step",
        "a restriction on a step's agent is refused at load",
        '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n[steps.agent]\n' + NO_NETWORK,
        "steps[1].agent.network_mode",
        steps=True,
    ),
    wrong(
        "restricted-step-that-is-shared",
        "a step that is verified in the agent's sandbox does not lose the restriction of [verifier]: it is refused",
        SEPARATE + NO_NETWORK + '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n[steps.verifier]\n'
        'environment_mode = "shared"\n',
        "verifier.network_mode",
        "shares the agent's sandbox",
        source="C48",
        steps=True,
    ),
    wrong(
        "restricted-verifier-of-a-shared-run",
        "a run that has its tests in the agent's sandbox does not lose the restriction of [verifier]",
        SEPARATE + NO_NETWORK,
        "verifier.network_mode",
        "shares the agent's sandbox",
        spec={"verifier": {"mode": "shared"}},
    ),
)
OF_HOSTS = (
    host("url", "a URL is no host", "https://a.example", "is a URL"),
    host("port", "an entry has no port", "a.example:443", "has a port"),
    host("path", "an entry has no path", "a.example/v1", "has a path"),
    host("wildcard-inside", "an asterisk stands in front only, for whole labels", "api.*.example", "Only whole labels"),
    host("wildcard-of-an-address", "an address has no wildcard", "*.192.0.2.1", "CIDR block"),
    host("host-bits", "a block has no bits behind its prefix", "192.0.2.1/24", 'Write "192.0.2.0/24"'),
    host("brackets", "an IPv6 address has no brackets", "[2001:db8::1]", "has brackets"),
    host("zone", "an address has no zone", "fe80::1%eth0", "has a zone"),
    host("underscore", "a host has no underscore", "my_host.example", "has an underscore"),
    wrong(
        "hosts-without-the-mode",
        "a list of hosts needs the mode allowlist beside it",
        SEPARATE + 'allowed_hosts = ["a.example"]\n',
        "verifier.allowed_hosts",
        'Set network_mode = "allowlist"',
        source=HOSTS,
    ),
)
IN_MID_LIFE = (
    wrong(
        "harbor-restricts-the-agent-alone",
        "a restriction that ends with the agent is refused: a sandbox's network is never changed in mid-life",
        "[agent]\n" + NO_NETWORK,
        "agent.network_mode",
        "never changed in mid-life",
        source="dialect: harbor; C49",
        spec=HARBOR,
    ),
    wrong(
        "harbor-restricts-a-shared-verifier",
        "so is one that begins with a verifier in the agent's sandbox",
        "[verifier]\n" + NO_NETWORK,
        "verifier.network_mode",
        "never changed in mid-life",
        source="dialect: harbor; C49",
        spec=HARBOR,
    ),
    wrong(
        "harbor-agent-beyond-its-environment",
        "so is an agent that may do more than [environment] allows what comes before it",
        NO_NETWORK + SEPARATE + '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["api.example.com"]\n',
        "agent.network_mode",
        "Write the same in [environment]",
        source="dialect: harbor; C49",
        spec=HARBOR,
    ),
    wrong(
        "harbor-steps-with-two-networks",
        "so are steps whose agents differ: the agent's sandbox lives through all of them",
        SEPARATE + '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n[steps.agent]\n' + NO_NETWORK,
        "steps[1].agent.network_mode",
        "lives through all steps",
        source="dialect: harbor; C49",
        spec=HARBOR,
        steps=True,
    ),
)

CASES: tuple[Case, ...] = (*WRONG_TABLES, *OF_HOSTS, *IN_MID_LIFE)
