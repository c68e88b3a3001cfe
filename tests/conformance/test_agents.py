"""The agents oracle, nop and script, and how their work ends (C1, C11, C12)."""

from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.conftest import Runner
from tests.conformance.facts import broken, facts, kept, soon
from tests.conformance.harness import DEFAULT_TOML, NOP, ORACLE, script, task

Status = dict[str, Any]

ONE = "echo 1 > /logs/verifier/reward.txt"
LIMIT = 4
"""Seconds. Room for an agent's first commands on a machine that has much else to do."""
SHORT = DEFAULT_TOML + f"[agent]\ntimeout_sec = {LIMIT}\n"
ENDLESS = 60
"""Seconds. Who waits longer waits for what goes on for ten minutes."""

SERVER = "import http.server; http.server.HTTPServer(('127.0.0.1', 8123), http.server.SimpleHTTPRequestHandler).serve_forever()"  # fmt: skip # noqa: E501
FETCH = """python3 - <<'END'
import time, urllib.request
for _ in range(600):
    try:
        page = urllib.request.urlopen("http://127.0.0.1:8123/page.txt", timeout=60).read()
    except OSError:
        time.sleep(0.1)
    else:
        raise SystemExit(page != b"served")
raise SystemExit(2)
END"""


def outcome(status: Status) -> str | None:
    """How the agent's phase ended; the run itself has a verdict."""
    assert status["phase"] == "Succeeded", status
    return status["agent"].get("outcome")


# -- oracle and nop ------------------------------------------------------------------------------------------------


@ahead.run(
    task(
        facts(
            where='[ "$(cat /app/where)" = /app ]',
            bash="[ -s /app/bash ]",
            data='[ "$(cat /app/data)" = "of the solution" ]',
            stdin="[ -e /app/no-input ]",
        ),
        solve="pwd > where; echo $BASH_VERSION > bash; cp /solution/files/data data; read x || touch no-input",
        **{"solution/files/data": "of the solution"},
    ),
    ORACLE,
)
def test_the_oracle_runs_the_reference_solution_in_the_working_directory(status: Status) -> None:
    assert not broken(status)
    assert (outcome(status), status["agent"]["name"], status["agent"]["returnCode"]) == ("Succeeded", "oracle", 0)


@ahead.run(task(ONE, solve="exit 5"), ORACLE)
def test_an_oracle_that_fails_is_graded_all_the_same(status: Status) -> None:
    assert (outcome(status), status["agent"]["returnCode"], status["reward"]) == ("Failed", 5, "1")


@ahead.run(task(ONE), ORACLE)
def test_an_oracle_without_a_solution_is_refused(status: Status) -> None:
    assert status["phase"] == "Failed"
    assert status["failure"]["terminal"] is True
    assert "solution/solve.sh" in status["failure"]["message"]
    assert "podName" not in status


@ahead.run(task(facts(untouched='[ -z "$(ls -A /app)" ]', no_solution="[ ! -e /solution ]"), solve="touch x"), NOP)
def test_the_nop_agent_leaves_the_sandbox_untouched(status: Status) -> None:
    assert not broken(status)
    assert (outcome(status), status["agent"]["name"]) == ("Skipped", "nop")
    assert "returnCode" not in status["agent"]


# -- script --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def sources(cluster: harness.Cluster, namespace: str) -> None:
    cluster.core.create_namespaced_config_map(
        namespace, {"metadata": {"name": "settings"}, "data": {"MODEL": "m1", "PLACE": "here"}}
    )


@ahead.run(
    task(
        facts(
            run='[ "$(cat seen)" = "m2|here|one|of the map|three" ]',
            install='[ "$(cat /installed)" = "m2|here|/app|0" ]',
            not_in_tests='[ -z "$MODEL$DIRECT" ]',
        ),
        toml=DEFAULT_TOML + '[environment.env]\nTASK = "three"\nPLACE = "overridden"\n',
    ),
    script(
        'echo "$MODEL|$PLACE|$DIRECT|$FROM_KEY|$TASK" > seen',
        install='echo "$MODEL|$PLACE|$(pwd)|$(id -u)" > /installed',
        env=[
            {"name": "DIRECT", "value": "one"},
            {"name": "MODEL", "value": "m2"},
            {"name": "FROM_KEY", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "word"}}},
        ],
        envFrom=[{"configMapRef": {"name": "settings"}}],
    ),
)
def test_the_script_agent_has_env_and_env_from_and_waits_for_them(
    cluster: harness.Cluster, namespace: str, run_name: str
) -> None:
    cluster.in_phase(namespace, run_name, "Running")
    cluster.core.create_namespaced_config_map(
        namespace, {"metadata": {"name": "words"}, "data": {"word": "of the map"}}
    )
    status = ahead.verdict(cluster, namespace, run_name)
    assert not broken(status)
    assert outcome(status) == "Succeeded"


@ahead.run(task(ONE), script("echo 'no idea' >&2; exit 3"))
def test_an_agent_that_fails_is_counted_by_what_the_verifier_says(status: Status) -> None:
    assert (outcome(status), status["agent"]["returnCode"], status["reward"]) == ("Failed", 3, "1")
    assert "no idea" in status["agent"]["message"]
    assert "failure" not in status


