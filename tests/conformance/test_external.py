"""An agent outside: the run waits for `spec.finish`, somebody works by exec, and what counts is the verifier's word."""

import json
from typing import Any

import pytest

from tests.conformance import harness

TOML = harness.DEFAULT_TOML
FILES = {
    "task.toml": TOML,
    "instruction.md": "Write 42 to answer.txt.\n",
    "tests/test.sh": 'if [ "$(cat answer.txt)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n',
}
SAYS = """grep -q 'forty-two' /logs/agent/trajectory.json && echo 1 > /logs/verifier/reward.txt"""
EXTERNAL = {"external": {}}


def start(cluster: harness.Cluster, namespace: str, name: str, **more: Any) -> None:
    files = more.pop("files", FILES)
    cluster.create_run(namespace, name, harness.spec(files, more.pop("agent", EXTERNAL), **more))


def awaited(cluster: harness.Cluster, namespace: str, name: str) -> str:
    """The pod of a run that waits for its end, as `kubectl wait` finds it."""
    wait = ("wait", f"taskrun/{name}", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
    harness.kubectl(cluster, "--namespace", namespace, *wait)
    cluster.shown(namespace, name, "AwaitingFinish")
    return str(cluster.status(namespace, name)["podName"])


def execute(cluster: harness.Cluster, namespace: str, pod: str, script: str) -> str:
    return harness.kubectl(cluster, "--namespace", namespace, "exec", pod, "--container=main", "--", "sh", "-c", script)


def test_somebody_works_by_exec_and_is_graded(cluster, namespace, operator, name):
    start(cluster, namespace, name)
    pod = awaited(cluster, namespace, name)
    status = cluster.status(namespace, name)
    assert status["agent"] == {"name": "external", "user": "0:0", "workdir": "/app"}
    assert cluster.pods(namespace, name)[0].spec.active_deadline_seconds is None
    execute(cluster, namespace, pod, "echo 42 > /app/answer.txt")
    cluster.patch_run(namespace, name, {"finish": {"outcome": "Succeeded", "response": "done"}})
    status = cluster.finished(namespace, name)
    assert (status["phase"], status["reward"], status["agent"]["outcome"]) == ("Succeeded", "1", "Succeeded")
    assert status["agent"]["seconds"] > 0


def test_an_agent_that_says_it_failed_is_graded_all_the_same(cluster, namespace, operator, name):
    start(cluster, namespace, name)
    pod = awaited(cluster, namespace, name)
    execute(cluster, namespace, pod, "echo 42 > /app/answer.txt")
    cluster.patch_run(namespace, name, {"finish": {"outcome": "Failed"}})
    status = cluster.finished(namespace, name)
    assert (status["reward"], status["agent"]["outcome"], "failure" in status) == ("1", "Failed", False)


def test_what_was_left_running_goes_on_beside_the_verifier(cluster, namespace, operator, name):
    test = "test -d /proc/$(cat /app/pid) && echo 1 > /logs/verifier/reward.txt\n"
    start(cluster, namespace, name, files={**FILES, "tests/test.sh": test})
    pod = awaited(cluster, namespace, name)
    execute(cluster, namespace, pod, "setsid sleep 1000 > /dev/null 2>&1 & echo $! > /app/pid")
    cluster.patch_run(namespace, name, {"finish": {"outcome": "Succeeded"}})
    assert cluster.finished(namespace, name)["reward"] == "1"


RESPONSES: dict[str, Any] = {
    "text": "It is forty-two.",
    "object": json.dumps(
        {
            "object": "response",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "It is forty-two."}],
                }
            ],
        }
    ),
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_the_response_stands_in_the_transcript(cluster, namespace, operator, name, response):
    start(cluster, namespace, name, files={**FILES, "tests/test.sh": SAYS})
    awaited(cluster, namespace, name)
    cluster.patch_run(namespace, name, {"finish": {"outcome": "Succeeded", "response": response}})
    assert cluster.finished(namespace, name)["reward"] == "1"


def test_a_response_may_come_from_a_config_map_that_comes_later(cluster, namespace, operator, name):
    reference = {"configMapKeyRef": {"name": f"{name}-answer", "key": "text"}}
    start(cluster, namespace, name, files={**FILES, "tests/test.sh": SAYS})
    awaited(cluster, namespace, name)
    cluster.patch_run(namespace, name, {"finish": {"outcome": "Succeeded", "responseFrom": reference}})
    assert f"{name}-answer" in cluster.shown(namespace, name, "SourceNotFound")
    assert cluster.status(namespace, name)["phase"] == "Closing"
    body = {"metadata": {"name": f"{name}-answer"}, "data": {"text": "forty-two"}}
    cluster.core.create_namespaced_config_map(namespace, body)
    assert cluster.finished(namespace, name)["reward"] == "1"


def test_a_limit_that_nobody_keeps_ends_in_verification(cluster, namespace, operator, name):
    start(cluster, namespace, name, files={**FILES, "task.toml": TOML + "[agent]\ntimeout_sec = 2.5\n"})
    status = cluster.finished(namespace, name)
    assert (status["phase"], status["reward"], status["agent"]["outcome"]) == ("Succeeded", "0", "TimedOut")
    assert status["agent"]["seconds"] >= 2.5
    assert "2.5 s" in status["agent"]["message"]


def test_finish_before_the_pod_is_there_acts_as_soon_as_it_is_ready(cluster, namespace, operator, name):
    start(cluster, namespace, name, finish={"outcome": "Succeeded"})
    status = cluster.finished(namespace, name)
    assert (status["phase"], status["reward"], status["agent"]["outcome"]) == ("Succeeded", "0", "Succeeded")


def test_a_lost_pod_masks_the_run(cluster, namespace, operator, name):
    start(cluster, namespace, name)
    awaited(cluster, namespace, name)
    cluster.delete_pods(namespace, name, grace=0)
    status = cluster.finished(namespace, name)
    assert (status["phase"], status["failure"]["reason"], status["failure"]["stage"]) == (
        "Masked",
        "PodDeleted",
        "agent",
    )


def test_cancelled_while_somebody_works(cluster, namespace, operator, name):
    start(cluster, namespace, name)
    awaited(cluster, namespace, name)
    cluster.patch_run(namespace, name, {"cancel": True})
    assert cluster.finished(namespace, name)["phase"] == "Cancelled"


def test_an_operator_that_comes_back_goes_on(cluster, own_namespace, own_operator, name):
    start(cluster, own_namespace, name)
    pod = awaited(cluster, own_namespace, name)
    own_operator.kill()
    execute(cluster, own_namespace, pod, "echo 42 > /app/answer.txt")
    cluster.patch_run(own_namespace, name, {"finish": {"outcome": "Succeeded", "response": "forty-two"}})
    own_operator.start()
    status = cluster.finished(own_namespace, name)
    assert (status["reward"], status["attempts"][0]["tries"]) == ("1", 1)


def test_whole_new_attempts_are_refused(cluster, namespace, operator, name):
    start(cluster, namespace, name, retries={"infrastructure": 1})
    failure = cluster.finished(namespace, name)["failure"]
    assert (failure["reason"], failure["terminal"]) == ("InvalidSpec", True)
    assert "spec.retries.infrastructure" in failure["message"]
