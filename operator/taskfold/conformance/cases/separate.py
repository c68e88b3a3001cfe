"""Separate verification: who chooses it, in which image, what of the task the verifier has there, and what never
reaches it. What an artifact is, is in `artifacts`.
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
    counted,
    facts,
    holds,
    masked,
    refused,
    rewarded,
    script,
    task,
)
from taskfold.conformance.cases import environment, images, python_verifiers, steps

SOURCE = "seed: Shared and separate verification"
ENTRYPOINT = "seed: Image entrypoint"
REWARDS = "seed: Reward files"
STEPPED = "C42; multi-step tasks"
TEST = "docker.io/taskfold-test"
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


def without(image: str, tools: str, kind: str) -> Case:
    """A verifier's image without these tools."""
    return one(
        image,
        f"a separate verifier's image without {tools} masks as {kind}, and the agent has worked",
        task(ONE, toml=toml(own=prebuilt(image))),
        masked(kind, "MissingTools", says=("the verifier's image", *tools.split(", ")), outcome="Succeeded"),
        agent=script("true"),
        source="seed: How the verifier runs; C29",
        needs=IMAGES,
    )


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
                order=images.said("/tmp/order", "entrypoint", "check"),
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
            **{"tests/verifier.py": python_verifiers.NEWEST, "tests/task_data.json": python_verifiers.FIELDS},
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
            **{"tests/verifier.py": python_verifiers.NEWEST, "tests/task_data.json": python_verifiers.FIELDS},
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

PLANTED = (
    "/tests/test.sh /tests/conftest.py /logs/verifier/reward.txt /logs/verifier/reward.json /logs/agent/notes "
    "/logs/entrypoint-stdout.txt /solution/solve.sh /tmp/x /var/tmp/x /dev/shm/x /root/.bashrc /root/.profile "
    "/app/conftest.py /app/sitecustomize.py /usr/lib/python3/dist-packages/sitecustomize.py /usr/local/bin/bash "
    "/usr/local/bin/python3 /usr/local/bin/timeout /etc/profile.d/x.sh /etc/environment /etc/ld.so.conf.d/x.conf "
    "/srv/x /opt/x /mnt/x /home/x /etc/ld.so.preload"
)
"""Where what an agent writes could change a verdict, the last of them for every program that starts."""

NEVER = (
    one(
        "nothing-else-crosses",
        "nothing reaches the verifier's sandbox that is not declared, wherever the agent planted it",
        task(
            facts(
                was_planted=f"[ $(wc -l < /app/out/planted) = {len(PLANTED.split())} ]",
                declared_alone="[ \"$(grep -rls --devices=skip --exclude-dir=proc --exclude-dir=sys 'plant-4[2]' /)\" "
                "= /app/out/mark ]",
            ),
            toml=toml(artifacts='"/app/out"'),
        ),
        holds(status=SEPARATE),
        agent=script(
            "mkdir -p out /tests /solution; rm -f /usr/local/bin/python3; mark=plant-$((40 + 2)); echo $mark > out/mark\n"
            f"for path in {PLANTED}; do mkdir -p ${{path%/*}}; echo $mark > $path && echo $path >> out/planted; done"
        ),
        source=f"{SOURCE}; docs/security.md",
        needs=ROOT,
    ),
    one(
        "no-process-crosses",
        "no process of the agent runs beside the verifier, and none writes its reward",
        task(
            facts(
                none="! grep -qs '64206[4]' /proc/[0-9]*/cmdline",
                no_reward="sleep 1; [ ! -e /logs/verifier/reward.txt ]",
            ),
            toml=toml(),
        ),
        holds(status=SEPARATE),
        agent=script(
            "setsid sleep 642064 > /dev/null 2>&1 &\n"
            "setsid bash -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done' > /dev/null 2>&1 &\n"
            "until [ -s /logs/verifier/reward.txt ]; do sleep 0.05; done"
        ),
        source=f"{SOURCE}; docs/security.md",
    ),
    one(
        "tools-are-its-own",
        "what an agent changed of its own tools is no matter: test.sh has those of the verifier's image",
        task(facts(bash='[ "$(readlink -f /proc/$$/exe)" = /usr/bin/bash ]', tools="tar --version"), toml=toml()),
        holds(status=SEPARATE, absent=("warnings",)),
        agent=script("rm -f /usr/bin/tar /usr/bin/gzip /usr/bin/find /usr/bin/timeout /usr/bin/bash"),
        source=f"{SOURCE}; docs/security.md",
        needs=ROOT,
    ),
)

