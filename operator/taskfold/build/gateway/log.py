"""What the gateway refused, read from its two containers' logs.

Guarantees: the counts never exceed the lines; a line that is not ours is passed over; at most `TOP`
names are told apart, the most frequent ones. Logs are rotated on the node, so counts are lower bounds.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from taskfold.build.gateway import corefile, haproxy

TOP = 32
_TRACKED = 4096
"""Names counted at a time: a log may name a million of them."""
MAX_SHOWN = 255
_DNS = re.compile(rf"(?:\[INFO\] )?{corefile.REFUSED} type=\S+ name=(\S+)")
_PROXY = re.compile(r"(?:tls|http) why=(\S+) state=(\S+) (?:port|status)=\S+ name=(\S+)")
_REFUSALS = frozenset({haproxy.NAME, haproxy.ADDRESS, haproxy.NO_TLS, haproxy.METHOD, haproxy.MALFORMED})
_BY_PROXY = "PR"
"""HAProxy's own word for a request that it denied, or could not read."""


@dataclass(frozen=True)
class Refusals:
    """`names`: the most frequent ones with their counts, most frequent first; "-" where none was said. `total`: of all
    refused questions, connections and requests, those of other names too."""

    total: int
    names: Mapping[str, int]


def refusals(dns: Iterable[str], proxy: Iterable[str]) -> Refusals:
    """Counts over the lines of CoreDNS's and of HAProxy's log."""
    total, counts = 0, Counter[str]()
    for name in itertools.chain(_of_dns(dns), _of_proxy(proxy)):
        total += 1
        if name in counts or len(counts) < _TRACKED:
            counts[name] += 1
    frequent = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return Refusals(total, dict(frequent[:TOP]))


def _of_dns(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if found := _DNS.fullmatch(line.rstrip("\n")):
            yield found[1].lower().removesuffix(".")[:MAX_SHOWN] or "."


def _of_proxy(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        found = _PROXY.fullmatch(line.rstrip("\n"))
        if found and (found[1] in _REFUSALS or (found[1] == "-" and found[2].startswith(_BY_PROXY))):
            yield found[3][:MAX_SHOWN]
