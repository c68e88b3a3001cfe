"""How the verifier runs in shared mode: hooks, reset, upload, transcript, test.sh, and the tools of the image."""

from __future__ import annotations

import json

from taskfold.conformance.case import NOP, TOML, Case, Expect, Need, facts, holds, masked, rewarded, script, soon, task
from taskfold.conformance.cases import steps

SOURCE = "seed: How the verifier runs"
TRAJECTORY = "/logs/agent/trajectory.json"
ONE = "echo 1 > /logs/verifier/reward.txt\n"
TEST = "docker.io/taskfold-test"
IMAGES = frozenset({Need.TEST_IMAGES})
NO_OTHER = "[ ! -e /logs/verifier/other ]"


def hook(command: str, more: str = "") -> str:
    """A collect hook in task.toml."""
    return f"[[verifier.collect]]\ncommand = {json.dumps(command)}\n{more}"


def transcript_has(expression: str) -> str:
    """A check of the transcript in Python; `t` is the document."""
    return f"python3 -c 'import json, sys; t = json.load(open(\"{TRAJECTORY}\")); sys.exit(not ({expression}))'"


def without(tools: str, image: str, kind: str) -> Case:
    """An image without these tools."""
    return Case(
        f"image-{image}",
        f"without {tools} test.sh never starts and the sample is masked as {kind}",
        f"{SOURCE}; C29",
        task(ONE, toml=f'[environment]\ndocker_image = "{TEST}/{image}:1"\n'),
        script("touch /started"),
        masked(kind, "MissingTools", stage="seed", says=tuple(tools.split(", ")), absent=("agent.outcome",)),
        needs=IMAGES,
    )


SERVER = (
    "import http.server; "
    "http.server.HTTPServer(('127.0.0.1', 8123), http.server.SimpleHTTPRequestHandler).serve_forever()"
)
FETCH = (
    "python3 -c \"import urllib.request as u; raise SystemExit(u.urlopen('http://127.0.0.1:8123/page.txt', timeout=60)"
    ".read() != b'served')\" 2> /dev/null"
)

ORDER = Case(
    "order-of-verification",
    "hooks, then /tests and /logs/verifier are emptied, tests/ is uploaded, the transcript written, test.sh run",
    SOURCE,
    task(
        facts(
            agent_then_hook='[ "$(cat /app/order)" = "agent hook" ]',
            hook_saw_tests_of_the_agent="grep -qx /tests/planted /app/seen",
            hook_saw_logs_of_the_agent="grep -qx /logs/verifier/planted /app/seen",
            hook_saw_no_tests_of_the_task="! grep -q test.sh /app/seen",
            hook_saw_no_transcript="! grep -q trajectory /app/seen",
            tests_are_reset="[ ! -e /tests/planted ]",
            logs_are_reset="[ ! -e /logs/verifier/planted ]",
            what_the_hook_left_there_is_reset="[ ! -e /logs/verifier/hook ]",
            tests_are_uploaded='[ "$(cat /tests/data/expected.txt)" = forty-two ]',
            transcript_is_written=f"[ -s {TRAJECTORY} ]",
        ),
        toml=TOML
        + hook("cd / && find /tests /logs > /app/seen; echo -n ' hook' >> /app/order; touch /logs/verifier/hook"),
        **{"tests/data/expected.txt": "forty-two"},
    ),
    script("echo -n agent > order; mkdir -p /tests; touch /tests/planted /logs/verifier/planted"),
    holds(outcome="Succeeded"),
)

HOOKS = (
    Case(
        "hooks-in-order",
        "collect hooks run one after the other, in the working directory",
        SOURCE,
        task(
            facts(hooks='[ "$(cat order)" = "one two three" ]', working_directory='[ "$(cat where)" = /app ]'),
            toml=TOML
            + hook("echo -n one > order")
            + hook("echo -n ' two' >> order; pwd > where")
            + hook("echo -n ' three' >> order"),
        ),
        NOP,
        holds(absent=("warnings",)),
    ),
    Case(
        "hooks-are-best-effort",
        "a hook that fails, or runs over its limit, is a warning and never a verdict",
        SOURCE,
        task(
            facts(the_third_ran="[ -e third ]"),
            toml=TOML + hook("exit 3") + hook("sleep 600", "timeout_sec = 0.5\n") + hook("touch third"),
        ),
        NOP,
        holds(warns=("verifier.collect",), absent=("warnings.2",), status={"verifier.returnCode": 0}),
    ),
)

