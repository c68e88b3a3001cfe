"""Owners and modes of what housekeeping puts into a sandbox (C26), whatever a user left in its way (C19)."""

from __future__ import annotations

from typing import Any

from taskfold.conformance.case import NOP, ORACLE, PYTHON_IMAGE, Case, Need, facts, holds, script, task

TEST = "docker.io/taskfold-test"
ROOT = frozenset({Need.ROOT})
IMAGES = frozenset({Need.ROOT, Need.TEST_IMAGES})

SEEN = (
    "stat -c '%n %a %u' /logs/agent /logs/verifier /logs/artifacts . > /tmp/seen; "
    "for f in agent verifier artifacts; do touch /logs/$f/mine || exit 1; done; cp /tmp/seen /logs/artifacts/seen"
)
"""What the agent sees, before it wrote into each of the folders."""


def toml(image: str, agent: str, verifier: str, workdir: str) -> str:
    text = f'schema_version = "1.4"\n[environment]\ndocker_image = "{image}"\nworkdir = "{workdir}"\n'
    text += f"[agent]\nuser = {agent}\n" if agent else ""
    return text + (f"[verifier]\nuser = {verifier}\n" if verifier else "")


def owned(agent: int, verifier: int, workdir: str = "/work/new") -> str:
    """Every owner and mode, as test.sh finds them, and what the agent saw."""
    seen = "".join(f"/logs/{name} 777 0\\n" for name in ("agent", "verifier", "artifacts"))
    return facts(
        agent=f'[ "$(cat /logs/artifacts/seen)" = "$(printf "{seen}. 755 {agent}")" ]',
        workdir=f'[ "$(stat -c %a:%u {workdir})" = 755:{agent} ]',
        verifier=f'[ "$(stat -c %a:%u /logs/verifier)" = 755:{verifier} ]',
        reset="[ ! -e /logs/verifier/mine ]",
        output='[ "$(stat -c %a:%u /logs/verifier/test-stdout.txt)" = 644:0 ]',
        tests='[ "$(stat -c %a:%u /tests)" = 755:0 ]',
        test_sh='[ "$(stat -c %a:%u /tests/test.sh)" = 755:0 ]',
        files='[ -z "$(find /tests ! -uid 0)$(find /tests ! -perm -a+r)$(find /tests -type d ! -perm -a+x)" ]',
        no_setuid='[ -z "$(find /tests -perm /7000)" ]',
        read='[ "$(cat /tests/deep/er/data)" = data ]',
        written="echo 1 > /logs/verifier/other && rm /logs/verifier/other",
        trajectory='[ "$(stat -c %a:%u /logs/agent/trajectory.json)" = 644:0 ] && cat /logs/agent/trajectory.json',
        whoami=f"[ $(id -u) = {verifier} ]",
    )


def combination(name: str, image: str, agent: str, verifier: str, uids: tuple[int, int], **more: Any) -> Case:
    """Agent and verifier as these users of this image own what C26 says. `uids`: of the agent and of test.sh."""
    return Case(
        f"owners-{name}",
        f"owners and modes: image {image.rpartition('/')[2]}, agent {agent or 'unset'}, verifier {verifier or 'unset'}",
        "C26",
        task(owned(*uids), toml=toml(image, agent, verifier, "/work/new"), **{"tests/deep/er/data": "data"}),
        script(SEEN),
        holds(outcome="Succeeded"),
        needs=IMAGES if image.startswith(TEST) else ROOT,
        **more,
    )


COMBINATIONS = (
    combination("root-unset-unset", PYTHON_IMAGE, "", "", (0, 0)),
    combination("root-unset-name", PYTHON_IMAGE, "", '"nobody"', (0, 65534)),
    combination("root-number-unset", PYTHON_IMAGE, "4321", "", (4321, 0)),
    combination("root-name-number", PYTHON_IMAGE, '"nobody"', "4321", (65534, 4321)),
    combination("root-same", PYTHON_IMAGE, "4321", "4321", (4321, 4321)),
    combination("number-unset-unset", f"{TEST}/user:1", "", "", (1234, 1234)),
    combination("number-root-unset", f"{TEST}/user:1", "0", "", (0, 0)),
    combination("number-name-root", f"{TEST}/user:1", '"nobody"', "0", (65534, 0)),
    combination("name-unset-number", f"{TEST}/named-user:1", "", "4321", (1500, 4321)),
    combination("name-unset-unset", f"{TEST}/named-user:1", "", "", (1500, 1500)),
)

