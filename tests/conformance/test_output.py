"""Output of anything is bounded: 10 MiB of head, 10 MiB of tail, a marked gap; never in the operator (C27)."""

import os
import re
from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.conftest import Runner
from tests.conformance.facts import broken, facts, kept
from tests.conformance.harness import DEFAULT_TOML, NOP, script, task

MIB = 2**20
SIZE = 1024 * MIB if os.environ.get("TASKFOLD_SOAK") == "1" else 104 * MIB
HEAD = TAIL = 10 * MIB
MARK = re.compile(rb"\n\[taskfold: (\d+) bytes left out\]\n")
GROWTH = 32 * MIB
"""What the operator's memory may grow by: a fraction of what is kept, let alone of what was printed."""

PRINTS = f"echo first; yes 0123456789 | head -c {SIZE}; echo last\n"
PRINTED = SIZE + len("first\nlast\n")


def check(log: bytes, printed: int = PRINTED) -> None:
    """The log of `PRINTS`: its head, the mark with the right number, its tail."""
    marks = MARK.findall(log)
    assert [int(mark) for mark in marks] == [printed - HEAD - TAIL]
    assert len(log) == HEAD + TAIL + len(b"\n[taskfold:  bytes left out]\n") + len(marks[0])
    head, _, tail = MARK.split(log)
    assert (len(head), len(tail)) == (HEAD, TAIL)
    assert head.startswith(b"first\n0123456789\n")
    assert tail.endswith(b"last\n")


@pytest.mark.bulk
def test_a_test_sh_that_prints_1_gib_costs_the_operator_nothing(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    body = PRINTS + facts(
        bounded_while_it_is_written=f"[ $(stat -c %s /logs/verifier/test-stdout.txt) -le {HEAD + TAIL} ]"
    )
    cluster.create_run(namespace, f"{name}-warm", harness.spec(task("echo something"), NOP))
    cluster.finished(namespace, f"{name}-warm")
    before = operator.rss()
    cluster.create_run(namespace, name, harness.spec(task(body), NOP))
    highest = before

    def complete() -> dict[str, Any] | None:
        nonlocal highest
        highest = max(highest, operator.rss())
        status = cluster.status(namespace, name)
        return status if status.get("complete") else None

    status = cluster.until(complete, "the run is complete", 110)
    assert not broken(status)
    assert highest - before < GROWTH
    check(kept(operator, status)["logs/verifier/test-stdout.txt"])


@pytest.mark.bulk
def test_the_output_of_an_agent_and_its_install_is_bounded_in_the_same_way(
    run: Runner, operator: harness.Operator
) -> None:
    status = run(task("echo 1 > /logs/verifier/reward.txt"), script(PRINTS, install=PRINTS))
    files = kept(operator, status)
    assert (status["reward"], status["agent"]["outcome"]) == ("1", "Succeeded")
    check(files["logs/agent/stdout.txt"])
    check(files["logs/agent/install-stdout.txt"])


@pytest.mark.parametrize("size", [HEAD + TAIL, HEAD + TAIL + 1])
def test_a_gap_is_marked_from_the_first_byte_that_is_left_out(
    run: Runner, operator: harness.Operator, size: int
) -> None:
    status = run(task(f"yes | head -c {size}; exec > /dev/null; echo 1 > /logs/verifier/reward.txt"), NOP)
    log = kept(operator, status)["logs/verifier/test-stdout.txt"]
    assert status["reward"] == "1"
    assert [int(mark) for mark in MARK.findall(log)] == ([] if size == HEAD + TAIL else [1])
    assert len(MARK.sub(b"", log)) == HEAD + TAIL


@ahead.run(
    task(
        "echo 1 > /logs/verifier/reward.txt",
        toml=DEFAULT_TOML + f'[[verifier.collect]]\ncommand = "yes | head -c {SIZE // 4}"\n',
    )
)
def test_a_hook_may_print_as_much_as_it_likes(status: dict[str, Any]) -> None:
    assert status["reward"] == "1"
    assert "warnings" not in status


@ahead.run(task("head -c 3000000 /dev/urandom; printf '\\0\\033[31m\\377'; echo the end"))
def test_output_that_is_no_text_harms_no_message(status: dict[str, Any]) -> None:
    assert status["failure"]["kind"] == "harbor:missing_reward"
    assert "the end" in status["failure"]["message"]
    assert len(status["failure"]["message"]) <= 2000


@ahead.run(task("yes > /dev/full; yes | head -c 1000 >&2; exec >&-; exec 2>&-; echo 1 > /logs/verifier/reward.txt"))
def test_a_test_sh_that_closes_its_output_is_graded(status: dict[str, Any]) -> None:
    assert status["reward"] == "1"


@ahead.run(task("rm -f /logs/verifier/test-stdout.txt; yes | head -c 30000000; echo 1 > /logs/verifier/reward.txt"))
def test_a_test_sh_that_removes_its_log_is_graded(status: dict[str, Any]) -> None:
    assert status["reward"] == "1"


@ahead.run(
    task(
        "yes | head -c 15000000; : > /logs/verifier/test-stdout.txt; yes | head -c 15000000\n"
        "echo 1 > /logs/verifier/reward.txt"
    )
)
def test_a_test_sh_that_empties_its_log_is_graded(status: dict[str, Any]) -> None:
    assert status["reward"] == "1"
