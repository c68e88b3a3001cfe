"""Reward files, on a real cluster (seed "Reward files"; C3 to C5, C7 to C9)."""

import base64
import json
from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.harness import DEFAULT_TOML, NOP, ORACLE, task

MISSING = ("harbor:missing_reward", "RewardMissing", "verification")
INVALID = ("harbor:invalid_reward", "RewardInvalid", "verification")
TIMED_OUT = ("harbor:verifier_timeout", "VerifierTimedOut", "verification")

Status = dict[str, Any]


def writes(file: str, content: str | bytes) -> str:
    """A line of test.sh that writes these very bytes."""
    encoded = base64.b64encode(content.encode() if isinstance(content, str) else content).decode()
    return f"echo '{encoded}' | base64 -d > /logs/verifier/{file}\n"


def counted_zero(status: Status) -> bool:
    """A reward of 0 that is part of the mean."""
    return (status["phase"], status["reward"], status.get("masked", False)) == ("Succeeded", "0", False)


# -- reward.txt ----------------------------------------------------------------------------------------------------


@ahead.run(task("echo 0.25 > /logs/verifier/reward.txt", solve="true"), ORACLE)
def test_reward_txt_holds_one_number_which_is_the_reward(status: Status) -> None:
    assert (status["phase"], status["reward"], status["rewards"]) == ("Succeeded", "0.25", {"reward": 0.25})
    assert "failure" not in status
    assert "rewardComponents" not in status


@pytest.mark.parametrize(
    ("text", "reward"),
    [(" \t1\r\n\n", "1"), ("-2.5", "-2.5"), ("+1e3", "1000"), ("1_0", "10"), ("0", "0"), ("1" + " " * 65535, "1")],
    ids=["white space", "negative", "exponent", "underscore", "zero", "64 KiB"],
)
@ahead.run(lambda text: task(writes("reward.txt", text)))
def test_reward_txt_holds_what_pythons_float_takes(status: Status, text: str, reward: str) -> None:
    assert (status["phase"], status["reward"]) == ("Succeeded", reward)
    assert "failure" not in status


@pytest.mark.parametrize(
    "content",
    [b"", b" \n", b"one", b"nan", b"inf", b"1e999", b"1 2", b"0x10", b"\xff\xfe1", b"1" + b" " * 65536],
    ids=["empty", "blank", "word", "nan", "inf", "1e999", "two numbers", "hex", "undecodable", "64 KiB and 1"],
)
@ahead.run(lambda content: task(writes("reward.txt", content)))
def test_an_empty_or_malformed_reward_txt_is_invalid(status: Status, content: bytes) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == INVALID
    assert "reward.txt" in status["failure"]["message"]


# -- reward.json ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "reward", "rewards", "components"),
    [
        ('{"reward": 0.5, "speed": 3}', "0.5", {"reward": 0.5, "speed": 3}, []),
        ('{"reward": true, "tidy": false}', "1", {"reward": 1, "tidy": 0}, []),
        ('{"a": 0.25, "b": 0.5, "c": true}', "1.75", {"a": 0.25, "b": 0.5, "c": 1}, ["a", "b", "c"]),
        ('{"only": 0.75}', "0.75", {"only": 0.75}, ["only"]),
        ('{"reward": 0.1, "reward": 0.2}', "0.2", {"reward": 0.2}, []),
        ('\ufeff{"reward": -1}\n', "-1", {"reward": -1}, []),
        ('{"reward": 1}' + " " * (8 * 2**20 - 13), "1", {"reward": 1}, []),
    ],
    ids=["a reward and a metric", "booleans", "components", "one component", "twice", "BOM", "8 MiB"],
)
@ahead.run(
    lambda document: task(
        f"python3 - <<'END'\nimport os\nopen('/logs/verifier/reward.json', 'w').write({document!r})\nEND\n"
        if len(document) < 1000
        else "(printf '{\"reward\": 1}'; head -c 8388595 /dev/zero | tr '\\0' ' ') > /logs/verifier/reward.json"
    )
)
def test_reward_json_holds_a_reward_with_metrics_or_components_that_are_summed(
    status: Status, document: str, reward: str, rewards: dict[str, float], components: list[str]
) -> None:
    assert (status["phase"], status["reward"], status["rewards"]) == ("Succeeded", reward, rewards)
    assert status.get("rewardComponents", []) == components
    assert "failure" not in status


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"1",
        b"[1]",
        b"null",
        b'{"reward": 1',
        b'{"reward": null}',
        b'{"reward": "1"}',
        b'{"reward": NaN}',
        b'{"reward": 1, "speed": Infinity}',
        b'{"a": 1e308, "b": 1e308}',
        b'{"reward": 1' + b"0" * 400 + b"}",
        b'{"reward": 1, "\xff": 2}',
    ],
    ids=[
        "empty", "no keys", "bare number", "list", "null", "cut off", "null value", "text", "NaN", "infinite metric",
        "no finite sum", "too large", "undecodable",
    ],
)  # fmt: skip
@ahead.run(lambda document: task("echo 1 > /logs/verifier/reward.txt\n" + writes("reward.json", document)))
def test_reward_json_wins_whenever_it_exists_even_when_it_is_malformed(status: Status, document: bytes) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == INVALID
    assert "reward.json" in status["failure"]["message"]


