"""The names of an allowlist in the forms that the gateway's two programs match by.

Guarantees: what CoreDNS's expression matches, and what HAProxy's lists do, are the listed names and the names below
listed suffixes, and nothing else: `*.example.test` covers one label or more, never `example.test`. Case does not
count. No character of a name means anything to the expression or to the files.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_NAME = 253
LABEL = "[a-z0-9_-]"
"""Of what labels are made that the gateway knows, after lower-casing. DNS has more; names of hosts do not."""
_GRAMMAR = re.compile(rf"(?:\*\.)?{LABEL}+(?:\.{LABEL}+)*")


@dataclass(frozen=True)
class Names:
    """`exact`: whole names. `below`: names whose own subdomains are allowed. Sorted, each once, lower case, no dot at
    the end."""

    exact: tuple[str, ...]
    below: tuple[str, ...]


def of(hosts: Iterable[str]) -> Names:
    """The allowlist's names. ValueError for what is none; addresses are no names and are not told apart here."""
    exact, below = set(), set()
    for host in hosts:
        name = host.removesuffix(".").lower()
        # The Kelvin sign's lower case is a k.
        if not host.isascii() or not _GRAMMAR.fullmatch(name) or len(name) > MAX_NAME:
            raise ValueError(f"{host[:MAX_NAME]!r} is not the name of a host")
        if name.startswith("*."):
            below.add(name[2:])
        else:
            exact.add(name)
    return Names(tuple(sorted(exact)), tuple(sorted(below)))


def expression(names: Names) -> str:
    """The Go regular expression (RE2) of all of them, as questions spell them: with a dot at the end."""
    found = [*map(_escaped, names.exact), *(rf"(?:{LABEL}+\.)+{_escaped(name)}" for name in names.below)]
    if not found:
        raise ValueError("an allowlist without names has no gateway")
    return rf"(?i)^(?:{'|'.join(found)})\.$"


def witness(names: Names) -> str:
    """A name that the gateway answers, by which it is seen to work. Nobody outside is asked for it."""
    return names.exact[0] if names.exact else f"a.{names.below[0]}"


def exact_list(names: Names) -> str:
    """HAProxy's list of whole names: one a line, compared as a string."""
    return "".join(f"{name}\n" for name in names.exact)


def suffix_list(names: Names) -> str:
    """HAProxy's list of endings. The dot before each keeps out the name itself, and names that only end alike."""
    return "".join(f".{name}\n" for name in names.below)


def _escaped(name: str) -> str:
    # By code, not by a backslash before it: a Corefile gives quotes, backslashes, {$…} and {%…} meanings of its own.
    return "".join(
        each if each.isascii() and (each.isalnum() or each in "_-") else f"\\x{ord(each):02x}" for each in name
    )
