"""Reward files: what counts as a reward, what is missing or invalid, and what a limit means for it."""

from __future__ import annotations

import json

from taskfold.conformance.case import NOP, TOML, Case, Expect, counted, rewarded, task

SOURCE = "seed: Reward files"
LIMIT = 4
"""Seconds. Room for a test.sh to write its reward on a machine that has much else to do."""
SHORT = TOML + f"[verifier]\ntimeout_sec = {LIMIT}\n"

Content = str | bytes


def missing(**more: object) -> Expect:
    """0, because there is no reward file."""
    return counted("harbor:missing_reward", "RewardMissing", terminal=False, **more)


def invalid(says: str = "", **more: object) -> Expect:
    """0, because of what the file is or holds."""
    return counted("harbor:invalid_reward", "RewardInvalid", says=(says,), **more)


def timed_out(**more: object) -> Expect:
    """0, because there was no reward at the limit."""
    status = {"verifier.timedOut": True}
    return counted("harbor:verifier_timeout", "VerifierTimedOut", status=status, absent=("rewards",), **more)


def written(id: str, proves: str, expect: Expect, source: str = SOURCE, **files: Content) -> Case:  # noqa: A002
    """A test.sh that leaves these very files: `txt` as reward.txt, `json` as reward.json."""
    names = {f"reward.{end}": content for end, content in files.items()}
    body = "".join(f"cp /tests/{name} /logs/verifier/\n" for name in names)
    folder = {**task(body), **{f"tests/{name}": content for name, content in names.items()}}
    return Case(id, proves, source, folder, NOP, expect)


def run(id: str, proves: str, source: str, body: str, expect: Expect, *, toml: str = TOML, **spec: object) -> Case:  # noqa: A002
    """A test.sh with this body."""
    return Case(id, proves, source, task(body, toml=toml), NOP, expect, spec)


ONE = "echo 1 > /logs/verifier/reward.txt\n"

TEXT = (
    written(
        "reward-txt",
        "reward.txt holds one number, which is the reward",
        rewarded("0.25", rewards={"reward": 0.25}, components=()),
        txt="0.25\n",
    ),
    written(
        "reward-txt-as-float-reads-it",
        "reward.txt is what Python's float() takes after stripping white space",
        rewarded("-1000"),
        source="C7",
        txt=" \t-1_0e2\r\n\n",
    ),
    written(
        "reward-txt-exact",
        "the reward of the status is the same number, whatever its size",
        rewarded("-1.25e+22"),
        txt="-12500000000000000000000",
    ),
    written("reward-txt-empty", "an empty reward.txt is invalid", invalid("reward.txt"), txt=b""),
    written("reward-txt-word", "a malformed reward.txt is invalid", invalid("reward.txt"), txt="one\n"),
    written("reward-txt-two-numbers", "reward.txt holds one number, not two", invalid("reward.txt"), txt="1 2\n"),
    written("reward-txt-nan", "a reward that is not a finite number is invalid", invalid("reward.txt"), txt="nan\n"),
    written(
        "reward-txt-too-large-a-number", "a number beyond a float is not finite", invalid("reward.txt"), txt="1e999\n"
    ),
    written(
        "reward-txt-undecodable",
        "undecodable bytes are invalid, never a crash",
        invalid("reward.txt"),
        "C7",
        txt=b"\xff\xfe1",
    ),
    written("reward-txt-64-kib", "reward.txt may have 64 KiB", rewarded(), "C7", txt="1" + " " * 65535),
    written(
        "reward-txt-longer",
        "a longer reward.txt is invalid, never cut off",
        invalid("reward.txt"),
        "C7",
        txt="1" + " " * 65536,
    ),
)