@ahead.run(task("echo 1 > /logs/verifier/reward.txt\n" + writes("reward.json", '{"reward": 0.5}')))
def test_reward_json_wins_over_reward_txt(status: Status) -> None:
    assert (status["reward"], status["rewards"]) == ("0.5", {"reward": 0.5})


@ahead.run(task("(printf '{\"reward\": 1}'; head -c 8388596 /dev/zero | tr '\\0' ' ') > /logs/verifier/reward.json"))
def test_a_reward_json_larger_than_8_mib_is_invalid(status: Status) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == INVALID


@ahead.run(task(writes("reward.json", str({f"part {number:03d}": 1 for number in range(500)}).replace("'", '"'))))
def test_any_number_of_components_is_summed_and_the_status_stays_small(
    cluster: harness.Cluster, namespace: str, run_name: str, status: Status
) -> None:
    assert (status["phase"], status["reward"]) == ("Succeeded", "500")
    assert len(str(status)) < 16 * 1024
    assert len(status["rewards"]) < 500


ODD_KEYS = {
    "no characters": "",
    "long": "k" * 20_000,
    "control characters": "a\x00b\n\x1b[31m",
    "other scripts": "ключ 🙂 " * 40,
    "a path": "../../a/b~1c",
}


@pytest.mark.parametrize("kind", ODD_KEYS)
@ahead.run(lambda kind: task(writes("reward.json", json.dumps({"reward": 0.5, ODD_KEYS[kind]: 2}))))
def test_a_metric_may_have_any_name(status: Status, kind: str) -> None:
    assert (status["phase"], status["reward"]) == ("Succeeded", "0.5")
    assert "failure" not in status


@ahead.run(task('printf \'{"reward": 1, "\\ud800": 2}\' > /logs/verifier/reward.json'))
def test_a_name_that_is_no_text_is_invalid(status: Status) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == INVALID


@pytest.mark.parametrize(
    ("text", "reward"), [("1e-400", "0"), ("-0.0", "0"), ("1e22", "1e+22"), ("0.1", "0.1"), ("123456789.125",) * 2]
)
@ahead.run(lambda text: task(writes("reward.txt", text)))
def test_the_reward_of_the_status_is_the_same_number(status: Status, text: str, reward: str) -> None:
    assert status["reward"] == reward
    assert float(status["reward"]) == float(text)
    assert "failure" not in status


# -- what else decides, and what does not --------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 77])
@ahead.run(lambda code: task(f"echo 1 > /logs/verifier/reward.txt; exit {code}"))
def test_the_exit_code_of_test_sh_does_not_affect_the_score(status: Status, code: int) -> None:
    assert status["reward"] == "1"
    assert status["verifier"]["returnCode"] == code
    assert "failure" not in status


@ahead.run(task("echo 1 > /logs/verifier/reward.txt; kill -9 $$"))
def test_a_test_sh_that_a_signal_ends_keeps_its_reward(status: Status) -> None:
    assert status["reward"] == "1"
    assert "returnCode" not in status["verifier"]
    assert "failure" not in status


