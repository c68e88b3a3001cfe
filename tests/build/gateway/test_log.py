"""What the gateway's logs say was refused."""

from hypothesis import given
from hypothesis import strategies as st

from taskfold.build.gateway import log

DNS = """\
.:10053
CoreDNS-1.15.0
linux/amd64, go1.26.0,
[INFO] refused type=A name=unlisted.test.
[INFO] refused type=AAAA name=UnListed.test.
[INFO] refused type=TXT name=a\\032b.test.
[INFO] refused type=NS name=.
[ERROR] plugin/errors: 2 unlisted.test. A: read udp
[INFO] refused type=A name=cut.te
""".splitlines()
PROXY = """\
[NOTICE]   (1) : haproxy version is 3.0.11
tls why=name state=PR port=443 name=unlisted.test
tls why=address state=PR port=8443 name=inside.test
tls why=no-tls state=PR port=443 name=-
tls why=unknown state=PR port=443 name=nowhere.test
tls why=- state=SC port=443 name=down.test
http why=name state=LR status=403 name=x%0Atls%20why%3Dname
http why=method state=LR status=405 name=allowed.test
http why=- state=PR status=400 name=-
http why=- state=SC status=503 name=down.test
http why=name state=LR status=403 na
""".splitlines()


def test_refusals_are_counted_and_failures_are_not() -> None:
    found = log.refusals(DNS, PROXY)
    assert found.total == 11
    assert found.names == {
        "unlisted.test": 3,
        "-": 2,
        ".": 1,
        "a\\032b.test": 1,
        "allowed.test": 1,
        "cut.te": 1,
        "inside.test": 1,
        "x%0Atls%20why%3Dname": 1,
    }
    assert next(iter(found.names)) == "unlisted.test"


def test_only_the_most_frequent_names_are_told_apart() -> None:
    lines = [f"[INFO] refused type=A name=n{n}.test." for n in range(log.TOP + 10)] + [
        "[INFO] refused type=A name=top."
    ]
    found = log.refusals([*lines, lines[-1]], [])
    assert found.total == len(lines) + 1
    assert len(found.names) == log.TOP
    assert next(iter(found.names.items())) == ("top", 2)


@given(st.lists(st.text()), st.lists(st.text()))
def test_no_line_is_too_strange(dns: list[str], proxy: list[str]) -> None:
    found = log.refusals(dns, proxy)
    assert 0 <= sum(found.names.values()) <= found.total <= len(dns) + len(proxy)