# FS_IOC_SETFLAGS with FS_IMMUTABLE_FL, as chattr +i: a sandbox has no right to it, or the reset would fail.
LEFT = {
    "no-rights": "mkdir -p /tests/a /logs/verifier/b; chmod 0 /tests/a /tests /logs/verifier/b /logs/* /logs",
    "other-owners": "mkdir -p /tests/a; touch /tests/a/b; chown -R 4321:4321 /tests /logs; chmod 0700 /logs",
    "immutable": "mkdir -p /tests; touch /tests/f; python3 -c 'import array, fcntl, os\n"
    'fcntl.ioctl(os.open("/tests/f", 0), 0x40086602, array.array("l", [0x10]))\'; true',
    "long-names": "mkdir -p /tests; cd /tests; n=$(printf 'n%.0s' $(seq 250)); "
    "for i in 1 2 3 4 5 6; do mkdir $n; cd $n; touch $n$i; done",
    "odd-names": "mkdir -p /tests; cd /tests; touch -- -rf '*' ' ' $'new\\nline' $'\\xff\\xfe' .hidden; mkdir -- --",
    "sticky-and-setgid": "mkdir -p /tests; chmod 7777 /tests /logs/*; touch /tests/f; chmod 6777 /tests/f",
    "sockets-and-devices": "mkdir -p /tests; cd /tests; mkfifo p; mknod n c 1 3 || true; "
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/tests/s\")'",
    "links-in-folders": "mkdir -p /tests /out; ln -s /out /tests/deep; ln -s /etc /logs/verifier/etc; touch /out/kept",
}

FOUND = facts(
    tests='[ "$(find /tests | sort | tr "\\n" " ")" = "/tests /tests/test.sh " ]',
    owner='[ "$(stat -c %F:%a:%u /tests /logs/verifier | tr "\\n" " ")" = "directory:755:0 directory:755:0 " ]',
    logs='[ "$(ls -A /logs/verifier)" = "$(printf "reward.json\\ntest-stdout.txt")" ]',
    logs_reached="[ -r /logs/agent/trajectory.json ]",
    elsewhere='[ ! -e /out ] || [ "$(ls -A /out)" = kept ]',
    etc="[ -r /etc/passwd ]",
)

HOUSEKEEPING = tuple(
    Case(
        f"housekeeping-{name}",
        f"housekeeping works whatever a user did to the files: {name.replace('-', ' ')}",
        "C19",
        task(FOUND, toml=toml(PYTHON_IMAGE, "", "", "/var")),
        script(left),
        holds(outcome="Succeeded"),
        needs=ROOT,
    )
    for name, left in LEFT.items()
)

FURTHER = (
    Case(
        "owners-workdir-of-the-image",
        "a working directory that the image has keeps its owner and mode",
        "C26",
        task(
            facts(kept='[ "$(stat -c %a:%u:%g /home/app)" = 755:1234:2345 ]'),
            toml=toml(f"{TEST}/user:1", "65534", "", "/home/app"),
        ),
        NOP,
        holds(),
        needs=IMAGES,
    ),
    Case(
        "owners-solution",
        "the solution is root's and readable, and the oracle works on it as the agent's user",
        "C26",
        task(
            facts(who="[ $(stat -c %u who) = 4321 ]", solution='[ "$(cat who)" = "755:0 755:0 644:0" ]'),
            toml=toml(PYTHON_IMAGE, "4321", "", "/work"),
            solve="echo $(stat -c %a:%u /solution /solution/solve.sh /solution/data/x) > who",
            **{"solution/data/x": "x"},
        ),
        ORACLE,
        holds(outcome="Succeeded"),
        needs=ROOT,
    ),
    Case(
        "owners-executables-of-tests",
        "files of tests/ are 0644, executable ones 0755, however small their rights were",
        "C25, C26",
        task(
            facts(
                tool='[ "$(stat -c %a /tests/tool)" = 755 ] && /tests/tool',
                data='[ "$(stat -c %a /tests/data)" = 644 ]',
            ),
            toml=toml(PYTHON_IMAGE, "", '"nobody"', "/var"),
            **{"tests/tool!": "#!/bin/sh\nexit 0\n", "tests/data": "x"},
        ),
        NOP,
        holds(),
        needs=ROOT,
    ),
)

CASES: tuple[Case, ...] = (*COMBINATIONS, *HOUSEKEEPING, *FURTHER)
