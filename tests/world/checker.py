"""A world that cannot be is refused: every write to the API server is held against the rules.

Guarantees: it sees every write in order, also those of nodes and controllers; it changes nothing and never raises
within a write (the engine would take that for an answer): `violations` holds what was found, `check()` fails on it.
"""

from dataclasses import dataclass
from typing import Any

from tests.world import apiserver, rules, rules_of_pods, rules_of_runs

Json = dict[str, Any]
RULES = (*rules.RULES, *rules_of_runs.RULES, *rules_of_pods.RULES)


@dataclass(frozen=True)
class Violation:
    """A rule, the object, and what it did."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.what}"


class Checker:
    """`Checker(server)` looks from now on; what exists already is taken as it is."""

    def __init__(self, server: "apiserver.ApiServer", *, skew_seconds: float = 0.0) -> None:
        """`skew_seconds`: how far apart the clocks of two operators may be."""
        self.violations: list[Violation] = []
        self._memory = rules.Memory(skew_seconds)
        self._now: dict[tuple[str, str, str], Json] = {}
        for resource, obj in server.everything():
            self._now[_place(resource.plural, obj)] = obj
            rules.remember(rules.Write(resource.plural, None, obj), self._memory)
        server.subscribe(self.see)

    def see(self, kind: str, plural: str, obj: Json) -> None:
        """One write, as a subscriber of the server is told it."""
        place = _place(plural, obj)
        old = self._now.pop(place, None)
        if kind == "ADDED":
            old = None
        write = rules.Write(plural, old, obj) if kind != "DELETED" else rules.Write(plural, obj, None)
        for rule in RULES:
            self.violations += [Violation(rule.name, write.where, what) for what in rule.broken(write, self._memory)]
        rules.remember(write, self._memory)
        if kind != "DELETED":
            self._now[place] = obj

    def check(self) -> None:
        """AssertionError if anything impossible has happened."""
        if self.violations:
            raise AssertionError("\n".join(map(str, self.violations[:20])))


def _place(plural: str, obj: Json) -> tuple[str, str, str]:
    return plural, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