RESET = (
    Case(
        "reset-of-planted-files",
        "the agent cannot plant a reward, a helper or a test report",
        SOURCE,
        task(
            facts(
                tests='[ "$(find /tests -mindepth 1 | sort | tr "\\n" " ")" = "/tests/helper.py /tests/test.sh " ]',
                helper_is_the_tasks="python3 /tests/helper.py",
                logs='[ "$(find /logs/verifier -mindepth 1 ! -name reward.json)" = /logs/verifier/test-stdout.txt ]',
            ),
            **{"tests/helper.py": "print('mine')\n"},
        ),
        script(
            "mkdir -p /tests/deep/er /logs/verifier/.hidden/deep; chmod 0500 /logs/verifier/.hidden\n"
            "echo 'raise SystemExit(1)' > /tests/helper.py; touch /tests/.hidden /tests/deep/er/x\n"
            "touch $'/tests/new\\nline'\n"
            "echo 1 > /logs/verifier/reward.txt; echo fake > /logs/verifier/test-stdout.txt; mkfifo /tests/pipe\n"
            "touch /logs/verifier/.hidden/deep/x /logs/verifier/ctrf.json"
        ),
        holds(),
    ),
    Case(
        "reset-leaves-no-reward",
        "a reward that only the agent wrote is no reward",
        SOURCE,
        task("true\n"),
        script("echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"),
        Expect("Succeeded", "0", kind="harbor:missing_reward", reason="RewardMissing", outcome="Succeeded"),
    ),
    Case(
        "reset-of-the-images-tests",
        "helpers in the image's /tests are gone: they are shipped in the task's tests/",
        SOURCE,
        task(facts(gone="[ ! -e /tests/image-helper.sh ]", there="[ -e /tests/own.sh ]"), **{"tests/own.sh": "true\n"}),
        script("true", install="mkdir -p /tests; touch /tests/image-helper.sh"),
        holds(),
    ),
)

UPLOAD = (
    Case(
        "upload-of-tests",
        "tests/ is uploaded to /tests and test.sh made executable",
        f"{SOURCE}; C26",
        {
            **task(**{"tests/tool": "#!/bin/sh\nexit 0\n", "tests/deep/er/data": "x"}),
            "tests/test.sh": "# no interpreter line, so not executable in its source\n"
            + facts(
                executable="[ -x /tests/test.sh ]",
                test_mode='[ "$(stat -c %a:%u /tests/test.sh)" = 755:0 ]',
                tool_mode='[ "$(stat -c %a:%u /tests/tool)" = 755:0 ]',
                data_mode='[ "$(stat -c %a:%u /tests/deep/er/data)" = 644:0 ]',
                folder_modes='[ "$(stat -c %a /tests /tests/deep | tr "\\n" " ")" = "755 755 " ]',
                tool_runs="/tests/tool",
            ),
        },
        NOP,
        holds(),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "upload-of-an-archive",
        "a source with modes keeps them: what is executable there is executable in /tests",
        f"{SOURCE}; C26",
        {
            **task(facts(tool="[ -x /tests/tool ]", data="[ ! -x /tests/data ]", test="[ -x /tests/test.sh ]")),
            "tests/tool!": "true\n",
            "tests/data": "#!/bin/sh\n",
        },
        NOP,
        holds(),
    ),
)

