"""The part of CEL that the rules of the committed CRDs use: a parser and an evaluator of expressions.

Literals, lists, fields, `has`, `in`, comparison, logic, `?:`, `type`, and the methods size, contains, startsWith, all,
filter. Anything else is a `SyntaxError`, so that a new rule is not taken for fulfilled.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<text>'[^']*')|(?P<word>[A-Za-z_]\w*)|(?P<sign>&&|\|\||[=!<>]=|[-+!<>?:.,()\[\]]))"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
    "in": lambda a, b: a in b,
}
_NAMES = {"true": True, "false": False, "null": None, "string": "string", "int": "int"}


def broken(rule: Mapping[str, Any], value: Any, old: Any) -> str | None:
    """The message of a rule that does not hold for this value; None: it holds, or nothing changed that it is about."""
    text = rule["rule"]
    if "oldSelf" in text and old is None:
        return None
    if parsed(text)({"self": value, "oldSelf": old}):
        return None
    return str(rule.get("message") or f"failed rule: {text}")


@functools.cache
def parsed(text: str) -> Node:
    """The expression, ready to be evaluated. SyntaxError: not modelled."""
    parser = _Parser(text)
    node = parser.choice()
    if parser.tokens:
        raise SyntaxError(f"not modelled: {text!r}, from {parser.tokens[0]!r}")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if found is None:
                raise SyntaxError(f"not modelled: {text!r}, at {position}")
            self.tokens.append(found[0].strip())
            position = found.end()

    def take(self, *signs: str) -> str:
        """The next token if it is one of these."""
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in signs else ""

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise SyntaxError(f"{sign!r} expected before {self.tokens[:3]}")

    def choice(self) -> Node:
        test = self.either()
        if not self.take("?"):
            return test
        yes = self.choice()
        self.need(":")
        no = self.choice()
        return lambda scope: yes(scope) if test(scope) else no(scope)

    def either(self) -> Node:
        node = self.both()
        while self.take("||"):
            node = _or(node, self.both())
        return node

    def both(self) -> Node:
        node = self.compared()
        while self.take("&&"):
            node = _and(node, self.compared())
        return node

    def compared(self) -> Node:
        node = self.sum()
        sign = self.take(*_COMPARE)
        if not sign:
            return node
        right, compare = self.sum(), _COMPARE[sign]
        return lambda scope: compare(node(scope), right(scope))

    def sum(self) -> Node:
        node = self.unary()
        while self.take("+"):
            node = _plus(node, self.unary())
        return node

    def unary(self) -> Node:
        if self.take("!"):
            node = self.unary()
            return lambda scope: not node(scope)
        return self.member()

    def member(self) -> Node:
        node = self.primary()
        while self.take("."):
            name = self.tokens.pop(0)
            node = self.method(node, name) if self.take("(") else _field(node, name)
        return node

    def method(self, of: Node, name: str) -> Node:
        if name in ("all", "filter"):
            variable = self.tokens.pop(0)
            self.need(",")
            test = self.choice()
            self.need(")")
            return _every(of, variable, test) if name == "all" else _filtered(of, variable, test)
        arguments: list[Node] = []
        while not self.take(")"):
            arguments.append(self.choice())
            self.take(",")
        match name, arguments:
            case "size", []:
                return lambda scope: len(of(scope))
            case "contains", [part]:
                return lambda scope: part(scope) in of(scope)
            case "startsWith", [start]:
                return lambda scope: of(scope).startswith(start(scope))
        raise SyntaxError(f"the method {name} is not modelled")

    def primary(self) -> Node:
        token = self.tokens.pop(0)
        if token == "(":
            node = self.choice()
            self.need(")")
            return node
        if token == "[":
            items: list[Node] = []
            while not self.take("]"):
                items.append(self.choice())
                self.take(",")
            return lambda scope: [item(scope) for item in items]
        if token.isdigit():
            return lambda _: int(token)
        if token.startswith("'"):
            return lambda _: token[1:-1]
        if token in ("has", "type") and self.take("("):
            return self.macro(token)
        if token in _NAMES:
            return lambda _: _NAMES[token]
        return lambda scope: scope[token]

    def macro(self, name: str) -> Node:
        if name == "type":
            of = self.choice()
            self.need(")")
            return lambda scope: "string" if isinstance(of(scope), str) else "int"
        path = [self.tokens.pop(0)]
        while self.take("."):
            path.append(self.tokens.pop(0))
        self.need(")")

        def has(scope: Scope) -> bool:
            value = scope[path[0]]
            for step in path[1:-1]:
                value = value[step]
            return path[-1] in value

        return has


def _or(left: Node, right: Node) -> Node:
    return lambda scope: left(scope) or right(scope)


def _and(left: Node, right: Node) -> Node:
    return lambda scope: left(scope) and right(scope)


def _plus(left: Node, right: Node) -> Node:
    return lambda scope: left(scope) + right(scope)


def _field(of: Node, name: str) -> Node:
    return lambda scope: of(scope)[name]


def _every(of: Node, variable: str, test: Node) -> Node:
    return lambda scope: all(test({**scope, variable: each}) for each in of(scope))


def _filtered(of: Node, variable: str, test: Node) -> Node:
    return lambda scope: [each for each in of(scope) if test({**scope, variable: each})]
