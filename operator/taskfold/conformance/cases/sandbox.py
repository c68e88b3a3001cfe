"""The sandbox: working directory, resources, images that cannot be had, and folders that are refused."""

from __future__ import annotations

from taskfold.conformance.case import (
    NOP,
    ORACLE,
    PYTHON_IMAGE,
    TOML,
    Case,
    Expect,
    facts,
    holds,
    refused,
    rewarded,
    script,
    task,
)

ONE = "echo 1 > /logs/verifier/reward.txt\n"

WORKDIR = (
    Case(
        "workdir-is-made",
        "a working directory that does not exist is made, and agent and verifier work there",
        "task.toml: environment.workdir",
        task(
            facts(agent='[ "$(cat there)" = /new/deep ]', test='[ "$PWD" = /new/deep ]'),
            toml=TOML.replace("/app", "/new/deep"),
        ),
        script("pwd > there"),
        holds(outcome="Succeeded"),
    ),
    Case(
        "workdir-is-a-file",
        "a working directory that is a file fails the seed, and the message names it",
        "task.toml: environment.workdir",
        task(ONE, solve="true", toml=TOML.replace("/app", "/etc/passwd")),
        ORACLE,
        Expect("Failed", "", kind="", reason="SeedFailed", stage="seed", says=("/etc/passwd",)),
    ),
    Case(
        "workdir-behind-a-link-of-the-image",
        "a link of the image on the way to the working directory is kept",
        "C19",
        task(
            facts(link="[ -L /var/run ]", where='[ "$(pwd -P)" = /run/deep ]'),
            toml=TOML.replace("/app", "/var/run/deep"),
        ),
        NOP,
        holds(),
    ),
)

CGROUP = """python3 - <<'END'
import pathlib, sys
names = {"memory": ("memory.max", "memory/memory.limit_in_bytes"), "cpu": ("cpu.max", "cpu/cpu.cfs_quota_us")}
found = {}
for what, paths in names.items():
    for path in paths:
        file = pathlib.Path("/sys/fs/cgroup") / path
        if file.exists():
            found[what] = file.read_text().split()[0]
sys.exit(found != {"memory": str(%d * 2**20), "cpu": "%d"})
END"""

RESOURCES = (
    Case(
        "resources-as-limits",
        "cpus and memory_mb are the sandbox's limits",
        "task.toml: environment.cpus, memory_mb",
        task(facts(limits=CGROUP % (200, 150_000)), toml=TOML + "cpus = 1.5\nmemory_mb = 200\n"),
        NOP,
        holds(),
    ),
    Case(
        "resources-scaled",
        "the resource multiplier scales cpus and memory_mb",
        "spec.multipliers",
        task(facts(limits=CGROUP % (300, 150_000)), toml=TOML + "cpus = 1\nmemory_mb = 200\n"),
        NOP,
        holds(),
        {"multipliers": {"resource": 1.5}},
    ),
)

IMAGES = (
    Case(
        "image-with-no-such-name",
        "a name that cannot be an image is refused",
        "task.toml: environment.docker_image",
        task(ONE, toml='[environment]\ndocker_image = "UPPER/case:::1"\n'),
        NOP,
        refused("InvalidTask", "UPPER/case:::1", absent=("podName",)),
    ),
    Case(
        "image-on-record-env-and-workdir",
        "a pull-mode Dockerfile's ENV, WORKDIR and USER are on record and applied",
        "seed: Image entrypoint",
        task(
            facts(
                both='[ "$BOTH" = "red-very large" ]',
                workdir='[ "$PWD" = /srv/deep ]',
                user="[ $(id -u) = 4321 ]",
                agent='[ "$(cat /logs/agent/seen)" = "red /srv/deep 4321" ]',
                writable="touch /srv/deep/x",
            ),
            toml="[environment]\n",
            **{
                "environment/Dockerfile": f'FROM {PYTHON_IMAGE}\nENV COLOR=red SIZE="very large"\n'
                "ENV BOTH=$COLOR-$SIZE\nWORKDIR /srv\nWORKDIR deep\nUSER 4321\n"
            },
        ),
        script('echo "$COLOR $PWD $(id -u)" > /logs/agent/seen'),
        holds(outcome="Succeeded"),
    ),
    Case(
        "image-on-record-and-task-toml",
        "task.toml wins over the Dockerfile",
        "seed: Image entrypoint",
        task(
            facts(color='[ "$COLOR" = green ]', workdir='[ "$PWD" = /app ]', user="[ $(id -u) = 0 ]"),
            toml='[environment]\nworkdir = "/app"\n[environment.env]\nCOLOR = "green"\n[verifier]\nuser = 0\n',
            **{"environment/Dockerfile": f"FROM {PYTHON_IMAGE}\nENV COLOR=red\nWORKDIR /srv\nUSER 4321\n"},
        ),
        NOP,
        holds(),
    ),
)

FOLDERS = (
    Case(
        "folder-without-tests",
        "a folder that nothing can grade is refused before a pod exists",
        "task folder: load errors",
        task(),
        NOP,
        refused("InvalidTask", "tests/", stage="admission", absent=("podName",)),
    ),
    Case(
        "folder-without-an-instruction",
        "a folder without instruction.md is refused",
        "task folder: load errors",
        {key: text for key, text in task(ONE).items() if key != "instruction.md"},
        NOP,
        refused("InvalidTask", "instruction.md", absent=("podName",)),
    ),
    Case(
        "folder-with-broken-toml",
        "task.toml that is no TOML is refused, and the place named",
        "task folder: load errors",
        task(ONE, toml="[environment\n"),
        NOP,
        refused("InvalidTask", "task.toml", absent=("podName",)),
    ),
    Case(
        "folder-with-an-infinite-number",
        "a number that is not finite is refused",
        "task.toml: keys",
        task(ONE, toml=TOML + "[verifier]\ntimeout_sec = inf\n"),
        NOP,
        refused("InvalidTask", "verifier.timeout_sec", absent=("podName",)),
    ),
    Case(
        "folder-with-an-unknown-key",
        "an unknown key of task.toml is ignored, with one warning that names its dotted path",
        "task.toml: keys",
        task(ONE, toml=TOML + "[environment.nonsense]\nx = 1\n"),
        NOP,
        rewarded(warns=("environment.nonsense",)),
    ),
    Case(
        "folder-restricts-the-wrong-table",
        "a network restriction on another table than the separate verifier's is refused at load",
        "seed: Shared and separate verification",
        task(ONE, toml=TOML + 'network_mode = "no-network"\n'),
        NOP,
        refused("InvalidTask", "environment.network_mode", absent=("podName",)),
    ),
    Case(
        "folder-restricts-a-shared-verifier",
        "under shared verification a restricted verifier is refused at load",
        "seed: Shared and separate verification",
        task(ONE, toml=TOML + '[verifier]\nnetwork_mode = "no-network"\n'),
        NOP,
        refused("InvalidTask", "verifier.network_mode", absent=("podName",)),
    ),
)

CASES: tuple[Case, ...] = (*WORKDIR, *RESOURCES, *IMAGES, *FOLDERS)
