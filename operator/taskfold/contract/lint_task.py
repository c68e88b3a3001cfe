"""Advice about task.toml, the instruction, and what the folder holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from taskfold.contract import artifacts as kept
from taskfold.contract import environment as templates
from taskfold.contract import separate, toml_file
from taskfold.contract.layout import INSTRUCTION
from taskfold.contract.lint_subject import Advice, Rule, Subject
from taskfold.contract.task import Artifact
from taskfold.contract.task_toml import VerifierMode

_LIVE = re.compile(
    r"localhost|127\.0\.0\.1|::1|0\.0\.0\.0|/proc/|/dev/tcp/|"
    r"\b(?:pgrep|pidof|ps|ss|netstat|lsof|nc|ncat|curl|wget|systemctl|service|socket|requests|urllib|httpx|psutil|"
    r"psql|mysql|redis-cli|docker|kill|tmux|screen)\b"
)
"""What tests that look at a living environment speak of: its processes and its ports."""
_CREDENTIAL = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|APIKEY)(?:$|_)|ACCESS_KEY|API_KEY", re.IGNORECASE
)
_SECRET_CHARACTERS = 8
"""A shorter value is a placeholder, such as "test"."""


def texts(subject: Subject) -> Iterator[Advice]:
    """Instructions that say nothing."""
    steps = subject.config.steps or ()
    for path in [f"steps/{step.name}/{INSTRUCTION}" for step in steps] or [INSTRUCTION]:
        text = subject.text(path)
        if text is not None and not text.strip():
            yield Advice(Rule.EMPTY_INSTRUCTION, path, "is empty: the agent is told nothing. Write what it is to do.")


def verification(subject: Subject) -> Iterator[Advice]:
    """Shared verification where separate verification would do."""
    config = subject.config
    shared = [each for each in separate.verifications(config) if each.verifier.mode is VerifierMode.SHARED]
    if not shared:
        return
    agent = config.agent.user
    tables = [each.verifier.env for each in shared]
    secret = next((name for table in tables for name in table if name not in templates.literals(table)), None)
    if secret is not None:
        why, field = f"{secret} is filled from outside, and a process that the agent left can read it", "verifier.env"
    elif config.artifacts:
        why, field = "what is graded is in artifacts", "artifacts"
    elif agent in (None, 0, "root") and not any(_LIVE.search(text) for _, text in subject.tests()):
        why, field = "the agent may be root and leave processes, and the tests look at files only", "verifier"
    else:
        return
    remedy = 'Separate verification (environment_mode = "separate") runs the tests where the agent never was.'
    yield Advice(
        Rule.SHARED_VERIFIER, toml_file.FILE, f"verifier: runs in the agent's sandbox: {why}. {remedy}", field=field
    )


def artifacts(subject: Subject) -> Iterator[Advice]:
    """Entries of which the second would not be kept."""
    config = subject.config
    tables = [("artifacts", kept.of_task(config))]
    tables += [
        (f"steps[{index}].artifacts", kept.of_step(config, step)) for index, step in enumerate(config.steps or ())
    ]
    told: set[tuple[Artifact, Artifact]] = set()
    for field, entries in tables:
        for skipped, winner in kept.claims(entries).overlaps:
            if (skipped, winner) in told:
                continue
            told.add((skipped, winner))
            message = (
                f"artifacts: {skipped.source} is to be kept at {skipped.destination}, and {winner.source} at "
                f"{winner.destination}"
            )
            remedy = "The first wins and the other is not kept; give one of them a destination of its own."
            yield Advice(Rule.ARTIFACT_OVERLAP, toml_file.FILE, f"{message}. {remedy}", field=field)


def environment(subject: Subject) -> Iterator[Advice]:
    """Credentials that are written out."""
    config = subject.config
    tables: list[tuple[str, Mapping[str, str]]] = [
        ("environment.env", config.environment.env),
        ("verifier.env", config.verifier.env),
        ("solution.env", config.solution.env),
    ]
    tables += [(f"steps[{index}].verifier.env", step.verifier.env) for index, step in enumerate(config.steps or ())]
    tables += [(f"{name}.env", table.env) for name, table in separate.environments(config)]
    for field, table in tables:
        for name, value in templates.literals(table).items():
            if _CREDENTIAL.search(name) and len(value) >= _SECRET_CHARACTERS:
                message = (
                    f"{field}.{name}: looks like a credential that is written out. Write ${{{name}}}, and give the"
                )
                where = "spec.secretsFrom" if field.endswith("verifier.env") else "spec.environmentFrom"
                remedy = f"value with {where}."
                yield Advice(Rule.SECRET_IN_TASK, toml_file.FILE, f"{message} {remedy}", field=f"{field}.{name}")


def solution(subject: Subject) -> Iterator[Advice]:
    """Tasks that nobody has shown to be solvable."""
    if subject.task is not None and not subject.task.has_solution:
        message = "there is no reference solution; with solution/solve.sh or answer.md the agent `oracle` shows that"
        yield Advice(Rule.NO_SOLUTION, toml_file.FILE, f"{message} the task can be solved")


def names(subject: Subject) -> Iterator[Advice]:
    """Names that taskfold uses itself."""
    for prefix in ("tests/.ng/", "dataset/"):
        found = next((path for path in subject.listed if path.startswith(prefix)), None)
        if found is not None:
            yield Advice(
                Rule.RESERVED_NAME, found, f"lies in {prefix}, which taskfold fills itself. Rename the folder."
            )
    config = subject.config
    variables = [("environment.env", config.environment.env), ("verifier.env", config.verifier.env)]
    for field, table in (*variables, *((f"{name}.env", each.env) for name, each in separate.environments(config))):
        for name in table:
            if name.startswith("TASKFOLD_"):
                message = f"{field}.{name}: variables that begin with TASKFOLD_ are taskfold's. Rename it."
                yield Advice(Rule.RESERVED_NAME, toml_file.FILE, message, field=f"{field}.{name}")
