import pytest
from pydantic_core import PydanticCustomError

from taskfold.contract import network
from taskfold.contract.network import NetworkMode


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        ("Example.COM.", "example.com"),
        (" pypi.org ", "pypi.org"),
        ("localhost", "localhost"),
        ("*.example.com", "*.example.com"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("2001:DB8::1", "2001:db8::1"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ],
)
def test_a_host_is_a_name_a_wildcard_an_address_or_a_block(entry, host):
    assert network.allowed_host(entry) == host


@pytest.mark.parametrize(
    "entry",
    [
        "",
        ".",
        "*",
        "*.",
        "a.*.b",
        "**.a",
        "https://a.b",
        "a.b:443",
        "a.b/c",
        "[::1]",
        "fe80::1%eth0",
        "*.10.0.0.1/8",
        "*.10.0.0.1",
        "10.0.0.1/8",
        "under_score.com",
        "-a.b",
        "a..b",
        "x" * 64 + ".com",
        "a b",
    ],
)
def test_urls_ports_paths_and_odd_wildcards_are_refused(entry):
    with pytest.raises(PydanticCustomError):
        network.allowed_host(entry)


@pytest.mark.parametrize(
    ("mode", "hosts", "tolerate", "good"),
    [
        (NetworkMode.ALLOWLIST, ("a.b",), False, True),
        (NetworkMode.ALLOWLIST, (), False, True),
        (NetworkMode.ALLOWLIST, None, False, True),
        (NetworkMode.PUBLIC, (), True, True),
        (NetworkMode.PUBLIC, None, False, True),
        (None, (), False, False),
        (NetworkMode.PUBLIC, ("a.b",), True, False),
        (NetworkMode.NO_NETWORK, ("a.b",), True, False),
    ],
)
def test_allowed_hosts_need_the_mode_allowlist(mode, hosts, tolerate, good):
    if good:
        assert network.check_policy(mode, hosts, tolerate_empty=tolerate) is None
    else:
        with pytest.raises(PydanticCustomError, match="allowlist"):
            network.check_policy(mode, hosts, tolerate_empty=tolerate)