VERDICTS = (
    one(
        "reward-txt",
        "a reward.txt counts as in shared mode, whatever the exit code",
        task("echo 0.25 > /logs/verifier/reward.txt; exit 7\n", toml=toml()),
        rewarded("0.25", status={"verifier.returnCode": 7}),
        source=REWARDS,
    ),
    one(
        "reward-json",
        "so does a reward.json, with its components",
        task('echo \'{"a": 1, "b": 0.5}\' > /logs/verifier/reward.json\n', toml=toml()),
        rewarded("1.5", rewards={"a": 1, "b": 0.5}, components=("a", "b")),
        source=REWARDS,
    ),
    one(
        "no-reward",
        "without a reward file the score is 0, and the message quotes test.sh",
        task("echo nothing to say; exit 3\n", toml=toml()),
        counted("harbor:missing_reward", "RewardMissing", says=("nothing to say",)),
        agent=script("echo 1 > /logs/verifier/reward.txt"),
        source=REWARDS,
    ),
    one(
        "invalid-reward",
        "a malformed one is a 0 that counts",
        task("echo much > /logs/verifier/reward.txt\n", toml=toml()),
        counted("harbor:invalid_reward", "RewardInvalid", says=("reward.txt",)),
        source=REWARDS,
    ),
    one(
        "timeout",
        "past its limit without a reward a separate verifier scores 0",
        task("sleep 600\n", toml=toml(MODE + "timeout_sec = 1\n")),
        counted("harbor:verifier_timeout", "VerifierTimedOut", status={"verifier.timedOut": True}),
        source=REWARDS,
    ),
    without("no-bash", "bash", "verifier_error"),
    without("no-tar", "tar, gzip, find", "provider_unavailable"),
    one(
        "agent-without-tools",
        "the agent's own image needs none of the verifier's tools",
        task(ONE, toml=toml(environment=prebuilt("no-shell"), own=f'docker_image = "{PYTHON_IMAGE}"\n')),
        rewarded(status=SEPARATE),
        source="seed: How the verifier runs",
        needs=IMAGES,
    ),
)

TURN = script("echo $TASKFOLD_STEP >> log; touch only-$TASKFOLD_STEP /tmp/was-here")
OWN_TURN = '[steps.verifier]\nenvironment_mode = "separate"\n'
STEPS = (
    one(
        "step-among-shared",
        "of a multi-step task one step may be verified separately: the agent's sandbox lives on for those after it",
        steps.stepped(
            steps.step(facts(here="[ -e /tmp/was-here ]")),
            steps.step(
                facts(
                    fresh=FRESH, artifact='[ "$(paste -sd " " /app/log)" = "one two" ]', alone="[ ! -e /app/only-two ]"
                ),
                table='artifacts = ["/app/log"]\n' + OWN_TURN,
            ),
            steps.step(
                facts(
                    here="[ -e /tmp/was-here ] && [ -e only-one ] && [ -e only-two ]",
                    log='[ "$(paste -sd " " log)" = "one two three" ]',
                )
            ),
        ),
        rewarded(
            status={
                **steps.told(0, rewards__here=1, verifier__mode="shared"),
                **steps.told(1, rewards__fresh=1, rewards__artifact=1, rewards__alone=1, verifier__mode="separate"),
                **steps.told(2, rewards__here=1, rewards__log=1, verifier__mode="shared"),
            }
        ),
        agent=TURN,
        source=STEPPED,
    ),
    one(
        "step-at-the-end",
        "the last step may be separate, and every step has artifacts of its own beside the task's",
        steps.stepped(
            steps.step(
                facts(
                    fresh=FRESH, own="[ -e /app/only-one ]", common="grep -qx one /app/log", env='[ "$WHOSE" = tasks ]'
                ),
                table='artifacts = ["/app/only-one"]\n' + OWN_TURN,
            ),
            steps.step(
                facts(
                    fresh=FRESH,
                    own="[ -e /app/only-two ]",
                    common='[ "$(paste -sd " " /app/log)" = "one two" ]',
                    not_of_the_first="[ ! -e /app/only-one ]",
                ),
                table='artifacts = ["/app/only-two"]\n' + OWN_TURN,
            ),
            keys='artifacts = ["/app/log"]\n',
            tables=f'[verifier.environment]\ndocker_image = "{PYTHON_IMAGE}"\nenv = {{ WHOSE = "tasks" }}\n',
        ),
        rewarded(
            status={
                **steps.told(0, rewards__fresh=1, rewards__own=1, rewards__common=1, rewards__env=1),
                **steps.told(1, rewards__fresh=1, rewards__own=1, rewards__common=1, rewards__not_of_the_first=1),
                **steps.told(1, verifier__mode="separate"),
            }
        ),
        agent=TURN,
        source=STEPPED,
    ),
)

CASES: tuple[Case, ...] = (
    *CHOSEN,
    *IMAGE_TABLE,
    *ITS_TASK,
    *PYTHON,
    *USERS,
    *NEVER,
    *VERDICTS,
    *STEPS,
)
