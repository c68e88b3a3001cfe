"""Words of a Dockerfile: quotes, escapes and variables, as `docker build` reads them.

Guarantees: a word is parsed once and expanded later, when the base image's environment is known; what only
BuildKit understands (`${NAME#pattern}`, `${NAME:?text}`) is a `WordError`, never expanded wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_OPERATORS = (":-", ":+", "-", "+")


class WordError(ValueError):
    """The text says what is wrong with a word; `build`: only BuildKit can tell."""

    def __init__(self, problem: str, *, build: bool = False) -> None:
        super().__init__(problem)
        self.build = build


@dataclass(frozen=True)
class Variable:
    """`$NAME`, `${NAME}`, and with an operator `${NAME:-word}`, `${NAME-word}`, `${NAME:+word}`,
    `${NAME+word}`.
    """

    name: str
    operator: str = ""
    word: Word = ()


Word = tuple["str | Variable", ...]


def parse_word(text: str, escape: str = "\\") -> Word:
    """A whole text as one word; white space in it is kept."""
    return _Reader(text, escape).word("")


def split(text: str, escape: str = "\\") -> list[str]:
    """The words of a line, as written: white space outside quotes parts them."""
    words, current, quote, position = [], "", "", 0
    started = False
    while position < len(text):
        char = text[position]
        if char == escape and quote != "'" and position + 1 < len(text):
            current += text[position : position + 2]
            position, started = position + 2, True
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in " \t":
            if started:
                words.append(current)
            current, started, position = "", False, position + 1
            continue
        current, started, position = current + char, True, position + 1
    if quote:
        raise WordError(f"a quote ({quote}) is not closed")
    return [*words, current] if started else words


def expand(word: Word, env: Mapping[str, str]) -> str:
    """The word's text; a variable that is not in `env` is empty."""
    return "".join(part if isinstance(part, str) else _value(part, env) for part in word)


def _value(variable: Variable, env: Mapping[str, str]) -> str:
    value = env.get(variable.name)
    match variable.operator:
        case ":-":
            return value or expand(variable.word, env)
        case "-":
            return expand(variable.word, env) if value is None else value
        case ":+":
            return expand(variable.word, env) if value else ""
        case "+":
            return "" if value is None else expand(variable.word, env)
        case _:
            return value or ""


@dataclass
class _Reader:
    text: str
    escape: str
    position: int = 0
    depth: int = 0

    def word(self, stop: str) -> Word:
        """Up to the character `stop` outside quotes, or to the end."""
        parts: list[str | Variable] = []
        while self.position < len(self.text) and self.text[self.position] != stop:
            char = self._take()
            if char == "'":
                parts.append(self._until_quote())
            elif char == '"':
                parts.extend(self._double_quoted())
            elif char == "$":
                parts.append(self._variable())
            elif char == self.escape and self.position < len(self.text):
                parts.append(self._take())
            else:
                parts.append(char)
        return _joined(parts)

    def _take(self) -> str:
        char = self.text[self.position]
        self.position += 1
        return char

    def _next(self) -> str:
        return self.text[self.position : self.position + 1]

    def _until_quote(self) -> str:
        end = self.text.find("'", self.position)
        if end < 0:
            raise WordError("a quote (') is not closed")
        inside = self.text[self.position : end]
        self.position = end + 1
        return inside

    def _double_quoted(self) -> list[str | Variable]:
        parts: list[str | Variable] = []
        while self.position < len(self.text):
            char = self._take()
            if char == '"':
                return parts
            if char == "$":
                parts.append(self._variable())
            elif char == self.escape and self._next() in ('"', "$", self.escape):
                parts.append(self._take())
            else:
                parts.append(char)
        raise WordError('a quote (") is not closed')

    def _variable(self) -> str | Variable:
        """What follows a `$`."""
        if self._next() == "{":
            self.position += 1
            return self._braced()
        name = self._name()
        return Variable(name) if name else "$"

    def _name(self) -> str:
        """A name, a number or one of the shell's special names; the latter two are never set."""
        match = _NAME.match(self.text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        return match[0]

    def _braced(self) -> Variable:
        name = self._name()
        if not name:
            raise WordError("${ is not followed by the name of a variable")
        if not self._next():
            raise WordError(f"${{{name} is not closed")
        if self._next() == "}":
            self.position += 1
            return Variable(name)
        operator = next((o for o in _OPERATORS if self.text.startswith(o, self.position)), None)
        if operator is None:
            raise WordError(f"what follows ${{{name} needs BuildKit", build=True)
        self.position += len(operator)
        self.depth += 1
        if self.depth > 16:
            raise WordError("variables are nested too deeply")
        word = self.word("}")
        self.depth -= 1
        if self.position >= len(self.text):
            raise WordError(f"${{{name} is not closed")
        self.position += 1
        return Variable(name, operator, word)


def _joined(parts: list[str | Variable]) -> Word:
    """Neighbouring texts put together."""
    joined: list[str | Variable] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)
