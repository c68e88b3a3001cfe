"""Agents that work against their verifier in shared mode: what has no effect, and what shared mode cannot prevent.

The second is proven too, so that docs/security.md claims no more than is so: a root agent's program in place of bash,
and a reward that a process of the verifier's own user changes while test.sh runs, count.
"""

from __future__ import annotations

from taskfold.conformance.case import TOML, Case, Need, counted, facts, holds, rewarded, script, soon, task
from taskfold.conformance.cases.losses import KILLS

WAY, TOOLS, PROCESSES = "C19", "C29", "docs: security"
ROOT = frozenset({Need.ROOT})

OUTSIDE = "mkdir /outside; echo outside > /outside/file\n"
UNTOUCHED = {
    "outside": '[ "$(cat /outside/file)" = outside ] && [ "$(ls -A /outside)" = file ]',
    "tests": '[ "$(stat -c %F:%a /tests)" = directory:755 ]',
    "logs": '[ "$(stat -c %F /logs /logs/verifier /logs/agent | sort -u)" = directory ]',
    "test_is_the_tasks": '[ "$(head -c 11 /tests/test.sh)" = "#!/bin/bash" ]',
    "passwd": 'grep -q "^root:" /etc/passwd',
}
TRAJECTORY = {
    "trajectory": "grep -q schema_version /logs/agent/trajectory.json",
    "trajectory_is_a_file": '[ "$(stat -c %F /logs/agent/trajectory.json)" = "regular file" ]',
}


def users(agent: str, verifier: str) -> str:
    """task.toml with two users by name."""
    return f'{TOML}[agent]\nuser = "{agent}"\n[verifier]\nuser = "{verifier}"\n'


IN_THE_WAY = (
    Case(
        "hostile-links-of-folders",
        "links in place of every folder that housekeeping uses are replaced, and nothing lands where they lead",
        WAY,
        task(facts(**UNTOUCHED, **TRAJECTORY)),
        script(
            OUTSIDE + "for f in /tests /logs/verifier /logs/agent /logs/artifacts /tmp/.nemo-gym\n"
            "do rm -rf $f; ln -s /outside $f; done"
        ),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-link-of-logs",
        "so is a link in place of /logs",
        WAY,
        task(facts(**UNTOUCHED, **TRAJECTORY)),
        script(OUTSIDE + "rm -rf /logs; ln -s /outside /logs"),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-links-of-files",
        "links in place of files that are read or written are neither: /etc/passwd is no response, reward or output",
        WAY,
        task(facts(**UNTOUCHED, **TRAJECTORY, no_response="! grep -q root:x /logs/agent/trajectory.json")),
        script(
            OUTSIDE + "mkdir -p /tests; ln -s /etc/passwd /tests/test.sh; cd /logs/agent\n"
            "for f in trajectory.json response.json response.txt; do ln -sf /etc/passwd $f; done; cd /logs/verifier\n"
            "for f in reward.json reward.txt test-stdout.txt; do ln -s /etc/passwd $f; done"
        ),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-trajectory-to-test-sh",
        "a trajectory.json that is a link to /tests/test.sh does not get the transcript into test.sh",
        WAY,
        task(facts(**UNTOUCHED, **TRAJECTORY)),
        script(OUTSIDE + "ln -sf /tests/test.sh /logs/agent/trajectory.json"),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-trajectory-again-and-again",
        "nor does one that is made again for as long as the verification goes on",
        WAY,
        task(facts(**UNTOUCHED)),
        script(
            OUTSIDE + "(while :; do ln -sfn /tests/test.sh /logs/agent/trajectory.json; sleep 0.01; done) & "
            "until [ -L /logs/agent/trajectory.json ]; do sleep 0.05; done"
        ),
        holds(),
        needs=ROOT,
    ),
)

FAKE = "printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n'"

