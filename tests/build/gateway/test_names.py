"""Which names an allowlist covers: the expression and the lists against a matcher that knows labels only."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfold.build.gateway import names

LABELS = st.text("ab-_0", min_size=1, max_size=3)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
HOSTS = st.lists(st.tuples(st.sampled_from(["", "*."]), NAMES).map("".join), min_size=1, max_size=5)
# What a question may hold: any bytes, where a dot inside of a label is spelt with a backslash before it.
STRANGE = st.text("ab.\\*[]()|^$+?{}\n\r\t \"'`#%AB", max_size=12)


def covers(hosts: list[str], name: str) -> bool:
    """Label by label. `name`: as DNS has it, without a dot at the end."""
    labels = name.lower().split(".")
    for host in hosts:
        wanted = host.lower().split(".")
        if wanted[0] != "*" and labels == wanted:
            return True
        below = len(labels) - len(wanted) + 1
        if wanted[0] == "*" and below >= 1 and labels[below:] == wanted[1:] and all(map(_of_a_host, labels[:below])):
            return True
    return False


def _of_a_host(label: str) -> bool:
    return label != "" and set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


def by_expression(hosts: list[str], name: str) -> bool:
    return re.search(names.expression(names.of(hosts)), f"{name}.", re.ASCII) is not None


def by_lists(hosts: list[str], name: str) -> bool:
    """As HAProxy reads them: a form, then equality with a line, or an ending that is a line."""
    found = names.of(hosts)
    exact, suffixes = names.exact_list(found).splitlines(), names.suffix_list(found).splitlines()
    low = name.lower()
    formed = re.search(f"^({names.LABEL}+[.])*{names.LABEL}+$", low, re.ASCII) is not None and not low.endswith("\n")
    return formed and (low in exact or any(low.endswith(each) for each in suffixes))


@given(HOSTS, NAMES)
def test_a_name_matches_if_and_only_if_the_list_covers_it(hosts: list[str], name: str) -> None:
    assert by_expression(hosts, name) == covers(hosts, name)
    assert by_lists(hosts, name) == covers(hosts, name)


@given(HOSTS, st.lists(LABELS, max_size=2), st.data())
def test_what_is_listed_and_what_is_below_a_suffix_matches(
    hosts: list[str], more: list[str], data: st.DataObject
) -> None:
    host = data.draw(st.sampled_from(hosts))
    name = ".".join([*more, "a", host[2:]]) if host.startswith("*.") else host
    for spelt in (name, name.upper()):
        assert covers(hosts, spelt)
        assert by_expression(hosts, spelt)
        assert by_lists(hosts, spelt)


@given(HOSTS, st.text("ab.", max_size=2), st.text("ab.", max_size=2), st.data())
def test_what_is_like_a_listed_name_matches_only_if_it_is_covered(
    hosts: list[str], before: str, behind: str, data: st.DataObject
) -> None:
    name = before + data.draw(st.sampled_from(hosts)).removeprefix("*.") + behind
    assert by_expression(hosts, name) == covers(hosts, name)
    assert by_lists(hosts, name) == covers(hosts, name)


@given(HOSTS)
def test_the_witness_is_a_name_of_the_list(hosts: list[str]) -> None:
    assert by_expression(hosts, names.witness(names.of(hosts)))


@given(HOSTS, STRANGE)
def test_no_strange_name_matches_that_is_not_covered(hosts: list[str], name: str) -> None:
    if not covers(hosts, name):
        assert not by_expression(hosts, name)
        assert not by_lists(hosts, name)


@given(st.text(max_size=20), STRANGE | NAMES)
@settings(max_examples=300)
def test_a_host_of_any_text_is_refused_or_means_itself(host: str, name: str) -> None:
    try:
        found = names.of([host])
    except ValueError:
        return
    assert covers([host.removesuffix(".")], name) == by_expression([host], name)
    assert len(found.exact) + len(found.below) == 1


@given(st.text(max_size=20), STRANGE)
def test_even_names_that_no_grammar_let_in_match_nothing_else(host: str, name: str) -> None:
    """The builder behind the check: whatever stands in the names is text."""
    pattern = names.expression(names.Names((host,), ()))
    assert set(pattern) & set("\"'`\n\r\t {}$#%") <= {"$"}
    assert re.search(pattern, f"{name}.", re.ASCII) is None or name.lower() == host.lower()


@pytest.mark.parametrize(
    "host",
    ["", ".", "*", "*.", "a..b", ".a", "*.*.a", "a.*.b", "*a.b", "a b", "a\nb", "a.b\n", "a/b", "ä.test", "\u212a.test",
     "a:1", "[::1]", "x" * 254],
)  # fmt: skip
def test_what_is_no_name_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a host"):
        names.of([host])


def test_names_are_normalised() -> None:
    found = names.of(["B.Test.", "a.test", "b.test", "*.Example.test."])
    assert found == names.Names(("a.test", "b.test"), ("example.test",))


def test_an_empty_list_has_no_expression() -> None:
    with pytest.raises(ValueError, match="without names"):
        names.expression(names.of([]))


CASES = {
    "allowed.test.": True,
    "ALLOWED.test.": True,
    "allowed.test": False,
    "notallowed.test.": False,
    "allowedxtest.": False,
    "allowed.test.evil.": False,
    "example.test.": False,
    "a.example.test.": True,
    "a.b.example.test.": True,
    "notexample.test.": False,
    ".example.test.": False,
    "a\\.example.test.": False,
    "a b.example.test.": False,
    "allowed.test.\n": False,
}
GO = """package main

import (
	"encoding/json"
	"os"
	"regexp"
)

func main() {
	var cases []string
	json.Unmarshal([]byte(os.Args[2]), &cases)
	expression := regexp.MustCompile(os.Args[1])
	found := map[string]bool{}
	for _, name := range cases {
		found[name] = expression.MatchString(name)
	}
	json.NewEncoder(os.Stdout).Encode(found)
}
"""


def test_go_reads_the_expression_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(GO)
    pattern = names.expression(names.of(["allowed.test", "*.example.test"]))
    command = ["go", "run", str(tmp_path / "main.go"), pattern, json.dumps(list(CASES))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == CASES