@ahead.run(task("echo 'nothing to say'; exit 3"))
def test_no_reward_file_is_a_missing_reward(status: Status) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == MISSING
    assert "nothing to say" in status["failure"]["message"]
    assert "rewards" not in status


@ahead.run(task("rm -rf /logs/verifier"))
def test_a_removed_folder_is_a_missing_reward(status: Status) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == MISSING


# -- limits --------------------------------------------------------------------------------------------------------

LIMIT = 4
"""Seconds. Room for a test.sh to write its reward on a machine that has much else to do."""
SHORT = DEFAULT_TOML + f"[verifier]\ntimeout_sec = {LIMIT}\n"
ENDLESS = 60
"""Seconds. Who waits longer waits for what goes on for ten minutes."""


@ahead.run(task("sleep 600", toml=SHORT))
def test_a_timeout_without_a_reward_is_a_verifier_timeout(status: Status) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == TIMED_OUT
    assert status["verifier"]["timedOut"] is True
    assert LIMIT <= status["verifier"]["seconds"] < ENDLESS


@ahead.run(task("echo 0.5 > /logs/verifier/reward.txt; sleep 600", toml=SHORT))
def test_a_reward_written_before_a_timeout_still_stands(status: Status) -> None:
    assert (status["reward"], status["verifier"]["timedOut"]) == ("0.5", True)
    assert "failure" not in status


@ahead.run(task("printf '{' > /logs/verifier/reward.json; sleep 600", toml=SHORT))
def test_a_malformed_reward_written_before_a_timeout_is_invalid(status: Status) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == INVALID
    assert status["verifier"]["timedOut"] is True


@ahead.run(task("trap '' TERM INT HUP; (sleep 600; echo 1 > /logs/verifier/reward.txt) & wait", toml=SHORT))
def test_at_the_limit_the_whole_process_group_is_killed(status: Status) -> None:
    assert ahead.failure(status) == TIMED_OUT
    assert status["verifier"]["seconds"] < ENDLESS


@ahead.run(task("sleep 600", toml=DEFAULT_TOML + "[verifier]\ntimeout_sec = 50\n"), multipliers={"timeout": 0.01})
def test_the_timeout_multiplier_scales_the_limit(status: Status) -> None:
    assert ahead.failure(status) == TIMED_OUT
    assert 0.5 <= status["verifier"]["seconds"] < ENDLESS


@ahead.run(task("sleep 600"), verifier={"timeoutSeconds": 0.5})
def test_the_runs_own_verifier_limit_wins_over_the_tasks(status: Status) -> None:
    assert ahead.failure(status) == TIMED_OUT
    assert 0.5 <= status["verifier"]["seconds"] < ENDLESS


# -- what stands at a reward's path (C9) ---------------------------------------------------------------------------

ELSEWHERE = "echo 1 > /tmp/one; echo '{\"reward\": 1}' > /tmp/one.json\n"
PLACED = {
    "a link to a reward.txt": "ln -s /tmp/one /logs/verifier/reward.txt",
    "a link to a reward.json": "ln -s /tmp/one.json /logs/verifier/reward.json",
    "a dangling link": "ln -s /nowhere /logs/verifier/reward.json",
    "a FIFO": "mkfifo /logs/verifier/reward.txt",
    "a FIFO at reward.json": "echo 1 > /logs/verifier/reward.txt; mkfifo /logs/verifier/reward.json",
    "a directory": "mkdir /logs/verifier/reward.txt",
    "a device": "mknod /logs/verifier/reward.txt c 1 5",
    "a socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/logs/verifier/reward.txt\")'",
    "a linked folder": "mkdir /tmp/v; echo 1 > /tmp/v/reward.txt; rm -rf /logs/verifier; ln -s /tmp/v /logs/verifier",
}


@pytest.mark.parametrize("placed", PLACED)
@ahead.run(lambda placed: task(ELSEWHERE + PLACED[placed]), NOP)
def test_a_reward_path_that_is_not_a_regular_file_is_invalid_and_blocks_nothing(status: Status, placed: str) -> None:
    assert counted_zero(status)
    assert ahead.failure(status) == INVALID
