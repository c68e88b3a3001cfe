"""Advice about restricted networks: lists that allow more or less than they seem to, and tests that they cut off."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from taskfold.contract import lint_scripts, lint_separate, network, restrictions, separate, shape, toml_file
from taskfold.contract.lint_subject import Advice, Rule, Subject
from taskfold.contract.network import Network, NetworkMode
from taskfold.contract.task import Grader
from taskfold.contract.task_toml import StepTable, VerifierMode

PORTS = {"http": (80,), "https": (443, 8443)}
"""On which names are allowed unless the operator's settings say otherwise (network.gateway.tlsPorts)."""
_INSIDE = tuple(
    ipaddress.ip_network(block)
    for block in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("fc00::/7", "fe80::/10", "::1/128"),
    )
)
"""Where clusters have their pods, services and nodes: private, shared, loopback and link-local addresses."""
_URL = re.compile(r"\b[a-z][a-z+]*://[^\s\"'`;|<>()]+", re.IGNORECASE)


def lists(subject: Subject) -> Iterator[Advice]:
    """Entries that lead into the cluster, and lists under which no name is known."""
    for said in restrictions.restricted(subject.config):
        if said.network.mode is not NetworkMode.ALLOWLIST:
            continue
        field = shape.dotted((*said.at, "allowed_hosts"))
        inside = [address for address in said.network.addresses if _is_inside(address)]
        if inside:
            message = f"{field}: {', '.join(inside[:5])} takes in addresses that clusters have inside"
            remedy = "Some networks let it reach pods and nodes, others never do. Name what is meant, and no more."
            yield Advice(Rule.ALLOWS_THE_CLUSTER, toml_file.FILE, f"{message}. {remedy}", field=field)
        if not said.network.names:
            message = f"{field}: has addresses alone, so that no name is found"
            remedy = "Tests have to use the addresses; else name the hosts."
            yield Advice(Rule.ALLOWS_NO_NAME, toml_file.FILE, f"{message}. {remedy}", field=field)


def tests(subject: Subject) -> Iterator[Advice]:
    """A test.sh that wants what the network of its sandbox does not allow."""
    told: set[str] = set()
    for path, reach in _restricted(subject):
        for number, line in lint_scripts.commands(subject.text(path) or ""):
            wanted = _wanted(line, reach)
            if wanted is not None and path not in told:
                told.add(path)
                remedy = "Put it into the verifier's image or into tests/, or allow the host."
                yield Advice(Rule.CUT_OFF, path, f"{wanted}. {remedy}", number)


def _restricted(subject: Subject) -> Iterator[tuple[str, Network]]:
    """The test.sh of every separate verification that is restricted."""
    config = subject.config
    for each in separate.verifications(config):
        environment = each.verifier.environment if each.verifier.environment is not None else config.environment
        reach = restrictions.of_verifier(each.verifier, environment)
        if each.verifier.mode is VerifierMode.SHARED or not reach.restricted:
            continue
        below = f"steps/{each.name}/" if isinstance(each, StepTable) else ""
        path = next((path for path in (below + Grader.TEST_SH, Grader.TEST_SH) if path in subject.sizes), None)
        if path is not None:
            yield path, reach


def _wanted(line: str, reach: Network) -> str | None:
    """What this line wants and does not get, in words."""
    found = lint_separate.DOWNLOAD.search(line) or lint_scripts.INSTALLS.search(line)
    if found is None:
        return None
    if reach == network.NO_NETWORK:
        return f"`{found[0].strip()}`: this verifier has no network"
    for url in _URL.findall(found[0]):
        try:
            parts = urlsplit(url)
            host, port = network.allowed_host(parts.hostname or ""), parts.port
        except ValueError:
            continue  # a template, or nothing that is fetched
        if not network.allows(reach, host):
            return f"{url}: {host} is not in allowed_hosts"
        ports = PORTS.get(parts.scheme.lower(), ())
        if network.is_address(host) or (port is None and ports) or port in ports:
            continue
        return f"{url}: a name is allowed for HTTP on port 80 and for TLS on ports 443 and 8443; allow an address"
    return None


def _is_inside(address: str) -> bool:
    block = ipaddress.ip_network(address)
    return any(block.version == each.version and block.overlaps(each) for each in _INSIDE)
