"""What a sandbox may reach: the spelling of hosts, and two restrictions together, held against a plain matcher."""

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from taskfold.contract import network
from taskfold.contract.network import NO_NETWORK, PUBLIC, Network, NetworkMode

ALLOWLIST = NetworkMode.ALLOWLIST


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        ("Example.COM.", "example.com"),
        (" pypi.org ", "pypi.org"),
        ("localhost", "localhost"),
        ("*.example.com", "*.example.com"),
        ("*.COM", "*.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a--b.3com", "a--b.3com"),
        ("x" * 63 + ".com", "x" * 63 + ".com"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1/32", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:0db8:0::0001/128", "2001:db8::1"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::/0", "::/0"),
    ],
)
def test_a_host_is_a_name_a_wildcard_an_address_or_a_block(entry, host):
    assert network.allowed_host(entry) == host
    assert network.allowed_host(host) == host


@pytest.mark.parametrize(
    ("entry", "problem", "remedy"),
    [
        ("", "is empty", "Write a host name"),
        (".", "is empty", "Write a host name"),
        ("*", '"*" that is not "*." at its beginning', "Only whole labels"),
        ("*.", '"*" that is not "*." at its beginning', "Only whole labels"),
        ("a.*.b", '"*" that is not "*." at its beginning', "Only whole labels"),
        ("*a.b", '"*" that is not "*." at its beginning', "Only whole labels"),
        ("*.*.b", '"*" that is not "*." at its beginning', "Only whole labels"),
        ("**.a", '"*" that is not "*." at its beginning', "Only whole labels"),
        ("https://a.b", "is a URL", "Write the host alone"),
        ("https://a.b:443/c?d=[e]", "is a URL", "Write the host alone"),
        ("a.b:443", "has a port", "Write the host alone"),
        ("*.a.b:443", "has a port", "Write the host alone"),
        ("10.0.0.1:443", "has a port", "Write the host alone"),
        ("a.b/c", "has a path", "Write the host alone"),
        ("a.b/24", "has a path", "Write the host alone"),
        ("[::1]", "has brackets", "IPv6 address without them"),
        ("[::1]:443", "has brackets", "and no port"),
        ("fe80::1%eth0", "has a zone", "Write the address without it"),
        ("fe80::1%eth0/64", "has a zone", "Write the address without it"),
        ("2001:db8::12345", "is not an IPv6 address", "Write a host name"),
        ("*.10.0.0.0/8", "has a wildcard in front of an address", "Write a CIDR block"),
        ("*.10.0.0.1", "has a wildcard in front of an address", "Write a CIDR block"),
        ("*.::1", "has a wildcard in front of an address", "Write a CIDR block"),
        ("10.0.0.1/8", "has bits set behind its prefix", 'Write "10.0.0.0/8"'),
        ("2001:db8::1/32", "has bits set behind its prefix", 'Write "2001:db8::/32"'),
        ("10.0.0.0/33", "is not a CIDR block", '"192.0.2.0/24"'),
        ("10.0.0.0/", "is not a CIDR block", '"192.0.2.0/24"'),
        ("10.0.0.0/255.0.0.0", "is a block with a mask", 'Write "10.0.0.0/8"'),
        ("under_score.com", "has an underscore", "Write a host name"),
        ("b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example", "is not written in ASCII", "xn--"),
        ("\N{KELVIN SIGN}.example", "is not written in ASCII", "xn--"),
        ("\N{FULLWIDTH DIGIT ONE}0.0.0.1", "is not written in ASCII", "xn--"),
        ("-a.b", "is not a host", "Write a host name"),
        ("a-.b", "is not a host", "Write a host name"),
        ("a..b", "is not a host", "Write a host name"),
        ("a.b..", "is not a host", "Write a host name"),
        ("x" * 64 + ".com", "is not a host", "Write a host name"),
        (".".join(["x" * 62] * 5), "is not a host", "Write a host name"),
        ("a b", "is not a host", "Write a host name"),
        ("a\nb", "is not a host", "Write a host name"),
        ('a"b', "is not a host", "Write a host name"),
        ("a|b", "is not a host", "Write a host name"),
        (".example.com", "is not a host", "Write a host name"),
    ],
)
def test_what_is_no_host_is_refused_with_what_is_wrong_and_what_to_write(entry, problem, remedy):
    with pytest.raises(PydanticCustomError) as caught:
        network.allowed_host(entry)
    assert problem in caught.value.context["problem"]
    assert remedy in caught.value.context["remedy"]
    assert caught.value.context["remedy"].endswith(".")


