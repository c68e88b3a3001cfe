"""Artifacts: what is taken out of the agent's sandbox, how it arrives in the verifier's own, and what never does."""

from __future__ import annotations

import json
from typing import Any

from taskfold.conformance.case import NOP, TOML, Case, Need, facts, holds, refused, script, task

SOURCE = "seed: Shared and separate verification"
ROOT = frozenset({Need.ROOT})
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'


def toml(*artifacts: str, more: str = "") -> str:
    """A task.toml whose verifier is separate. `artifacts`: TOML values."""
    head, _, rest = TOML.partition("\n")
    return f"{head}\nartifacts = [{', '.join(artifacts)}]\n{rest}{SEPARATE}{more}"


def path(value: str) -> str:
    """A path as a TOML value."""
    return json.dumps(value)


def case(name: str, proves: str, artifacts: tuple[str, ...], agent: str, checks: dict[str, str], **more: Any) -> Case:
    """A row of a separate verification whose agent is a script."""
    source, spec = more.pop("source", f"{SOURCE}; C31"), more.pop("spec", {})
    files = task(facts(**checks), toml=toml(*artifacts))
    return Case(f"artifacts-{name}", proves, source, files, script(agent), holds(**more), spec=spec, needs=ROOT)


def at_load(name: str, source: str, *says: str) -> Case:
    """A row whose artifact is refused when the task is loaded."""
    return Case(
        f"artifacts-refused-{name}",
        f"an artifact of {source} is refused when the task is loaded",
        f"{SOURCE}; C31",
        task("true\n", toml=toml(path(source))),
        NOP,
        refused("InvalidTask", "artifacts", *says),
    )


WHAT_ARRIVES = (
    case(
        "file-and-folder",
        "artifacts arrive at their own paths: a file, a folder with all in it, an empty folder",
        (path("/app/out.txt"), path("/srv/data/deep"), path("/srv/empty")),
        "echo out > /app/out.txt; mkdir -p /srv/data/deep/er /srv/empty; echo 1 > /srv/data/deep/er/one\n"
        "echo no > /srv/data/not-declared; echo no > /app/not-declared",
        {
            "file": "grep -qx out /app/out.txt",
            "folder": "grep -qx 1 /srv/data/deep/er/one",
            "empty": '[ -d /srv/empty ] && [ -z "$(ls -A /srv/empty)" ]',
            "nothing_beside_a_folder": '[ "$(ls -A /srv/data)" = deep ]',
            "nothing_beside_a_file": '[ "$(ls -A /app)" = out.txt ]',
        },
    ),
    case(
        "logs-artifacts-always",
        "/logs/artifacts is taken without being declared",
        (),
        "mkdir -p /logs/artifacts/deep; echo kept > /logs/artifacts/deep/report",
        {"report": "grep -qx kept /logs/artifacts/deep/report"},
        source=SOURCE,
    ),
    case(
        "of-a-relative-path",
        "a relative source is below the working directory",
        (path("out/report.txt"), path("./data/")),
        "mkdir -p out data; echo r > out/report.txt; echo d > data/d",
        {"report": "grep -qx r /app/out/report.txt", "data": "grep -qx d /app/data/d"},
    ),
    case(
        "table-with-destination",
        "an entry may be a table; its destination moves the kept copy, never where the verifier finds it",
        ('{ source = "/app/a", destination = "elsewhere/a" }',),
        "mkdir a; echo 1 > a/one",
        {"own_path": "grep -qx 1 /app/a/one", "not_elsewhere": "[ ! -e /elsewhere ] && [ ! -e /app/elsewhere ]"},
        source=SOURCE,
    ),
    case(
        "exclude-as-tar",
        "exclude patterns mean what they mean to tar: unanchored, with wildcards that match slashes",
        ('{ source = "/app/tree", exclude = ["*.pyc", "cache", "sub/*.log"] }',),
        "mkdir -p tree/sub/deep tree/cache tree/x/cache; touch tree/a.pyc tree/x/b.pyc tree/cache/c tree/x/cache/d\n"
        "touch tree/sub/e.log tree/sub/deep/f.log tree/g.log tree/keep.py",
        {
            "what_is_left": '[ "$(cd /app/tree && find . | sort | tr "\\n" " ")" = '
            '". ./g.log ./keep.py ./sub ./sub/deep ./x " ]'
        },
        source=SOURCE,
    ),
    case(
        "missing-is-fine",
        "a source that is not there is skipped, and never fatal",
        (path("/app/there"), path("/app/not-there"), path("/no/such/folder")),
        "echo 1 > there",
        {"there": "[ -e /app/there ]", "not_there": "[ ! -e /app/not-there ] && [ ! -e /no ]"},
        absent=("warnings",),
    ),
    case(
        "first-claim",
        "of two artifacts that are kept at one place, or one in the other, the first wins, with a warning",
        ('{ source = "/app/a", destination = "x" }', '{ source = "/app/b", destination = "x/y" }', path("/app/c")),
        "mkdir a b c; touch a/1 b/2 c/3",
        {"first": "[ -e /app/a/1 ]", "second": "[ ! -e /app/b ]", "third": "[ -e /app/c/3 ]"},
        warns=("/app/b",),
    ),
    case(
        "child-of-an-artifact",
        "an artifact that lies in another one is part of it",
        (path("/app/tree"), path("/app/tree/deep")),
        "mkdir -p tree/deep; touch tree/1 tree/deep/2",
        {"all": "[ -e /app/tree/1 ] && [ -e /app/tree/deep/2 ]"},
        warns=("/app/tree/deep",),
    ),
    case(
        "owners-and-modes",
        "owners, modes and times are kept; setuid and setgid bits are dropped",
        (path("/app/tree"),),
        "mkdir -m 0750 tree; cd tree; echo 1 > a; chown 1234:4321 a .; chmod 0640 a; touch -d @1000000000 a\n"
        "cp /bin/true s; chmod 6755 s; mkdir -m 1777 t",
        {
            "file": '[ "$(stat -c %u:%g:%a:%Y /app/tree/a)" = 1234:4321:640:1000000000 ]',
            "folder": '[ "$(stat -c %u:%g:%a /app/tree)" = 1234:4321:750 ]',
            "no_setuid": '[ "$(stat -c %a /app/tree/s)" = 755 ]',
        },
    ),
    case(
        "target-is-emptied",
        "what the verifier's image has at an artifact's path gives way",
        (path("/etc/skel"), path("/etc/issue.net")),
        "rm -rf /etc/skel; mkdir /etc/skel; echo new > /etc/skel/only; rm /etc/issue.net; mkdir /etc/issue.net\n"
        "touch /etc/issue.net/file",
        {
            "folder": '[ "$(ls -A /etc/skel)" = only ]',
            "a_folder_for_a_file": "[ -f /etc/issue.net/file ]",
        },
        source=SOURCE,
    ),
    case(
        "of-the-run",
        "a run adds artifacts to those of its task",
        (path("/app/a"),),
        "touch a b",
        {"both": "[ -e /app/a ] && [ -e /app/b ]"},
        source="reference: TaskRun",
        spec={"artifacts": [{"source": "/app/b"}]},
    ),
)

