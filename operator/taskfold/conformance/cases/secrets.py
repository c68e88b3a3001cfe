"""Secrets: how they reach a verifier, that they stay out of what people read, and whom a run warns of."""

from __future__ import annotations

import hashlib
from typing import Any

from taskfold.conformance.case import NOP, TOML, Case, Expect, Need, counted, facts, holds, refused, script, task
from taskfold.conformance.cases.environment import ONE, config_map, has, secret, toml

SOURCE = "seed: Environment variables and secrets"
HIDING = "C34"

LINES = "-----BEGIN KEY-----\nline one\n\n  line three\n-----END KEY-----\n"
QUOTES = """q"uo'te\\s $HOME `id` $(id) ${X} %s"""
UNICODE = "gehe\u0131m \u00fc\U0001f642 \u6f22\u5b57"
LONG = hashlib.sha256(b"long").hexdigest() * 400
PLAIN = "plain-s3cr3t-of-the-case"
SHORT = "tiny123"  # one byte less than what is looked for

SHAPES = secret("case-secret-shapes", LINES=LINES, QUOTES=QUOTES, UNICODE=UNICODE, LONG=LONG, PLAIN=PLAIN, SHORT=SHORT)
OTHER = secret("case-secret-other", PLAIN="of the other", ONLY_HERE="here only")
HOST = config_map("case-secret-host", PLAIN="of the host", HOST="host")
NAMES = ("LINES", "QUOTES", "UNICODE", "LONG", "PLAIN", "SHORT")
JUDGE = {"secretsFrom": [{"name": "case-secret-shapes"}]}
TABLE = {f"IN_{name}": f"${{{name}}}" for name in NAMES}
USERS = '[agent]\nuser = "nobody"\n'
WARNING = "shared verification with Secrets"


def sums(prefix: str, **values: str) -> dict[str, str]:
    """Checks that variables have exactly these values, which do not stand in the task."""
    return {
        name.lower(): f'[ "$(printf %s "${prefix}{name}" | sha256sum | cut -d " " -f 1)" = {_sum(value)} ]'
        for name, value in values.items()
    }