@given(st.text(max_size=20) | st.text("a1.*:/[]%_- \n", max_size=20))
@example("10.0.0.0/08")
@example("::ffff:10.0.0.1")
def test_any_text_is_refused_or_has_one_normal_form(entry):
    try:
        host = network.allowed_host(entry)
    except PydanticCustomError:
        return
    assert network.allowed_host(host) == host
    assert host == host.lower().strip()
    assert set(host) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-:/*")
    assert len(network.of(ALLOWLIST, [host]).names) + len(network.of(ALLOWLIST, [host]).addresses) == 1


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


@pytest.mark.parametrize(
    ("mode", "hosts", "found"),
    [
        (None, None, PUBLIC),
        (NetworkMode.PUBLIC, (), PUBLIC),
        (NetworkMode.NO_NETWORK, None, NO_NETWORK),
        (ALLOWLIST, None, NO_NETWORK),
        (ALLOWLIST, (), NO_NETWORK),
        (ALLOWLIST, ("b", "a", "b"), Network(ALLOWLIST, ("a", "b"))),
        (ALLOWLIST, ("*.b", "a.b", "c.a.b", "*.a.b", "b"), Network(ALLOWLIST, ("*.b", "b"))),
        (ALLOWLIST, ("10.0.0.1", "10.0.0.0/8", "::1"), Network(ALLOWLIST, ("10.0.0.0/8", "::1"))),
    ],
)
def test_a_network_is_what_is_left_once_nothing_is_said_twice(mode, hosts, found):
    assert network.of(mode, hosts) == found


def test_names_and_addresses_of_an_allowlist():
    found = network.of(ALLOWLIST, ("a.b", "*.c", "10.0.0.1", "2001:db8::/32"))
    assert (found.names, found.addresses) == (("*.c", "a.b"), ("10.0.0.1", "2001:db8::/32"))
    assert found.restricted
    assert not PUBLIC.restricted


TOGETHER = {
    "a name in a wildcard": (["a.b.c", "b.c", "x.d"], ["*.b.c"], ["a.b.c"]),
    "a wildcard in a wildcard": (["*.b.c", "*.d"], ["*.c"], ["*.b.c"]),
    "the apex is not below itself": (["b.c"], ["*.b.c"], []),
    "a name's end alone is nothing": (["notb.c"], ["*.b.c", "b.c"], []),
    "an address in a block": (["10.1.2.3", "11.0.0.1"], ["10.0.0.0/8"], ["10.1.2.3"]),
    "a block in a block": (["10.1.0.0/16", "::/48"], ["10.0.0.0/8", "::/32"], ["10.1.0.0/16", "::/48"]),
    "families apart": (["::/0"], ["0.0.0.0/0"], []),
    "names and addresses apart": (["a.b"], ["0.0.0.0/0", "::/0"], []),
    "nothing in common": (["a.b"], ["c.d"], []),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "both"), TOGETHER.values(), ids=TOGETHER)
def test_of_two_allowlists_what_both_allow(one, other, both):
    first, second, expected = (network.of(ALLOWLIST, hosts) for hosts in (one, other, both))
    assert network.stricter(first, second) == network.stricter(second, first) == expected


# -- properties: in a small world, where whatever may happen does -----------------------------------------------------

NAMES = ["a", "b", "a.a", "b.a", "a.b", "a.a.a", "b.a.a", "b.b.a"]
ADDRESSES = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::", "2001:db8::1", "2001:db8::2"]
ENTRIES = [
    *NAMES,
    *(f"*.{name}" for name in NAMES),
    *ADDRESSES,
    *("10.0.0.0/31", "10.0.0.2/31", "10.0.0.0/30", "0.0.0.0/0", "2001:db8::/127", "2001:db8::/64", "::/0"),
]
networks = st.one_of(
    st.sampled_from([PUBLIC, NO_NETWORK]),
    st.lists(st.sampled_from(ENTRIES), max_size=6).map(lambda hosts: network.of(ALLOWLIST, hosts)),
)


def allows(wanted: Network, host: str) -> bool:
    """By its definition, entry by entry."""
    if wanted.mode is NetworkMode.PUBLIC:
        return True
    return any(matches(entry, host) for entry in wanted.hosts)


def matches(entry: str, host: str) -> bool:
    if host in ADDRESSES:
        return entry not in NAMES and "*" not in entry and ipaddress.ip_address(host) in ipaddress.ip_network(entry)
    return host == entry or (entry.startswith("*.") and host.endswith("." + entry[2:]))


@given(networks, networks)
def test_together_they_allow_what_both_do(one, other):
    both = network.stricter(one, other)
    for host in (*NAMES, *ADDRESSES):
        assert allows(both, host) == (allows(one, host) and allows(other, host)), host
        assert network.allows(one, host) == allows(one, host), host


@given(networks, networks, networks)
def test_order_and_repetition_make_no_difference(one, other, third):
    stricter = network.stricter
    assert stricter(one, other) == stricter(other, one)
    assert stricter(stricter(one, other), third) == stricter(one, stricter(other, third))
    assert stricter(one, one) == one
    assert stricter(one, PUBLIC) == one
    assert stricter(one, NO_NETWORK) == NO_NETWORK


@given(st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=8))
def test_a_list_allows_the_same_in_its_normal_form(hosts):
    found = network.of(ALLOWLIST, hosts)
    for host in (*NAMES, *ADDRESSES):
        assert allows(found, host) == any(matches(entry, host) for entry in hosts)
    assert set(found.hosts) <= set(hosts)
    assert found.hosts == tuple(sorted(set(found.hosts)))
    assert sorted((*found.names, *found.addresses)) == list(found.hosts)


def test_a_list_has_a_limit():
    entries = tuple(f"h{number}.example" for number in range(network.MAX_HOSTS))
    assert network.allowed_hosts(entries) == entries
    with pytest.raises(PydanticCustomError, match="more than 256"):
        network.allowed_hosts((*entries, "one.more"))
