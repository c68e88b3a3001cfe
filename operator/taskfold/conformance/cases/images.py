"""Images: what counts as their record, entrypoint, health checks, RUN lines, and how long they may take."""

from __future__ import annotations

import json
from collections.abc import Mapping

from taskfold.conformance.case import (
    NOP,
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

ENTRYPOINT = "seed: Image entrypoint"
LIFECYCLE = "seed: Image entrypoint, and the contract's healthcheck"
TEST = "docker.io/taskfold-test"
SCRIPTED = f"{TEST}/scripted:1"
IMAGES = frozenset({Need.TEST_IMAGES})
AS_ROOT = frozenset({Need.TEST_IMAGES, Need.ROOT})
ROOT = frozenset({Need.ROOT})
GO_ON = 'exec "$@"'
"""The end of an entrypoint that runs what it is given."""
ONE = "echo 1 > /logs/verifier/reward.txt\n"
DIES = "while [ ! -e /tmp/die ]; do sleep 0.05; done; "
"""An entrypoint that ends when somebody wishes it."""
KILL = "touch /tmp/die; while [ -d /proc/$(cat /tmp/entry) ]; do sleep 0.05; done\n"
"""Wishes it, and waits until it is gone."""
PID = "echo $$ > /tmp/entry; "
COUNT = "echo x >> /tmp/attempts; "
THIRD = COUNT + "[ $(wc -l < /tmp/attempts) -ge 3 ]"


def quoted(**variables: str) -> str:
    """ENV lines of a Dockerfile with these values, whatever they hold but single quotes."""
    return "".join(f"ENV {name}='{value}'\n" for name, value in variables.items())


def image(test: str, dockerfile: str, toml: str = "", **more: str) -> dict[str, str | bytes]:
    """A task whose image is a Dockerfile."""
    return task(test, toml=f"[environment]\n{toml}", **{"environment/Dockerfile": dockerfile}, **more)


def entry(does: str, test: str, more: str = "", toml: str = "") -> dict[str, str | bytes]:
    """A task whose image has an ENTRYPOINT that does this."""
    return image(test, f"FROM {SCRIPTED}\n{quoted(ENTRY=does)}{more}", toml)


def prebuilt(test: str, command: str, **numbers: float) -> dict[str, str | bytes]:
    """A task of a prebuilt image with a health check of its own."""
    return task(test, toml=f'[environment]\ndocker_image = "{PYTHON_IMAGE}"\n{check(command, **numbers)}')


def check(command: str, **numbers: float) -> str:
    """[environment.healthcheck], soon over."""
    fields = {"interval_sec": 0.1, "start_interval_sec": 0.1, **numbers}
    lines = "".join(f"{name} = {value}\n" for name, value in fields.items())
    return f"[environment.healthcheck]\ncommand = {json.dumps(command)}\n{lines}"


def failed(reason: str, *says: str) -> Expect:
    """No row; another time it might go well."""
    return Expect("Failed", "", reason=reason, stage="seed", terminal=False, says=says)


def said(path: str, *words: str) -> str:
    """A check that a file holds these lines and no others."""
    return f"[ \"$(cat {path})\" = '{chr(10).join(words)}' ]"


def running(command: str) -> str:
    """A check that a process has these words as its command line."""
    words = f'[ "$(tr "\\0" " " < $process/cmdline)" = "{command} " ] && found=yes'
    return f'found=; for process in /proc/[0-9]*; do {words}; done; [ "$found" = yes ]'


def one(
    name: str,
    proves: str,
    files: Mapping[str, str | bytes],
    expect: Expect,
    *,
    agent: Mapping[str, object] = NOP,
    source: str = ENTRYPOINT,
    needs: frozenset[Need] = IMAGES,
    **spec: object,
) -> Case:
    return Case(f"image-{name}", proves, source, files, agent, expect, spec=spec, needs=needs)


ENTRYPOINTS = (
    one(
        "entrypoint-runs",
        'The ENTRYPOINT of an image on record is started with sh -c "sleep infinity" in place of its CMD, beside the '
        "sandbox's first process; its output is kept.",
        image(
            facts(
                ran="[ -e /tmp/entrypoint-ran ]",
                said=said("/logs/entrypoint-stdout.txt", "entrypoint: sh -c sleep infinity"),
                goes_on=running("sleep infinity"),
                beside="! tr '\\0' ' ' < /proc/1/cmdline | grep -q infinity",
            ),
            f"FROM {TEST}/entrypoint:1\n",
        ),
        holds(),
    ),
    one(
        "entrypoint-beside-docker-image",
        "A pull-mode Dockerfile FROM docker_image beside it puts that image on record: its ENTRYPOINT runs.",
        image(
            facts(ran="[ -e /tmp/entrypoint-ran ]"),
            f"FROM {TEST}/entrypoint:1\n",
            f'docker_image = "{TEST}/entrypoint:1"\n',
        ),
        holds(),
    ),
    one(
        "entrypoint-not-of-prebuilt",
        "A prebuilt docker_image has no record: neither its ENTRYPOINT nor its HEALTHCHECK runs.",
        task(
            facts(
                did_not="[ ! -e /tmp/entrypoint-ran ]",
                there="[ -x /entrypoint.sh ]",
                no_log="[ ! -e /logs/entrypoint-stdout.txt ]",
            ),
            toml=f'[environment]\ndocker_image = "{TEST}/entrypoint:1"\n',
        ),
        holds(),
    ),
    one(
        "entrypoint-not-beside-run-lines",
        "Beside docker_image a Dockerfile with RUN lines counts as applied: no line runs, and the image has no record.",
        image(
            facts(did_not="[ ! -e /tmp/entrypoint-ran ]", no_line="[ ! -e /tmp/line ]", no_env='[ -z "$COLOR" ]'),
            f"FROM {TEST}/entrypoint:1\nENV COLOR=red\nRUN touch /tmp/line\n",
            f'docker_image = "{TEST}/entrypoint:1"\n',
        ),
        holds(),
        source="task folder: modes of a Dockerfile",
    ),
    one(
        "entrypoint-turned-off",
        "ENTRYPOINT [] turns the entrypoint off; CMD [] changes nothing.",
        entry(f"touch /tmp/ran; {GO_ON}", facts(off="[ ! -e /tmp/ran ]"), "ENTRYPOINT []\nCMD []\n"),
        holds(),
    ),
    one(
        "entrypoint-user-and-place",
        "The entrypoint runs as the image's user, whatever the agent's is, in the working directory, with the "
        "sandbox's variables, templates included.",
        entry(
            "{ id -u; pwd; echo $COLOR $FILLED; } > /logs/agent/said; " + GO_ON,
            facts(said=said("/logs/agent/said", "4321", "/srv/deep", "red from a default")),
            "USER 4321\nENV COLOR=red\nWORKDIR /srv/deep\n",
            '[environment.env]\nFILLED = "${NOWHERE:-from a default}"\n[agent]\nuser = 0\n',
        ),
        holds(),
        source="C30",
        needs=AS_ROOT,
    ),
    one(
        "entrypoint-ends-well",
        "An entrypoint that ends with exit 0, at seed, is no failure.",
        entry("echo done > /logs/agent/said", facts(said=said("/logs/agent/said", "done"))),
        holds(),
        source="C10",
    ),
    one(
        "entrypoint-fails-at-seed",
        "An entrypoint that exits non-zero before the seed is over fails the seed, with its code and its last words.",
        entry("echo no database; exit 3", ONE),
        failed("EntrypointFailed", "entrypoint ended with return code 3", "no database", "after 3 tries"),
    ),
    one(
        "entrypoint-killed-at-seed",
        "An entrypoint that a signal ends counts as one that exits non-zero.",
        entry("kill -9 $$", ONE),
        failed("EntrypointFailed", "entrypoint was ended by signal 9"),
    ),
    one(
        "entrypoint-cannot-start",
        "An entrypoint that the image cannot start fails the seed.",
        image(ONE, f"FROM {TEST}/no-program:1\n"),
        failed("EntrypointFailed", "/missing"),
    ),
    one(
        "entrypoint-ends-well-later",
        "An entrypoint that ends with exit 0 beside the agent is no failure.",
        entry(f"{PID}{DIES}exit 0", ONE),
        rewarded(),
        agent=script(KILL),
        source="C10",
    ),
    one(
        "entrypoint-dies-beside-agent",
        "An entrypoint that dies during the rollout masks the sample.",
        entry(f"{PID}{DIES}echo lost my data; exit 7", ONE),
        masked("harbor:entrypoint_failed", "EntrypointFailed", stage="agent", says=("return code 7", "lost my data")),
        agent=script(KILL),
    ),
    one(
        "entrypoint-dies-beside-test",
        "An entrypoint that dies beside test.sh masks the sample, whatever the reward.",
        entry(f"{PID}{DIES}exit 7", KILL + ONE),
        masked("harbor:entrypoint_failed", "EntrypointFailed", stage="verification", says=("return code 7",)),
    ),
    one(
        "entrypoint-dies-beside-hook",
        "An entrypoint that dies beside a collect hook masks the sample.",
        entry(f"{PID}{DIES}exit 7", ONE, toml=f"[[verifier.collect]]\ncommand = '''{KILL}'''\n"),
        masked("harbor:entrypoint_failed", "EntrypointFailed", stage="verification"),
    ),
    one(
        "entrypoint-killed-by-agent",
        "An agent can kill the entrypoint: where losses that it can cause count as 0, this one does.",
        entry(f"{PID}{GO_ON}", ONE),
        Expect("Succeeded", "0", kind="harbor:entrypoint_failed", reason="EntrypointFailed", stage="agent"),
        agent=script("kill -9 $(cat /tmp/entry); while [ -d /proc/$(cat /tmp/entry) ]; do sleep 0.05; done"),
        source="C28",
        onAgentCausedLoss="zero",
    ),
)

CHECKS = (
    one(
        "checks-in-order",
        "The seed starts the entrypoint, waits for the image's HEALTHCHECK, then for [environment.healthcheck], and "
        "only then lets the agent work.",
        entry(
            f"echo entrypoint >> /logs/agent/order; {GO_ON}",
            facts(order=said("/logs/agent/order", "entrypoint", "image", "task", "agent")),
            quoted(CHECK="echo image >> /logs/agent/order"),
            check("echo task >> /logs/agent/order"),
        ),
        holds(),
        agent=script("echo agent >> /logs/agent/order"),
        source=LIFECYCLE,
    ),
    one(
        "checks-image-waits",
        "The image's HEALTHCHECK is tried again until it succeeds, in its own interval.",
        entry(GO_ON, facts(attempts="[ $(wc -l < /tmp/attempts) = 3 ]"), quoted(CHECK=THIRD)),
        holds(),
        source=LIFECYCLE,
    ),
    one(
        "checks-image-fails",
        "A HEALTHCHECK that fails as often as its retries say fails the seed.",
        entry(GO_ON, ONE, quoted(CHECK="echo not ready; exit 1")),
        failed("HealthcheckFailed", "HEALTHCHECK ended with return code 1", "not ready", "3 attempts"),
        source=LIFECYCLE,
    ),
    one(
        "checks-image-none",
        "A HEALTHCHECK NONE is none.",
        image(ONE, f"FROM {TEST}/no-check:1\n"),
        rewarded(),
        source=LIFECYCLE,
    ),
    one(
        "checks-third-attempt",
        "[environment.healthcheck] runs at every seed, a prebuilt image's included, until an attempt exits with 0.",
        prebuilt(facts(attempts="[ $(wc -l < /tmp/attempts) = 3 ]"), THIRD, retries=3),
        holds(),
        source=LIFECYCLE,
        needs=frozenset(),
    ),
    one(
        "checks-retries-spent",
        "As many counted failures in a row as retries says fail the seed, with the last words of the check.",
        prebuilt(ONE, "echo port is closed; false", retries=2),
        failed(
            "HealthcheckFailed", "[environment.healthcheck] ended with return code 1", "port is closed", "2 attempts"
        ),
        source=LIFECYCLE,
        needs=frozenset(),
    ),
    one(
        "checks-retries-0",
        "retries = 0 is one counted attempt.",
        prebuilt(ONE, "false", retries=0),
        failed("HealthcheckFailed", "1 attempt"),
        source="C18",
        needs=frozenset(),
    ),
    one(
        "checks-start-period",
        "Failures of attempts that began in the start period do not count, not even with retries = 0.",
        prebuilt(facts(attempts="[ $(wc -l < /tmp/attempts) = 3 ]"), THIRD, retries=0, start_period_sec=600),
        holds(),
        source=LIFECYCLE,
        needs=frozenset(),
    ),
    one(
        "checks-attempt-over-its-limit",
        "An attempt over timeout_sec is killed with its group and counts as a failure.",
        prebuilt(ONE, "sleep 600 & wait", retries=1, timeout_sec=0.5),
        failed("HealthcheckFailed", "was killed at its limit"),
        source=LIFECYCLE,
        needs=frozenset(),
    ),
    one(
        "checks-user-and-place",
        "A check runs as the image's user, in the working directory, with the sandbox's variables.",
        image(
            facts(said=said("/logs/agent/said", "4321", "/srv", "red from a default")),
            f"FROM {PYTHON_IMAGE}\nUSER 4321\nENV COLOR=red\nWORKDIR /srv\n",
            '[environment.env]\nFILLED = "${NOWHERE:-from a default}"\n[agent]\nuser = 0\n'
            + check("{ id -u; pwd; echo $COLOR $FILLED; } > /logs/agent/said"),
        ),
        holds(),
        source="C30",
        needs=ROOT,
    ),
)

LINES = f"""\
FROM {PYTHON_IMAGE}
ENV COLOR=red
RUN id -u >> /lines; pwd >> /lines; echo $COLOR >> /lines
ENV COLOR=blue LATER=$COLOR
WORKDIR /made
WORKDIR for-lines
RUN ["/bin/sh", "-c", "echo exec $0 >> /lines", "form"]
RUN echo $LATER $COLOR ${{UNKNOWN-unset}} >> /lines \\
 # a comment between
 && pwd >> /lines
RUN echo 'worker:x:1700:1700::/home/worker:/bin/sh' >> /etc/passwd && chmod 666 /lines
USER worker
RUN id -u >> /lines; echo $HOME >> /lines
ENV UNKNOWN=known
WORKDIR /srv/work
"""

OVERLAYS = (
    one(
        "overlay-lines",
        "RUN lines run at seed, in order, as root unless USER says otherwise, each with the ENV, WORKDIR and USER in "
        "effect there, and with nothing that only the task sets.",
        image(
            facts(
                lines=said(
                    "/lines", "0", "/", "red", "exec form", "red blue unset", "/made/for-lines", "1700", "/home/worker"
                ),
                env='[ "$COLOR $LATER $UNKNOWN" = "blue red known" ]',
                workdir='[ "$PWD" = /srv/work ]',
                user="[ $(id -un) = worker ]",
                agent='[ "$(cat /tmp/agent)" = 1700 ]',
                owner="[ $(stat -c %U /srv/work) = worker ]",
                kept="[ -e /logs/dockerfile/line-3.txt ]",
            ),
            LINES,
            '[environment.env]\nUNKNOWN = "known"\n',
        ),
        holds(),
        agent=script("id -u > /tmp/agent"),
        source="task folder: overlay mode",
        needs=ROOT,
    ),
    one(
        "overlay-before-checks",
        "RUN lines come before the entrypoint and the health checks.",
        image(
            facts(order=said("/order", "line", "entrypoint", "check")),
            f"FROM {SCRIPTED}\n"
            + quoted(ENTRY=f"echo entrypoint >> /order; {GO_ON}", CHECK="echo check >> /order")
            + "RUN echo line > /order\n",
        ),
        holds(),
        source="task folder: order of the seed",
        needs=AS_ROOT,
    ),
    one(
        "overlay-line-fails",
        "A RUN line that fails fails the seed, with its number, its command and the end of its output; no later one "
        "runs.",
        image(ONE, f"FROM {PYTHON_IMAGE}\nRUN true\nRUN echo cannot find it; exit 4\nRUN sleep 600\n"),
        failed(
            "RunLineFailed",
            "environment/Dockerfile, line 3: RUN echo cannot find it; exit 4 ended with return code 4: cannot find it",
        ),
        source="task folder: overlay mode",
        needs=ROOT,
    ),
    one(
        "overlay-over-build-timeout",
        "build_timeout_sec bounds all RUN lines together.",
        image(ONE, f"FROM {PYTHON_IMAGE}\nRUN sleep 600\n", "build_timeout_sec = 20\n"),
        failed("RunLineFailed", "line 2: RUN sleep 600 was killed at its limit"),
        source="task.toml: environment.build_timeout_sec",
        needs=ROOT,
    ),
    one(
        "overlay-build-refused",
        "A Dockerfile that needs a build is refused, with its line, and with the word that this comes later.",
        image(ONE, f"FROM {PYTHON_IMAGE}\nCOPY . /src\n"),
        refused("UnsupportedField", "line 2: COPY asks for building an image", "not supported yet"),
        source="task folder: build mode",
        needs=frozenset(),
    ),
)

PULLS = (
    one(
        "pull-over-build-timeout",
        "build_timeout_sec bounds how long an image that cannot be pulled is tried.",
        task(ONE, toml=f'[environment]\ndocker_image = "{TEST}/absent:1"\nbuild_timeout_sec = 4\n'),
        failed("ImagePullFailed", "tried for 4 s"),
        source="task.toml: environment.build_timeout_sec",
        needs=frozenset(),
    ),
)

CASES: tuple[Case, ...] = (*ENTRYPOINTS, *CHECKS, *OVERLAYS, *PULLS)