START = (
    Case(
        "test-sh-by-bash",
        "test.sh runs as `bash /tests/test.sh`, whatever its first line says, without input",
        SOURCE,
        {
            **task(),
            "tests/test.sh": "#!/bin/false\n"
            + facts(bash='[ -n "$BASH_VERSION" ]', name='[ "$0" = /tests/test.sh ]', stdin="! read -r line"),
        },
        NOP,
        holds(),
    ),
    Case(
        "test-sh-in-workdir",
        "test.sh runs from the working directory",
        SOURCE,
        task(facts(where='[ "$(pwd)" = /work/deep ]'), toml=TOML.replace("/app", "/work/deep")),
        NOP,
        holds(),
    ),
    Case(
        "test-sh-in-the-images-workdir",
        "without a workdir, and from a prebuilt image, test.sh has the image's directory, variables and user",
        f"{SOURCE}; seed: Users",
        task(
            facts(where='[ "$(pwd)" = /home/app ]', env='[ "$COLOR" = blue ]', user="[ $(id -u) = 1234 ]"),
            toml=f'[environment]\ndocker_image = "{TEST}/user:1"\n',
        ),
        NOP,
        holds(),
        needs=IMAGES,
    ),
    Case(
        "test-stdout",
        "the output of test.sh, both streams of it, is in /logs/verifier/test-stdout.txt",
        SOURCE,
        task(
            "echo to stdout; echo to stderr >&2\n"
            + facts(
                stdout=soon("grep -qx 'to stdout' /logs/verifier/test-stdout.txt"),
                stderr=soon("grep -qx 'to stderr' /logs/verifier/test-stdout.txt"),
            )
        ),
        NOP,
        holds(),
    ),
    Case(
        "test-sh-closes-its-output",
        "a test.sh that closes, fills or removes its output is graded all the same",
        "C27",
        task(
            "rm -f /logs/verifier/test-stdout.txt; yes | head -c 1000000; yes > /dev/full\n"
            "exec >&-; exec 2>&-; echo 1 > /logs/verifier/reward.txt\n"
        ),
        NOP,
        rewarded(),
    ),
)

SHARED = (
    Case(
        "shared-sandbox",
        "in shared mode test.sh runs in the sandbox that the agent changed, and its processes keep running beside it",
        "seed: Shared and separate verification",
        task(
            facts(
                file="[ -s result.txt ]",
                package="[ -x /usr/local/bin/tool ]",
                process='kill -0 "$(cat /app/pid)"',
                service=soon(FETCH),
            )
        ),
        script(
            "echo done > result.txt; printf '#!/bin/sh\\n' > /usr/local/bin/tool; chmod +x /usr/local/bin/tool\n"
            f'echo -n served > page.txt; python3 -c "{SERVER}" & sleep 600 & echo $! > pid'
        ),
        holds(outcome="Succeeded", status={"verifier.mode": "shared"}),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "shared-agent-that-prints-on",
        "what the agent left behind may print on: it is neither waited for, nor blocked, nor ended",
        "seed: Shared and separate verification; C1",
        task("size=$(stat -c %s log)\n" + facts(writing=soon("[ $(stat -c %s log) -gt $size ]"))),
        script("(while echo tick; do echo tock >> /app/log; sleep 0.05; done) & until [ -s log ]; do sleep 0.05; done"),
        holds(outcome="Succeeded"),
    ),
)

TRANSCRIPT = (
    Case(
        "transcript-of-nop",
        "the transcript is ATIF v1.7 with the instruction as the user's step",
        f"{SOURCE}; C24",
        task(
            facts(
                version=transcript_has('t["schema_version"] == "ATIF-v1.7"'),
                instruction=transcript_has('t["steps"][0]["message"].strip() == "Do it."'),
                from_the_user=transcript_has('t["steps"][0]["source"] == "user"'),
                agent=transcript_has('t["agent"]["name"] == "nop"'),
            )
        ),
        NOP,
        holds(),
    ),
)

BETWEEN_TURNS = (
    Case(
        "inputs-outlive-every-reset",
        "in a multi-step task a declared input survives the reset before every turn",
        "seed: Sidecar inputs",
        {
            **{
                f"turns/{path}": content
                for path, content in steps.stepped(
                    steps.step(facts(kept='[ "$(cat /logs/verifier/acts)" = one ]', other=NO_OTHER)),
                    steps.step(facts(kept='[ "$(paste -sd " " /logs/verifier/acts)" = "one two" ]', other=NO_OTHER)),
                ).items()
            },
            "dataset.toml": '[gym.tasks."turns".verifier]\ninputs = ["acts"]\n',
        },
        script("echo $TASKFOLD_STEP >> /logs/verifier/acts; touch /logs/verifier/other"),
        holds(),
        {"task": {"path": "turns"}},
    ),
)

TOOLS = (
    without("bash", "no-bash", "verifier_error"),
    without("timeout", "no-timeout", "verifier_error"),
    without("tar, gzip, find", "no-tar", "provider_unavailable"),
    without("bash, timeout, tar, gzip, find", "no-shell", "provider_unavailable"),
)

CASES: tuple[Case, ...] = (
    ORDER,
    *HOOKS,
    *RESET,
    *UPLOAD,
    *START,
    *SHARED,
    *TRANSCRIPT,
    *BETWEEN_TURNS,
    *TOOLS,
)
