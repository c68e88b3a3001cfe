"""Users: who runs what, with which home and groups, in every combination of image, agent and verifier."""

from __future__ import annotations

from typing import Any

from taskfold.conformance.case import (
    NOP,
    PYTHON_IMAGE,
    Case,
    Need,
    facts,
    holds,
    refused,
    script,
    task,
)

SEED = "seed: Users"
TEST = "docker.io/taskfold-test"
USER, NAMED = f"{TEST}/user:1", f"{TEST}/named-user:1"
ROOT = frozenset({Need.ROOT})
IMAGES = frozenset({Need.ROOT, Need.TEST_IMAGES})

NOTE = "echo $(id -u):$(id -g):$HOME:$USER:$LOGNAME > /logs/agent/who"


def toml(image: str | None = PYTHON_IMAGE, *, agent: str = "", verifier: str = "", more: str = "") -> str:
    """task.toml with users as they are written in TOML; without an image, a Dockerfile has it."""
    text = 'schema_version = "1.4"\n[environment]\n' + (f'docker_image = "{image}"\n' if image else "")
    text += f"[agent]\nuser = {agent}\n" if agent else ""
    return text + (f"[verifier]\nuser = {verifier}\n" if verifier else "") + more


def who(verifier: str, agent: str) -> str:
    """A test.sh that checks who it is and who the agent was, each as uid:gid:home:user:logname."""
    return facts(
        verifier=f'[ "$(id -u):$(id -g):$HOME:$USER:$LOGNAME" = "{verifier}" ]',
        agent=f'[ "$(cat /logs/agent/who)" = "{agent}" ]',
    )


def files(verifier: str, agent: str, text: str, **more: str) -> dict[str, Any]:
    return task(who(verifier, agent), toml=text, **more)


AS_ROOT, AS_NOBODY = "0:0:/root:root:root", "65534:65534:/nonexistent:nobody:nobody"
AS_APP, AS_1234, AS_4321 = "1500:1500:/home/app:app:app", "1234:2345:/::", "4321:0:/::"


def dockerfile(text: str) -> dict[str, str]:
    return {"environment/Dockerfile": text}


RUNS_AS = (
    Case(
        "users-unset-root",
        "unset, agent and test.sh run as the user that the image starts with, with a login's HOME and USER",
        SEED,
        files(AS_ROOT, AS_ROOT, toml()),
        script(NOTE),
        holds(),
        needs=ROOT,
    ),
    Case(
        "users-number-without-an-entry",
        "a number without an entry in /etc/passwd: that uid, group 0, HOME /, no USER",
        SEED,
        files(AS_4321, AS_4321, toml(agent="4321", verifier="4321")),
        script(NOTE),
        holds(),
        needs=ROOT,
    ),
    Case(
        "users-number-with-an-entry",
        "a number with an entry in /etc/passwd has that entry's group, home and name",
        SEED,
        files(AS_NOBODY, AS_NOBODY, toml(agent="65534", verifier="65534")),
        script(NOTE),
        holds(),
        needs=ROOT,
    ),
    Case(
        "users-two-names",
        "[agent].user and [verifier].user are independent of each other",
        SEED,
        files("5:60:/usr/games:games:games", AS_NOBODY, toml(agent='"nobody"', verifier='"games"')),
        script(NOTE),
        holds(),
        needs=ROOT,
    ),
    Case(
        "users-never-the-agents",
        "no record and [agent].user set: test.sh runs as root, never as [agent].user",
        SEED,
        files(AS_ROOT, AS_NOBODY, toml(agent='"nobody"')),
        script(NOTE),
        holds(),
        needs=ROOT,
    ),
    Case(
        "users-image-of-a-number",
        "a numeric USER of the image runs agent and test.sh as that uid and group",
        SEED,
        files(AS_1234, AS_1234, toml(USER)),
        script(NOTE),
        holds(),
        needs=IMAGES,
    ),
    Case(
        "users-image-of-a-name",
        "a named USER of the image runs agent and test.sh, with its home and groups",
        SEED,
        task(
            facts(
                who=f'[ "$(id -u):$(id -g):$HOME:$USER:$LOGNAME" = {AS_APP} ]',
                groups='[ "$(id -G | tr " " "\\n" | sort -n | tr "\\n" " ")" = "1500 1600 " ]',
                agent=f'[ "$(cat /logs/agent/who)" = {AS_APP} ]',
            ),
            toml=toml(NAMED),
        ),
        script(NOTE),
        holds(),
        needs=IMAGES,
    ),
    Case(
        "users-no-record-is-root",
        "a prebuilt image of another USER is no record: with [agent].user set, test.sh runs as root",
        SEED,
        files(AS_ROOT, AS_NOBODY, toml(USER, agent="65534")),
        script(NOTE),
        holds(),
        needs=IMAGES,
    ),
    Case(
        "users-record-is-the-images",
        "with the image on record and [agent].user set, test.sh runs as the image's user",
        SEED,
        files(AS_1234, AS_NOBODY, toml(None, agent="65534"), **dockerfile(f"FROM {USER}\n")),
        script(NOTE),
        holds(),
        needs=IMAGES,
    ),
    Case(
        "users-record-with-a-group",
        "a group in the image's USER on record is honoured, by name and alone",
        "seed: Users",
        task(
            facts(group='[ "$(id -u):$(id -g):$(id -G)" = 1500:1600:1600 ]'),
            toml=toml(None),
            **dockerfile(f"FROM {NAMED}\nUSER app:builders\n"),
        ),
        NOP,
        holds(),
        needs=IMAGES,
    ),
    Case(
        "users-record-and-verifier-user",
        "[verifier].user wins over the image's user on record",
        SEED,
        files(AS_ROOT, AS_1234, toml(None, verifier="0"), **dockerfile(f"FROM {USER}\n")),
        script(NOTE),
        holds(),
        needs=IMAGES,
    ),
    Case(
        "users-of-hooks",
        "hooks run as the image's user, neither as the agent nor as the verifier, unless they name one",
        "C30",
        task(
            facts(hooks='[ "$(cat /logs/artifacts/who)" = "1500:1500 65534:65534" ]'),
            toml=toml(NAMED, agent='"nobody"', verifier="0")
            + "[[verifier.collect]]\ncommand = 'echo $(id -u):$(id -g) > /logs/artifacts/a'\n"
            + '[[verifier.collect]]\nuser = "nobody"\ncommand = \''
            + "echo $(cat /logs/artifacts/a) $(id -u):$(id -g) > /logs/artifacts/who'\n",
        ),
        NOP,
        holds(),
        needs=IMAGES,
    ),
)

REFUSED = (
    Case(
        "users-number-as-text",
        "a number that is written as text is a name, and an unknown one",
        "C30",
        task("true", toml=toml(verifier='"1234"')),
        NOP,
        refused("UnknownUser", '"1234"', stage="seed"),
        needs=ROOT,
    ),
    Case(
        "users-unknown",
        "a name that the image does not have is refused at seed, at the first try",
        SEED,
        task("true", toml=toml(agent='"solver"')),
        NOP,
        refused("UnknownUser", '"solver"', stage="seed"),
        needs=ROOT,
    ),
    Case(
        "users-name-and-group",
        "a user with a group works with Docker only and is refused",
        SEED,
        task("true", toml=toml(verifier='"nobody:nogroup"')),
        NOP,
        refused("InvalidTask", "nobody:nogroup", "Docker"),
    ),
)

CASES: tuple[Case, ...] = (*RUNS_AS, *REFUSED)
