"""Separate verification: who chooses it, in which image, as whom, and what of the task the verifier has there. What an
artifact is, is in `artifacts`; what comes of it in `separate_verdicts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskfold.conformance.case import (
    NOP,
    ORACLE,
    PYTHON_IMAGE,
    Case,
    Expect,
    Need,
    facts,
    holds,
    masked,
    refused,
    rewarded,
    script,
    task,
)
from taskfold.conformance.cases import environment, images, python_verifiers

SOURCE = "seed: Shared and separate verification"
ENTRYPOINT = "seed: Image entrypoint"
TEST = "docker.io/taskfold-test"
SEEN = "/tmp/order"  # noqa: S108 - in a sandbox
ROOT = frozenset({Need.ROOT})
IMAGES = frozenset({Need.TEST_IMAGES})
AS_ROOT = ROOT | IMAGES

AGENTS = f'docker_image = "{PYTHON_IMAGE}"\nworkdir = "/app"\n'
MODE = 'environment_mode = "separate"\n'
ONE = "echo 1 > /logs/verifier/reward.txt\n"
WAS_HERE = script("touch /tmp/was-here; echo 42 > answer")
FRESH = "[ ! -e /tmp/was-here ]"
SEPARATE = {"verifier.mode": "separate"}


def prebuilt(name: str) -> str:
    """A docker_image of the test images."""
    return f'docker_image = "{TEST}/{name}:1"\n'


def toml(
    verifier: str = MODE, *, artifacts: str = "", environment: str = AGENTS, own: str | None = None, more: str = ""
) -> str:
    """task.toml with the bodies of its tables; `own`: of [verifier.environment]."""
    text = f'schema_version = "1.4"\nartifacts = [{artifacts}]\n[environment]\n{environment}[verifier]\n{verifier}'
    return text + (f"[verifier.environment]\n{own}" if own is not None else "") + more


def one(
    name: str,
    proves: str,
    files: Mapping[str, str | bytes],
    expect: Expect,
    *,
    agent: Mapping[str, Any] = NOP,
    source: str = SOURCE,
    needs: frozenset[Need] = frozenset(),
    objects: tuple[Mapping[str, Any], ...] = (),
    **spec: object,
) -> Case:
    return Case(f"separate-{name}", proves, source, files, agent, expect, spec=spec, objects=objects, needs=needs)


CHOSEN = (
    one(
        "by-mode",
        'environment_mode = "separate" gives the verifier a fresh sandbox: neither what the agent left nor the '
        "solution is there, the artifacts are",
        task(
            facts(fresh=FRESH, no_solution="[ ! -e /solution ]", artifact="grep -qx 42 /app/answer"),
            toml=toml(artifacts='"/app/answer"'),
            solve="touch /tmp/was-here; echo 42 > answer\n",
        ),
        holds(status=SEPARATE, outcome="Succeeded", absent=("warnings",)),
        agent=ORACLE,
    ),
    one(
        "by-table",
        "so does a [verifier.environment] table alone",
        task(facts(fresh=FRESH), toml=toml("", own=f'docker_image = "{PYTHON_IMAGE}"\n')),
        holds(status=SEPARATE),
        agent=WAS_HERE,
    ),
    one(
        "by-the-run",
        "a run may verify a shared task separately",
        task(facts(fresh=FRESH, artifact="grep -qx 42 /app/answer"), toml=toml("", artifacts='"answer"')),
        holds(status=SEPARATE),
        agent=WAS_HERE,
        source="C43",
        verifier={"mode": "separate"},
    ),
    one(
        "not-by-the-run",
        "and a separate one in the agent's sandbox, also where the task names no image that a separate one could have",
        task(facts(not_fresh="[ -e /tmp/was-here ]"), toml=toml(own="cpus = 1\n")),
        holds(status={"verifier.mode": "shared"}),
        agent=WAS_HERE,
        source="C43",
        verifier={"mode": "shared"},
    ),
)

IMAGE_TABLE = (
    one(
        "image-of-its-own",
        "the verifier runs in [verifier.environment].docker_image, whatever the agent works in",
        task(
            facts(no_python="! command -v python3", agent_had_it="grep -q ^3 /app/version"),
            toml=toml(artifacts='"/app/version"', own=prebuilt("no-python")),
        ),
        holds(status=SEPARATE),
        agent=script("python3 -c 'import platform; print(platform.python_version())' > version"),
        needs=IMAGES,
    ),
    one(
        "image-of-the-task",
        "without a [verifier.environment] it runs in the task's own image; prebuilt, that has no record",
        task(
            facts(same="[ -x /entrypoint.sh ]", did_not="[ ! -e /tmp/entrypoint-ran ]"),
            toml=toml(environment=prebuilt("entrypoint")),
        ),
        holds(status=SEPARATE),
        needs=IMAGES,
    ),
    one(
        "image-on-record",
        "with a record of that image its ENTRYPOINT, then its HEALTHCHECK run in the verifier's sandbox before test.sh",
        task(
            facts(
                order=images.said(SEEN, "entrypoint", "check"),
                fresh=FRESH,
                goes_on=images.running("sleep infinity"),
            ),
            toml=toml(
                environment=prebuilt("scripted")
                + "[environment.env]\n"
                + f"ENTRY = 'echo entrypoint >> /tmp/order; {images.GO_ON}'\n"
                + "CHECK = '[ -e /tmp/order ] && echo check >> /tmp/order'\n"
            ),
            **{"environment/Dockerfile": f"FROM {TEST}/scripted:1\n"},
        ),
        holds(status=SEPARATE),
        agent=WAS_HERE,
        source=f"{SOURCE}; {ENTRYPOINT}",
        needs=IMAGES,
    ),
    one(
        "entrypoint-dies",
        "an entrypoint of the verifier's sandbox that dies beside test.sh masks the sample, whatever the reward",
        task(
            images.KILL + ONE,
            toml=toml(
                environment=prebuilt("scripted") + f"[environment.env]\nENTRY = '{images.PID}{images.DIES}exit 7'\n"
            ),
            **{"environment/Dockerfile": f"FROM {TEST}/scripted:1\n"},
        ),
        masked("harbor:entrypoint_failed", "EntrypointFailed", stage="verification", says=("return code 7",)),
        source=ENTRYPOINT,
        needs=IMAGES,
    ),
    one(
        "image-to-build",
        "a tests/Dockerfile, where no image is named, is refused with the word that building comes later",
        task(ONE, toml=toml(own="cpus = 1\n"), **{"tests/Dockerfile": f"FROM {PYTHON_IMAGE}\nCOPY . /tests\n"}),
        refused("UnsupportedField", "tests/Dockerfile", "verifier.environment.docker_image", absent=("podName",)),
    ),
    one(
        "image-none",
        "a separate task with none of these images is refused",
        task(ONE, toml=toml(own="cpus = 1\n")),
        refused("InvalidTask", "verifier.environment.docker_image", absent=("podName",)),
    ),
    one(
        "compose-refused",
        "a tests/docker-compose.yaml may set nothing else on main than image, build and pull_policy",
        task(
            ONE,
            toml=toml(),
            **{"tests/docker-compose.yaml": "services:\n  main:\n    environment: {A: b}\n"},
        ),
        refused("InvalidTask", "tests/docker-compose.yaml", "environment", absent=("podName",)),
        source=f"{SOURCE}; C45",
    ),
)

OWN_ENV = (
    'workdir = "/srv/check"\n[verifier.environment.env]\nCOLOR = "red"\nHOST = "${GREETING}"\nUNSET = "${NO:-x}"\n'
)
ITS_TASK = (
    one(
        "env-and-workdir",
        "env and workdir come from [verifier.environment] alone where there is one, templates filled; [verifier].env "
        "is added",
        task(
            facts(
                own='[ "$COLOR $HOST $UNSET" = "red hello x" ]',
                not_the_agents='[ -z "$ONLY" ]',
                added='[ "$JUDGE" = strict ]',
                place='[ "$PWD" = /srv/check ]',
            ),
            toml=toml(
                MODE + 'env = { JUDGE = "strict" }\n',
                environment=AGENTS + '[environment.env]\nCOLOR = "blue"\nONLY = "agents"\n',
                own=f'docker_image = "{PYTHON_IMAGE}"\n{OWN_ENV}',
            ),
        ),
        holds(),
        source=f"{SOURCE}; {environment.SOURCE.removeprefix('seed: ')}",
        objects=(environment.config_map("case-separate-host", GREETING="hello"),),
        environmentFrom=[{"configMapRef": {"name": "case-separate-host"}}],
        needs=ROOT,
    ),
    one(
        "env-and-workdir-of-the-task",
        "without one they come from [environment]",
        task(
            facts(env='[ "$COLOR" = blue ]', place='[ "$PWD" = /app ]'),
            toml=toml(environment=AGENTS + '[environment.env]\nCOLOR = "blue"\n'),
        ),
        holds(),
    ),
    one(
        "env-missing",
        "a missing required value of [verifier.environment].env fails the run before any sandbox starts",
        task(
            ONE,
            toml=toml(
                own=f'docker_image = "{PYTHON_IMAGE}"\n[verifier.environment.env]\nX = "${{NOWHERE}}"\n',
            ),
        ),
        refused("MissingVariable", "NOWHERE", "verifier.environment.env.X", absent=("podName", "verifier")),
        source=environment.SOURCE,
    ),
    one(
        "tests-of-the-image",
        "tests/ is not uploaded where the verifier's image ships /tests/test.sh: that one runs, with what lies beside",
        task("echo 0 > /logs/verifier/reward.txt\n", toml=toml(own=prebuilt("tested")), **{"tests/task-only": ""}),
        rewarded("0.75", status=SEPARATE),
        needs=IMAGES,
    ),
    one(
        "transcript",
        "the transcript stands in the verifier's sandbox, with the agent's final response",
        task(
            facts(
                version="grep -q ATIF-v1.7 /logs/agent/trajectory.json",
                instruction="grep -q 'Do it[.]' /logs/agent/trajectory.json",
                response="grep -q 'It is 42[.]' /logs/agent/trajectory.json",
                nothing_else='[ "$(ls -A /logs/agent)" = trajectory.json ]',
            ),
            toml=toml(),
        ),
        holds(),
        agent=script("printf 'It is 42.' > /logs/agent/response.txt"),
    ),
    one(
        "hooks-first",
        "collect hooks run in the agent's sandbox, before the artifacts are taken",
        task(
            facts(hook='[ "$(cat /app/out)" = "42 hook" ]', never_here=FRESH),
            toml=toml(
                artifacts='"/app/out"',
                more="[[verifier.collect]]\ncommand = '[ -e /tmp/was-here ] && echo $(cat answer) hook > out'\n",
            ),
        ),
        holds(absent=("warnings",)),
        agent=WAS_HERE,
    ),
    one(
        "healthcheck",
        "[verifier.environment.healthcheck] is waited for in the verifier's sandbox; the agent's is not run there",
        task(
            facts(own="[ $(wc -l < /tmp/attempts) = 3 ]", not_the_agents="[ ! -e /tmp/checked ]"),
            toml=toml(
                own=f'docker_image = "{PYTHON_IMAGE}"\n'
                + images.check(images.THIRD, retries=3).replace("[", "[verifier.", 1),
                more=images.check("touch /tmp/checked"),
            ),
        ),
        holds(),
        source="C40",
    ),
    one(
        "healthcheck-fails",
        "one that fails in every try masks the sample: the agent has worked",
        task(
            ONE,
            toml=toml(
                own=f'docker_image = "{PYTHON_IMAGE}"\n'
                + images.check("echo not ready; false", retries=1).replace("[", "[verifier.", 1)
            ),
        ),
        masked("provider_unavailable", "HealthcheckFailed", says=("not ready", "after 3 tries")),
        source="C40",
    ),
)

PYTHON = (
    one(
        "python",
        "a Python verifier that reads the workspace finds what artifacts name",
        task(
            toml=toml(artifacts='"/app/answer.txt"'),
            **{"tests/verifier.py": python_verifiers.NEWEST, "task_data.json": python_verifiers.FIELDS},
        ),
        rewarded(status=SEPARATE),
        agent=python_verifiers.ANSWERS,
        source=f"{SOURCE}; Python verifiers",
    ),
    one(
        "python-without-artifacts",
        "and nothing of the workspace that they do not name",
        task(
            toml=toml(),
            **{"tests/verifier.py": python_verifiers.NEWEST, "task_data.json": python_verifiers.FIELDS},
        ),
        rewarded("0", status=SEPARATE),
        agent=python_verifiers.ANSWERS,
        source="seed: Python verifiers",
    ),
)

WHO = '[ "$(id -u)" = {} ]'
USERS = (
    one(
        "user",
        "test.sh runs as [verifier].user, which may read and write what it is given",
        task(
            facts(who=WHO.format(4321), artifact="grep -qx 42 /app/answer", tests="[ -r /tests/test.sh ]"),
            toml=toml(MODE + "user = 4321\n", artifacts='"/app/answer"', more='[agent]\nuser = "nobody"\n'),
        ),
        holds(),
        agent=script("echo 42 > answer"),
        source="seed: Users",
        needs=ROOT,
    ),
    one(
        "user-of-the-image",
        "unset, it runs as the user that the verifier's image starts with, in that image's directory and variables",
        task(
            facts(who=WHO.format(1234), place='[ "$PWD" = /home/app ]', env='[ "$COLOR" = blue ]'),
            toml=toml(own=prebuilt("user")),
        ),
        holds(),
        source="seed: Users",
        needs=AS_ROOT,
    ),
    one(
        "user-without-a-record",
        "without a record of that user, and with [agent].user set, it runs as root, never as the agent's",
        task(facts(who=WHO.format(0)), toml=toml(own=prebuilt("user"), more='[agent]\nuser = "nobody"\n')),
        holds(),
        source="seed: Users",
        needs=AS_ROOT,
    ),
)

CASES: tuple[Case, ...] = (*CHOSEN, *IMAGE_TABLE, *ITS_TASK, *PYTHON, *USERS)