@ahead.run(task(ONE), script("kill -9 $$"))
def test_an_agent_that_a_signal_ends_has_failed(status: Status) -> None:
    assert (outcome(status), status["reward"]) == ("Failed", "1")
    assert "returnCode" not in status["agent"]
    assert "signal" in status["agent"]["message"]


@pytest.mark.parametrize(
    ("toml", "agent", "multipliers"),
    [
        (SHORT, script("touch begun; sleep 600"), {}),
        (DEFAULT_TOML, script("touch begun; sleep 600", timeoutSeconds=LIMIT), {}),
        (SHORT.replace(f"= {LIMIT}\n", f"= {LIMIT * 100}\n"), script("touch begun; sleep 600"), {"timeout": 0.01}),
    ],
    ids=["of the task", "of the agent", "scaled"],
)
@ahead.run(
    lambda toml: task(facts(begun="[ -e begun ]"), toml=toml),
    lambda agent: agent,
    multipliers=lambda multipliers: multipliers,
)
def test_an_agent_over_its_limit_is_timed_out_and_verification_follows(
    status: Status, toml: str, agent: Any, multipliers: Any
) -> None:
    assert not broken(status)
    assert outcome(status) == "TimedOut"
    assert LIMIT <= status["agent"]["seconds"] < ENDLESS


# -- what the agent leaves running (C1) ----------------------------------------------------------------------------


@ahead.run(
    task(facts(group=soon("! kill -0 $(cat group)"), own_session="kill -0 $(cat own)"), toml=SHORT),
    script("sleep 600 & echo $! > group; setsid sleep 600 & echo $! > own; wait"),
)
def test_at_the_limit_the_process_group_is_killed_and_a_session_of_its_own_survives(status: Status) -> None:
    assert not broken(status)
    assert outcome(status) == "TimedOut"


@ahead.run(
    task(facts(group="kill -0 $(cat group)", own_session="kill -0 $(cat own)")),
    script("sleep 600 & echo $! > group; setsid sleep 600 & echo $! > own"),
)
def test_at_a_normal_end_nothing_is_signalled(status: Status) -> None:
    assert not broken(status)
    assert outcome(status) == "Succeeded"
    assert status["agent"]["seconds"] < ENDLESS


@ahead.run(
    task(facts(answers=FETCH)),
    script(f'echo -n served > page.txt; python3 -c "{SERVER}" &'),
)
def test_a_service_that_the_agent_left_running_answers_test_sh(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task("size=$(stat -c %s log)\n" + facts(writing=soon("[ $(stat -c %s log) -gt $size ]"))),
    script("(while echo tick; do echo tock >> /app/log; sleep 0.05; done) & until [ -s log ]; do sleep 0.05; done"),
)
def test_a_background_process_that_prints_after_the_agents_end_goes_on(status: Status) -> None:
    """It holds the agent's output open: neither blocked, nor ended by SIGPIPE, nor waited for."""
    assert not broken(status)
    assert status["agent"]["seconds"] < ENDLESS


# -- the agent never started (C12) ---------------------------------------------------------------------------------


@ahead.run(task(ONE), script("true", install="echo 'no such package' >&2; exit 100"))
def test_an_install_that_fails_is_tried_three_times_and_fails_the_run_in_stage_agent(
    cluster: harness.Cluster, namespace: str, run_name: str, status: Status
) -> None:
    assert status["phase"] == "Failed"
    assert ahead.failure(status) == (None, "AgentInstallFailed", "agent")
    assert status["failure"]["terminal"] is False
    assert "no such package" in status["failure"]["message"]
    assert status["attempts"][-1]["tries"] == 3
    assert status["podName"] == f"{run_name}-1-3"
    assert "reward" not in status


@ahead.run(task(ONE), script("true", install="while true; do sleep 0.1; done & exit 0"))
def test_an_install_may_leave_a_process_running(status: Status) -> None:
    assert (outcome(status), status["reward"]) == ("Succeeded", "1")


@ahead.run(task(ONE, solve="true", toml=DEFAULT_TOML.replace("/app", "/etc/passwd")), ORACLE)
def test_a_working_directory_that_is_a_file_fails_the_seed(status: Status) -> None:
    assert (status["phase"], ahead.failure(status)) == ("Failed", (None, "SeedFailed", "seed"))
    assert "/etc/passwd" in status["failure"]["message"]


@pytest.mark.parametrize("workdir", ["/var/run", "/var/run/deep"])
@ahead.run(
    lambda workdir: task(
        facts(link="[ -L /var/run ]", where=f'[ "$(pwd -P)" = {workdir.removeprefix("/var")} ]'),
        toml=DEFAULT_TOML.replace("/app", workdir),
    )
)
def test_a_link_of_the_image_on_the_way_to_the_working_directory_is_kept(status: Status, workdir: str) -> None:
    assert not broken(status)


# -- what is kept --------------------------------------------------------------------------------------------------


def test_the_agents_output_is_kept_with_its_logs(run: Runner, operator: harness.Operator) -> None:
    agent = script("echo working; echo note > /logs/agent/note.txt", install="echo installing")
    status = run(task(ONE), agent)
    files = kept(operator, status)
    assert files["logs/agent/stdout.txt"] == b"working\n"
    assert files["logs/agent/install-stdout.txt"] == b"installing\n"
    assert files["logs/agent/note.txt"] == b"note\n"