TREES = (
    case(
        "odd-names",
        "names survive byte for byte: line breaks, spaces, no UTF-8, 255 bytes, leading dashes",
        (path("/app/tree"),),
        "mkdir tree; cd tree; printf 1 > $'new\\nline'; printf 2 > $'\\xff\\xfe latin'; printf 3 > ./-rf\n"
        "printf 4 > ' '\n"
        "printf 5 > \"$(printf 'x%.0s' $(seq 255))\"; printf 6 > 'ümläut'",
        {
            "all": "cd /app/tree && [ \"$(cat $'new\\nline' $'\\xff\\xfe latin' ./-rf ' ' xxx* 'ümläut')\" = 123456 ]",
            "six": '[ "$(ls -A /app/tree | tr -cd "\\n" | wc -c)" = 7 ]',
        },
    ),
    case(
        "links",
        "links inside an artifact stay links; those that leave it are dropped, and said to be",
        (path("/app/tree"),),
        "mkdir -p tree/d; cd tree; echo 1 > d/f; ln -s d/f good; ln -s ../d/f d/up; ln -s /etc/passwd abs\n"
        "ln -s ../../etc rel\n"
        "ln -s loop2 loop1; ln -s loop1 loop2; ln -s /tests/test.sh t; ln -s /logs/verifier/reward.json reward.json",
        {
            "good": '[ "$(readlink /app/tree/good)" = d/f ] && grep -qx 1 /app/tree/good',
            "up": "grep -qx 1 /app/tree/d/up",
            "loop": "[ -L /app/tree/loop1 ] && [ -L /app/tree/loop2 ]",
            "none_leaves": "[ ! -L /app/tree/abs ] && [ ! -L /app/tree/rel ] && [ ! -L /app/tree/t ]",
            "no_reward_link": "[ ! -L /app/tree/reward.json ]",
        },
        warns=("of an artifact were not put in place",),
    ),
    case(
        "no-files",
        "sockets, FIFOs and devices are left out, and said to be; nothing waits for them",
        (path("/app/tree"), path("/app/pipe")),
        "mkdir tree; mkfifo tree/fifo pipe; mknod tree/null c 1 3; touch tree/file\n"
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('tree/sock')\"",
        {"file_alone": '[ "$(ls -A /app/tree)" = file ]', "no_pipe": "[ ! -e /app/pipe ]"},
        warns=("artifact /app/tree", "artifact /app/pipe is failed"),
    ),
    case(
        "unreadable",
        "files that only their owner may read are taken as they are",
        (path("/app/tree"),),
        "mkdir tree; echo 1 > tree/f; chmod 0 tree/f tree",
        {"mode": '[ "$(stat -c %a /app/tree)" = 0 ]', "content": "grep -qx 1 /app/tree/f"},
    ),
    case(
        "sparse",
        "a sparse file arrives with its length and its content",
        (path("/app/big"),),
        "truncate -s 300M big; echo end >> big",
        {
            "length": '[ "$(stat -c %s /app/big)" = 314572804 ]',
            "content": '[ "$(tail -c 4 /app/big)" = end ]',
            "holes": '[ "$(stat -c %b /app/big)" -lt 20000 ]',
        },
    ),
    case(
        "many-files",
        "ten thousand small files arrive",
        (path("/app/tree"),),
        "mkdir tree; cd tree; for d in $(seq 100); do mkdir $d; for f in $(seq 100); do echo $d-$f > $d/$f; done; done",
        {"all": '[ "$(find /app/tree -type f | wc -l)" = 10000 ]', "one": "grep -qx 77-33 /app/tree/77/33"},
    ),
)

