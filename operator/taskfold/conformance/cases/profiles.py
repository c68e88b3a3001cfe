"""Security profiles: what each one is in the sandbox, and what it refuses."""

from __future__ import annotations

from typing import Any

from taskfold.conformance.case import (
    NOP,
    ORACLE,
    PYTHON_IMAGE,
    Case,
    Need,
    facts,
    holds,
    refused,
    rewarded,
    script,
    task,
)

DESIGN = "spec.security.profile"
TEST = "docker.io/taskfold-test"
IMAGES = frozenset({Need.TEST_IMAGES})
OWN_USER = frozenset({Need.ROOT})
"""The operator has no restrictedUid, which stands for the image's own user where `restricted` is the default."""
ONE = "echo 1 > /logs/verifier/reward.txt\n"


def userns() -> dict[str, Any]:
    return {"security": {"profile": "userns"}}


def restricted(uid: int | None = None, *folders: str) -> dict[str, Any]:
    number = {"runAsUser": uid} if uid is not None else {}
    return {"security": {"profile": "restricted", **number, **({"emptyDirs": list(folders)} if folders else {})}}


def toml(image: str = PYTHON_IMAGE, more: str = "", workdir: str = "") -> str:
    where = f'workdir = "{workdir}"\n' if workdir else ""
    return f'schema_version = "1.4"\n[environment]\ndocker_image = "{image}"\n{where}{more}'


USERNS = (
    Case(
        "userns-is-a-user-namespace",
        "root of the sandbox is nobody on the node: 65,536 users of its own, and no rights outside",
        DESIGN,
        task(
            facts(
                root='[ "$(id -u)" = 0 ]',
                outside="[ \"$(awk '{print ($2 > 0)}' /proc/1/uid_map)\" = 1 ]",
                length="[ \"$(awk '{print $3}' /proc/1/uid_map)\" = 65536 ]",
                groups="[ \"$(awk '{print ($2 > 0) $3}' /proc/1/gid_map)\" = 165536 ]",
                largest="touch /owned && chown 65535:65535 /owned",
                beyond="! chown 65536 /owned",
                devices='echo x > /dev/null && [ "$(head -c 1 /dev/zero | wc -c)" = 1 ]',
                mount="! mount -t tmpfs none /mnt",
            )
        ),
        NOP,
        holds(),
        spec=userns(),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "userns-users-and-owners",
        "users are switched and files owned as everywhere, also with numbers without an entry",
        DESIGN,
        task(
            facts(
                agent='[ "$(cat /logs/agent/who)" = 4321:4321 ]',
                me='[ "$(id -un)" = nobody ]',
                tests='[ -z "$(find /tests ! -uid 0)" ]',
                folder='[ "$(stat -c %u /logs/verifier)" = 65534 ]',
                reset="[ ! -e /logs/verifier/planted ]",
            ),
            toml=toml(more='[agent]\nuser = 4321\n[verifier]\nuser = "nobody"\n', workdir="/app"),
        ),
        script("touch mine /logs/verifier/planted; echo $(id -u):$(stat -c %u mine) > /logs/agent/who"),
        holds(outcome="Succeeded"),
        spec=userns(),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "userns-number-beyond",
        "a user number that the namespace does not have is refused before there is a pod",
        DESIGN,
        task(ONE, toml=toml(more="[verifier]\nuser = 65536\n")),
        NOP,
        refused("ForbiddenByProfile", "65536", "root", stage="admission", absent=("podName",)),
        spec=userns(),
    ),
)

