"""Shared verification in the agent's sandbox (seed "How the verifier runs"; C24, C26, C27)."""

import json
from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.conftest import Runner
from tests.conformance.facts import broken, facts, kept, soon
from tests.conformance.harness import DEFAULT_TOML, NOP, script, task

Status = dict[str, Any]

TRAJECTORY = "/logs/agent/trajectory.json"


def hook(command: str, more: str = "") -> str:
    """A collect hook in task.toml."""
    return f"[[verifier.collect]]\ncommand = {json.dumps(command)}\n{more}"


def hooks(*commands: str) -> str:
    """task.toml with collect hooks."""
    return DEFAULT_TOML + "".join(map(hook, commands))


def transcript_has(expression: str) -> str:
    """A check of the transcript in Python; `t` is the document."""
    return f"python3 -c 'import json, sys; t = json.load(open(\"{TRAJECTORY}\")); sys.exit(not ({expression}))'"


# -- the order -----------------------------------------------------------------------------------------------------


@ahead.run(
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
        toml=hooks("cd / && find /tests /logs > /app/seen; echo -n ' hook' >> /app/order; touch /logs/verifier/hook"),
        **{"tests/data/expected.txt": "forty-two"},
    ),
    script("echo -n agent > order; mkdir -p /tests; touch /tests/planted /logs/verifier/planted"),
)
def test_the_order_is_hooks_reset_upload_transcript_test_sh(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(hooks='[ "$(cat order)" = "one two three" ]', working_directory='[ "$(cat where)" = /app ]'),
        toml=hooks("echo -n one > order", "echo -n ' two' >> order; pwd > where", "echo -n ' three' >> order"),
    )
)
def test_the_collect_hooks_run_one_after_the_other_in_the_working_directory(status: Status) -> None:
    assert not broken(status)
    assert "warnings" not in status


@ahead.run(
    task(
        facts(the_third_ran="[ -e third ]"),
        toml=hooks("exit 3") + hook("sleep 600", "timeout_sec = 0.5\n") + hook("touch third"),
    )
)
def test_a_collect_hook_that_fails_is_a_warning_and_never_a_verdict(status: Status) -> None:
    assert not broken(status)
    assert len(status["warnings"]) == 2
    assert all("verifier.collect" in warning for warning in status["warnings"])


# -- the reset -----------------------------------------------------------------------------------------------------


@ahead.run(
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
        "echo 'raise SystemExit(1)' > /tests/helper.py; touch /tests/.hidden /tests/deep/er/x $'/tests/new\\nline'\n"
        "echo 1 > /logs/verifier/reward.txt; echo fake > /logs/verifier/test-stdout.txt; mkfifo /tests/pipe\n"
        "touch /logs/verifier/.hidden/deep/x /logs/verifier/ctrf.json"
    ),
)
def test_the_agent_cannot_plant_a_reward_a_helper_or_a_test_report(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(facts(gone="[ ! -e /tests/image-helper.sh ]")),
    script("true", install="mkdir -p /tests; touch /tests/image-helper.sh"),
)
def test_helpers_that_the_image_ships_in_tests_are_gone(status: Status) -> None:
    assert not broken(status)


# -- upload --------------------------------------------------------------------------------------------------------


@ahead.run(
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
    }
)
def test_tests_are_uploaded_and_test_sh_is_made_executable(status: Status) -> None:
    assert not broken(status)


# -- transcript (C24) ----------------------------------------------------------------------------------------------


@ahead.run(
    task(
        facts(
            version=transcript_has('t["schema_version"] == "ATIF-v1.7"'),
            instruction=transcript_has('t["steps"][0]["message"].strip() == "Do it."'),
            from_the_user=transcript_has('t["steps"][0]["source"] == "user"'),
            agent=transcript_has('t["agent"]["name"] == "nop"'),
            owner=f'[ "$(stat -c %a:%u {TRAJECTORY})" = 644:0 ]',
        )
    )
)
def test_the_transcript_is_atif_1_7_with_the_instruction(status: Status) -> None:
    assert not broken(status)


