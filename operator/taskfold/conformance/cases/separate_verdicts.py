"""Separate verification: what of an agent never reaches the verifier, what comes of its verdict, and steps that are
verified so.
"""

from __future__ import annotations

from taskfold.conformance.case import (
    PYTHON_IMAGE,
    Case,
    counted,
    facts,
    holds,
    masked,
    rewarded,
    script,
    task,
)
from taskfold.conformance.cases import steps
from taskfold.conformance.cases.separate import (
    FRESH,
    IMAGES,
    MODE,
    ONE,
    ROOT,
    SEPARATE,
    SOURCE,
    one,
    prebuilt,
    toml,
)

REWARDS = "seed: Reward files"
STEPPED = "C42; multi-step tasks"


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


PLANTED = (
    "/tests/test.sh /tests/conftest.py /logs/verifier/reward.txt /logs/verifier/reward.json /logs/agent/notes "
    "/logs/entrypoint-stdout.txt /solution/solve.sh /tmp/x /var/tmp/x /dev/shm/x /root/.bashrc /root/.profile "
    "/app/conftest.py /app/sitecustomize.py /usr/lib/python3/dist-packages/sitecustomize.py /usr/local/bin/bash "
    "/usr/local/bin/python3 /usr/local/bin/timeout /etc/profile.d/x.sh /etc/environment /etc/ld.so.conf.d/x.conf "
    "/srv/x /opt/x /mnt/x /home/x /etc/ld.so.preload"
)
"""Where what an agent writes could change a verdict, the last of them for every program that starts."""

REACH = (
    "reach() { timeout 5 python3 -c 'import sys, urllib.request as u; "
    'print(u.urlopen(f"http://{sys.argv[1]}:8123/page.txt", timeout=4).read().decode().strip())\' "$1"; }\n'
)
"""A function for bash: what a server at this address says."""

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
            "mkdir -p out /tests; rm -f /usr/local/bin/python3; mark=plant-$((40 + 2)); echo $mark > out/mark\n"
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
        "no-network-of-the-agent",
        "a server that the agent left listening is gone: the verifier reaches nothing at the agent's address",
        task(
            REACH + facts(answered="grep -qx served /app/out/page", nothing_now='! reach "$(cat /app/out/address)"'),
            toml=toml(artifacts='"/app/out"'),
        ),
        holds(status=SEPARATE),
        agent=script(
            "mkdir out; cd out; echo served > page.txt; hostname -i > address; address=$(cat address)\n"
            "setsid python3 -m http.server 8123 --bind 0.0.0.0 > /dev/null 2>&1 &\n"
            f"{REACH}for _ in $(seq 200); do reach $address && break; sleep 0.1; done; reach $address > page"
        ),
        source=f"{SOURCE}; docs/security.md",
    ),
    one(
        "tools-are-its-own",
        "what an agent changed of its own tools is no matter: test.sh has those of the verifier's image",
        task(facts(bash='[ "$(readlink -f /proc/$$/exe)" = /usr/bin/bash ]', tools="tar --version"), toml=toml()),
        holds(status=SEPARATE),
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
                **steps.told(0, rewards__here=1),
                **steps.told(1, rewards__fresh=1, rewards__artifact=1, rewards__alone=1),
                **steps.told(2, rewards__here=1, rewards__log=1),
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
                **steps.told(1),
            }
        ),
        agent=TURN,
        source=STEPPED,
    ),
)

CASES: tuple[Case, ...] = (*NEVER, *VERDICTS, *STEPS)