RESTRICTED = (
    Case(
        "restricted-is-one-user",
        "agent, hooks, test.sh and housekeeping are the one user, without capabilities or a way to more",
        DESIGN,
        task(
            facts(
                me='[ "$(id -u):$(id -g)" = 1000:0 ]',
                agent='[ "$(cat /logs/agent/who)" = 1000 ]',
                hook='[ "$(cat /logs/artifacts/hook)" = 1000 ]',
                capabilities="grep -q '^CapBnd:.0*$' /proc/self/status",
                no_new_privileges="grep -q '^NoNewPrivs:.1$' /proc/self/status",
                tests='[ -z "$(find /tests -mindepth 1 ! -uid 1000)" ]',
                reset="[ ! -e /tests/planted ] && [ ! -e /logs/verifier/planted ]",
                trajectory="grep -q ATIF-v1.7 /logs/agent/trajectory.json",
            ),
            toml=toml(more="[[verifier.collect]]\ncommand = 'id -u > /logs/artifacts/hook'\n"),
        ),
        script(
            "id -u > /logs/agent/who; mkdir -p /tests/planted/a /logs/verifier/planted\n"
            "ln -s /etc/passwd /logs/agent/trajectory.json\n"
            "chmod 0 /tests/planted /logs/verifier/planted /logs/verifier"
        ),
        holds(outcome="Succeeded", warns=("the same user",)),
        spec=restricted(1000),
    ),
    Case(
        "restricted-oracle",
        "the oracle works in a folder that was made for the run",
        DESIGN,
        task('[ "$(cat /app/x)" = 1 ] && ' + ONE, solve="echo 1 > x", toml=toml(workdir="/app")),
        ORACLE,
        rewarded(outcome="Succeeded"),
        spec=restricted(1000, "/app"),
    ),
    Case(
        "restricted-image-of-a-number",
        "without a number of the run's own, everything is the image's own user",
        DESIGN,
        task(facts(me='[ "$(id -u)" = 1234 ]', home="touch /home/app/x"), toml=toml(f"{TEST}/user:1")),
        script("id"),
        holds(),
        spec=restricted(),
        needs=IMAGES | OWN_USER,
    ),
    Case(
        "restricted-names-of-the-user",
        "the one user may be named in task.toml, as the image knows him",
        DESIGN,
        task(
            facts(me='[ "$(id -u):$(id -g):$HOME:$USER" = 1500:1500:/home/app:app ]'),
            toml=toml(f"{TEST}/named-user:1", '[agent]\nuser = "app"\n[verifier]\nuser = "app"\n'),
        ),
        script("id"),
        holds(),
        spec=restricted(1500),
        needs=IMAGES,
    ),
    Case(
        "restricted-another-name",
        "another user of the image is refused at seed: the pod cannot become him",
        DESIGN,
        task(ONE, toml=toml(more='[verifier]\nuser = "nobody"\n')),
        NOP,
        refused("ForbiddenByProfile", "cannot become user 65534", stage="seed"),
        spec=restricted(1500),
    ),
    Case(
        "restricted-image-of-root",
        "an image of root without a number is refused with the kubelet's words and the remedy",
        DESIGN,
        task(ONE, toml=toml()),
        NOP,
        refused("ForbiddenByProfile", "image will run as root", "spec.security.runAsUser", stage="seed"),
        spec=restricted(),
        needs=OWN_USER,
    ),
    Case(
        "restricted-folder-that-is-missing",
        "a working directory that the one user cannot make is refused, with the remedy",
        DESIGN,
        task(ONE, toml=toml(workdir="/missing")),
        NOP,
        refused("ForbiddenByProfile", "/missing", "spec.security.emptyDirs", stage="seed"),
        spec=restricted(1000),
    ),
    Case(
        "restricted-install",
        "an installation needs root and is refused",
        DESIGN,
        task(ONE, toml=toml()),
        script("true", install="true"),
        refused("ForbiddenByProfile", "install runs as root", stage="admission", absent=("podName",)),
        spec=restricted(1000),
    ),
    Case(
        "restricted-two-users",
        "two users cannot be in one pod",
        DESIGN,
        task(ONE, toml=toml(more="[agent]\nuser = 5\n[verifier]\nuser = 6\n")),
        NOP,
        refused("ForbiddenByProfile", "[verifier].user is 6", stage="admission"),
        spec=restricted(),
    ),
)

CASES: tuple[Case, ...] = (*USERNS, *RESTRICTED)
