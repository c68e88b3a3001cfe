"""Where an operator can die: each call that it makes, each effect that it applies, before and after the deed.

Guarantees: the points come from what a calm run of the scenario really called; a kind of call is the effect that it
serves, its name, and the function of the engine that makes it.
"""

import ast
import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from taskfold import engine
from tests.world import border, faults


class Kind(NamedTuple):
    """What distinguishes one sort of call from another."""

    effect: str
    name: str
    site: str


@dataclass(frozen=True)
class CrashPoint:
    """The call with this number, before it reaches the other side or after it has acted."""

    call: border.Call
    point: faults.Point
    life: int = 0
    """Of which process of the calm life the call is."""

    @property
    def kind(self) -> Kind:
        return kind(self.call)

    def __str__(self) -> str:
        return f"{self.point} {self.call} of life {self.life + 1}"

    @property
    def crash(self) -> tuple[Callable[[border.Border], None], ...]:
        """For `play.alone`: the lives before go on as they did, this one ends here."""
        return (*[_nothing] * self.life, self.kills)

    def kills(self, gate: border.Border) -> None:
        """The process dies here."""
        gate.add(self.point, faults.numbered(self.call.number), faults.Kill())

    def stops(self, gate: border.Border) -> None:
        """The process is stopped here."""
        gate.add(self.point, faults.numbered(self.call.number), faults.Stop())


def _nothing(gate: border.Border) -> None:
    pass


def kind(call: faults.Call) -> Kind:
    known = cast("border.Call", call)
    return Kind(known.effect, known.name, known.site)


def of_lives(lives: Iterable[Iterable[faults.Call]], *, repeats: int | None = None) -> Iterator[CrashPoint]:
    """The points of every process of a calm life."""
    for life, calls in enumerate(lives):
        yield from points(calls, repeats=repeats, life=life)


def points(calls: Iterable[faults.Call], *, repeats: int | None = None, life: int = 0) -> Iterator[CrashPoint]:
    """Both sides of each call, if it has two. `repeats`: at most so many of a kind, the first ones and the last."""
    known = [cast("border.Call", call) for call in calls]
    of_kind: dict[Kind, list[border.Call]] = collections.defaultdict(list)
    for call in known:
        of_kind[kind(call)].append(call)
    for same in of_kind.values():
        chosen = same if repeats is None or len(same) <= repeats else [*same[: repeats - 1], same[-1]]
        for call in chosen:
            yield CrashPoint(call, faults.Point.BEFORE, life)
            if call.acted:
                yield CrashPoint(call, faults.Point.AFTER, life)


def table(found: Mapping[Kind, int]) -> list[str]:
    """The kinds of crash points and how many there are of each, for people."""
    rows = [(each.effect or "(none)", each.name, each.site or "(effects)", str(found[each])) for each in sorted(found)]
    head = ("effect", "call", "made by", "points")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(4)]
    return [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]


CALLS = {
    "client": {"get", "list", "create", "apply", "patch", "patch_status", "delete", "version", "websocket"},
    "store": {
        "put_new",
        "put_stream",
        "get",
        "exists",
        "list",
        "delete",
        "remove",
        "local_copy",
        "open",
        "get_range",
        "check",
    },
    "registry": {"image_config"},
    "exchange": {"run_phase"},
    "sandbox": {"pack", "unpack", "run_phase"},
    "artifacts": {"export", "pack_archive"},
}
"""By the last word of what is called upon: the methods that leave the process."""


def sites() -> set[str]:
    """Every function of the engine's modules in whose text such a call stands."""
    found = set()
    for path in sorted(Path(engine.__path__[0]).glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.AsyncFunctionDef) and any(map(_leaves, _own(function))):
                found.add(f"{path.stem}.{function.name}")
    return found


def _own(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside of it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += ast.iter_child_nodes(node)


def _leaves(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    upon = node.func.value
    word = upon.attr if isinstance(upon, ast.Attribute) else upon.id if isinstance(upon, ast.Name) else ""
    return node.func.attr in CALLS.get(word.lstrip("_"), ())
