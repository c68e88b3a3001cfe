"""What an agent may try against its verifier, and that it has no effect (C9, C19, C28, C29)."""

from typing import Any

import pytest

from tests.conformance import ahead, harness, inside
from tests.conformance.facts import broken, facts
from tests.conformance.harness import script, task

Status = dict[str, Any]

MISSING = ("harbor:missing_reward", "RewardMissing", "verification")
UNTOUCHED = facts(
    tests='[ "$(stat -c %F:%a:%u /tests)" = directory:755:0 ]',
    logs='[ "$(stat -c %F /logs)" = directory ]',
    verifier='[ "$(stat -c %F /logs/verifier)" = directory ]',
    passwd="grep -q ^root: /etc/passwd",
    trajectory="grep -q ATIF-v1.7 /logs/agent/trajectory.json",
    trajectory_is_a_file='[ "$(stat -c %F:%u /logs/agent/trajectory.json)" = "regular file:0" ]',
    outside='[ "$(cat /outside/file)" = outside ]',
    nothing_lands_outside='[ "$(ls -A /outside)" = file ]',
    test_is_ours='[ "$(head -c 11 /tests/test.sh)" = "#!/bin/bash" ]',
    no_plant="[ ! -e /tests/planted ]",
)
OUTSIDE = "mkdir /outside; echo outside > /outside/file\n"


# -- nothing to gain -----------------------------------------------------------------------------------------------