def own_transcript(version: str, **changes: Any) -> str:
    document = {
        "schema_version": version,
        "session_id": "s",
        "agent": {"name": "mine", "version": "1"},
        "steps": [{"step_id": 1, "source": "user", "message": "hello from the agent"}],
        **changes,
    }
    return f"cat > {TRAJECTORY} <<'END'\n{json.dumps(document)}\nEND\n"


@pytest.mark.parametrize("version", ["ATIF-v1.7", "ATIF-v1.2"])
@ahead.run(
    task(
        facts(
            version=transcript_has('t["schema_version"] == "ATIF-v1.7"'),
            own=transcript_has('t["steps"][0]["message"] == "hello from the agent"'),
        )
    ),
    lambda version: script(own_transcript(version)),
)
def test_a_valid_transcript_of_the_agents_own_is_kept_as_1_7(status: Status, version: str) -> None:
    assert not broken(status)


@pytest.mark.parametrize(
    "written",
    [
        own_transcript("ATIF-v9.9"),
        own_transcript("ATIF-v1.7", steps="none"),
        f"echo '{{' > {TRAJECTORY}",
        f"mkfifo {TRAJECTORY}",
    ],
    ids=["unknown version", "invalid", "not JSON", "a FIFO"],
)
@ahead.run(
    task(facts(built=transcript_has('t["schema_version"] == "ATIF-v1.7" and t["agent"]["name"] == "script"'))),
    lambda written: script(f"cd /; {written}"),
)
def test_an_invalid_transcript_is_replaced_by_a_valid_one(status: Status, written: str) -> None:
    assert not broken(status)


# -- test.sh -------------------------------------------------------------------------------------------------------


@ahead.run(task(facts(where='[ "$(pwd)" = /work/deep ]'), toml=DEFAULT_TOML.replace("/app", "/work/deep")))
def test_test_sh_runs_from_the_working_directory(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(where='[ "$(pwd)" = /home/app ]'),
        toml='[environment]\ndocker_image = "docker.io/taskfold-test/user:1"\n',
    )
)
def test_without_a_workdir_test_sh_runs_from_the_images_working_directory(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    {
        **task(),
        "tests/test.sh": "#!/bin/false\n"
        + facts(bash='[ -n "$BASH_VERSION" ]', name='[ "$0" = /tests/test.sh ]', stdin="! read -r line"),
    }
)
def test_test_sh_runs_as_bash_tests_test_sh_whatever_its_first_line_says(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(
            file="[ -s result.txt ]",
            package="[ -x /usr/local/bin/tool ]",
            process='kill -0 "$(cat /app/pid)"',
        )
    ),
    script(
        "echo done > result.txt; printf '#!/bin/sh\\n' > /usr/local/bin/tool; chmod +x /usr/local/bin/tool\n"
        "sleep 600 & echo $! > pid"
    ),
)
def test_test_sh_runs_in_the_agents_sandbox_where_its_processes_keep_running(status: Status) -> None:
    assert not broken(status)


def test_the_output_of_test_sh_is_in_test_stdout_txt(run: Runner, operator: harness.Operator) -> None:
    there = soon("grep -qx 'to stdout' /logs/verifier/test-stdout.txt")  # the supervisor takes it from a pipe
    body = "echo to stdout; echo to stderr >&2\n" + facts(there=there)
    status = run(task(body), NOP)
    assert not broken(status)
    lines = kept(operator, status)["logs/verifier/test-stdout.txt"].decode().splitlines()
    assert lines[:2] == ["to stdout", "to stderr"]


def test_the_verification_is_an_object_of_its_own_that_the_run_owns(
    run: Runner, cluster: harness.Cluster, namespace: str, name: str
) -> None:
    status = run(task("echo 0.5 > /logs/verifier/reward.txt; exit 4"), NOP)
    verifier = cluster.verifier(namespace, status["verifier"]["name"])
    owner = verifier["metadata"]["ownerReferences"][0]
    assert verifier["metadata"]["name"] == f"{name}-1-verify"
    assert (owner["kind"], owner["name"]) == ("TaskRun", name)
    assert verifier["spec"]["mode"] == status["verifier"]["mode"] == "shared"
    assert (verifier["status"]["reward"], verifier["status"]["complete"]) == ("0.5", True)
    assert verifier["status"]["verifier"]["returnCode"] == status["verifier"]["returnCode"] == 4
