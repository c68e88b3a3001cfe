"""The schemas and rules of the committed CRDs are modelled whole, and what is not modelled is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.world import cel, kinds, schema

Json = dict[str, Any]


def rules(node: Any) -> Iterator[str]:
    """Every rule within a schema."""
    if isinstance(node, dict):
        yield from (rule["rule"] for rule in node.get("x-kubernetes-validations") or ())
        for each in node.values():
            yield from rules(each)


def holds(text: str, value: Any, old: Any = None) -> bool:
    return cel.broken({"rule": text}, value, old) is None


@pytest.mark.parametrize("text", sorted({text for kind in kinds.known() for text in rules(kind.structure)}))
def test_every_rule_is_understood(text: str) -> None:
    assert cel.parsed(text) is not None


@pytest.mark.parametrize(
    "text", ["self.a.matches('x')", "self.exists(each, each)", "self * 2", "self.a &&", "size(self)", "has(self.a"]
)
def test_what_is_not_modelled_is_an_error(text: str) -> None:
    with pytest.raises((SyntaxError, IndexError)):
        cel.parsed(text)


def test_a_keyword_of_a_schema_that_is_not_modelled_is_an_error() -> None:
    node = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    with pytest.raises(ValueError, match="uniqueItems"):
        schema.Schema(node)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("self.a == 1 && self.b == 2", {"a": 1, "b": 2}, True),
        ("self.a == 1 && self.b == 3", {"a": 1, "b": 2}, False),
        ("self.a == 2 || self.b == 2", {"a": 1, "b": 2}, True),
        ("!has(self.a) || self.a > 1", {}, True),
        ("!has(self.a) || self.a > 1", {"a": 1}, False),
        ("has(self.a.b)", {"a": {}}, False),
        ("type(self) == string ? self != '' : self >= 0", "", False),
        ("type(self) == string ? self != '' : self >= 0", 0, True),
        ("self.all(each, each.size() <= 2)", ["a", "bb"], True),
        ("self.all(each, each.size() <= 2)", ["a", "bbb"], False),
        ("self.all(key, !key.startsWith('x/'))", {"x/y": "1"}, False),
        ("[has(self.a), has(self.b)].filter(given, given).size() == 1", {"a": 1, "b": 1}, False),
        ("[has(self.a), has(self.b)].filter(given, given).size() == 1", {"b": 1}, True),
        ("('/' + self + '/').contains('/../')", "a/../b", True),
        ("'a' in self", {"a": 1}, True),
        ("!('a' in self)", {"a": 1}, False),
        ("has(self.a) != has(self.b)", {"a": 1}, True),
        ("self.a || self.b && self.c", {"a": True, "b": False, "c": False}, True),
    ],
)
def test_expressions(text: str, value: Any, expected: bool) -> None:
    assert holds(text, value) is expected


def test_a_rule_about_a_change_waits_for_one() -> None:
    assert holds("self == oldSelf", {"a": 1})
    assert holds("self == oldSelf", {"a": 1}, {"a": 1})
    assert not holds("self == oldSelf", {"a": 1}, {"a": 2})