REPLACED = (
    Case(
        "hostile-tools-before-the-images",
        "programs named timeout, tar, gzip and find that come first in PATH, or stand in their place, serve nobody: "
        "the limit is kept, and what they would write is no reward",
        TOOLS,
        task("sleep 1000\n", toml=TOML + "[verifier]\ntimeout_sec = 2.0\n"),
        script(
            "for t in timeout tar gzip find; do for d in /usr/local/sbin /usr/bin; do\n"
            f"{FAKE} > $d/$t; chmod 755 $d/$t; done; done; [ $(command -v tar) = /usr/local/sbin/tar ]"
        ),
        counted("harbor:verifier_timeout", "VerifierTimedOut", outcome="Succeeded"),
        needs=ROOT,
    ),
    Case(
        "hostile-bash-of-a-root-agent",
        "a root agent's program in place of bash runs in place of test.sh: shared mode cannot prevent it",
        TOOLS,
        task("echo 0 > /logs/verifier/reward.txt\n"),
        script(f"{FAKE} > /usr/local/sbin/bash; chmod 755 /usr/local/sbin/bash"),
        rewarded("1"),
        needs=ROOT,
    ),
    Case(
        "hostile-bash-of-another-user",
        "an agent that is not root replaces neither programs nor libraries, nor what bash reads at its start",
        TOOLS,
        task(
            facts(
                tried='[ "$(cat /tmp/tried)" = 0 ]',
                programs="[ ! -e /usr/local/sbin/bash ] && [ ! -e /usr/local/bin/bash ]",
                libraries="[ ! -e /etc/ld.so.preload ]",
                start="! grep -q planted /root/.bashrc /root/.profile /etc/profile /etc/bash.bashrc 2> /dev/null",
            ),
            toml=TOML + '[agent]\nuser = "nobody"\n',
        ),
        script(
            f"for d in /usr/local/sbin /usr/local/bin /usr/bin; do {FAKE} > $d/bash && n=1; done; echo /tmp/x.so > "
            "/etc/ld.so.preload && n=1\nfor f in /root/.bashrc /root/.profile /etc/profile /etc/bash.bashrc\n"
            "do echo planted >> $f && n=1; done; rm -f /usr/bin/bash && n=1; echo ${n:-0} > /tmp/tried"
        ),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-environment",
        "nothing of the agent's environment reaches test.sh: LD_PRELOAD, BASH_ENV, PATH, or files that a login reads",
        PROCESSES,
        task(
            facts(
                preload='[ -z "$LD_PRELOAD$LD_LIBRARY_PATH$BASH_ENV$ENV$PYTHONPATH" ]',
                path='[ "${PATH#*/app}" = "$PATH" ]',
                sourced="[ ! -e /app/sourced ]",
            )
        ),
        script(
            "echo 'touch /app/sourced' > /app/rc\n"
            "for f in ~/.bashrc ~/.profile ~/.bash_profile; do cp /app/rc $f; done\n"
            "export LD_PRELOAD=/app/x.so LD_LIBRARY_PATH=/app BASH_ENV=/app/rc ENV=/app/rc PYTHONPATH=/app "
            "PATH=/app:$PATH\n(while sleep 0.1; do :; done) & echo LD_PRELOAD=/app/x.so > /etc/environment || true"
        ),
        holds(),
    ),
    Case(
        "hostile-broken-preload",
        "a library in /etc/ld.so.preload that cannot be loaded breaks no program, and the helper reads no libraries",
        PROCESSES,
        task(facts(seen="/bin/true 2>&1 | grep -q ld.so.preload", **TRAJECTORY)),
        script("echo /app/none.so > /etc/ld.so.preload"),
        holds(),
        needs=ROOT,
    ),
)

