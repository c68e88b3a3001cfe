"""Reward files, on a real cluster (seed "Reward files")."""

import pytest

from tests.conformance.conftest import Runner
from tests.conformance.harness import NOP, ORACLE, task


def test_reward_txt_holds_one_number_which_is_the_reward(run: Runner) -> None:
    status = run(task("echo 0.25 > /logs/verifier/reward.txt", solve="true"), ORACLE)
    assert (status["phase"], status["reward"], status["rewards"]) == ("Succeeded", "0.25", {"reward": 0.25})


@pytest.mark.parametrize("code", [0, 1, 77])
def test_the_exit_code_of_test_sh_does_not_affect_the_score(run: Runner, code: int) -> None:
    status = run(task(f"echo 1 > /logs/verifier/reward.txt; exit {code}"), NOP)
    assert status["reward"] == "1"
    assert status["verifier"]["returnCode"] == code