def _sum(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


VALUES = {"LINES": LINES, "QUOTES": QUOTES, "UNICODE": UNICODE, "LONG": LONG, "PLAIN": PLAIN, "SHORT": SHORT}

REACH = (
    Case(
        "secrets-of-every-shape",
        "a secret arrives byte for byte: short, 25 KB long, of several lines, with quotes and templates, in any script",
        SOURCE,
        task(facts(**sums("IN_", **VALUES)), toml=toml(verifier=TABLE)),
        NOP,
        holds(),
        JUDGE,
        (SHAPES,),
    ),
    Case(
        "secrets-later-ones-win",
        "of several Secrets later ones win, and an optional one may be missing",
        "spec.secretsFrom",
        task(facts(**has(A="of the other", B="here only", C="host")), toml=toml(verifier={
            "A": "${PLAIN}", "B": "${ONLY_HERE}", "C": "${HOST}",
        })),
        NOP,
        holds(),
        {
            "environmentFrom": [{"configMapRef": {"name": "case-secret-host"}}],
            "secretsFrom": [
                {"name": "case-secret-shapes"},
                {"name": "case-secret-other"},
                {"name": "case-secret-none", "optional": True},
            ],
        },
        (SHAPES, OTHER, HOST),
    ),
    Case(
        "secrets-only-where-named",
        "a secret that no template names is in nobody's environment, and the agent has none of them",
        SOURCE,
        task(
            facts(unnamed="! env | grep -q here.only", agent="[ ! -s seen ]", named='[ -n "$IN_PLAIN" ]'),
            toml=toml(verifier={"IN_PLAIN": "${PLAIN}"}),
        ),
        script("env | grep -e s3cr3t -e 'here only' > seen; true"),
        holds(warns=(WARNING,)),
        {"secretsFrom": [{"name": "case-secret-other"}, {"name": "case-secret-shapes"}]},
        (SHAPES, OTHER),
    ),
    Case(
        "secrets-missing-all-named",
        "every missing value is named at once, with its variable and its table, before a pod exists",
        SOURCE,
        task(ONE, toml=toml({"A": "${PLAIN}"}, {"B": "${NOWHERE}", "C": "${PLAIN}", "D": "${X:-}"})),
        NOP,
        refused(
            "MissingVariable",
            "PLAIN (for environment.env.A)",
            "NOWHERE (for verifier.env.B)",
            kind="",
            stage="admission",
            absent=("podName",),
        ),
        JUDGE,
        (SHAPES,),
    ),
)  # fmt: skip

STEPS = """[[steps]]
name = "one"
[steps.verifier.env]
IN_PLAIN = "${PLAIN}"
[[steps]]
name = "two"
[steps.verifier.env]
IN_OTHER = "${HOST}"
"""
OF_STEPS: dict[str, Any] = {
    "steps/one/instruction.md": "First.\n",
    "steps/one/tests/test.sh": ONE,
    "steps/two/instruction.md": "Second.\n",
    "steps/two/tests/test.sh": ONE,
}

IN_STEPS = (
    Case(
        "secrets-of-a-step-missing",
        "a value that a step needs and nobody has fails the run before a pod exists, and the table is named",
        SOURCE,
        task(toml=TOML + STEPS, **OF_STEPS),
        NOP,
        refused("MissingVariable", "HOST (for steps[1].verifier.env.IN_OTHER)", absent=("podName",)),
        JUDGE,
        (SHAPES,),
    ),
)

PRINTS = "echo the key is $IN_PLAIN\nprintf '%s' \"$IN_LINES\"\necho; echo $IN_SHORT; exit 3"

HIDDEN = (
    Case(
        "secrets-that-test-sh-prints",
        "what test.sh printed is quoted without its secrets; values of less than 8 bytes are taken for harmless text",
        HIDING,
        task(PRINTS, toml=toml(verifier=TABLE)),
        NOP,
        counted(
            "harbor:missing_reward",
            "RewardMissing",
            says=("the key is [secret]\n[secret]\n", SHORT),
        ),
        JUDGE,
        (SHAPES,),
    ),
    Case(
        "secrets-that-a-hook-prints",
        "so is what a failing hook printed, with the secrets of the sandbox's environment",
        HIDING,
        task(
            ONE,
            toml=toml({"IN_PLAIN": "${PLAIN}"}) + "[[verifier.collect]]\ncommand = 'echo hook: $IN_PLAIN.; exit 7'\n",
        ),
        NOP,
        Expect("Succeeded", "1", warns=("return code 7: hook: [secret].",)),
        {"environmentFrom": [{"secretRef": {"name": "case-secret-shapes"}}]},
        (SHAPES,),
    ),
    Case(
        "secrets-in-the-agents-files",
        "and what is said about a broken trajectory, whose field names are the agent's to choose",
        HIDING,
        task(ONE),
        script(
            'printf \'{"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "%s": 1, \'\\\n'
            '\'"steps": [{"step_id": 1, "source": "user","message": ""}]}\' "$IN_PLAIN" > /logs/agent/trajectory.json',
            env=[{"name": "IN_PLAIN", "valueFrom": {"secretKeyRef": {"name": "case-secret-shapes", "key": "PLAIN"}}}],
        ),
        Expect(
            "Succeeded", "1", warns=("/logs/agent/trajectory.json is no valid ATIF v1.7 file: [secret]: Extra inputs",)
        ),
        {},
        (SHAPES,),
    ),
    Case(
        "secrets-in-a-reward",
        "rewards are never altered, whatever the secrets are",
        HIDING,
        task(
            "printf '{\"reward\": 0.12345678}' > /logs/verifier/reward.json",
            toml=toml(verifier={"N": "${NUMBER}"}),
        ),
        NOP,
        Expect("Succeeded", "0.12345678", rewards={"reward": 0.12345678}),
        {"secretsFrom": [{"name": "case-secret-number"}]},
        (secret("case-secret-number", NUMBER="0.12345678"),),
    ),
)

TOLD = (
    Case(
        "secrets-shared-with-another-user",
        "a run whose agent is another user than its verifier, and not root, is warned of nothing",
        "docs: security",
        task(ONE, toml=TOML + USERS),
        script("true"),
        Expect("Succeeded", "1", absent=("warnings.0",)),
        JUDGE,
        (SHAPES,),
    ),
    Case(
        "secrets-shared-with-root",
        "a run that gives Secrets to a verifier beside an agent that is root, or the same user, says so",
        "docs: security",
        task(ONE),
        script("true"),
        Expect("Succeeded", "1", warns=(WARNING, "both are the image's user")),
        JUDGE,
        (SHAPES,),
        needs=frozenset({Need.ROOT}),
    ),
)

CASES: tuple[Case, ...] = (*REACH, *IN_STEPS, *HIDDEN, *TOLD)