JSON = (
    written(
        "reward-json-metrics",
        "in reward.json the key reward is the score and the other keys are metrics",
        rewarded("0.5", rewards={"reward": 0.5, "speed": 3}, components=()),
        json='{"reward": 0.5, "speed": 3}',
    ),
    written(
        "reward-json-booleans",
        "booleans count as numbers",
        rewarded("1", rewards={"reward": 1, "tidy": 0}),
        json='{"reward": true, "tidy": false}',
    ),
    written(
        "reward-json-components",
        "without a reward key every key is a component: the score is their sum, and the result names them",
        rewarded("1.75", rewards={"a": 0.25, "b": 0.5, "c": 1}, components=("a", "b", "c")),
        json='{"a": 0.25, "b": 0.5, "c": true}',
    ),
    written(
        "reward-json-other-keys",
        "two tasks may write different keys: none is padded, none renamed",
        rewarded("0.75", rewards={"only / one\u0301": 0.75}, components=("only / one\u0301",)),
        json='{"only / one\u0301": 0.75}',
    ),
    written(
        "reward-json-odd-names",
        "a metric may have any name: none, a long one, one of control characters, a path",
        rewarded("0.5", status={"rewards.": 2, "rewards.reward": 0.5}),
        "C8",
        json=json.dumps({"reward": 0.5, "": 2, "k" * 20_000: 2, "a\x00b\n\x1b[31m": 2, "../../a/b~1c": 2}),
    ),
    written(
        "reward-json-name-that-is-no-text",
        "a name that is no text, a lone surrogate, makes the file invalid",
        invalid("reward.json"),
        "C8",
        json='{"reward": 1, "\\ud800": 2}',
    ),
    written(
        "reward-json-wins",
        "reward.json wins whenever it exists",
        rewarded("0.5", rewards={"reward": 0.5}),
        txt="1\n",
        json='{"reward": 0.5}',
    ),
    written(
        "reward-json-wins-malformed",
        "reward.json wins even when it is malformed",
        invalid("reward.json"),
        txt="1\n",
        json='{"reward": 1',
    ),
    written("reward-json-empty-object", "reward.json holds a non-empty object", invalid("reward.json"), json="{}"),
    written("reward-json-empty-file", "an empty reward.json is invalid", invalid("reward.json"), txt="1\n", json=b""),
    written("reward-json-number", "a bare number in reward.json is invalid", invalid("reward.json"), "C8", json="1"),
    written("reward-json-list", "a list in reward.json is invalid", invalid("reward.json"), "C8", json="[1]"),
    written("reward-json-null", "null in reward.json is invalid", invalid("reward.json"), "C8", json="null"),
    written("reward-json-text-value", "a value must be a number", invalid("reward.json"), json='{"reward": "1"}'),
    written(
        "reward-json-infinite-metric",
        "a metric that is not finite makes the whole file invalid",
        invalid("reward.json"),
        json='{"reward": 1, "speed": Infinity}',
    ),
    written(
        "reward-json-no-finite-sum",
        "components with no finite sum are invalid",
        invalid("reward.json"),
        json='{"a": 1e308, "b": 1e308}',
    ),
    written(
        "reward-json-huge-integer",
        "an integer too large for a float is invalid",
        invalid("reward.json"),
        "C8",
        json='{"reward": 1' + "0" * 400 + "}",
    ),
    written(
        "reward-json-twice-and-bom",
        "a byte order mark is tolerated, and of duplicate keys the last counts",
        rewarded("0.2", rewards={"reward": 0.2}),
        "C8",
        json='\ufeff{"reward": 0.1, "reward": 0.2}'.encode(),
    ),
    written(
        "reward-json-not-utf-8",
        "bytes that are no UTF-8 are invalid",
        invalid("reward.json"),
        "C8",
        json=b'{"\xff": 2}',
    ),
    written(
        "reward-json-many-components",
        "any number of components is summed; the status says how many names it leaves out",
        rewarded("500", warns=(" of 500 rewards",)),
        "C8",
        json="{" + ", ".join(f'"part {number:03d}": 1' for number in range(500)) + "}",
    ),
    run(
        "reward-json-8-mib",
        "reward.json may have 8 MiB",
        "C8",
        "(printf '{\"reward\": 1}'; head -c 8388595 /dev/zero | tr '\\0' ' ') > /logs/verifier/reward.json",
        rewarded(),
    ),
    run(
        "reward-json-longer",
        "a longer reward.json is invalid",
        "C8",
        "(printf '{\"reward\": 1}'; head -c 8388596 /dev/zero | tr '\\0' ' ') > /logs/verifier/reward.json",
        invalid("reward.json"),
    ),
)