REACH = """
import ctypes, os, signal, socket, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
reached = []
def attempt(name, action):
    try:
        result = action()
    except (OSError, subprocess.SubprocessError):
        return
    if result not in (b"", -1):
        reached.append(name)
def frame(text):
    return struct.pack(">I", len(text)) + text
def talk():
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(b"\\0taskfold/main")
        s.sendall(frame(b'{"nonce": "%s", "attachOnly": false, "idleSeconds": 30}' % (b"ab" * 16)))
        return s.recv(1)
def phase():
    run = b'{"name": "x", "argv": ["true"]}'
    request = b'{"protocol": 1, "nonce": "%s", "phase": "verify", "runs": [%s]}' % (b"ab" * 16, run)
    done = subprocess.run(["/.taskfold/helper", "phase"], input=frame(request), capture_output=True, timeout=30)
    return done.stdout
attempt("memory of the first process", lambda: open("/proc/1/mem", "rb+"))
attempt("environment of the first process", lambda: open("/proc/1/environ", "rb").read(1))
attempt("descriptors of the first process", lambda: os.listdir("/proc/1/fd") and open("/proc/1/fd/1", "wb"))
attempt("ptrace", lambda: libc.ptrace(0x4206, 1, 0, 0))
attempt("mount", lambda: libc.mount(b"/tmp", b"/.taskfold", None, 4096, None))
attempt("the program", lambda: open("/.taskfold/helper", "rb+"))
attempt("a program beside it", lambda: open("/.taskfold/planted", "wb"))
for freezer in ("/sys/fs/cgroup/cgroup.freeze", "/sys/fs/cgroup/freezer/freezer.state"):
    attempt(freezer, lambda: open(freezer, "rb+"))
attempt("another voice of the first process", lambda: socket.socket(socket.AF_UNIX).bind(b"\\0taskfold/main"))
attempt("the journal", talk)
attempt("the journal, by the helper", phase)
for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGSEGV, signal.SIGKILL):
    try:
        os.kill(1, number)
    except PermissionError:
        pass
open("/tmp/reached", "w").write("".join(f"{each}\\n" for each in reached) + "done\\n")
print('{"event": "done", "result": {"runs": [], "files": []}}', flush=True)
"""
FIRST_PROCESS = f"python3 - <<'EOF'\n{REACH}EOF\n"

SPY = """
import os
opened = 0
for _ in range(60):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.execv("/.taskfold/helper", ["/.taskfold/helper", "version"])
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        try:
            before = os.readlink(f"/proc/{pid}/exe")
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
            opened += before == os.readlink(f"/proc/{pid}/exe") == "/.taskfold/helper"
        except OSError:
            pass
open("/tmp/opened", "w").write(str(opened))
"""

BESIDE = """
import os, resource, time
def found():
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{each}/cmdline", "rb").read() == b"bash\\0/tests/test.sh\\0":
                return int(each)
        except OSError:
            pass
while (test := found()) is None or not os.path.exists("/logs/verifier/begun"):
    time.sleep(0.02)
did = []
def attempt(name, action):
    try:
        action()
        did.append(name)
    except OSError:
        pass
attempt("read tests", lambda: open("/tests/secret.txt").read())
attempt("read variables", lambda: open(f"/proc/{test}/environ", "rb").read())
attempt("open memory", lambda: open(f"/proc/{test}/mem", "rb+"))
attempt("write reward", lambda: open("/logs/verifier/reward.txt", "w").write("1"))
attempt("write logs", lambda: open("/logs/planted", "w"))
attempt("write tests", lambda: open("/tests/test.sh", "a"))
attempt("signal", lambda: os.kill(test, 0))
attempt("limits of the first process", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE))
attempt("first process", lambda: open("/proc/1/mem", "rb"))
open("/tmp/did", "w").write(", ".join(did))
"""
LEFT_BEHIND = f"cat > /tmp/beside.py <<'EOF'\n{BESIDE}EOF\npython3 /tmp/beside.py > /dev/null 2>&1 &\n"


def reach(did: str) -> str:
    """A test.sh that waits for what a process of the agent did, which must be exactly this."""
    begun = "touch /logs/verifier/begun\n"
    return begun + facts(did=soon("[ -s /tmp/did ]") + f'; cat /tmp/did; [ "$(cat /tmp/did)" = "{did}" ]')


STOPPING = (
    LEFT_BEHIND[: LEFT_BEHIND.index("did = []")] + "os.kill(test, 9)\n" + LEFT_BEHIND[LEFT_BEHIND.index("EOF\n") :]
)

