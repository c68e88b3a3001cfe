"""Advice about restricted networks, and its silence."""

import pytest
from tests.contract.test_lint import SEPARATE, told, with_toml

ALLOWLIST = SEPARATE + '\nverifier.network_mode = "allowlist"\nverifier.allowed_hosts = '
LIST = ALLOWLIST + '["a.example", "*.b.example", "198.51.100.0/24"]'
NONE = SEPARATE + '\nverifier.network_mode = "no-network"'
OURS = {"cut-off", "allows-the-cluster", "allows-no-name"}


def advice(toml, test=None, **files):
    script = {"tests/test.sh": f"# curl https://c.example\n{test}; echo /logs/verifier\n"} if test is not None else {}
    return [each for each in told(with_toml(toml) | script | files) if each[0] in OURS]


CUT_OFF = {
    "a package without a network": (NONE, "pip install x"),
    "a download without a network": (NONE, "curl -f https://a.example/x"),
    "a pipe into a shell": (NONE, "curl -f $URL | sh"),
    "a host that is not in the list": (LIST, "curl -f https://c.example/x"),
    "the apex of a wildcard": (LIST, "curl -f https://b.example/x"),
    "an address that is in no block": (LIST, "wget http://192.0.2.1/x"),
    "TLS on another port": (LIST, "curl https://a.example:9443/x"),
    "HTTP on another port": (LIST, "curl http://a.example:8080/x"),
    "git over ssh": (LIST, "git clone ssh://a.example/x"),
}


@pytest.mark.parametrize(("toml", "test"), CUT_OFF.values(), ids=CUT_OFF)
def test_tests_that_are_cut_off(toml, test):
    assert advice(toml, test) == [("cut-off", "tests/test.sh", 2)]


SERVED = {
    "no restriction": (SEPARATE, "curl https://c.example/x; pip install x"),
    "a name": (LIST, "curl https://A.example/x"),
    "a name below a wildcard": (LIST, "curl -f https://x.y.b.example:8443/x"),
    "an address on any port": (LIST, "curl http://198.51.100.7:8080/x"),
    "what the environment says": (LIST, 'curl "https://${HOST}/x"'),
    "itself": (NONE, "curl http://127.0.0.1:8000/x"),
    "packages, whose hosts nobody knows": (LIST, "pip install x"),
    "a shared verifier": (NONE.replace("separate", "shared"), "pip install x"),
}


@pytest.mark.parametrize(("toml", "test"), SERVED.values(), ids=SERVED)
def test_tests_that_are_served(toml, test):
    assert advice(toml, test) == []


def test_each_step_is_looked_at_with_its_own_network():
    steps = SEPARATE + '\nsteps = [{name = "one", verifier.network_mode = "no-network"}, {name = "two"}]'
    fetches = "curl https://a.example/x; echo /logs/verifier\n"
    files = {f"steps/{name}/{path}": fetches for name in ("one", "two") for path in ("instruction.md", "tests/test.sh")}
    assert advice(steps, **files) == [("cut-off", "steps/one/tests/test.sh", 1)]


LISTS = {
    "a private block": ('["a.example", "10.0.0.0/8"]', ["allows-the-cluster"]),
    "everything": ('["a.example", "0.0.0.0/0"]', ["allows-the-cluster"]),
    "a private address of IPv6": ('["a.example", "fd00::1"]', ["allows-the-cluster"]),
    "the metadata service": ('["a.example", "169.254.169.254"]', ["allows-the-cluster"]),
    "addresses alone": ('["198.51.100.0/24"]', ["allows-no-name"]),
    "both": ('["192.168.1.1"]', ["allows-the-cluster", "allows-no-name"]),
    "names alone": ('["a.example", "*.b.example"]', []),
    "public addresses beside names": ('["a.example", "198.51.100.0/24", "2001:db8::/32"]', []),
    "nothing": ("[]", []),
}


@pytest.mark.parametrize(("hosts", "rules"), LISTS.values(), ids=LISTS)
def test_lists_that_allow_more_or_less_than_they_seem_to(hosts, rules):
    assert advice(ALLOWLIST + hosts) == [(rule, "task.toml", 6) for rule in rules]
