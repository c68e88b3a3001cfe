"""Advice about scripts and Python verifiers. They are read as text, never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from taskfold.contract.lint_subject import Advice, Rule, Subject

INSTALLS = re.compile(
    r"\b(?:apt-get|apt|apk|dnf|yum|microdnf|zypper|conda|mamba|gem|brew)\s+(?:-\S+\s+)*(?:install|add)\b"
    r"|\b(?:pip3?|uv\s+pip|python3?\s+-m\s+pip)\s+install\b"
    r"|\b(?:npm|pnpm|yarn)\s+(?:install|ci|add|i)\b"
    r"|\b(?:cargo|go)\s+install\b|\buvx\b|\bnpx\b|\buv\s+(?:add|sync|tool)\b"
    r"|\b(?:curl|wget)\b[^|\n]*\|\s*(?:sudo\s+)?(?:ba|z)?sh\b"
)
_REWARD = re.compile(r"/logs/verifier|reward\.(?:txt|json)")
_COMMENT = re.compile(r"^\s*#")


def scripts(subject: Subject) -> Iterator[Advice]:
    """Line ends that bash takes for words, and installations at verification."""
    for path in subject.sizes:
        text = subject.text(path) if _is_script(path) else None
        if text is None:
            continue
        lines = text.split("\n")
        broken = next((number for number, line in enumerate(lines, 1) if line.endswith("\r")), None)
        if broken is not None:
            message = "has CR LF line ends, which bash takes for part of its words. Save it with LF."
            yield Advice(Rule.CRLF, path, message, broken)
        if not path.endswith("tests/test.sh"):
            continue
        for number, line in commands(text):
            found = INSTALLS.search(line)
            if found is not None:
                message = f"`{found[0].strip()}`: packages are installed at every verification"
                remedy = "Put them into the image; then tests need no network and always grade with the same versions."
                yield Advice(Rule.INSTALLS_AT_RUN_TIME, path, f"{message}. {remedy}", number)
                break


def commands(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a script that are no comments, with their numbers from 1."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if not _COMMENT.match(line))


def rewards(subject: Subject) -> Iterator[Advice]:
    """Tests that never speak of a reward file."""
    scripts = [path for path in subject.sizes if path.endswith("tests/test.sh")]
    if not scripts or any(_REWARD.search(text) for _, text in subject.tests()):
        return
    message = "nothing in tests/ speaks of /logs/verifier or of a reward file: every run would score 0"
    yield Advice(Rule.NO_REWARD_PATH, scripts[0], f"{message}. Write reward.txt or reward.json there.")


def python(subject: Subject) -> Iterator[Advice]:
    """Python verifiers without a `verify`."""
    if subject.task is None or subject.task.steps or not subject.task.grader.python:
        return
    path = subject.task.grader.value
    text = subject.text(path)
    if text is None:
        yield Advice(Rule.BROKEN_VERIFIER, path, "is not UTF-8 text, and cannot grade")
        return
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        message = getattr(error, "msg", None) or str(error)
        yield Advice(Rule.BROKEN_VERIFIER, path, f"cannot be parsed: {message}; every run would score 0", line)
        return
    if "verify" not in set(_defined(module.body)):
        message = "defines no `verify`; every run would score 0. Define one: def verify(workspace): …"
        yield Advice(Rule.BROKEN_VERIFIER, path, message)


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """Names that a module defines at its top, in branches too; "verify" for a star import, which may."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ("verify" if alias.name == "*" else alias.asname or alias.name for alias in names)
            case ast.Assign() | ast.AnnAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            case _:
                for field in ("body", "orelse", "finalbody"):
                    inner = getattr(statement, field, None)
                    yield from _defined(inner) if isinstance(inner, list) else ()
                for handler in getattr(statement, "handlers", ()):
                    yield from _defined(handler.body)


def _is_script(path: str) -> bool:
    return path.endswith((".sh", ".bash")) and path.startswith(("tests/", "solution/", "steps/"))