ENDS = (
    run(
        "exit-code-of-a-pass",
        "the exit code of test.sh does not affect the score",
        SOURCE,
        ONE + "exit 77\n",
        rewarded(status={"verifier.returnCode": 77}),
    ),
    run(
        "killed-by-a-signal",
        "a test.sh that a signal ends keeps the reward that it wrote",
        SOURCE,
        ONE + "kill -9 $$\n",
        rewarded(absent=("verifier.returnCode",)),
    ),
    run(
        "no-reward-file",
        "without a reward file the score is 0, and the message quotes what test.sh said",
        SOURCE,
        "echo 'nothing to say'; exit 3\n",
        missing(says=("nothing to say",), absent=("rewards",), status={"verifier.returnCode": 3}),
    ),
    run("no-reward-folder", "a removed folder is a missing reward", SOURCE, "rm -rf /logs/verifier\n", missing()),
    run(
        "verifier-timeout",
        "past its limit without a reward test.sh scores 0",
        SOURCE,
        "sleep 600\n",
        timed_out(),
        toml=SHORT,
    ),
    run(
        "verifier-timeout-kills-the-group",
        "at the limit the whole process group is killed",
        "C5",
        "trap '' TERM INT HUP; (sleep 600; echo 1 > /logs/verifier/reward.txt) & wait\n",
        timed_out(),
        toml=SHORT,
    ),
    run(
        "reward-before-a-timeout",
        "a reward written before a timeout still stands",
        SOURCE + "; C3",
        "echo 0.5 > /logs/verifier/reward.txt; sleep 600\n",
        rewarded("0.5", status={"verifier.timedOut": True}),
        toml=SHORT,
    ),
    run(
        "malformed-before-a-timeout",
        "a malformed reward at the limit is invalid, not a timeout",
        "C4",
        "printf '{' > /logs/verifier/reward.json; sleep 600\n",
        invalid("reward.json", status={"verifier.timedOut": True}),
        toml=SHORT,
    ),
    run(
        "verifier-timeout-scaled",
        "the timeout multiplier scales the verifier's limit; fractions of a second count",
        SOURCE + "; C5",
        "sleep 600\n",
        timed_out(),
        toml=TOML + "[verifier]\ntimeout_sec = 50\n",
        multipliers={"timeout": 0.03},
    ),
    run(
        "verifier-timeout-of-the-run",
        "a limit of the run wins over the task's",
        "spec.verifier.timeoutSeconds",
        "sleep 600\n",
        timed_out(),
        verifier={"timeoutSeconds": 1.5},
    ),
)

ELSEWHERE = "echo 1 > /tmp/one; echo '{\"reward\": 1}' > /tmp/one.json\n"
PLACED = {
    "link": ("a link", "ln -s /tmp/one.json /logs/verifier/reward.json\n"),
    "dangling-link": ("a link to nothing", "ln -s /nowhere /logs/verifier/reward.json\n"),
    "fifo": ("a FIFO", "mkfifo /logs/verifier/reward.txt\n"),
    "folder": ("a folder", "mkdir /logs/verifier/reward.txt\n"),
    "socket": (
        "a socket",
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/logs/verifier/reward.txt\")'\n",
    ),
    "linked-folder": (
        "a file in a linked folder",
        "mkdir /tmp/v; echo 1 > /tmp/v/reward.txt; rm -rf /logs/verifier; ln -s /tmp/v /logs/verifier\n",
    ),
}
STRANGE = tuple(
    run(
        f"reward-is-a-{name}",
        f"{what} at a reward's path is invalid: not followed, and nothing blocks",
        "C9",
        ELSEWHERE + body,
        invalid(),
    )
    for name, (what, body) in PLACED.items()
)

CASES: tuple[Case, ...] = TEXT + JSON + ENDS + STRANGE