HOSTILE = (
    case(
        "link-to-tests",
        "an artifact that is a link, or lies behind one, is not taken, wherever it leads",
        (path("/app/a"), path("/app/b/c"), path("/app/d")),
        "ln -s /tests a; ln -s /logs/verifier b; mkdir -p /logs/verifier/c; touch /logs/verifier/c/x; ln -s / d",
        {
            "a": "[ ! -e /app/a ] && [ ! -L /app/a ]",
            "b": "[ ! -e /app/b ]",
            "d": "[ ! -L /app/d ]",
            "nothing_planted": '[ "$(ls -A /tests)" = test.sh ] && [ ! -e /logs/verifier/c ]',
        },
        warns=("/app/a", "/app/b/c", "/app/d"),
    ),
    case(
        "no-planted-reward",
        "no artifact plants a reward, a helper or a test report",
        (path("/logs/agent"), path("/logs/artifacts"), path("/app")),
        "echo 1 > /logs/verifier/reward.txt; mkdir -p /tests; touch /tests/helper.py /app/reward.json\n"
        "ln -s /logs/verifier/reward.json /logs/artifacts/reward.json\n"
        "echo '{\"reward\": 1}' > /logs/agent/reward.json",
        {
            "no_reward": "[ ! -e /logs/verifier/reward.txt ]",
            "no_helper": "[ ! -e /tests/helper.py ]",
            "no_link": "[ ! -L /logs/artifacts/reward.json ]",
            "artifact": "[ -e /app/reward.json ]",
            "transcript_is_ours": "grep -q ATIF-v1.7 /logs/agent/trajectory.json",
        },
    ),
    case(
        "hard-links",
        "a hard link to another file of the sandbox is a file of its own",
        (path("/app/tree"),),
        "mkdir tree; ln /etc/hostname tree/h 2> /dev/null || cp /etc/hostname tree/h; echo x > f\n"
        "ln f tree/f; ln f tree/g",
        {"f": "grep -qx x /app/tree/f && grep -qx x /app/tree/g", "not_beside": "[ ! -e /app/f ]"},
    ),
)

REFUSED = (
    at_load("root", "/", "/tests"),
    at_load("tests", "/tests/data", "/tests"),
    at_load("verifier-logs", "//logs/./verifier/x", "/logs/verifier"),
    at_load("above-verifier-logs", "/logs", "/logs/verifier"),
    at_load("proc", "/proc/1/root", "/proc"),
    at_load("parents", "/app/../tests", ".."),
    Case(
        "artifacts-refused-of-the-run",
        "so is one that a run adds",
        "C31",
        task("true\n", toml=toml()),
        NOP,
        refused("InvalidTask", "spec.artifacts[0]", "/tests"),
        spec={"artifacts": [{"source": "/tests"}]},
    ),
    Case(
        "artifacts-refused-by-workdir",
        "a relative source that the working directory makes a protected path is refused when the task is loaded",
        "C31",
        task("true\n", toml=toml(path("tests")).replace('workdir = "/app"', 'workdir = "/"')),
        NOP,
        refused("InvalidTask", "artifacts", "/tests"),
    ),
)

SHARED = Case(
    "artifacts-in-shared-mode",
    "artifacts that a shared task declares are kept, and change nothing of its verification",
    SOURCE,
    task(
        facts(still_there="[ -e /app/other ]"),
        toml=TOML.replace("\n", '\nartifacts = ["/app/out", "/no/such"]\n', 1),
    ),
    script("mkdir out; echo 1 > out/one; touch other"),
    holds(status={"verifier.mode": "shared"}),
)

CASES: tuple[Case, ...] = (*WHAT_ARRIVES, *TREES, *HOSTILE, *REFUSED, SHARED)
