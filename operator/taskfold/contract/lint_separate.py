"""Advice about separate verification: what crosses to the verifier's sandbox, and what its tests fetch there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from taskfold.contract import artifact_paths, artifacts, lint_scripts, separate, toml_file
from taskfold.contract.lint_subject import Advice, Rule, Subject
from taskfold.contract.task import Artifact, Grader
from taskfold.contract.task_toml import StepTable, VerifierMode

LOGS_AGENT = "/logs/agent"
DOWNLOAD = re.compile(
    r"\b(?:curl|wget)\b[^\n]{0,500}?\b(?:https?|ftp)://(?!localhost\b|127\.|0\.0\.0\.0|\[::1\])[^\s\"';|]+"
    r"|\bgit\s+clone\b[^\n]{0,500}?(?:\b(?:https?|ssh|git)://|\bgit@)[^\s\"';|]+"
)


@dataclass(frozen=True)
class Verification:
    """One that is separate. `field`: of its own artifacts in task.toml. `below`: its step's folder, "" without."""

    taken: tuple[Artifact, ...]
    field: str
    below: str = ""


def sources(subject: Subject) -> Iterator[Advice]:
    """Artifacts that lie where the verifier's sandbox gets other things."""
    told: set[str] = set()
    for each in _separate(subject):
        for one in each.taken:
            if one.source.startswith("/") and artifact_paths.nested(one.source, LOGS_AGENT) and one.source not in told:
                told.add(one.source)
                message = f"{each.field}: {one.source} lies in {LOGS_AGENT}, where the verifier finds the transcript"
                remedy = (
                    "The transcript replaces trajectory.json there; let a collect hook copy what is graded elsewhere."
                )
                yield Advice(Rule.ARTIFACT_IN_LOGS, toml_file.FILE, f"{message}. {remedy}", field=each.field)


def downloads(subject: Subject) -> Iterator[Advice]:
    """Tests that fetch something at every verification."""
    for path in _scripts(subject):
        for number, line in lint_scripts.commands(subject.text(path) or ""):
            found = DOWNLOAD.search(line)
            if found is not None:
                message = f"`{found[0].strip()}`: is fetched at every verification"
                remedy = "Put it into the verifier's image or into tests/: then it is the same every time, offline too."
                yield Advice(Rule.DOWNLOADS_AT_RUN_TIME, path, f"{message}. {remedy}", number)
                break


def workspace(subject: Subject) -> Iterator[Advice]:
    """Tests of the agent's working directory, of which nothing is there."""
    workdir = subject.config.environment.workdir
    if workdir is None:
        return  # the image knows it, and a folder alone does not
    for each in _separate(subject):
        covered = any(
            artifact_paths.nested(one.source, artifact_paths.normalised(workdir) or "/") for one in each.taken
        )
        path = None if covered else _reader(subject, workdir, each.below)
        if path is not None:
            message = f"reads the working directory {workdir}, and no artifact brings it to the verifier's sandbox"
            yield Advice(
                Rule.WORKSPACE_NOT_KEPT, path, f'{message}. Write artifacts = ["{workdir}"], or what is graded.'
            )


def _separate(subject: Subject) -> Iterator[Verification]:
    config = subject.config
    for index, each in enumerate(separate.verifications(config)):
        if each.verifier.mode is VerifierMode.SHARED:
            continue
        if isinstance(each, StepTable):
            field = f"steps[{index}].artifacts" if each.artifacts else "artifacts"
            yield Verification(artifacts.of_step(config, each), field, f"steps/{each.name}/")
        else:
            yield Verification(artifacts.of_task(config), "artifacts")


def _scripts(subject: Subject) -> list[str]:
    """The test.sh of every separate verification."""
    found = {f"{each.below}{Grader.TEST_SH}" for each in _separate(subject)}
    if found:
        found.add(Grader.TEST_SH)
    return sorted(path for path in found if path in subject.sizes)


def _reader(subject: Subject, workdir: str, below: str) -> str | None:
    """A file of the tests that reads the working directory: a `verify` with a workspace, or one that names it."""
    if subject.task is not None and subject.task.grader.python:
        path = subject.task.grader.value
        return path if _takes_workspace(subject.text(path) or "") else None
    named = re.compile(re.escape(workdir.rstrip("/") or "/") + r"(?![\w.-])")
    places = ("tests/", *((f"{below}tests/",) if below else ()))
    found = (path for path, text in subject.tests() if path.startswith(places) and named.search(text))
    return next(found, None) if workdir.strip("/") else None


def _takes_workspace(text: str) -> bool:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # another rule's finding
    functions = (each for each in module.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    arguments = [
        argument.arg
        for each in functions
        if each.name == "verify"
        for argument in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)
    ]
    return bool({"workspace", "state"} & set(arguments))
