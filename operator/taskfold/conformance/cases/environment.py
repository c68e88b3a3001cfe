"""Environment variables and secrets: templates, where they reach, what a missing one means, and CPU hints."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from taskfold.conformance.case import NOP, ORACLE, PYTHON_IMAGE, TOML, Case, Need, facts, holds, refused, script, task

SOURCE = "seed: Environment variables and secrets"
SECRET = "s3cr3t-judge-key-000"  # noqa: S105 - looked for, so that it is found where it must not be
TOKEN = "s3cr3t-host-token-111"  # noqa: S105


def config_map(name: str, **data: str) -> Mapping[str, object]:
    """A ConfigMap of the table."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name: str, **data: str) -> Mapping[str, object]:
    """A Secret of the table."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


HOST = config_map("case-env-host", GREETING="hello  world", EMPTY="", SHARED="from the host")
LATER = config_map("case-env-later", GREETING="later")
EXTRA = config_map("case-env-extra", COLOR="blue")
TOKENS = secret("case-env-tokens", TOKEN=TOKEN)
JUDGE = secret("case-env-judge", JUDGE_KEY=SECRET, SHARED="from the secrets")

FROM = [{"configMapRef": {"name": "case-env-host"}}, {"secretRef": {"name": "case-env-tokens"}}]
SECRETS = [{"name": "case-env-judge"}]
OBJECTS = (HOST, TOKENS)
ONE = "echo 1 > /logs/verifier/reward.txt\n"


def toml(
    environment: Mapping[str, str] = {},
    verifier: Mapping[str, str] = {},
    *,
    cpus: float | None = None,
    more: str = "",
) -> str:
    """task.toml with env tables."""
    text = TOML + (f"cpus = {cpus}\n" if cpus else "")
    for table, env in (("environment", environment), ("verifier", verifier)):
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in env.items())
        text += f"[{table}.env]\n" + "".join(lines)
    return text + more


def has(**variables: str) -> dict[str, str]:
    """Checks that variables have exactly these values."""
    return {name.lower(): f'[ "${{{name}-unset}}" = {shlex.quote(value)} ]' for name, value in variables.items()}


TEMPLATES = {
    "A": "${GREETING}",
    "B": "${NOWHERE:-a default}",
    "C": "${EMPTY:-a default}",
    "D": "before ${GREETING}",
    "E": "plain",
    "F": "${NOWHERE:-}",
    "G": "${TOKEN}",
}
FILLED = {"A": "hello  world", "B": "a default", "C": "", "D": "before ${GREETING}", "E": "plain", "F": "", "G": TOKEN}
ODD = {"A": "plain", "B": "$(A)", "C": "$$(A)", "D": "$A `id`", "E": "two\nlines \"quoted\" 'so' ü🙂 \\"}
NO_SOLUTION = '[solution.env]\nX = "${NOWHERE}"\n'


def missing(id: str, proves: str, text: str, says: str, agent: Mapping[str, object] = NOP) -> Case:  # noqa: A002
    """Refused before a pod exists, naming variable and table."""
    return Case(
        id,
        proves,
        SOURCE,
        task(ONE, solve="true", toml=text),
        agent,
        refused("MissingVariable", says, stage="admission", absent=("podName", "reward")),
        {"secretsFrom": SECRETS, "environmentFrom": FROM},
        (*OBJECTS, JUDGE),
    )


CASES: tuple[Case, ...] = (
    Case(
        "env-of-the-sandbox",
        "a whole value ${VAR} or ${VAR:-default} in [environment].env is read from the host environment",
        SOURCE,
        task(facts(**has(**FILLED)), toml=toml(TEMPLATES)),
        NOP,
        holds(),
        {"environmentFrom": FROM},
        OBJECTS,
    ),
    Case(
        "env-of-the-verifier",
        "so is one in [verifier].env",
        SOURCE,
        task(facts(**has(**FILLED)), toml=toml({}, TEMPLATES)),
        NOP,
        holds(),
        {"environmentFrom": FROM},
        OBJECTS,
    ),
    Case(
        "env-the-agent-sees",
        "the agent has the sandbox's environment and not the verifier's",
        SOURCE,
        task(
            facts(same='[ "$(cat seen)" = "$(echo "$A|$B|$C|$D|$E|$F|$G")" ]', no_verifier="[ ! -s verifier ]"),
            toml=toml(TEMPLATES, {"ONLY_FOR_TESTS": "1"}),
        ),
        script('echo "$A|$B|$C|$D|$E|$F|$G" > seen; env | grep ONLY_FOR_TESTS > verifier; true'),
        holds(outcome="Succeeded"),
        {"environmentFrom": FROM},
        OBJECTS,
    ),
    Case(
        "env-test-sh-sees",
        "test.sh sees its sandbox's environment plus [verifier].env plus the run's own",
        SOURCE,
        task(
            facts(**has(A="of the sandbox", B="of the verifier", C="of the run", D=SECRET)),
            toml=toml({"A": "of the sandbox", "B": "of the sandbox"}, {"B": "of the verifier", "C": "of the verifier"}),
        ),
        NOP,
        holds(),
        {
            "verifier": {
                "env": [
                    {"name": "C", "value": "of the run"},
                    {"name": "D", "valueFrom": {"secretKeyRef": {"name": "case-env-judge", "key": "JUDGE_KEY"}}},
                ]
            }
        },
        (JUDGE,),
    ),
    Case(
        "env-sources-in-order",
        "later sources win, prefixes count, and an optional source may be missing",
        "spec.environmentFrom",
        task(
            facts(**has(A="later", B="blue", C="absent")),
            toml=toml({"A": "${GREETING}", "B": "${X_COLOR}", "C": "${NO:-absent}"}),
        ),
        NOP,
        holds(),
        {
            "environmentFrom": [
                {"configMapRef": {"name": "case-env-host"}},
                {"configMapRef": {"name": "case-env-later"}},
                {"prefix": "X_", "configMapRef": {"name": "case-env-extra"}},
                {"configMapRef": {"name": "not-there", "optional": True}},
            ]
        },
        (HOST, LATER, EXTRA),
    ),
    Case(
        "env-of-the-solution",
        "the oracle gets [solution].env, and test.sh does not",
        SOURCE,
        task(
            facts(seen='[ "$(cat seen)" = "hello  world|solution" ]', gone='[ -z "$ONLY_SOLVE" ]'),
            solve='echo "$GREETING|$ONLY_SOLVE" > seen',
            toml=toml(more='[solution.env]\nGREETING = "${GREETING}"\nONLY_SOLVE = "solution"\n'),
        ),
        ORACLE,
        holds(),
        {"environmentFrom": FROM},
        OBJECTS,
    ),
    Case(
        "env-literals",
        "a value that is no template arrives as it is written: nothing expands it",
        SOURCE,
        task(facts(**has(**ODD)), toml=toml(ODD)),
        NOP,
        holds(),
    ),
    missing(
        "env-missing-for-the-sandbox",
        "a missing required value fails the run before any pod exists, naming variable and table",
        toml({"X": "${NOWHERE}"}),
        "NOWHERE (for environment.env.X)",
    ),
    missing(
        "env-missing-for-the-verifier", "so does one of [verifier].env", toml({}, {"X": "${NOWHERE}"}), "verifier.env.X"
    ),
    missing(
        "env-missing-for-the-oracle",
        "so does one of [solution].env, for the oracle",
        toml(more=NO_SOLUTION),
        "solution.env.X",
        ORACLE,
    ),
    Case(
        "env-missing-for-nobody",
        "a missing value of [solution].env matters to the oracle only",
        SOURCE,
        task(facts(ran="true"), toml=toml(more=NO_SOLUTION)),
        NOP,
        holds(),
    ),
    missing(
        "env-operators-own-environment",
        "the operator's own environment is never read",
        toml({"X": "${PATH}"}),
        "PATH (for environment.env.X)",
    ),
    missing(
        "env-secret-for-the-sandbox",
        "secrets fill no template of [environment].env",
        toml({"X": "${JUDGE_KEY}"}),
        "JUDGE_KEY (for environment.env.X)",
    ),
    Case(
        "env-secrets-win",
        "secrets fill [verifier].env only, and win there over the host environment",
        SOURCE,
        task(
            facts(**has(KEY=SECRET, WINS="from the secrets", HOST="from the host", D=TOKEN)),
            toml=toml({"HOST": "${SHARED}"}, {"KEY": "${JUDGE_KEY}", "WINS": "${SHARED}", "D": "${TOKEN:-x}"}),
        ),
        NOP,
        holds(),
        {"environmentFrom": FROM, "secretsFrom": SECRETS},
        (*OBJECTS, JUDGE),
    ),
    Case(
        "cpu-hints",
        "a sandbox with a CPU limit gets CPU-count hints, whole numbers; a variable the task sets wins",
        SOURCE,
        task(
            facts(**has(OMP_NUM_THREADS="1", PYTHON_CPU_COUNT="1", GOMAXPROCS="7", MKL_NUM_THREADS="hello  world")),
            toml=toml({"GOMAXPROCS": "7", "MKL_NUM_THREADS": "${GREETING}"}, cpus=1.5),
        ),
        NOP,
        holds(),
        {"environmentFrom": FROM},
        OBJECTS,
    ),
    Case(
        "cpu-hints-none",
        "a sandbox without a CPU limit gets no hints",
        SOURCE,
        task(facts(**has(OMP_NUM_THREADS="unset", GOMAXPROCS="unset"))),
        NOP,
        holds(),
    ),
    Case(
        "cpu-hints-scaled",
        "hints follow the resource multiplier",
        "spec.multipliers",
        task(facts(**has(OMP_NUM_THREADS="2")), toml=toml(cpus=1)),
        NOP,
        holds(),
        {"multipliers": {"resource": 2}},
    ),
    Case(
        "cpu-hints-of-an-image-on-record",
        "a variable that the image sets wins over a hint when its configuration is on record",
        SOURCE,
        task(
            facts(**has(OMP_NUM_THREADS="5", GOMAXPROCS="2")),
            toml="[environment]\ncpus = 2\n",
            **{"environment/Dockerfile": f"FROM {PYTHON_IMAGE}\nENV OMP_NUM_THREADS=5\n"},
        ),
        NOP,
        holds(),
    ),
    Case(
        "cpu-hints-of-a-prebuilt-image",
        "a prebuilt image has no record: a hint wins over its variables",
        SOURCE,
        task(
            facts(**has(OMP_NUM_THREADS="2")),
            toml='[environment]\ndocker_image = "docker.io/taskfold-test/hinted:1"\ncpus = 2\n',
        ),
        NOP,
        holds(),
        needs=frozenset({Need.TEST_IMAGES}),
    ),
)