KILL_ONCE = (
    f"cat > /tmp/kill.py <<'EOF'\n{KILLS}for each in outside():\n    os.kill(each, 9)\nEOF\npython3 /tmp/kill.py\n"
)
AGAIN = "(n=0; while :; do echo 1 > /logs/verifier/reward.txt; n=$((n+1)); echo $n > /tmp/tries; sleep 0.02; done) "
AGAIN += "> /dev/null 2>&1 &"

RUNNING = (
    Case(
        "hostile-first-process",
        "a root agent reaches nothing of the first process: memory, descriptors, signals, journal, program, socket",
        PROCESSES,
        task(facts(reached='cat /tmp/reached; [ "$(cat /tmp/reached)" = done ]')),
        script(FIRST_PROCESS),
        holds(outcome="Succeeded"),
    ),
    Case(
        "hostile-memory-of-the-helper",
        "nor the memory of a helper that starts, however early it looks",
        PROCESSES,
        task(facts(opened='cat /tmp/opened; [ "$(cat /tmp/opened)" = 0 ]')),
        script(f"python3 - <<'EOF'\n{SPY}EOF\n"),
        holds(outcome="Succeeded"),
    ),
    Case(
        "hostile-kills-the-helper",
        "an agent that kills every process that was put into its sandbox is graded: none of them is the supervisor",
        PROCESSES,
        task(facts(**TRAJECTORY)),
        script(KILL_ONCE),
        holds(outcome="Succeeded"),
    ),
    Case(
        "hostile-rewrites-as-the-same-user",
        "a process of the verifier's own user can change the reward until test.sh has ended: shared mode cannot "
        "prevent it",
        PROCESSES,
        task(
            "cd /logs/verifier; echo 0 > reward.txt\n"
            "for _ in $(seq 600); do grep -qx 1 reward.txt && break; sleep 0.1; done\n"
        ),
        script(AGAIN),
        rewarded("1"),
    ),
    Case(
        "hostile-rewrites-as-another-user",
        "a process of another user cannot, for as long as it may try: the folder is the verifier's",
        PROCESSES,
        task(
            "echo 0.25 > /logs/verifier/reward.txt; n=$(cat /tmp/tries)\n"
            "for _ in $(seq 600); do [ $(cat /tmp/tries) -gt $((n+20)) ] && exit; sleep 0.1; done\n"
            "rm /logs/verifier/reward.txt\n",
            toml=users("nobody", "games"),
        ),
        script(AGAIN),
        rewarded("0.25"),
        needs=ROOT,
    ),
    Case(
        "hostile-beside-as-root",
        "a root process beside test.sh can do everything to it; of the first process it reaches the limits only",
        PROCESSES,
        task(
            reach(
                "read tests, read variables, open memory, write reward, write logs, write tests, signal, "
                "limits of the first process"
            ),
            **{"tests/secret.txt": "x"},
        ),
        script(LEFT_BEHIND),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-beside-as-the-same-user",
        "a process of the verifier's own user reads its variables and memory and can stop it, but changes no test",
        PROCESSES,
        task(
            reach("read tests, read variables, open memory, write reward, signal"),
            toml=users("nobody", "nobody"),
            **{"tests/secret.txt": "x"},
        ),
        script(LEFT_BEHIND),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-beside-as-another-user",
        "a process of another user reads the tests and nothing else",
        PROCESSES,
        task(reach("read tests"), toml=users("nobody", "games"), **{"tests/secret.txt": "x"}),
        script(LEFT_BEHIND),
        holds(),
        needs=ROOT,
    ),
    Case(
        "hostile-stops-test-sh",
        "a test.sh that the agent's process kills before it wrote a reward is a missing reward, never a pass",
        PROCESSES,
        task("touch /logs/verifier/begun; sleep 1000\n"),
        script(STOPPING),
        counted("harbor:missing_reward", "RewardMissing"),
    ),
)

CASES: tuple[Case, ...] = (*IN_THE_WAY, *REPLACED, *RUNNING)