REWARDS = {
    "a reward": "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "a test.sh": "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod 755 /tests/*",
    "a link to a reward": "echo 1 > /tmp/r; ln -s /tmp/r /logs/verifier/reward.txt",
    "a read-only reward": "cd /logs/verifier; echo 1 > reward.txt; chmod 0444 reward.txt; chmod 0555 .",
}


@pytest.mark.parametrize("planted", REWARDS)
@ahead.run(task("true"), lambda planted: script(REWARDS[planted]))
def test_a_planted_reward_has_no_effect(status: Status, planted: str) -> None:
    assert (status["phase"], status["reward"]) == ("Succeeded", "0")
    assert ahead.failure(status) == MISSING


IN_THE_WAY = {
    "tests is a link": "rm -rf /tests; ln -s /outside /tests",
    "tests is a link to root": "rm -rf /tests; ln -s / /tests",
    "tests is a file": "rm -rf /tests; echo x > /tests",
    "tests is a FIFO": "rm -rf /tests; mkfifo /tests",
    "test.sh is a link": "mkdir -p /tests; ln -sf /outside/file /tests/test.sh",
    "logs/verifier is a link": "rm -rf /logs/verifier; ln -s /outside /logs/verifier",
    "logs is a link": "rm -rf /logs; ln -s /outside /logs",
    "logs is a file": "rm -rf /logs; touch /logs",
    "logs/agent is a link": "rm -rf /logs/agent; ln -s /outside /logs/agent",
    "reward.json is a link to passwd": "ln -s /etc/passwd /logs/verifier/reward.json",
    "test-stdout.txt is a link to passwd": "ln -s /etc/passwd /logs/verifier/test-stdout.txt",
    "trajectory.json is a link to passwd": "ln -sf /etc/passwd /logs/agent/trajectory.json",
    "trajectory.json is a hard link to passwd": "ln -f /etc/passwd /logs/agent/trajectory.json",
    "trajectory.json is a FIFO": "rm -f /logs/agent/trajectory.json; mkfifo /logs/agent/trajectory.json",
    "trajectory.json is a folder": "mkdir -p /logs/agent/trajectory.json/deep",
    "a FIFO in every folder": "mkdir -p /tests; mkfifo /tests/pipe /logs/verifier/reward.txt /logs/agent/pipe",
    "folders without rights": "mkdir -p /tests/a/b; chmod 0 /tests/a/b /tests/a /tests /logs/* /logs",
    "deep nesting": "mkdir -p /tests; cd /tests; for i in $(seq 300); do mkdir d; cd d; done; touch planted",
    "many files": "mkdir -p /tests; cd /tests; touch planted; seq -f n%g 5000 | xargs touch",
}  # fmt: skip


@pytest.mark.parametrize("case", IN_THE_WAY)
@ahead.run(task(UNTOUCHED), lambda case: script(OUTSIDE + IN_THE_WAY[case]))
def test_what_is_in_the_way_of_housekeeping_is_replaced_and_never_followed(status: Status, case: str) -> None:
    assert not broken(status)


# -- processes -----------------------------------------------------------------------------------------------------


@ahead.run(task(UNTOUCHED), script(OUTSIDE + "kill -9 -1"))
def test_an_agent_that_kills_everything_it_can_is_graded(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(UNTOUCHED), script(OUTSIDE + "for s in TERM INT HUP QUIT STOP USR1 KILL SEGV; do kill -$s 1; done; true")
)
def test_an_agent_cannot_end_the_sandboxs_first_process_by_a_signal(status: Status) -> None:
    assert not broken(status)


def test_writing_reward_files_after_test_sh_ended_does_not_change_the_reward(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    """The operator is stopped while test.sh ends, so that the agent's process has all the time it wants.

    It waits until the supervisor says that the phase is done: what is written before may still count.
    """
    agent = script(
        "(until [ -e /tmp/done ]; do sleep 0.05; done\n"
        "while true; do for f in txt json; do echo 1 > /logs/verifier/reward.$f; done; sleep 0.05; done) &"
    )
    body = "touch /tmp/begun; while [ ! -e /tmp/go ]; do sleep 0.05; done\n"
    cluster.create_run(namespace, name, harness.spec(task(body + "echo 0.25 > /logs/verifier/reward.txt"), agent))
    cluster.in_phase(namespace, name, "Verifying")
    pod = f"{name}-1-1"
    cluster.until(lambda: "begun" in inside.shell(cluster, namespace, pod, "ls /tmp"), "test.sh runs")
    operator.freeze()
    try:
        inside.shell(cluster, namespace, pod, "touch /tmp/go")
        inside.await_verification(cluster, namespace, name)
        inside.shell(cluster, namespace, pod, "touch /tmp/done")
        cluster.until(
            lambda: inside.shell(cluster, namespace, pod, "cat /logs/verifier/reward.json").strip() == "1",
            "overwritten",
        )
    finally:
        operator.thaw()
    status = ahead.verdict(cluster, namespace, name)
    assert (status["phase"], status["reward"]) == ("Succeeded", "0.25")
    assert "failure" not in status


@ahead.run(task("sleep 600 & echo 1 > /logs/verifier/reward.txt"), script("sleep 600 & (trap '' HUP TERM; yes) & true"))
def test_a_background_process_that_holds_output_open_hangs_nothing(status: Status) -> None:
    assert status["reward"] == "1"
    assert status["agent"]["seconds"] < 60
    assert status["verifier"]["seconds"] < 60


# -- tools (C28, C29) ----------------------------------------------------------------------------------------------


@ahead.run(
    task(UNTOUCHED),
    script(OUTSIDE + "cd /usr/bin; rm -f tar gzip find timeout; hash -r; ! command -v tar timeout find gzip"),
)
def test_an_agent_that_deletes_tar_gzip_find_and_timeout_is_graded(status: Status) -> None:
    assert not broken(status)
    assert status["agent"]["outcome"] == "Succeeded"


@ahead.run(
    task("echo 0.5 > /logs/verifier/reward.txt"),
    script("for t in tar gzip find timeout; do printf '#!/bin/sh\\nexit 1\\n' > /usr/bin/$t; done"),
)
def test_an_agent_that_replaces_tar_gzip_find_and_timeout_is_graded(status: Status) -> None:
    assert status["reward"] == "0.5"


@ahead.run(task("echo 1 > /logs/verifier/reward.txt"), script("rm -f /usr/bin/bash /bin/bash"))
def test_an_agent_that_deletes_bash_is_masked(status: Status) -> None:
    assert (status["phase"], status["masked"]) == ("Masked", True)
    assert status["failure"]["kind"] == "verifier_error"
    assert "reward" not in status


@ahead.run(task("echo 1 > /logs/verifier/reward.txt"), script("cd /usr/bin; rm -f bash; mkdir bash"))
def test_an_agent_that_puts_a_folder_in_bashs_place_is_masked(status: Status) -> None:
    assert (status["phase"], status["masked"]) == ("Masked", True)
    assert status["failure"]["kind"] == "verifier_error"


@ahead.run(
    task("echo 1 > /logs/verifier/reward.txt"),
    script("rm -rf /usr /bin /lib /lib64 /etc 2>/dev/null; true"),
)
def test_an_agent_that_deletes_the_whole_system_is_masked(status: Status) -> None:
    assert (status["phase"], status["masked"]) == ("Masked", True)
    assert status["failure"]["kind"] == "verifier_error"


@ahead.run(task(UNTOUCHED), script(OUTSIDE + "rm -rf /.taskfold/* 2>/dev/null; echo x > /.taskfold/helper; true"))
def test_an_agent_cannot_change_the_helper(status: Status) -> None:
    assert not broken(status)


@ahead.run(task("true"), script("rm -rf /app; echo no > /app"))
def test_an_agent_that_removes_the_working_directory_is_masked(status: Status) -> None:
    assert (status["phase"], status["failure"]["kind"]) == ("Masked", "verifier_error")
